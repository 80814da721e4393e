//! Errors on the way from a model's name to its files.

use super::Reference;
use std::io;
use std::path::PathBuf;

/// An error of the hub client or its cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text that does not name a model on the hub.
    #[error("`{text}` is not a model reference: {why}")]
    BadReference {
        /// The text.
        text: String,
        /// The fault in it.
        why: &'static str,
    },
    /// Neither `HF_HOME` nor the home folder is known.
    #[error("no folder for the model cache: neither HF_HOME nor HOME is set")]
    NoCacheFolder,
    /// The cache has not all files of the model.
    #[error("{reference} is not in the cache ({})", cache_dir.display())]
    NotCached {
        /// The model.
        reference: Reference,
        /// The cache's folder.
        cache_dir: PathBuf,
    },
    /// The hub has no such repository, or does not show it.
    #[error("{repo}: no such model on {endpoint}")]
    NoSuchRepo {
        /// `owner/name`.
        repo: String,
        /// The hub's address.
        endpoint: String,
    },
    /// The repository has no such branch, tag or commit.
    #[error("{repo} has no revision `{revision}`")]
    NoSuchRevision {
        /// `owner/name`.
        repo: String,
        /// The revision.
        revision: String,
    },
    /// The hub refuses access.
    #[error("{repo}: {endpoint} refuses access ({status})")]
    Refused {
        /// `owner/name`.
        repo: String,
        /// The hub's address.
        endpoint: String,
        /// The HTTP status.
        status: u16,
        /// Whether an access token was sent.
        has_token: bool,
    },
    /// The hub wants the licence accepted first.
    #[error("{repo} is gated: its licence must be accepted first")]
    Gated {
        /// `owner/name`.
        repo: String,
        /// The hub's address.
        endpoint: String,
        /// Whether an access token was sent.
        has_token: bool,
    },
    /// A response with an error status.
    #[error("{url}: the server answers {status}")]
    Status {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// A response that cannot be understood.
    #[error("{url}: {what}")]
    BadResponse {
        /// The address.
        url: String,
        /// Description of the fault.
        what: String,
    },
    /// A list of files that cannot be understood.
    #[error("{repo}: the hub's file list cannot be used: {what}")]
    BadListing {
        /// `owner/name`.
        repo: String,
        /// Description of the fault.
        what: String,
    },
    /// A connection that broke.
    #[error("{url}: {what}")]
    Network {
        /// The address.
        url: String,
        /// Description of the fault.
        what: String,
    },
    /// A host that does not exist or refuses connections.
    #[error("{url}: {what}")]
    Unreachable {
        /// The address.
        url: String,
        /// Description of the fault.
        what: String,
    },
    /// The repository has no such file or quantisation.
    #[error("{repo} has no {pick} file{}", available_text(available))]
    NoSuchPick {
        /// `owner/name`.
        repo: String,
        /// The requested file or quantisation.
        pick: String,
        /// The available ones.
        available: Vec<String>,
    },
    /// The repository has several models, and none of them is the usual choice.
    #[error("{repo} offers several files and none of the usual choice: {}", available.join(", "))]
    Ambiguous {
        /// `owner/name`.
        repo: String,
        /// The available models.
        available: Vec<String>,
    },
    /// The repository has no file that Millrace can run.
    #[error("{repo} holds no weights this program reads (.gguf, .safetensors)")]
    NoWeights {
        /// `owner/name`.
        repo: String,
    },
    /// Bytes whose hash differs from the hub's.
    #[error("{name}: the downloaded bytes have {kind} {found}, expected {expected}")]
    WrongHash {
        /// The file.
        name: String,
        /// The kind of hash.
        kind: &'static str,
        /// The hub's hash.
        expected: String,
        /// The hash of the bytes.
        found: String,
    },
    /// The disk has too little room.
    #[error(
        "not enough space in {}: {} needed, {} free",
        dir.display(), gib(*needed_bytes), gib(*free_bytes)
    )]
    NoSpace {
        /// The folder.
        dir: PathBuf,
        /// Bytes still to be downloaded.
        needed_bytes: u64,
        /// Bytes that are free.
        free_bytes: u64,
    },
    /// Another process is downloading from the repository.
    #[error("{repo} is being downloaded by another process")]
    Busy {
        /// `owner/name`.
        repo: String,
    },
    /// A file of the cache cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The caller stopped the work.
    #[error("stopped")]
    Interrupted,
}

fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / (1u64 << 30) as f64)
}

fn available_text(available: &[String]) -> String {
    match available {
        [] => String::new(),
        some => format!("; it has {}", some.join(", ")),
    }
}

impl Error {
    /// An [`Error::File`] about `path`, for `map_err`.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { path, source }
    }

    /// Advice for the user; `None` where the error itself says so.
    pub fn advice(&self) -> Option<String> {
        const TOKEN: &str = "set HF_TOKEN to an access token that may read it";
        Some(match self {
            Error::BadReference { .. } => {
                "write OWNER/REPO, OWNER/REPO:QUANT (as Q4_K_M) or OWNER/REPO@REVISION:QUANT".into()
            }
            Error::Busy { .. } => "wait until it has ended, or stop it".into(),
            Error::NoCacheFolder => "set HF_HOME to a folder with space for models".into(),
            Error::NotCached { .. } => "allow the network, so that it can be downloaded".into(),
            Error::NoSuchRepo { .. } => {
                format!("check the spelling; if the model is private, {TOKEN}")
            }
            Error::Refused {
                has_token: true, ..
            } => "the access token may be wrong, expired, or not allowed to read this model".into(),
            Error::Refused {
                has_token: false, ..
            } => {
                format!("check the spelling; if the model is private or gated, {TOKEN}")
            }
            Error::Gated {
                repo,
                endpoint,
                has_token,
            } => {
                let token = if *has_token {
                    ""
                } else {
                    ", then set HF_TOKEN"
                };
                format!("accept the licence at {endpoint}/{repo}{token}")
            }
            Error::Status { status: 429, .. } => {
                "the hub limits how often you may ask; wait a little, or set HF_TOKEN".into()
            }
            Error::Status { .. } | Error::Network { .. } => {
                "try again: the download is kept and continues from there".into()
            }
            Error::Unreachable { .. } => "check the network connection and HF_ENDPOINT, if it is \
                                          set; offline, what is in the cache is used"
                .into(),
            Error::Ambiguous { repo, available } => match available.first() {
                Some(first) => format!("name one: `{repo}:{first}`"),
                None => return None,
            },
            Error::WrongHash { .. } => "the damaged file was deleted; try again".into(),
            Error::NoSpace { .. } => {
                "free some space, or set HF_HOME to a folder on another disk".into()
            }
            Error::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "the download is kept; free some space and try again".into()
            }
            _ => return None,
        })
    }
}
