//! The Linux driver `amdxdna` as a program sees it, and a kernel in software that answers like it.
//!
//! [`AmdxdnaNode`] is an open `/dev/accel` node, one method a call: [`LinuxNode`] calls Linux. [`FakeKernel`] is a
//! kernel over the board, which refuses the calls that the driver refuses. [`AmdxdnaDriver`] is the same code over
//! both. None of this has run on an NPU.
//!
//! Structures, numbers and refusals are those of `drm/amdxdna_accel.h` and `drivers/accel/amdxdna`. The path is
//! that of a command of opcode 22: the address of a transaction stream in device memory, no PDI, no arguments.
//! Addresses in shim descriptors are written by the host ([`relocate`]), as XRT's loader of ELF files does.

mod clock;
mod driver;
mod fake;
mod fault;
pub mod packet;
mod relocation;
mod sys;
pub mod uapi;

pub use driver::{AmdxdnaDriver, CommandCost, DeviceVersions};
pub use fake::{FakeFaults, FakeKernel};
pub use fault::{DriverFault, NodeFault};
pub use millrace_accel::DriverVersion;
pub use relocation::{DDR_APERTURE, relocate};
pub use rustix::io::Errno;
pub use sys::{LinuxNode, open_node};

/// The lowest protocol between driver and firmware that takes a stream without a PDI (`npu4_regs.c`: AIE2_NPU_COMMAND).
/// No call reports it: the version from GET_INFO is that of the firmware's release.
pub const PROTOCOL: (u32, u32) = (6, 15);
/// The first kernel with `amdxdna`.
pub const KERNEL: (u32, u32) = (6, 14);
/// The unit and the alignment of heaps, in bytes (`aie2_pci.c`: dev_mem_size).
pub const HEAP_BYTES: u64 = 64 << 20;

/// The kinds of buffer object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoKind {
    /// Memory of the host that both see: arguments.
    Share = 1,
    /// The heap that memory of the device is taken from.
    DevHeap = 2,
    /// Memory of the device: instructions. It is in the heap, and is mapped with it.
    Dev = 3,
    /// A command's packet.
    Command = 4,
}

/// Where a buffer object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoInfo {
    /// The offset that maps it.
    pub map_offset: u64,
    /// Its address on the device. That of [`BoKind::Share`] is known once the object is mapped.
    pub xdna_addr: u64,
}

/// Version of the firmware's release, which is independent of its [`PROTOCOL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FirmwareVersion {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Patch level.
    pub patch: u32,
    /// Number of the build.
    pub build: u32,
}

impl std::fmt::Display for FirmwareVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FirmwareVersion {
            major,
            minor,
            patch,
            build,
        } = self;
        write!(f, "{major}.{minor}.{patch}.{build}")
    }
}

/// The array, as the driver knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayShape {
    /// Columns.
    pub cols: u16,
    /// Rows of all kinds of tile.
    pub rows: u16,
    /// Rows of cores.
    pub core_rows: u16,
}

/// The array of an NPU2: Strix, Strix Halo, Krackan.
pub const NPU2: ArrayShape = ArrayShape {
    cols: 8,
    rows: 6,
    core_rows: 4,
};

/// A context on columns of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HwContext {
    /// Its handle in this open file.
    pub handle: u32,
    /// The timeline that commands end on. It outlives the context.
    pub syncobj: u32,
}

/// Direction in which a cache is written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncTo {
    /// The host's writes become visible to the device.
    Device = 0,
    /// The device's writes become visible to the host.
    Host = 1,
}

/// An open node of the driver, one method a call. Closing the node closes all that it made.
pub trait AmdxdnaNode {
    /// GET_INFO of the firmware's version.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn firmware(&mut self) -> Result<FirmwareVersion, Errno>;

    /// GET_INFO of the array's version: major and minor number.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn array_version(&mut self) -> Result<(u32, u32), Errno>;

    /// GET_INFO of the array's metadata.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn array_shape(&mut self) -> Result<ArrayShape, Errno>;

    /// CREATE_BO. Returns its handle.
    ///
    /// # Errors
    /// EINVAL for a size of 0 or a heap of other than whole 64 MiB, EAGAIN for memory of the device
    /// without a mapped heap, ENOSPC for heaps of more than 512 MiB, ENOMEM.
    fn create_bo(&mut self, kind: BoKind, size_bytes: u64) -> Result<u32, Errno>;

    /// GET_BO_INFO.
    ///
    /// # Errors
    /// EINVAL: no such handle.
    fn bo_info(&mut self, handle: u32) -> Result<BoInfo, Errno>;

    /// Maps a buffer object; a heap at a multiple of 64 MiB. Memory of the device is mapped with its heap.
    ///
    /// # Errors
    /// As `mmap(2)`.
    fn map(&mut self, handle: u32, info: BoInfo) -> Result<(), Errno>;

    /// The content of a mapped buffer object.
    ///
    /// # Errors
    /// EINVAL: no such handle, or not mapped.
    fn mapping(&mut self, handle: u32) -> Result<&mut [u8], Errno>;

    /// SYNC_BO of the whole object: the mapping and the device's view are not coherent.
    ///
    /// # Errors
    /// EINVAL: no such handle.
    fn sync_bo(&mut self, handle: u32, to: SyncTo) -> Result<(), Errno>;

    /// Unmaps and closes a buffer object.
    ///
    /// # Errors
    /// EINVAL: no such handle.
    fn close_bo(&mut self, handle: u32) -> Result<(), Errno>;

    /// CREATE_HWCTX for so many cores: columns times rows of cores.
    ///
    /// # Errors
    /// EINVAL: no column, or more than there are; ENOENT: no heap; EAGAIN: the heap is not mapped.
    fn create_context(&mut self, n_cores: u32) -> Result<HwContext, Errno>;

    /// DESTROY_HWCTX: ends running commands.
    ///
    /// # Errors
    /// EINVAL: no such context.
    fn destroy_context(&mut self, context: u32) -> Result<(), Errno>;

    /// SYNCOBJ_DESTROY.
    ///
    /// # Errors
    /// EINVAL: no such object.
    fn destroy_syncobj(&mut self, syncobj: u32) -> Result<(), Errno>;

    /// EXEC_CMD of one command; `arguments` are all objects that it touches. Returns its number.
    ///
    /// # Errors
    /// EINVAL for a bad handle or packet, ENOENT for no such context.
    fn execute(&mut self, context: u32, command: u32, arguments: &[u32]) -> Result<u64, Errno>;

    /// SYNCOBJ_TIMELINE_WAIT until a time of [`now_ns`](AmdxdnaNode::now_ns). Success means that the command of that
    /// number ended; its packet says how. An opcode that the firmware lacks leaves the command as new.
    ///
    /// # Errors
    /// ETIME at the deadline; ENOENT for no such object.
    fn wait(&mut self, syncobj: u32, number: u64, deadline_ns: i64) -> Result<(), Errno>;

    /// The clock of deadlines, in nanoseconds.
    fn now_ns(&self) -> i64;

    /// Reason why the last command stopped, if the node knows more than its packet says.
    fn explanation(&self) -> Option<String> {
        None
    }

    /// Time of the last command, in nanoseconds, if the node models time. For other nodes the host's clock measures it.
    fn modelled_ns(&self) -> Option<f64> {
        None
    }
}
