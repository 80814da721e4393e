//! Which layout a host has, found by looking at objects that the host itself makes. Version numbers do not say.

use super::abi::{API_VERSION, AbiLayout, AbiTensor, InitParams, TYPE_F32};
use super::host::{Functions, Missing};
use std::ffi::{CStr, c_void};
use std::mem::offset_of;

/// Why the plugin does not work in this program.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum LoadError {
    #[error(transparent)]
    Missing(#[from] Missing),
    #[error(
        "this program's ggml has backend API version {found}, the plugin is for version {API_VERSION}: take the plugin of a Millrace \
         that is as old or as new as your llama.cpp"
    )]
    ApiVersion { found: i32 },
    #[error(
        "this program's ggml lays out {what} in a way that this plugin does not know: take the plugin of a Millrace that is as old or \
         as new as your llama.cpp"
    )]
    Layout { what: &'static str },
}

/// Facts found about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostProbe {
    pub(crate) layout: AbiLayout,
    /// Whether nodes to be computed carry [`super::abi::FLAG_COMPUTE`] (since January 2026).
    pub(crate) marks_nodes: bool,
}

/// Probes a host.
///
/// # Errors
/// A property of the host that is unknown here.
pub(crate) fn probe(host: &Functions) -> Result<HostProbe, LoadError> {
    check_version(host)?;
    let marks_nodes = check_tensors(host)?;
    let layout = layout_of_buffers(host)?;
    Ok(HostProbe {
        layout,
        marks_nodes,
    })
}

/// Every registry of the host begins with the host's version.
fn check_version(host: &Functions) -> Result<(), LoadError> {
    let Some(registries) = host.registries else {
        return Ok(());
    };
    // SAFETY: functions of the host, called as its header has them; an index below the count gives a registry, which begins with an int.
    let found = unsafe {
        match (registries.count)() {
            0 => return Ok(()),
            _ => *(registries.get)(0),
        }
    };
    match found {
        API_VERSION => Ok(()),
        found => Err(LoadError::ApiVersion { found }),
    }
}

/// Columns and rows of the tensors that are inspected: distinctive numbers.
const K: i64 = 37;
const N: i64 = 41;
const M: i64 = 43;

/// Makes tensors and a graph, and compares their members with the expected values. Returns whether nodes are marked.
fn check_tensors(host: &Functions) -> Result<bool, LoadError> {
    let unknown = || LoadError::Layout { what: "tensors" };
    // SAFETY: functions of the host, called as its header declares them. The context has room for three tensors and a graph, and is freed
    // after the last use of its contents. Members are read only if a tensor has the expected size.
    unsafe {
        if (host.tensor_overhead)() < size_of::<AbiTensor>() {
            return Err(unknown());
        }
        let context = (host.init)(InitParams {
            mem_size: 8 * (host.tensor_overhead)() + (host.graph_overhead)(),
            mem_buffer: std::ptr::null_mut(),
            no_alloc: true,
        });
        if context.is_null() {
            return Err(unknown());
        }
        let a = (host.new_tensor_2d)(context, TYPE_F32, K, N);
        let b = (host.new_tensor_2d)(context, TYPE_F32, K, M);
        let product = (host.mul_mat)(context, a, b);
        let graph = (host.new_graph)(context);
        (host.build_forward_expand)(graph, product);
        let is_known = (host.graph_n_nodes)(graph) == 1
            && (host.graph_node)(graph, 0) == product
            && is_product(host, product, [a, b]);
        let marks_nodes = is_known && (*product).flags & super::abi::FLAG_COMPUTE != 0;
        (host.free)(context);
        if is_known {
            Ok(marks_nodes)
        } else {
            Err(unknown())
        }
    }
}

/// Whether every member that this plugin reads holds the expected value.
///
/// # Safety
/// `product` and `sources` are tensors of the host, at least as large as [`AbiTensor`].
unsafe fn is_product(
    host: &Functions,
    product: *mut AbiTensor,
    sources: [*mut AbiTensor; 2],
) -> bool {
    let is_named = |name: *const std::ffi::c_char, expected: &CStr| {
        // SAFETY: ggml's names are strings with their ends.
        !name.is_null() && unsafe { CStr::from_ptr(name) } == expected
    };
    // SAFETY: by the caller's promise; the functions are the host's, with its own operator and type.
    unsafe {
        let [a, b] = sources;
        let (tensor, of_a, of_b) = (&*product, &*a, &*b);
        let name = (host.get_name)(product).cast::<u8>();
        is_named((host.type_name)(TYPE_F32), c"f32")
            && tensor.dtype == TYPE_F32
            && of_a.ne == [K, N, 1, 1]
            && of_b.ne == [K, M, 1, 1]
            && of_b.nb[..2] == [4, 4 * K as usize]
            && tensor.ne == [N, M, 1, 1]
            && tensor.src[..3] == [a, b, std::ptr::null_mut()]
            && is_named((host.op_name)(tensor.op), c"MUL_MAT")
            && is_named((host.op_name)(of_a.op), c"NONE")
            && name == product.cast::<u8>().add(offset_of!(AbiTensor, name))
    }
}

/// Bytes of memory that the probed buffer is made of, and its alignment.
const PROBE_BYTES: usize = 4096;

#[repr(align(4096))]
struct Page([u8; PROBE_BYTES]);

/// Functions of a buffer's table.
pub(crate) const fn table_len(layout: AbiLayout) -> usize {
    match layout {
        AbiLayout::Before2d => 9,
        AbiLayout::With2d => 11,
    }
}

/// Makes a buffer, and checks whether its type, its context and its size are where the layout of the host's functions puts them.
fn layout_of_buffers(host: &Functions) -> Result<AbiLayout, LoadError> {
    let unknown = LoadError::Layout { what: "buffers" };
    let layout = match host.has_2d {
        true => AbiLayout::With2d,
        false => AbiLayout::Before2d,
    };
    let mut page = Box::new(Page([0; PROBE_BYTES]));
    let base: *mut c_void = page.0.as_mut_ptr().cast();
    // SAFETY: functions of the host, called as its header has them; the memory outlives the buffer, which does not own it. A host with the
    // functions of the newer layout has a table at least as long, and every table is as long as the older. Three words follow it.
    let is_known = unsafe {
        let buffer = (host.cpu_buffer_from_ptr)(base, PROBE_BYTES);
        if buffer.is_null() {
            return Err(unknown);
        }
        let expected = [
            (host.buffer_type)(buffer) as usize,
            base as usize,
            PROBE_BYTES,
        ];
        let words = buffer.cast::<usize>().add(table_len(layout));
        let is_known = std::slice::from_raw_parts(words, expected.len()) == expected;
        (host.buffer_free)(buffer);
        is_known
    };
    if is_known { Ok(layout) } else { Err(unknown) }
}
