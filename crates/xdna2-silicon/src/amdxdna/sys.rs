//! Linux: `/dev/accel/accelN` and its ioctls. The one place of this crate with `unsafe`.

#![allow(unsafe_code)]

use super::uapi::{self, *};
use super::{
    AmdxdnaNode, ArrayShape, BoInfo, BoKind, Errno, FirmwareVersion, HEAP_BYTES, HwContext,
    NodeFault, SyncTo,
};
use millrace_accel::{
    AccelFile, DriverVersion, FileMapping, find_node, kernel_release, node_paths,
};
use rustix::ioctl::Opcode;
use std::collections::HashMap;

/// The kernel module.
const MODULE: &str = "amdxdna";
/// The driver's names for itself.
const DRIVER_NAMES: [&str; 2] = ["amdxdna_accel_driver", MODULE];

/// Opens the first node of the driver. Returns its path, the node, and the version that the driver reports.
///
/// # Errors
/// Why not, and the remedy.
pub fn open_node() -> Result<(String, LinuxNode, DriverVersion), NodeFault> {
    let paths = node_paths(MODULE);
    let found = find_node(&paths, &DRIVER_NAMES, LinuxNode::open, |node| {
        node.file.version()
    });
    found.map_err(|absence| NodeFault::of(absence, kernel_release()))
}

/// A buffer object of this open file.
struct OwnBo {
    kind: BoKind,
    size_bytes: u64,
    address: u64,
    mapping: Option<FileMapping>,
}

/// An open node of Linux.
pub struct LinuxNode {
    file: AccelFile,
    objects: HashMap<u32, OwnBo>,
}

impl LinuxNode {
    /// Opens a node.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open(path: &str) -> Result<LinuxNode, Errno> {
        Ok(LinuxNode {
            file: AccelFile::open(path)?,
            objects: HashMap::new(),
        })
    }

    /// An ioctl, repeated after a signal interrupted it. The pointers in it outlive the call, since callers keep their
    /// targets on the stack.
    fn call<T, const OPCODE: Opcode>(&self, argument: &mut T) -> Result<(), Errno> {
        loop {
            // SAFETY: only structures of `uapi` come here, with the number that was computed from them; its
            // tests compare them with the header. Addresses in them are those of locals of the callers.
            match unsafe { self.file.call::<T, OPCODE>(argument) } {
                Err(Errno::INTR) => {}
                answer => return answer.map(|_| ()),
            }
        }
    }

    fn query<T: Default>(&self, param: u32) -> Result<T, Errno> {
        let mut answer = T::default();
        let mut argument = GetInfo {
            param,
            buffer_size: size_of::<T>() as u32,
            buffer: std::ptr::from_mut(&mut answer) as u64,
        };
        self.call::<_, { uapi::GET_INFO }>(&mut argument)?;
        Ok(answer)
    }

    fn object(&mut self, handle: u32) -> Result<&mut OwnBo, Errno> {
        self.objects.get_mut(&handle).ok_or(Errno::INVAL)
    }
}

impl AmdxdnaNode for LinuxNode {
    fn firmware(&mut self) -> Result<FirmwareVersion, Errno> {
        let found: QueryFirmwareVersion = self.query(QUERY_FIRMWARE_VERSION)?;
        Ok(FirmwareVersion {
            major: found.major,
            minor: found.minor,
            patch: found.patch,
            build: found.build,
        })
    }

    fn array_version(&mut self) -> Result<(u32, u32), Errno> {
        let found: QueryAieVersion = self.query(QUERY_AIE_VERSION)?;
        Ok((found.major, found.minor))
    }

    fn array_shape(&mut self) -> Result<ArrayShape, Errno> {
        let found: QueryAieMetadata = self.query(QUERY_AIE_METADATA)?;
        Ok(ArrayShape {
            cols: found.cols,
            rows: found.rows,
            core_rows: found.core.row_count,
        })
    }

    fn create_bo(&mut self, kind: BoKind, size_bytes: u64) -> Result<u32, Errno> {
        let mut argument = CreateBo {
            size: size_bytes,
            r#type: kind as u32,
            ..CreateBo::default()
        };
        self.call::<_, CREATE_BO>(&mut argument)?;
        let bo = OwnBo {
            kind,
            size_bytes,
            address: u64::MAX,
            mapping: None,
        };
        self.objects.insert(argument.handle, bo);
        Ok(argument.handle)
    }

    fn bo_info(&mut self, handle: u32) -> Result<BoInfo, Errno> {
        let mut argument = GetBoInfo {
            handle,
            ..GetBoInfo::default()
        };
        self.call::<_, GET_BO_INFO>(&mut argument)?;
        self.object(handle)?.address = argument.xdna_addr;
        Ok(BoInfo {
            map_offset: argument.map_offset,
            xdna_addr: argument.xdna_addr,
        })
    }

    fn map(&mut self, handle: u32, info: BoInfo) -> Result<(), Errno> {
        let bo = self.objects.get_mut(&handle).ok_or(Errno::INVAL)?;
        let align = match bo.kind {
            // `mapping` finds it in its heap's.
            BoKind::Dev => return Ok(()),
            BoKind::DevHeap => HEAP_BYTES as usize,
            BoKind::Share | BoKind::Command => 1,
        };
        let size_bytes = usize::try_from(bo.size_bytes).map_err(|_| Errno::NOMEM)?;
        bo.mapping = Some(self.file.map(info.map_offset, size_bytes, align)?);
        Ok(())
    }

    fn mapping(&mut self, handle: u32) -> Result<&mut [u8], Errno> {
        let bo = self.objects.get(&handle).ok_or(Errno::INVAL)?;
        if bo.kind != BoKind::Dev {
            let bo = self.object(handle)?;
            return bo.mapping.as_deref_mut().ok_or(Errno::INVAL);
        }
        let (address, size_bytes) = (bo.address, bo.size_bytes as usize);
        let in_heap = |heap: &OwnBo| -> Option<(usize, usize)> {
            let first = usize::try_from(address.checked_sub(heap.address)?).ok()?;
            let end = first.checked_add(size_bytes)?;
            (heap.kind == BoKind::DevHeap && end <= heap.mapping.as_ref()?.len())
                .then_some((first, end))
        };
        let mut heaps = self.objects.values_mut();
        let found = heaps.find_map(|heap| in_heap(heap).map(|range| (heap, range)));
        let (heap, (first, end)) = found.ok_or(Errno::INVAL)?;
        let mapping = heap.mapping.as_deref_mut().ok_or(Errno::INVAL)?;
        Ok(&mut mapping[first..end])
    }

    fn sync_bo(&mut self, handle: u32, to: SyncTo) -> Result<(), Errno> {
        let size = self.object(handle)?.size_bytes;
        let mut argument = SyncBo {
            handle,
            direction: to as u32,
            offset: 0,
            size,
        };
        self.call::<_, SYNC_BO>(&mut argument)
    }

    fn close_bo(&mut self, handle: u32) -> Result<(), Errno> {
        self.objects.remove(&handle).ok_or(Errno::INVAL)?;
        self.file.gem_close(handle)
    }

    fn create_context(&mut self, n_cores: u32) -> Result<HwContext, Errno> {
        let qos = QosInfo {
            priority: NORMAL_PRIORITY,
            ..QosInfo::default()
        };
        let mut argument = CreateHwctx {
            qos_p: std::ptr::from_ref(&qos) as u64,
            max_opc: MAX_OPERATIONS,
            num_tiles: n_cores,
            ..CreateHwctx::default()
        };
        self.call::<_, CREATE_HWCTX>(&mut argument)?;
        Ok(HwContext {
            handle: argument.handle,
            syncobj: argument.syncobj_handle,
        })
    }

    fn destroy_context(&mut self, context: u32) -> Result<(), Errno> {
        let mut argument = DestroyHwctx {
            handle: context,
            pad: 0,
        };
        self.call::<_, DESTROY_HWCTX>(&mut argument)
    }

    fn destroy_syncobj(&mut self, syncobj: u32) -> Result<(), Errno> {
        let mut argument = SyncobjDestroy {
            handle: syncobj,
            pad: 0,
        };
        self.call::<_, SYNCOBJ_DESTROY>(&mut argument)
    }

    fn execute(&mut self, context: u32, command: u32, arguments: &[u32]) -> Result<u64, Errno> {
        let arg_count = u32::try_from(arguments.len()).map_err(|_| Errno::INVAL)?;
        let mut argument = ExecCmd {
            hwctx: context,
            cmd_handles: command.into(),
            args: arguments.as_ptr() as u64,
            cmd_count: 1,
            arg_count,
            ..ExecCmd::default()
        };
        self.call::<_, EXEC_CMD>(&mut argument)?;
        Ok(argument.seq)
    }

    fn wait(&mut self, syncobj: u32, number: u64, deadline_ns: i64) -> Result<(), Errno> {
        let mut argument = SyncobjTimelineWait {
            handles: std::ptr::from_ref(&syncobj) as u64,
            points: std::ptr::from_ref(&number) as u64,
            timeout_nsec: deadline_ns,
            count_handles: 1,
            flags: WAIT_FOR_SUBMIT,
            ..SyncobjTimelineWait::default()
        };
        self.call::<_, SYNCOBJ_TIMELINE_WAIT>(&mut argument)
    }

    fn now_ns(&self) -> i64 {
        millrace_accel::now_ns()
    }
}

/// Operations a cycle that a context may ask for. It is the number that XRT's shim asks for if a program gives none.
const MAX_OPERATIONS: u32 = 2048;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amdxdna::AmdxdnaDriver;

    /// Every call on a file that is not a device is an error, and none is taken for an object.
    #[test]
    fn a_file_that_is_no_device_answers_with_errors() {
        let open = || LinuxNode::open("/dev/null").unwrap();
        assert_eq!(open().firmware(), Err(Errno::NOTTY));
        assert_eq!(open().array_version(), Err(Errno::NOTTY));
        assert_eq!(open().array_shape(), Err(Errno::NOTTY));
        assert_eq!(open().create_bo(BoKind::Share, 4096), Err(Errno::NOTTY));
        assert_eq!(open().create_context(32), Err(Errno::NOTTY));
        assert_eq!(open().destroy_context(1), Err(Errno::NOTTY));
        assert_eq!(open().destroy_syncobj(1), Err(Errno::NOTTY));
        assert_eq!(open().execute(1, 2, &[3]), Err(Errno::NOTTY));
        assert_eq!(open().wait(1, 1, 0), Err(Errno::NOTTY));
        assert_eq!(open().mapping(1).err(), Some(Errno::INVAL));
        assert_eq!(open().sync_bo(1, SyncTo::Host), Err(Errno::INVAL));
        assert_eq!(open().close_bo(1), Err(Errno::INVAL));
        let fault = AmdxdnaDriver::open(open()).err().unwrap();
        assert!(fault.to_string().starts_with("GET_INFO"), "{fault}");
        let none = LinuxNode::open("/dev/accel/none");
        assert_eq!(none.err(), Some(Errno::NOENT));
    }
}
