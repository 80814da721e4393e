//! Linux: `/dev/accel/accelN` and its ioctls. The one place of this crate with `unsafe`.

#![allow(unsafe_code)]

use super::{CreatedBo, Host, JobArgs, Node, Version};
use memmap2::{MmapMut, MmapOptions};
use millrace_npu::Provenance;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

/// The running system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

const FOLDER: &str = "/dev/accel";

impl Host for Linux {
    fn describe(&self) -> String {
        match self.kernel_release() {
            Some(release) => format!("Linux {release}"),
            None => "Linux".into(),
        }
    }

    fn paths(&self) -> Vec<String> {
        let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
        let mut paths: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with("accel") && may_be_rocket(name))
            .map(|name| format!("{FOLDER}/{name}"))
            .collect();
        paths.sort();
        paths
    }

    fn open(&self, path: &str) -> Result<Arc<dyn Node>, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Arc::new(NodeFile {
            fd,
            maps: Mutex::default(),
        }))
    }

    fn kernel_release(&self) -> Option<String> {
        let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
        Some(text.trim().to_owned())
    }

    fn shared(&self) -> Arc<dyn Host> {
        Arc::new(*self)
    }

    fn has_vendor_driver(&self) -> bool {
        // The vendor's module registers a platform driver of its own name.
        std::path::Path::new("/sys/bus/platform/drivers/RKNPU").exists()
    }
}

/// Whether a node belongs to rocket or to a driver that cannot be told; sysfs is open to all, the node
/// may not be.
fn may_be_rocket(name: &str) -> bool {
    let link = std::fs::read_link(format!("/sys/class/accel/{name}/device/driver"));
    let driver = link
        .ok()
        .and_then(|path| Some(path.file_name()?.to_owned()));
    driver.is_none_or(|driver| driver == super::DRIVER_NAME)
}

/// An open node.
struct NodeFile {
    fd: OwnedFd,
    maps: Mutex<HashMap<u32, Arc<Mutex<MmapMut>>>>,
}

#[repr(C)]
#[derive(Default)]
struct CreateBo {
    size: u32,
    handle: u32,
    dma_address: u64,
    offset: u64,
}

#[repr(C)]
struct Submit {
    jobs: u64,
    job_count: u32,
    job_struct_size: u32,
    reserved: u64,
}

#[repr(C)]
struct SysJob {
    tasks: u64,
    in_bo_handles: u64,
    out_bo_handles: u64,
    task_count: u32,
    task_struct_size: u32,
    in_bo_handle_count: u32,
    out_bo_handle_count: u32,
}

#[repr(C)]
struct SysTask {
    regcmd: u32,
    regcmd_count: u32,
}

#[repr(C)]
struct PrepBo {
    handle: u32,
    reserved: u32,
    timeout_ns: i64,
}

/// FINI_BO's handle and reserved word; GEM_CLOSE has the same shape.
#[repr(C)]
struct OneBo {
    handle: u32,
    reserved: u32,
}

#[repr(C)]
struct DrmVersion {
    major: i32,
    minor: i32,
    patch: i32,
    name_len: u64,
    name: u64,
    date_len: u64,
    date: u64,
    desc_len: u64,
    desc: u64,
}

const CREATE_BO: Opcode = 0xc018_6440;
const SUBMIT: Opcode = 0x4018_6441;
const PREP_BO: Opcode = 0x4010_6442;
const FINI_BO: Opcode = 0x4008_6443;
const GEM_CLOSE: Opcode = 0x4008_6409;
const DRM_VERSION: Opcode = 0xc040_6400;

/// A call whose argument is one structure and whose answer is a number that is not negative.
struct SysCall<'t, T, const OPCODE: Opcode>(&'t mut T);

// SAFETY: every `T` is a `repr(C)` structure of the size that the opcode states (tested below), laid
// out as the kernel's header; pointers within are checked where the structures are filled.
unsafe impl<T, const OPCODE: Opcode> Ioctl for SysCall<'_, T, OPCODE> {
    type Output = i32;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self.0).cast()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> Result<i32, Errno> {
        Ok(output)
    }
}

impl NodeFile {
    fn call<T, const OPCODE: Opcode>(&self, argument: &mut T) -> Result<i32, Errno> {
        // SAFETY: the descriptor is open, the opcode belongs to `T` (see `SysCall`), and what `T` points
        // to outlives the call, since callers keep it on their stacks.
        unsafe { ioctl(self.fd.as_fd(), SysCall::<T, OPCODE>(argument)) }
    }

    fn map(&self, bo: &CreatedBo) -> Result<Arc<Mutex<MmapMut>>, Errno> {
        let maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        maps.get(&bo.handle).cloned().ok_or(Errno::INVAL)
    }
}

impl Node for NodeFile {
    fn version(&self) -> Result<Version, Errno> {
        let (mut name, mut description) = ([0u8; 64], [0u8; 256]);
        let mut version = DrmVersion {
            major: 0,
            minor: 0,
            patch: 0,
            name_len: name.len() as u64,
            name: name.as_mut_ptr() as u64,
            date_len: 0,
            date: 0,
            desc_len: description.len() as u64,
            desc: description.as_mut_ptr() as u64,
        };
        self.call::<_, DRM_VERSION>(&mut version)?;
        let text = |bytes: &[u8], len: u64| {
            let len = (len as usize).min(bytes.len());
            String::from_utf8_lossy(&bytes[..len]).into_owned()
        };
        Ok(Version {
            name: text(&name, version.name_len),
            description: text(&description, version.desc_len),
            numbers: (version.major, version.minor, version.patch),
        })
    }

    fn create_bo(&self, size: u32) -> Result<CreatedBo, Errno> {
        let mut argument = CreateBo {
            size,
            ..CreateBo::default()
        };
        self.call::<_, CREATE_BO>(&mut argument)?;
        let bo = CreatedBo {
            handle: argument.handle,
            dma_address: argument.dma_address,
            offset: argument.offset,
        };
        // SAFETY: the kernel gave the offset for exactly this object and size. The object's memory is
        // not a file that could shrink; the device writes to it only while the host does not hold it.
        let map = unsafe {
            MmapOptions::new()
                .offset(bo.offset)
                .len(size as usize)
                .map_mut(&self.fd)
        };
        match map {
            Ok(map) => {
                let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
                maps.insert(bo.handle, Arc::new(Mutex::new(map)));
                Ok(bo)
            }
            Err(error) => {
                // Nobody else knows of the object.
                let _ = self.close_bo(bo.handle);
                Err(Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))
            }
        }
    }

    fn submit(&self, jobs: &[JobArgs]) -> Result<(), Errno> {
        let tasks: Vec<Vec<SysTask>> = (jobs.iter())
            .map(|job| {
                let tasks = job.tasks.iter().map(|task| SysTask {
                    regcmd: task.regcmd,
                    regcmd_count: task.regcmd_count,
                });
                tasks.collect()
            })
            .collect();
        let raw: Vec<SysJob> = (jobs.iter().zip(&tasks))
            .map(|(job, tasks)| SysJob {
                tasks: tasks.as_ptr() as u64,
                in_bo_handles: job.in_handles.as_ptr() as u64,
                out_bo_handles: job.out_handles.as_ptr() as u64,
                task_count: tasks.len() as u32,
                task_struct_size: size_of::<SysTask>() as u32,
                in_bo_handle_count: job.in_handles.len() as u32,
                out_bo_handle_count: job.out_handles.len() as u32,
            })
            .collect();
        let mut argument = Submit {
            jobs: raw.as_ptr() as u64,
            job_count: raw.len() as u32,
            job_struct_size: size_of::<SysJob>() as u32,
            reserved: 0,
        };
        self.call::<_, SUBMIT>(&mut argument).map(|_| ())
    }

    fn prep_bo(&self, handle: u32, deadline_ns: i64) -> Result<i32, Errno> {
        self.call::<_, PREP_BO>(&mut PrepBo {
            handle,
            reserved: 0,
            timeout_ns: deadline_ns,
        })
    }

    fn fini_bo(&self, handle: u32) -> Result<(), Errno> {
        let mut argument = OneBo {
            handle,
            reserved: 0,
        };
        self.call::<_, FINI_BO>(&mut argument).map(|_| ())
    }

    fn close_bo(&self, handle: u32) -> Result<(), Errno> {
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        maps.remove(&handle);
        drop(maps);
        let mut argument = OneBo {
            handle,
            reserved: 0,
        };
        self.call::<_, GEM_CLOSE>(&mut argument).map(|_| ())
    }

    fn access(&self, bo: &CreatedBo, touch: &mut dyn FnMut(&mut [u8])) -> Result<(), Errno> {
        let map = self.map(bo)?;
        let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
        touch(&mut map);
        Ok(())
    }

    fn now_ns(&self) -> i64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec * 1_000_000_000 + now.tv_nsec
    }

    fn provenance(&self) -> Provenance {
        Provenance::Measured("host clock".into())
    }

    fn log(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits 16 to 29 of an ioctl's number are the size of its argument.
    const fn size_of_opcode(opcode: Opcode) -> usize {
        (opcode as usize >> 16) & 0x3fff
    }

    #[test]
    fn structures_have_the_sizes_that_the_numbers_state() {
        let sizes = [
            (CREATE_BO, size_of::<CreateBo>()),
            (SUBMIT, size_of::<Submit>()),
            (PREP_BO, size_of::<PrepBo>()),
            (FINI_BO, size_of::<OneBo>()),
            (GEM_CLOSE, size_of::<OneBo>()),
            (DRM_VERSION, size_of::<DrmVersion>()),
        ];
        for (opcode, size) in sizes {
            assert_eq!(size_of_opcode(opcode), size, "{opcode:#x}");
        }
        assert_eq!((size_of::<SysJob>(), size_of::<SysTask>()), (40, 8));
        assert_eq!(std::mem::offset_of!(SysJob, task_count), 24);
        assert_eq!(std::mem::offset_of!(DrmVersion, name_len), 16);
    }

    #[test]
    fn a_file_that_is_no_device_answers_with_errors() {
        let node = Linux.open("/dev/null").unwrap();
        assert!(node.version().is_err());
        assert!(node.create_bo(4096).is_err());
        assert!(node.submit(&[]).is_err());
        assert!(node.prep_bo(1, 0).is_err());
        assert_eq!(Linux.open("/dev/accel/none").err(), Some(Errno::NOENT));
    }
}
