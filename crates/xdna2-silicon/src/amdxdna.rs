//! The Linux driver `amdxdna` as a program sees it, and a kernel in software that answers like it.
//!
//! [`AmdxdnaNode`] is an open `/dev/accel` node; [`FakeKernel`] is one over the board, which refuses what the
//! driver refuses. There is no implementation over Linux here yet, so nothing of this reaches an NPU.
//!
//! Structures, numbers and refusals are those of `drm/amdxdna_accel.h` and `drivers/accel/amdxdna`. The path is
//! that of a command of opcode 22: the address of a transaction stream in device memory, no PDI, no arguments.
//! Addresses in shim descriptors are written by the host ([`relocate`]), as XRT's loader of ELF files does.

mod driver;
mod fake;
pub mod packet;
pub mod uapi;

pub use driver::{AmdxdnaDriver, DDR_APERTURE, DriverFault, FIRMWARE, relocate};
pub use fake::{FakeFaults, FakeKernel};

/// What an `ioctl` fails with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Errno {
    /// EINVAL: a field that must be zero is not, a type or handle is wrong.
    #[error("EINVAL")]
    Inval,
    /// EAGAIN: memory of the device without a heap.
    #[error("EAGAIN")]
    Again,
    /// ENOSPC: the heap would pass 512 MiB.
    #[error("ENOSPC")]
    NoSpc,
    /// ENOMEM.
    #[error("ENOMEM")]
    NoMem,
    /// EOPNOTSUPP: firmware without that command.
    #[error("EOPNOTSUPP")]
    OpNotSupp,
    /// ENOENT: no such context or command.
    #[error("ENOENT")]
    NoEnt,
    /// ETIME: the wait's time is over.
    #[error("ETIME")]
    Time,
    /// ENODEV: the device is gone.
    #[error("ENODEV")]
    NoDev,
}

/// The kinds of buffer object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoKind {
    /// Memory of the host that both see: arguments, commands.
    Share = 1,
    /// The heap that memory of the device is taken from.
    DevHeap = 2,
    /// Memory of the device: instructions.
    Dev = 3,
}

/// A buffer object as the kernel made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceBo {
    /// Its handle in this open file.
    pub handle: u32,
    /// Its size in bytes.
    pub size: u64,
    /// Its address on the device.
    pub xdna_addr: u64,
}

/// Version of the firmware's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FirmwareVersion {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// Which way a cache is written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncTo {
    /// What the host wrote becomes visible to the device.
    Device = 0,
    /// What the device wrote becomes visible to the host.
    Host = 1,
}

/// An open node of the driver.
pub trait AmdxdnaNode {
    /// GET_INFO of the firmware's version.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn firmware(&self) -> Result<FirmwareVersion, Errno>;

    /// CREATE_BO and GET_BO_INFO, mapped.
    ///
    /// # Errors
    /// EINVAL for a size of 0 or a heap of other than whole 64 MiB, EAGAIN for memory of the device
    /// without a heap, ENOSPC for heaps of more than 512 MiB, ENOMEM.
    fn create_bo(&mut self, kind: BoKind, size: u64) -> Result<DeviceBo, Errno>;

    /// Closes a buffer object.
    ///
    /// # Errors
    /// EINVAL: no such handle, or a heap that is in use.
    fn close_bo(&mut self, handle: u32) -> Result<(), Errno>;

    /// The mapping of a buffer object.
    ///
    /// # Errors
    /// EINVAL: no such handle.
    fn mapping(&mut self, handle: u32) -> Result<&mut [u8], Errno>;

    /// SYNC_BO of the whole object: the mapping and the device's view are not coherent.
    ///
    /// # Errors
    /// EINVAL: no such handle.
    fn sync_bo(&mut self, handle: u32, to: SyncTo) -> Result<(), Errno>;

    /// CREATE_HWCTX for so many columns.
    ///
    /// # Errors
    /// EINVAL: no column, or more than eight.
    fn create_context(&mut self, columns: u32) -> Result<u32, Errno>;

    /// DESTROY_HWCTX.
    ///
    /// # Errors
    /// EINVAL: no such context.
    fn destroy_context(&mut self, context: u32) -> Result<(), Errno>;

    /// EXEC_CMD of one command; `arguments` are all objects that it touches. Gives its number.
    ///
    /// # Errors
    /// EINVAL for a bad handle or packet, EOPNOTSUPP for an opcode that the firmware lacks, ENOENT for no
    /// such context.
    fn execute(&mut self, context: u32, command: u32, arguments: &[u32]) -> Result<u64, Errno>;

    /// SYNCOBJ_TIMELINE_WAIT on the context's object. Success says that the command ended: how, its packet
    /// says.
    ///
    /// # Errors
    /// ETIME, ENOENT.
    fn wait(&mut self, context: u32, number: u64, timeout_ms: u32) -> Result<(), Errno>;
}
