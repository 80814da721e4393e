//! An op: in a model it gives the same by its kernel, by its definition and on every target's host part.

use crate::model::{logits, on_target, open};
use millrace_graph::{
    Graph, Halve, Keys, Node, Op, Scale, TokenContext, Value, ValueId, WeightId, WeightValues,
    exact,
};
use millrace_kernels::Level;
use millrace_testkit::Golden;
use millrace_testkit::compare::assert_logits_close;
use std::sync::Arc;

const MODEL: &str = "dummy_dense";

/// Puts a half and its double behind a value: what read it reads the double.
fn halve_and_double(graph: &mut Graph, at: usize) {
    let from = graph.nodes[at].output;
    let (width, layer) = (graph.width(from), graph.nodes[at].layer);
    let first = graph.values.len();
    let [half, double] = [first, first + 1].map(ValueId);
    graph.values.extend([Value { width }, Value { width }]);
    for node in &mut graph.nodes[at + 1..] {
        for input in node.inputs.iter_mut().filter(|input| **input == from) {
            *input = double;
        }
    }
    if graph.logits == Some(from) {
        graph.logits = Some(double);
    }
    let node = |op: Op, input, output, label| Node {
        op,
        inputs: vec![input],
        output,
        layer,
        label,
    };
    let double_op = Scale { factor: 2.0 }.into();
    let added = [
        node(Halve.into(), from, half, "half"),
        node(double_op, half, double, "double"),
    ];
    graph.nodes.splice(at + 1..at + 1, added);
}

struct NoWeights;

impl WeightValues<f32> for NoWeights {
    fn row(&self, _: WeightId, _: usize, _: &mut [f32]) {
        unreachable!("the op has no weight");
    }

    fn vector(&self, _: WeightId) -> &[f32] {
        unreachable!("the op has no weight")
    }
}

fn definition_halves() {
    let op = Op::from(Halve);
    assert_eq!(
        (op.name(), op.arity(), op.in_place()),
        ("halve", 1, &[0][..])
    );
    let model = open(MODEL);
    let inputs = [&[1.0, -3.0, 0.25][..]];
    let row = TokenContext {
        graph: &model.model().graph,
        weights: &NoWeights,
        token: 0,
        position: 0,
        inputs: &inputs,
        given: &[],
        keys: Keys::default(),
        round: exact,
    };
    let mut out = [0.0; 3];
    op.row(&row, &mut [], &mut out);
    assert_eq!(out, [0.5, -1.5, 0.125]);
}

/// Halved and doubled, nothing of a model changes; halved alone, logits are.
pub fn check() {
    definition_halves();
    let expected = Golden::named(MODEL).expected();
    let within = |graph: &Graph, label: &str| {
        let at = graph.nodes.iter().position(|node| node.label == label);
        at.expect("a node of that label")
    };
    let changed = open(MODEL).with_graph(|graph| {
        let last = graph.nodes.len() - 1;
        halve_and_double(graph, last);
        halve_and_double(graph, within(graph, "attn_residual"));
    });
    let changed = Arc::new(changed.expect("a graph"));
    let halved = open(MODEL).with_graph(|graph| {
        let last = graph.nodes.len() - 1;
        halve_and_double(graph, last);
        let half = graph.nodes[last + 1].output;
        graph.nodes.pop();
        graph.logits = Some(half);
        graph.values.pop();
    });
    let halved = Arc::new(halved.expect("a graph"));
    for level in Level::supported() {
        let found = logits(&changed, level, &expected.tokens);
        assert_logits_close(&found, &expected.logits, &format!("both at {level}"));
        let mut found = logits(&halved, level, &expected.tokens);
        found.data.iter_mut().for_each(|logit| *logit *= 2.0);
        assert_logits_close(&found, &expected.logits, &format!("halved at {level}"));
    }
    for target in millrace_targets::ALL {
        on_target(&changed, *target, MODEL);
    }
}
