//! Ops over streams and sparse gates against their formulas, at odd sizes, in both element types.

use super::{
    AddToStreams, Attention, EmbedKnown, GateFunction, GaussianTopK, MatchMagnitude, MixStreams,
    Op, Operation, PadHeads, ScaleByGate, TargetAttention,
};
use crate::{
    Executor, Graph, InOrder, Keys, Node, SequenceSpan, Shapes, TokenContext, Tokens, Value,
    ValueId, Weight, WeightId, WeightSource, WeightValues, check, exact,
};
use millrace_quant::DType;

/// A table `[n_rows, 3]` whose element is `10 · row + column`.
struct TokenRows;

impl WeightValues<f64> for TokenRows {
    fn row(&self, _id: WeightId, row: usize, out: &mut [f64]) {
        let elements = out.iter_mut().enumerate();
        elements.for_each(|(column, out)| *out = (10 * row + column) as f64);
    }

    fn vector(&self, _id: WeightId) -> &[f64] {
        &[]
    }
}

impl WeightValues<f32> for TokenRows {
    fn row(&self, _id: WeightId, row: usize, out: &mut [f32]) {
        let elements = out.iter_mut().enumerate();
        elements.for_each(|(column, out)| *out = (10 * row + column) as f32);
    }

    fn vector(&self, _id: WeightId) -> &[f32] {
        &[]
    }
}

fn graph(n_rows: usize) -> Graph {
    let table = Weight {
        name: "table".into(),
        source: WeightSource::Whole,
        n_experts: 1,
        n: n_rows,
        k: 3,
        dtype: DType::F32,
    };
    Graph {
        weights: vec![table],
        ..Graph::default()
    }
}

/// The op's row in f64. The f32 row must agree with it within rounding.
fn row(op: &dyn Operation, token: u32, inputs: &[&[f64]], width: usize) -> Vec<f64> {
    let graph = graph(4);
    let mut out = vec![f64::NAN; width];
    let context = TokenContext {
        graph: &graph,
        weights: &TokenRows,
        token,
        position: 0,
        inputs,
        given: &[],
        keys: Keys::default(),
        round: exact,
    };
    op.row_f64(&context, &mut [], &mut out);
    let singles: Vec<Vec<f32>> = inputs
        .iter()
        .map(|input| input.iter().map(|x| *x as f32).collect())
        .collect();
    let singles: Vec<&[f32]> = singles.iter().map(Vec::as_slice).collect();
    let mut single = vec![f32::NAN; width];
    let context = TokenContext {
        graph: &graph,
        weights: &TokenRows,
        token,
        position: 0,
        inputs: &singles,
        given: &[],
        keys: Keys::default(),
        round: exact,
    };
    op.row(&context, &mut [], &mut single);
    for (single, double) in single.iter().zip(&out) {
        let bound = 1e-5 * double.abs().max(1.0);
        assert!(
            (f64::from(*single) - double).abs() < bound,
            "{single} {double}"
        );
    }
    out
}

/// Irregular numbers between -2 and 2.
fn numbers(n: usize, salt: usize) -> Vec<f64> {
    let number = |i: usize| ((i * 7919 + salt * 104_729 + 17) % 4001) as f64 / 1000.0 - 2.0;
    (0..n).map(number).collect()
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            (found - expected).abs() < 1e-12,
            "{what}, {i}: {found} {expected}"
        );
    }
}

const SHAPES: [(usize, usize); 5] = [(1, 1), (2, 7), (3, 1), (4, 65), (5, 33)];

#[test]
fn streams_take_of_each_other_what_their_weights_say() {
    for (n, width) in SHAPES {
        let (x, weights) = (numbers(n * width, 1), numbers(n * n, 2));
        let found = row(&MixStreams { n_streams: n }, 0, &[&x, &weights], n * width);
        let expected: Vec<f64> = (0..n * width)
            .map(|at| {
                let (i, column) = (at / width, at % width);
                let others = (0..n).map(|j| weights[i * n + j] * x[j * width + column]);
                x[at] + others.sum::<f64>()
            })
            .collect();
        assert_close(&found, &expected, &format!("{n} streams of {width}"));
    }
}

#[test]
fn streams_take_a_row_each_by_its_weight_from_the_first_that_does() {
    for (n, width) in SHAPES {
        let (x, y, weights) = (numbers(n * width, 3), numbers(width, 4), numbers(n, 5));
        for (first, weighted) in [(0, true), (1, false), (n - 1, true)] {
            let op = AddToStreams {
                n_streams: n,
                first,
                offset: 0.5,
                weighted,
            };
            let inputs = [&x[..], &y, &weights];
            let found = row(&op, 0, &inputs[..op.arity()], n * width);
            let expected: Vec<f64> = (0..n * width)
                .map(|at| {
                    let stream = at / width;
                    let weight = if weighted { weights[stream] } else { 0.0 };
                    let added = (0.5 + weight) * y[at % width];
                    x[at] + if stream < first { 0.0 } else { added }
                })
                .collect();
            assert_close(
                &found,
                &expected,
                &format!("{n} streams of {width}, {op:?}"),
            );
        }
    }
}

#[test]
fn parts_get_the_magnitude_of_another_row() {
    let rms = |x: &[f64]| (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64).sqrt();
    for (n, width) in SHAPES {
        let (mut x, y) = (numbers(n * width, 6), numbers(width, 7));
        // One part is so small that the floor applies.
        x[..width].iter_mut().for_each(|x| *x *= 1e-4);
        let op = MatchMagnitude { floor: 1e-5 };
        let found = row(&op, 0, &[&x, &y], n * width);
        for (part, (found, x)) in found.chunks(width).zip(x.chunks(width)).enumerate() {
            let floor = f64::from(1e-5f32).sqrt();
            let factor = rms(&y) / rms(x).max(floor);
            let expected: Vec<f64> = x.iter().map(|x| x * factor).collect();
            assert_close(found, &expected, &format!("part {part} of {n} of {width}"));
            assert!(part == 0 || (rms(found) - rms(&y)).abs() < 1e-12);
        }
    }
}

#[test]
fn what_is_far_above_the_mean_counts_and_nothing_else() {
    for width in [1, 2, 7, 65, 1000] {
        for deviations in [-0.5f32, 0.0, 0.7, 1.644_853_6] {
            let x = numbers(width, 8);
            let found = row(&GaussianTopK { deviations }, 0, &[&x], width);
            let n = width as f64;
            let mean = x.iter().sum::<f64>() / n;
            // By the mean of squares, not of the distances.
            let squares = x.iter().map(|x| x * x).sum::<f64>() / n;
            let cutoff = mean + f64::from(deviations) * (squares - mean * mean).max(0.0).sqrt();
            let expected: Vec<f64> = x.iter().map(|x| (x - cutoff).max(0.0)).collect();
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-9, "{width}, {deviations}");
            }
        }
    }
}

#[test]
fn tokens_beyond_the_table_take_its_first_row() {
    let op = EmbedKnown {
        table: WeightId(0),
        scale: 2.0,
    };
    for (token, row_number) in [(0, 0), (3, 3), (4, 0), (u32::MAX, 0)] {
        let first = 20.0 * f64::from(row_number);
        assert_eq!(row(&op, token, &[], 3), [first, first + 2.0, first + 4.0]);
    }
}

#[test]
fn operands_of_other_sizes_are_refused() {
    let checked = |op: Op, widths: &[usize]| {
        let values = widths.iter().map(|width| Value { width: *width }).collect();
        let output = ValueId(widths.len() - 1);
        let node = Node {
            inputs: (0..output.0).map(ValueId).collect(),
            output,
            layer: None,
            label: "op",
            op,
        };
        let graph = Graph { values, ..graph(4) };
        node.op.check(&check::Shapes::of(&graph, &node))
    };
    let mix = MixStreams { n_streams: 3 };
    assert!(checked(mix.into(), &[21, 9, 21]).is_ok());
    for widths in [[20, 9, 20], [21, 8, 21], [21, 9, 20]] {
        assert!(checked(mix.into(), &widths).is_err(), "{widths:?}");
    }
    assert!(checked(MixStreams { n_streams: 0 }.into(), &[21, 9, 21]).is_err());
    let add = AddToStreams {
        n_streams: 3,
        first: 1,
        offset: 1.0,
        weighted: true,
    };
    assert!(checked(add.into(), &[21, 7, 3, 21]).is_ok());
    for widths in [[21, 8, 3, 21], [21, 7, 2, 21], [21, 7, 3, 7]] {
        assert!(checked(add.into(), &widths).is_err(), "{widths:?}");
    }
    let matched = MatchMagnitude { floor: 1e-5 };
    assert!(checked(matched.into(), &[21, 7, 21]).is_ok());
    assert!(checked(matched.into(), &[21, 8, 21]).is_err());
    assert!(checked(MatchMagnitude { floor: 0.0 }.into(), &[21, 7, 21]).is_err());
    let sparse = |deviations| GaussianTopK { deviations }.into();
    assert!(checked(sparse(1.0), &[21, 21]).is_ok());
    assert!(checked(sparse(f32::INFINITY), &[21, 21]).is_err());
    assert!(checked(sparse(1.0), &[21, 20]).is_err());
    let embed = EmbedKnown {
        table: WeightId(0),
        scale: 1.0,
    };
    assert!(checked(embed.into(), &[3]).is_ok());
    assert!(checked(embed.into(), &[4]).is_err());
}

#[test]
fn gates_scale_their_groups_and_padding_is_zero() {
    for (n, width) in SHAPES {
        let (x, gates) = (numbers(n * width, 6), numbers(n, 7));
        for function in [GateFunction::Sigmoid, GateFunction::Softplus] {
            let found = row(&ScaleByGate { function }, 0, &[&x, &gates], n * width);
            let factor = |gate: f64| match function {
                GateFunction::Sigmoid => 1.0 / (1.0 + (-gate).exp()),
                GateFunction::Softplus => (1.0 + gate.exp()).ln(),
            };
            let scaled = x.iter().enumerate();
            let expected: Vec<f64> = scaled
                .map(|(at, x)| x * factor(gates[at / width]))
                .collect();
            assert_close(
                &found,
                &expected,
                &format!("{n} gates of {width}, {function:?}"),
            );
        }
        let op = PadHeads {
            from: width,
            to: width + 3,
        };
        let found = row(&op, 0, &[&x], n * (width + 3));
        for (head, (found, x)) in found.chunks(width + 3).zip(x.chunks(width)).enumerate() {
            assert_eq!(found[..width], *x, "head {head}");
            assert_eq!(found[width..], [0.0; 3], "head {head}");
        }
    }
}

/// Attention of two query heads over one key head of a target.
fn over_target(window: Option<usize>) -> TargetAttention {
    TargetAttention {
        attention: Attention {
            layer: 2,
            n_heads: 2,
            n_kv_heads: 1,
            head_dim: 3,
            scale: 0.5,
            window,
            chunked: false,
            softcap: None,
            sinks: None,
            slopes: None,
        },
    }
}

fn node_of(op: TargetAttention) -> Node {
    Node {
        op: op.into(),
        inputs: vec![ValueId(0)],
        output: ValueId(1),
        layer: Some(0),
        label: "attn_target",
    }
}

/// The element `at` of the result over some of the keys, by the formula.
fn attended(at: usize, seen: std::ops::Range<usize>, [q, k, v]: [&[f64]; 3]) -> f64 {
    let d = 3;
    let weight = |key: usize| {
        let products = q[at / d * d..][..d].iter().zip(&k[key * d..]);
        (0.5 * products.map(|(q, k)| q * k).sum::<f64>()).exp()
    };
    let sum: f64 = seen.clone().map(weight).sum();
    let weighed = seen.map(|key| weight(key) * v[key * d + at % d]);
    weighed.sum::<f64>() / sum
}

/// It sees the last keys alone, and nothing where there is no target.
#[test]
fn attention_over_a_targets_keys_sees_the_last_of_them() {
    let n_keys = 5;
    let mut graph = graph(4);
    graph.values = vec![Value { width: 6 }; 2];
    let (q, k, v) = (
        numbers(6, 1),
        numbers(n_keys * 3, 2),
        numbers(n_keys * 3, 3),
    );
    let executor = Executor {
        graph: &graph,
        weights: &TokenRows,
        pool: &InOrder,
        round: exact,
    };
    // The query's position is behind the last key.
    let tokens = Tokens {
        ids: &[0],
        positions: &[n_keys as u32],
    };
    let span = SequenceSpan {
        rows: 0..1,
        first_pos: n_keys - 1,
    };
    for (window, n_seen) in [(None, 5), (Some(9), 5), (Some(3), 3), (Some(1), 1)] {
        let node = node_of(over_target(window));
        assert_eq!(node.op.check(&Shapes::of(&graph, &node)), Ok(()));
        let mut found = vec![f64::NAN; 6];
        let keys = (0, Keys { k: &k, v: &v });
        executor.over_keys(&node, (tokens, &span), &[&q], keys, &mut found);
        let expected = (0..6).map(|at| attended(at, n_keys - n_seen..n_keys, [&q, &k, &v]));
        let expected: Vec<f64> = expected.collect();
        assert_close(&found, &expected, &format!("window {window:?}"));
        executor.rows(&node, tokens, &[&q], &mut found);
        assert_eq!(found, vec![0.0; 6], "without a target");
    }
    let (mut chunked, mut narrow) = (over_target(Some(3)), over_target(None));
    chunked.attention.chunked = true;
    narrow.attention.n_heads = 3;
    for node in [chunked, narrow].map(node_of) {
        assert!(node.op.check(&Shapes::of(&graph, &node)).is_err());
    }
}
