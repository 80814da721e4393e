//! Why a file of cached keys and values is not used.

use std::io;
use std::path::PathBuf;

/// Fault of a file of cached keys and values, or of its folder.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is of another kind.
    #[error(
        "{}: not a file of cached keys and values (its first bytes are others); name another file, or remove it",
        path.display()
    )]
    OtherKind {
        /// The file.
        path: PathBuf,
    },
    /// A device, a pipe or a folder in the place of the file.
    #[error("{}: not a regular file; name another one", path.display())]
    NotRegular {
        /// Its path.
        path: PathBuf,
    },
    /// The file was written in another form.
    #[error(
        "{}: its form is version {found}, and this build reads version {expected}; remove it to begin anew",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version of this build.
        expected: u32,
    },
    /// The file is shorter or longer than its header states.
    #[error(
        "{}: expected {expected_bytes} bytes, found {found_bytes}: it was cut or written over; remove it to begin anew",
        path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes according to its header.
        expected_bytes: u64,
        /// Bytes that it has.
        found_bytes: u64,
    },
    /// The file's bytes differ from those that were written.
    #[error("{}: damaged {part}: {problem}; remove it to begin anew", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damaged part.
        part: &'static str,
        /// Description of the fault.
        problem: String,
    },
    /// The file belongs to another model or setting.
    #[error(
        "{}: it was written with {what} {found}, and this is {expected}; {advice}",
        path.display()
    )]
    Other {
        /// The file.
        path: PathBuf,
        /// The property that differs.
        what: &'static str,
        /// The file's.
        found: String,
        /// The engine's.
        expected: String,
        /// Advice to the user.
        advice: &'static str,
    },
    /// The file holds more tokens than a sequence may.
    #[error(
        "{}: it holds {n_tokens} tokens, and the context has {n_ctx}; raise --ctx, or remove it to begin anew",
        path.display()
    )]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its tokens.
        n_tokens: u64,
        /// Tokens that a sequence may hold.
        n_ctx: usize,
    },
    /// Another process has locked it.
    #[error("{} is in use by another process; wait for its end, or name another", path.display())]
    Busy {
        /// The file or folder.
        path: PathBuf,
    },
    /// The sequence has rows of images.
    #[error(
        "a conversation with images cannot be kept in a file: their rows are known to the process that read them alone"
    )]
    Images,
    /// The engine keeps nothing on disk.
    #[error(
        "{engine} keeps nothing on disk: its device has parts of the cache, and passes of another length may round \
         otherwise; leave out --device to run on the CPU"
    )]
    Engine {
        /// The engine's name.
        engine: String,
    },
}

impl DiskError {
    /// An error of the system, for `map_err`.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> DiskError {
        let path = path.into();
        move |source| DiskError::Io {
            action,
            path,
            source,
        }
    }
}
