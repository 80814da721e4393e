//! Products computed through the border, compared with the scalar reference.

use super::client::Client;
use super::host::{BEFORE_2D, FAR_BUFFER, Graph, TestHost, WITH_2D, dtype, op, tensor};
use crate::load::load;
use crate::report::DeviceReport;
use crate::rows::least_rows;
use crate::settings::PluginSettings;
use crate::sys::abi::{AbiTensor, FLAG_COMPUTE, STATUS_SUCCESS};
use millrace_quant::{DType, decode_blocks, encode_blocks};
use std::ffi::CStr;
use std::sync::Arc;

/// A tensor with its memory.
pub(super) struct TestTensor {
    pub(super) tensor: Box<AbiTensor>,
    pub(super) bytes: Vec<u64>,
}

impl TestTensor {
    pub(super) fn new(name: &CStr, type_name: &CStr, ne: [i64; 4]) -> TestTensor {
        let mut tensor = Box::new(tensor(dtype(type_name), ne));
        for (to, from) in tensor.name.iter_mut().zip(name.to_bytes()) {
            *to = *from as std::ffi::c_char;
        }
        let n_bytes = tensor.nb[3] * ne[3] as usize;
        let mut bytes = vec![0_u64; n_bytes.div_ceil(8)];
        tensor.data = bytes.as_mut_ptr().cast();
        TestTensor { tensor, bytes }
    }

    pub(super) fn fill(&mut self, bytes: &[u8]) {
        for (to, from) in self.bytes.iter_mut().zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word[..from.len()].copy_from_slice(from);
            *to = u64::from_ne_bytes(word);
        }
    }

    pub(super) fn raw(&mut self) -> *mut AbiTensor {
        &raw mut *self.tensor
    }

    pub(super) fn floats(&self) -> Vec<f32> {
        let n: i64 = self.tensor.ne.iter().product();
        let halves = self.bytes.iter().flat_map(|word| {
            let bytes = word.to_ne_bytes();
            [0, 4].map(|at| f32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes")))
        });
        halves.take(n as usize).collect()
    }
}

/// Numbers that follow from a seed, in −1 … 1.
pub(super) fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(next).collect()
}

pub(super) fn to_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_ne_bytes()).collect()
}

/// A product with its operands, random.
pub(super) struct ProductCase {
    pub(super) weight: TestTensor,
    pub(super) x: TestTensor,
    pub(super) out: TestTensor,
    format: DType,
}

impl ProductCase {
    pub(super) fn new(
        format: DType,
        type_name: &CStr,
        dims: [usize; 3],
        batch: [usize; 2],
    ) -> ProductCase {
        let [m, n, k] = dims;
        let mut weight = TestTensor::new(c"blk.0.w", type_name, [k as i64, n as i64, 1, 1]);
        let mut encoded = vec![0; format.size_bytes(n, k).expect("a size")];
        encode_blocks(format, &numbers(n * k, 1), &mut encoded).expect("weights");
        weight.fill(&encoded);
        let outer = batch.map(|n| n as i64);
        let mut x = TestTensor::new(c"x", c"f32", [k as i64, m as i64, outer[0], outer[1]]);
        x.fill(&to_bytes(&numbers(m * k * batch[0] * batch[1], 2)));
        let mut out = TestTensor::new(
            c"ffn_out-0",
            c"f32",
            [n as i64, m as i64, outer[0], outer[1]],
        );
        out.tensor.op = op(c"MUL_MAT");
        out.tensor.flags = FLAG_COMPUTE;
        out.tensor.src[..2].copy_from_slice(&[weight.raw(), x.raw()]);
        ProductCase {
            weight,
            x,
            out,
            format,
        }
    }

    /// Compares the result with the reference's.
    pub(super) fn check(&self) {
        let [k, n, ..] = self.weight.tensor.ne.map(|n| n as usize);
        let bytes: Vec<u8> = self
            .weight
            .bytes
            .iter()
            .flat_map(|w| w.to_ne_bytes())
            .collect();
        let n_bytes = self.format.size_bytes(n, k).expect("a size");
        let mut weights = vec![0.0; n * k];
        decode_blocks(self.format, &bytes[..n_bytes], &mut weights).expect("weights");
        let (x, out) = (self.x.floats(), self.out.floats());
        compare(
            x.chunks(k)
                .zip(out.chunks(n))
                .map(|(x, out)| (x, &weights[..], out)),
        );
    }
}

/// Compares rows `out` with `x · weightsᵀ`, each with its own x and weights.
fn compare<'a>(rows: impl Iterator<Item = (&'a [f32], &'a [f32], &'a [f32])>) {
    let (mut error, mut power) = (0.0_f64, 0.0_f64);
    for (x, weights, out) in rows {
        for (w, found) in weights.chunks(x.len()).zip(out) {
            let expected: f64 = x.iter().zip(w).map(|(x, w)| f64::from(x * w)).sum();
            error += (expected - f64::from(*found)).powi(2);
            power += expected.powi(2);
        }
    }
    // The limit that llama.cpp's test-backend-ops has for this op.
    assert!(error / power < 5e-4, "{error} of {power}");
}

pub(super) fn client(host: TestHost) -> Client {
    let settings = PluginSettings {
        least_rows: Some(1),
        ..PluginSettings::default()
    };
    Client::new(
        load(&host, &settings, None).expect("a plugin").registry(),
        host,
    )
}

#[test]
fn products_are_as_the_reference_has_them() {
    let formats = [
        (DType::Q8_0, c"q8_0"),
        (DType::Q4K, c"q4_K"),
        (DType::F16, c"f16"),
        (DType::F32, c"f32"),
    ];
    for host in [BEFORE_2D, WITH_2D] {
        let client = client(host);
        let stream = client.open();
        client.set_threads(&stream, 2);
        for (format, type_name) in formats {
            for (dims, batch) in [
                ([1, 7, 256], [1, 1]),
                ([40, 33, 512], [1, 1]),
                ([3, 16, 256], [2, 3]),
            ] {
                let mut case = ProductCase::new(format, type_name, dims, batch);
                assert!(client.supports(&case.out.tensor));
                let mut graph = Graph(vec![case.out.raw()]);
                assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
                case.check();
            }
        }
    }
}

#[test]
fn products_of_one_input_are_computed_together() {
    let client = client(WITH_2D);
    let stream = client.open();
    let mut first = ProductCase::new(DType::Q8_0, c"q8_0", [20, 48, 256], [1, 1]);
    let mut second = ProductCase::new(DType::Q4K, c"q4_K", [20, 30, 256], [1, 1]);
    second.out.tensor.src[1] = first.x.raw();
    let mut view = TestTensor::new(c"view", c"f32", [48, 20, 1, 1]);
    view.tensor.op = op(c"VIEW");
    view.tensor.flags = FLAG_COMPUTE;
    let mut graph = Graph(vec![first.out.raw(), view.raw(), second.out.raw()]);
    assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
    first.check();
    second.check();
    // A result in the place of the other's is computed after it, and right.
    second.out.tensor.data = first.out.tensor.data;
    assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
    second.out.bytes.clone_from(&first.out.bytes);
    second.check();
}

#[test]
fn experts_multiply_their_own_rows() {
    experts(&client(WITH_2D));
}

/// Computes products of experts with 1 and 2 rows of x a token.
pub(super) fn experts(client: &Client) {
    let [n, k, n_experts, n_used, n_tokens] = [9, 32, 5, 2, 11];
    let dims = |dims: [usize; 3]| [dims[0] as i64, dims[1] as i64, dims[2] as i64, 1];
    for x_rows in [1, n_used] {
        let mut weight = TestTensor::new(c"experts", c"f32", dims([k, n, n_experts]));
        weight.fill(&to_bytes(&numbers(k * n * n_experts, 3)));
        let mut x = TestTensor::new(c"x", c"f32", dims([k, x_rows, n_tokens]));
        x.fill(&to_bytes(&numbers(k * x_rows * n_tokens, 4)));
        let mut ids = TestTensor::new(c"ids", c"i32", dims([n_used, n_tokens, 1]));
        let chosen: Vec<i32> = (0..n_used * n_tokens)
            .map(|i| (i * 7 % n_experts) as i32)
            .collect();
        ids.fill(
            &chosen
                .iter()
                .flat_map(|id| id.to_ne_bytes())
                .collect::<Vec<_>>(),
        );
        let mut out = TestTensor::new(c"out", c"f32", dims([n, n_used, n_tokens]));
        out.tensor.op = op(c"MUL_MAT_ID");
        out.tensor.flags = FLAG_COMPUTE;
        out.tensor.src[..3].copy_from_slice(&[weight.raw(), x.raw(), ids.raw()]);
        assert!(client.supports(&out.tensor));
        let stream = client.open();
        assert_eq!(stream.compute(&mut Graph(vec![out.raw()])), STATUS_SUCCESS);
        let (weights, x, out) = (weight.floats(), x.floats(), out.floats());
        compare(out.chunks(n).enumerate().map(|(row, out)| {
            let expert = chosen[row] as usize;
            let at = (row / n_used * x_rows + row % n_used % x_rows) * k;
            (
                &x[at..at + k],
                &weights[expert * n * k..(expert + 1) * n * k],
                out,
            )
        }));
    }
}

#[test]
fn what_is_not_taken_is_refused() {
    let client = client(WITH_2D);
    let plain = || ProductCase::new(DType::Q8_0, c"q8_0", [4, 6, 64], [1, 1]);
    let refuses = |change: &dyn Fn(&mut ProductCase)| {
        let mut case = plain();
        change(&mut case);
        !client.supports(&case.out.tensor)
    };
    assert!(!refuses(&|_| ()));
    assert!(refuses(&|case| case.out.tensor.op = op(c"SOFT_MAX")));
    assert!(refuses(&|case| case.out.tensor.op_params[1] = 1));
    assert!(refuses(&|case| case.x.tensor.dtype = dtype(c"f16")));
    assert!(refuses(&|case| case.weight.tensor.nb[1] += 34));
    assert!(refuses(&|case| case.x.tensor.nb[1] += 4));
    assert!(refuses(&|case| case.out.tensor.nb[1] += 4));
    assert!(refuses(&|case| case.x.tensor.ne[0] -= 32));
    assert!(refuses(&|case| case.x.tensor.ne[1] = -1));
    assert!(refuses(
        &|case| case.out.tensor.src[1] = std::ptr::null_mut()
    ));
    // An unknown format, and one of a known name with other blocks.
    assert!(refuses(&|case| case.weight.tensor.dtype = dtype(c"iq9_x")));
    assert!(refuses(&|case| case.weight.tensor.dtype = dtype(c"q4_0")));
    let mut view = TestTensor::new(c"view", c"f32", [4, 4, 1, 1]);
    view.tensor.op = op(c"VIEW");
    assert!(client.supports(&view.tensor));
}

#[test]
fn a_few_tokens_are_left_to_the_host() {
    let plugin = load(&WITH_2D, &PluginSettings::default(), None).expect("a plugin");
    let client = Client::new(plugin.registry(), WITH_2D);
    let supports = |format, type_name, m| {
        let case = ProductCase::new(format, type_name, [m, 64, 256], [1, 1]);
        client.supports(&case.out.tensor)
    };
    // The portable kernels are not faster than llama.cpp's anywhere.
    let level = millrace_kernels::Level::preferred();
    let has_simd = level > millrace_kernels::Level::Scalar;
    assert!(!supports(DType::F16, c"f16", 1));
    assert_eq!(supports(DType::F16, c"f16", 512), has_simd);
    for m in [1, 512] {
        let least = least_rows(DType::Q4K, level);
        let is_taken = least.is_some_and(|least| m >= least);
        assert_eq!(supports(DType::Q4K, c"q4_K", m), is_taken);
    }
}

#[test]
fn nodes_that_are_not_marked_are_left_alone() {
    for (host, is_computed) in [(WITH_2D, false), (BEFORE_2D, true)] {
        let stream = client(host).open();
        let mut case = ProductCase::new(DType::F32, c"f32", [2, 3, 4], [1, 1]);
        case.out.tensor.flags = 0;
        assert_eq!(
            stream.compute(&mut Graph(vec![case.out.raw()])),
            STATUS_SUCCESS
        );
        assert_eq!(case.out.floats().iter().any(|x| *x != 0.0), is_computed);
    }
}

#[test]
fn the_report_says_what_was_computed_and_what_not() {
    let report = Arc::new(DeviceReport::default());
    let settings = PluginSettings {
        least_rows: Some(2),
        ..PluginSettings::default()
    };
    let plugin = load(&WITH_2D, &settings, Some(&report)).expect("a plugin");
    let client = Client::new(plugin.registry(), WITH_2D);
    let mut case = ProductCase::new(DType::Q8_0, c"q8_0", [4, 6, 64], [1, 1]);
    assert_eq!(
        client.open().compute(&mut Graph(vec![case.out.raw()])),
        STATUS_SUCCESS
    );
    let few = ProductCase::new(DType::Q8_0, c"q8_0", [1, 6, 64], [1, 1]);
    assert!(!client.supports(&few.out.tensor) && !client.supports(&few.out.tensor));
    let text = report.text();
    assert!(
        text.contains("device Millrace\n  computed MUL_MAT q8_0: 1 calls, 0.000 GB"),
        "{text}"
    );
    assert!(
        text.contains("left to others MUL_MAT (1 weights): too few tokens"),
        "{text}"
    );
}

#[test]
fn memory_that_is_not_the_hosts_is_an_error() {
    let stream = client(WITH_2D).open();
    let mut case = ProductCase::new(DType::F32, c"f32", [2, 3, 4], [1, 1]);
    case.weight.tensor.buffer = (&raw const FAR_BUFFER).cast_mut().cast();
    assert_ne!(
        stream.compute(&mut Graph(vec![case.out.raw()])),
        STATUS_SUCCESS
    );
    case.weight.tensor.buffer = std::ptr::null_mut();
    let inside = case.x.tensor.data;
    let own = std::mem::replace(&mut case.out.tensor.data, inside);
    assert_ne!(
        stream.compute(&mut Graph(vec![case.out.raw()])),
        STATUS_SUCCESS
    );
    case.out.tensor.data = own;
    assert_eq!(
        stream.compute(&mut Graph(vec![case.out.raw()])),
        STATUS_SUCCESS
    );
    case.check();
}
