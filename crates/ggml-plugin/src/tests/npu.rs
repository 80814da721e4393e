//! A virtual NPU through the border: weights placed when they are written, products on the device, its own memory given back.

use super::compute::{Case, numbers};
use super::host::{BEFORE_2D, Buffer, Client, Graph, Host, WITH_2D};
use crate::load::load;
use crate::report::Report;
use crate::settings::Settings;
use crate::sys::abi::{BufferType, Device, STATUS_SUCCESS, TYPE_GPU, Tensor};
use millrace_quant::{DType, encode_blocks};
use std::ffi::{CStr, c_void};
use std::sync::Arc;

fn client(host: Host, least_rows: Option<usize>, report: Option<&Arc<Report>>) -> Client {
    let settings = Settings {
        devices: Some(vec!["rk3588".to_owned()]),
        least_rows,
        ..Settings::default()
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
        let function: extern "C" fn(*mut Device) -> *const *mut BufferType =
            std::mem::transmute(function);
        let list = function(client.device);
        assert!((*list.add(1)).is_null());
        *list
    }
}

/// Computes a case with its weight in a buffer of the device.
fn with_own_memory<const N_2D: usize>(host: Host) {
    let report = Arc::new(Report::default());
    let client = client(host, Some(1), Some(&report));
    let own = own_type(&client);
    let mut case = Case::new(DType::Q8_0, c"q8_0", [5, 24, 64], [1, 1]);
    let n_bytes = 24 * 2 * 34;
    let memory = || {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the plugin's device.
        unsafe { ((*client.device).get_memory)(client.device, &raw mut free, &raw mut total) };
        assert!(free <= total);
        free
    };
    let before = memory();
    // SAFETY: the plugin's functions, called as hosts do, with sizes that are the buffer's.
    unsafe {
        assert_eq!(CStr::from_ptr(((*own).get_name)(own)), c"RK3588_Weights");
        let buffer = ((*own).alloc_buffer)(own, 4096);
        let table = &(*buffer.cast::<Buffer<N_2D>>()).table;
        let original = case.weight.tensor.data;
        case.weight.tensor.data = (table.get_base)(buffer).byte_add(128);
        case.weight.tensor.buffer = buffer;
        let weight: *mut Tensor = case.weight.raw();
        (table.set_tensor)(buffer, weight, original, 0, n_bytes);
        assert!(memory() < before, "the weight is placed when it is written");
        assert_eq!(
            client.open().compute(&mut Graph(vec![case.out.raw()])),
            STATUS_SUCCESS
        );
        case.check();
        // The host reads back what it wrote, and computes with it where it lies.
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
        assert_eq!(
            client.open().compute(&mut Graph(vec![case.out.raw()])),
            STATUS_SUCCESS
        );
        case.weight.fill(&others);
        case.check();
        // What is outside of the buffer is not written.
        (table.set_tensor)(buffer, weight, others.as_ptr().cast(), 4096, n_bytes);
        (table.clear)(buffer, 0);
        assert_eq!(
            client.open().compute(&mut Graph(vec![case.out.raw()])),
            STATUS_SUCCESS
        );
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
    with_own_memory::<0>(BEFORE_2D);
    with_own_memory::<2>(WITH_2D);
}

#[test]
fn an_npu_is_a_device_with_memory_that_says_that_it_is_virtual() {
    let client = client(WITH_2D, None, None);
    // SAFETY: the plugin's device.
    unsafe {
        let device = client.device;
        assert_eq!(CStr::from_ptr(((*device).get_name)(device)), c"RK3588");
        assert_eq!(((*device).get_type)(device), TYPE_GPU);
        let words = CStr::from_ptr(((*device).get_description)(device)).to_string_lossy();
        assert!(
            words.contains("virtual") && words.contains("modelled"),
            "{words}"
        );
    }
}

#[test]
fn products_in_the_hosts_memory_are_computed_too() {
    let client = client(WITH_2D, Some(1), None);
    // As test-backend-ops has it: nothing is placed, several matrices, more rows than the longest plan.
    for (dims, batch) in [([3, 20, 32], [2, 1]), ([300, 16, 64], [1, 1])] {
        let mut case = Case::new(DType::Q8_0, c"q8_0", dims, batch);
        assert!(client.supports(&case.out.tensor));
        assert_eq!(
            client.open().compute(&mut Graph(vec![case.out.raw()])),
            STATUS_SUCCESS
        );
        case.check();
    }
    // In a model weights in others' memory stay with others.
    let mut case = Case::new(DType::Q8_0, c"q8_0", [3, 20, 32], [1, 1]);
    case.weight.tensor.buffer = Box::leak(Box::new(0_u64)) as *mut u64 as *mut c_void;
    assert!(!client.supports(&case.out.tensor));
}

#[test]
fn few_tokens_are_left_to_the_host_as_predicted() {
    let client = client(WITH_2D, None, None);
    let supports = |m| {
        let case = Case::new(DType::Q8_0, c"q8_0", [m, 2048, 2048], [1, 1]);
        client.supports(&case.out.tensor)
    };
    assert!(!supports(1));
    assert!(supports(512));
}
