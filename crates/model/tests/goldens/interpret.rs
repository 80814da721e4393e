//! Runs a graph by its ops' definitions, in double precision, with no cache and no shortcuts.

use millrace_format::Checkpoint;
use millrace_graph::{
    Graph, Sequence, ValueId, Weight, WeightId, WeightSource, WeightValues, exact,
};
use millrace_model::derive::derive;
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
    let bytes = |name: &str| {
        let tensor = checkpoint.tensor(name);
        tensor.expect("the graph's weights are in the file").bytes
    };
    let (n, k) = (weight.n, weight.k);
    let decode = |bytes: &[u8], n: usize, rows: std::ops::Range<usize>| {
        let mut out = vec![0.0; rows.len() * k];
        decode_rows(weight.dtype, bytes, n, k, rows, &mut out)
            .expect("checked when the graph was built");
        out.into_iter().map(f64::from).collect::<Vec<f64>>()
    };
    match &weight.source {
        WeightSource::Whole => {
            let n = weight.n_experts * n;
            decode(bytes(&weight.name), n, 0..n)
        }
        WeightSource::Rows { first, n_rows } => {
            let tensor = bytes(&weight.name);
            if weight.n == 1 && weight.n_experts == 1 {
                // Elements of a vector.
                let mut out = vec![0.0; *n_rows];
                decode_rows(weight.dtype, tensor, 1, *n_rows, 0..1, &mut out)
                    .expect("checked when the graph was built");
                let part = &out[*first..][..k];
                return part.iter().copied().map(f64::from).collect();
            }
            let rows = |expert: usize| expert * n_rows + first;
            let all = weight.n_experts * n_rows;
            let matrices = (0..weight.n_experts).map(rows);
            matrices
                .flat_map(|at| decode(tensor, all, at..at + n))
                .collect()
        }
        WeightSource::Experts(names) => {
            let matrix = |name: &String| decode(bytes(name), n, 0..n);
            names.iter().flat_map(matrix).collect()
        }
        WeightSource::Derived(_) => {
            let derived = derive(checkpoint, weight).expect("tensors that were checked");
            let n = weight.n_experts * n;
            decode(&derived.expect("a weight that is derived"), n, 0..n)
        }
    }
}
