//! Listing the models in the cache, and removing them.

use super::cache::{Cache, Repo};
use super::select::{self, RepoFile};
use super::{Error, Hub, Reference};
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::path::PathBuf;

/// A model in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedModel {
    /// The name that opens it: `OWNER/REPO[@REVISION][:FILE]`.
    pub name: String,
    /// The file, the first of a split one, or the folder.
    pub path: PathBuf,
    /// The commit it is from.
    pub commit: String,
    /// Size of all its files.
    pub size_bytes: u64,
}

/// Result of [`Hub::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Number of removed files.
    pub n_files: usize,
    /// Bytes freed. A file that another revision links to stays.
    pub freed_bytes: u64,
}

impl Hub {
    /// Every model in the cache, by name.
    pub fn held(&self) -> Vec<CachedModel> {
        let repos = self.cache.repos();
        repos
            .iter()
            .flat_map(|name| held_in(&self.cache, name))
            .collect()
    }

    /// Removes a repository from the cache, or with a pick only the files of that model.
    ///
    /// # Errors
    /// [`Error::NotCached`]; [`Error::Busy`] while a download of it is under way; a disk that fails.
    pub fn remove(&self, reference: &Reference) -> Result<Removal, Error> {
        let repo = self.cache.repo(&reference.repo);
        let missing = || Error::NotCached {
            reference: reference.clone(),
            cache_dir: self.settings.cache_dir.clone(),
        };
        if !repo.dir().is_dir() {
            return Err(missing());
        }
        // Held while files are removed, so that no download starts meanwhile.
        let _locks = quiet(&repo, &reference.repo)?;
        if reference.pick.is_none() {
            let blobs = repo.blobs();
            let removed = Removal {
                n_files: blobs.len(),
                freed_bytes: blobs.iter().map(|(_, size_bytes)| size_bytes).sum(),
            };
            fs::remove_dir_all(repo.dir()).map_err(Error::file(repo.dir()))?;
            return Ok(removed);
        }
        let commit = repo.commit(&reference.revision).ok_or_else(missing)?;
        let listed = repo.snapshot_files(&commit);
        if listed.is_empty() {
            return Err(missing());
        }
        let selection = select::select(&listed, reference)?;
        let before = repo.linked_blobs();
        for &i in &selection.files {
            let path = repo.snapshot(&commit).join(&listed[i].name);
            fs::remove_file(&path).map_err(Error::file(path))?;
        }
        let after = repo.linked_blobs();
        let mut freed_bytes = 0;
        for blob in before.difference(&after) {
            let path = repo.blob(blob);
            freed_bytes += fs::metadata(&path).map_or(0, |file| file.len());
            fs::remove_file(&path).map_err(Error::file(path))?;
        }
        Ok(Removal {
            n_files: selection.files.len(),
            freed_bytes,
        })
    }
}

/// Takes every lock of a repository that a download would take.
fn quiet(repo: &Repo, name: &str) -> Result<Vec<File>, Error> {
    let mut locks = Vec::new();
    for path in repo.lock_files() {
        let file = File::open(&path).map_err(Error::file(&path))?;
        match file.try_lock() {
            Ok(()) => locks.push(file),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Busy {
                    repo: name.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(Error::file(path)(error)),
        }
    }
    Ok(locks)
}

fn held_in(cache: &Cache, name: &str) -> Vec<CachedModel> {
    let repo = cache.repo(name);
    let mut held = Vec::new();
    let mut seen = BTreeSet::new();
    for (revision, commit) in repo.revisions() {
        // Two branches may point at the same commit, which counts once.
        if !seen.insert(commit.clone()) {
            continue;
        }
        let files = repo.snapshot_files(&commit);
        let of_revision = match revision.as_str() {
            "main" => name.to_owned(),
            _ => format!("{name}@{revision}"),
        };
        let folder = repo.snapshot(&commit);
        let row = |pick: Option<&str>, files: &[&RepoFile]| CachedModel {
            name: match pick {
                Some(pick) => format!("{of_revision}:{pick}"),
                None => of_revision.clone(),
            },
            path: pick.map_or_else(|| folder.clone(), |pick| folder.join(pick)),
            commit: commit.clone(),
            size_bytes: files.iter().map(|file| file.size_bytes).sum(),
        };
        for parts in select::models(&files) {
            held.push(row(Some(&parts[0].name), &parts));
        }
        let weights = |file: &&RepoFile| file.name.ends_with(".safetensors");
        let weights: Vec<&RepoFile> = files.iter().filter(weights).collect();
        if !weights.is_empty() {
            held.push(row(None, &weights));
        }
    }
    held
}
