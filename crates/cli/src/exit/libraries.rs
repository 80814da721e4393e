//! Maps each library's errors to exit codes.

use super::{CommandFailure, Exit};
use crate::output::bytes;
use millrace_npu::DeviceError;
use millrace_runtime::disk::DiskError;

impl From<millrace_format::Error> for CommandFailure {
    fn from(error: millrace_format::Error) -> CommandFailure {
        match error {
            millrace_format::Error::DanglingLink { .. } => {
                CommandFailure::not_found(error.to_string())
            }
            error => CommandFailure::reading(&error),
        }
    }
}

impl From<millrace::Error> for CommandFailure {
    fn from(error: millrace::Error) -> CommandFailure {
        use millrace::Error;
        let text = error.to_string();
        let advice = error.advice();
        let advised = |failure: CommandFailure| match advice {
            Some(advice) => failure.hint(advice),
            None => failure,
        };
        match error {
            // Errors whose options have another name on the command line than in the library.
            Error::NoModel {
                similar, reference, ..
            } => of_unknown_model(text, &similar, reference),
            Error::NoWeights { .. } => CommandFailure::bad_input(text).hint(
                "running takes the model's own file; `millrace tokenize` reads a vocabulary alone",
            ),
            Error::NpuSetting { .. } => advised(CommandFailure::usage(text)),
            Error::KvType { .. } => CommandFailure::usage(format!("--kv-type {text}"))
                .hint("leave --kv-type out, or take --device cpu"),
            Error::BiasBeyond { token, vocab_size } => CommandFailure::usage(format!(
                "--logit-bias: token {token} is not in the vocabulary of {vocab_size}"
            )),
            Error::EmptyStop => {
                CommandFailure::usage("--stop: the text is empty, so it would stop at once")
            }
            Error::DraftImages { .. } => {
                CommandFailure::usage(text).hint("take --draft ngram, or leave --draft out")
            }
            Error::NoFacts { .. } => advised(CommandFailure::not_found(text)),
            Error::Facts { what, name, source } => {
                CommandFailure::io(format_args!("cannot read {what} {name}"), &source)
            }
            Error::Read { path, source } => CommandFailure::reading_file(&path, &source),
            Error::Cancelled => CommandFailure::interrupted(),
            Error::File(error) => error.into(),
            Error::Model(error) => error.into(),
            Error::Text(error) => error.into(),
            Error::Engine(error) => error.into(),
            Error::Device(error) => error.into(),
            Error::Setting(error) => error.into(),
            Error::Lower(error) => error.into(),
            Error::Hub(error) => error.into(),
            Error::Image(_) => CommandFailure::bad_input(text),
            Error::Failed => CommandFailure::new(Exit::Failed, text),
            _ => advised(CommandFailure::usage(text)),
        }
    }
}

/// Failure for a name that no model has.
fn of_unknown_model(text: String, similar: &[String], reference: Option<String>) -> CommandFailure {
    let failure = CommandFailure::not_found(text);
    match reference {
        _ if !similar.is_empty() => failure.hint(format!("did you mean {}?", similar.join(" or "))),
        Some(reference) => failure.hint(format!(
            "if it is on the Hugging Face Hub, `millrace pull {reference}` gets it"
        )),
        None => failure.hint("try `demo`, a path, or hf:OWNER/REPO"),
    }
}

impl From<millrace_hub::Error> for CommandFailure {
    fn from(error: millrace_hub::Error) -> CommandFailure {
        use millrace_hub::Error;
        let exit = match &error {
            Error::Interrupted => return CommandFailure::interrupted(),
            Error::BadReference { .. } | Error::Ambiguous { .. } => Exit::Usage,
            Error::NoSpace { .. }
            | Error::File { .. }
            | Error::Busy { .. }
            | Error::NoCacheFolder => Exit::Io,
            _ => Exit::NotFound,
        };
        let message = match &error {
            Error::NoSpace {
                dir,
                needed_bytes,
                free_bytes,
            } => format!(
                "not enough space in {}: {} needed, {} free",
                dir.display(),
                bytes(*needed_bytes),
                bytes(*free_bytes)
            ),
            error => error.to_string(),
        };
        let failure = CommandFailure::new(exit, message);
        match hub_hint(&error).or_else(|| error.advice()) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// Hint for errors that a command or an option can fix.
fn hub_hint(error: &millrace_hub::Error) -> Option<String> {
    use millrace_hub::Error;
    Some(match error {
        Error::NotCached { reference, .. } => {
            format!("get it with `millrace pull {reference}` (without --offline)")
        }
        // The remedy for this status is to ask less often, so the hint below does not apply.
        Error::Status { status: 429, .. } => return None,
        Error::Status { .. } | Error::Network { .. } => {
            "run the command again: what was downloaded is kept, and it goes on from there".into()
        }
        Error::Unreachable { .. } => "check the network connection and HF_ENDPOINT, if it is \
                                      set; `--offline` uses what is in the cache"
            .into(),
        Error::WrongHash { .. } => "the damaged file was deleted; run the command again".into(),
        Error::File { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            "what was downloaded is kept; free some space and run the command again".into()
        }
        _ => return None,
    })
}

impl From<millrace_model::Error> for CommandFailure {
    fn from(error: millrace_model::Error) -> CommandFailure {
        CommandFailure::reading(&error)
    }
}

impl From<millrace_text::Error> for CommandFailure {
    fn from(error: millrace_text::Error) -> CommandFailure {
        CommandFailure::reading(&error)
    }
}

impl From<millrace_runtime::Error> for CommandFailure {
    fn from(error: millrace_runtime::Error) -> CommandFailure {
        use millrace_runtime::Error;
        match &error {
            // The request is wrong, not the input file.
            Error::Kernels(_)
            | Error::ContextOverflow { .. }
            | Error::CacheFull { .. }
            | Error::CacheTooLarge { .. }
            | Error::EmptyPrompt
            | Error::BadToken { .. }
            | Error::BadImage { .. }
            | Error::NoImages { .. }
            | Error::NoVision { .. }
            | Error::OtherVocabulary { .. }
            | Error::LargerDraft { .. }
            | Error::BadOption { .. } => CommandFailure::new(Exit::Usage, error.to_string()),
            Error::Device(device) => of_npu(device),
            Error::Disk(disk) => of_disk(disk),
            Error::Rank(_) => CommandFailure::new(Exit::Io, error.to_string()),
            _ => CommandFailure::reading(&error),
        }
    }
}

impl From<millrace_runtime::npu::NpuError> for CommandFailure {
    fn from(error: millrace_runtime::npu::NpuError) -> CommandFailure {
        use millrace_runtime::npu::NpuError;
        match error {
            NpuError::Runtime(error) => error.into(),
            error => of_npu(&error),
        }
    }
}

fn of_disk(error: &DiskError) -> CommandFailure {
    let exit = match error {
        DiskError::Io { .. } | DiskError::Busy { .. } => Exit::Io,
        DiskError::TooLong { .. } | DiskError::Images | DiskError::Engine { .. } => Exit::Usage,
        _ => Exit::BadInput,
    };
    CommandFailure::new(exit, error.to_string())
}

fn of_npu(error: &millrace_runtime::npu::NpuError) -> CommandFailure {
    let exit = match error {
        millrace_runtime::npu::NpuError::Lower(_) => Exit::BadInput,
        _ => error.device().map_or(Exit::Failed, of_device),
    };
    CommandFailure::new(exit, error.to_string())
}

/// Exit code of a device's error.
fn of_device(error: &DeviceError) -> Exit {
    match error {
        // The request exceeds the device, like a cache that exceeds the memory.
        DeviceError::OutOfMemory { .. } | DeviceError::BufferTooLarge { .. } => Exit::Usage,
        // The system failed, not the program.
        DeviceError::NotPinned { .. }
        | DeviceError::Lost { .. }
        | DeviceError::Stale { .. }
        | DeviceError::Driver(_) => Exit::Io,
        // The device tried and could not.
        _ => Exit::Failed,
    }
}

impl From<millrace_plan::LowerError> for CommandFailure {
    fn from(error: millrace_plan::LowerError) -> CommandFailure {
        use millrace_plan::LowerError;
        let exit = match &error {
            LowerError::Program { .. } => Exit::Failed,
            _ => Exit::BadInput,
        };
        CommandFailure::new(exit, format!("this model cannot run on the NPU: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_fail_by_what_was_asked_by_the_system_or_by_the_program() {
        use millrace_npu::{CacheError, ErrorPlace};
        let of = |error: DeviceError| {
            let error = millrace_runtime::npu::NpuError::Call {
                call: 1,
                n_calls: 2,
                set: "L0".into(),
                error: CacheError::Alloc {
                    program: "p".into(),
                    slot: "w".into(),
                    error: Box::new(error),
                },
            };
            CommandFailure::from(error).exit
        };
        let out_of_memory = DeviceError::OutOfMemory {
            asked_bytes: 2,
            available_bytes: 1,
        };
        assert_eq!(of(out_of_memory), Exit::Usage);
        let lost = DeviceError::Lost {
            device: "npu".into(),
            place: None,
        };
        assert_eq!(of(lost), Exit::Io);
        let timeout = DeviceError::Timeout {
            place: Box::new(ErrorPlace::of("p")),
            after_ns: 1,
            reason: String::new(),
        };
        assert_eq!(of(timeout), Exit::Failed);
    }

    #[test]
    fn what_was_asked_and_what_was_read_differ() {
        let asked = millrace_runtime::Error::EmptyPrompt;
        assert_eq!(CommandFailure::from(asked).exit, Exit::Usage);
        let read = millrace_runtime::Error::NoTokenizer { model: "x".into() };
        assert_eq!(CommandFailure::from(read).exit, Exit::BadInput);
        let missing = millrace_format::Checkpoint::open("/does/not/exist".as_ref());
        let missing = missing.expect_err("no such file");
        assert_eq!(CommandFailure::from(missing).exit, Exit::NotFound);
    }
}
