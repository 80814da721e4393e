//! A virtual NPU through the border: weights placed when they are written, products on the device, its own memory given back.

use super::client::Client;
use super::compute::{ProductCase, experts, numbers};
use super::failure::log_has;
use super::host::{BEFORE_2D, Graph, TestBuffer, TestHost, WITH_2D};
use crate::load::load;
use crate::npu::NpuDevice;
use crate::report::DeviceReport;
use crate::settings::PluginSettings;
use crate::sys::abi::{AbiDevice, AbiTensor, BufferType, STATUS_FAILED, STATUS_SUCCESS, TYPE_GPU};
use crate::sys::host::Functions;
use crate::sys::objects::Plugin;
use crate::sys::probe::probe;
use millrace_npu::inject::Injection;
use millrace_quant::{DType, encode_blocks};
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// Targets that plan single products, with the names of their devices' memory.
const NPUS: [(&str, &CStr); 2] = [("RK3588", c"RK3588_Weights"), ("XDNA2", c"XDNA2_Weights")];

fn client(
    name: &str,
    host: TestHost,
    least_rows: Option<usize>,
    report: Option<&Arc<DeviceReport>>,
) -> Client {
    let settings = PluginSettings {
        devices: Some(vec![name.to_lowercase()]),
        least_rows,
        ..PluginSettings::default()
    };
    let plugin = load(&host, &settings, report).expect("a plugin");
    Client::new(plugin.registry(), host)
}

/// The type of the device's own memory, as llama.cpp finds it.
fn own_type(client: &Client) -> *mut BufferType {
    // SAFETY: the plugin's registry; the function of that name has this signature.
    unsafe {
        let name = c"ggml_backend_dev_get_extra_bufts".as_ptr();
        let function = ((*client.registry).get_proc_address)(client.registry, name);
        let function: extern "C" fn(*mut AbiDevice) -> *const *mut BufferType =
            std::mem::transmute(function);
        let list = function(client.device);
        assert!((*list.add(1)).is_null());
        *list
    }
}

fn free_bytes(client: &Client) -> usize {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the plugin's device.
    unsafe { ((*client.device).get_memory)(client.device, &raw mut free, &raw mut total) };
    assert!(free <= total);
    free
}

fn compute(client: &Client, case: &mut ProductCase) {
    let mut graph = Graph(vec![case.out.raw()]);
    assert_eq!(client.open().compute(&mut graph), STATUS_SUCCESS);
}

/// Computes a case with its weight in a buffer of the device.
fn with_own_memory<const N_2D: usize>((npu, memory_name): (&str, &CStr), host: TestHost) {
    let report = Arc::new(DeviceReport::default());
    let client = client(npu, host, Some(1), Some(&report));
    let own = own_type(&client);
    let mut case = ProductCase::new(DType::Q8_0, c"q8_0", [5, 24, 64], [1, 1]);
    let n_bytes = 24 * 2 * 34;
    let memory = || free_bytes(&client);
    let before = memory();
    // SAFETY: the plugin's functions, called as hosts do, with sizes that are the buffer's.
    unsafe {
        assert_eq!(CStr::from_ptr(((*own).get_name)(own)), memory_name);
        let buffer = ((*own).alloc_buffer)(own, 4096);
        let table = &(*buffer.cast::<TestBuffer<N_2D>>()).table;
        let original = case.weight.tensor.data;
        case.weight.tensor.data = (table.get_base)(buffer).byte_add(128);
        case.weight.tensor.buffer = buffer;
        let weight: *mut AbiTensor = case.weight.raw();
        (table.set_tensor)(buffer, weight, original, 0, n_bytes);
        assert!(memory() < before, "the weight is placed when it is written");
        compute(&client, &mut case);
        case.check();
        // The host reads its own bytes back, and computes with it in place.
        let mut back = vec![0_u8; n_bytes];
        (table.get_tensor)(buffer, weight, back.as_mut_ptr().cast(), 0, n_bytes);
        let written = std::slice::from_raw_parts(original.cast::<u8>(), n_bytes);
        assert_eq!(back, written);
        // Other weights at the same place, written in two parts: nothing of the first is left.
        let mut others = vec![0; n_bytes];
        encode_blocks(DType::Q8_0, &numbers(24 * 64, 9), &mut others).expect("weights");
        let (first, second) = others.split_at(n_bytes / 2);
        (table.set_tensor)(buffer, weight, first.as_ptr().cast(), 0, first.len());
        (table.set_tensor)(
            buffer,
            weight,
            second.as_ptr().cast(),
            first.len(),
            second.len(),
        );
        compute(&client, &mut case);
        case.weight.fill(&others);
        case.check();
        // Bytes outside the buffer are not written.
        (table.set_tensor)(buffer, weight, others.as_ptr().cast(), 4096, n_bytes);
        (table.clear)(buffer, 0);
        compute(&client, &mut case);
        assert!(case.out.floats().iter().all(|x| *x == 0.0));
        (table.free_buffer)(buffer);
    }
    assert_eq!(memory(), before, "the device's memory is given back");
    let text = report.text();
    assert!(text.contains("computed MUL_MAT q8_0: 3 calls"), "{text}");
    assert!(
        text.contains("3 runs of the NPU") && text.contains("modelled"),
        "{text}"
    );
}

#[test]
fn weights_live_in_the_devices_memory() {
    for npu in NPUS {
        with_own_memory::<0>(npu, BEFORE_2D);
        with_own_memory::<2>(npu, WITH_2D);
    }
}

#[test]
fn an_npu_is_a_device_with_memory_that_says_that_it_is_virtual() {
    for (npu, _) in NPUS {
        let client = client(npu, WITH_2D, None, None);
        // SAFETY: the plugin's device.
        unsafe {
            let device = client.device;
            let name = CStr::from_ptr(((*device).get_name)(device));
            assert_eq!(name.to_str(), Ok(npu));
            assert_eq!(((*device).get_type)(device), TYPE_GPU);
            let words = CStr::from_ptr(((*device).get_description)(device)).to_string_lossy();
            assert!(
                words.contains("virtual") && words.contains("modelled"),
                "{words}"
            );
        }
    }
}

#[test]
fn products_in_the_hosts_memory_are_computed_too() {
    for (npu, _) in NPUS {
        let client = client(npu, WITH_2D, Some(1), None);
        // As in test-backend-ops: nothing is placed, several matrices, a single row, more than the longest plan of RK3588.
        for (dims, batch) in [
            ([3, 20, 32], [2, 1]),
            ([1, 20, 96], [1, 1]),
            ([300, 16, 64], [1, 1]),
        ] {
            let mut case = ProductCase::new(DType::Q8_0, c"q8_0", dims, batch);
            assert!(client.supports(&case.out.tensor));
            assert_eq!(
                client.open().compute(&mut Graph(vec![case.out.raw()])),
                STATUS_SUCCESS
            );
            case.check();
        }
        experts(&client);
        // Weights of a model that are in others' memory stay with others.
        let mut case = ProductCase::new(DType::Q8_0, c"q8_0", [3, 20, 32], [1, 1]);
        case.weight.tensor.buffer = Box::leak(Box::new(0_u64)) as *mut u64 as *mut c_void;
        assert!(!client.supports(&case.out.tensor));
    }
}

#[test]
fn few_tokens_are_left_to_the_host_as_predicted() {
    for (npu, least_k) in [("RK3588", 2048), ("XDNA2", 64)] {
        let client = client(npu, WITH_2D, None, None);
        let supports = |m, k| {
            let case = ProductCase::new(DType::Q8_0, c"q8_0", [m, k, k], [1, 1]);
            client.supports(&case.out.tensor)
        };
        assert!(!supports(1, least_k), "{npu}");
        assert!(supports(512, 2048), "{npu}");
    }
}

/// A device's own failure ends the graph, with a line that names op, tensor, device and cause; the next one is computed.
#[test]
fn a_device_that_fails_fails_the_graph_and_no_other() {
    for (npu, _) in NPUS {
        let settings = PluginSettings {
            least_rows: Some(1),
            ..PluginSettings::default()
        };
        let mut targets = millrace_targets::ALL.iter();
        let target = targets.find(|target| target.name().eq_ignore_ascii_case(npu));
        let opened = NpuDevice::open(*target.expect("a target"), &settings, None);
        let opened = opened.expect("a device");
        let device = opened.device();
        let functions = Functions::find(&WITH_2D).expect("functions");
        let found = probe(&functions).expect("a known host");
        let plugin = Plugin::new(functions, found, vec![Box::new(opened)], None, None);
        let stream = Client::new(plugin.registry(), WITH_2D).open();
        let mut case = ProductCase::new(DType::Q8_0, c"q8_0", [5, 24, 64], [1, 1]);
        let injector = device.injector().expect("a virtual device");
        for injection in [Injection::Timeout, Injection::NotPinned] {
            injector.inject(injection);
            let failed = stream.compute(&mut Graph(vec![case.out.raw()]));
            assert_eq!(failed, STATUS_FAILED, "{npu}");
            let words = format!("MUL_MAT of tensor `ffn_out-0` on device {npu}");
            assert!(log_has(&[&words]), "{words}");
            let next = stream.compute(&mut Graph(vec![case.out.raw()]));
            assert_eq!(next, STATUS_SUCCESS, "{npu}");
            case.check();
        }
    }
}
