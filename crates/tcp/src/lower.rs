//! Llama onto the machine, op by op.
//!
//! A pass is lowered to programs that every layer shares: [`embed`], [`attention`], [`feed_forward`], [`head`], and
//! [`reduce`] where several chips hold parts of a layer. Their axes have the names of the published walk through Llama
//! 3: `B, s_q, s_k, D, h_kv, G, d_k_prime, f, d_k, F, V`.
//!
//! Activations rest in both clusters, so that each works on its half of a product's rows. Up to 32 tokens are *held*:
//! tokens are stationary in the tensor register files and weights stream past them, at the rate of memory. More are
//! *streamed*: weights are stationary, tokens stream past. The parts of a row of weights are reduced in packets and
//! over time. Where a lane's registers do not hold a whole row, they are also reduced around rings of slices.
//!
//! Plans of the [target](crate::target) have other programs: [`ops`], one each, or a [`chain`] of consecutive ops.
//!
//! Pure: the same arguments give the same programs.

mod attention;
mod blocks;
mod builder;
pub mod chain;
mod linear;
pub mod ops;
pub mod reduction;
mod rope;
mod rows;

pub use blocks::{attention, embed, exchange, feed_forward, head, reduce};

use crate::axes::AxesError;
use crate::{Element, Machine, Program};
use millrace_graph::{Activation, RopeStyle};
use millrace_model::ModelConfig;

/// How weights of layers are stored, and the types in which they are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weights {
    /// bf16 times bf16.
    Bf16,
    /// E4M3 with a scale a row, times activations cast to E4M3.
    Fp8,
    /// Four bits with a scale a row, widened to E4M3 when they are fetched.
    Int4,
    /// Eight bits with a scale a row, times activations in eight bits with a scale a token; sums are integers.
    Int8,
}

impl Weights {
    /// The stored element.
    pub fn stored(self) -> Element {
        match self {
            Weights::Bf16 => Element::Bf16,
            Weights::Fp8 => Element::E4m3,
            Weights::Int4 => Element::I4,
            Weights::Int8 => Element::I8,
        }
    }

    /// Stored value of the largest element of a row; none where rows have no scale.
    pub fn largest(self) -> Option<f32> {
        match self {
            Weights::Bf16 => None,
            Weights::Fp8 => Some(448.0),
            Weights::Int4 => Some(7.0),
            Weights::Int8 => Some(127.0),
        }
    }

    /// The element that is multiplied.
    pub fn factor(self) -> Element {
        match self {
            Weights::Bf16 => Element::Bf16,
            Weights::Fp8 | Weights::Int4 => Element::E4m3,
            Weights::Int8 => Element::I8,
        }
    }

    /// Factor of activations that a row's scale takes back.
    pub fn activation_scale(self) -> f32 {
        match self {
            Weights::Bf16 | Weights::Fp8 | Weights::Int4 => ACTIVATION_SCALE,
            // A token's own scale takes it back.
            Weights::Int8 => 1.0,
        }
    }
}

/// Value in eight bits of the largest activation of a token.
pub(crate) const LARGEST_I8: f32 = 127.0;

/// Factor of activations before they are cast to E4M3, so that small ones stay normal: 2^-10 is then the smallest
/// normal value and 28 the largest. Rows' scales take it back. Assumed: how the vendor's stack scales activations is
/// not published.
pub(crate) const ACTIVATION_SCALE: f32 = 16.0;

/// How weights wait in data memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffering {
    /// One region: a tile is loaded, then multiplied.
    Single,
    /// Two halves: a tile is loaded while the other is multiplied.
    Double,
}

/// Options of lowering.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpLowerOptions {
    /// Weights of the layers; the head's are bf16.
    pub weights: Weights,
    /// How weights wait in data memory.
    pub buffering: Buffering,
    /// Which elements of a head rotate together: decides the order of rows in the files of Q and K.
    pub rope: RopeStyle,
    /// Chips that share each layer (tensor parallel).
    pub n_shards: u64,
    /// Tokens up to which they are held and weights streamed.
    pub max_held: u64,
}

impl TcpLowerOptions {
    /// One chip, one region of weights, rows as Hugging Face orders them.
    pub fn plain(weights: Weights) -> TcpLowerOptions {
        TcpLowerOptions {
            weights,
            buffering: Buffering::Single,
            rope: RopeStyle::HalfSplit,
            n_shards: 1,
            max_held: MAX_HELD,
        }
    }

    /// The same for all ops of a model whose layers have such weights.
    #[must_use]
    pub fn of_model(self, weights: Weights) -> TcpLowerOptions {
        let max_held = match weights {
            // Held tokens are side by side in a flit, where their scales cannot be brought.
            Weights::Int8 => 1,
            _ => MAX_HELD,
        };
        TcpLowerOptions { max_held, ..self }
    }

    /// The same with weights read ahead.
    #[must_use]
    pub fn read_ahead(self) -> TcpLowerOptions {
        TcpLowerOptions {
            buffering: Buffering::Double,
            ..self
        }
    }
}

/// The sizes of a pass: static buckets, in which mask and positions mark the valid part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PassSizes {
    /// Sequences (`B`).
    pub batch: u64,
    /// Tokens of each (`s_q`).
    pub n_tokens: u64,
    /// Keys in the bucket of attention (`s_k`).
    pub n_keys: u64,
    /// Keys that the cache and the table of positions have room for.
    pub n_cache: u64,
}

impl PassSizes {
    /// Tokens of all sequences.
    pub fn n_rows(&self) -> u64 {
        self.batch * self.n_tokens
    }
}

/// Tokens up to which they are held and weights streamed.
pub(crate) const MAX_HELD: u64 = 32;

/// The bucket for so many tokens: a power of two where they are held, then multiples of 64, beyond 1,024 of
/// 256.
pub fn token_bucket(n_tokens: u64) -> u64 {
    match n_tokens {
        0..=MAX_HELD => n_tokens.max(1).next_power_of_two(),
        33..=1024 => n_tokens.next_multiple_of(64),
        n => n.next_multiple_of(256),
    }
}

/// The bucket for so many keys: a power of two, at least 64.
pub fn key_bucket(n_keys: u64) -> u64 {
    n_keys.max(64).next_power_of_two()
}

/// A program with notes on its ops.
#[derive(Clone, Debug)]
pub struct TcpLowering {
    /// The program.
    pub program: Program,
    /// Its ops in order.
    pub notes: Vec<Note>,
}

/// An op of a program: one line of an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its name (`QKV projection`).
    pub op: String,
    /// Its expression over named axes.
    pub expression: String,
    /// The engine that computes it.
    pub engine: &'static str,
    /// Where sums meet, the innermost first; or another remark.
    pub levels: String,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}; {}", self.op, self.expression, self.engine)?;
        match self.levels.is_empty() {
            true => Ok(()),
            false => write!(f, "; {}", self.levels),
        }
    }
}

/// Why a model or a pass cannot be lowered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LowerError {
    /// Axes that do not go together: a fault of this lowering.
    #[error("the mapping of {what} makes no sense: {error}")]
    Axes {
        /// The axes' purpose.
        what: String,
        /// Why.
        error: AxesError,
    },
    /// A size that the mappings do not take.
    #[error("{what} is {found}; expected {expected}")]
    Size {
        /// Name of the size.
        what: String,
        /// Its size.
        found: u64,
        /// The valid values.
        expected: String,
    },
    /// Data memory is full.
    #[error(
        "`{tensor}` needs {asked_bytes} bytes of each slice's data memory, {free_bytes} are left; \
         take fewer tokens a pass"
    )]
    DataMemory {
        /// The tensor.
        tensor: String,
        /// Bytes asked for.
        asked_bytes: u64,
        /// Bytes left in one piece.
        free_bytes: u64,
    },
    /// A feature of the model that this target does not take.
    #[error("{0}")]
    Unsupported(String),
}

/// The sizes of a model as its axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Dims {
    /// Width of the residual stream (`D`).
    pub d_model: u64,
    /// Width of the feed-forward on one chip (`F`).
    pub d_ff: u64,
    /// Key and value heads of one chip (`h_kv`).
    pub n_kv_heads: u64,
    /// Query heads that share one of them (`G`).
    pub n_groups: u64,
    /// Elements a head (`d_k`).
    pub head_dim: u64,
    /// Rows of the table (`V`).
    pub vocab_size: u64,
    /// Epsilon of the norms.
    pub norm_eps: f32,
    /// Factor on scores.
    pub attention_scale: f32,
}

impl Dims {
    /// A model's sizes on each of `n_shards` chips.
    ///
    /// # Errors
    /// The feature of the model that the target does not take, or the number that the shards do not divide.
    pub fn of(config: &ModelConfig, n_shards: u64) -> Result<Dims, LowerError> {
        let no = |what: &str| Err(LowerError::Unsupported(what.to_owned()));
        let is_llama = matches!(config.family, "llama" | "mistral");
        if !is_llama {
            let family = config.family;
            return Err(LowerError::Unsupported(format!(
                "this target lowers Llama and Mistral, not {family}"
            )));
        }
        if config.window.is_some() {
            return no("sliding windows are not lowered for this target");
        }
        if config.biases.qkv || config.biases.attn_output || config.biases.ffn {
            return no("biases are not lowered for this target");
        }
        if config.activation != Activation::Silu {
            return no("the feed-forward's activation has to be SiLU");
        }
        let shares = |what: &str, n: usize| match (n as u64).is_multiple_of(n_shards.max(1)) {
            true => Ok(n as u64 / n_shards.max(1)),
            false => Err(LowerError::Size {
                what: format!("the number of {what}"),
                found: n as u64,
                expected: format!("a multiple of the {n_shards} chips that share a layer"),
            }),
        };
        Ok(Dims {
            d_model: config.d_model as u64,
            n_kv_heads: shares("key and value heads", config.n_kv_heads)?,
            d_ff: shares("feed-forward columns", config.d_ff)?,
            n_groups: (config.n_heads / config.n_kv_heads) as u64,
            head_dim: config.head_dim as u64,
            vocab_size: config.vocab_size as u64,
            norm_eps: config.norm_eps,
            attention_scale: config.attention_scale,
        })
    }
}

/// Input of every lowering.
#[derive(Clone, Copy, Debug)]
pub struct Target<'t> {
    /// The machine.
    pub machine: &'t Machine,
    /// The model's sizes on one chip.
    pub dims: &'t Dims,
    /// How to lower.
    pub options: TcpLowerOptions,
    /// The pass.
    pub call: PassSizes,
}

#[cfg(test)]
mod tests;
