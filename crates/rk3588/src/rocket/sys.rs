//! Linux: `/dev/accel/accelN` and its ioctls. The one place of this crate with `unsafe`.

#![allow(unsafe_code)]

use super::{CreatedBo, DRIVER_NAME, Host, JobArgs, Node};
use millrace_accel::{AccelFile, DriverVersion, FileMapping};
use millrace_npu::Provenance;
use rustix::io::Errno;
use rustix::ioctl::Opcode;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The running system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl Host for Linux {
    fn describe(&self) -> String {
        match self.kernel_release() {
            Some(release) => format!("Linux {release}"),
            None => "Linux".into(),
        }
    }

    fn paths(&self) -> Vec<String> {
        millrace_accel::node_paths(DRIVER_NAME)
    }

    fn open(&self, path: &str) -> Result<Arc<dyn Node>, Errno> {
        Ok(Arc::new(NodeFile {
            file: AccelFile::open(path)?,
            maps: Mutex::default(),
        }))
    }

    fn kernel_release(&self) -> Option<String> {
        millrace_accel::kernel_release()
    }

    fn shared(&self) -> Arc<dyn Host> {
        Arc::new(*self)
    }

    fn has_vendor_driver(&self) -> bool {
        // The vendor's module registers a platform driver with this name.
        std::path::Path::new("/sys/bus/platform/drivers/RKNPU").exists()
    }
}

/// An open node.
struct NodeFile {
    file: AccelFile,
    maps: Mutex<HashMap<u32, Arc<Mutex<FileMapping>>>>,
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

/// Argument of FINI_BO: a handle and a reserved word.
#[repr(C)]
struct FiniBo {
    handle: u32,
    reserved: u32,
}

const CREATE_BO: Opcode = 0xc018_6440;
const SUBMIT: Opcode = 0x4018_6441;
const PREP_BO: Opcode = 0x4010_6442;
const FINI_BO: Opcode = 0x4008_6443;

impl NodeFile {
    fn call<T, const OPCODE: Opcode>(&self, argument: &mut T) -> Result<i32, Errno> {
        // SAFETY: every `T` here is a `repr(C)` structure laid out as the header's of that number (tested below). The
        // memory that it points to outlives the call, since callers keep it on their stacks.
        unsafe { self.file.call::<T, OPCODE>(argument) }
    }

    fn map(&self, bo: &CreatedBo) -> Result<Arc<Mutex<FileMapping>>, Errno> {
        let maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        maps.get(&bo.handle).cloned().ok_or(Errno::INVAL)
    }
}

impl Node for NodeFile {
    fn version(&self) -> Result<DriverVersion, Errno> {
        self.file.version()
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
        match self.file.map(bo.offset, size as usize, 1) {
            Ok(map) => {
                let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
                maps.insert(bo.handle, Arc::new(Mutex::new(map)));
                Ok(bo)
            }
            Err(errno) => {
                // Nothing else knows of the object.
                let _ = self.close_bo(bo.handle);
                Err(errno)
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
        let mut argument = FiniBo {
            handle,
            reserved: 0,
        };
        self.call::<_, FINI_BO>(&mut argument).map(|_| ())
    }

    fn close_bo(&self, handle: u32) -> Result<(), Errno> {
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        maps.remove(&handle);
        drop(maps);
        self.file.gem_close(handle)
    }

    fn access(&self, bo: &CreatedBo, touch: &mut dyn FnMut(&mut [u8])) -> Result<(), Errno> {
        let map = self.map(bo)?;
        let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
        touch(&mut map);
        Ok(())
    }

    fn now_ns(&self) -> i64 {
        millrace_accel::now_ns()
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
    use millrace_accel::file::argument_bytes;
    use millrace_accel::header::{Structure, check, offsets};

    #[test]
    fn structures_are_those_of_the_header() {
        let sizes = [
            (CREATE_BO, size_of::<CreateBo>()),
            (SUBMIT, size_of::<Submit>()),
            (PREP_BO, size_of::<PrepBo>()),
            (FINI_BO, size_of::<FiniBo>()),
        ];
        for (opcode, size) in sizes {
            assert_eq!(argument_bytes(opcode), size, "{opcode:#x}");
        }
        assert_eq!((size_of::<SysJob>(), size_of::<SysTask>()), (40, 8));
        let structure = |name, size_bytes, offsets| Structure {
            name,
            size_bytes,
            offsets,
        };
        let fields = offsets!(CreateBo {
            size,
            handle,
            dma_address,
            offset
        });
        let create = structure("drm_rocket_create_bo", size_of::<CreateBo>(), fields);
        let fields = offsets!(Submit {
            jobs,
            job_count,
            job_struct_size,
            reserved
        });
        let submit = structure("drm_rocket_submit", size_of::<Submit>(), fields);
        let fields = offsets!(SysJob {
            tasks,
            in_bo_handles,
            out_bo_handles,
            task_count,
            task_struct_size,
            in_bo_handle_count,
            out_bo_handle_count
        });
        let job = structure("drm_rocket_job", size_of::<SysJob>(), fields);
        let fields = offsets!(SysTask {
            regcmd,
            regcmd_count
        });
        let task = structure("drm_rocket_task", size_of::<SysTask>(), fields);
        let fields = offsets!(PrepBo {
            handle,
            reserved,
            timeout_ns
        });
        let prep = structure("drm_rocket_prep_bo", size_of::<PrepBo>(), fields);
        let fields = offsets!(FiniBo { handle, reserved });
        let fini = structure("drm_rocket_fini_bo", size_of::<FiniBo>(), fields);
        let numbers = [
            ("DRM_IOCTL_ROCKET_CREATE_BO", u64::from(CREATE_BO)),
            ("DRM_IOCTL_ROCKET_SUBMIT", SUBMIT.into()),
            ("DRM_IOCTL_ROCKET_PREP_BO", PREP_BO.into()),
            ("DRM_IOCTL_ROCKET_FINI_BO", FINI_BO.into()),
        ];
        let all = [create, submit, job, task, prep, fini];
        check("drm/rocket_accel.h", &all, &numbers);
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
