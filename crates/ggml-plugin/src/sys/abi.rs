//! ggml's structures as C lays them out on 64-bit systems (`ggml-backend-impl.h`, `ggml.h`, API version 2).
//!
//! In April 2026 (llama.cpp ba70f8ed) two functions were put into the middle of the tables of buffers and backends, and the API's version
//! stayed. [`AbiLayout`] says which of the two a host has; [`super::probe`] finds it out. Everything else is the same in both.

use std::ffi::{c_char, c_int, c_void};

/// The version that hosts must have (`GGML_BACKEND_API_VERSION`).
pub(crate) const API_VERSION: c_int = 2;

/// `GGML_STATUS_SUCCESS`.
pub(crate) const STATUS_SUCCESS: c_int = 0;

/// `GGML_STATUS_FAILED`.
pub(crate) const STATUS_FAILED: c_int = -1;

/// `GGML_TENSOR_FLAG_COMPUTE`: the node is to be computed, where the host knows the flag.
pub(crate) const FLAG_COMPUTE: i32 = 16;

/// `GGML_BACKEND_DEVICE_TYPE_ACCEL`: works with the CPU, in its memory.
pub(crate) const TYPE_ACCEL: c_int = 3;

/// `GGML_BACKEND_DEVICE_TYPE_GPU`: has its own memory, takes layers by `-ngl`, can be chosen by `-dev`.
pub(crate) const TYPE_GPU: c_int = 1;

/// `GGML_TYPE_F32`, which is in files and cannot change; the probe asks the host for its name all the same.
pub(crate) const TYPE_F32: c_int = 0;

/// Dimensions of a tensor.
pub(crate) const MAX_DIMS: usize = 4;

/// The tables of functions that a host expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AbiLayout {
    /// Up to March 2026.
    Before2d,
    /// Since April 2026: `set_tensor_2d` and `get_tensor_2d` after `get_tensor`.
    With2d,
}

/// `struct ggml_tensor`.
#[repr(C)]
pub(crate) struct AbiTensor {
    pub(crate) dtype: c_int,
    pub(crate) buffer: *mut c_void,
    /// Elements in each dimension, the innermost first.
    pub(crate) ne: [i64; MAX_DIMS],
    /// Bytes from an element (in the first dimension: a block) to the next.
    pub(crate) nb: [usize; MAX_DIMS],
    pub(crate) op: c_int,
    pub(crate) op_params: [i32; 16],
    pub(crate) flags: i32,
    pub(crate) src: [*mut AbiTensor; 10],
    pub(crate) view_src: *mut AbiTensor,
    pub(crate) view_offs: usize,
    pub(crate) data: *mut c_void,
    pub(crate) name: [c_char; 64],
    pub(crate) extra: *mut c_void,
    pub(crate) padding: [u8; 8],
}

/// `struct ggml_init_params`.
#[repr(C)]
pub(crate) struct InitParams {
    pub(crate) mem_size: usize,
    pub(crate) mem_buffer: *mut c_void,
    pub(crate) no_alloc: bool,
}

/// `struct ggml_backend_buffer_type`.
#[repr(C)]
pub(crate) struct BufferType {
    pub(crate) get_name: extern "C" fn(*mut BufferType) -> *const c_char,
    pub(crate) alloc_buffer: extern "C" fn(*mut BufferType, usize) -> *mut c_void,
    pub(crate) get_alignment: extern "C" fn(*mut BufferType) -> usize,
    pub(crate) get_max_size: Option<extern "C" fn(*mut BufferType) -> usize>,
    pub(crate) get_alloc_size: Option<extern "C" fn(*mut BufferType, *const AbiTensor) -> usize>,
    pub(crate) is_host: Option<extern "C" fn(*mut BufferType) -> bool>,
    pub(crate) device: *mut AbiDevice,
    pub(crate) context: *mut c_void,
}

/// `struct ggml_backend_buffer_i`.
#[repr(C)]
pub(crate) struct BufferTable<const N_2D: usize> {
    pub(crate) free_buffer: extern "C" fn(*mut c_void),
    pub(crate) get_base: extern "C" fn(*mut c_void) -> *mut c_void,
    pub(crate) init_tensor: Absent,
    pub(crate) memset_tensor: extern "C" fn(*mut c_void, *mut AbiTensor, u8, usize, usize),
    pub(crate) set_tensor: extern "C" fn(*mut c_void, *mut AbiTensor, *const c_void, usize, usize),
    pub(crate) get_tensor: extern "C" fn(*mut c_void, *const AbiTensor, *mut c_void, usize, usize),
    /// With [`AbiLayout::With2d`] `set_tensor_2d` and `get_tensor_2d`.
    pub(crate) tensors_2d: [Absent; N_2D],
    pub(crate) cpy_tensor: Absent,
    pub(crate) clear: extern "C" fn(*mut c_void, u8),
    pub(crate) reset: Absent,
}

/// A place in a table of functions for one that this plugin does not offer.
pub(crate) type Absent = Option<extern "C" fn()>;

/// `struct ggml_backend_i` of [`AbiLayout::With2d`]; every other member than these is optional.
#[repr(C)]
pub(crate) struct BackendTable<const N_COPIES: usize> {
    pub(crate) get_name: extern "C" fn(*mut c_void) -> *const c_char,
    pub(crate) free: extern "C" fn(*mut c_void),
    /// `set_tensor_async`, `get_tensor_async`, with [`AbiLayout::With2d`] two more, `cpy_tensor_async`.
    pub(crate) copies: [Absent; N_COPIES],
    pub(crate) synchronize: Absent,
    /// `graph_plan_create`, `…_free`, `…_update`, `…_compute`.
    pub(crate) plans: [Absent; 4],
    pub(crate) graph_compute: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
    /// `event_record`, `event_wait`.
    pub(crate) events: [Absent; 2],
    pub(crate) graph_optimize: Absent,
}

/// `struct ggml_backend`.
#[repr(C)]
pub(crate) struct Backend<const N_COPIES: usize> {
    pub(crate) guid: *const [u8; 16],
    pub(crate) table: BackendTable<N_COPIES>,
    pub(crate) device: *mut AbiDevice,
    pub(crate) context: *mut c_void,
}

/// `copies` of [`AbiLayout::Before2d`].
pub(crate) const COPIES_BEFORE_2D: usize = 3;

/// `copies` of [`AbiLayout::With2d`].
pub(crate) const COPIES_WITH_2D: usize = 5;

/// `struct ggml_backend_dev_caps`. The last was added in August 2026, where hosts before it have padding.
#[repr(C)]
pub(crate) struct Caps {
    pub(crate) is_async: bool,
    pub(crate) host_buffer: bool,
    pub(crate) buffer_from_host_ptr: bool,
    pub(crate) events: bool,
    pub(crate) mmap_support: bool,
}

/// `struct ggml_backend_dev_props`.
#[repr(C)]
pub(crate) struct Props {
    pub(crate) name: *const c_char,
    pub(crate) description: *const c_char,
    pub(crate) memory_free: usize,
    pub(crate) memory_total: usize,
    pub(crate) kind: c_int,
    pub(crate) device_id: *const c_char,
    pub(crate) caps: Caps,
}

/// `struct ggml_backend_device`.
#[repr(C)]
pub(crate) struct AbiDevice {
    pub(crate) get_name: extern "C" fn(*mut AbiDevice) -> *const c_char,
    pub(crate) get_description: extern "C" fn(*mut AbiDevice) -> *const c_char,
    pub(crate) get_memory: extern "C" fn(*mut AbiDevice, *mut usize, *mut usize),
    pub(crate) get_type: extern "C" fn(*mut AbiDevice) -> c_int,
    pub(crate) get_props: extern "C" fn(*mut AbiDevice, *mut Props),
    pub(crate) init_backend: extern "C" fn(*mut AbiDevice, *const c_char) -> *mut c_void,
    pub(crate) get_buffer_type: extern "C" fn(*mut AbiDevice) -> *mut BufferType,
    pub(crate) get_host_buffer_type: Absent,
    pub(crate) buffer_from_host_ptr:
        extern "C" fn(*mut AbiDevice, *mut c_void, usize, usize) -> *mut c_void,
    pub(crate) supports_op: extern "C" fn(*mut AbiDevice, *const AbiTensor) -> bool,
    pub(crate) supports_buft: extern "C" fn(*mut AbiDevice, *mut BufferType) -> bool,
    pub(crate) offload_op: Absent,
    /// `event_new`, `event_free`, `event_synchronize`.
    pub(crate) events: [Absent; 3],
    pub(crate) reg: *mut Registry,
    pub(crate) context: *mut c_void,
}

/// `struct ggml_backend_reg`.
#[repr(C)]
pub(crate) struct Registry {
    pub(crate) api_version: c_int,
    pub(crate) get_name: extern "C" fn(*mut Registry) -> *const c_char,
    pub(crate) get_device_count: extern "C" fn(*mut Registry) -> usize,
    pub(crate) get_device: extern "C" fn(*mut Registry, usize) -> *mut AbiDevice,
    pub(crate) get_proc_address: extern "C" fn(*mut Registry, *const c_char) -> *mut c_void,
    pub(crate) context: *mut c_void,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;
    // The sizes and offsets from a C compiler.
    assert!(size_of::<AbiTensor>() == 336);
    assert!(offset_of!(AbiTensor, op) == 80 && offset_of!(AbiTensor, flags) == 148);
    assert!(offset_of!(AbiTensor, src) == 152 && offset_of!(AbiTensor, data) == 248);
    assert!(offset_of!(AbiTensor, name) == 256 && offset_of!(AbiTensor, extra) == 320);
    assert!(size_of::<BufferType>() == 64);
    assert!(size_of::<BufferTable<0>>() == 9 * 8 && size_of::<BufferTable<2>>() == 11 * 8);
    assert!(size_of::<Backend<COPIES_WITH_2D>>() == 152);
    assert!(size_of::<Backend<COPIES_BEFORE_2D>>() == 136);
    assert!(size_of::<AbiDevice>() == 136 && offset_of!(AbiDevice, reg) == 120);
    assert!(size_of::<Registry>() == 48 && size_of::<Props>() == 56);
};
