//! The table of ops, and the interface of an op for generic code.

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
mod pad_heads;
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
mod target_attention;
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
pub use pad_heads::PadHeads;
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
pub use scale_by_gate::{GateFunction, ScaleByGate};
pub use scale_by_weight::ScaleByWeight;
pub use shared_attention::SharedAttention;
pub use slice_heads::SliceHeads;
pub use softcap::Softcap;
pub use ssm_scan::SsmScan;
pub use table_row::TableRow;
pub use target_attention::TargetAttention;
pub use target_state::TargetState;
pub use temperature::Temperature;
pub use token_shift::TokenShift;
pub use token_types::TokenTypes;
pub use weigh_experts::WeighExperts;
pub use xielu::Xielu;

use crate::check::Shapes;
use crate::{Depth, Graph, OpCost, SequenceMemory, TokenContext, WeightId};
use std::fmt::Debug;

/// Interface of an op for generic code.
///
/// Its value by definition is [`row`](Operation::row) and [`row_f64`](Operation::row_f64). The definition
/// runs wherever no kernel or program exists, and all other implementations are checked against it.
pub trait Operation: Debug + Send + Sync {
    /// Its name in reports: `rms_norm`.
    fn name(&self) -> &'static str;

    /// Number of inputs.
    fn arity(&self) -> usize;

    /// Weights that it reads, and how.
    fn weights(&self) -> Vec<WeightUse> {
        Vec::new()
    }

    /// Checks the sizes of a node's operands. All inputs exist, as many as [`arity`](Operation::arity)
    /// says.
    ///
    /// # Errors
    /// A description of the operands that do not fit.
    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String>;

    /// The memory of a sequence that it reads and adds to. For an op with a KV cache, its own or shared. The
    /// second input is a token's row of keys, the third the row of values.
    fn memory(&self) -> SequenceMemory {
        SequenceMemory::None
    }

    /// Inputs that the result may overwrite in place, the preferred one first. If there are two, the
    /// op must commute bit for bit.
    fn in_place(&self) -> &'static [usize] {
        &[]
    }

    /// The matrix product, if the op is exactly one and does nothing else.
    fn product(&self) -> Option<MatrixProduct<'_>> {
        None
    }

    /// The attention over a KV cache, its own, shared or a target's ([`memory`](Operation::memory) says which), if the op is one.
    fn attention(&self) -> Option<&Attention> {
        None
    }

    /// The gated delta net, if the op is one.
    fn delta_net(&self) -> Option<&DeltaNet> {
        None
    }

    /// Its role in a model.
    fn role(&self) -> OpRole {
        match (self.product(), self.attention()) {
            (Some(_), _) => OpRole::Product,
            (None, Some(_)) => OpRole::Attention,
            (None, None) => OpRole::Other,
        }
    }

    /// Whether ops of this kind that read the same input are better computed together.
    fn shares_input(&self) -> bool {
        false
    }

    /// Cost of a token, without reading and writing the values themselves.
    fn cost(&self, graph: &Graph, depth: &Depth) -> OpCost {
        let _ = (graph, depth);
        OpCost::default()
    }

    /// A token's row of the result, in f32. [`TokenContext::round`] rounds the intermediate values. `state` is
    /// the state after the previous token, with the elements that [`memory`](Operation::memory) says.
    fn row(&self, row: &TokenContext<'_, f32>, state: &mut [f32], out: &mut [f32]);

    /// The same in f64.
    fn row_f64(&self, row: &TokenContext<'_, f64>, state: &mut [f64], out: &mut [f64]);
}

/// How an op reads a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightKind {
    /// A matrix that rows are multiplied by.
    Matrix,
    /// A table to look rows up in.
    Table,
    /// Numbers, read as f32.
    Vector,
}

/// Role of a weight beside another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Companion {
    /// Added to every row of a product with the other weight.
    Bias,
    /// Multiplied with every row of a product with the other weight.
    Scale,
}

/// A weight that an op reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightUse {
    /// The weight.
    pub id: WeightId,
    /// How it is read.
    pub kind: WeightKind,
    /// Its role beside the op's first weight.
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

    /// A vector beside the first weight.
    pub fn companion(id: WeightId, companion: Companion) -> WeightUse {
        WeightUse {
            id,
            kind: WeightKind::Vector,
            companion: Some(companion),
        }
    }
}

/// Makes [`Op`] from its rows: one for each file of `op/`.
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
    /// Attention over the cache of an earlier layer.
    SharedAttention(SharedAttention),
    /// Attention over all tokens of a sequence.
    EncoderAttention(EncoderAttention),
    /// A row of a table by position.
    TableRow(TableRow),
    /// Attention over the cache of another model.
    TargetAttention(TargetAttention),
    /// A row that the caller passes along with a token.
    TargetState(TargetState),
    /// A row of a table, chosen by the text that the token belongs to.
    TokenTypes(TokenTypes),
    /// A gated activation.
    Glu(Glu),
    /// A sum.
    Add(Add),
    /// A value assembled from the parts of all ranks.
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
    /// A product with gates, each for a group of neighbouring elements.
    ScaleByGate(ScaleByGate),
    /// A product with one number of the checkpoint.
    ScaleByWeight(ScaleByWeight),
    /// Norm over groups of elements, by mean and variance.
    LayerNorm(LayerNorm),
    /// A choice of experts.
    Route(Route),
    /// Products with the matrices of the chosen experts.
    ExpertLinear(ExpertLinear),
    /// The sum of the chosen experts' results, weighted or not.
    CombineExperts(CombineExperts),
    /// The inputs of the chosen experts, each scaled by the expert's weight.
    WeighExperts(WeighExperts),
    /// Products of heads, each with its own matrix.
    HeadLinear(HeadLinear),
    /// Heads of two values, side by side.
    ConcatHeads(ConcatHeads),
    /// A part of each head; of one head, neighbouring elements.
    SliceHeads(SliceHeads),
    /// Heads with zeros behind.
    PadHeads(PadHeads),
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
    /// The norm after RWKV 7's recurrence, plus the term that bypasses its state.
    Rwkv7Output(Rwkv7Output),
    /// A selective scan.
    SsmScan(SsmScan),
    /// A selective scan of channels with a vector each.
    ChannelScan(ChannelScan),
    /// Rows of a table that lacks the last tokens.
    EmbedKnown(EmbedKnown),
    /// Mixtures of streams.
    MixStreams(MixStreams),
    /// A row added to streams, to each by its weight.
    AddToStreams(AddToStreams),
    /// A row scaled to the magnitude of another.
    MatchMagnitude(MatchMagnitude),
    /// The excess over a threshold above the mean.
    GaussianTopK(GaussianTopK),
    /// An op defined outside of this crate.
    Extension(Extension),
}

/// Writes the two methods of an op's value from one function that is generic over the element type.
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
