//! Notices and errors of the cache.

use crate::{DeviceError, Role};
use std::path::PathBuf;

/// Something a person may want to know, though the work goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The manifest cannot be read; its artifacts count as missing.
    Manifest {
        /// Its path.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// An artifact on disk is stale or corrupt and is built again.
    Rebuilt {
        /// The program's name.
        name: String,
        /// Why.
        reason: String,
    },
    /// An artifact could not be saved; it is used from memory.
    NotSaved {
        /// The program's name.
        name: String,
        /// Why.
        reason: String,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notice::Manifest { path, reason } => {
                write!(
                    f,
                    "{}: {reason}; its programs are built again",
                    path.display()
                )
            }
            Notice::Rebuilt { name, reason } => {
                write!(f, "cached program `{name}` is built again: {reason}")
            }
            Notice::NotSaved { name, reason } => {
                write!(f, "program `{name}` is not saved in the cache: {reason}")
            }
        }
    }
}

/// Why a call through the cache failed.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device gives no buffer for a slot.
    #[error("slot `{slot}` of program `{program}`: {error}")]
    Alloc {
        /// The program.
        program: String,
        /// The slot.
        slot: String,
        /// Why.
        error: Box<DeviceError>,
    },
    /// The wrong number of arguments.
    #[error("program `{program}` has {expected} slots, {found} arguments are given")]
    Arguments {
        /// The program.
        program: String,
        /// Its slots.
        expected: usize,
        /// Arguments given.
        found: usize,
    },
    /// No data for a slot that needs some.
    #[error("{role} slot `{slot}` of `{program}` needs data", role = role.name())]
    Missing {
        /// The program.
        program: String,
        /// The slot.
        slot: String,
        /// Its role.
        role: Role,
    },
    /// Data for a slot that the program overwrites.
    #[error("{role} slot `{slot}` of `{program}` is overwritten by the program and takes no data",
        role = role.name())]
    Unwanted {
        /// The program.
        program: String,
        /// The slot.
        slot: String,
        /// Its role.
        role: Role,
    },
    /// Data of the wrong size.
    #[error("slot `{slot}` of `{program}` has {expected_bytes} bytes, its data {found_bytes}")]
    Size {
        /// The program.
        program: String,
        /// The slot.
        slot: String,
        /// The slot's size.
        expected_bytes: u64,
        /// The data's size.
        found_bytes: u64,
    },
    /// A buffer set that belongs to another program.
    #[error("buffer set `{bo_key}` belongs to program `{holder}`, not `{program}`")]
    BoKey {
        /// The key.
        bo_key: String,
        /// The program it belongs to.
        holder: String,
        /// The program that asked.
        program: String,
    },
    /// A buffer that a slot was to have by its name, and cannot.
    #[error(
        "slot `{slot}` of {expected_bytes} bytes cannot have buffer `{name}`: it has \
        {found_bytes} bytes, or another slot of the program has it"
    )]
    Shared {
        /// The buffer's name.
        name: String,
        /// The slot that should have it.
        slot: String,
        /// The slot's size.
        expected_bytes: u64,
        /// The buffer's size.
        found_bytes: u64,
    },
    /// A look at a buffer that is not there.
    #[error("buffer set `{bo_key}` has no slot {slot}: it has {n_slots}")]
    NoSlot {
        /// The key.
        bo_key: String,
        /// The slot asked for.
        slot: usize,
        /// Slots of the set; 0 where nothing was allocated.
        n_slots: usize,
    },
}

impl CacheError {
    /// Error of the device; `None` where it was not asked.
    pub fn device(&self) -> Option<&DeviceError> {
        match self {
            CacheError::Device(error) => Some(error),
            CacheError::Alloc { error, .. } => Some(error),
            _ => None,
        }
    }
}
