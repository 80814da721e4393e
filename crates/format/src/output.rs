//! Output files that appear whole or not at all.

mod body;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::Error;

pub(crate) use body::{Body, TensorExtent};

/// Enough to make small writes cheap; tensors pass through unbuffered.
const BUFFER_BYTES: usize = 256 * 1024;

/// A file under a temporary name beside its target, which takes the target's name on
/// [`AtomicFile::commit`]. Dropped before that, by an error or a panic, it leaves nothing.
#[derive(Debug)]
pub struct AtomicFile {
    /// `None` only once committed.
    writer: Option<BufWriter<File>>,
    temporary: PathBuf,
    target: PathBuf,
}

impl AtomicFile {
    /// Starts a file that will be called `target`. A link is followed: its target is replaced.
    ///
    /// # Errors
    /// [`Error::NotAFile`] if something other than a file has the name (a folder, a device), and
    /// [`Error::Io`] if the folder is missing or not writable.
    pub fn create(target: &Path) -> Result<AtomicFile, Error> {
        let target = match fs::metadata(target) {
            Ok(kind) if !kind.is_file() => {
                return Err(Error::NotAFile {
                    path: target.to_owned(),
                });
            }
            Ok(_) => fs::canonicalize(target).map_err(Error::io(target, "write"))?,
            Err(_) => target.to_owned(),
        };
        let (temporary, file) = create_beside(&target)?;
        Ok(AtomicFile {
            writer: Some(BufWriter::with_capacity(BUFFER_BYTES, file)),
            temporary,
            target,
        })
    }

    /// The name it will have.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Puts everything on the disk without giving it its name yet: a write that fails for want of space fails here.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync(&mut self) -> Result<(), Error> {
        let target = &self.target;
        let writer = self
            .writer
            .as_mut()
            .expect("only commit takes the writer, and self with it");
        writer.flush().map_err(Error::io(target, "write"))?;
        writer
            .get_ref()
            .sync_all()
            .map_err(Error::io(target, "write"))
    }

    /// Puts everything on the disk and gives the file its name, replacing an older one.
    ///
    /// # Errors
    /// [`Error::Io`]; nothing is left behind then, and an older file stays as it was.
    pub fn commit(mut self) -> Result<(), Error> {
        self.sync()?;
        fs::rename(&self.temporary, &self.target).map_err(Error::io(&self.target, "rename to"))?;
        self.writer = None;
        unfinished().remove(&self.temporary);
        // The new name must survive a power cut too. Some file systems cannot sync a folder; the
        // contents are safe without it.
        if let Ok(folder) = File::open(folder_of(&self.target)) {
            let _ = folder.sync_all();
        }
        Ok(())
    }

    fn file(&mut self) -> io::Result<&mut BufWriter<File>> {
        self.writer
            .as_mut()
            .ok_or_else(|| io::Error::other("already committed"))
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file()?.flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file()?.seek(to)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            // Buffered bytes are discarded: `into_parts` does not flush.
            drop(writer.into_parts());
            let _ = fs::remove_file(&self.temporary);
            unfinished().remove(&self.temporary);
        }
    }
}

/// The temporary files of this process.
fn unfinished() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    static FILES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    FILES
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Removes every file that was started and not committed, for a process that is about to be ended
/// without unwinding. Threads that start, commit or drop a file after this wait forever.
pub fn discard_unfinished() {
    let files = unfinished();
    for file in files.iter() {
        let _ = fs::remove_file(file);
    }
    std::mem::forget(files);
}

/// Writes a small file in one go, whole or not at all.
///
/// # Errors
/// As [`AtomicFile::create`] and [`AtomicFile::commit`].
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes).map_err(Error::io(path, "write"))?;
    file.commit()
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// A new file, in the folder of `target` and under a name that no other writer uses. A rename is
/// atomic only within one file system.
fn create_beside(target: &Path) -> Result<(PathBuf, File), Error> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let Some(name) = target.file_name() else {
        return Err(Error::NotAFile {
            path: target.to_owned(),
        });
    };
    loop {
        let mut hidden = OsString::from(".");
        hidden.push(name);
        let n = COUNTER.fetch_add(1, Ordering::Relaxed);
        hidden.push(format!(".{}-{n}.partial", std::process::id()));
        let temporary = folder_of(target).join(hidden);
        // Held while the file is made: it is listed as soon as it exists.
        let mut files = unfinished();
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
        {
            Ok(file) => {
                files.insert(temporary.clone());
                return Ok((temporary, file));
            }
            // A leftover of a killed process with the same process id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::io(target, "create")(error)),
        }
    }
}
