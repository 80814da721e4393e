//! One file from the network into the cache: locked, resumed, checked, then renamed into place.

use super::Error;
use super::cache::{Repo, is_hex};
use super::client::{ByteRange, Client, RetryBudget, Trouble};
use crate::watch::{self, Progress, Watch};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use ureq::http::{StatusCode, header};

/// Bytes read from the network, hashed and written at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes that a connection must deliver to count as progress.
const PROGRESS_BYTES: u64 = 1 << 20;

/// The hash that names a blob and verifies its content.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hash {
    pub(super) hex: String,
}

impl Hash {
    /// Parses a hash: 64 hex digits are a SHA-256, 40 Git's SHA-1.
    pub(super) fn parse(hex: &str) -> Option<Hash> {
        is_hex(hex).then(|| Hash {
            hex: hex.to_ascii_lowercase(),
        })
    }

    fn kind(&self) -> &'static str {
        if self.hex.len() == 64 {
            "SHA-256"
        } else {
            "Git SHA-1"
        }
    }

    fn start(&self, size_bytes: u64) -> Hasher {
        if self.hex.len() == 64 {
            return Hasher::Sha256(Sha256::new());
        }
        Hasher::GitSha1(Sha1::new_with_prefix(format!("blob {size_bytes}\0")))
    }
}

enum Hasher {
    Sha256(Sha256),
    GitSha1(Sha1),
}

impl Hasher {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::GitSha1(hasher) => hasher.update(bytes),
        }
    }

    fn finish(self) -> String {
        match self {
            Hasher::Sha256(hasher) => hex(&hasher.finalize()),
            Hasher::GitSha1(hasher) => hex(&hasher.finalize()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file to have in the cache.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Blob {
    pub(super) url: String,
    /// Its path in the repository.
    pub(super) name: String,
    pub(super) size_bytes: u64,
    pub(super) hash: Hash,
}

/// Makes sure that the cache has the blob; returns the bytes downloaded. `progress` gets the number of the file's
/// bytes that are present.
pub(super) fn fetch(
    client: &Client<'_>,
    repo: &Repo,
    blob: &Blob,
    watch: &Watch<'_>,
    progress: &dyn Fn(u64),
) -> Result<u64, Error> {
    if repo.has(blob) {
        return Ok(0);
    }
    let lock = lock(repo, blob, watch)?;
    // Another process may have finished it while this one waited.
    if repo.has(blob) {
        return Ok(0);
    }
    let mut transfer = Transfer::open(repo, blob, watch.cancel, progress)?;
    let mut patience = RetryBudget::default();
    let (mut downloaded, mut restarted) = (0, false);
    loop {
        let (before, had_rest) = (downloaded, transfer.position > 0);
        let result = transfer.attempt(client, repo, &mut downloaded);
        if downloaded - before >= PROGRESS_BYTES {
            patience.progressed();
        }
        match result.and_then(|()| transfer.verify().map_err(Trouble::Final)) {
            Ok(()) => break,
            // The damage may be in the bytes of an earlier run: try once more, from the first byte.
            Err(Trouble::Final(Error::WrongHash { .. })) if had_rest && !restarted => {
                restarted = true;
                transfer.restart()?;
            }
            Err(Trouble::Final(error @ Error::WrongHash { .. })) => {
                let path = repo.incomplete(&blob.hash.hex);
                std::fs::remove_file(&path).map_err(Error::file(path))?;
                return Err(error);
            }
            Err(trouble) => patience.wait(trouble, watch.cancel)?,
        }
    }
    transfer.finish(repo)?;
    drop(lock);
    Ok(downloaded)
}

/// Waits until no other process downloads this blob.
fn lock(repo: &Repo, blob: &Blob, watch: &Watch<'_>) -> Result<File, Error> {
    let path = repo.lock(&blob.hash.hex);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(Error::file(&path))?;
    let mut said = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {
                if !said {
                    watch.tell(Progress::Waiting { name: &blob.name });
                    said = true;
                }
                watch::sleep(Duration::from_millis(200), watch.cancel)?;
            }
            Err(TryLockError::Error(source)) => return Err(Error::File { path, source }),
        }
    }
}

/// A blob being downloaded.
struct Transfer<'a> {
    blob: &'a Blob,
    file: File,
    hasher: Hasher,
    /// Bytes written and hashed.
    position: u64,
    /// The ETag of the response that delivered them, if it was received in this run.
    etag: Option<String>,
    cancel: &'a AtomicBool,
    progress: &'a dyn Fn(u64),
}

impl<'a> Transfer<'a> {
    /// Opens the unfinished file and hashes the bytes that an earlier run left in it.
    fn open(
        repo: &Repo,
        blob: &'a Blob,
        cancel: &'a AtomicBool,
        progress: &'a dyn Fn(u64),
    ) -> Result<Transfer<'a>, Error> {
        let path = repo.incomplete(&blob.hash.hex);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(Error::file(&path))?;
        let hasher = blob.hash.start(blob.size_bytes);
        let mut transfer = Transfer {
            blob,
            file,
            hasher,
            position: 0,
            etag: None,
            cancel,
            progress,
        };
        transfer.rehash(&path)?;
        if transfer.position > blob.size_bytes {
            transfer.restart()?;
        }
        Ok(transfer)
    }

    fn rehash(&mut self, path: &Path) -> Result<(), Error> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            watch::check(self.cancel)?;
            match self.file.read(&mut chunk).map_err(Error::file(path))? {
                0 => return Ok(()),
                n => self.accept(&chunk[..n]),
            }
        }
    }

    fn accept(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.position += bytes.len() as u64;
        (self.progress)(self.position);
    }

    /// Discards everything downloaded so far.
    fn restart(&mut self) -> Result<(), Error> {
        self.hasher = self.blob.hash.start(self.blob.size_bytes);
        self.position = 0;
        self.etag = None;
        (self.progress)(0);
        let emptied = self
            .file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map(|_| ()).map_err(Error::file(&self.blob.name))
    }

    /// Requests the rest of the file and writes the response.
    fn attempt(
        &mut self,
        client: &Client<'_>,
        repo: &Repo,
        downloaded: &mut u64,
    ) -> Result<(), Trouble> {
        if self.position == self.blob.size_bytes {
            return Ok(());
        }
        let range = ByteRange {
            start: self.position,
            if_range: self.etag.as_deref(),
        };
        let response = client.get(&self.blob.url, (range.start > 0).then_some(&range))?;
        let text = |name: header::HeaderName| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let range = text(header::CONTENT_RANGE).unwrap_or_default().to_owned();
                self.check_range(&range)?;
            }
            // The server sends the whole file: it does not support ranges, or the file changed.
            StatusCode::OK => self.restart()?,
            StatusCode::RANGE_NOT_SATISFIABLE => {
                self.restart()?;
                let what = "the server has fewer bytes than were already here".to_owned();
                let error = Error::BadResponse {
                    url: self.blob.url.clone(),
                    what,
                };
                return Err(Trouble::Passing { error, wait: None });
            }
            _ => return Err(client.refusal(&response, &self.blob.url, &self.blob.name, None)),
        }
        // A weak validator does not promise the same bytes.
        self.etag = text(header::ETAG)
            .filter(|etag| !etag.starts_with("W/"))
            .map(str::to_owned);
        self.receive(&mut response.into_body().into_reader(), repo, downloaded)
    }

    /// Refuses a part that does not continue the present bytes.
    fn check_range(&self, range: &str) -> Result<(), Error> {
        let expected = format!(
            "bytes {}-{}/{}",
            self.position,
            self.blob.size_bytes - 1,
            self.blob.size_bytes
        );
        if range == expected {
            return Ok(());
        }
        let what = format!("asked for `{expected}`, the server sends `{range}`");
        Err(Error::BadResponse {
            url: self.blob.url.clone(),
            what,
        })
    }

    fn receive(
        &mut self,
        body: &mut dyn Read,
        repo: &Repo,
        downloaded: &mut u64,
    ) -> Result<(), Trouble> {
        let passing = |what: String| {
            let error = Error::Network {
                url: self.blob.url.clone(),
                what,
            };
            Trouble::Passing { error, wait: None }
        };
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            watch::check(self.cancel)?;
            let n = body
                .read(&mut chunk)
                .map_err(|error| passing(error.to_string()))?;
            let total = self.blob.size_bytes;
            match self.position + n as u64 {
                _ if n == 0 && self.position == total => return Ok(()),
                position if n == 0 => {
                    return Err(passing(format!(
                        "the connection ended after {position} of {total} bytes"
                    )));
                }
                position if position > total => {
                    let what = format!("the server sends more than the {total} bytes announced");
                    return Err(Error::BadResponse {
                        url: self.blob.url.clone(),
                        what,
                    }
                    .into());
                }
                _ => {}
            }
            let path = || repo.incomplete(&self.blob.hash.hex);
            self.file
                .write_all(&chunk[..n])
                .map_err(|source| Error::File {
                    path: path(),
                    source,
                })?;
            self.accept(&chunk[..n]);
            *downloaded += n as u64;
        }
    }

    fn verify(&mut self) -> Result<(), Error> {
        let fresh = self.blob.hash.start(self.blob.size_bytes);
        let found = std::mem::replace(&mut self.hasher, fresh).finish();
        if found == self.blob.hash.hex {
            return Ok(());
        }
        Err(Error::WrongHash {
            name: self.blob.name.clone(),
            kind: self.blob.hash.kind(),
            expected: self.blob.hash.hex.clone(),
            found,
        })
    }

    /// Makes the finished file visible. Its bytes are on the disk before it gets its name.
    fn finish(self, repo: &Repo) -> Result<(), Error> {
        let (from, to) = (
            repo.incomplete(&self.blob.hash.hex),
            repo.blob(&self.blob.hash.hex),
        );
        self.file.sync_all().map_err(Error::file(&from))?;
        std::fs::rename(&from, &to).map_err(Error::file(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_git_and_sha256() {
        // `printf hello | git hash-object --stdin` and `printf hello | sha256sum`.
        for hex in [
            "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0",
            "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        ] {
            let hash = Hash::parse(hex).expect("hex");
            let mut hasher = hash.start(5);
            hasher.update(b"hel");
            hasher.update(b"lo");
            assert_eq!(hasher.finish(), hex, "{}", hash.kind());
        }
    }

    #[test]
    fn only_hex_of_a_known_length_is_a_hash() {
        for text in ["", "abc", "../../../../etc/passwd-aaaaaaaaaaaaaaaaaa"] {
            assert_eq!(Hash::parse(text), None);
        }
    }
}
