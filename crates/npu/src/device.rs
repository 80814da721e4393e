//! The device contract: `info · alloc · map/sync · load · bind · submit → fence · wait`. Mapping and syncing belong to
//! the [`Buffer`].
//!
//! A program is loaded once, bound once for each set of buffers it runs on, and submitted as often as it runs. Streams
//! of commands hold addresses, and a driver writes them when it knows the buffers.

mod error;

pub use error::{DeviceError, ErrorPlace};

use crate::held::DeviceUsage;
use crate::{Buffer, Container, Energy, Inject, Provenance, Slot, Trace, Usage};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Properties of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// Name for people (`virtual NPU2, 8 × 4`).
    pub name: String,
    /// The target whose programs it runs (`xdna2`).
    pub target: String,
    /// Memory that buffers can take in total, in bytes.
    pub memory_bytes: u64,
    /// Largest single buffer, in bytes.
    pub max_buffer_bytes: u64,
    /// Whether host and device see each other's writes without a sync.
    pub coherent: bool,
    /// Where the times of [`Completion`]s come from.
    pub provenance: Provenance,
}

/// A program that a device holds ready. Dropping the last reference unloads it.
pub trait LoadedProgram: Send + Sync {
    /// The program's name.
    fn name(&self) -> &str;

    /// Its argument list.
    fn slots(&self) -> &[Slot];

    /// Why it runs on something else than the device was opened for; `None` where it does not. Its run then says
    /// nothing about the simulator or hardware that was to be tried.
    fn substitute(&self) -> Option<&str> {
        None
    }

    /// The object itself, for its device to recognise.
    fn as_any(&self) -> &dyn Any;
}

/// A promise that submitted work will end. Given back to [`Device::wait`]; dropping it abandons
/// the result, not the work.
pub struct Fence {
    device: u64,
    id: u64,
    /// Called when nobody can ask for the result any more.
    forget: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({}, {})", self.device, self.id)
    }
}

impl PartialEq for Fence {
    fn eq(&self, other: &Fence) -> bool {
        (self.device, self.id) == (other.device, other.id)
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        if let Some(forget) = self.forget.take() {
            forget();
        }
    }
}

impl Fence {
    /// A fence of the device numbered `device` (see [`unique_number`]). `forget` is called when the fence is dropped,
    /// answered or not: the device keeps no result that nobody can ask for.
    pub fn new(device: u64, id: u64, forget: impl FnOnce() + Send + 'static) -> Fence {
        Fence {
            device,
            id,
            forget: Some(Box::new(forget)),
        }
    }

    /// The fence's number.
    ///
    /// # Errors
    /// [`DeviceError::UnknownFence`] where another device gave it.
    pub fn id(&self, device: u64) -> Result<u64, DeviceError> {
        match self.device == device {
            true => Ok(self.id),
            false => Err(DeviceError::UnknownFence),
        }
    }
}

/// A number that no other call in this process returns: a device's identity.
pub fn unique_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// Record of work that ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// Time on the device from dispatch to completion, in nanoseconds.
    pub duration_ns: u64,
    /// Where that time comes from.
    pub provenance: Provenance,
    /// Trace of the run, where the device records one.
    pub trace: Option<Trace>,
    /// Energy, where the device knows.
    pub energy: Option<Energy>,
}

/// A device. Calls may come from several threads at once.
pub trait Device: Send + Sync {
    /// Its properties.
    fn info(&self) -> &DeviceInfo;

    /// Programs and buffers that it holds for its users at the moment: those not dropped yet.
    fn held(&self) -> DeviceUsage;

    /// Makes a buffer of exactly that size, zeroed on both sides.
    ///
    /// # Errors
    /// Where the size is zero, beyond the device's limit, or does not fit.
    fn alloc(&self, size_bytes: u64, usage: Usage) -> Result<Arc<Buffer>, DeviceError>;

    /// Verifies a program and makes it ready to run.
    ///
    /// # Errors
    /// Where it is for another target, cannot be decoded, or is refused.
    fn load(&self, container: &Container) -> Result<Arc<dyn LoadedProgram>, DeviceError>;

    /// Binds a program to buffers, one a slot, in order. Everything that depends on their addresses is computed here,
    /// once for all runs of the program on them.
    ///
    /// # Errors
    /// Where program or buffers belong to another device, or do not fit each other ([`check_bindings`]).
    fn bind(
        &self,
        program: &Arc<dyn LoadedProgram>,
        buffers: &[Arc<Buffer>],
    ) -> Result<BoundProgram, DeviceError>;

    /// Starts a bound program. Several may be under way; those on the same buffers run in the order in
    /// which they were submitted. Host and device must not touch the buffers otherwise until the fence is
    /// answered. The device keeps program and buffers alive as long as it needs them.
    ///
    /// # Errors
    /// Where another device bound it, or the device was lost since.
    fn submit(&self, bound: &BoundProgram) -> Result<Fence, DeviceError>;

    /// Waits until submitted work has ended. After an error the device can be used further; the
    /// content of the outputs is then undefined.
    ///
    /// # Errors
    /// Where the fence is not this device's, or the program failed.
    fn wait(&self, fence: Fence) -> Result<Completion, DeviceError>;

    /// Injector of failures, which a virtual device has.
    fn injector(&self) -> Option<&dyn Inject> {
        None
    }
}

/// A program bound to its buffers.
#[derive(Clone)]
pub struct BoundProgram {
    /// The program.
    pub program: Arc<dyn LoadedProgram>,
    /// One a slot.
    pub buffers: Vec<Arc<Buffer>>,
    /// Data that the device computed for these buffers (a stream of commands with their addresses), for its own use.
    pub stream: Option<Arc<dyn Any + Send + Sync>>,
}

impl BoundProgram {
    /// A program and buffers that fit each other ([`check_bindings`]), without such data.
    ///
    /// # Errors
    /// As [`check_bindings`].
    pub fn new(
        program: &Arc<dyn LoadedProgram>,
        buffers: &[Arc<Buffer>],
    ) -> Result<BoundProgram, DeviceError> {
        check_bindings(&**program, buffers)?;
        Ok(BoundProgram {
            program: program.clone(),
            buffers: buffers.to_vec(),
            stream: None,
        })
    }
}

impl fmt::Debug for BoundProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bound({})", self.program.name())
    }
}

/// Checks number and sizes of buffers against a program's slots; for `bind`.
///
/// # Errors
/// [`DeviceError::Bindings`] or [`DeviceError::BindingSize`].
pub fn check_bindings(
    program: &dyn LoadedProgram,
    buffers: &[Arc<Buffer>],
) -> Result<(), DeviceError> {
    let slots = program.slots();
    if slots.len() != buffers.len() {
        return Err(DeviceError::Bindings {
            program: program.name().to_owned(),
            expected: slots.len(),
            found: buffers.len(),
        });
    }
    for (slot, buffer) in slots.iter().zip(buffers) {
        let expected_bytes = slot.size_bytes().unwrap_or(u64::MAX);
        if buffer.size_bytes() != expected_bytes {
            return Err(DeviceError::BindingSize {
                program: program.name().to_owned(),
                slot: slot.name.clone(),
                expected_bytes,
                found_bytes: buffer.size_bytes(),
            });
        }
    }
    Ok(())
}
