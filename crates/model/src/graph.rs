//! The op graph: what a forward pass computes, with shapes, and no word on how or where.
//!
//! A graph is a list of [`Node`]s in execution order. Every node reads values produced by earlier
//! nodes and writes one value of shape `[n_tokens, width]` f32; only [`Op::Attention`] looks
//! across tokens. Weights are named as the checkpoint names them.

use millrace_quant::DType;
use serde::{Deserialize, Serialize};

/// Index of a value (an activation) in [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub usize);

/// Index of a weight in [`Graph::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WeightId(pub usize);

/// Index of a RoPE table in [`Graph::ropes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RopeId(pub usize);

/// An activation: `[n_tokens, width]` f32, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Elements a token.
    pub width: usize,
}

/// A weight the graph reads, checked against the checkpoint when the graph is built.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// The tensor's name in the checkpoint.
    pub name: String,
    /// Rows (outputs) of a matrix; 1 for a vector.
    pub n: usize,
    /// Columns (inputs) of a matrix; the length of a vector.
    pub k: usize,
    /// The format it is stored in.
    pub dtype: DType,
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

/// The gate's activation in a gated feed-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// GELU by its tanh approximation.
    GeluTanh,
}

/// Attention of one layer: causal, grouped-query, optionally windowed.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// The layer whose KV cache it appends to and reads.
    pub layer: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements a head.
    pub head_dim: usize,
    /// Factor on the scores before softmax.
    pub scale: f32,
    /// With `Some(w)`, a query at position `p` sees keys at positions `p-w+1 ..= p`.
    pub window: Option<usize>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `out[t] = scale · table[token[t]]`; no inputs.
    Embed {
        /// `[vocab, d_model]`.
        table: WeightId,
        /// Factor on the row (Gemma: `sqrt(d_model)`), 1 otherwise.
        scale: f32,
    },
    /// Root-mean-square norm over each group of `group` elements:
    /// `x / sqrt(mean(x²) + eps) · (weight + offset)`. Inputs: x.
    RmsNorm {
        /// `[group]`.
        weight: WeightId,
        /// Added to the mean of squares.
        eps: f32,
        /// Added to the weight (1 for Gemma's Hugging Face files, 0 otherwise).
        offset: f32,
        /// Elements normalised together: `d_model`, or `head_dim` for Q and K norms.
        group: usize,
    },
    /// `out[t] = weight · x[t] (+ bias)`. Inputs: x.
    Linear {
        /// `[n, k]`.
        weight: WeightId,
        /// `[n]`.
        bias: Option<WeightId>,
    },
    /// Rotates each head of x by the token's position. Inputs: x.
    Rope {
        /// Which table.
        rope: RopeId,
        /// Elements a head.
        head_dim: usize,
    },
    /// Appends k and v to the layer's cache, then attends. Inputs: q, k, v.
    Attention(Attention),
    /// `act(gate) · up`. Inputs: gate, up.
    Glu {
        /// Activation on the gate.
        activation: Activation,
    },
    /// `a + b`. Inputs: a, b.
    Add,
}

/// One step of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it does.
    pub op: Op,
    /// What it reads, in the order the op names them.
    pub inputs: Vec<ValueId>,
    /// What it writes.
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
    /// The final norm's output; from here on a node is needed only for tokens whose logits are.
    pub head_input: Option<ValueId>,
    /// Logits `[n_tokens, vocab]`.
    pub logits: Option<ValueId>,
}
