//! The cache on disk, in the layout of `huggingface_hub`:
//!
//! ```text
//! <cache>/models--OWNER--NAME/blobs/<hash>             a file's bytes, named by content
//!                             blobs/<hash>.incomplete  a download under way or interrupted
//!                             refs/<revision>          the commit a branch pointed at
//!                             snapshots/<commit>/<path> -> ../../blobs/<hash>
//! <cache>/.locks/models--OWNER--NAME/<hash>.lock       held while a blob is written
//! ```

use super::Error;
use super::download::Blob;
use super::reference::is_repo;
use super::select::{RepoFile, is_safe_path};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The folder that holds the cache and the token: `HF_HOME`, or its usual place.
pub(super) fn hugging_face_home() -> Option<PathBuf> {
    let folder = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    folder("HF_HOME")
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("huggingface")))
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache").join("huggingface")))
}

/// The cache's root.
pub(crate) struct Cache {
    dir: PathBuf,
}

impl Cache {
    pub(super) fn new(dir: PathBuf) -> Cache {
        Cache { dir }
    }

    /// A repository's place in the cache, whether it exists or not.
    pub(super) fn repo(&self, repo: &str) -> Repo {
        debug_assert!(is_repo(repo), "checked when the reference was parsed");
        let folder = format!("models--{}", repo.replace('/', "--"));
        Repo {
            locks: self.dir.join(".locks").join(&folder),
            dir: self.dir.join(folder),
        }
    }

    /// Repositories with at least one snapshot, as `owner/name`, sorted.
    pub(super) fn repos(&self) -> Vec<String> {
        let mut repos: Vec<String> = entries(&self.dir)
            .filter(|entry| entry.path().join("snapshots").is_dir())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter_map(|name| Some(name.strip_prefix("models--")?.replace("--", "/")))
            .filter(|name| is_repo(name))
            .collect();
        repos.sort();
        repos
    }

    /// Refuses a download that does not fit on the disk, before its first byte.
    pub(super) fn check_space(&self, needed_bytes: u64) -> Result<(), Error> {
        match free_bytes(&self.dir) {
            Some(free_bytes) if free_bytes < needed_bytes => Err(Error::NoSpace {
                dir: self.dir.clone(),
                needed_bytes,
                free_bytes,
            }),
            _ => Ok(()), // not every file system reports it
        }
    }
}

/// Bytes an ordinary user may still write where `path` is, or would be made.
#[cfg(unix)]
pub fn free_bytes(path: &Path) -> Option<u64> {
    let existing = path.ancestors().find(|folder| folder.is_dir())?;
    let stats = rustix::fs::statvfs(existing).ok()?;
    stats.f_bavail.checked_mul(stats.f_frsize)
}

/// Unknown on this system.
#[cfg(not(unix))]
pub fn free_bytes(_path: &Path) -> Option<u64> {
    None
}

/// The entries of a folder; none if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = fs::DirEntry> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// One repository's folders.
pub(crate) struct Repo {
    dir: PathBuf,
    locks: PathBuf,
}

impl Repo {
    /// Makes the folders.
    pub(super) fn create(&self) -> Result<(), Error> {
        for folder in [
            self.dir.join("blobs"),
            self.dir.join("refs"),
            self.locks.clone(),
        ] {
            fs::create_dir_all(&folder).map_err(Error::file(folder))?;
        }
        Ok(())
    }

    /// The commit that a branch, tag or commit refers to in this cache.
    pub(super) fn commit(&self, revision: &str) -> Option<String> {
        if let Ok(text) = fs::read_to_string(self.dir.join("refs").join(revision)) {
            return Some(text.trim().to_owned()).filter(|commit| is_hex(commit));
        }
        (is_hex(revision) && self.snapshot(revision).is_dir()).then(|| revision.to_owned())
    }

    /// Its folder.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Revisions with their commits, `main` first. A snapshot without a named revision is listed by its commit.
    pub(super) fn revisions(&self) -> Vec<(String, String)> {
        let root = self.dir.join("refs");
        let mut names = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in entries(&folder) {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                    _ => names.extend(
                        entry
                            .path()
                            .strip_prefix(&root)
                            .ok()
                            .and_then(Path::to_str)
                            .map(str::to_owned),
                    ),
                }
            }
        }
        let snapshots = entries(&self.dir.join("snapshots"));
        let commits = snapshots.filter_map(|entry| entry.file_name().into_string().ok());
        // Names of branches before bare commits.
        names.sort_by_key(|name| (name != "main", name.clone()));
        names.extend(commits.filter(|name| is_hex(name)));
        let known = names
            .into_iter()
            .filter_map(|name| Some((name.clone(), self.commit(&name)?)));
        known.collect()
    }

    /// Blobs with their sizes, unfinished ones included.
    pub(super) fn blobs(&self) -> Vec<(PathBuf, u64)> {
        let files = entries(&self.dir.join("blobs"));
        files
            .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.len())))
            .collect()
    }

    /// Names of the blobs that snapshots link to.
    pub(super) fn linked_blobs(&self) -> BTreeSet<String> {
        let mut linked = BTreeSet::new();
        let mut folders = vec![self.dir.join("snapshots")];
        while let Some(folder) = folders.pop() {
            for entry in entries(&folder) {
                let path = entry.path();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(path),
                    Ok(kind) if kind.is_symlink() => {
                        let target = fs::read_link(&path).ok();
                        let name = target.as_deref().and_then(Path::file_name);
                        let name = name.and_then(|name| name.to_str());
                        linked.extend(name.filter(|name| is_hex(name)).map(str::to_owned));
                    }
                    _ => {}
                }
            }
        }
        linked
    }

    /// The files whose locks guard downloads.
    pub(super) fn lock_files(&self) -> Vec<PathBuf> {
        entries(&self.locks).map(|entry| entry.path()).collect()
    }

    /// The folder of a commit's files.
    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.dir.join("snapshots").join(commit)
    }

    /// Reads a small file of a snapshot.
    pub(super) fn read_snapshot_file(&self, commit: &str, name: &str) -> Option<Vec<u8>> {
        fs::read(self.snapshot(commit).join(name)).ok()
    }

    /// The files a snapshot has, leaving out links whose blob is gone.
    pub(super) fn snapshot_files(&self, commit: &str) -> Vec<RepoFile> {
        let root = self.snapshot(commit);
        let mut files = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in entries(&folder) {
                let path = entry.path();
                let Ok(metadata) = fs::metadata(&path) else {
                    continue;
                };
                // A link to a folder could lead back here, so only real folders are walked.
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(path);
                } else if metadata.is_file()
                    && let Some(name) = path.strip_prefix(&root).ok().and_then(Path::to_str)
                {
                    let (name, size_bytes) = (name.to_owned(), metadata.len());
                    files.push(RepoFile {
                        name,
                        size_bytes,
                        hash: None,
                    });
                }
            }
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files
    }

    /// Path of a finished blob.
    pub(super) fn blob(&self, hash: &str) -> PathBuf {
        self.dir.join("blobs").join(hash)
    }

    /// Path of an unfinished blob.
    pub(super) fn incomplete(&self, hash: &str) -> PathBuf {
        self.dir.join("blobs").join(format!("{hash}.incomplete"))
    }

    /// The file whose lock guards a blob.
    pub(super) fn lock(&self, hash: &str) -> PathBuf {
        self.locks.join(format!("{hash}.lock"))
    }

    /// Whether the whole blob is here.
    pub(super) fn has(&self, blob: &Blob) -> bool {
        fs::metadata(self.blob(&blob.hash.hex)).is_ok_and(|file| file.len() == blob.size_bytes)
    }

    /// Bytes still to be downloaded.
    pub(super) fn missing_bytes(&self, blob: &Blob) -> u64 {
        if self.has(blob) {
            return 0;
        }
        let started = fs::metadata(self.incomplete(&blob.hash.hex)).map_or(0, |file| file.len());
        blob.size_bytes.saturating_sub(started)
    }

    /// Links a blob under its name in a snapshot.
    pub(super) fn link(&self, commit: &str, name: &str, hash: &str) -> Result<(), Error> {
        debug_assert!(is_safe_path(name), "checked when the listing was read");
        let path = self.snapshot(commit).join(name);
        let folder = path.parent().expect("below the snapshot's folder");
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        // Relative, so that the cache can be moved or mounted elsewhere.
        let up = "../".repeat(2 + name.matches('/').count());
        let target = PathBuf::from(format!("{up}blobs/{hash}"));
        if fs::read_link(&path).is_ok_and(|existing| existing == target) {
            return Ok(());
        }
        let temporary = folder.join(format!(".link-{}-{hash}", std::process::id()));
        place(&target, &self.blob(hash), &temporary).map_err(Error::file(&temporary))?;
        fs::rename(&temporary, &path).map_err(Error::file(path))
    }

    /// Records the commit that a branch pointed at.
    pub(super) fn write_ref(&self, revision: &str, commit: &str) -> Result<(), Error> {
        if revision == commit {
            return Ok(());
        }
        let path = self.dir.join("refs").join(revision);
        let folder = path.parent().expect("below `refs`");
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let temporary = folder.join(format!(".ref-{}", std::process::id()));
        fs::File::create(&temporary)
            .and_then(|mut file| file.write_all(commit.as_bytes()))
            .map_err(Error::file(&temporary))?;
        fs::rename(&temporary, &path).map_err(Error::file(path))
    }
}

#[cfg(unix)]
fn place(target: &Path, _blob: &Path, at: &Path) -> io::Result<()> {
    match std::os::unix::fs::symlink(target, at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Makes a hard link, else a copy: symbolic links need a privilege on some systems.
#[cfg(not(unix))]
fn place(_target: &Path, blob: &Path, at: &Path) -> io::Result<()> {
    fs::hard_link(blob, at).or_else(|_| fs::copy(blob, at).map(|_| ()))
}

/// Whether text from the network is safe as a file name: the hex of a hash or commit.
pub(super) fn is_hex(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::download::Hash;

    const COMMIT: &str = "0123456789012345678901234567890123456789";
    const SHA: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn repo_in(dir: &Path) -> Repo {
        let repo = Cache::new(dir.to_owned()).repo("me/model");
        repo.create().expect("a writable temporary folder");
        repo
    }

    #[test]
    fn links_are_relative_and_reach_the_blob() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let repo = repo_in(dir.path());
        fs::write(repo.blob(SHA), b"content").expect("write");
        for name in ["a.gguf", "deep/er/b.gguf"] {
            repo.link(COMMIT, name, SHA).expect("link");
            repo.link(COMMIT, name, SHA).expect("again");
            let path = repo.snapshot(COMMIT).join(name);
            assert!(fs::read_link(&path).expect("a link").is_relative());
            assert_eq!(fs::read(path).expect("through the link"), b"content");
        }
        let names: Vec<String> = repo
            .snapshot_files(COMMIT)
            .into_iter()
            .map(|file| file.name)
            .collect();
        assert_eq!(names, ["a.gguf", "deep/er/b.gguf"]);
        assert_eq!(Cache::new(dir.path().to_owned()).repos(), ["me/model"]);
    }

    #[test]
    fn a_link_to_a_lost_blob_is_not_a_file() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let repo = repo_in(dir.path());
        repo.link(COMMIT, "a.gguf", SHA).expect("link");
        assert!(repo.snapshot_files(COMMIT).is_empty());
    }

    #[test]
    fn revisions_resolve_by_reference_then_by_commit() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let repo = repo_in(dir.path());
        assert_eq!(repo.commit("main"), None);
        repo.write_ref("refs/pr/1", COMMIT)
            .expect("nested reference");
        assert_eq!(repo.commit("refs/pr/1").as_deref(), Some(COMMIT));
        assert_eq!(repo.commit(COMMIT), None, "no snapshot yet");
        fs::create_dir_all(repo.snapshot(COMMIT)).expect("folder");
        assert_eq!(repo.commit(COMMIT).as_deref(), Some(COMMIT));
        fs::write(dir.path().join("models--me--model/refs/bad"), "../../etc").expect("write");
        assert_eq!(repo.commit("bad"), None, "a reference that is no commit");
    }

    #[test]
    fn missing_bytes_count_what_an_interrupted_download_left() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let repo = repo_in(dir.path());
        let hash = Hash::parse(SHA).expect("40 hex digits");
        let blob = Blob {
            url: String::new(),
            name: "x".into(),
            size_bytes: 10,
            hash,
        };
        assert_eq!(repo.missing_bytes(&blob), 10);
        fs::write(repo.incomplete(SHA), b"1234").expect("write");
        assert_eq!(repo.missing_bytes(&blob), 6);
        fs::write(repo.blob(SHA), b"0123456789").expect("write");
        assert_eq!(repo.missing_bytes(&blob), 0);
    }

    #[test]
    fn a_download_larger_than_the_disk_is_refused() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let cache = Cache::new(dir.path().join("not/yet/made"));
        cache.check_space(1).expect("one byte fits");
        assert!(matches!(
            cache.check_space(u64::MAX),
            Err(Error::NoSpace { .. })
        ));
    }
}
