//! Artifacts on disk: `<key>.npu` files and `manifest.json`.
//!
//! Files appear whole or not at all: each is written under a temporary name, synced, renamed, and
//! then the directory is synced. The manifest is replaced last, so that it names only whole files.
//! Nothing read is trusted: file names follow from keys, sizes are checked before reading, and the
//! container checks its own hash.

use super::{Notice, Notify};
use crate::{Container, ContentHash, container};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MANIFEST: &str = "manifest.json";
const MANIFEST_VERSION: u32 = 1;
const MANIFEST_MAX_BYTES: u64 = 16 << 20;
const TEMPORARY: &str = "tmp-";

#[derive(Debug)]
pub(super) struct Disk {
    directory: PathBuf,
}

/// Result of looking a key up.
pub(super) enum DiskLookup {
    /// The program.
    Hit(Container),
    /// No entry.
    Miss,
    /// An artifact that cannot be used, and why.
    Bad(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    #[serde(default)]
    programs: BTreeMap<String, DiskEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct DiskEntry {
    name: String,
    target: String,
    container_version: u32,
    size_bytes: u64,
    content_hash: String,
}

impl Default for Manifest {
    fn default() -> Manifest {
        Manifest {
            version: MANIFEST_VERSION,
            programs: BTreeMap::new(),
        }
    }
}

impl Disk {
    pub(super) fn open(directory: &Path) -> io::Result<Disk> {
        fs::create_dir_all(directory)?;
        Ok(Disk {
            directory: directory.to_owned(),
        })
    }

    /// An exclusive lock, held until the file is dropped.
    pub(super) fn lock(&self, name: &str) -> io::Result<File> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.directory.join(name))?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn get(
        &self,
        key: ContentHash,
        target: &str,
        notify: &dyn Fn(&Notice),
    ) -> DiskLookup {
        let manifest = self.manifest(notify);
        let Some(entry) = manifest.programs.get(&key.to_string()) else {
            return DiskLookup::Miss;
        };
        match self.read(key, entry, target) {
            Ok(container) => DiskLookup::Hit(container),
            Err(reason) => DiskLookup::Bad(reason),
        }
    }

    fn read(&self, key: ContentHash, entry: &DiskEntry, target: &str) -> Result<Container, String> {
        if entry.container_version != container::VERSION {
            return Err(format!(
                "it is stale: container version {}, not {}",
                entry.container_version,
                container::VERSION
            ));
        }
        if entry.target != target {
            return Err(format!("it is for `{}`, not `{target}`", entry.target));
        }
        let path = self.artifact(key);
        let bytes = read_exactly(&path, entry.size_bytes)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let container = Container::decode(&bytes).map_err(|error| error.to_string())?;
        if container.content_hash().to_string() != entry.content_hash {
            return Err("its content hash is not the manifest's".to_owned());
        }
        if container.target() != target {
            return Err(format!(
                "it is for `{}`, not `{target}`",
                container.target()
            ));
        }
        Ok(container)
    }

    /// Writes an artifact and names it in the manifest.
    pub(super) fn put(
        &self,
        key: ContentHash,
        container: &Container,
        notify: &Notify,
    ) -> io::Result<()> {
        let _guard = self.lock("manifest.lock")?;
        self.sweep();
        let bytes = container.encode();
        self.replace(&self.artifact(key), &bytes)?;
        let mut manifest = self.manifest(notify);
        let entry = DiskEntry {
            name: container.name().to_owned(),
            target: container.target().to_owned(),
            container_version: container::VERSION,
            size_bytes: bytes.len() as u64,
            content_hash: container.content_hash().to_string(),
        };
        manifest.programs.insert(key.to_string(), entry);
        let text = serde_json::to_vec_pretty(&manifest)?;
        self.replace(&self.directory.join(MANIFEST), &text)
    }

    fn artifact(&self, key: ContentHash) -> PathBuf {
        self.directory.join(format!("{key}.npu"))
    }

    /// The manifest; an empty one, with a notice, where it cannot be used.
    fn manifest(&self, notify: &dyn Fn(&Notice)) -> Manifest {
        let path = self.directory.join(MANIFEST);
        match read_manifest(&path) {
            Ok(manifest) => manifest,
            Err(reason) => {
                notify(&Notice::Manifest { path, reason });
                Manifest::default()
            }
        }
    }

    /// Replaces a file as a whole, surviving a crash at any point.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let name = format!("{TEMPORARY}{}-{number}", std::process::id());
        let temporary = self.directory.join(name);
        let written = (|| {
            let mut file = File::create(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, path)?;
            File::open(&self.directory)?.sync_all()
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Removes files that a crash left. The manifest's lock is held, so nobody is writing one.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return;
        };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn read_manifest(path: &Path) -> Result<Manifest, String> {
    let size_bytes = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Manifest::default()),
        Err(error) => return Err(error.to_string()),
    };
    if size_bytes > MANIFEST_MAX_BYTES {
        return Err(format!(
            "{size_bytes} bytes; a manifest has at most {MANIFEST_MAX_BYTES}"
        ));
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(MANIFEST_MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    match manifest.version {
        MANIFEST_VERSION => Ok(manifest),
        version => Err(format!("version {version}, not {MANIFEST_VERSION}")),
    }
}

/// The bytes of a file whose size must be as stated.
fn read_exactly(path: &Path, size_bytes: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let found = file.metadata()?.len();
    if found != size_bytes {
        let message = format!("{found} bytes, the manifest says {size_bytes}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut bytes = Vec::new();
    file.take(size_bytes).read_to_end(&mut bytes)?;
    Ok(bytes)
}
