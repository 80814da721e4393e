//! Writes `config.json`.

use serde_json::{Value, json};

use super::HfWindows;
use crate::Error;
use crate::arch::{self, Family};
use crate::config::{Biases, ModelConfig, RopeConfig, RopeScaling, YarnScaling};
use millrace_graph::Activation;

/// Writes the `config.json` of a causal language model, as transformers 5 spells it.
///
/// # Errors
/// [`Error::Unsupported`] for values that `config.json` cannot express: RoPE factors of a GGUF file
/// that are not those of a `llama3` scaling, biases on some projections only.
pub fn write(config: &ModelConfig) -> Result<Value, Error> {
    let family = arch::by_name(config.family);
    let (Some(class), Some(model_type)) =
        (family.hf_classes.first(), family.hf_model_types.first())
    else {
        return Err(Error::Unsupported {
            file: "config.json".into(),
            feature: format!(
                "the family {}, which transformers has no class for",
                family.name
            ),
            supported: "GGUF files of it".into(),
        });
    };
    refuse_unwritable(config, family)?;
    let mut out = json!({
        "architectures": [class],
        "model_type": model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": shortest(config.norm_eps),
        "tie_word_embeddings": config.tied_head,
        "rope_parameters": rope_json(config),
    });
    let act = activation_name(config.activation);
    let mut set = |key: &str, value: Value| out[key] = value;
    write_attention(config, family, act, &mut set);
    if let (Some(keys), Some(experts)) = (&family.hf_experts, &config.experts) {
        keys.write((experts, config.n_layers), &mut set);
    }
    if let Some(key) = family.hf_qk_norm {
        set(key, json!(config.qk_norm));
    }
    write_windows(config, family, &mut set);
    (family.write_hf)(config, &mut out);
    Ok(out)
}

/// The activation, and attention's properties besides its heads.
fn write_attention(
    config: &ModelConfig,
    family: &Family,
    act: &str,
    set: &mut dyn FnMut(&str, Value),
) {
    set("hidden_act", json!(act));
    if let Some(cap) = config.logit_softcap {
        set("final_logit_softcapping", shortest(cap));
    }
    if family.hf_biases.is_none() && !family.hf_own_biases {
        set("attention_bias", json!(config.biases.qkv));
        if config.biases.ffn {
            set("mlp_bias", json!(true));
        }
    }
    if config.latent.is_none() {
        let factor = share(config.n_rot, config.head_dim);
        if factor != family.hf_partial_rotary {
            set("partial_rotary_factor", json!(factor));
        }
    }
    if let RopeScaling::Long(long) = &config.rope.scaling {
        // The key beside the dictionary takes precedence over the one within.
        let key = "original_max_position_embeddings";
        set(key, json!(long.original_context));
    }
}

fn write_windows(config: &ModelConfig, family: &Family, set: &mut dyn FnMut(&str, Value)) {
    match family.hf_windows {
        HfWindows::Never | HfWindows::Recurrent => {}
        // The family's hook writes types of layers.
        HfWindows::BesideRecurrent(_) => set("sliding_window", json!(config.window)),
        HfWindows::Chunks(_) => {
            set("attention_chunk_size", json!(config.window));
            let name = |&windowed: &bool| match windowed {
                true => "chunked_attention",
                false => "full_attention",
            };
            set(
                "layer_types",
                config.layer_windowed.iter().map(name).collect(),
            );
        }
        HfWindows::All(_) | HfWindows::Given => set("sliding_window", json!(config.window)),
        HfWindows::AllIfUsed(_) => {
            set("use_sliding_window", json!(config.window.is_some()));
            set("sliding_window", json!(config.window));
        }
        HfWindows::FromLayer { .. }
        | HfWindows::EvenBefore { .. }
        | HfWindows::Pattern { .. }
        | HfWindows::Local { .. } => {
            if matches!(
                family.hf_windows,
                HfWindows::FromLayer { .. } | HfWindows::EvenBefore { .. }
            ) {
                set("use_sliding_window", json!(config.window.is_some()));
            }
            match (family.hf_windows, config.window) {
                (HfWindows::Local { .. }, None) => {}
                (HfWindows::Local { .. }, window) => set("local_attention", json!(window)),
                (_, window) => set("sliding_window", json!(window)),
            }
            let name = |&windowed: &bool| match windowed {
                true => "sliding_attention",
                false => "full_attention",
            };
            set(
                "layer_types",
                config.layer_windowed.iter().map(name).collect(),
            );
        }
    }
}

/// transformers' name of an activation.
pub(crate) fn activation_name(activation: Activation) -> &'static str {
    match activation {
        Activation::Silu => "silu",
        Activation::GeluTanh => "gelu_pytorch_tanh",
        Activation::Gelu => "gelu",
        Activation::Relu => "relu",
        Activation::ReluSquared => "relu2",
        Activation::Sigmoid => "sigmoid",
    }
}

/// The share of a head that reads back as `n` elements: readers truncate the product to a whole number.
pub(crate) fn share(n: usize, head_dim: usize) -> f64 {
    let share = n as f64 / head_dim as f64;
    match ((head_dim as f64 * share) as usize) < n {
        true => share.next_up(),
        false => share,
    }
}

fn refuse_unwritable(config: &ModelConfig, family: &Family) -> Result<(), Error> {
    let Biases {
        qkv,
        attn_output,
        ffn,
    } = config.biases;
    if let Some(feature) = (family.hf_unsayable)(config) {
        return Err(Error::Unsupported {
            file: "config.json".into(),
            feature,
            supported: "GGUF files of it".into(),
        });
    }
    refuse_layers(config, family)?;
    if family.hf_own_biases {
        return Ok(());
    }
    let sayable = match family.hf_biases {
        Some(fixed) => config.biases == fixed,
        None => qkv == attn_output && (!ffn || family.hf_mlp_bias),
    };
    if sayable {
        return Ok(());
    }
    Err(Error::Unsupported {
        file: "config.json".into(),
        feature: format!("{:?} in {}", config.biases, family.name),
        supported: "the biases of the family's transformers class".into(),
    })
}

/// Refuses widths, windows and rotations that the family's `config.json` has no keys for.
fn refuse_layers(config: &ModelConfig, family: &Family) -> Result<(), Error> {
    if !family.owns_hf_key("intermediate_size") && !config.has_sayable_widths() {
        return Err(Error::Unsupported {
            file: "config.json".into(),
            feature: format!("feed-forward sizes {:?}", config.layers.d_ff),
            supported: "twice the usual one in the layers that share keys and values".into(),
        });
    }
    if matches!(family.hf_windows, HfWindows::Recurrent) && config.window.is_some() {
        return Err(Error::Unsupported {
            file: "config.json".into(),
            feature: format!("a sliding window in {}", family.name),
            supported: "GGUF files of it".into(),
        });
    }
    if is_untruncated_by_type(config) {
        return Err(Error::Unsupported {
            file: "config.json".into(),
            feature: "YaRN's `truncate` = false in a RoPE of one type of layer".into(),
            supported: "GGUF files of it".into(),
        });
    }
    let in_all = matches!(
        family.hf_windows,
        HfWindows::All(_) | HfWindows::Given | HfWindows::AllIfUsed(_)
    );
    if in_all && config.window.is_some() && config.layer_windowed.contains(&false) {
        return Err(Error::Unsupported {
            file: "config.json".into(),
            feature: format!("a sliding window in some layers of {}", family.name),
            supported: "one in all layers, or in none".into(),
        });
    }
    let is_plain = config.latent.is_none() && !family.is_encoder() && !family.attention_free;
    let rotates = (0..config.n_layers).any(|layer| config.rotates(layer));
    if is_plain && rotates && config.n_rot != config.head_dim && !family.rotates_part() {
        return Err(Error::Unsupported {
            file: "config.json".into(),
            feature: format!(
                "{} of {} elements of a head that rotate in {}",
                config.n_rot, config.head_dim, family.name
            ),
            supported: "heads that rotate as a whole in this family".into(),
        });
    }
    Ok(())
}

/// Whether YaRN mixes by fractions of pairs where `rope_parameters` are by type of layer: transformers rounds there.
fn is_untruncated_by_type(config: &ModelConfig) -> bool {
    let is_untruncated =
        |rope: &RopeConfig| matches!(&rope.scaling, RopeScaling::Yarn(yarn) if !yarn.truncates);
    let local = config.rope_local.as_ref();
    local.is_some_and(|local| is_untruncated(local) || is_untruncated(&config.rope))
}

fn rope_json(config: &ModelConfig) -> Value {
    let one = |rope: &RopeConfig| {
        let named = rope.as_named(config.n_rot);
        let rope = named.as_ref().unwrap_or(rope);
        scaling_json(rope, (config.n_rot, config.context_length))
    };
    match &config.rope_local {
        None => one(&config.rope),
        Some(local) => json!({
            "full_attention": one(&config.rope),
            "sliding_attention": one(local),
        }),
    }
}

/// One of those dictionaries; RoPE rotates `n_rot` elements.
fn scaling_json(rope: &RopeConfig, (n_rot, context_length): (usize, usize)) -> Value {
    let mut out = json!({ "rope_type": "default", "rope_theta": shortest(rope.theta) });
    match &rope.scaling {
        RopeScaling::None => {}
        RopeScaling::Linear { factor } => {
            out["rope_type"] = json!("linear");
            out["factor"] = shortest(*factor);
        }
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_context,
        } => {
            out["rope_type"] = json!("llama3");
            out["factor"] = shortest(*factor);
            out["low_freq_factor"] = shortest(*low_freq_factor);
            out["high_freq_factor"] = shortest(*high_freq_factor);
            out["original_max_position_embeddings"] = json!(original_context);
        }
        RopeScaling::Yarn(yarn) => put_yarn(yarn, &mut out),
        RopeScaling::Long(long) => {
            let list = |list: &[f32]| list.iter().copied().map(shortest).collect::<Value>();
            out["rope_type"] = json!("longrope");
            out["short_factor"] = list(&long.short);
            out["long_factor"] = list(&long.long);
            out["attention_factor"] = shortest(long.attention_factor);
            out["original_max_position_embeddings"] = json!(long.original_context);
        }
        RopeScaling::Dynamic { factor } => {
            out["rope_type"] = json!("dynamic");
            out["factor"] = shortest(*factor);
        }
        RopeScaling::Proportional { factor, n_rotated } => {
            out["rope_type"] = json!("proportional");
            out["factor"] = shortest(*factor);
            out["partial_rotary_factor"] = json!(share(2 * n_rotated, n_rot));
        }
        RopeScaling::Factors(factors) => {
            // Factors under no other name are LongRoPE of one list.
            let list: Value = factors.iter().copied().map(shortest).collect();
            out["rope_type"] = json!("longrope");
            out["short_factor"] = list.clone();
            out["long_factor"] = list;
            out["attention_factor"] = json!(1.0);
            out["original_max_position_embeddings"] = json!(context_length);
        }
    }
    out
}

fn put_yarn(yarn: &YarnScaling, out: &mut Value) {
    out["rope_type"] = json!("yarn");
    out["factor"] = shortest(yarn.factor);
    out["beta_fast"] = shortest(yarn.beta_fast);
    out["beta_slow"] = shortest(yarn.beta_slow);
    out["attention_factor"] = shortest(yarn.attention_factor);
    out["original_max_position_embeddings"] = json!(yarn.original_context);
    if let Some(mscale) = yarn.score_mscale {
        out["mscale_all_dim"] = shortest(mscale);
    }
    out["truncate"] = json!(yarn.truncates);
}

/// The double that prints as the single-precision number does: 1e-6, not 9.999999974752427e-7.
pub(crate) fn shortest(value: f32) -> Value {
    json!(value.to_string().parse::<f64>().unwrap_or(f64::from(value)))
}
