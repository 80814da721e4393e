//! Purposes of weights.

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
    /// `[2·n_kv_heads·head_dim, d_model]`: keys and values in one.
    AttnKv,
    /// `[n_experts, d_model]`: scores of the experts of attention.
    AttnRouter,
    /// `[n_experts, n_kv_heads·head_dim, d_model]`: query projections of those experts.
    AttnQExperts,
    /// `[n_experts, d_model, n_kv_heads·head_dim]`: their output projections.
    AttnOutputExperts,
    /// `[head_dim]`, or as many as all heads have: norm of queries.
    AttnQNorm,
    /// `[head_dim]`, or as many as all heads have: norm of keys.
    AttnKNorm,
    /// `[n_heads]`: a score of each head that takes part in softmax but has no value.
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
    /// `[1]`: parameter of xIELU's factor on squares (folders only).
    XieluAlphaP,
    /// `[1]`: parameter of its factor on exponentials (folders only).
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
    /// `[latent, d_model]`: projection of the experts' input.
    LatentDown,
    /// `[d_model, latent]`: projection of the experts' output.
    LatentUp,
    /// `[1, d_model]`: gate of the whole shared expert.
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
    /// `[vocab, n_layers·per_layer]`: the table of the separate embeddings of all layers, side by side.
    LayerEmbedding,
    /// `[n_layers·per_layer, d_model]`: projection of a token's embedding to those.
    LayerEmbeddingProj,
    /// `[per_layer]`: norm of that projection's output for a layer.
    LayerEmbeddingNorm,
    /// `[per_layer, d_model]`: gate of the layer's own embedding.
    LayerEmbeddingGate,
    /// `[d_model, per_layer]`: projection of the gated embedding.
    LayerEmbeddingUp,
    /// `[d_model]`: norm behind that projection, before the residual addition.
    LayerEmbeddingPostNorm,
    /// `[1]`: factor on the block's output.
    LayerScale,
    /// `[n_streams - 1, d_model, d_model]`: projections of a token's embedding into the other streams (AltUp).
    AltUpProj,
    /// `[n_streams - 1, d_model, d_model]`: projections that bring them back into one.
    AltUpUnembed,
    /// `[d_model]`: norm before the router of streams.
    AltUpRouterNorm,
    /// `[n_streams, d_model]`: router of streams.
    AltUpRouter,
    /// `[n_streams², n_streams]`: how much streams take of each other before a block, from the router's output.
    AltUpPredict,
    /// `[n_streams, n_streams]`: how much they take of the block's output.
    AltUpCorrect,
    /// `[d_model]`: factors on the stream that gates the layer's own embedding.
    AltUpCorrectScale,
    /// `[rank, d_model]`: low-rank residual beside attention, down.
    LaurelDown,
    /// `[d_model, rank]`: low-rank residual, up.
    LaurelUp,
    /// `[d_model]`: norm behind it.
    LaurelPostNorm,
    /// `[d_model]`: norm before experts that run beside a dense network.
    ExpertsNorm,
    /// `[d_model]`: norm behind those experts.
    ExpertsPostNorm,
    /// `[d_model]`: norm behind the dense network beside them.
    DensePostNorm,
    /// `[context, d_model]`: embeddings of positions.
    PositionEmbedding,
    /// `[d_model, table_dim]`: projection of embeddings to the stream, where that has another width.
    EmbeddingProj,
    /// `[table_dim, d_model]`: projection of the stream to the width of the embeddings, before the head.
    OutputProj,
    /// `[n_types, d_model]`: embeddings of the kinds of text that tokens belong to.
    TokenTypes,
    /// `[d_model]`: norm of the embeddings; in files of LFM2 the norm before the head.
    EmbeddingNorm,
    /// `[d_model]`: norm of the stream behind attention.
    AttnOutNorm,
    /// `[d_model]`: norm of the stream behind the block.
    LayerOutNorm,
    /// `[d_model]`: norm before the head.
    OutputNorm,
    /// `[d_model]`: the last norm of an encoder, in GGUF files that name it so.
    EncoderNorm,
    /// `[vocab, d_model]`: the head.
    Output,
    /// `[3·d_model, d_model]`: projections of a short convolution in one: gate before, gate after, input.
    ShortConvIn,
    /// `[d_model, d_model]`: the first of them as a separate matrix.
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
    /// `[d_inner, d_model]`: its values as a separate matrix.
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
    /// `[dt_rank + 2·d_state, d_inner]`: of a scan of channels, the inputs of steps, keys and queries.
    SsmX,
    /// `[dt_rank, d_inner]`: the inputs of its steps, rows of [`SsmX`](WeightRole::SsmX).
    SsmXDt,
    /// `[d_state, d_inner]`: its keys, the rows behind.
    SsmXB,
    /// `[d_state, d_inner]`: its queries, the last rows.
    SsmXC,
    /// `[dt_rank]`: norm of the inputs of its steps.
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
    /// `[k_width, d_model]`: queries of a gated delta net, where they are a matrix of their own.
    SsmQ,
    /// `[k_width, d_model]`: its keys.
    SsmK,
    /// `[v_width, d_model]`: its values.
    SsmV,
    /// `[n_heads]`: the share of values that bypasses the state of a selective scan; of a scan of channels `[d_inner]`.
    SsmSkip,
    /// `[v_dim]`: norm of a recurrent layer's value heads; of a selective scan `[n_groups, d_inner / n_groups]`.
    SsmNorm,
    /// The same before the gate: llama.cpp has no name for it, and refuses a file that has one.
    SsmPreNorm,
    /// `[d_model, v_width]`: projection of a recurrent layer's output.
    SsmOut,
    /// `[6, 1, 1, d_model]`: of RWKV, shares of the previous token in the rows that its projections read: of receptance, decay,
    /// key, value, rate and gate.
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
    /// `[d_model]`: offset of its decays, before their sigmoid.
    TimeMixDecayOffset,
    /// `[rank, d_model]`: inputs for its decays, down.
    TimeMixDecayA,
    /// `[d_model, rank]`: up.
    TimeMixDecayB,
    /// `[d_model]`: offset of its rates of learning, before their sigmoid.
    TimeMixRateOffset,
    /// `[rank, d_model]`: inputs for its rates, down.
    TimeMixRateA,
    /// `[d_model, rank]`: up.
    TimeMixRateB,
    /// `[d_model]`: offset of the shares of the first layer's values, before their sigmoid.
    TimeMixValueOffset,
    /// `[rank, d_model]`: inputs for these shares, down.
    TimeMixValueA,
    /// `[d_model, rank]`: up.
    TimeMixValueB,
    /// `[rank, d_model]`: its gate, down.
    TimeMixGateA,
    /// `[d_model, rank]`: up.
    TimeMixGateB,
    /// `[d_model]`: factors on keys for the direction that is removed from its state.
    TimeMixRemoval,
    /// `[d_model]`: how far the rate weakens keys.
    TimeMixWeakening,
    /// `[d_model]`, in folders `[n_heads, head_dim]`: factors on products of receptance and keys that bypass the state.
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
    /// `[d_model]`: the share of the previous token in the row that its network reads.
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
    /// `[d_model, 2·target_dim]`: of an assistant, projection of its target's embedding beside its target's state.
    AssistantIn,
    /// `[target_dim, d_model]`: projection of its last norm's output to a state of its target.
    AssistantOut,
}
