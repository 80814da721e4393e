//! Runs a graph by its ops' definitions, in double precision, with no cache and no shortcuts.

use millrace_format::Checkpoint;
use millrace_graph::{Graph, Sequence, ValueId, Weight, WeightId, WeightValues, exact};
use millrace_quant::decode_rows;
use millrace_testkit::GoldenMatrix;

/// What the tests compare.
pub(crate) struct Output {
    pub(crate) logits: GoldenMatrix,
    pub(crate) hidden: Vec<GoldenMatrix>,
}

/// Every weight of a graph in double precision, `[n, k]`.
struct Numbers(Vec<(usize, Vec<f64>)>);

impl WeightValues<f64> for Numbers {
    fn row(&self, id: WeightId, row: usize, out: &mut [f64]) {
        let (k, values) = &self.0[id.0];
        out.copy_from_slice(&values[row * k..][..*k]);
    }

    fn vector(&self, id: WeightId) -> &[f64] {
        &self.0[id.0].1
    }
}

/// Runs the whole prompt in one pass.
pub(crate) fn run(graph: &Graph, checkpoint: &Checkpoint, tokens: &[u32]) -> Output {
    millrace_graph::check(graph).expect("a graph that makes sense");
    let load = |weight: &Weight| (weight.k, load(weight, checkpoint));
    let sequence = Sequence {
        graph,
        weights: &Numbers(graph.weights.iter().map(load).collect()),
        tokens,
        round: exact,
    };
    let values = sequence.values();
    let rows = |value: &ValueId| GoldenMatrix {
        width: graph.width(*value),
        data: values[value.0].iter().map(|x| *x as f32).collect(),
    };
    Output {
        logits: rows(&graph.logits.expect("a graph with logits")),
        hidden: graph.hidden.iter().map(rows).collect(),
    }
}

fn load(weight: &Weight, checkpoint: &Checkpoint) -> Vec<f64> {
    let tensor = checkpoint
        .tensor(&weight.name)
        .expect("the graph's weights are in the file");
    let (n, k) = (weight.n, weight.k);
    let mut out = vec![0.0; n * k];
    decode_rows(weight.dtype, tensor.bytes, n, k, 0..n, &mut out)
        .expect("checked when the graph was built");
    out.into_iter().map(f64::from).collect()
}
