//! The host's own functions, found by name when the plugin is loaded.
//!
//! Nothing is linked: if the host lacks a function, the error names it. The dynamic linker would only refuse the library.

use super::abi::{AbiDevice, AbiTensor, BufferTable, BufferType, InitParams, Registry};
use std::ffi::{CStr, c_char, c_int, c_void};

/// Source of functions by name.
pub(crate) trait FunctionLookup {
    /// The function's address; null where the host does not export it.
    fn find(&self, name: &CStr) -> *mut c_void;
}

/// Functions that a host does not export.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "this program does not export {}: a plugin needs llama.cpp built with shared libraries (-DBUILD_SHARED_LIBS=ON) of September 2025 or later",
    names.join(", ")
)]
pub(crate) struct Missing {
    /// Their names.
    pub(crate) names: Vec<&'static str>,
}

/// Functions of ggml that are looked up by name, with the signatures of `ggml.h` and `ggml-backend.h`; functions that a
/// host may lack follow `also`.
macro_rules! functions {
    (
        $(#[$doc:meta])* $name:ident
        { $($field:ident $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)* }
        also { $($(#[$also_doc:meta])* $also:ident: $also_type:ty = $found:expr;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            $($(#[$also_doc])* pub(crate) $also: $also_type,)*
        }

        impl $name {
            /// Looks up all functions.
            ///
            /// # Errors
            /// Required functions that are missing.
            pub(crate) fn find(lookup: &dyn FunctionLookup) -> Result<$name, Missing> {
                let mut names = Vec::new();
                $(let $field = lookup.find($symbol);
                let name = $symbol.to_str().unwrap_or_default();
                if $field.is_null() && !names.contains(&name) {
                    names.push(name);
                })*
                if !names.is_empty() {
                    return Err(Missing { names });
                }
                Ok($name {
                    // SAFETY: not null, and ggml gives the function of that name this signature.
                    $($field: unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>($field) },)*
                    $($also: $found(lookup),)*
                })
            }
        }
    };
}

functions! {
    /// Functions of ggml that every device of this plugin needs.
    Functions
    {
        op_name c"ggml_op_name": fn(c_int) -> *const c_char;
        op_desc c"ggml_op_desc": fn(*const AbiTensor) -> *const c_char;
        type_name c"ggml_type_name": fn(c_int) -> *const c_char;
        type_size c"ggml_type_size": fn(c_int) -> usize;
        block_elems c"ggml_blck_size": fn(c_int) -> i64;
        graph_n_nodes c"ggml_graph_n_nodes": fn(*mut c_void) -> c_int;
        graph_node c"ggml_graph_node": fn(*mut c_void, c_int) -> *mut AbiTensor;
        init c"ggml_init": fn(InitParams) -> *mut c_void;
        free c"ggml_free": fn(*mut c_void);
        tensor_overhead c"ggml_tensor_overhead": fn() -> usize;
        graph_overhead c"ggml_graph_overhead": fn() -> usize;
        new_tensor_2d c"ggml_new_tensor_2d": fn(*mut c_void, c_int, i64, i64) -> *mut AbiTensor;
        get_name c"ggml_get_name": fn(*const AbiTensor) -> *const c_char;
        mul_mat c"ggml_mul_mat": fn(*mut c_void, *mut AbiTensor, *mut AbiTensor) -> *mut AbiTensor;
        new_graph c"ggml_new_graph": fn(*mut c_void) -> *mut c_void;
        build_forward_expand c"ggml_build_forward_expand": fn(*mut c_void, *mut AbiTensor);
        cpu_buffer_type c"ggml_backend_cpu_buffer_type": fn() -> *mut BufferType;
        cpu_buffer_from_ptr c"ggml_backend_cpu_buffer_from_ptr": fn(*mut c_void, usize) -> *mut c_void;
        buft_alloc_buffer c"ggml_backend_buft_alloc_buffer": fn(*mut BufferType, usize) -> *mut c_void;
        buft_alignment c"ggml_backend_buft_get_alignment": fn(*mut BufferType) -> usize;
        buft_is_host c"ggml_backend_buft_is_host": fn(*mut BufferType) -> bool;
        buffer_type c"ggml_backend_buffer_get_type": fn(*mut c_void) -> *mut BufferType;
        buffer_base c"ggml_backend_buffer_get_base": fn(*mut c_void) -> *mut c_void;
        buffer_free c"ggml_backend_buffer_free": fn(*mut c_void);
        buffer_init_before_2d c"ggml_backend_buffer_init": fn(*mut BufferType, BufferTable<0>, *mut c_void, usize) -> *mut c_void;
        buffer_init_with_2d c"ggml_backend_buffer_init": fn(*mut BufferType, BufferTable<2>, *mut c_void, usize) -> *mut c_void;
    }
    also {
        /// `ggml_log_internal`: level, format, arguments; not every host exports it.
        log: Option<LogFunction> = log_function;
        /// `ggml_backend_reg_count`, `ggml_backend_reg_get`: of the library that loads plugins.
        registries: Option<Registries> = Registries::find;
        /// Whether `ggml_backend_tensor_set_2d` is there, which came with the newer layout.
        has_2d: bool = |lookup: &dyn FunctionLookup| !lookup.find(c"ggml_backend_tensor_set_2d").is_null();
        /// Functions that hand ops to the host's CPU backend.
        cpu_backend: Option<CpuFunctions> = |lookup: &dyn FunctionLookup| CpuFunctions::find(lookup).ok();
    }
}

functions! {
    /// Functions of ggml by which ops are handed to the host's CPU backend.
    CpuFunctions
    {
        device_by_type c"ggml_backend_dev_by_type": fn(c_int) -> *mut AbiDevice;
        device_supports c"ggml_backend_dev_supports_op": fn(*mut AbiDevice, *const AbiTensor) -> bool;
        device_init c"ggml_backend_dev_init": fn(*mut AbiDevice, *const c_char) -> *mut c_void;
        device_registry c"ggml_backend_dev_backend_reg": fn(*mut AbiDevice) -> *mut Registry;
        registry_function c"ggml_backend_reg_get_proc_address": fn(*mut Registry, *const c_char) -> *mut c_void;
        backend_free c"ggml_backend_free": fn(*mut c_void);
        backend_compute c"ggml_backend_graph_compute": fn(*mut c_void, *mut c_void) -> c_int;
        graph_overhead c"ggml_graph_overhead_custom": fn(usize, bool) -> usize;
        new_graph c"ggml_new_graph_custom": fn(*mut c_void, usize, bool) -> *mut c_void;
        graph_add c"ggml_graph_add_node": fn(*mut c_void, *mut AbiTensor);
    }
    also {}
}

/// `ggml_log_internal`: level, format, arguments.
pub(crate) type LogFunction = unsafe extern "C" fn(c_int, *const c_char, ...);

fn log_function(lookup: &dyn FunctionLookup) -> Option<LogFunction> {
    let log = lookup.find(c"ggml_log_internal");
    // SAFETY: not null, and ggml gives the function of that name this signature.
    (!log.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, LogFunction>(log) })
}

/// Functions that list the registered backends and devices.
#[derive(Clone, Copy)]
pub(crate) struct Registries {
    pub(crate) count: unsafe extern "C" fn() -> usize,
    /// Gives a registry, whose first member is its API version.
    pub(crate) get: unsafe extern "C" fn(usize) -> *const c_int,
}

impl Registries {
    fn find(lookup: &dyn FunctionLookup) -> Option<Registries> {
        let count = lookup.find(c"ggml_backend_reg_count");
        let get = lookup.find(c"ggml_backend_reg_get");
        if count.is_null() || get.is_null() {
            return None;
        }
        // SAFETY: not null, and ggml gives the functions of these names these signatures.
        unsafe {
            Some(Registries {
                count: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> usize>(count),
                get: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize) -> *const c_int>(
                    get,
                ),
            })
        }
    }
}

/// The process: symbols that the program and its libraries export.
pub(crate) struct Process {
    /// Libraries of ggml and of OpenMP, for programs that load them privately (Python's extension modules do).
    libraries: Vec<*mut c_void>,
}

/// `RTLD_LAZY | RTLD_NOLOAD` of Linux: only libraries that are loaded already.
#[cfg(target_os = "linux")]
const LAZY_NOLOAD: c_int = 0x1 | 0x4;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

impl Process {
    /// Finds the libraries among those that are loaded.
    pub(crate) fn new() -> Process {
        let names = [
            c"libggml-base.so.0",
            c"libggml-base.so",
            c"libggml.so.0",
            c"libggml.so",
            c"libgomp.so.1",
            c"libomp.so.5",
            c"libomp.so",
            c"libiomp5.so",
        ];
        // SAFETY: strings with their ends, and flags that load nothing.
        let found = names.map(|name| unsafe { dlopen(name.as_ptr(), LAZY_NOLOAD) });
        let libraries = found.into_iter().filter(|library| !library.is_null());
        Process {
            libraries: libraries.collect(),
        }
    }
}

impl FunctionLookup for Process {
    fn find(&self, name: &CStr) -> *mut c_void {
        // SAFETY: null is RTLD_DEFAULT, the global scope; the name ends with NUL.
        let mut found = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
        for library in &self.libraries {
            if !found.is_null() {
                break;
            }
            // SAFETY: the library stays open for the life of the process, since nothing closes it.
            found = unsafe { dlsym(*library, name.as_ptr()) };
        }
        found
    }
}
