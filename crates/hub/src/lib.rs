//! Models from the Hugging Face Hub, kept in the cache that other tools share.
//!
//! A [`Reference`] names a repository, a revision and the files to pick from it. [`Hub::cached`] uses the cache
//! alone. [`Hub::pull`] asks the hub, downloads missing files and checks every byte. The layout and the locks are
//! those of `huggingface_hub`, so both can work on one cache at the same time.
//!
//! ```no_run
//! use millrace_hub::{Hub, HubSettings, Progress, Reference, Watch};
//! use std::sync::atomic::AtomicBool;
//!
//! # fn main() -> Result<(), millrace_hub::Error> {
//! let hub = Hub::new(HubSettings::from_env(false)?);
//! let reference = Reference::parse("Qwen/Qwen3-0.6B")?;
//! let tell = |progress: Progress<'_>| {
//!     if let Progress::Bytes { done, total } = progress {
//!         eprintln!("{done} of {total} bytes");
//!     }
//! };
//! let pulled = hub.pull(&reference, &Watch { tell: &tell, cancel: &AtomicBool::new(false) })?;
//! println!("{}", pulled.path.display());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod cache;
mod client;
mod download;
mod error;
mod inventory;
mod reference;
mod select;
mod watch;

pub use cache::free_bytes;
pub use error::Error;
pub use inventory::{CachedModel, Removal};
pub use reference::Reference;
pub use watch::{Progress, Watch};

use cache::Cache;
use client::Client;
use download::{Blob, Hash};
use select::Selection;
use std::path::PathBuf;

/// Where the hub and its cache are, and whether the network may be used. Not `Debug`: it holds a
/// secret.
#[derive(Clone)]
pub struct HubSettings {
    /// Base address, without a trailing slash.
    pub endpoint: String,
    /// Access token, sent to the endpoint's own origin only.
    pub token: Option<String>,
    /// The cache's root folder.
    pub cache_dir: PathBuf,
    /// Never touch the network.
    pub offline: bool,
}

impl HubSettings {
    /// Reads the variables that Hugging Face's own tools read: `HF_HOME`, `HF_HUB_CACHE`, `HF_ENDPOINT`, `HF_TOKEN`,
    /// `HF_TOKEN_PATH`, `HF_HUB_OFFLINE`.
    ///
    /// # Errors
    /// [`Error::NoCacheFolder`] if neither these nor the home folder say where the cache is.
    pub fn from_env(offline: bool) -> Result<HubSettings, Error> {
        let home = cache::hugging_face_home();
        let endpoint = env("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let cache_dir = env("HF_HUB_CACHE")
            .or_else(|| env("HUGGINGFACE_HUB_CACHE"))
            .map(PathBuf::from)
            .or_else(|| home.as_ref().map(|home| home.join("hub")))
            .ok_or(Error::NoCacheFolder)?;
        let token_file = env("HF_TOKEN_PATH")
            .map(PathBuf::from)
            .or_else(|| home.map(|home| home.join("token")));
        let token = env("HF_TOKEN").or_else(|| {
            let text = std::fs::read_to_string(token_file?).ok()?;
            Some(text.trim().to_owned()).filter(|token| !token.is_empty())
        });
        Ok(HubSettings {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token,
            cache_dir,
            offline: offline || env("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value)),
        })
    }
}

/// A variable's value, unset when empty.
fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether `huggingface_hub` reads this value as true.
fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"]
        .iter()
        .any(|yes| value.eq_ignore_ascii_case(yes))
}

/// A model in the cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The path to open: a GGUF file (the first of a split one), or the snapshot's folder.
    pub path: PathBuf,
    /// The commit it is from.
    pub commit: String,
    /// Its files, within the repository.
    pub files: Vec<SnapshotFile>,
}

/// A file of a [`Snapshot`].
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotFile {
    /// Its path within the repository.
    pub name: String,
    /// Size of the whole file.
    pub size_bytes: u64,
    /// Bytes downloaded this time.
    pub downloaded_bytes: u64,
}

/// The hub and its cache.
pub struct Hub {
    settings: HubSettings,
    cache: Cache,
}

impl Hub {
    /// The hub and the cache of these settings. Neither is accessed yet.
    pub fn new(settings: HubSettings) -> Hub {
        let cache = Cache::new(settings.cache_dir.clone());
        Hub { settings, cache }
    }

    /// The model from the cache, without the network.
    ///
    /// # Errors
    /// [`Error::NotCached`] if any of its files is missing; a pick that the repository does not have.
    pub fn cached(&self, reference: &Reference) -> Result<Snapshot, Error> {
        let repo = self.cache.repo(&reference.repo);
        let missing = || Error::NotCached {
            reference: reference.clone(),
            cache_dir: self.settings.cache_dir.clone(),
        };
        let commit = repo.commit(&reference.revision).ok_or_else(missing)?;
        let listed = repo.snapshot_files(&commit);
        if listed.is_empty() {
            return Err(missing());
        }
        let selection = select::select(&listed, reference)?;
        if !selection.is_complete(&listed, &|name| repo.read_snapshot_file(&commit, name)) {
            return Err(missing());
        }
        let files = selection.files.iter().map(|&i| SnapshotFile {
            name: listed[i].name.clone(),
            size_bytes: listed[i].size_bytes,
            downloaded_bytes: 0,
        });
        Ok(Snapshot {
            path: selection.path_in(&repo.snapshot(&commit)),
            files: files.collect(),
            commit,
        })
    }

    /// The model, with downloads of the files that are not in the cache at the hub's current commit.
    ///
    /// # Errors
    /// A model, revision or file that does not exist or may not be read; a network or a disk that fails; bytes with
    /// another hash than the hub's. The bytes received so far are kept, and a later call resumes from there.
    pub fn pull(&self, reference: &Reference, watch: &Watch<'_>) -> Result<Snapshot, Error> {
        if self.settings.offline {
            return self.cached(reference);
        }
        let client = Client::new(&self.settings, watch.cancel);
        let listing = client.list(&reference.repo, &reference.revision)?;
        let selection = select::select(&listing.files, reference)?;
        let blobs = self.blobs(reference, &listing, &selection)?;
        let repo = self.cache.repo(&reference.repo);
        repo.create()?;
        let total: u64 = blobs.iter().map(|blob| blob.size_bytes).sum();
        let missing: u64 = blobs.iter().map(|blob| repo.missing_bytes(blob)).sum();
        self.cache.check_space(missing)?;
        let n_files = blobs.len();
        watch.tell(Progress::Start {
            repo: &reference.repo,
            n_files,
            total_bytes: total,
        });
        let mut files = Vec::new();
        let mut before = 0;
        for (index, blob) in blobs.iter().enumerate() {
            let name = &blob.name;
            watch.tell(Progress::File {
                name,
                index,
                n_files,
            });
            let tell = |done| watch.tell(Progress::Bytes { done, total });
            let in_file = |in_file| tell(before + in_file);
            let downloaded_bytes = download::fetch(&client, &repo, blob, watch, &in_file)?;
            before += blob.size_bytes;
            tell(before);
            repo.link(&listing.commit, name, &blob.hash.hex)?;
            files.push(SnapshotFile {
                name: name.clone(),
                size_bytes: blob.size_bytes,
                downloaded_bytes,
            });
        }
        // Last, so that a reference never points at a snapshot with files missing.
        repo.write_ref(&reference.revision, &listing.commit)?;
        let path = selection.path_in(&repo.snapshot(&listing.commit));
        Ok(Snapshot {
            path,
            files,
            commit: listing.commit,
        })
    }

    /// The downloads to make, with addresses and hashes from the listing.
    fn blobs(
        &self,
        reference: &Reference,
        listing: &client::Listing,
        selection: &Selection,
    ) -> Result<Vec<Blob>, Error> {
        let blob = |&i: &usize| {
            let file = &listing.files[i];
            let hash = file.hash.as_deref().and_then(Hash::parse).ok_or_else(|| {
                let what = format!("no usable hash for `{}`", file.name);
                Error::BadListing {
                    repo: reference.repo.clone(),
                    what,
                }
            })?;
            let (repo, commit) = (&reference.repo, &listing.commit);
            let path = client::percent_encode(&file.name);
            let url = format!("{}/{repo}/resolve/{commit}/{path}", self.settings.endpoint);
            Ok(Blob {
                url,
                name: file.name.clone(),
                size_bytes: file.size_bytes,
                hash,
            })
        };
        selection.files.iter().map(blob).collect()
    }

    /// Repositories in the cache, as `owner/name`.
    pub fn cached_repos(&self) -> Vec<String> {
        self.cache.repos()
    }
}
