//! Which exit code each library's errors mean.

use super::{Exit, Failure};
use millrace_npu::DeviceError;

impl From<millrace_format::Error> for Failure {
    fn from(error: millrace_format::Error) -> Failure {
        match error {
            millrace_format::Error::DanglingLink { .. } => Failure::not_found(error.to_string()),
            error => Failure::reading(&error),
        }
    }
}

impl From<millrace_model::Error> for Failure {
    fn from(error: millrace_model::Error) -> Failure {
        Failure::reading(&error)
    }
}

impl From<millrace_text::Error> for Failure {
    fn from(error: millrace_text::Error) -> Failure {
        Failure::reading(&error)
    }
}

impl From<millrace_runtime::Error> for Failure {
    fn from(error: millrace_runtime::Error) -> Failure {
        use millrace_runtime::Error;
        match &error {
            // What was asked for is wrong, not what was read.
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
            | Error::BadOption { .. } => Failure::new(Exit::Usage, error.to_string()),
            Error::Device(device) => of_npu(device),
            _ => Failure::reading(&error),
        }
    }
}

impl From<millrace_runtime::npu::NpuError> for Failure {
    fn from(error: millrace_runtime::npu::NpuError) -> Failure {
        use millrace_runtime::npu::NpuError;
        match error {
            NpuError::Runtime(error) => error.into(),
            error => of_npu(&error),
        }
    }
}

fn of_npu(error: &millrace_runtime::npu::NpuError) -> Failure {
    let exit = match error {
        millrace_runtime::npu::NpuError::Lower(_) => Exit::BadInput,
        _ => error.device().map_or(Exit::Failed, of_device),
    };
    Failure::new(exit, error.to_string())
}

/// What a device's error means.
fn of_device(error: &DeviceError) -> Exit {
    match error {
        // More was asked for than the device has, as with a cache beyond the memory.
        DeviceError::OutOfMemory { .. } | DeviceError::BufferTooLarge { .. } => Exit::Usage,
        // The system, not the program.
        DeviceError::NotPinned { .. }
        | DeviceError::Lost { .. }
        | DeviceError::Stale { .. }
        | DeviceError::Driver(_) => Exit::Io,
        // The device tried and could not.
        _ => Exit::Failed,
    }
}

impl From<millrace_plan::LowerError> for Failure {
    fn from(error: millrace_plan::LowerError) -> Failure {
        use millrace_plan::LowerError;
        let exit = match &error {
            LowerError::Program { .. } => Exit::Failed,
            _ => Exit::BadInput,
        };
        Failure::new(exit, format!("this model cannot run on the NPU: {error}"))
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
            Failure::from(error).exit
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
        assert_eq!(Failure::from(asked).exit, Exit::Usage);
        let read = millrace_runtime::Error::NoTokenizer { model: "x".into() };
        assert_eq!(Failure::from(read).exit, Exit::BadInput);
        let missing = millrace_format::Checkpoint::open("/does/not/exist".as_ref());
        let missing = missing.expect_err("no such file");
        assert_eq!(Failure::from(missing).exit, Exit::NotFound);
    }
}
