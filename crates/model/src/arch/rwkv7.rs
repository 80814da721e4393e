//! RWKV 7: no attention, but a recurrence of heads, and networks that read a share of the previous token; LayerNorms.

mod config;

use super::Family;
use super::block::norm;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::Rwkv7Config;
use crate::config::hf::{HfDefaults, HfWindows};
use crate::names::WeightRole;
use config::{CONTEXT, HEAD_NORM_EPS, HEAD_SIZE, NORM_EPS, sizes};
use millrace_graph::{
    Activate, Activation, Multiply, Rwkv7, Rwkv7Output, Scale, SliceHeads, Softcap, TokenShift,
    ValueId, WeightId, WeightSource,
};

pub(super) static FAMILY: Family = Family {
    name: "rwkv7",
    gguf_arch: "rwkv7",
    hf_model_types: &["rwkv7"],
    hf_classes: &["RWKV7ForCausalLM"],
    models: "RWKV 7 World, G1 (0.1B to 2.9B)",
    activation: Activation::ReluSquared,
    attention_free: true,
    layer_norms: true,
    hf_own_biases: true,
    hf_own_keys: &["hidden_act", "hidden_activation"],
    hf_norm_eps: NORM_EPS,
    hf_windows: HfWindows::Recurrent,
    own_roles: &[
        WeightRole::EmbeddingNorm,
        WeightRole::AttnNorm,
        WeightRole::AttnNorm2,
        WeightRole::TimeMixNorm,
        WeightRole::OutputNorm,
    ],
    // Nothing reads these weights of the first layer.
    gguf_roles: &[
        WeightRole::TimeMixLerp,
        WeightRole::TimeMixValueOffset,
        WeightRole::TimeMixValueA,
        WeightRole::TimeMixValueB,
    ],
    hf_names: &[
        (WeightRole::TokenEmbedding, "embeddings"),
        (WeightRole::EmbeddingNorm, "layers.0.pre_norm"),
        (WeightRole::AttnNorm, "attn_norm"),
        (WeightRole::AttnNorm2, "ffn_norm"),
        (WeightRole::TimeMixLerp, "attn.x_x!"),
        (WeightRole::TimeMixLerpR, "attn.x_r!"),
        (WeightRole::TimeMixLerpW, "attn.x_w!"),
        (WeightRole::TimeMixLerpK, "attn.x_k!"),
        (WeightRole::TimeMixLerpV, "attn.x_v!"),
        (WeightRole::TimeMixLerpA, "attn.x_a!"),
        (WeightRole::TimeMixLerpG, "attn.x_g!"),
        (WeightRole::TimeMixDecayOffset, "attn.w_lora.lora.2.bias!"),
        (WeightRole::TimeMixDecayA, "attn.w_lora.lora.0"),
        (WeightRole::TimeMixDecayB, "attn.w_lora.lora.2"),
        (WeightRole::TimeMixRateOffset, "attn.a_lora.lora.2.bias!"),
        (WeightRole::TimeMixRateA, "attn.a_lora.lora.0"),
        (WeightRole::TimeMixRateB, "attn.a_lora.lora.2"),
        (WeightRole::TimeMixValueOffset, "attn.v_lora.lora.2.bias!"),
        (WeightRole::TimeMixValueA, "attn.v_lora.lora.0"),
        (WeightRole::TimeMixValueB, "attn.v_lora.lora.2"),
        (WeightRole::TimeMixGateA, "attn.g_lora.lora.0"),
        (WeightRole::TimeMixGateB, "attn.g_lora.lora.2"),
        (WeightRole::TimeMixRemoval, "attn.k_k!"),
        (WeightRole::TimeMixWeakening, "attn.k_a!"),
        (WeightRole::TimeMixBonus, "attn.r_k!"),
        (WeightRole::TimeMixKey, "attn.k_proj"),
        (WeightRole::TimeMixValue, "attn.v_proj"),
        (WeightRole::TimeMixReceptance, "attn.r_proj"),
        (WeightRole::TimeMixNorm, "attn.g_norm"),
        (WeightRole::TimeMixOutput, "attn.o_proj"),
        (WeightRole::ChannelMixLerp, "ffn.x_k!"),
        (WeightRole::ChannelMixKey, "ffn.key"),
        (WeightRole::ChannelMixValue, "ffn.value"),
    ],
    hf_defaults: HfDefaults {
        vocab_size: 32_000,
        d_model: 2048,
        d_ff: 8192,
        n_layers: 24,
        n_heads: 1,
        n_kv_heads: None,
        head_dim: Some(64),
        context_length: CONTEXT,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf: config::gguf,
    write_gguf: config::write_gguf,
    hf: config::hf,
    write_hf: config::write_hf,
    values: config::values,
    build,
    ..Family::PLAIN
};

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    let Some(sizes) = sizes(b.config()) else {
        return Err(Error::MissingKey {
            file: b.config().family.into(),
            key: HEAD_SIZE.into(),
        });
    };
    let mut x = b.embed()?;
    // The model has it once, but the first block computes it.
    let d_model = b.config().d_model;
    b.vector(WeightRole::EmbeddingNorm, d_model)?;
    b.bias(WeightRole::EmbeddingNorm, &[d_model])?;
    let mut first = None;
    for layer in b.layers() {
        b.hidden(x);
        b.enter_layer(layer);
        if layer == 0 {
            x = norm::stream(b, "embed_norm", WeightRole::EmbeddingNorm, x)?;
        }
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let out = time_mix(b, &sizes, &mut first, normed)?;
        x = b.residual("attn_residual", x, out);
        let normed = norm::stream(b, "ffn_norm", WeightRole::AttnNorm2, x)?;
        let out = channel_mix(b, normed)?;
        x = b.residual("ffn_residual", x, out);
    }
    b.leave_layers();
    b.hidden(x);
    b.head(x)
}

/// The recurrence, of a normed stream. `first` are the values of the first layer.
fn time_mix(
    b: &mut GraphBuilder<'_>,
    sizes: &Rwkv7Config,
    first: &mut Option<ValueId>,
    x: ValueId,
) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    let [xr, xw, xk, xv, xa, xg] = shifted(b, x)?;
    let square = (d_model, false);
    let r = b.linear("receptance", WeightRole::TimeMixReceptance, square, xr)?;
    let fade = low_rank(b, &DECAY, sizes.decay_rank, xw)?;
    let k = b.linear("key", WeightRole::TimeMixKey, square, xk)?;
    let own = b.linear("value", WeightRole::TimeMixValue, square, xv)?;
    let v = match *first {
        Some(first) => {
            let share = low_rank(b, &VALUE, sizes.value_rank, xv)?;
            between(b, [own, first, share])
        }
        None => {
            keep_unread(b, sizes.rate_rank)?;
            *first.insert(own)
        }
    };
    let rate = low_rank(b, &RATE, sizes.rate_rank, xa)?;
    let gate = low_rank(b, &GATE, sizes.gate_rank, xg)?;
    let weakening = vector(b, WeightRole::TimeMixWeakening)?;
    let op = Rwkv7 {
        state: b.next_state(),
        removal: vector(b, WeightRole::TimeMixRemoval)?,
        weakening,
        n_heads: sizes.n_heads,
        head_dim: sizes.head_dim,
    };
    let out = b.push("rwkv7", op.into(), vec![r, fade, k, v, rate], d_model);
    let op = Rwkv7Output {
        weight: b.vector(WeightRole::TimeMixNorm, d_model)?,
        bias: b.bias(WeightRole::TimeMixNorm, &[d_model])?,
        eps: HEAD_NORM_EPS,
        bonus: bonus(b, sizes)?,
        weakening,
        n_heads: sizes.n_heads,
        head_dim: sizes.head_dim,
    };
    let out = b.push("rwkv7_output", op.into(), vec![out, r, k, v, rate], d_model);
    let out = b.push("gated", Multiply.into(), vec![out, gate], d_model);
    b.linear("attn_output", WeightRole::TimeMixOutput, square, out)
}

/// The six rows that projections read: shares of the row before, in one tensor or each by itself.
fn shifted(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<[ValueId; 6], Error> {
    const PARTS: [(&str, WeightRole); 6] = [
        ("shift_r", WeightRole::TimeMixLerpR),
        ("shift_w", WeightRole::TimeMixLerpW),
        ("shift_k", WeightRole::TimeMixLerpK),
        ("shift_v", WeightRole::TimeMixLerpV),
        ("shift_a", WeightRole::TimeMixLerpA),
        ("shift_g", WeightRole::TimeMixLerpG),
    ];
    let d_model = b.config().d_model;
    let fused = b.name_of(WeightRole::TimeMixLerp);
    let mut shares = Vec::with_capacity(PARTS.len());
    for (first, (_, role)) in PARTS.into_iter().enumerate() {
        let name = b.name_of(role);
        let n_rows = PARTS.len();
        shares.push(match (b.has_own(fused), b.rank_of(fused)) {
            (true, Some(2)) => b.rows_of((name, &[1, d_model]), (fused, n_rows), first)?,
            (true, _) => b.rows_of((name, &[1, 1, 1, d_model]), (fused, n_rows), first)?,
            (false, _) => {
                let shape: &[usize] = match b.rank_of(name) {
                    Some(1) => &[d_model],
                    _ => &[1, 1, d_model],
                };
                b.weight_from(name, name, shape, WeightSource::Whole)?
            }
        });
    }
    let op = TokenShift {
        state: b.next_state(),
        shares,
        width: d_model,
    };
    let width = PARTS.len() * d_model;
    let all = b.push("time_shift", op.into(), vec![x], width);
    let mut at = 0;
    Ok(PARTS.map(|(label, _)| {
        let op = SliceHeads {
            n_heads: 1,
            range: at..at + d_model,
        };
        at += d_model;
        b.push(label, op.into(), vec![all], d_model)
    }))
}

/// Two matrices of low rank, with the functions between and behind them.
struct LowRank {
    labels: [&'static str; 4],
    matrices: [WeightRole; 2],
    /// Added behind them.
    offset: Option<WeightRole>,
    between: Between,
    /// Whether a sigmoid is applied to the result.
    is_share: bool,
}

/// The function between two matrices.
enum Between {
    Nothing,
    Tanh,
    Sigmoid,
}

static DECAY: LowRank = LowRank {
    labels: ["decay_down", "decay_tanh", "decay_up", "decay"],
    matrices: [WeightRole::TimeMixDecayA, WeightRole::TimeMixDecayB],
    offset: Some(WeightRole::TimeMixDecayOffset),
    between: Between::Tanh,
    is_share: true,
};

static VALUE: LowRank = LowRank {
    labels: ["first_value_down", "", "first_value_up", "first_value"],
    matrices: [WeightRole::TimeMixValueA, WeightRole::TimeMixValueB],
    offset: Some(WeightRole::TimeMixValueOffset),
    between: Between::Nothing,
    is_share: true,
};

static RATE: LowRank = LowRank {
    labels: ["rate_down", "", "rate_up", "rate"],
    matrices: [WeightRole::TimeMixRateA, WeightRole::TimeMixRateB],
    offset: Some(WeightRole::TimeMixRateOffset),
    between: Between::Nothing,
    is_share: true,
};

static GATE: LowRank = LowRank {
    labels: ["gate_down", "gate_sigmoid", "gate_up", ""],
    matrices: [WeightRole::TimeMixGateA, WeightRole::TimeMixGateB],
    offset: None,
    between: Between::Sigmoid,
    is_share: false,
};

fn low_rank(
    b: &mut GraphBuilder<'_>,
    parts: &LowRank,
    rank: usize,
    x: ValueId,
) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    let [down, between, up, share] = parts.labels;
    let sigmoid = Activate {
        activation: Activation::Sigmoid,
    };
    let x = b.linear(down, parts.matrices[0], (rank, false), x)?;
    let x = match parts.between {
        Between::Nothing => x,
        Between::Sigmoid => b.push(between, sigmoid.into(), vec![x], rank),
        // A soft bound of 1 is tanh.
        Between::Tanh => b.push(between, Softcap { cap: 1.0 }.into(), vec![x], rank),
    };
    let name = b.name_of(parts.matrices[1]);
    let weight = b.weight_from(name, name, &[d_model, rank], WeightSource::Whole)?;
    let bias = match parts.offset {
        Some(role) => Some(b.vector(role, d_model)?),
        None => None,
    };
    let x = b.product(up, (weight, bias), x);
    Ok(match parts.is_share {
        true => b.push(share, sigmoid.into(), vec![x], d_model),
        false => x,
    })
}

/// `a + share ⊙ (other - a)`.
fn between(b: &mut GraphBuilder<'_>, [a, other, share]: [ValueId; 3]) -> ValueId {
    let width = b.width(a);
    let negated = b.push(
        "value_negated",
        Scale { factor: -1.0 }.into(),
        vec![a],
        width,
    );
    let way = b.add("value_way", other, negated);
    let part = b.push("value_part", Multiply.into(), vec![way, share], width);
    b.add("value_mixed", a, part)
}

/// Names the weights that GGUF files have for the first layer's own values, so that they are written and known.
fn keep_unread(b: &mut GraphBuilder<'_>, rank: usize) -> Result<(), Error> {
    let d_model = b.config().d_model;
    let shapes = [
        (WeightRole::TimeMixValueOffset, vec![d_model]),
        (WeightRole::TimeMixValueA, vec![rank, d_model]),
        (WeightRole::TimeMixValueB, vec![d_model, rank]),
    ];
    for (role, shape) in shapes {
        let name = b.name_of(role);
        match b.is_gguf() {
            true if b.has_own(name) => {
                b.weight_from(name, name, &shape, WeightSource::Whole)?;
            }
            true => {}
            false => b.unread(role),
        }
    }
    Ok(())
}

/// A vector for all heads. Some files have dimensions of one before it.
fn vector(b: &mut GraphBuilder<'_>, role: WeightRole) -> Result<WeightId, Error> {
    let (name, d_model) = (b.name_of(role), b.config().d_model);
    let shape: &[usize] = match b.rank_of(name) {
        Some(3) => &[1, 1, d_model],
        _ => &[d_model],
    };
    b.weight_from(name, name, shape, WeightSource::Whole)
}

/// Factors of the bonus: in folders a row a head.
fn bonus(b: &mut GraphBuilder<'_>, sizes: &Rwkv7Config) -> Result<WeightId, Error> {
    let name = b.name_of(WeightRole::TimeMixBonus);
    let usual = if b.is_gguf() { 1 } else { 2 };
    let shape: &[usize] = match b.rank_of(name).unwrap_or(usual) {
        1 => &[sizes.n_heads * sizes.head_dim],
        _ => &[sizes.n_heads, sizes.head_dim],
    };
    b.weight_from(name, name, shape, WeightSource::Whole)
}

/// The network, of a normed stream.
fn channel_mix(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let (d_model, d_ff) = (b.config().d_model, b.config().d_ff);
    let shares = vec![vector(b, WeightRole::ChannelMixLerp)?];
    let op = TokenShift {
        state: b.next_state(),
        shares,
        width: d_model,
    };
    let x = b.push("channel_shift", op.into(), vec![x], d_model);
    let x = b.linear("ffn_key", WeightRole::ChannelMixKey, (d_ff, false), x)?;
    let activate = Activate {
        activation: b.config().activation,
    };
    let x = b.push("ffn_act", activate.into(), vec![x], d_ff);
    b.linear(
        "ffn_value",
        WeightRole::ChannelMixValue,
        (d_model, false),
        x,
    )
}
