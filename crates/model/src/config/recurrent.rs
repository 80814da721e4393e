//! Recurrent layers: which layers are recurrent, and their sizes.

use crate::Error;
use crate::config::MAX_WIDTH;
use millrace_graph::{KEY_DIM_MAX, TAPS_MAX};

/// The recurrent layers of a model, in place of attention.
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrentConfig {
    /// For each layer, whether it is recurrent.
    pub layers: Vec<bool>,
    /// The op that they compute.
    pub mixer: RecurrentMixer,
    /// Factors on both branches, if the layers also attend, side by side (Falcon H1).
    pub beside_attention: Option<BranchScales>,
}

/// The op of recurrent layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecurrentMixer {
    /// A gated convolution over the last tokens (LFM2).
    ShortConv {
        /// Tokens that the convolution reads.
        n_taps: usize,
        /// Whether the convolution and its projections have biases.
        biased: bool,
    },
    /// A gated delta net (Qwen 3 Next and 3.5).
    DeltaNet(DeltaConfig),
    /// Kimi delta attention: a gated delta net with a decay for each element of a key (Kimi Linear).
    KimiDelta(KimiDeltaConfig),
    /// RWKV 7's recurrence.
    Rwkv7(Rwkv7Config),
    /// A selective scan (Mamba-2).
    Mamba(MambaConfig),
    /// A selective scan with a rate for each channel and element of the state (Mamba).
    ChannelScan(ChannelScanConfig),
}

/// Sizes of a gated delta net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaConfig {
    /// Tokens that its convolution reads.
    pub n_taps: usize,
    /// Heads of queries and keys.
    pub n_k_heads: usize,
    /// Heads of values.
    pub n_v_heads: usize,
    /// Elements of a key head.
    pub k_dim: usize,
    /// Elements of a value head.
    pub v_dim: usize,
    /// Whether strengths of corrections reach 2, not 1, so that a state may change its sign at a key (OLMo Hybrid).
    pub negative_eigenvalues: bool,
}

/// Sizes of Kimi delta attention. Its low-rank projections have the rank of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KimiDeltaConfig {
    /// Tokens that its convolutions read.
    pub n_taps: usize,
    /// Heads of queries, keys and values.
    pub n_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

/// Sizes of RWKV 7's recurrence, and ranks of the matrices that make its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rwkv7Config {
    /// Heads.
    pub n_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Rank of decays.
    pub decay_rank: usize,
    /// Rank of rates of learning.
    pub rate_rank: usize,
    /// Rank of the shares of the first layer's values.
    pub value_rank: usize,
    /// Rank of gates.
    pub gate_rank: usize,
}

/// Sizes of a selective scan and of the parts around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MambaConfig {
    /// Tokens that its convolution reads.
    pub n_taps: usize,
    /// Heads of values.
    pub n_heads: usize,
    /// Heads of keys and queries.
    pub n_groups: usize,
    /// Elements of a head of values.
    pub head_dim: usize,
    /// Elements of a key.
    pub d_state: usize,
    /// Least and largest step.
    pub dt_limit: (f32, f32),
    /// Position of its norm.
    pub norm: MambaNorm,
    /// Whether its convolution has a bias.
    pub conv_bias: bool,
    /// Whether the projection before it has one.
    pub in_bias: bool,
    /// Whether the projection behind it has one.
    pub out_bias: bool,
}

/// Position of the norm of a selective scan, which takes each group of heads by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MambaNorm {
    /// It has none.
    Absent,
    /// Of the gated output.
    BehindGate,
    /// Of the output before the gate.
    BeforeGate,
}

/// Sizes of a scan of channels and of the parts around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelScanConfig {
    /// Tokens that its convolution reads.
    pub n_taps: usize,
    /// Channels.
    pub d_inner: usize,
    /// Elements of a channel's state.
    pub d_state: usize,
    /// Elements that steps are made of.
    pub dt_rank: usize,
    /// Norms of the inputs of steps, of keys and of queries.
    pub norms: ScanNorms,
    /// Whether its convolution has a bias.
    pub conv_bias: bool,
    /// Whether the projections before and behind it have one.
    pub biased: bool,
}

/// Norms within a scan of channels: of the inputs of its steps, of its keys and of its queries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScanNorms {
    /// It has none.
    Absent,
    /// Without weights (Falcon Mamba).
    Bare {
        /// Epsilon.
        eps: f32,
    },
    /// With weights, and the epsilon of the other norms (Jamba).
    Weighted,
}

/// Factors on a selective scan, on attention beside it and on the feed-forward behind; GGUF files fold them in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BranchScales {
    /// On attention's input.
    pub attention_in: f32,
    /// On its output.
    pub attention_out: f32,
    /// On keys.
    pub key: f32,
    /// On the scan's input.
    pub ssm_in: f32,
    /// On its output.
    pub ssm_out: f32,
    /// On its gates, values, keys, queries and steps.
    pub ssm: [f32; 5],
    /// On the gate of the feed-forward.
    pub ffn_gate: f32,
    /// On its output.
    pub ffn_out: f32,
}

impl BranchScales {
    /// No factors.
    pub const NONE: BranchScales = BranchScales {
        attention_in: 1.0,
        attention_out: 1.0,
        key: 1.0,
        ssm_in: 1.0,
        ssm_out: 1.0,
        ssm: [1.0; 5],
        ffn_gate: 1.0,
        ffn_out: 1.0,
    };

    /// Whether all are finite.
    fn are_finite(&self) -> bool {
        let BranchScales {
            attention_in,
            attention_out,
            key,
            ssm_in,
            ssm_out,
            ssm,
            ffn_gate,
            ffn_out,
        } = *self;
        let others = [
            attention_in,
            attention_out,
            key,
            ssm_in,
            ssm_out,
            ffn_gate,
            ffn_out,
        ];
        others.iter().chain(&ssm).all(|factor| factor.is_finite())
    }
}

impl MambaConfig {
    /// Elements of all heads of values.
    pub fn d_inner(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Elements of all keys.
    pub fn key_width(&self) -> usize {
        self.n_groups * self.d_state
    }

    /// Elements of values, keys and queries.
    pub fn xbc_width(&self) -> usize {
        self.d_inner() + 2 * self.key_width()
    }

    /// Elements of the projection before the scan.
    pub fn in_width(&self) -> usize {
        self.d_inner() + self.xbc_width() + self.n_heads
    }

    fn sizes(&self) -> Vec<NamedSize> {
        let inner = self.n_heads.saturating_mul(self.head_dim);
        let keys = self.n_groups.saturating_mul(self.d_state);
        vec![
            ("heads of recurrent layers", self.n_heads, 1, MAX_WIDTH),
            ("groups of recurrent layers", self.n_groups, 1, MAX_WIDTH),
            ("size of their heads", self.head_dim, 1, MAX_WIDTH),
            ("size of their keys", self.d_state, 1, KEY_DIM_MAX),
            ("size of all their heads", inner, 1, MAX_WIDTH),
            ("size of all their keys", keys, 1, MAX_WIDTH),
        ]
    }
}

impl ChannelScanConfig {
    /// Rows of the matrix that makes steps, keys and queries.
    pub fn x_width(&self) -> usize {
        self.dt_rank + 2 * self.d_state
    }

    fn sizes(&self) -> Vec<NamedSize> {
        vec![
            ("channels of recurrent layers", self.d_inner, 1, MAX_WIDTH),
            ("size of their keys", self.d_state, 1, KEY_DIM_MAX),
            ("rank of their steps", self.dt_rank, 1, MAX_WIDTH),
        ]
    }
}

/// Name of a size, the size, its minimum and its maximum.
type NamedSize = (&'static str, usize, usize, usize);

impl DeltaConfig {
    /// Elements of all key heads.
    pub fn k_width(&self) -> usize {
        self.n_k_heads * self.k_dim
    }

    /// Elements of all value heads.
    pub fn v_width(&self) -> usize {
        self.n_v_heads * self.v_dim
    }

    /// Elements of queries, keys and values.
    pub fn qkv_width(&self) -> usize {
        2 * self.k_width() + self.v_width()
    }

    /// Value heads of a key head.
    pub fn group(&self) -> usize {
        self.n_v_heads / self.n_k_heads.max(1)
    }

    fn sizes(&self) -> Vec<NamedSize> {
        let v_width = self.n_v_heads.saturating_mul(self.v_dim);
        let k_width = self.n_k_heads.saturating_mul(self.k_dim);
        vec![
            (
                "key heads of recurrent layers",
                self.n_k_heads,
                1,
                MAX_WIDTH,
            ),
            (
                "value heads of recurrent layers",
                self.n_v_heads,
                1,
                MAX_WIDTH,
            ),
            ("size of their key heads", self.k_dim, 1, KEY_DIM_MAX),
            ("size of their value heads", self.v_dim, 1, MAX_WIDTH),
            ("size of all key heads", k_width, 1, MAX_WIDTH),
            ("size of all value heads", v_width, 1, MAX_WIDTH),
        ]
    }
}

impl KimiDeltaConfig {
    /// Elements of all heads.
    pub fn width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    fn sizes(&self) -> Vec<NamedSize> {
        let width = self.n_heads.saturating_mul(self.head_dim);
        vec![
            ("heads of recurrent layers", self.n_heads, 1, MAX_WIDTH),
            ("size of their heads", self.head_dim, 1, KEY_DIM_MAX),
            ("size of all their heads", width, 1, MAX_WIDTH),
        ]
    }
}

impl Rwkv7Config {
    fn sizes(&self) -> Vec<NamedSize> {
        let width = self.n_heads.saturating_mul(self.head_dim);
        vec![
            ("heads of recurrent layers", self.n_heads, 1, MAX_WIDTH),
            ("size of their heads", self.head_dim, 1, KEY_DIM_MAX),
            ("size of all their heads", width, 1, MAX_WIDTH),
            ("rank of their decays", self.decay_rank, 1, MAX_WIDTH),
            ("rank of their rates", self.rate_rank, 1, MAX_WIDTH),
            ("rank of their values", self.value_rank, 1, MAX_WIDTH),
            ("rank of their gates", self.gate_rank, 1, MAX_WIDTH),
        ]
    }
}

impl RecurrentConfig {
    /// Sizes of its gated delta nets, if it has these.
    pub fn delta(&self) -> Option<&DeltaConfig> {
        match &self.mixer {
            RecurrentMixer::DeltaNet(delta) => Some(delta),
            _ => None,
        }
    }

    /// Sizes of its Kimi delta attention, if it has it.
    pub fn kimi_delta(&self) -> Option<&KimiDeltaConfig> {
        match &self.mixer {
            RecurrentMixer::KimiDelta(delta) => Some(delta),
            _ => None,
        }
    }

    /// Sizes of its selective scans, if it has these.
    pub fn mamba(&self) -> Option<&MambaConfig> {
        match &self.mixer {
            RecurrentMixer::Mamba(mamba) => Some(mamba),
            _ => None,
        }
    }

    /// Sizes of its scans of channels, if it has these.
    pub fn channel_scan(&self) -> Option<&ChannelScanConfig> {
        match &self.mixer {
            RecurrentMixer::ChannelScan(scan) => Some(scan),
            _ => None,
        }
    }

    /// Refuses sizes that are zero, absurd or do not fit each other.
    pub(super) fn validate(&self, file: &str, n_layers: usize) -> Result<(), Error> {
        let bad = |key: &str, found: usize, expected: String| {
            Err(Error::BadValue {
                file: file.into(),
                key: key.into(),
                found: found.to_string(),
                expected,
            })
        };
        if self.layers.len() != n_layers {
            let expected = format!("one for each of the {n_layers} layers");
            return bad("number of layer types", self.layers.len(), expected);
        }
        let (n_taps, mut sizes) = match &self.mixer {
            RecurrentMixer::ShortConv { n_taps, .. } => (Some(*n_taps), Vec::new()),
            RecurrentMixer::DeltaNet(delta) => (Some(delta.n_taps), delta.sizes()),
            RecurrentMixer::KimiDelta(delta) => (Some(delta.n_taps), delta.sizes()),
            RecurrentMixer::Rwkv7(rwkv) => (None, rwkv.sizes()),
            RecurrentMixer::Mamba(mamba) => (Some(mamba.n_taps), mamba.sizes()),
            RecurrentMixer::ChannelScan(scan) => (Some(scan.n_taps), scan.sizes()),
        };
        let taps = n_taps.map(|n_taps| ("length of the convolution", n_taps, 2, TAPS_MAX));
        sizes.extend(taps);
        for (key, found, least, most) in sizes {
            if !(least..=most).contains(&found) {
                return bad(key, found, format!("between {least} and {most}"));
            }
        }
        let (n_heads, n_groups) = match &self.mixer {
            RecurrentMixer::ShortConv { .. }
            | RecurrentMixer::ChannelScan(_)
            | RecurrentMixer::Rwkv7(_)
            | RecurrentMixer::KimiDelta(_) => (1, 1),
            RecurrentMixer::DeltaNet(delta) => (delta.n_v_heads, delta.n_k_heads),
            RecurrentMixer::Mamba(mamba) => (mamba.n_heads, mamba.n_groups),
        };
        if !n_heads.is_multiple_of(n_groups) {
            let expected = format!("a multiple of the {n_groups} key heads");
            return bad("value heads of recurrent layers", n_heads, expected);
        }
        self.validate_factors(file)
    }

    fn validate_factors(&self, file: &str) -> Result<(), Error> {
        let bad = |key: &str, found: String, expected: &str| {
            Err(Error::BadValue {
                file: file.into(),
                key: key.into(),
                found,
                expected: expected.into(),
            })
        };
        let (least, most) = self.mamba().map_or((0.0, 0.0), |mamba| mamba.dt_limit);
        if !(least >= 0.0 && least <= most) {
            let expected = "two numbers, the least first";
            return bad("limits of steps", format!("{least} and {most}"), expected);
        }
        if let Some(&ChannelScanConfig {
            norms: ScanNorms::Bare { eps },
            ..
        }) = self.channel_scan()
            && !(eps.is_finite() && eps > 0.0)
        {
            return bad("epsilon within scans", eps.to_string(), "a positive number");
        }
        match &self.beside_attention {
            Some(scales) if !scales.are_finite() => bad(
                "factors on branches",
                format!("{scales:?}"),
                "finite numbers",
            ),
            _ => Ok(()),
        }
    }
}
