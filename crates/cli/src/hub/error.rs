//! What can go wrong between a model's name and its files, and which exit code it means.

use super::Reference;
use crate::exit::{Exit, Failure};
use crate::output::bytes;
use std::io;
use std::path::PathBuf;

/// An error of the hub client or its cache.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("`{text}` is not a model reference: {why}")]
    BadReference { text: String, why: &'static str },
    #[error("no folder for the model cache: neither HF_HOME nor HOME is set")]
    NoCacheFolder,
    #[error("{reference} is not in the cache ({})", cache_dir.display())]
    NotCached {
        reference: Reference,
        cache_dir: PathBuf,
    },
    #[error("{repo}: no such model on {endpoint}")]
    NoSuchRepo { repo: String, endpoint: String },
    #[error("{repo} has no revision `{revision}`")]
    NoSuchRevision { repo: String, revision: String },
    #[error("{repo}: {endpoint} refuses access ({status})")]
    Refused {
        repo: String,
        endpoint: String,
        status: u16,
        has_token: bool,
    },
    #[error("{repo} is gated: its licence must be accepted first")]
    Gated {
        repo: String,
        endpoint: String,
        has_token: bool,
    },
    #[error("{url}: the server answers {status}")]
    Status { url: String, status: u16 },
    #[error("{url}: {what}")]
    BadResponse { url: String, what: String },
    #[error("{repo}: the hub's file list cannot be used: {what}")]
    BadListing { repo: String, what: String },
    #[error("{url}: {what}")]
    Network { url: String, what: String },
    #[error("{url}: {what}")]
    Unreachable { url: String, what: String },
    #[error("{repo} has no {pick} file{}", available_text(available))]
    NoSuchPick {
        repo: String,
        pick: String,
        available: Vec<String>,
    },
    #[error("{repo} offers several files and none of the usual choice: {}", available.join(", "))]
    Ambiguous {
        repo: String,
        available: Vec<String>,
    },
    #[error("{repo} holds no weights this program reads (.gguf, .safetensors)")]
    NoWeights { repo: String },
    #[error("{name}: the downloaded bytes have {kind} {found}, expected {expected}")]
    WrongHash {
        name: String,
        kind: &'static str,
        expected: String,
        found: String,
    },
    #[error(
        "not enough space in {}: {} needed, {} free",
        dir.display(), bytes(*needed_bytes), bytes(*free_bytes)
    )]
    NoSpace {
        dir: PathBuf,
        needed_bytes: u64,
        free_bytes: u64,
    },
    #[error("{repo} is being downloaded by another process")]
    Busy { repo: String },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("stopped")]
    Interrupted,
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

    fn exit(&self) -> Exit {
        match self {
            Error::BadReference { .. } | Error::Ambiguous { .. } => Exit::Usage,
            Error::NoSpace { .. }
            | Error::File { .. }
            | Error::Busy { .. }
            | Error::NoCacheFolder => Exit::Io,
            Error::Interrupted => Exit::Interrupted,
            _ => Exit::NotFound,
        }
    }

    fn hint(&self) -> Option<String> {
        const TOKEN: &str = "set HF_TOKEN to an access token that may read it";
        Some(match self {
            Error::BadReference { .. } => {
                "write OWNER/REPO, OWNER/REPO:QUANT (as Q4_K_M) or OWNER/REPO@REVISION:QUANT".into()
            }
            Error::Busy { .. } => "wait until it has ended, or stop it".into(),
            Error::NoCacheFolder => "set HF_HOME to a folder with space for models".into(),
            Error::NotCached { reference, .. } => {
                format!("get it with `millrace pull {reference}` (without --offline)")
            }
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
                "run the command again: what was downloaded is kept, and it goes on from there"
                    .into()
            }
            Error::Unreachable { .. } => "check the network connection and HF_ENDPOINT, if it is \
                                          set; `--offline` uses what is in the cache"
                .into(),
            Error::Ambiguous { repo, available } => match available.first() {
                Some(first) => format!("name one: `{repo}:{first}`"),
                None => return None,
            },
            Error::WrongHash { .. } => "the damaged file was deleted; run the command again".into(),
            Error::NoSpace { .. } => {
                "free some space, or set HF_HOME to a folder on another disk".into()
            }
            Error::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "what was downloaded is kept; free some space and run the command again".into()
            }
            _ => return None,
        })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        if matches!(error, Error::Interrupted) {
            return Failure::interrupted();
        }
        let failure = Failure::new(error.exit(), error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}
