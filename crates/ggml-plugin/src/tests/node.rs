//! The device that takes every op. The host's CPU backend computes the ops that its kernels refuse, in order.

use super::client::Client;
use super::compute::{ProductCase, TestTensor, numbers, to_bytes};
use super::failure::log_has;
use super::host::{BEFORE_2D, Graph, TestHost, WITH_2D, new_graph, op};
use crate::load::load;
use crate::report::DeviceReport;
use crate::settings::PluginSettings;
use crate::sys::abi::{
    AbiDevice, AbiTensor, FLAG_COMPUTE, Registry, STATUS_FAILED, STATUS_SUCCESS, TYPE_GPU,
};
use millrace_quant::DType;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

/// Requests to the host's CPU backend on this thread.
#[derive(Default)]
struct CpuCalls {
    /// Nodes of each graph.
    graphs: Vec<usize>,
    threads: c_int,
    open: i32,
}

thread_local! {
    static CALLS: RefCell<CpuCalls> = RefCell::default();
}

/// The host's CPU as a device, and as a registry and a backend: addresses that are compared and nothing else.
static CPU: u8 = 0;

fn cpu<T>() -> *mut T {
    (&raw const CPU).cast_mut().cast()
}

extern "C" fn device_by_type(kind: c_int) -> *mut AbiDevice {
    assert_eq!(kind, 0, "the CPU's kind");
    cpu()
}

extern "C" fn no_device(_: c_int) -> *mut AbiDevice {
    std::ptr::null_mut()
}

/// This host's CPU adds, and nothing else.
extern "C" fn device_supports(device: *mut AbiDevice, tensor: *const AbiTensor) -> bool {
    assert_eq!(device, cpu());
    // SAFETY: a tensor of this host.
    unsafe { (*tensor).op == op(c"ADD") }
}

extern "C" fn device_init(_: *mut AbiDevice, _: *const c_char) -> *mut c_void {
    CALLS.with_borrow_mut(|calls| calls.open += 1);
    cpu()
}

extern "C" fn device_registry(_: *mut AbiDevice) -> *mut Registry {
    cpu()
}

extern "C" fn registry_function(_: *mut Registry, name: *const c_char) -> *mut c_void {
    // SAFETY: a string with its end.
    match unsafe { CStr::from_ptr(name) } == c"ggml_backend_set_n_threads" {
        true => set_threads as *mut c_void,
        false => std::ptr::null_mut(),
    }
}

extern "C" fn set_threads(_: *mut c_void, n: c_int) {
    CALLS.with_borrow_mut(|calls| calls.threads = n);
}

extern "C" fn backend_free(_: *mut c_void) {
    CALLS.with_borrow_mut(|calls| calls.open -= 1);
}

/// Adds; a sum whose name begins with `bad` fails.
extern "C" fn backend_compute(_: *mut c_void, graph: *mut c_void) -> c_int {
    // SAFETY: a graph of this host, whose tensors hold floats without gaps.
    let nodes = unsafe { &(*graph.cast::<Graph>()).0 };
    CALLS.with_borrow_mut(|calls| calls.graphs.push(nodes.len()));
    for node in nodes {
        // SAFETY: as above.
        unsafe {
            let node = &**node;
            if CStr::from_ptr(node.name.as_ptr())
                .to_bytes()
                .starts_with(b"bad")
            {
                return -1;
            }
            let n: i64 = node.ne.iter().product();
            let [a, b] = [0, 1].map(|i| (*node.src[i]).data.cast::<f32>());
            for i in 0..n as usize {
                *node.data.cast::<f32>().add(i) = *a.add(i) + *b.add(i);
            }
        }
    }
    0
}

extern "C" fn graph_overhead(nodes: usize, _: bool) -> usize {
    1000 + 8 * nodes
}

extern "C" fn new_graph_custom(context: *mut c_void, _: usize, _: bool) -> *mut c_void {
    new_graph(context)
}

extern "C" fn graph_add(graph: *mut c_void, tensor: *mut AbiTensor) {
    // SAFETY: a graph of this host.
    unsafe { (*graph.cast::<Graph>()).0.push(tensor) };
}

/// Functions by which hosts lend their CPU backend.
pub(super) fn find(name: &str, has_cpu: bool) -> *mut c_void {
    match name {
        "ggml_backend_dev_by_type" if has_cpu => device_by_type as *mut c_void,
        "ggml_backend_dev_by_type" => no_device as *mut c_void,
        "ggml_backend_dev_supports_op" => device_supports as *mut c_void,
        "ggml_backend_dev_init" => device_init as *mut c_void,
        "ggml_backend_dev_backend_reg" => device_registry as *mut c_void,
        "ggml_backend_reg_get_proc_address" => registry_function as *mut c_void,
        "ggml_backend_free" => backend_free as *mut c_void,
        "ggml_backend_graph_compute" => backend_compute as *mut c_void,
        "ggml_graph_overhead_custom" => graph_overhead as *mut c_void,
        "ggml_new_graph_custom" => new_graph_custom as *mut c_void,
        "ggml_graph_add_node" => graph_add as *mut c_void,
        _ => std::ptr::null_mut(),
    }
}

fn settings() -> PluginSettings {
    PluginSettings {
        devices: Some(vec!["millracenode".to_owned()]),
        least_rows: Some(1),
        ..PluginSettings::default()
    }
}

fn client(host: TestHost, report: Option<&Arc<DeviceReport>>) -> Client {
    let plugin = load(&host, &settings(), report).expect("a plugin");
    Client::new(plugin.registry(), host)
}

/// A sum of two tensors of the same shape.
fn sum(name: &CStr, a: &mut TestTensor, b: &mut TestTensor) -> TestTensor {
    let mut sum = TestTensor::new(name, c"f32", a.tensor.ne);
    sum.tensor.op = op(c"ADD");
    sum.tensor.flags = FLAG_COMPUTE;
    sum.tensor.src[..2].copy_from_slice(&[a.raw(), b.raw()]);
    sum
}

#[test]
fn every_op_is_taken_and_computed_in_order() {
    for host in [BEFORE_2D, WITH_2D] {
        CALLS.take();
        let report = Arc::<DeviceReport>::default();
        let client = client(host, Some(&report));
        // A product, two sums of its result, and a product of a sum.
        let mut first = ProductCase::new(DType::Q8_0, c"q8_0", [5, 64, 64], [1, 1]);
        let mut bias = TestTensor::new(c"bias", c"f32", first.out.tensor.ne);
        bias.fill(&to_bytes(&numbers(5 * 64, 9)));
        let mut once = sum(c"once", &mut first.out, &mut bias);
        let mut twice = sum(c"twice", &mut once, &mut bias);
        let mut last = ProductCase::new(DType::F16, c"f16", [5, 7, 64], [1, 1]);
        last.out.tensor.src[1] = twice.raw();
        for op in [&first.out.tensor, &once.tensor, &last.out.tensor] {
            assert!(client.supports(op));
        }
        let mut other = sum(c"other", &mut first.out, &mut bias);
        other.tensor.op = op(c"SOFT_MAX");
        assert!(!client.supports(&other.tensor), "nobody computes it");

        let stream = client.open();
        client.set_threads(&stream, 2);
        let mut graph = Graph(vec![
            first.out.raw(),
            once.raw(),
            twice.raw(),
            last.out.raw(),
        ]);
        assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
        first.check();
        let product = first.out.floats();
        let expected = product.iter().zip(bias.floats()).map(|(y, b)| y + b + b);
        assert_eq!(twice.floats(), expected.collect::<Vec<f32>>());
        last.x.fill(&to_bytes(&twice.floats()));
        last.check();
        drop(stream);
        CALLS.with_borrow(|calls| {
            assert_eq!(
                (&calls.graphs[..], calls.threads, calls.open),
                (&[2][..], 2, 0)
            );
        });
        let text = report.text();
        assert!(
            text.contains("MUL_MAT q8_0: 1 calls") && text.contains("MUL_MAT f16: 1 calls"),
            "{text}"
        );
        assert!(!text.contains("ADD"), "{text}");
    }
}

#[test]
fn a_failure_of_the_hosts_backend_is_told() {
    let client = client(WITH_2D, None);
    let mut a = TestTensor::new(c"a", c"f32", [4, 1, 1, 1]);
    let mut b = TestTensor::new(c"b", c"f32", [4, 1, 1, 1]);
    let mut sum = sum(c"bad-sum", &mut a, &mut b);
    let stream = client.open();
    assert_eq!(stream.compute(&mut Graph(vec![sum.raw()])), STATUS_FAILED);
    assert!(log_has(&[
        "ADD of tensor `bad-sum` on device MillraceNode",
        "status -1"
    ]));
}

#[test]
fn it_is_a_gpu_with_this_computers_memory() {
    let client = client(BEFORE_2D, None);
    let (mut free, mut total) = (0, 0);
    // SAFETY: the plugin's device, called as hosts do.
    unsafe {
        assert_eq!(((*client.device).get_type)(client.device), TYPE_GPU);
        ((*client.device).get_memory)(client.device, &raw mut free, &raw mut total);
        let buffers = ((*client.device).get_buffer_type)(client.device);
        assert!(((*buffers).is_host.expect("a function"))(buffers));
    }
    assert!(0 < free && free <= total, "{free} of {total}");
}

#[test]
fn a_host_without_a_cpu_backend_is_refused() {
    let lacking = TestHost {
        lacks: c"ggml_graph_add_node",
        ..WITH_2D
    };
    match load(&lacking, &settings(), None) {
        Ok(_) => panic!("the plugin took the host"),
        Err(refused) => {
            let refused = refused.to_string();
            assert!(
                refused.contains("ggml_graph_add_node") && refused.contains("millracenode"),
                "{refused}"
            );
        }
    }
    // The functions are there, the backend is not: no op is taken that nothing computes, and no stream opens.
    let host = TestHost {
        has_cpu: false,
        ..WITH_2D
    };
    let client = client(host, None);
    let mut a = TestTensor::new(c"a", c"f32", [4, 1, 1, 1]);
    let mut b = TestTensor::new(c"b", c"f32", [4, 1, 1, 1]);
    assert!(!client.supports(&sum(c"sum", &mut a, &mut b).tensor));
    assert!(client.try_open().is_none());
    assert!(log_has(&["MillraceNode cannot be used", "no CPU backend"]));
}
