//! Exit codes, and the error that every command returns.
//!
//! Scripts branch on the code; people read the message and the hint. Libraries report *what*
//! happened; this file decides which code that is.

mod libraries;

use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Exit code of the process. Documented in `millrace --help` and the man page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command succeeded.
    Ok = 0,
    /// The command ran and its answer is "no": a check failed.
    Failed = 1,
    /// The command cannot be run as it was given: unknown flag, empty prompt, prompt too long.
    Usage = 2,
    /// An input file is damaged, or is not something this program runs.
    BadInput = 3,
    /// Reading or writing failed: disk full, no permission. Or a device failed: gone, no pinned memory.
    Io = 4,
    /// A model, file or repository does not exist, or the network could not deliver it.
    NotFound = 5,
    /// Stopped by Ctrl-C.
    Interrupted = 130,
}

/// The exit codes as `--help` and the man page print them.
pub(crate) const EXIT_CODES_HELP: &str = "\
Exit codes:
  0    success
  1    the command ran and the answer is no (a check failed, the hardware would refuse a program)
  2    the command cannot be run as given (unknown flag, empty prompt, prompt longer than the context)
  3    an input file is damaged or not supported
  4    reading or writing failed (disk full, no permission), or a device is gone or cannot pin memory
  5    not found, or the network could not deliver it
  130  stopped by Ctrl-C
  143  stopped by SIGTERM";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command ends early: a code, a message, and what the user can do.
#[derive(Debug)]
pub(crate) struct CommandFailure {
    /// The process's exit code.
    pub(crate) exit: Exit,
    /// Description of the failure; empty when there is nothing to say (a closed pipe, Ctrl-C).
    pub(crate) message: String,
    /// Suggested remedy.
    pub(crate) hint: Option<String>,
}

/// Result of a command.
pub(crate) type CommandResult<T = ()> = Result<T, CommandFailure>;

impl CommandFailure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> CommandFailure {
        CommandFailure {
            exit,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> CommandFailure {
        CommandFailure::new(Exit::Usage, message)
    }

    pub(crate) fn bad_input(message: impl Into<String>) -> CommandFailure {
        CommandFailure::new(Exit::BadInput, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> CommandFailure {
        CommandFailure::new(Exit::NotFound, message)
    }

    /// Failure for Ctrl-C: the user knows the cause, so there is no message.
    pub(crate) fn interrupted() -> CommandFailure {
        CommandFailure::new(Exit::Interrupted, "")
    }

    /// A failed read or write of `what`.
    pub(crate) fn io(what: impl std::fmt::Display, error: &io::Error) -> CommandFailure {
        let failure = CommandFailure::new(Exit::Io, format!("{what}: {error}"));
        match io_hint(error) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    /// A failed read of a file the user named.
    pub(crate) fn reading_file(path: &Path, error: &io::Error) -> CommandFailure {
        let failure = CommandFailure::io(format_args!("cannot read {}", path.display()), error);
        match error.kind() {
            io::ErrorKind::NotFound => CommandFailure {
                exit: Exit::NotFound,
                ..failure
            },
            _ => failure,
        }
    }

    /// An error met while reading an input: a missing file is [`Exit::NotFound`], another failed
    /// system call [`Exit::Io`], anything else means the input is bad.
    pub(crate) fn reading(error: &(dyn StdError + 'static)) -> CommandFailure {
        let exit = match io_cause(error).map(io::Error::kind) {
            Some(io::ErrorKind::NotFound) => Exit::NotFound,
            Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData) | None => {
                Exit::BadInput
            }
            Some(_) => Exit::Io,
        };
        CommandFailure::from_chain(exit, error)
    }

    /// An error met while producing an output: a failed system call is [`Exit::Io`], anything else
    /// means the request does not fit the data.
    pub(crate) fn writing(error: &(dyn StdError + 'static)) -> CommandFailure {
        let exit = if io_cause(error).is_some() {
            Exit::Io
        } else {
            Exit::BadInput
        };
        CommandFailure::from_chain(exit, error)
    }

    fn from_chain(exit: Exit, error: &(dyn StdError + 'static)) -> CommandFailure {
        let hint = io_cause(error).and_then(io_hint);
        CommandFailure {
            exit,
            message: chain_text(error),
            hint: hint.map(str::to_owned),
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> CommandFailure {
        self.hint = Some(hint.into());
        self
    }
}

/// Hints for the most common system errors.
fn io_hint(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some("free some space or write to another disk; nothing half-written was left")
        }
        io::ErrorKind::FileTooLarge => {
            Some("the file size limit was reached (`ulimit -f`); nothing half-written was left")
        }
        io::ErrorKind::PermissionDenied => Some("check who owns it: `ls -l` shows its permissions"),
        io::ErrorKind::ReadOnlyFilesystem => Some("write to another disk: this one is read-only"),
        _ => None,
    }
}

/// The first I/O error in the chain of causes.
fn io_cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(current) = next {
        if let Some(io) = current.downcast_ref::<io::Error>() {
            return Some(io);
        }
        next = current.source();
    }
    None
}

/// The error and its causes, leaving out causes that the outer message already quotes.
fn chain_text(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read {name}")]
    struct Outer {
        name: &'static str,
        source: io::Error,
    }

    fn outer(kind: io::ErrorKind) -> Outer {
        Outer {
            name: "x.gguf",
            source: io::Error::new(kind, "the reason"),
        }
    }

    #[test]
    fn system_errors_choose_the_code() {
        use io::ErrorKind::*;
        for (kind, reading, writing) in [
            (NotFound, Exit::NotFound, Exit::Io),
            (PermissionDenied, Exit::Io, Exit::Io),
            (StorageFull, Exit::Io, Exit::Io),
            (UnexpectedEof, Exit::BadInput, Exit::Io),
        ] {
            assert_eq!(
                CommandFailure::reading(&outer(kind)).exit,
                reading,
                "{kind:?}"
            );
            assert_eq!(
                CommandFailure::writing(&outer(kind)).exit,
                writing,
                "{kind:?}"
            );
        }
    }

    #[test]
    fn message_holds_each_cause_once() {
        let failure = CommandFailure::reading(&outer(io::ErrorKind::NotFound));
        assert_eq!(failure.message, "cannot read x.gguf: the reason");
        let full = CommandFailure::writing(&outer(io::ErrorKind::StorageFull));
        assert!(full.hint.is_some_and(|hint| hint.contains("space")));
    }
}
