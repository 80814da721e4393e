//! What each weight is for, and its name in GGUF and in Hugging Face files.
//!
//! A [`TensorName`] says which weight is meant; [`TensorName::gguf`] and [`TensorName::hf`] spell
//! it, and [`TensorName::parse_gguf`] reads one back. The roles and the GGUF spellings are ggml's; the
//! Hugging Face ones follow the module names of transformers' `*ForCausalLM` classes, where one
//! module name means different things in different families (see [`HfNorms`]).

use std::fmt;

/// The purpose of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightRole {
    /// `[vocab, d_model]`: the embedding table.
    TokenEmbedding,
    /// `[n_rot/2]`: divisors of the RoPE frequencies (GGUF only).
    RopeFactors,
    /// `[n_rot/2]`: divisors of the RoPE frequencies in long contexts (GGUF only).
    RopeFactorsLong,
    /// `[n_rot/2]`: divisors of the RoPE frequencies in short contexts (GGUF only).
    RopeFactorsShort,
    /// `[d_model]`: norm before attention.
    AttnNorm,
    /// `[d_model]`: norm before attention alone, where the feed-forward beside it has one too.
    AttnNorm2,
    /// `[d_model]`: norm before the feed-forward beside it, under the name of the norm before attention.
    FfnNormBeside,
    /// `[n_heads·head_dim, d_model]`: query projection.
    AttnQ,
    /// `[n_kv_heads·head_dim, d_model]`: key projection.
    AttnK,
    /// `[n_kv_heads·head_dim, d_model]`: value projection.
    AttnV,
    /// `[(n_heads + 2·n_kv_heads)·head_dim, d_model]`: the three projections in one.
    AttnQkv,
    /// `[head_dim]`, or as many as all heads have: norm of queries.
    AttnQNorm,
    /// `[head_dim]`, or as many as all heads have: norm of keys.
    AttnKNorm,
    /// `[n_heads]`: a score of each head that takes part in softmax and has no value.
    AttnSinks,
    /// `[n_heads·head_dim, d_model]`: gate of the attention's output.
    AttnGate,
    /// `[n_heads·head_dim]`: norm of the attention's output, before its projection.
    AttnSubNorm,
    /// `[q_rank, d_model]`: queries of latent attention, down.
    AttnQA,
    /// `[q_rank]`: norm between the two.
    AttnQANorm,
    /// `[n_heads·(nope + rope), q_rank]`: queries of latent attention, up.
    AttnQB,
    /// `[kv_rank + rope, d_model]`: keys and values of latent attention, down, and the rotated part of keys.
    AttnKvA,
    /// `[kv_rank]`: norm of the latent.
    AttnKvANorm,
    /// `[n_heads·(nope + v), kv_rank]`: keys and values of each head from the latent.
    AttnKvB,
    /// `[n_heads, kv_rank, nope]`: queries of each head to the latent's space.
    AttnKB,
    /// `[n_heads, v, kv_rank]`: values of each head from the latent.
    AttnVB,
    /// `[d_model, n_heads·head_dim]`: projection of the attention's output.
    AttnOutput,
    /// `[d_model, d_model]`: a matrix in place of attention.
    AttnLinear,
    /// `[d_model]`: norm after attention, before the residual addition.
    AttnPostNorm,
    /// `[d_model]`: norm before the feed-forward.
    FfnNorm,
    /// The same in GGUF files that leave `.weight` out of its name.
    FfnPreNorm,
    /// `[d_ff, d_model]`: gate of the feed-forward.
    FfnGate,
    /// `[d_ff, d_model]`: up projection of the feed-forward.
    FfnUp,
    /// `[2·d_ff, d_model]`: gate and up projection in one, the gate first.
    FfnGateUp,
    /// `[d_ff]`: norm of the gated activation, before the down projection.
    FfnSubNorm,
    /// `[d_model, d_ff]`: down projection of the feed-forward.
    FfnDown,
    /// `[1]`: what xIELU's factor on squares is made of (folders only).
    XieluAlphaP,
    /// `[1]`: what its factor on exponentials is made of (folders only).
    XieluAlphaN,
    /// A number: its slope at zero (folders only).
    XieluBeta,
    /// A number: the bound of its exponents (folders only).
    XieluEps,
    /// `[n_experts, d_model]`: scores of experts.
    Router,
    /// `[n_experts]`: added to scores for the choice alone.
    RouterBias,
    /// The same in GGUF files that leave `.bias` out of its name.
    ChoiceBias,
    /// `[n_experts, d_ff, d_model]`: gates of experts.
    ExpertsGate,
    /// `[n_experts, d_ff, d_model]`: up projections of experts.
    ExpertsUp,
    /// `[n_experts, 2·d_ff, d_model]`: gates and up projections of experts in one, the gate first.
    ExpertsGateUp,
    /// `[n_experts, d_model, d_ff]`: down projections of experts.
    ExpertsDown,
    /// `[latent, d_model]`: projection of what enters experts.
    LatentDown,
    /// `[d_model, latent]`: projection of what experts give.
    LatentUp,
    /// `[1, d_model]`: gate of the shared expert as a whole.
    SharedRouter,
    /// `[shared_d_ff, d_model]`: gate of the shared expert's activation.
    SharedGate,
    /// `[shared_d_ff, d_model]`: up projection of the shared expert.
    SharedUp,
    /// `[d_model, shared_d_ff]`: down projection of the shared expert.
    SharedDown,
    /// `[2·shared_d_ff, d_model]`: gate and up projection of the shared expert in one, the gate first.
    SharedGateUp,
    /// `[d_model]`: norm after the feed-forward, before the residual addition.
    FfnPostNorm,
    /// `[vocab, n_layers·per_layer]`: the table of each layer's own embeddings, one layer's beside the other's.
    LayerEmbedding,
    /// `[n_layers·per_layer, d_model]`: projection of a token's embedding to those.
    LayerEmbeddingProj,
    /// `[per_layer]`: norm of what that projection gives a layer.
    LayerEmbeddingNorm,
    /// `[per_layer, d_model]`: gate of the layer's own embedding.
    LayerEmbeddingGate,
    /// `[d_model, per_layer]`: projection of the gated embedding.
    LayerEmbeddingUp,
    /// `[d_model]`: norm behind that projection, before the residual addition.
    LayerEmbeddingPostNorm,
    /// `[1]`: factor on what leaves the block.
    LayerScale,
    /// `[n_streams - 1, d_model, d_model]`: what makes the other streams of a token's embedding (AltUp).
    AltUpProj,
    /// `[n_streams - 1, d_model, d_model]`: what brings them back into one.
    AltUpUnembed,
    /// `[d_model]`: norm before the router of streams.
    AltUpRouterNorm,
    /// `[n_streams, d_model]`: router of streams.
    AltUpRouter,
    /// `[n_streams², n_streams]`: how much streams take of each other before a block, of what the router says.
    AltUpPredict,
    /// `[n_streams, n_streams]`: how much they take of what the block made.
    AltUpCorrect,
    /// `[d_model]`: factors on the stream by which the layer's own embedding is gated.
    AltUpCorrectScale,
    /// `[rank, d_model]`: low-rank residual beside attention, down.
    LaurelDown,
    /// `[d_model, rank]`: low-rank residual, up.
    LaurelUp,
    /// `[d_model]`: norm behind it.
    LaurelPostNorm,
    /// `[d_model]`: norm before experts that stand beside a dense network.
    ExpertsNorm,
    /// `[d_model]`: norm behind those experts.
    ExpertsPostNorm,
    /// `[d_model]`: norm behind the dense network beside them.
    DensePostNorm,
    /// `[context, d_model]`: embeddings of positions.
    PositionEmbedding,
    /// `[n_types, d_model]`: embeddings of the texts that tokens are of.
    TokenTypes,
    /// `[d_model]`: norm of the embeddings; in files of LFM2 the norm before the head.
    EmbeddingNorm,
    /// `[d_model]`: norm of the stream behind attention.
    AttnOutNorm,
    /// `[d_model]`: norm of the stream behind the block.
    LayerOutNorm,
    /// `[d_model]`: norm before the head.
    OutputNorm,
    /// `[vocab, d_model]`: the head.
    Output,
    /// `[3·d_model, d_model]`: projections of a short convolution in one: gate before, gate after, input.
    ShortConvIn,
    /// `[d_model, d_model]`: the first of them by itself.
    ShortConvB,
    /// `[d_model, d_model]`: the second.
    ShortConvC,
    /// `[d_model, d_model]`: the third.
    ShortConvX,
    /// `[d_model, n_taps]`: a short convolution.
    ShortConv,
    /// `[d_model, d_model]`: projection of its output.
    ShortConvOut,
    /// `[2·k_width + 2·v_width, d_model]`: queries, keys, values and gates of a gated delta net, key head by key head. Of a
    /// selective scan `[2·d_inner + 2·n_groups·d_state + n_heads, d_model]`: gates, values, keys, queries, steps.
    SsmIn,
    /// `[d_inner, d_model]`: gates of a selective scan, rows of [`SsmIn`](WeightRole::SsmIn).
    SsmInGate,
    /// `[d_inner + 2·n_groups·d_state, d_model]`: its values, keys and queries, the rows behind.
    SsmInXbc,
    /// `[d_inner, d_model]`: its values by themselves.
    SsmInX,
    /// `[n_groups·d_state, d_model]`: its keys.
    SsmInB,
    /// `[n_groups·d_state, d_model]`: its queries.
    SsmInC,
    /// `[n_heads, d_model]`: its steps.
    SsmInDt,
    /// `[channels, n_taps]`: convolution before a gated delta net or a selective scan.
    SsmConv,
    /// `[width, 1, n_taps]`: convolution of the queries of Kimi delta attention.
    SsmConvQ,
    /// `[width, 1, n_taps]`: of its keys.
    SsmConvK,
    /// `[width, 1, n_taps]`: of its values.
    SsmConvV,
    /// `[head_dim, d_model]`: inputs for its decays, down.
    SsmDecayA,
    /// `[width, head_dim]`: inputs for its decays, up.
    SsmDecayB,
    /// `[head_dim, d_model]`: gate of its output, down.
    SsmGateA,
    /// `[width, head_dim]`: gate of its output, up.
    SsmGateB,
    /// `[dt_rank + 2·d_state, d_inner]`: of a scan of channels, what steps are made of, keys and queries.
    SsmX,
    /// `[dt_rank, d_inner]`: what its steps are made of, rows of [`SsmX`](WeightRole::SsmX).
    SsmXDt,
    /// `[d_state, d_inner]`: its keys, the rows behind.
    SsmXB,
    /// `[d_state, d_inner]`: its queries, the last rows.
    SsmXC,
    /// `[dt_rank]`: norm of what its steps are made of.
    SsmDtNorm,
    /// `[d_state]`: norm of its keys.
    SsmBNorm,
    /// `[d_state]`: norm of its queries.
    SsmCNorm,
    /// `[n_v_heads]`: rates of decay; in Hugging Face files the logarithms of their negatives. Of a scan of channels
    /// `[d_inner, d_state]`.
    SsmRate,
    /// `[n_v_heads]`, a bias: added to the inputs for the decay. Of a scan of channels it has a weight, too,
    /// `[d_inner, dt_rank]`.
    SsmDt,
    /// `[n_v_heads, d_model]`: inputs for the decay.
    SsmAlpha,
    /// `[n_v_heads, d_model]`: strengths of the correction.
    SsmBeta,
    /// `[2·n_v_heads, d_model]`: both, key head by key head, strengths first.
    SsmBetaAlpha,
    /// `[n_heads]`: the share of values that goes past the state of a selective scan; of a scan of channels `[d_inner]`.
    SsmSkip,
    /// `[v_dim]`: norm of a recurrent layer's value heads; of a selective scan `[n_groups, d_inner / n_groups]`.
    SsmNorm,
    /// The same before the gate: llama.cpp has no name for it, and refuses a file that has one.
    SsmPreNorm,
    /// `[d_model, v_width]`: projection of a recurrent layer's output.
    SsmOut,
    /// `[6, 1, 1, d_model]`: of RWKV, shares of the token before in the rows that its projections read: of receptance, decay, key,
    /// value, rate and gate.
    TimeMixLerp,
    /// `[d_model]`: that of receptance, a row of [`TimeMixLerp`](WeightRole::TimeMixLerp).
    TimeMixLerpR,
    /// `[d_model]`: of the decay, the row behind.
    TimeMixLerpW,
    /// `[d_model]`: of the key.
    TimeMixLerpK,
    /// `[d_model]`: of the value.
    TimeMixLerpV,
    /// `[d_model]`: of the rate.
    TimeMixLerpA,
    /// `[d_model]`: of the gate.
    TimeMixLerpG,
    /// `[d_model]`: added to what its decays are made of.
    TimeMixDecayOffset,
    /// `[rank, d_model]`: inputs for its decays, down.
    TimeMixDecayA,
    /// `[d_model, rank]`: up.
    TimeMixDecayB,
    /// `[d_model]`: added to what its rates of learning are made of.
    TimeMixRateOffset,
    /// `[rank, d_model]`: inputs for its rates, down.
    TimeMixRateA,
    /// `[d_model, rank]`: up.
    TimeMixRateB,
    /// `[d_model]`: added to what the shares of the first layer's values are made of.
    TimeMixValueOffset,
    /// `[rank, d_model]`: inputs for these shares, down.
    TimeMixValueA,
    /// `[d_model, rank]`: up.
    TimeMixValueB,
    /// `[rank, d_model]`: its gate, down.
    TimeMixGateA,
    /// `[d_model, rank]`: up.
    TimeMixGateB,
    /// `[d_model]`: factors on keys for the direction that its state loses.
    TimeMixRemoval,
    /// `[d_model]`: how far the rate weakens keys.
    TimeMixWeakening,
    /// `[d_model]`, in folders `[n_heads, head_dim]`: factors on products of receptance and keys that go past the state.
    TimeMixBonus,
    /// `[d_model, d_model]`: its keys.
    TimeMixKey,
    /// `[d_model, d_model]`: its values.
    TimeMixValue,
    /// `[d_model, d_model]`: its receptance, where states are read.
    TimeMixReceptance,
    /// `[d_model]`: norm of its heads, which has a factor for each element.
    TimeMixNorm,
    /// `[d_model, d_model]`: projection of its output.
    TimeMixOutput,
    /// `[d_model]`: the share of the token before in the row that its network reads.
    ChannelMixLerp,
    /// `[d_ff, d_model]`: its network, up.
    ChannelMixKey,
    /// `[d_model, d_ff]`: its network, down.
    ChannelMixValue,
    /// `[d_model, 2·d_model]`: of a draft layer, projection of a token's embedding beside a hidden state.
    DraftProj,
    /// `[d_model]`: norm of that embedding.
    DraftEmbedNorm,
    /// `[d_model]`: norm of that hidden state.
    DraftStateNorm,
    /// `[vocab, d_model]`: the draft layer's own embedding table.
    DraftEmbedding,
    /// `[vocab, d_model]`: its own head.
    DraftHead,
    /// `[d_model]`: norm before its head.
    DraftHeadNorm,
}

impl WeightRole {
    /// Whether every block has one.
    pub fn is_per_layer(self) -> bool {
        row(self).per_layer
    }

    /// Whether it is the weight of an RMSNorm.
    pub fn is_norm(self) -> bool {
        use WeightRole::*;
        matches!(
            self,
            AttnNorm
                | AttnNorm2
                | FfnNormBeside
                | AttnQNorm
                | AttnKNorm
                | AttnPostNorm
                | AttnSubNorm
                | AttnQANorm
                | AttnKvANorm
                | FfnNorm
                | FfnPreNorm
                | FfnPostNorm
                | FfnSubNorm
                | LayerEmbeddingNorm
                | LayerEmbeddingPostNorm
                | AltUpRouterNorm
                | LaurelPostNorm
                | ExpertsNorm
                | ExpertsPostNorm
                | DensePostNorm
                | EmbeddingNorm
                | AttnOutNorm
                | LayerOutNorm
                | OutputNorm
                | SsmDtNorm
                | SsmBNorm
                | SsmCNorm
                | TimeMixNorm
                | DraftEmbedNorm
                | DraftStateNorm
                | DraftHeadNorm
        )
    }

    /// Whether it is a table of RoPE divisors, which belongs to the configuration.
    pub fn is_rope_table(self) -> bool {
        use WeightRole::*;
        matches!(self, RopeFactors | RopeFactorsLong | RopeFactorsShort)
    }

    /// Whether files keep it in floating point, though it has two dimensions.
    pub fn is_never_quantised(self) -> bool {
        use WeightRole::*;
        matches!(
            self,
            // Heads may have factors of their own in norms.
            AttnQNorm
                | AttnKNorm
                | Router
                | SharedRouter
                | AltUpProj
                | AltUpUnembed
                | AltUpRouter
                | AltUpPredict
                | AltUpCorrect
                | LaurelDown
                | LaurelUp
                | ShortConv
                | SsmConv
                | SsmConvQ
                | SsmConvK
                | SsmConvV
                | SsmRate
                | SsmSkip
                | SsmNorm
                | SsmPreNorm
                | TimeMixLerp
                | TimeMixLerpR
                | TimeMixLerpW
                | TimeMixLerpK
                | TimeMixLerpV
                | TimeMixLerpA
                | TimeMixLerpG
                | TimeMixDecayOffset
                | TimeMixDecayA
                | TimeMixDecayB
                | TimeMixRateOffset
                | TimeMixRateA
                | TimeMixRateB
                | TimeMixValueOffset
                | TimeMixValueA
                | TimeMixValueB
                | TimeMixGateA
                | TimeMixGateB
                | TimeMixRemoval
                | TimeMixWeakening
                | TimeMixBonus
                | ChannelMixLerp
        )
    }

    /// Whether it is a number without dimensions in folders.
    pub fn is_scalar(self) -> bool {
        matches!(self, WeightRole::XieluBeta | WeightRole::XieluEps)
    }

    /// Whether it is a matrix for each of a layer's experts.
    pub fn is_of_experts(self) -> bool {
        use WeightRole::*;
        matches!(self, ExpertsGate | ExpertsUp | ExpertsGateUp | ExpertsDown)
    }
}

/// Which of the parameters of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ParameterKind {
    /// `.weight`.
    Weight,
    /// `.bias`.
    Bias,
    /// `.scale`: a factor on products with the weight, of all of it or of each expert.
    Scale,
}

impl ParameterKind {
    fn suffix(self) -> &'static str {
        match self {
            ParameterKind::Weight => "weight",
            ParameterKind::Bias => "bias",
            ParameterKind::Scale => "scale",
        }
    }
}

/// One weight of a model, whatever the file calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorName {
    /// The block, for roles every block has.
    pub layer: Option<usize>,
    /// What it is for.
    pub role: WeightRole,
    /// Weight, bias or scale.
    pub part: ParameterKind,
}

/// What the module names `post_attention_layernorm` and `pre_feedforward_layernorm` mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HfNorms {
    /// Two norms a block: `post_attention_layernorm` stands before the feed-forward (Llama).
    Pre,
    /// Four norms a block: it stands after attention, and `pre_feedforward_layernorm` before the
    /// feed-forward (Gemma 3).
    PreAndPost,
}

/// How a family's Hugging Face files name modules.
#[derive(Clone, Copy, Debug)]
pub struct HfNames {
    /// What the shared names of norms mean.
    pub norms: HfNorms,
    /// Names of its own. `{}` stands for an expert's number; a name that ends with `!` has no `.weight` behind it.
    pub own: &'static [(WeightRole, &'static str)],
    /// Names of factors on products with weights of these roles.
    pub scales: &'static [(WeightRole, &'static str)],
    /// What the list of blocks is called.
    pub layers: &'static str,
}

impl HfNames {
    fn of(&self, role: WeightRole) -> Option<&'static str> {
        let own = self.own.iter().find(|(known, _)| *known == role);
        own.map(|(_, name)| *name)
            .or(row(role).hf[self.norms as usize])
    }
}

struct NameRow {
    role: WeightRole,
    per_layer: bool,
    /// A name that ends with `!` has no `.weight` behind it.
    gguf: &'static str,
    /// Module name by [`HfNorms`]; `None` where the family has no such module.
    hf: [Option<&'static str>; 2],
}

const fn row_of(
    role: WeightRole,
    per_layer: bool,
    gguf: &'static str,
    hf: [Option<&'static str>; 2],
) -> NameRow {
    NameRow {
        role,
        per_layer,
        gguf,
        hf,
    }
}

const fn both(name: &'static str) -> [Option<&'static str>; 2] {
    [Some(name), Some(name)]
}

/// One row a role, in the order of the enum. Sources: ggml's `gguf-py` constants, transformers'
/// `modeling_llama.py`, `modeling_gemma3.py`, `modeling_qwen3_moe.py` and `modeling_deepseek_v3.py`.
#[rustfmt::skip]
const TABLE: [NameRow; 152] = {
    use WeightRole as R;
    [
        row_of(R::TokenEmbedding, false, "token_embd", both("embed_tokens")),
        row_of(R::RopeFactors, false, "rope_freqs", [None, None]),
        row_of(R::RopeFactorsLong, false, "rope_factors_long", [None, None]),
        row_of(R::RopeFactorsShort, false, "rope_factors_short", [None, None]),
        row_of(R::AttnNorm, true, "attn_norm", both("input_layernorm")),
        row_of(R::AttnNorm2, true, "attn_norm_2", both("ln_attn")),
        row_of(R::FfnNormBeside, true, "attn_norm", both("ln_mlp")),
        row_of(R::AttnQ, true, "attn_q", both("self_attn.q_proj")),
        row_of(R::AttnK, true, "attn_k", both("self_attn.k_proj")),
        row_of(R::AttnV, true, "attn_v", both("self_attn.v_proj")),
        row_of(R::AttnQkv, true, "attn_qkv", both("self_attn.qkv_proj")),
        row_of(R::AttnQNorm, true, "attn_q_norm", both("self_attn.q_norm")),
        row_of(R::AttnKNorm, true, "attn_k_norm", both("self_attn.k_norm")),
        row_of(R::AttnSinks, true, "attn_sinks", both("self_attn.sinks!")),
        row_of(R::AttnGate, true, "attn_gate", [None, None]),
        row_of(R::AttnSubNorm, true, "attn_sub_norm", both("self_attn.attn_sub_norm")),
        row_of(R::AttnQA, true, "attn_q_a", both("self_attn.q_a_proj")),
        row_of(R::AttnQANorm, true, "attn_q_a_norm", both("self_attn.q_a_layernorm")),
        row_of(R::AttnQB, true, "attn_q_b", both("self_attn.q_b_proj")),
        row_of(R::AttnKvA, true, "attn_kv_a_mqa", both("self_attn.kv_a_proj_with_mqa")),
        row_of(R::AttnKvANorm, true, "attn_kv_a_norm", both("self_attn.kv_a_layernorm")),
        row_of(R::AttnKvB, true, "attn_kv_b", both("self_attn.kv_b_proj")),
        row_of(R::AttnKB, true, "attn_k_b", [None, None]),
        row_of(R::AttnVB, true, "attn_v_b", [None, None]),
        row_of(R::AttnOutput, true, "attn_output", both("self_attn.o_proj")),
        row_of(R::AttnLinear, true, "attn_output", both("self_attn.linear_attn")),
        row_of(R::AttnPostNorm, true, "post_attention_norm", [None, Some("post_attention_layernorm")]),
        row_of(R::FfnNorm, true, "ffn_norm", [Some("post_attention_layernorm"), Some("pre_feedforward_layernorm")]),
        row_of(R::FfnPreNorm, true, "ffn_norm!", [None, None]),
        row_of(R::FfnGate, true, "ffn_gate", both("mlp.gate_proj")),
        row_of(R::FfnUp, true, "ffn_up", both("mlp.up_proj")),
        row_of(R::FfnGateUp, true, "ffn_up", both("mlp.gate_up_proj")),
        row_of(R::FfnSubNorm, true, "ffn_sub_norm", both("mlp.ffn_sub_norm")),
        row_of(R::FfnDown, true, "ffn_down", both("mlp.down_proj")),
        row_of(R::XieluAlphaP, true, "xielu.alpha_p", both("mlp.act_fn.alpha_p!")),
        row_of(R::XieluAlphaN, true, "xielu.alpha_n", both("mlp.act_fn.alpha_n!")),
        row_of(R::XieluBeta, true, "xielu.beta", both("mlp.act_fn.beta!")),
        row_of(R::XieluEps, true, "xielu.eps", both("mlp.act_fn.eps!")),
        row_of(R::Router, true, "ffn_gate_inp", both("mlp.gate")),
        row_of(R::RouterBias, true, "exp_probs_b", both("mlp.gate.e_score_correction_bias!")),
        row_of(R::ChoiceBias, true, "exp_probs_b!", [None, None]),
        row_of(R::ExpertsGate, true, "ffn_gate_exps", both("mlp.experts.{}.gate_proj")),
        row_of(R::ExpertsUp, true, "ffn_up_exps", both("mlp.experts.{}.up_proj")),
        row_of(R::ExpertsGateUp, true, "ffn_gate_up_exps", both("mlp.experts.gate_up_proj!")),
        row_of(R::ExpertsDown, true, "ffn_down_exps", both("mlp.experts.{}.down_proj")),
        row_of(R::LatentDown, true, "ffn_latent_down", [None, None]),
        row_of(R::LatentUp, true, "ffn_latent_up", [None, None]),
        row_of(R::SharedRouter, true, "ffn_gate_inp_shexp", both("mlp.shared_expert_gate")),
        row_of(R::SharedGate, true, "ffn_gate_shexp", both("mlp.shared_expert.gate_proj")),
        row_of(R::SharedUp, true, "ffn_up_shexp", both("mlp.shared_expert.up_proj")),
        row_of(R::SharedDown, true, "ffn_down_shexp", both("mlp.shared_expert.down_proj")),
        row_of(R::SharedGateUp, true, "ffn_up_shexp", both("shared_mlp.input_linear")),
        row_of(R::FfnPostNorm, true, "post_ffw_norm", [None, Some("post_feedforward_layernorm")]),
        row_of(R::LayerEmbedding, false, "per_layer_token_embd", both("embed_tokens_per_layer")),
        row_of(R::LayerEmbeddingProj, false, "per_layer_model_proj", both("per_layer_model_projection")),
        row_of(R::LayerEmbeddingNorm, false, "per_layer_proj_norm", both("per_layer_projection_norm")),
        row_of(R::LayerEmbeddingGate, true, "inp_gate", both("per_layer_input_gate")),
        row_of(R::LayerEmbeddingUp, true, "proj", both("per_layer_projection")),
        row_of(R::LayerEmbeddingPostNorm, true, "post_norm", both("post_per_layer_input_norm")),
        row_of(R::LayerScale, true, "layer_output_scale", both("layer_scalar!")),
        row_of(R::AltUpProj, false, "altup_proj", both("altup_projections.{}")),
        row_of(R::AltUpUnembed, false, "altup_unembd_proj", both("altup_unembed_projections.{}")),
        row_of(R::AltUpRouterNorm, true, "altup_router_norm", both("altup.router_norm")),
        row_of(R::AltUpRouter, true, "altup_router", both("altup.modality_router")),
        row_of(R::AltUpPredict, true, "altup_predict_coef", both("altup.prediction_coefs")),
        row_of(R::AltUpCorrect, true, "altup_correct_coef", both("altup.correction_coefs")),
        row_of(R::AltUpCorrectScale, true, "altup_correct_scale", both("altup.correct_output_scale!")),
        row_of(R::LaurelDown, true, "laurel_l", both("laurel.linear_left")),
        row_of(R::LaurelUp, true, "laurel_r", both("laurel.linear_right")),
        row_of(R::LaurelPostNorm, true, "laurel_post_norm", both("laurel.post_laurel_norm")),
        row_of(R::ExpertsNorm, true, "pre_ffw_norm_2", both("pre_feedforward_layernorm_2")),
        row_of(R::ExpertsPostNorm, true, "post_ffw_norm_2", both("post_feedforward_layernorm_2")),
        row_of(R::DensePostNorm, true, "post_ffw_norm_1", both("post_feedforward_layernorm_1")),
        row_of(R::PositionEmbedding, false, "position_embd", [None, None]),
        row_of(R::TokenTypes, false, "token_types", [None, None]),
        row_of(R::EmbeddingNorm, false, "token_embd_norm", [None, None]),
        row_of(R::AttnOutNorm, true, "attn_output_norm", [None, None]),
        row_of(R::LayerOutNorm, true, "layer_output_norm", [None, None]),
        row_of(R::OutputNorm, false, "output_norm", both("norm")),
        row_of(R::Output, false, "output", both("lm_head")),
        row_of(R::ShortConvIn, true, "shortconv.in_proj", both("conv.in_proj")),
        row_of(R::ShortConvB, true, "shortconv.b_proj", [None, None]),
        row_of(R::ShortConvC, true, "shortconv.c_proj", [None, None]),
        row_of(R::ShortConvX, true, "shortconv.x_proj", [None, None]),
        row_of(R::ShortConv, true, "shortconv.conv", both("conv.conv")),
        row_of(R::ShortConvOut, true, "shortconv.out_proj", both("conv.out_proj")),
        row_of(R::SsmIn, true, "ssm_in", [None, None]),
        row_of(R::SsmInGate, true, "ssm_in.gate", [None, None]),
        row_of(R::SsmInXbc, true, "ssm_in.xbc", [None, None]),
        row_of(R::SsmInX, true, "ssm_in.x", [None, None]),
        row_of(R::SsmInB, true, "ssm_in.b", [None, None]),
        row_of(R::SsmInC, true, "ssm_in.c", [None, None]),
        row_of(R::SsmInDt, true, "ssm_in.dt", [None, None]),
        row_of(R::SsmConv, true, "ssm_conv1d", both("linear_attn.conv1d")),
        row_of(R::SsmConvQ, true, "ssm_conv1d_q", [None, None]),
        row_of(R::SsmConvK, true, "ssm_conv1d_k", [None, None]),
        row_of(R::SsmConvV, true, "ssm_conv1d_v", [None, None]),
        row_of(R::SsmDecayA, true, "ssm_f_a", [None, None]),
        row_of(R::SsmDecayB, true, "ssm_f_b", [None, None]),
        row_of(R::SsmGateA, true, "ssm_g_a", [None, None]),
        row_of(R::SsmGateB, true, "ssm_g_b", [None, None]),
        row_of(R::SsmX, true, "ssm_x", [None, None]),
        row_of(R::SsmXDt, true, "ssm_x.dt", [None, None]),
        row_of(R::SsmXB, true, "ssm_x.b", [None, None]),
        row_of(R::SsmXC, true, "ssm_x.c", [None, None]),
        row_of(R::SsmDtNorm, true, "ssm_dt_norm", [None, None]),
        row_of(R::SsmBNorm, true, "ssm_b_norm", [None, None]),
        row_of(R::SsmCNorm, true, "ssm_c_norm", [None, None]),
        row_of(R::SsmRate, true, "ssm_a!", both("linear_attn.A_log!")),
        row_of(R::SsmDt, true, "ssm_dt", both("linear_attn.dt!")),
        row_of(R::SsmAlpha, true, "ssm_alpha", [None, None]),
        row_of(R::SsmBeta, true, "ssm_beta", [None, None]),
        row_of(R::SsmBetaAlpha, true, "ssm_ba", [None, None]),
        row_of(R::SsmSkip, true, "ssm_d!", [None, None]),
        row_of(R::SsmNorm, true, "ssm_norm", [None, None]),
        row_of(R::SsmPreNorm, true, "ssm_pre_norm", [None, None]),
        row_of(R::SsmOut, true, "ssm_out", [None, None]),
        row_of(R::TimeMixLerp, true, "time_mix_lerp_fused", [None, None]),
        row_of(R::TimeMixLerpR, true, "time_mix_lerp_fused.r", [None, None]),
        row_of(R::TimeMixLerpW, true, "time_mix_lerp_fused.w", [None, None]),
        row_of(R::TimeMixLerpK, true, "time_mix_lerp_fused.k", [None, None]),
        row_of(R::TimeMixLerpV, true, "time_mix_lerp_fused.v", [None, None]),
        row_of(R::TimeMixLerpA, true, "time_mix_lerp_fused.a", [None, None]),
        row_of(R::TimeMixLerpG, true, "time_mix_lerp_fused.g", [None, None]),
        row_of(R::TimeMixDecayOffset, true, "time_mix_w0", [None, None]),
        row_of(R::TimeMixDecayA, true, "time_mix_w1", [None, None]),
        row_of(R::TimeMixDecayB, true, "time_mix_w2", [None, None]),
        row_of(R::TimeMixRateOffset, true, "time_mix_a0", [None, None]),
        row_of(R::TimeMixRateA, true, "time_mix_a1", [None, None]),
        row_of(R::TimeMixRateB, true, "time_mix_a2", [None, None]),
        row_of(R::TimeMixValueOffset, true, "time_mix_v0", [None, None]),
        row_of(R::TimeMixValueA, true, "time_mix_v1", [None, None]),
        row_of(R::TimeMixValueB, true, "time_mix_v2", [None, None]),
        row_of(R::TimeMixGateA, true, "time_mix_g1", [None, None]),
        row_of(R::TimeMixGateB, true, "time_mix_g2", [None, None]),
        row_of(R::TimeMixRemoval, true, "time_mix_k_k", [None, None]),
        row_of(R::TimeMixWeakening, true, "time_mix_k_a", [None, None]),
        row_of(R::TimeMixBonus, true, "time_mix_r_k", [None, None]),
        row_of(R::TimeMixKey, true, "time_mix_key", [None, None]),
        row_of(R::TimeMixValue, true, "time_mix_value", [None, None]),
        row_of(R::TimeMixReceptance, true, "time_mix_receptance", [None, None]),
        row_of(R::TimeMixNorm, true, "time_mix_ln", [None, None]),
        row_of(R::TimeMixOutput, true, "time_mix_output", [None, None]),
        row_of(R::ChannelMixLerp, true, "channel_mix_lerp_k", [None, None]),
        row_of(R::ChannelMixKey, true, "channel_mix_key", [None, None]),
        row_of(R::ChannelMixValue, true, "channel_mix_value", [None, None]),
        row_of(R::DraftProj, true, "nextn.eh_proj", both("eh_proj")),
        row_of(R::DraftEmbedNorm, true, "nextn.enorm", both("enorm")),
        row_of(R::DraftStateNorm, true, "nextn.hnorm", both("hnorm")),
        row_of(R::DraftEmbedding, true, "nextn.embed_tokens", both("embed_tokens")),
        row_of(R::DraftHead, true, "nextn.shared_head_head", both("shared_head.head")),
        row_of(R::DraftHeadNorm, true, "nextn.shared_head_norm", both("shared_head.norm")),
    ]
};

fn row(role: WeightRole) -> &'static NameRow {
    &TABLE[role as usize]
}

/// Prefixes that Hugging Face files put before the text model's modules: plain causal models, those of Mamba's
/// classes, the multimodal wrappers of transformers 4 and of 5, encoders with a head, and the bare text model.
pub const HF_PREFIXES: [&str; 10] = [
    "model.",
    "backbone.",
    "language_model.model.",
    "model.language_model.",
    "bert.",
    "roberta.",
    "nomic_bert.",
    "gpt_neox.",
    "transformer.",
    "",
];

impl TensorName {
    /// A weight that the model has once.
    pub fn global(role: WeightRole) -> TensorName {
        TensorName {
            layer: None,
            role,
            part: ParameterKind::Weight,
        }
    }

    /// A weight of block `layer`.
    pub fn block(layer: usize, role: WeightRole) -> TensorName {
        TensorName {
            layer: Some(layer),
            role,
            part: ParameterKind::Weight,
        }
    }

    /// What is added to scores of experts for their choice: its files call it a bias, of no weight.
    pub fn router_bias(layer: usize) -> TensorName {
        TensorName::block(layer, WeightRole::RouterBias).bias()
    }

    /// The bias that goes with this weight.
    pub fn bias(self) -> TensorName {
        TensorName {
            part: ParameterKind::Bias,
            ..self
        }
    }

    /// The factor on products with this weight.
    pub fn scale(self) -> TensorName {
        TensorName {
            part: ParameterKind::Scale,
            ..self
        }
    }

    /// The name in GGUF files: `blk.3.attn_q.weight`.
    pub fn gguf(&self) -> String {
        let (name, suffix) = (row(self.role).gguf, self.part.suffix());
        if let (Some(stem), Some(layer), ParameterKind::Weight) =
            (name.strip_suffix('!'), self.layer, self.part)
        {
            return format!("blk.{layer}.{stem}");
        }
        let name = name.trim_end_matches('!');
        match self.layer {
            Some(layer) => format!("blk.{layer}.{name}.{suffix}"),
            None => format!("{name}.{suffix}"),
        }
    }

    /// The name in Hugging Face files with one of [`HF_PREFIXES`]:
    /// `model.layers.3.self_attn.q_proj.weight`. `None` if these files have no such tensor. Where each expert has
    /// a tensor, `{}` stands for its number.
    pub fn hf(&self, prefix: &str, names: HfNames) -> Option<String> {
        let layers = names.layers;
        if self.part == ParameterKind::Scale
            && let Some((_, name)) = names.scales.iter().find(|(role, _)| *role == self.role)
        {
            let layer = self.layer?;
            return Some(format!("{prefix}{layers}.{layer}.{name}"));
        }
        let (name, suffix) = (names.of(self.role)?, self.part.suffix());
        Some(match (self.layer, self.role) {
            // Factors stand beside packed matrices, whose names have `.weight`.
            (Some(_), _) if name.ends_with('!') && self.part == ParameterKind::Scale => {
                return None;
            }
            (Some(layer), _) if name.ends_with('!') => {
                let name = name.trim_end_matches('!');
                let bias = match self.part {
                    ParameterKind::Bias if self.role != WeightRole::RouterBias => "_bias",
                    _ => "",
                };
                format!("{prefix}{layers}.{layer}.{name}{bias}")
            }
            (Some(layer), _) => format!("{prefix}{layers}.{layer}.{name}.{suffix}"),
            // The head belongs to the causal model that wraps the text model.
            (None, WeightRole::Output) => {
                let wrapper = prefix
                    .strip_suffix("model.")
                    .filter(|outer| outer.ends_with('.'));
                format!("{}{name}.{suffix}", wrapper.unwrap_or(""))
            }
            (None, _) => format!("{prefix}{name}.{suffix}"),
        })
    }

    /// The name in Hugging Face files with this before it, of a module that stands by itself.
    pub(crate) fn hf_module(&self, module: &str) -> String {
        format!("{module}.{}", self.part.suffix())
    }

    /// Reads a GGUF name; `None` if it is not one of this table.
    pub fn parse_gguf(name: &str) -> Option<TensorName> {
        let (stem, part) = split_part(name).unwrap_or((name, ParameterKind::Weight));
        let has_suffix = stem.len() < name.len();
        let (layer, stem) = match stem.strip_prefix("blk.") {
            Some(rest) => {
                let (layer, stem) = rest.split_once('.')?;
                (Some(parse_layer(layer)?), stem)
            }
            None => (None, stem),
        };
        let bare = |row: &NameRow| row.gguf.strip_suffix('!').unwrap_or(row.gguf);
        let is_suffixed = |row: &NameRow| part != ParameterKind::Weight || !row.gguf.ends_with('!');
        let mut rows = TABLE.iter();
        let row = rows.find(|row| bare(row) == stem && is_suffixed(row) == has_suffix)?;
        (row.per_layer == layer.is_some()).then_some(TensorName {
            layer,
            role: row.role,
            part,
        })
    }
}

impl fmt::Display for TensorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.gguf())
    }
}

fn split_part(name: &str) -> Option<(&str, ParameterKind)> {
    [
        ParameterKind::Weight,
        ParameterKind::Bias,
        ParameterKind::Scale,
    ]
    .into_iter()
    .find_map(|part| {
        let stem = name.strip_suffix(part.suffix())?.strip_suffix('.')?;
        Some((stem, part))
    })
}

/// A block number without sign or leading zeros, so that each name has one spelling.
fn parse_layer(text: &str) -> Option<usize> {
    let layer: usize = text.parse().ok()?;
    (layer.to_string() == text).then_some(layer)
}

/// The row order of GGUF's Q and K matrices in the families that permute them: row `i` of the GGUF
/// matrix is row `permutation(..)[i]` of the Hugging Face one.
///
/// Half-split RoPE rotates row `j` of a head with row `j + head_dim/2`; the permutation brings the
/// two next to each other, which is what interleaved RoPE rotates.
pub fn permutation(n_heads: usize, head_dim: usize) -> Vec<usize> {
    let half = head_dim / 2;
    (0..n_heads * head_dim)
        .map(|row| {
            let (head, i) = (row / head_dim, row % head_dim);
            head * head_dim + (i % 2) * half + i / 2
        })
        .collect()
}

#[cfg(test)]
mod tests;
