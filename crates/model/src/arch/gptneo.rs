//! GPT-Neo: learned positions, LayerNorms, a network without a gate, scores without a factor; every second layer has a
//! window. llama.cpp has no name for it.

use super::Family;
use super::block::{self, attention};
use super::bloom::{check_heads, set_sizes, unsayable_heads};
use super::gpt2::set_positions;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, HfDefaults, activation_name, activation_of, shortest};
use crate::config::{Biases, MAX_LAYERS, ModelConfig};
use crate::names::WeightRole;
use millrace_graph::Activation;
use serde_json::{Value, json};

/// Biases of all but queries, keys and values.
const BIASES: Biases = Biases {
    qkv: false,
    attn_output: true,
    ffn: true,
};
/// Words of the key for a layer without a window, and for one with it.
const KINDS: [&str; 2] = ["global", "local"];
const KINDS_KEY: &str = "attention_types";

pub(super) static FAMILY: Family = Family {
    name: "gptneo",
    gguf_arch: "gptneo",
    hf_model_types: &["gpt_neo"],
    hf_classes: &["GPTNeoForCausalLM"],
    hf_layers: "h",
    hf_prefix: "transformer.",
    hf_names: &[
        (WeightRole::TokenEmbedding, "wte"),
        (WeightRole::PositionEmbedding, "wpe"),
        (WeightRole::AttnNorm, "ln_1"),
        (WeightRole::AttnQ, "attn.attention.q_proj"),
        (WeightRole::AttnK, "attn.attention.k_proj"),
        (WeightRole::AttnV, "attn.attention.v_proj"),
        (WeightRole::AttnOutput, "attn.attention.out_proj"),
        (WeightRole::FfnNorm, "ln_2"),
        (WeightRole::FfnUp, "mlp.c_fc"),
        (WeightRole::FfnDown, "mlp.c_proj"),
        (WeightRole::OutputNorm, "ln_f"),
    ],
    activation: Activation::GeluTanh,
    models: "GPT-Neo 125M to 2.7B; TinyStories",
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_biases: Some(BIASES),
    hf_defaults: HfDefaults {
        vocab_size: 50_257,
        d_model: 2048,
        d_ff: 8192,
        n_layers: 24,
        // The class has a key of its own, which the hook reads.
        n_heads: 1,
        n_kv_heads: None,
        head_dim: None,
        context_length: 2048,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    gguf_window_pattern: Some(2),
    first_layer_is_global: true,
    gguf: |_, config| {
        set_positions(config);
        Ok(())
    },
    hf,
    write_hf,
    hf_unsayable: |config| {
        let scale = config.attention_scale;
        let has_scale = || format!("scores with a factor of {scale} in GPT-Neo");
        unsayable_heads(config, "GPT-Neo").or_else(|| (scale != 1.0).then(has_scale))
    },
    build: |b| {
        let x = b.embed()?;
        let x = block::add_position(b, x)?;
        let block =
            |b: &mut GraphBuilder<'_>, layer, x| block::ungated(b, layer, attention::project, x);
        block::decoder_from(b, block, x)
    },
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let n_layers = text.usize("num_layers")?;
    let n_heads = text.usize("num_heads")?;
    set_sizes(
        config,
        n_layers.unwrap_or(FAMILY.hf_defaults.n_layers),
        n_heads.unwrap_or(16),
    );
    check_heads(text, "num_heads", config)?;
    if let Some(d_ff) = text.usize("intermediate_size")? {
        config.d_ff = d_ff;
    }
    config.n_rot = config.head_dim / 2 * 2;
    config.attention_scale = 1.0;
    if let Some(eps) = text.f32("layer_norm_epsilon")? {
        config.norm_eps = eps;
    }
    let activation = activation_of(text, "activation_function")?;
    config.activation = activation.unwrap_or(FAMILY.activation);
    set_positions(config);
    config.layer_windowed = windowed(text, config.n_layers)?;
    if config.layer_windowed.contains(&true) {
        config.window = Some(text.usize("window_size")?.unwrap_or(256));
    }
    Ok(())
}

/// For each layer whether it has a window, of a list of `[kinds, repetitions]`.
fn windowed(text: &ConfigObject<'_>, n_layers: usize) -> Result<Vec<bool>, Error> {
    // `validate` refuses more layers after this.
    let n_layers = n_layers.min(MAX_LAYERS);
    let usual = [json!([KINDS, FAMILY.hf_defaults.n_layers / 2])];
    let groups = text
        .array(KINDS_KEY)?
        .map_or(&usual[..], |groups| &groups[..]);
    let expected = format!("lists of `global` and `local` with numbers, {n_layers} layers in all");
    let mut layers = Vec::new();
    for group in groups {
        let bad = || text.bad(KINDS_KEY, group, &expected);
        let (kinds, n) = match group.as_array().map(Vec::as_slice) {
            Some([kinds, n]) => (
                kinds.as_array().ok_or_else(bad)?,
                n.as_u64().ok_or_else(bad)?,
            ),
            _ => return Err(bad()),
        };
        for _ in 0..n.min(MAX_LAYERS as u64) {
            for kind in kinds {
                let kind = kind
                    .as_str()
                    .and_then(|kind| KINDS.iter().position(|k| *k == kind));
                layers.push(kind.ok_or_else(bad)? == 1);
            }
            if kinds.is_empty() || layers.len() > n_layers {
                break;
            }
        }
    }
    if layers.len() != n_layers {
        return Err(text.bad(KINDS_KEY, &json!(groups), &expected));
    }
    Ok(layers)
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    let kind = |layer: usize| KINDS[usize::from(config.window_of(layer).is_some())];
    let kinds: Value = (0..config.n_layers).map(kind).collect();
    *out = json!({
        "architectures": FAMILY.hf_classes,
        "model_type": "gpt_neo",
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_layers": config.n_layers,
        "num_heads": config.n_heads,
        "max_position_embeddings": config.context_length,
        "activation_function": activation_name(config.activation),
        "layer_norm_epsilon": shortest(config.norm_eps),
        "attention_layers": kinds,
        "attention_types": [[kinds, 1]],
        "window_size": config.window.unwrap_or(256),
        "tie_word_embeddings": config.tied_head,
    });
}
