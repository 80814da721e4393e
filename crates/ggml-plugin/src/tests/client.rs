//! A plugin's device and its backend, as hosts use them.

use super::host::{Graph, TestHost};
use crate::sys::abi::{AbiDevice, AbiTensor, Registry};
use std::ffi::{c_int, c_void};

/// A plugin's device, called as hosts do.
pub(super) struct Client {
    pub(super) registry: *mut Registry,
    pub(super) device: *mut AbiDevice,
    has_2d: bool,
}

/// A backend, called as hosts do, with the functions at their places in the host's layout.
pub(super) struct TestBackend(*mut c_void, bool);

impl Client {
    /// The first device of a registry.
    pub(super) fn new(registry: *mut Registry, host: TestHost) -> Client {
        // SAFETY: the plugin's registry.
        let device = unsafe { ((*registry).get_device)(registry, 0) };
        assert!(!device.is_null());
        let has_2d = host.has_2d;
        Client {
            registry,
            device,
            has_2d,
        }
    }

    pub(super) fn supports(&self, tensor: &AbiTensor) -> bool {
        // SAFETY: the plugin's device and a tensor of this host.
        unsafe { ((*self.device).supports_op)(self.device, tensor) }
    }

    /// Opens a backend; `None` if the device refuses.
    pub(super) fn try_open(&self) -> Option<TestBackend> {
        // SAFETY: the plugin's device.
        let backend = unsafe { ((*self.device).init_backend)(self.device, std::ptr::null()) };
        (!backend.is_null()).then(|| TestBackend(backend, self.has_2d))
    }

    pub(super) fn open(&self) -> TestBackend {
        self.try_open().expect("a backend")
    }

    /// Sets a backend's threads, as hosts do.
    pub(super) fn set_threads(&self, stream: &TestBackend, n: c_int) {
        let name = c"ggml_backend_set_n_threads".as_ptr();
        // SAFETY: the plugin's registry; the function of that name has this signature.
        unsafe {
            let function = ((*self.registry).get_proc_address)(self.registry, name);
            assert!(!function.is_null());
            let function: extern "C" fn(*mut c_void, c_int) = std::mem::transmute(function);
            function(stream.0, n);
        }
    }
}

impl TestBackend {
    /// Word number `index` of the backend, as a function's address.
    fn word(&self, index: usize) -> usize {
        // SAFETY: a backend has a guid, 14 or 16 functions, device and context.
        unsafe { *self.0.cast::<usize>().add(index) }
    }

    /// Computes a graph.
    pub(super) fn compute(&self, graph: &mut Graph) -> c_int {
        // Behind guid, name, free, copies, synchronize and four plans.
        let at = 1 + 2 + if self.1 { 5 } else { 3 } + 1 + 4;
        // SAFETY: the function's place in the layout, with its signature.
        unsafe {
            let function: extern "C" fn(*mut c_void, *mut c_void) -> c_int =
                std::mem::transmute(self.word(at));
            function(self.0, graph.raw())
        }
    }
}

impl Drop for TestBackend {
    fn drop(&mut self) {
        // SAFETY: the second function frees.
        unsafe {
            let function: extern "C" fn(*mut c_void) = std::mem::transmute(self.word(2));
            function(self.0);
        }
    }
}
