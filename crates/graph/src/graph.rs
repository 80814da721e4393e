//! Nodes, the values between them, and the weights that they read.

use crate::Op;
use millrace_quant::DType;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Index of a value (an activation) in [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub usize);

/// Index of a weight in [`Graph::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WeightId(pub usize);

/// Index of a RoPE table in [`Graph::ropes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RopeId(pub usize);

/// An activation: `[n_tokens, width]`, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Elements a token.
    pub width: usize,
}

/// Where the numbers of a weight are in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WeightSource {
    /// The tensor of the weight's name, all of it.
    #[default]
    Whole,
    /// Neighbouring rows of every matrix of that tensor, as where queries, keys and values are fused.
    Rows {
        /// The first row.
        first: usize,
        /// Rows of a matrix in the tensor.
        n_rows: usize,
    },
    /// A tensor for each expert, by name, in their order.
    Experts(Vec<String>),
    /// Computed from tensors when the checkpoint is loaded.
    Derived(Derivation),
}

/// Rows of a matrix that are parts of heads in a source matrix. The first part of all heads comes first, then the second
/// of all, then the third.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadRows {
    /// Heads.
    pub n_heads: usize,
    /// Rows of a head in the source matrix.
    pub n_rows: usize,
    /// First row and number of rows of each part within a head; zero rows for unused parts.
    pub parts: [(usize, usize); 3],
}

impl HeadRows {
    /// Row of the source matrix for row `row`.
    pub fn source(&self, row: usize) -> usize {
        let mut at = row;
        for (first, n) in self.parts {
            if at < n * self.n_heads {
                return at / n * self.n_rows + first + at % n;
            }
            at -= n * self.n_heads;
        }
        row
    }
}

/// How a weight is computed from tensors. Its numbers keep the tensor's format unless the variant names another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derivation {
    /// Rows `first, first + step, ...` of each matrix of the tensor of that name.
    EveryRow {
        /// The first row.
        first: usize,
        /// Distance between rows.
        step: usize,
        /// Rows of a matrix in the tensor.
        n_rows: usize,
    },
    /// Each matrix `[k, n]` of the tensor transposed to `[n, k]`, then the rows `first..first + n` of the
    /// result. A block format becomes bf16.
    Transposed {
        /// The first row of the transposed matrix.
        first: usize,
        /// Rows of the transposed matrix.
        n_rows: usize,
        /// Distance between the rows taken.
        step: usize,
    },
    /// The tensor holds the rows of `n_experts` heads one after the other. `k` rows of each head, from `first`
    /// on, become columns. A block format becomes bf16.
    TransposedHeads {
        /// The first row of a head.
        first: usize,
        /// Rows of a head in the tensor.
        n_rows: usize,
    },
    /// Rows of heads, which are stored one after the other in the tensor, by parts of heads.
    OfHeads(HeadRows),
    /// Blocks of MXFP4 whose nibbles and scales are two tensors, as transformers stores them: this name's
    /// `_blocks` and `_scales`. Takes the rows `first, first + step, ...` of every matrix.
    Mxfp4Parts {
        /// The first row.
        first: usize,
        /// Distance between rows.
        step: usize,
        /// Rows of a matrix in the tensors.
        n_rows: usize,
    },
    /// Each number plus 1, in f32: for a norm by mean and variance, of files that store the difference from 1.
    PlusOne,
    /// Ones in f32, without a tensor: for a norm that has no weight.
    Ones,
    /// Row `i` holds the sines and then the cosines of the position `first + i`, at wavelengths from 2π to 20,000π, in f32
    /// without a tensor (Vaswani et al. 2017, section 3.5, with halves in place of turns).
    Sinusoids {
        /// The position of the first row.
        first: usize,
    },
    /// Each row divided by its length, in the tensor's format; a block format becomes bf16. For a head that uses
    /// only directions.
    UnitRows,
}

/// A weight that the graph reads, checked against the checkpoint when the graph is built.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// The tensor's name in the checkpoint; the common part of the names, where there are several tensors.
    pub name: String,
    /// The part of the tensor that is read, or the other tensors it comes from.
    pub source: WeightSource,
    /// Matrices stacked in it, one an expert: `[n_experts, n, k]`; 1 for a plain weight.
    pub n_experts: usize,
    /// Rows (outputs) of a matrix; 1 for a vector.
    pub n: usize,
    /// Columns (inputs) of a matrix; the length of a vector.
    pub k: usize,
    /// The format it is stored in.
    pub dtype: DType,
}

impl Weight {
    /// Names of the tensors that the weight comes from.
    pub fn tensors(&self) -> Vec<Cow<'_, str>> {
        match &self.source {
            WeightSource::Experts(names) => names.iter().map(|name| name.as_str().into()).collect(),
            WeightSource::Derived(Derivation::Mxfp4Parts { .. }) => {
                let part = |part: &str| Cow::Owned(format!("{}_{part}", self.name));
                vec![part("blocks"), part("scales")]
            }
            WeightSource::Derived(Derivation::Ones | Derivation::Sinusoids { .. }) => Vec::new(),
            _ => vec![self.name.as_str().into()],
        }
    }

    /// Number of elements, all experts together.
    pub fn n_elems(&self) -> u64 {
        self.n_experts as u64 * self.n as u64 * self.k as u64
    }

    /// Size as stored; 0 where a row does not divide into blocks, which checks refuse.
    pub fn size_bytes(&self) -> u64 {
        let rows = self.n_experts.saturating_mul(self.n);
        self.dtype.size_bytes(rows, self.k).unwrap_or(0) as u64
    }
}

/// Which elements of a head RoPE rotates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Element `i` with `i + n_rot/2` (Hugging Face; ggml calls it NeoX).
    HalfSplit,
    /// Element `2i` with `2i + 1` (Llama in GGUF files, whose Q and K rows are permuted to match).
    Interleaved,
}

/// Rotation frequencies of one RoPE variant, scaling already applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Pairing of elements.
    pub style: RopeStyle,
    /// Elements of a head that rotate (a prefix); the rest pass through.
    pub n_rot: usize,
    /// `inv_freq[i]`, `n_rot/2` of them: the angle of pair `i` at position `p` is `p · inv_freq[i]`.
    pub inv_freq: Vec<f32>,
    /// Factor on cos and sin (1 unless the scaling defines one).
    pub attention_factor: f32,
}

/// One step of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Operation of the step.
    pub op: Op,
    /// Values that it reads, in the order the op names them.
    pub inputs: Vec<ValueId>,
    /// Value that it writes.
    pub output: ValueId,
    /// The transformer block it belongs to, if any.
    pub layer: Option<usize>,
    /// A short name for traces and reports: `attn_q`, `ffn_norm`, `lm_head`.
    pub label: &'static str,
}

/// A forward pass.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Graph {
    /// Steps in execution order.
    pub nodes: Vec<Node>,
    /// Activations.
    pub values: Vec<Value>,
    /// Weights, each once (a tied head reuses the embedding's entry).
    pub weights: Vec<Weight>,
    /// RoPE tables.
    pub ropes: Vec<Rope>,
    /// The hidden state entering each block, then the last block's output: `n_layers + 1` values.
    /// `hidden[0]` is the embeddings as they enter the first block.
    pub hidden: Vec<ValueId>,
    /// The final norm's output, for an encoder the result. Nodes from here on are needed only for tokens whose logits are wanted.
    pub head_input: Option<ValueId>,
    /// Logits `[n_tokens, vocab]`; an encoder has none.
    pub logits: Option<ValueId>,
}

impl Graph {
    /// Elements a token of a value; 0 if the value does not exist.
    pub fn width(&self, value: ValueId) -> usize {
        self.values.get(value.0).map_or(0, |value| value.width)
    }
}

/// The index of the last node that reads each value; `None` for values that no node reads.
pub fn last_readers(graph: &Graph) -> Vec<Option<usize>> {
    let mut last = vec![None; graph.values.len()];
    for (number, node) in graph.nodes.iter().enumerate() {
        for input in &node.inputs {
            last[input.0] = Some(number);
        }
    }
    last
}

/// The final norm's output and everything computed from it: a single row each, where one row's
/// logits are wanted.
pub fn single_row(graph: &Graph) -> Vec<ValueId> {
    let mut rows: Vec<ValueId> = graph.head_input.into_iter().collect();
    for node in &graph.nodes {
        if node.inputs.iter().any(|v| rows.contains(v)) {
            rows.push(node.output);
        }
    }
    rows
}
