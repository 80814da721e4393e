//! The host's CPU backend, for the ops that a device of this plugin takes and does not compute.

use super::abi::{AbiDevice, InitParams, STATUS_SUCCESS};
use super::graph::HostNode;
use super::host::{CpuFunctions, Functions};
use super::tensor::HostTensor;
use crate::device::OpError;
use std::ffi::{c_int, c_void};

/// `GGML_BACKEND_DEVICE_TYPE_CPU`.
const TYPE_CPU: c_int = 0;

/// The host's CPU as a device; `None` where the host has none, or not the functions.
fn device(host: &Functions) -> Option<(CpuFunctions, *mut AbiDevice)> {
    let functions = host.cpu_backend?;
    // SAFETY: the host's function, with one of its kinds of device. Devices live as long as the process.
    let device = unsafe { (functions.device_by_type)(TYPE_CPU) };
    (!device.is_null()).then_some((functions, device))
}

/// Whether the host's CPU backend computes an op.
pub(crate) fn takes(op: &HostTensor<'_>, host: &Functions) -> bool {
    device(host).is_some_and(|(functions, device)| {
        // SAFETY: the host's function, with a device and a tensor of the host.
        unsafe { (functions.device_supports)(device, op.raw()) }
    })
}

/// A stream of work on the host's CPU backend.
pub(crate) struct CpuBackend {
    host: Functions,
    functions: CpuFunctions,
    device: *mut AbiDevice,
    backend: *mut c_void,
}

// SAFETY: ggml's backends may be used from any thread, by one at a time; `&mut` sees to that.
unsafe impl Send for CpuBackend {}

impl CpuBackend {
    /// Opens one.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(crate) fn open(host: &Functions) -> Result<CpuBackend, String> {
        let none = "this program has no CPU backend to compute the other ops";
        let (functions, device) = device(host).ok_or(none)?;
        // SAFETY: the host's function, with its device and no parameters.
        let backend = unsafe { (functions.device_init)(device, std::ptr::null()) };
        if backend.is_null() {
            return Err("the program's CPU backend does not start".to_owned());
        }
        Ok(CpuBackend {
            host: *host,
            functions,
            device,
            backend,
        })
    }

    /// Sets its threads, where it lets them be set.
    pub(crate) fn set_threads(&mut self, n: usize) {
        // SAFETY: the host's functions, with its own objects; the function of that name has this signature in every registry.
        unsafe {
            let registry = (self.functions.device_registry)(self.device);
            if registry.is_null() {
                return;
            }
            let name = c"ggml_backend_set_n_threads".as_ptr();
            let function = (self.functions.registry_function)(registry, name);
            if !function.is_null() {
                let function: unsafe extern "C" fn(*mut c_void, c_int) =
                    std::mem::transmute(function);
                function(self.backend, c_int::try_from(n).unwrap_or(c_int::MAX));
            }
        }
    }

    /// Computes ops in order, as one graph.
    ///
    /// # Errors
    /// The backend fails, or there is no memory for the graph. It does not name the failed op, so the error names the first.
    pub(crate) fn compute(&mut self, nodes: &mut [HostNode<'_>]) -> Result<(), OpError> {
        // SAFETY: functions of the host. The context has room for the graph that is made in it, and is freed after its last use; the nodes
        // are tensors of the host, which keeps them during the call, and `&mut` rules out that anyone else computes them.
        unsafe {
            let context = (self.host.init)(InitParams {
                mem_size: (self.functions.graph_overhead)(nodes.len(), false),
                mem_buffer: std::ptr::null_mut(),
                no_alloc: true,
            });
            if context.is_null() {
                return Err(OpError::Device("no memory for a graph".to_owned()));
            }
            let graph = (self.functions.new_graph)(context, nodes.len(), false);
            for node in nodes.iter() {
                (self.functions.graph_add)(graph, node.tensor().raw().cast_mut());
            }
            let status = (self.functions.backend_compute)(self.backend, graph);
            (self.host.free)(context);
            match status {
                STATUS_SUCCESS => Ok(()),
                status => Err(OpError::Device(format!(
                    "the program's CPU backend failed with status {status} in this op or in one of the {} after it",
                    nodes.len() - 1
                ))),
            }
        }
    }
}

impl Drop for CpuBackend {
    fn drop(&mut self) {
        // SAFETY: opened in `open`, and freed once.
        unsafe { (self.functions.backend_free)(self.backend) };
    }
}
