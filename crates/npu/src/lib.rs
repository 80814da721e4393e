//! Common parts of every NPU. A target (AMD XDNA2 and others) builds its own kind of programs. This
//! crate carries them, caches them, runs them through a [`Device`] and counts every byte that
//! crosses.
//!
//! | module | holds |
//! |---|---|
//! | [`element`], [`slot`] | element types, argument lists and their roles |
//! | [`buffer`] | buffer objects: mapped, explicitly synchronised, accounted; [`ram`] for virtual devices |
//! | [`device`] | the contract: info, alloc, load, bind, submit, wait |
//! | [`inject`] | deliberate failures |
//! | [`rules!`](crate::rules!) | the table of a verifier's checks, by code |
//! | [`simulated`] | common parts of devices in software: memory, owners, fences, deliberate failures |
//! | [`held`] | resources that a device holds: programs, buffers, bytes |
//! | [`container`] | a compiled program as bytes, with its content hash |
//! | [`cache`] | artifacts on disk, loaded handles, buffer sets by `bo_key` |
//! | [`conformance`] | checks that any device must pass |
//! | [`trace`] | spans of time; the Chrome form |
//! | [`energy`], [`provenance`] | joules by rail; measured or modelled |
#![forbid(unsafe_code)]

pub mod buffer;
pub mod cache;
pub mod conformance;
pub mod container;
pub mod device;
pub mod element;
pub mod energy;
pub mod held;
pub mod inject;
pub mod provenance;
pub mod ram;
mod rules;
pub mod simulated;
pub mod slot;
pub mod trace;

pub use buffer::{Buffer, BufferObject, Direction, Traffic, Usage};
pub use cache::{CacheError, CacheStats, CallResult, Move, Notice, ProgramCache};
pub use container::{Container, ContainerError, ContentHash};
pub use device::{
    BoundProgram, Completion, Device, DeviceError, DeviceInfo, ErrorPlace, Fence, LoadedProgram,
};
pub use element::Element;
pub use energy::Energy;
pub use held::DeviceUsage;
pub use inject::{Corruption, CorruptionCounts, Inject, Injection};
pub use provenance::Provenance;
pub use simulated::{SimulatedDevice, Simulator};
pub use slot::{Role, Slot};
pub use trace::Trace;
