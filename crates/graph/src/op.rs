//! The table of ops, and what generic code asks of each.

mod activate;
mod add;
mod add_to_streams;
mod all_gather;
mod attention;
mod causal_conv;
mod channel_scan;
mod clamp;
mod combine_experts;
mod concat_heads;
mod delta_net;
mod embed;
mod embed_known;
mod encoder_attention;
mod expert_linear;
mod extension;
mod gaussian_topk;
mod glu;
mod head_linear;
mod kimi_delta;
mod layer_norm;
mod linear;
mod match_magnitude;
mod mix_streams;
mod multiply;
mod rms_norm;
mod role;
mod rope;
mod route;
mod rule;
mod rwkv7;
mod rwkv7_output;
mod scale;
mod scale_by_gate;
mod scale_by_weight;
mod shared_attention;
mod slice_heads;
mod softcap;
mod ssm_scan;
mod table_row;
mod target_state;
mod temperature;
#[cfg(test)]
mod tests;
mod token_shift;
mod token_types;
mod weigh_experts;
mod xielu;

pub use activate::Activate;
pub use add::Add;
pub use add_to_streams::AddToStreams;
pub use all_gather::AllGather;
pub use attention::{Attention, distance_slopes};
pub use causal_conv::{CausalConv, TAPS_MAX};
pub use channel_scan::ChannelScan;
pub use clamp::Clamp;
pub use combine_experts::CombineExperts;
pub use concat_heads::ConcatHeads;
pub use delta_net::{DecayForm, DeltaNet, KEY_DIM_MAX, STATE_LANES, ValueHeadOrder};
pub use embed::Embed;
pub use embed_known::EmbedKnown;
pub use encoder_attention::EncoderAttention;
pub use expert_linear::{ExpertLinear, ExpertUse};
pub use extension::Extension;
pub use gaussian_topk::GaussianTopK;
pub use glu::{Activation, Glu, GluClamp};
pub use head_linear::HeadLinear;
pub use kimi_delta::KimiDelta;
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use match_magnitude::MatchMagnitude;
pub use mix_streams::MixStreams;
pub use multiply::Multiply;
pub use rms_norm::RmsNorm;
pub use role::{MatrixProduct, OpRole};
pub use rope::RotateHeads;
pub use route::{
    EXPERTS_MAX, Gating, Route, RouteGroups, RouteScratch, SPARSE_MIXER_REACH, choice_weights,
    chosen_experts,
};
pub use rwkv7::Rwkv7;
pub use rwkv7_output::Rwkv7Output;
pub use scale::Scale;
pub use scale_by_gate::ScaleByGate;
pub use scale_by_weight::ScaleByWeight;
pub use shared_attention::SharedAttention;
pub use slice_heads::SliceHeads;
pub use softcap::Softcap;
pub use ssm_scan::SsmScan;
pub use table_row::TableRow;
pub use target_state::TargetState;
pub use temperature::Temperature;
pub use token_shift::TokenShift;
pub use token_types::TokenTypes;
pub use weigh_experts::WeighExperts;
pub use xielu::Xielu;

use crate::check::Shapes;
use crate::{Depth, Graph, OpCost, SequenceMemory, TokenContext, WeightId};
use std::fmt::Debug;

/// What generic code asks of an op.
///
/// Its value by definition is [`row`](Operation::row) and [`row_f64`](Operation::row_f64): what the op
/// computes where nobody has a kernel or a program for it, and what everybody else is checked against.
pub trait Operation: Debug + Send + Sync {
    /// Its name in reports: `rms_norm`.
    fn name(&self) -> &'static str;

    /// Inputs that it takes.
    fn arity(&self) -> usize;

    /// Weights that it reads, and as what.
    fn weights(&self) -> Vec<WeightUse> {
        Vec::new()
    }

    /// Checks the sizes of a node's operands. Inputs are there, as many as [`arity`](Operation::arity)
    /// says.
    ///
    /// # Errors
    /// What does not fit, in words.
    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String>;

    /// The memory of a sequence that it reads and adds to. Of an op with a KV cache, its own or shared, the second
    /// input is a token's row of keys, the third of values.
    fn memory(&self) -> SequenceMemory {
        SequenceMemory::None
    }

    /// Whether its result may lie where one of these inputs lies, the better first. Of two the op must
    /// commute bit for bit.
    fn in_place(&self) -> &'static [usize] {
        &[]
    }

    /// The product with matrices that it is, if it is one and nothing besides.
    fn product(&self) -> Option<MatrixProduct<'_>> {
        None
    }

    /// The attention that it computes over a KV cache, its own or shared ([`memory`](Operation::memory) says which).
    fn attention(&self) -> Option<&Attention> {
        None
    }

    /// The gated delta net that it computes.
    fn delta_net(&self) -> Option<&DeltaNet> {
        None
    }

    /// What it is to a model.
    fn role(&self) -> OpRole {
        match (self.product(), self.attention()) {
            (Some(_), _) => OpRole::Product,
            (None, Some(_)) => OpRole::Attention,
            (None, None) => OpRole::Other,
        }
    }

    /// Whether several of its kind that read the same input are computed better together.
    fn shares_input(&self) -> bool {
        false
    }

    /// What a token costs beside reading and writing the values themselves.
    fn cost(&self, graph: &Graph, depth: &Depth) -> OpCost {
        let _ = (graph, depth);
        OpCost::default()
    }

    /// A token's row of the result, in f32, with every value rounded that [`TokenContext::round`] rounds. `state`
    /// has the elements that [`memory`](Operation::memory) says, of the token before.
    fn row(&self, row: &TokenContext<'_, f32>, state: &mut [f32], out: &mut [f32]);

    /// The same in f64.
    fn row_f64(&self, row: &TokenContext<'_, f64>, state: &mut [f64], out: &mut [f64]);
}

/// How an op reads a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightKind {
    /// A matrix that rows are multiplied with.
    Matrix,
    /// A table whose rows are looked up.
    Table,
    /// Numbers, read as f32.
    Vector,
}

/// What a weight is beside another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Companion {
    /// Added to every row of a product with the other.
    Bias,
    /// Multiplied with every row of a product with the other.
    Scale,
}

/// A weight that an op reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightUse {
    /// The weight.
    pub id: WeightId,
    /// How it is read.
    pub kind: WeightKind,
    /// What it is beside the op's first weight.
    pub companion: Option<Companion>,
}

impl WeightUse {
    /// An op's own weight.
    pub fn new(id: WeightId, kind: WeightKind) -> WeightUse {
        WeightUse {
            id,
            kind,
            companion: None,
        }
    }

    /// A vector beside it.
    pub fn companion(id: WeightId, companion: Companion) -> WeightUse {
        WeightUse {
            id,
            kind: WeightKind::Vector,
            companion: Some(companion),
        }
    }
}

/// Makes [`Op`] of its rows: one a file of `op/`.
macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident($op:ty),)+) => {
        /// One operation.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Op {
            $($(#[$doc])* $variant($op),)+
        }

        impl std::ops::Deref for Op {
            type Target = dyn Operation;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Op::$variant(op) => op,)+
                }
            }
        }

        $(impl From<$op> for Op {
            fn from(op: $op) -> Op {
                Op::$variant(op)
            }
        })+
    };
}

ops! {
    /// Rows of a table, by token.
    Embed(Embed),
    /// Root-mean-square norm over groups of elements.
    RmsNorm(RmsNorm),
    /// A product with a matrix.
    Linear(Linear),
    /// Rotation of heads by position.
    Rope(RotateHeads),
    /// Grouped-query attention over the KV cache.
    Attention(Attention),
    /// The same over the cache of an earlier layer.
    SharedAttention(SharedAttention),
    /// Attention over all tokens of a sequence.
    EncoderAttention(EncoderAttention),
    /// A row of a table by position.
    TableRow(TableRow),
    /// A row that the caller hands over with a token.
    TargetState(TargetState),
    /// A row of a table by text.
    TokenTypes(TokenTypes),
    /// A gated activation.
    Glu(Glu),
    /// A sum.
    Add(Add),
    /// A value put together of the parts that ranks have.
    AllGather(AllGather),
    /// An activation without a gate.
    Activate(Activate),
    /// An activation with learned factors.
    Xielu(Xielu),
    /// A product with a number.
    Scale(Scale),
    /// A soft bound.
    Softcap(Softcap),
    /// A hard bound.
    Clamp(Clamp),
    /// A factor that grows with the position.
    Temperature(Temperature),
    /// A product with the sigmoid of one number a token.
    ScaleByGate(ScaleByGate),
    /// A product with one number of the checkpoint.
    ScaleByWeight(ScaleByWeight),
    /// Norm over groups of elements, by mean and variance.
    LayerNorm(LayerNorm),
    /// A choice of experts.
    Route(Route),
    /// Products with the matrices of the chosen experts.
    ExpertLinear(ExpertLinear),
    /// The sum of what the chosen experts give, weighted or not.
    CombineExperts(CombineExperts),
    /// What enters each of the chosen experts, by its weight.
    WeighExperts(WeighExperts),
    /// Products of heads, each with a matrix of its own.
    HeadLinear(HeadLinear),
    /// Heads of two values, side by side.
    ConcatHeads(ConcatHeads),
    /// A part of each head; of one head, neighbouring elements.
    SliceHeads(SliceHeads),
    /// A product element by element.
    Multiply(Multiply),
    /// A convolution over the last tokens.
    CausalConv(CausalConv),
    /// A gated delta net.
    DeltaNet(DeltaNet),
    /// A gated delta net with a decay for each element of a key.
    KimiDelta(KimiDelta),
    /// Mixtures with the row of the token before.
    TokenShift(TokenShift),
    /// RWKV 7's recurrence.
    Rwkv7(Rwkv7),
    /// The norm behind it, and what goes past its state.
    Rwkv7Output(Rwkv7Output),
    /// A selective scan.
    SsmScan(SsmScan),
    /// A selective scan of channels with a vector each.
    ChannelScan(ChannelScan),
    /// Rows of a table that lacks the last tokens.
    EmbedKnown(EmbedKnown),
    /// Streams that take some of all others.
    MixStreams(MixStreams),
    /// A row that streams take, each by its weight.
    AddToStreams(AddToStreams),
    /// A row that gets the length of another.
    MatchMagnitude(MatchMagnitude),
    /// What is far above the mean.
    GaussianTopK(GaussianTopK),
    /// An op that is defined outside of this crate.
    Extension(Extension),
}

/// Writes the two methods of an op's value from one function over both element types.
macro_rules! by_definition {
    () => {
        fn row(&self, row: &crate::TokenContext<'_, f32>, state: &mut [f32], out: &mut [f32]) {
            self.compute(row, state, out);
        }

        fn row_f64(&self, row: &crate::TokenContext<'_, f64>, state: &mut [f64], out: &mut [f64]) {
            self.compute(row, state, out);
        }
    };
}
pub(crate) use by_definition;
