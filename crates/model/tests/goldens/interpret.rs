//! Runs a graph by its ops' definitions, in double precision, with no cache and no shortcuts.

use millrace_format::Checkpoint;
use std::ops::Range;

use millrace_graph::{Graph, Sequence, ValueId, Weight, WeightId, WeightSource, WeightValues};
use millrace_model::derive::derive;
use millrace_quant::decode_rows;
use millrace_testkit::GoldenMatrix;

/// Outputs that the tests compare.
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
    let numbers = Numbers(graph.weights.iter().map(load).collect());
    let sequence = Sequence::exact(graph, &numbers, tokens);
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

/// The numbers of all matrices of a weight, wherever they are.
fn load(weight: &Weight, checkpoint: &Checkpoint) -> Vec<f64> {
    let (n, k) = (weight.n, weight.k);
    let n_all = weight.n_experts * n;
    let tensor = |name: &str| {
        let tensor = checkpoint.tensor(name);
        tensor.expect("the graph's weights are in the file").bytes
    };
    let decode = |bytes: &[u8], (n, k): (usize, usize), rows: Range<usize>| {
        let mut out = vec![0.0f32; rows.len() * k];
        decode_rows(weight.dtype, bytes, n, k, rows, &mut out)
            .expect("checked when the graph was built");
        out
    };
    let numbers: Vec<f32> = match &weight.source {
        WeightSource::Whole => decode(tensor(&weight.name), (n_all, k), 0..n_all),
        WeightSource::Experts(names) => {
            let expert = |name: &String| decode(tensor(name), (n, k), 0..n);
            names.iter().flat_map(expert).collect()
        }
        WeightSource::Derived(_) => {
            let bytes = derive(checkpoint, weight).unwrap_or_else(|e| panic!("{e}"));
            decode(
                &bytes.expect("a weight that is derived"),
                (n_all, k),
                0..n_all,
            )
        }
        WeightSource::Rows { first, n_rows } => {
            let bytes = tensor(&weight.name);
            // Of a vector, elements.
            let is_vector = checkpoint
                .tensor(&weight.name)
                .is_some_and(|tensor| tensor.info.shape.len() == 1);
            match is_vector {
                true => decode(bytes, (*n_rows, 1), *first..first + k),
                false => {
                    let n_tensor = weight.n_experts * n_rows;
                    let matrix = |matrix: usize| {
                        let first = matrix * n_rows + first;
                        decode(bytes, (n_tensor, k), first..first + n)
                    };
                    (0..weight.n_experts).flat_map(matrix).collect()
                }
            }
        }
    };
    numbers.into_iter().map(f64::from).collect()
}
