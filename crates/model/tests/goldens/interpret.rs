//! A graph interpreter: one function an op, in double precision, with no cache and no shortcuts.

use millrace_format::Checkpoint;
use millrace_model::graph::{Activation, Attention, Graph, Node, Op, Rope, RopeStyle, WeightId};
use millrace_quant::decode_rows;
use millrace_testkit::Rows;

/// Rows of one value: `[n_tokens][width]`.
type Matrix = Vec<Vec<f64>>;

/// What the tests compare.
pub(crate) struct Output {
    pub(crate) logits: Rows,
    pub(crate) hidden: Vec<Rows>,
}

/// Runs the whole prompt in one pass.
pub(crate) fn run(graph: &Graph, checkpoint: &Checkpoint, tokens: &[u32]) -> Output {
    let weights = (0..graph.weights.len()).map(|i| load(graph, checkpoint, WeightId(i)));
    let weights: Vec<Matrix> = weights.collect();
    let mut values: Vec<Matrix> = vec![Vec::new(); graph.values.len()];
    for node in &graph.nodes {
        let inputs: Vec<&Matrix> = node.inputs.iter().map(|value| &values[value.0]).collect();
        let out = apply(graph, node, &weights, &inputs, tokens);
        let width = graph.values[node.output.0].width;
        assert!(
            out.iter().all(|row| row.len() == width),
            "{}: width",
            node.label
        );
        values[node.output.0] = out;
    }
    let rows = |value: &millrace_model::graph::ValueId| Rows {
        width: graph.values[value.0].width,
        data: values[value.0]
            .iter()
            .flatten()
            .map(|x| *x as f32)
            .collect(),
    };
    Output {
        logits: rows(&graph.logits.expect("a graph with logits")),
        hidden: graph.hidden.iter().map(rows).collect(),
    }
}

fn load(graph: &Graph, checkpoint: &Checkpoint, id: WeightId) -> Matrix {
    let weight = &graph.weights[id.0];
    let tensor = checkpoint
        .tensor(&weight.name)
        .expect("the graph's weights are in the file");
    let mut out = vec![0.0; weight.n * weight.k];
    decode_rows(
        weight.dtype,
        tensor.bytes,
        weight.n,
        weight.k,
        0..weight.n,
        &mut out,
    )
    .expect("checked when the graph was built");
    out.chunks(weight.k)
        .map(|row| row.iter().map(|x| f64::from(*x)).collect())
        .collect()
}

fn apply(
    graph: &Graph,
    node: &Node,
    weights: &[Matrix],
    inputs: &[&Matrix],
    tokens: &[u32],
) -> Matrix {
    match &node.op {
        Op::Embed { table, scale } => {
            let scaled = |id: &u32| {
                weights[table.0][*id as usize]
                    .iter()
                    .map(|x| x * f64::from(*scale))
                    .collect()
            };
            tokens.iter().map(scaled).collect()
        }
        Op::RmsNorm {
            weight,
            eps,
            offset,
            group,
        } => {
            let weight = &weights[weight.0][0];
            let row = |row: &Vec<f64>| {
                row.chunks(*group)
                    .flat_map(|x| norm(x, weight, f64::from(*eps), f64::from(*offset)))
                    .collect()
            };
            inputs[0].iter().map(row).collect()
        }
        Op::Linear { weight, bias } => {
            let bias = bias.map(|bias| &weights[bias.0][0]);
            let output = |x: &Vec<f64>, (i, w): (usize, &Vec<f64>)| {
                dot(w, x) + bias.map_or(0.0, |bias| bias[i])
            };
            let row = |x| {
                weights[weight.0]
                    .iter()
                    .enumerate()
                    .map(|w| output(x, w))
                    .collect()
            };
            inputs[0].iter().map(row).collect()
        }
        Op::Rope { rope, head_dim } => {
            let rope = &graph.ropes[rope.0];
            let row = |(position, row): (usize, &Vec<f64>)| {
                row.chunks(*head_dim)
                    .flat_map(|head| rotate(head, rope, position))
                    .collect()
            };
            inputs[0].iter().enumerate().map(row).collect()
        }
        Op::Attention(attention) => attend(attention, inputs[0], inputs[1], inputs[2]),
        Op::Glu { activation } => zip(inputs[0], inputs[1], |gate, up| act(*activation, gate) * up),
        Op::Add => zip(inputs[0], inputs[1], |a, b| a + b),
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn zip(a: &Matrix, b: &Matrix, f: impl Fn(f64, f64) -> f64) -> Matrix {
    let row = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect();
    a.iter().zip(b).map(row).collect()
}

fn norm(x: &[f64], weight: &[f64], eps: f64, offset: f64) -> Vec<f64> {
    let scale = 1.0 / (dot(x, x) / x.len() as f64 + eps).sqrt();
    x.iter()
        .zip(weight)
        .map(|(x, w)| x * scale * (w + offset))
        .collect()
}

fn act(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
    }
}

fn rotate(head: &[f64], rope: &Rope, position: usize) -> Vec<f64> {
    let mut out = head.to_vec();
    for (i, freq) in rope.inv_freq.iter().enumerate() {
        let (a, b) = match rope.style {
            RopeStyle::HalfSplit => (i, i + rope.n_rot / 2),
            RopeStyle::Interleaved => (2 * i, 2 * i + 1),
        };
        let (sin, cos) = (position as f64 * f64::from(*freq)).sin_cos();
        let factor = f64::from(rope.attention_factor);
        out[a] = factor * (head[a] * cos - head[b] * sin);
        out[b] = factor * (head[a] * sin + head[b] * cos);
    }
    out
}

fn attend(attention: &Attention, q: &Matrix, k: &Matrix, v: &Matrix) -> Matrix {
    let (d, shared) = (attention.head_dim, attention.n_heads / attention.n_kv_heads);
    let one = |position: usize, head: usize| {
        let first = attention
            .window
            .map_or(0, |window| (position + 1).saturating_sub(window));
        let query = &q[position][head * d..][..d];
        let kv = head / shared * d;
        let score = |p: usize| dot(query, &k[p][kv..][..d]) * f64::from(attention.scale);
        let scores: Vec<f64> = (first..=position).map(score).collect();
        let max = scores.iter().copied().fold(f64::MIN, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let mut out = vec![0.0; d];
        for (weight, p) in weights.iter().zip(first..) {
            for (out, v) in out.iter_mut().zip(&v[p][kv..][..d]) {
                *out += weight / sum * v;
            }
        }
        out
    };
    let row = |position| {
        (0..attention.n_heads)
            .flat_map(|head| one(position, head))
            .collect()
    };
    (0..q.len()).map(row).collect()
}
