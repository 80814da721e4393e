//! Errors of a device, and their place.

use std::fmt;

/// Where in a program something went wrong, as far as the device knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPlace {
    /// The program's name.
    pub program: String,
    /// The launch's name.
    pub launch: Option<String>,
    /// The part of the device, as its target names them (`core (7, 3)`, `NPU core 1`).
    pub unit: Option<String>,
    /// The slot's name.
    pub slot: Option<String>,
}

impl ErrorPlace {
    /// Somewhere in that program.
    pub fn of(program: impl Into<String>) -> ErrorPlace {
        ErrorPlace {
            program: program.into(),
            ..ErrorPlace::default()
        }
    }
}

impl fmt::Display for ErrorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program `{}`", self.program)?;
        if let Some(launch) = &self.launch {
            write!(f, ", launch `{launch}`")?;
        }
        if let Some(unit) = &self.unit {
            write!(f, ", {unit}")?;
        }
        if let Some(slot) = &self.slot {
            write!(f, ", slot `{slot}`")?;
        }
        Ok(())
    }
}

/// Errors of a device.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DeviceError {
    /// No memory for a buffer.
    #[error(
        "a buffer of {asked_bytes} bytes does not fit: {available_bytes} bytes of the device's \
         memory are free; drop other models, or take a smaller one or a shorter context"
    )]
    OutOfMemory {
        /// Size asked for.
        asked_bytes: u64,
        /// Bytes left.
        available_bytes: u64,
    },
    /// A buffer that the operating system does not pin.
    #[error(
        "a buffer of {asked_bytes} bytes cannot be pinned: {reason}; check the limit of locked \
         memory (`ulimit -l`) and free memory"
    )]
    NotPinned {
        /// Size asked for.
        asked_bytes: u64,
        /// Message of the system.
        reason: String,
    },
    /// A buffer beyond the sizes that the device can address.
    #[error("a buffer of {asked_bytes} bytes: one buffer has at most {max_bytes}")]
    BufferTooLarge {
        /// Size asked for.
        asked_bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// A buffer of no bytes.
    #[error("a buffer needs at least one byte")]
    EmptyBuffer,
    /// An access outside a buffer.
    #[error("bytes {offset} .. {offset} + {len} lie outside a buffer of {size_bytes}")]
    Range {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Size of the buffer.
        size_bytes: u64,
    },
    /// A program for another kind of device.
    #[error("the program is for `{found}`, the device runs `{expected}`")]
    Target {
        /// The device's target.
        expected: String,
        /// The program's target.
        found: String,
    },
    /// A program that the device refuses.
    #[error("program `{program}` is refused: {reason}")]
    Refused {
        /// The program's name.
        program: String,
        /// Every reason.
        reason: String,
    },
    /// A program that another device loaded.
    #[error("program `{0}` was loaded by another device")]
    ForeignProgram(String),
    /// A buffer that another device made.
    #[error("the buffer belongs to another device")]
    ForeignBuffer,
    /// The wrong number of buffers.
    #[error("program `{program}` has {expected} slots, {found} buffers are bound")]
    Bindings {
        /// The program's name.
        program: String,
        /// Its slots.
        expected: usize,
        /// Buffers given.
        found: usize,
    },
    /// A buffer of the wrong size.
    #[error("slot `{slot}` of `{program}` has {expected_bytes} bytes, its buffer {found_bytes}")]
    BindingSize {
        /// The program's name.
        program: String,
        /// The slot's name.
        slot: String,
        /// The slot's size.
        expected_bytes: u64,
        /// The buffer's size.
        found_bytes: u64,
    },
    /// A fence that the device did not give, or gave and answered already.
    #[error("the fence is not one of this device's")]
    UnknownFence,
    /// The program failed while it ran.
    #[error("{place} failed: {reason}")]
    Fault {
        /// The place in the program.
        place: Box<ErrorPlace>,
        /// Description of the failure.
        reason: String,
    },
    /// The program did not end in time and was stopped.
    #[error(
        "{place} did not end within {} ms and was stopped: {reason}; the call can be repeated",
        after_ns / 1_000_000
    )]
    Timeout {
        /// The place that was running when it was stopped.
        place: Box<ErrorPlace>,
        /// How long the device waited, in nanoseconds.
        after_ns: u64,
        /// The remaining work.
        reason: String,
    },
    /// The device has disappeared.
    #[error(
        "{device} is gone{}; programs and buffers went with it and must be loaded again when it \
         is back",
        while_running(place)
    )]
    Lost {
        /// The device's name.
        device: String,
        /// The place that was running.
        place: Option<Box<ErrorPlace>>,
    },
    /// A program or buffer from before the device disappeared.
    #[error("{device} was gone and is back; {what} from before is lost and must be loaded again")]
    Stale {
        /// The device's name.
        device: String,
        /// The program or buffer that it no longer has.
        what: String,
    },
    /// The driver or the operating system failed.
    #[error("{0}")]
    Driver(String),
}

fn while_running(place: &Option<Box<ErrorPlace>>) -> String {
    (place.as_ref()).map_or_else(String::new, |place| format!(" (it was running {place})"))
}

impl DeviceError {
    /// Place in the program; `None` where no program was running.
    pub fn place(&self) -> Option<&ErrorPlace> {
        match self {
            DeviceError::Fault { place, .. } | DeviceError::Timeout { place, .. } => Some(place),
            DeviceError::Lost { place, .. } => place.as_deref(),
            _ => None,
        }
    }

    /// Whether all that was on the device is lost, so that a repeated call cannot succeed before
    /// programs and buffers are made anew.
    pub fn is_loss(&self) -> bool {
        matches!(self, DeviceError::Lost { .. } | DeviceError::Stale { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_what_is_known() {
        let mut place = ErrorPlace::of("o_ffn");
        let fault = |place: &ErrorPlace| DeviceError::Fault {
            place: Box::new(place.clone()),
            reason: "a reason".into(),
        };
        assert_eq!(
            fault(&place).to_string(),
            "program `o_ffn` failed: a reason"
        );
        place.launch = Some("up".into());
        place.unit = Some("core (7, 3)".into());
        place.slot = Some("w_up".into());
        assert_eq!(
            fault(&place).to_string(),
            "program `o_ffn`, launch `up`, core (7, 3), slot `w_up` failed: a reason"
        );
        let timeout = DeviceError::Timeout {
            place: Box::new(place.clone()),
            after_ns: 2_000_000_000,
            reason: "x".into(),
        };
        assert!(timeout.to_string().contains("within 2000 ms"), "{timeout}");
        let lost = DeviceError::Lost {
            device: "virtual npu2".into(),
            place: Some(Box::new(place)),
        };
        assert!(lost.to_string().contains("core (7, 3)") && lost.is_loss());
        assert!(lost.place().is_some());
    }
}
