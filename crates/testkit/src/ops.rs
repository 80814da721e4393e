//! An op that no crate knows: a test of a graph's contract with ops of other programs.

use millrace_graph::{
    Extension, Graph, Node, Op, Operation, Real, SequenceMemory, Shapes, StateShape, TokenContext,
    Value, ValueId,
};

/// A leaky sum over the tokens: `s = s / 2 + x`, `out = x + s / 8`. Inputs: x.
#[derive(Debug)]
pub struct LeakySum {
    /// Which state of the sequence, and its elements: as many as x has.
    pub state: StateShape,
}

impl LeakySum {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, state: &mut [R], out: &mut [R]) {
        let [half, eighth] = [0.5, 0.125].map(R::from_f64);
        for ((x, s), out) in row.inputs[0].iter().zip(state).zip(out) {
            *s = *s * half + *x;
            *out = *x + *s * eighth;
        }
    }
}

impl Operation for LeakySum {
    fn name(&self) -> &'static str {
        "leaky_sum"
    }

    fn arity(&self) -> usize {
        1
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let widths = [shapes.input(0), shapes.output()];
        match widths == [self.state.n_elems; 2] {
            true => Ok(()),
            false => Err(format!(
                "{widths:?} elements, {} of state",
                self.state.n_elems
            )),
        }
    }

    fn memory(&self) -> SequenceMemory {
        SequenceMemory::State(self.state)
    }

    fn row(&self, row: &TokenContext<'_, f32>, state: &mut [f32], out: &mut [f32]) {
        self.compute(row, state, out);
    }

    fn row_f64(&self, row: &TokenContext<'_, f64>, state: &mut [f64], out: &mut [f64]) {
        self.compute(row, state, out);
    }
}

/// Puts a [`LeakySum`] behind every node of that label: ops that read the node's result then read the sum's.
pub fn add_leaky_sums(graph: &mut Graph, label: &str) {
    let nodes = std::mem::take(&mut graph.nodes);
    let mut index = 0;
    for node in nodes {
        let (from, is_one) = (node.output, node.label == label);
        let layer = node.layer;
        graph.nodes.push(node);
        if is_one {
            let n_elems = graph.width(from);
            let output = ValueId(graph.values.len());
            graph.values.push(Value { width: n_elems });
            let state = StateShape { index, n_elems };
            graph.nodes.push(Node {
                op: Op::Extension(Extension::new(LeakySum { state })),
                inputs: vec![from],
                output,
                layer,
                label: "leaky_sum",
            });
            index += 1;
        }
    }
    redirect(graph);
}

/// Makes every op behind a sum read the sum in place of the sum's input.
fn redirect(graph: &mut Graph) {
    let mut now: Vec<ValueId> = (0..graph.values.len()).map(ValueId).collect();
    for node in &mut graph.nodes {
        for input in &mut node.inputs {
            *input = now[input.0];
        }
        if node.label == "leaky_sum" {
            now[node.inputs[0].0] = node.output;
        }
    }
    for hidden in &mut graph.hidden {
        *hidden = now[hidden.0];
    }
}
