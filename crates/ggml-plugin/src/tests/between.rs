//! Ops between products, through the border.

use super::compute::{Owned, client, numbers, to_bytes};
use super::failure::log_has;
use super::host::{BEFORE_2D, Client, Graph, WITH_2D, gate, op};
use crate::load::load;
use crate::settings::Settings;
use crate::sys::abi::{FLAG_COMPUTE, STATUS_FAILED, STATUS_SUCCESS};
use std::ffi::CStr;

/// An op with its operands, random.
struct Case {
    a: Owned,
    b: Owned,
    out: Owned,
}

fn random(name: &CStr, ne: [i64; 4], seed: u32) -> Owned {
    let mut owned = Owned::new(name, c"f32", ne);
    owned.fill(&to_bytes(&numbers(
        ne.iter().product::<i64>() as usize,
        seed,
    )));
    owned
}

impl Case {
    /// `name` of `ne`, the second operand of `of_b`.
    fn new(name: &CStr, ne: [i64; 4], of_b: [i64; 4]) -> Case {
        let (mut a, mut b) = (random(c"a", ne, 1), random(c"b", of_b, 2));
        let mut out = Owned::new(c"ffn_out-0", c"f32", ne);
        out.tensor.op = op(name);
        out.tensor.flags = FLAG_COMPUTE;
        out.tensor.src[0] = a.raw();
        if name != c"RMS_NORM" {
            out.tensor.src[1] = b.raw();
        }
        Case { a, b, out }
    }

    fn gated(kind: &CStr, ne: [i64; 4]) -> Case {
        let mut case = Case::new(c"GLU", ne, ne);
        case.out.tensor.op_params[0] = gate(kind);
        case
    }

    fn norm(ne: [i64; 4]) -> Case {
        let mut case = Case::new(c"RMS_NORM", ne, [1, 1, 1, 1]);
        case.out.tensor.op_params[0] = 1e-2_f32.to_bits().cast_signed();
        case
    }
}

/// What the case is to give, of f64.
fn expected(case: &Case) -> Vec<f64> {
    let row = case.out.tensor.ne[0] as usize;
    let a: Vec<f64> = case.a.floats().into_iter().map(f64::from).collect();
    let b: Vec<f64> = case.b.floats().into_iter().map(f64::from).collect();
    let with_b = |f: &dyn Fn(f64, f64) -> f64| {
        let pairs = a.iter().zip(b.iter().cycle());
        pairs.map(|(a, b)| f(*a, *b)).collect()
    };
    let tanh = |x: f64| (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh();
    match case.out.tensor.op {
        found if found == op(c"ADD") => with_b(&|a, b| a + b),
        found if found == op(c"MUL") => with_b(&|a, b| a * b),
        found if found == op(c"GLU") => match case.out.tensor.op_params[0] == gate(c"SWIGLU") {
            true => with_b(&|a, b| a / (1.0 + (-a).exp()) * b),
            false => with_b(&|a, b| a / 2.0 * (1.0 + tanh(a)) * b),
        },
        _ => {
            let norm = |row: &[f64]| {
                let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
                row.iter()
                    .map(|x| x / (mean + 1e-2).sqrt())
                    .collect::<Vec<_>>()
            };
            a.chunks(row).flat_map(norm).collect()
        }
    }
}

fn assert_close(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let error = (f64::from(*found) - expected).abs();
        assert!(error < 2e-6, "{found} for {expected}");
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for ne in [
        [7, 1, 1, 1],
        [333, 3, 1, 1],
        [64, 5, 3, 1],
        [2048, 40, 1, 1],
    ] {
        let row = [ne[0], 1, 1, 1];
        for name in [c"ADD", c"MUL"] {
            cases.extend([Case::new(name, ne, ne), Case::new(name, ne, row)]);
        }
        cases.extend([Case::gated(c"SWIGLU", ne), Case::gated(c"GEGLU", ne)]);
        cases.push(Case::norm(ne));
    }
    cases
}

#[test]
fn ops_between_products_are_as_defined() {
    for host in [BEFORE_2D, WITH_2D] {
        let client = client(host);
        let stream = client.open();
        client.set_threads(&stream, 2);
        for mut case in cases() {
            assert!(client.supports(&case.out.tensor));
            let expected = expected(&case);
            let mut graph = Graph(vec![case.out.raw()]);
            assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
            assert_close(&case.out.floats(), &expected);
        }
    }
}

/// Hosts write a result over an operand that nobody needs again.
#[test]
fn results_may_lie_in_an_operand_s_place() {
    let client = client(WITH_2D);
    let stream = client.open();
    for second in [false, true] {
        for mut case in cases() {
            let over = if second { &case.b } else { &case.a };
            if over.tensor.ne != case.out.tensor.ne {
                continue;
            }
            case.out.tensor.data = over.tensor.data;
            let expected = expected(&case);
            let mut graph = Graph(vec![case.out.raw()]);
            assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
            let over = if second { &case.b } else { &case.a };
            assert_close(&over.floats(), &expected);
        }
    }
    // Over both: a square in place.
    let mut case = Case::new(c"MUL", [40, 2, 1, 1], [40, 2, 1, 1]);
    case.out.tensor.src[1] = case.a.raw();
    case.out.tensor.data = case.a.tensor.data;
    let expected: Vec<f64> = case
        .a
        .floats()
        .iter()
        .map(|x| f64::from(*x).powi(2))
        .collect();
    let mut graph = Graph(vec![case.out.raw()]);
    assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
    assert_close(&case.a.floats(), &expected);
}

/// A layer's end: product, sum, norm and product, each of what the one before gives, as one graph.
#[test]
fn a_graph_of_products_and_ops_between_them() {
    use super::compute::Case as Product;
    use millrace_quant::DType;
    let client = client(WITH_2D);
    let stream = client.open();
    let mut first = Product::new(DType::F32, c"f32", [3, 256, 64], [1, 1]);
    let mut sum = Case::new(c"ADD", [256, 3, 1, 1], [256, 3, 1, 1]);
    sum.out.tensor.src[0] = first.out.raw();
    let mut norm = Case::norm([256, 3, 1, 1]);
    norm.out.tensor.src[0] = sum.out.raw();
    let mut second = Product::new(DType::F32, c"f32", [3, 16, 256], [1, 1]);
    second.out.tensor.src[1] = norm.out.raw();
    let mut graph = Graph(vec![
        first.out.raw(),
        sum.out.raw(),
        norm.out.raw(),
        second.out.raw(),
    ]);
    assert_eq!(stream.compute(&mut graph), STATUS_SUCCESS);
    first.check();
    sum.a.fill(&to_bytes(&first.out.floats()));
    assert_close(&sum.out.floats(), &expected(&sum));
    norm.a.fill(&to_bytes(&sum.out.floats()));
    assert_close(&norm.out.floats(), &expected(&norm));
    second.x.fill(&to_bytes(&norm.out.floats()));
    second.check();
}

#[test]
fn what_is_not_computed_is_not_taken() {
    let client = client(WITH_2D);
    let refused = |what: &str, case: Case| assert!(!client.supports(&case.out.tensor), "{what}");
    let ne = [64, 4, 1, 1];
    refused("columns that repeat", Case::new(c"ADD", ne, [1, 4, 1, 1]));
    refused(
        "rows that repeat in turn",
        Case::new(c"MUL", ne, [64, 2, 1, 1]),
    );
    refused("numbers", Case::new(c"ADD", [1, 64, 1, 1], [1, 1, 1, 1]));
    refused("another gate", Case::gated(c"REGLU", ne));
    let mut merged = Case::gated(c"SWIGLU", ne);
    merged.out.tensor.src[1] = std::ptr::null_mut();
    refused("gate and values in one", merged);
    let mut gaps = Case::norm(ne);
    gaps.a.tensor.nb[1] += 4;
    refused("rows with gaps", gaps);
    let mut columns = Case::new(c"ADD", ne, ne);
    columns.b.tensor.nb[..2].copy_from_slice(&[256, 4]);
    refused("a transposed operand", columns);
    let mut halves = Case::new(c"ADD", ne, ne);
    halves.a = Owned::new(c"a", c"f16", ne);
    halves.out.tensor.src[0] = halves.a.raw();
    refused("f16", halves);
    let mut other = Case::norm(ne);
    other.out.tensor.op = op(c"SOFT_MAX");
    refused("another op", other);
}

/// Where single tokens are left to the host, ops between products are: each would be a part of its own.
#[test]
fn where_products_are_left_to_the_host_these_are_too() {
    for (least_rows, takes) in [(1, true), (2, false), (32, false)] {
        let settings = Settings {
            least_rows: Some(least_rows),
            ..Settings::default()
        };
        let plugin = load(&WITH_2D, &settings, None).expect("a plugin");
        let client = Client::new(plugin.registry(), WITH_2D);
        assert_eq!(
            client.supports(&Case::norm([64, 40, 1, 1]).out.tensor),
            takes
        );
    }
}

#[test]
fn a_result_across_an_operand_fails() {
    let client = client(WITH_2D);
    let stream = client.open();
    let mut case = Case::new(c"ADD", [64, 3, 1, 1], [64, 3, 1, 1]);
    let before = case.a.floats();
    // A row further than the operand.
    case.out.tensor.ne[1] = 2;
    case.a.tensor.ne[1] = 2;
    case.b.tensor.ne[1] = 2;
    case.out.tensor.data = case.a.tensor.data.wrapping_byte_add(256);
    let mut graph = Graph(vec![case.out.raw()]);
    assert_eq!(stream.compute(&mut graph), STATUS_FAILED);
    case.a.tensor.ne[1] = 3;
    assert_eq!(case.a.floats(), before);
    assert!(log_has(&[
        "ADD of tensor `ffn_out-0` on device Millrace",
        "shares memory with what it is computed from"
    ]));
}
