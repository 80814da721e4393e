//! GPT-2: learned positions, LayerNorms, a network without a gate, biases everywhere. Its folders have matrices transposed.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, HfDefaults, activation_name, activation_of, shortest};
use crate::config::{Biases, MAX_LAYERS, ModelConfig};
use crate::names::WeightRole;
use attention::Heads;
use millrace_graph::{Activation, Derivation, ValueId, WeightSource};
use serde_json::{Value, json};

/// Names of its folders, and of StarCoder's.
pub(super) const NAMES: &[(WeightRole, &str)] = &[
    (WeightRole::TokenEmbedding, "wte"),
    (WeightRole::PositionEmbedding, "wpe"),
    (WeightRole::AttnNorm, "ln_1"),
    (WeightRole::AttnQkv, "attn.c_attn"),
    (WeightRole::AttnOutput, "attn.c_proj"),
    (WeightRole::FfnNorm, "ln_2"),
    (WeightRole::FfnUp, "mlp.c_fc"),
    (WeightRole::FfnDown, "mlp.c_proj"),
    (WeightRole::OutputNorm, "ln_f"),
];

/// Defaults of `GPT2Config`, which other classes have too.
pub(super) const DEFAULTS: HfDefaults = HfDefaults {
    vocab_size: 50_257,
    d_model: 768,
    d_ff: 3072,
    n_layers: 12,
    n_heads: 12,
    n_kv_heads: None,
    head_dim: None,
    context_length: 1024,
    tied_head: true,
    rope_theta: 10_000.0,
};

pub(super) static FAMILY: Family = Family {
    name: "gpt2",
    gguf_arch: "gpt2",
    hf_model_types: &["gpt2"],
    hf_classes: &["GPT2LMHeadModel"],
    hf_layers: "h",
    hf_prefix: "transformer.",
    hf_names: NAMES,
    activation: Activation::GeluTanh,
    models: "GPT-2, DistilGPT2",
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_biases: Some(Biases::ALL),
    hf_defaults: DEFAULTS,
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::AttnQkv,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    gguf: |_, config| {
        set_positions(config);
        Ok(())
    },
    hf,
    write_hf,
    build: |b| {
        let x = b.embed()?;
        let x = block::add_position(b, x)?;
        block::decoder_from(b, block_of_files, x)
    },
    ..Family::PLAIN
};

/// Positions are learned, and nothing rotates.
pub(super) fn set_positions(config: &mut ModelConfig) {
    config.layers.learned_positions = true;
    // An odd size of heads need not be refused.
    config.n_rot = config.head_dim / 2 * 2;
    // `validate` refuses more layers after this.
    config.unrotated_layers = (0..config.n_layers.min(MAX_LAYERS)).collect();
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    hf_words(text, config, &FAMILY.hf_defaults)?;
    set_positions(config);
    Ok(())
}

/// Sizes under the keys of GPT-2 and of the families that took them over.
pub(super) fn hf_words(
    text: &ConfigObject<'_>,
    config: &mut ModelConfig,
    defaults: &HfDefaults,
) -> Result<(), Error> {
    for key in ["scale_attn_by_inverse_layer_idx", "add_cross_attention"] {
        if text.bool(key)? == Some(true) {
            return Err(text.unsupported(format!("`{key}`"), "models without it"));
        }
    }
    if text.bool("scale_attn_weights")? == Some(false) {
        let feature = "`scale_attn_weights` = false".into();
        return Err(text.unsupported(feature, "scores divided by the root of the head size"));
    }
    config.d_model = text.usize("n_embd")?.unwrap_or(defaults.d_model);
    config.n_layers = text.usize("n_layer")?.unwrap_or(defaults.n_layers);
    config.n_heads = text.usize("n_head")?.unwrap_or(defaults.n_heads);
    config.n_kv_heads = config.n_heads;
    config.head_dim = config.d_model / config.n_heads.max(1);
    config.n_rot = config.head_dim;
    config.attention_scale = 1.0 / (config.head_dim as f32).sqrt();
    let inner = text.usize("n_inner")?;
    config.d_ff = inner.unwrap_or_else(|| config.d_model.saturating_mul(4));
    let context = text.usize("n_positions")?;
    config.context_length = context.unwrap_or(defaults.context_length);
    config.layer_windowed = vec![false; config.n_layers.min(MAX_LAYERS)];
    if let Some(eps) = text.f32("layer_norm_epsilon")? {
        config.norm_eps = eps;
    }
    if let Some(activation) = activation_of(text, "activation_function")? {
        config.activation = activation;
    }
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    write_words(config, &FAMILY, out);
}

/// Writes the keys that [`hf_words`] reads.
pub(super) fn write_words(config: &ModelConfig, family: &Family, out: &mut Value) {
    let act = activation_name(config.activation);
    *out = json!({
        "architectures": family.hf_classes,
        "model_type": family.hf_model_types[0],
        "vocab_size": config.vocab_size,
        "n_embd": config.d_model,
        "n_layer": config.n_layers,
        "n_head": config.n_heads,
        "n_inner": config.d_ff,
        "n_positions": config.context_length,
        "activation_function": act,
        "layer_norm_epsilon": shortest(config.norm_eps),
        "tie_word_embeddings": config.tied_head,
    });
}

fn block_of_files(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let is_turned = !b.is_gguf();
    decoder_block(b, layer, x, is_turned)
}

/// Its blocks, and StarCoder's. `is_turned` says that matrices lie turned.
pub(super) fn decoder_block(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    x: ValueId,
    is_turned: bool,
) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = match is_turned {
        true => project(b, normed)?,
        false => attention::project(b, normed)?,
    };
    let heads = attention::attend_rotated(b, layer, heads)?;
    let d_model = b.config().d_model;
    let out = match is_turned {
        true => linear(b, "attn_output", WeightRole::AttnOutput, (d_model, heads))?,
        false => attention::project_back(b, heads)?,
    };
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = match is_turned {
        true => network(b, normed)?,
        false => feed_forward::plain(b, normed)?,
    };
    Ok(b.residual("ffn_residual", x, out))
}

/// The feed-forward network of transposed matrices.
fn network(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let (d_ff, d_model) = (b.config().d_ff, b.config().d_model);
    let up = linear(b, "ffn_up", WeightRole::FfnUp, (d_ff, x))?;
    let up = feed_forward::activated(b, "ffn_act", up);
    linear(b, "ffn_down", WeightRole::FfnDown, (d_model, up))
}

/// Queries, keys and values of one transposed matrix.
pub(super) fn project(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<Heads, Error> {
    let n = b.config().d_model;
    let part = |role, first| TurnedRows {
        role,
        tensor: WeightRole::AttnQkv,
        first,
        n_rows: 3 * n,
    };
    Ok(Heads {
        q: turned(b, "attn_q", part(WeightRole::AttnQ, 0), (n, x))?,
        k: turned(b, "attn_k", part(WeightRole::AttnK, n), (n, x))?,
        v: turned(b, "attn_v", part(WeightRole::AttnV, 2 * n), (n, x))?,
    })
}

/// `weight · x + bias` of `n` elements, of a matrix that lies turned.
pub(super) fn linear(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    role: WeightRole,
    (n, x): (usize, ValueId),
) -> Result<ValueId, Error> {
    let rows = TurnedRows {
        role,
        tensor: role,
        first: 0,
        n_rows: n,
    };
    turned(b, label, rows, (n, x))
}

/// Rows of a matrix that a tensor has as columns.
struct TurnedRows {
    role: WeightRole,
    tensor: WeightRole,
    first: usize,
    n_rows: usize,
}

fn turned(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    TurnedRows {
        role,
        tensor,
        first,
        n_rows,
    }: TurnedRows,
    (n, x): (usize, ValueId),
) -> Result<ValueId, Error> {
    let (name, tensor, k) = (b.name_of(role), b.name_of(tensor), b.width(x));
    let by = Derivation::Transposed {
        first,
        n_rows,
        step: 1,
    };
    let weight = b.weight_from(name, tensor, &[n, k], WeightSource::Derived(by))?;
    let rows = match n == n_rows {
        true => WeightSource::Whole,
        false => WeightSource::Rows { first, n_rows },
    };
    let bias = b.weight_from(name.bias(), tensor.bias(), &[n], rows)?;
    Ok(b.product(label, (weight, Some(bias)), x))
}
