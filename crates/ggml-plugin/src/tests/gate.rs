//! Gated activations, through the border.

use super::client::Client;
use super::compute::{TestTensor, client, numbers, to_bytes};
use super::failure::log_has;
use super::host::{BEFORE_2D, Graph, WITH_2D, gate, op};
use crate::load::load;
use crate::report::DeviceReport;
use crate::settings::PluginSettings;
use crate::sys::abi::{FLAG_COMPUTE, STATUS_FAILED, STATUS_SUCCESS};
use std::ffi::CStr;
use std::sync::Arc;

/// A gate with its operands, random.
struct GateCase {
    gate: TestTensor,
    up: TestTensor,
    out: TestTensor,
}

fn random(name: &CStr, ne: [i64; 4], seed: u32) -> TestTensor {
    let mut owned = TestTensor::new(name, c"f32", ne);
    let n = ne.iter().product::<i64>() as usize;
    owned.fill(&to_bytes(&numbers(n, seed)));
    owned
}

impl GateCase {
    fn new(kind: &CStr, ne: [i64; 4]) -> GateCase {
        let (mut gates, mut up) = (random(c"gate", ne, 1), random(c"up", ne, 2));
        let mut out = TestTensor::new(c"ffn_swiglu-0", c"f32", ne);
        out.tensor.op = op(c"GLU");
        out.tensor.op_params[0] = gate(kind);
        out.tensor.flags = FLAG_COMPUTE;
        out.tensor.src[..2].copy_from_slice(&[gates.raw(), up.raw()]);
        GateCase {
            gate: gates,
            up,
            out,
        }
    }

    /// Expected result, in f64.
    fn expected(&self) -> Vec<f64> {
        let tanh = |x: f64| (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh();
        let is_silu = self.out.tensor.op_params[0] == gate(c"SWIGLU");
        let activation = |x: f64| match is_silu {
            true => x / (1.0 + (-x).exp()),
            false => x / 2.0 * (1.0 + tanh(x)),
        };
        let pairs = self.gate.floats().into_iter().zip(self.up.floats());
        pairs
            .map(|(gate, up)| activation(f64::from(gate)) * f64::from(up))
            .collect()
    }
}

fn cases() -> Vec<GateCase> {
    let shapes = [[1, 1, 1, 1], [7, 1, 1, 1], [64, 5, 3, 1], [2048, 40, 1, 1]];
    let kinds = [c"SWIGLU", c"GEGLU"];
    let cases = shapes.map(|ne| kinds.map(|kind| GateCase::new(kind, ne)));
    cases.into_iter().flatten().collect()
}

fn assert_close(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let error = (f64::from(*found) - expected).abs();
        assert!(
            error < 1e-6 * expected.abs().max(1.0),
            "{found} for {expected}"
        );
    }
}

#[test]
fn gates_are_as_defined() {
    for host in [BEFORE_2D, WITH_2D] {
        let client = client(host);
        let stream = client.open();
        client.set_threads(&stream, 2);
        for mut case in cases() {
            assert!(client.supports(&case.out.tensor));
            let mut graph = Graph(vec![case.out.raw()]);
            assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
            assert_close(&case.out.floats(), &case.expected());
        }
    }
}

/// A host may write a result over an operand that is not needed again.
#[test]
fn results_may_lie_in_an_operand_s_place() {
    let client = client(WITH_2D);
    let stream = client.open();
    for over_up in [false, true] {
        for mut case in cases() {
            let expected = case.expected();
            let over = if over_up { &case.up } else { &case.gate };
            case.out.tensor.data = over.tensor.data;
            let mut graph = Graph(vec![case.out.raw()]);
            assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
            let over = if over_up { &case.up } else { &case.gate };
            assert_close(&over.floats(), &expected);
        }
    }
    // Over both.
    let mut case = GateCase::new(c"SWIGLU", [40, 2, 1, 1]);
    case.up.fill(&to_bytes(&case.gate.floats()));
    let expected = case.expected();
    case.out.tensor.src[1] = case.gate.raw();
    case.out.tensor.data = case.gate.tensor.data;
    let mut graph = Graph(vec![case.out.raw()]);
    assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
    assert_close(&case.gate.floats(), &expected);
}

/// Two products, their gate, and a product of that, as one graph.
#[test]
fn a_feed_forward_network_is_one_graph() {
    use super::compute::ProductCase;
    use millrace_quant::DType;
    let client = client(WITH_2D);
    let stream = client.open();
    let product = |dims| ProductCase::new(DType::F32, c"f32", dims, [1, 1]);
    let (mut gates, mut up) = (product([3, 256, 64]), product([3, 256, 64]));
    up.out.tensor.src[1] = gates.x.raw();
    let mut case = GateCase::new(c"SWIGLU", [256, 3, 1, 1]);
    case.out.tensor.src[..2].copy_from_slice(&[gates.out.raw(), up.out.raw()]);
    let mut down = product([3, 16, 256]);
    down.out.tensor.src[1] = case.out.raw();
    let nodes = [&mut gates.out, &mut up.out, &mut case.out, &mut down.out];
    let mut graph = Graph(nodes.map(TestTensor::raw).into());
    assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
    gates.check();
    case.gate.fill(&to_bytes(&gates.out.floats()));
    case.up.fill(&to_bytes(&up.out.floats()));
    assert_close(&case.out.floats(), &case.expected());
    down.x.fill(&to_bytes(&case.out.floats()));
    down.check();
}

#[test]
fn what_is_not_computed_is_not_taken() {
    let client = client(WITH_2D);
    let refused =
        |what: &str, case: GateCase| assert!(!client.supports(&case.out.tensor), "{what}");
    let ne = [64, 4, 1, 1];
    refused("another gate", GateCase::new(c"REGLU", ne));
    let mut merged = GateCase::new(c"SWIGLU", ne);
    merged.out.tensor.src[1] = std::ptr::null_mut();
    refused("gate and values in one", merged);
    let mut gaps = GateCase::new(c"SWIGLU", ne);
    gaps.gate.tensor.nb[1] += 4;
    refused("rows with gaps", gaps);
    let mut columns = GateCase::new(c"SWIGLU", ne);
    columns.up.tensor.nb[..2].copy_from_slice(&[256, 4]);
    refused("a transposed operand", columns);
    let mut fewer = GateCase::new(c"SWIGLU", ne);
    fewer.up.tensor.ne[1] = 2;
    refused("fewer values than gates", fewer);
    let mut halves = GateCase::new(c"SWIGLU", ne);
    halves.gate = TestTensor::new(c"gate", c"f16", ne);
    halves.out.tensor.src[0] = halves.gate.raw();
    refused("f16", halves);
}

/// Where single tokens are left to the host, so are gates: each would be a separate part of the graph.
#[test]
fn where_products_are_left_to_the_host_gates_are_too() {
    for (least_rows, takes) in [(1, true), (2, false), (32, false)] {
        let settings = PluginSettings {
            least_rows: Some(least_rows),
            ..PluginSettings::default()
        };
        let plugin = load(&WITH_2D, &settings, None).expect("a plugin");
        let client = Client::new(plugin.registry(), WITH_2D);
        let case = GateCase::new(c"SWIGLU", [64, 40, 1, 1]);
        assert_eq!(client.supports(&case.out.tensor), takes);
    }
}

#[test]
fn a_result_across_an_operand_fails() {
    let client = client(WITH_2D);
    let stream = client.open();
    let mut case = GateCase::new(c"SWIGLU", [64, 3, 1, 1]);
    let before = case.gate.floats();
    // A row further than the operand.
    for tensor in [
        &mut case.out.tensor,
        &mut case.gate.tensor,
        &mut case.up.tensor,
    ] {
        tensor.ne[1] = 2;
    }
    case.out.tensor.data = case.gate.tensor.data.wrapping_byte_add(256);
    let mut graph = Graph(vec![case.out.raw()]);
    assert_eq!(stream.compute(&mut graph), STATUS_FAILED);
    case.gate.tensor.ne[1] = 3;
    assert_eq!(case.gate.floats(), before);
    assert!(log_has(&[
        "GLU of tensor `ffn_swiglu-0` on device Millrace",
        "shares memory with one of its inputs"
    ]));
}

#[test]
fn the_report_counts_gates() {
    let report = Arc::new(DeviceReport::default());
    let settings = PluginSettings {
        least_rows: Some(1),
        ..PluginSettings::default()
    };
    let plugin = load(&WITH_2D, &settings, Some(&report)).expect("a plugin");
    let client = Client::new(plugin.registry(), WITH_2D);
    let mut case = GateCase::new(c"GEGLU", [64, 3, 1, 1]);
    let mut graph = Graph(vec![case.out.raw(), case.out.raw()]);
    assert_eq!(client.open().compute(&mut graph), STATUS_SUCCESS);
    let text = report.text();
    assert!(text.contains("  computed GEGLU: 2 calls"), "{text}");
}
