//! The host's own threads: those of OpenMP, if its CPU backend computes on them.
//!
//! OpenMP's threads spin for milliseconds after a part of a graph that the CPU backend computed, on the cores that threads of this
//! plugin would need. A parallel region that the same thread opens in the same runtime is computed by those very threads, at once.

use super::border::guard;
use super::host::FunctionLookup;
use millrace_kernels::pool::Team;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::sync::Arc;

/// `GOMP_parallel(function, data, threads, flags)`: in GCC's libgomp, and in LLVM's libomp for programs that GCC compiled. It calls
/// the function on as many threads at once, the caller among them, and returns when all have returned.
type Parallel = unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);

/// `struct ggml_backend_feature`: a list of them ends with a name that is null.
#[repr(C)]
struct Feature {
    name: *const c_char,
    value: *const c_char,
}

/// Threads of OpenMP.
struct OpenMp {
    parallel: Parallel,
}

/// The threads that the host's CPU backend computes on; `None` where they are not OpenMP's, or not to be had.
pub(crate) fn team(lookup: &dyn FunctionLookup) -> Option<Arc<dyn Team>> {
    if !is_openmp(lookup) {
        return None;
    }
    let parallel = lookup.find(c"GOMP_parallel");
    if parallel.is_null() {
        return None;
    }
    // SAFETY: not null, and the runtimes of OpenMP give the function of that name this signature.
    let parallel = unsafe { std::mem::transmute::<*mut c_void, Parallel>(parallel) };
    Some(Arc::new(OpenMp { parallel }))
}

/// Whether the CPU backend reports that it computes with OpenMP: a process may contain the runtime for other users.
fn is_openmp(lookup: &dyn FunctionLookup) -> bool {
    let by_name = lookup.find(c"ggml_backend_reg_by_name");
    let function = lookup.find(c"ggml_backend_reg_get_proc_address");
    if by_name.is_null() || function.is_null() {
        return false;
    }
    // SAFETY: functions of the host that are there, with the signatures of `ggml-backend.h`; a registry that is not null has functions,
    // and that of features gives a list, whose end is marked and which stays.
    unsafe {
        let by_name: unsafe extern "C" fn(*const c_char) -> *mut c_void =
            std::mem::transmute(by_name);
        let function: unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void =
            std::mem::transmute(function);
        let registry = by_name(c"CPU".as_ptr());
        if registry.is_null() {
            return false;
        }
        let features = function(registry, c"ggml_backend_get_features".as_ptr());
        if features.is_null() {
            return false;
        }
        let features: unsafe extern "C" fn(*mut c_void) -> *const Feature =
            std::mem::transmute(features);
        let mut feature = features(registry);
        while !feature.is_null() && !(*feature).name.is_null() {
            if CStr::from_ptr((*feature).name) == c"OPENMP" {
                let value = (*feature).value;
                return !value.is_null() && CStr::from_ptr(value) == c"1";
            }
            feature = feature.add(1);
        }
    }
    false
}

impl Team for OpenMp {
    fn run(&self, n_threads: usize, f: &(dyn Fn() + Sync)) {
        let n_threads = c_uint::try_from(n_threads).unwrap_or(1);
        let data = (&raw const f).cast_mut().cast();
        // SAFETY: the runtime's function with its signature; it returns after the last call of `call`, so `f` outlives them all.
        unsafe { (self.parallel)(call, data, n_threads, 0) };
    }
}

/// Entry point of each thread of a region.
extern "C" fn call(data: *mut c_void) {
    guard("a thread of OpenMP", (), || {
        // SAFETY: `run` passes a reference to a function that threads may share, which lives until all have returned.
        let f = unsafe { *data.cast::<&(dyn Fn() + Sync)>() };
        f();
    });
}
