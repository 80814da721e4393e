//! A host in Rust: the functions of ggml that the plugin looks up, in either layout, with its own numbers of operators.

use crate::sys::abi::{self, AbiTensor, BufferTable, BufferType, InitParams};
use crate::sys::host::FunctionLookup;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;

/// Operators by number: unlike in any ggml.
const OPS: [&CStr; 7] = [
    c"NONE",
    c"GLU",
    c"SOFT_MAX",
    c"VIEW",
    c"MUL_MAT_ID",
    c"ADD",
    c"MUL_MAT",
];

/// Kinds of gates by number.
const GATES: [&CStr; 3] = [c"REGLU", c"GEGLU", c"SWIGLU"];

/// Types by number: name, bytes and elements of a block.
const TYPES: [(&CStr, usize, i64); 7] = [
    (c"f32", 4, 1),
    (c"f16", 2, 1),
    (c"q8_0", 34, 32),
    (c"q4_K", 144, 256),
    (c"i32", 4, 1),
    // A name that Millrace knows, with other blocks.
    (c"q4_0", 20, 32),
    (c"iq9_x", 8, 8),
];

pub(super) fn op(name: &CStr) -> c_int {
    OPS.iter().position(|op| *op == name).expect("an op") as c_int
}

pub(super) fn gate(name: &CStr) -> i32 {
    GATES.iter().position(|gate| *gate == name).expect("a gate") as i32
}

pub(super) fn dtype(name: &CStr) -> c_int {
    TYPES
        .iter()
        .position(|(dtype, ..)| *dtype == name)
        .expect("a type") as c_int
}

extern "C" fn op_name(op: c_int) -> *const c_char {
    OPS[op as usize].as_ptr()
}

extern "C" fn op_desc(tensor: *const AbiTensor) -> *const c_char {
    // SAFETY: a tensor of this host.
    let tensor = unsafe { &*tensor };
    match tensor.op == op(c"GLU") {
        true => GATES[tensor.op_params[0] as usize].as_ptr(),
        false => op_name(tensor.op),
    }
}

extern "C" fn type_name(dtype: c_int) -> *const c_char {
    TYPES[dtype as usize].0.as_ptr()
}

extern "C" fn type_size(dtype: c_int) -> usize {
    TYPES[dtype as usize].1
}

extern "C" fn block_elems(dtype: c_int) -> i64 {
    TYPES[dtype as usize].2
}

/// A context: the objects made in it, freed with it.
#[derive(Default)]
struct TestContext {
    tensors: Vec<*mut AbiTensor>,
    graphs: Vec<*mut Graph>,
}

/// A graph.
pub(super) struct Graph(pub(super) Vec<*mut AbiTensor>);

impl Graph {
    pub(super) fn raw(&mut self) -> *mut c_void {
        (self as *mut Graph).cast()
    }
}

extern "C" fn graph_n_nodes(graph: *mut c_void) -> c_int {
    // SAFETY: tests pass their own graphs.
    unsafe { &*graph.cast::<Graph>() }.0.len() as c_int
}

extern "C" fn graph_node(graph: *mut c_void, index: c_int) -> *mut AbiTensor {
    // SAFETY: as above.
    unsafe { &*graph.cast::<Graph>() }.0[index as usize]
}

extern "C" fn init(_: InitParams) -> *mut c_void {
    Box::into_raw(Box::<TestContext>::default()).cast()
}

extern "C" fn free(context: *mut c_void) {
    // SAFETY: made by `init` and `keep`; its contents are freed once.
    unsafe {
        let context = Box::from_raw(context.cast::<TestContext>());
        for tensor in context.tensors {
            drop(Box::from_raw(tensor));
        }
        for graph in context.graphs {
            drop(Box::from_raw(graph));
        }
    }
}

fn keep(context: *mut c_void, tensor: AbiTensor) -> *mut AbiTensor {
    let tensor = Box::into_raw(Box::new(tensor));
    // SAFETY: made by `init`.
    unsafe { &mut *context.cast::<TestContext>() }
        .tensors
        .push(tensor);
    tensor
}

extern "C" fn tensor_overhead() -> usize {
    32 + size_of::<AbiTensor>()
}

/// A host with smaller tensors.
extern "C" fn small_overhead() -> usize {
    300
}

extern "C" fn graph_overhead() -> usize {
    80_000
}

/// A tensor without gaps and without memory.
pub(super) fn tensor(dtype: c_int, ne: [i64; 4]) -> AbiTensor {
    let (_, bytes, elems) = TYPES[dtype as usize];
    let row = bytes * (ne[0] / elems) as usize;
    let matrix = row * ne[1] as usize;
    AbiTensor {
        dtype,
        buffer: std::ptr::null_mut(),
        ne,
        nb: [bytes, row, matrix, matrix * ne[2] as usize],
        op: op(c"NONE"),
        op_params: [0; 16],
        flags: 0,
        src: [std::ptr::null_mut(); 10],
        view_src: std::ptr::null_mut(),
        view_offs: 0,
        data: std::ptr::null_mut(),
        name: [0; 64],
        extra: std::ptr::null_mut(),
        padding: [0; 8],
    }
}

extern "C" fn new_tensor_2d(context: *mut c_void, dtype: c_int, a: i64, b: i64) -> *mut AbiTensor {
    keep(context, tensor(dtype, [a, b, 1, 1]))
}

extern "C" fn get_name(tensor: *const AbiTensor) -> *const c_char {
    // SAFETY: a tensor of this host.
    unsafe { (*tensor).name.as_ptr() }
}

/// A host whose tensors have their names elsewhere.
extern "C" fn name_elsewhere(tensor: *const AbiTensor) -> *const c_char {
    // SAFETY: as above; 16 bytes into the name.
    unsafe { (*tensor).name.as_ptr().add(16) }
}

extern "C" fn mul_mat(
    context: *mut c_void,
    a: *mut AbiTensor,
    b: *mut AbiTensor,
) -> *mut AbiTensor {
    // SAFETY: tensors of this host.
    let [n, m] = unsafe { [(*a).ne[1], (*b).ne[1]] };
    let mut product = tensor(abi::TYPE_F32, [n, m, 1, 1]);
    product.op = op(c"MUL_MAT");
    product.src[..2].copy_from_slice(&[a, b]);
    keep(context, product)
}

pub(super) extern "C" fn new_graph(context: *mut c_void) -> *mut c_void {
    let graph = Box::into_raw(Box::new(Graph(Vec::new())));
    // SAFETY: made by `init`.
    unsafe { &mut *context.cast::<TestContext>() }
        .graphs
        .push(graph);
    graph.cast()
}

extern "C" fn build_forward_expand<const MARKS: bool>(graph: *mut c_void, tensor: *mut AbiTensor) {
    // SAFETY: a graph and a tensor of this host.
    unsafe {
        if MARKS {
            (*tensor).flags |= abi::FLAG_COMPUTE;
        }
        (*graph.cast::<Graph>()).0.push(tensor);
    }
}

/// The type of the CPU's buffers, and of buffers that the host cannot read: addresses that are compared and nothing else.
static CPU_TYPE: u8 = 0;
static FAR_TYPE: u8 = 0;

/// A buffer that the host cannot read.
pub(super) static FAR_BUFFER: u8 = 0;

fn address<T>(of: *const u8) -> *mut T {
    of.cast_mut().cast()
}

extern "C" fn cpu_buffer_type() -> *mut BufferType {
    address(&raw const CPU_TYPE)
}

/// A buffer with a table of so many functions: they, its type, context, size, usage.
extern "C" fn cpu_buffer_from_ptr<const TABLE: usize>(at: *mut c_void, size: usize) -> *mut c_void {
    let mut words = vec![0_usize; TABLE];
    words.extend([cpu_buffer_type() as usize, at as usize, size, 0]);
    // Small and few: they are never freed.
    words.leak().as_mut_ptr().cast()
}

extern "C" fn buft_alloc_buffer(_: *mut BufferType, _: usize) -> *mut c_void {
    std::ptr::null_mut()
}

extern "C" fn buft_alignment(_: *mut BufferType) -> usize {
    64
}

extern "C" fn buft_is_host(buffers: *mut BufferType) -> bool {
    buffers.cast::<u8>().cast_const() != &raw const FAR_TYPE
}

extern "C" fn buffer_type(buffer: *mut c_void) -> *mut BufferType {
    match buffer.cast::<u8>().cast_const() == &raw const FAR_BUFFER {
        true => address(&raw const FAR_TYPE),
        false => cpu_buffer_type(),
    }
}

extern "C" fn buffer_free(_: *mut c_void) {}

/// Makes a buffer of a device's own: its table, type, context, size, usage.
extern "C" fn buffer_init<const N_2D: usize>(
    buffers: *mut BufferType,
    table: BufferTable<N_2D>,
    context: *mut c_void,
    size: usize,
) -> *mut c_void {
    Box::into_raw(Box::new(TestBuffer {
        table,
        buffers,
        context,
        size,
        usage: 0,
    }))
    .cast()
}

/// A buffer of a device's own.
#[repr(C)]
pub(super) struct TestBuffer<const N_2D: usize> {
    pub(super) table: BufferTable<N_2D>,
    buffers: *mut BufferType,
    context: *mut c_void,
    size: usize,
    usage: c_int,
}

/// Messages in the host's log.
pub(super) static LOG: Mutex<String> = Mutex::new(String::new());

/// `ggml_log_internal` takes any number of arguments; the plugin passes one string, which arrives as a declared argument would.
extern "C" fn log_internal(level: c_int, format: *const c_char, text: *const c_char) {
    // SAFETY: strings with their ends.
    let (format, text) = unsafe { (CStr::from_ptr(format), CStr::from_ptr(text)) };
    assert_eq!((level, format), (4, c"%s"));
    LOG.lock().expect("a log").push_str(&text.to_string_lossy());
}

extern "C" fn reg_count() -> usize {
    1
}

static VERSIONS: [c_int; 4] = [0, 1, 2, 3];

extern "C" fn reg_get<const VERSION: usize>(_: usize) -> *const c_int {
    &raw const VERSIONS[VERSION]
}

/// Properties of a host.
#[derive(Clone, Copy)]
pub(super) struct TestHost {
    /// Functions in a buffer's table.
    pub(super) table: usize,
    /// Whether it exports `ggml_backend_tensor_set_2d`.
    pub(super) has_2d: bool,
    pub(super) version: usize,
    pub(super) marks_nodes: bool,
    /// Whether its tensors have the layout that the plugin knows.
    pub(super) small_tensors: bool,
    pub(super) moved_names: bool,
    /// Whether it has a CPU backend.
    pub(super) has_cpu: bool,
    /// A function that it does not export.
    pub(super) lacks: &'static CStr,
}

/// Hosts of the two layouts.
pub(super) const BEFORE_2D: TestHost = TestHost {
    table: 9,
    has_2d: false,
    version: 2,
    marks_nodes: false,
    small_tensors: false,
    moved_names: false,
    has_cpu: true,
    lacks: c"",
};

pub(super) const WITH_2D: TestHost = TestHost {
    table: 11,
    has_2d: true,
    marks_nodes: true,
    ..BEFORE_2D
};

impl FunctionLookup for TestHost {
    fn find(&self, name: &CStr) -> *mut c_void {
        if name == self.lacks {
            return std::ptr::null_mut();
        }
        match name.to_str().expect("a name") {
            "ggml_op_name" => op_name as *mut c_void,
            "ggml_op_desc" => op_desc as *mut c_void,
            "ggml_type_name" => type_name as *mut c_void,
            "ggml_type_size" => type_size as *mut c_void,
            "ggml_blck_size" => block_elems as *mut c_void,
            "ggml_graph_n_nodes" => graph_n_nodes as *mut c_void,
            "ggml_graph_node" => graph_node as *mut c_void,
            "ggml_init" => init as *mut c_void,
            "ggml_free" => free as *mut c_void,
            "ggml_tensor_overhead" if self.small_tensors => small_overhead as *mut c_void,
            "ggml_tensor_overhead" => tensor_overhead as *mut c_void,
            "ggml_graph_overhead" => graph_overhead as *mut c_void,
            "ggml_new_tensor_2d" => new_tensor_2d as *mut c_void,
            "ggml_get_name" if self.moved_names => name_elsewhere as *mut c_void,
            "ggml_get_name" => get_name as *mut c_void,
            "ggml_mul_mat" => mul_mat as *mut c_void,
            "ggml_new_graph" => new_graph as *mut c_void,
            "ggml_build_forward_expand" if self.marks_nodes => {
                build_forward_expand::<true> as *mut c_void
            }
            "ggml_build_forward_expand" => build_forward_expand::<false> as *mut c_void,
            "ggml_backend_cpu_buffer_type" => cpu_buffer_type as *mut c_void,
            "ggml_backend_cpu_buffer_from_ptr" => match self.table {
                9 => cpu_buffer_from_ptr::<9> as *mut c_void,
                11 => cpu_buffer_from_ptr::<11> as *mut c_void,
                _ => cpu_buffer_from_ptr::<13> as *mut c_void,
            },
            "ggml_backend_buft_alloc_buffer" => buft_alloc_buffer as *mut c_void,
            "ggml_backend_buft_get_alignment" => buft_alignment as *mut c_void,
            "ggml_backend_buft_is_host" => buft_is_host as *mut c_void,
            "ggml_backend_buffer_get_type" => buffer_type as *mut c_void,
            "ggml_backend_buffer_init" if self.has_2d => buffer_init::<2> as *mut c_void,
            "ggml_backend_buffer_init" => buffer_init::<0> as *mut c_void,
            "ggml_backend_buffer_get_base" => super::threads::buffer_base as *mut c_void,
            "ggml_backend_buffer_free" => buffer_free as *mut c_void,
            "ggml_backend_tensor_set_2d" if self.has_2d => buffer_free as *mut c_void,
            "ggml_log_internal" => log_internal as *mut c_void,
            "ggml_backend_reg_count" => reg_count as *mut c_void,
            "ggml_backend_reg_get" => match self.version {
                1 => reg_get::<1> as *mut c_void,
                2 => reg_get::<2> as *mut c_void,
                _ => reg_get::<3> as *mut c_void,
            },
            other => super::node::find(other, self.has_cpu),
        }
    }
}
