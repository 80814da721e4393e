//! Writes `config.json`.

use serde_json::{Value, json};

use super::HfWindows;
use crate::Error;
use crate::arch::{self, Family};
use crate::config::{Biases, ModelConfig, RopeConfig, RopeScaling};
use millrace_graph::Activation;

/// Writes the `config.json` of a causal language model, as transformers 5 spells it.
///
/// # Errors
/// [`Error::Unsupported`] for what `config.json` cannot say: RoPE factors of a GGUF file that are not
/// those of a `llama3` scaling, biases on some projections only.
pub fn write(config: &ModelConfig) -> Result<Value, Error> {
    let family = arch::by_name(config.family);
    refuse_unwritable(config, family)?;
    let mut out = json!({
        "architectures": [family.hf_classes[0]],
        "model_type": family.hf_model_types[0],
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
        "rope_parameters": rope_json(config)?,
    });
    let act = match config.activation {
        Activation::Silu => "silu",
        Activation::GeluTanh => "gelu_pytorch_tanh",
        Activation::Gelu => "gelu",
        Activation::Relu => "relu",
        Activation::ReluSquared => "relu2",
        Activation::Sigmoid => "sigmoid",
    };
    let mut set = |key: &str, value: Value| out[key] = value;
    if family.query_pre_attn_scalar.is_some() {
        set("hidden_activation", json!(act));
        // The scale is the inverse root of a whole number in every model.
        let scalar = (1.0 / (f64::from(config.attention_scale).powi(2))).round();
        set("query_pre_attn_scalar", json!(scalar as u64));
    } else {
        set("hidden_act", json!(act));
    }
    if family.hf_biases.is_none() {
        set("attention_bias", json!(config.biases.qkv));
        if config.biases.ffn {
            set("mlp_bias", json!(true));
        }
    }
    if config.n_rot != config.head_dim && config.latent.is_none() {
        let factor = config.n_rot as f64 / config.head_dim as f64;
        set("partial_rotary_factor", json!(factor));
    }
    if let (Some(keys), Some(experts)) = (&family.hf_experts, &config.experts) {
        keys.write(experts, &mut set);
    }
    match family.hf_windows {
        HfWindows::Never => {}
        HfWindows::All(_) | HfWindows::Given => set("sliding_window", json!(config.window)),
        HfWindows::FromLayer { .. } | HfWindows::Pattern { .. } => {
            if matches!(family.hf_windows, HfWindows::FromLayer { .. }) {
                set("use_sliding_window", json!(config.window.is_some()));
            }
            set("sliding_window", json!(config.window));
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
    (family.write_hf)(config, &mut out);
    Ok(out)
}

fn refuse_unwritable(config: &ModelConfig, family: &Family) -> Result<(), Error> {
    let Biases {
        qkv,
        attn_output,
        ffn,
    } = config.biases;
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

fn rope_json(config: &ModelConfig) -> Result<Value, Error> {
    let one = |rope: &RopeConfig| {
        let llama3 = rope.as_llama3(config.head_dim);
        let rope = llama3.as_ref().unwrap_or(rope);
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
            RopeScaling::Factors(_) => {
                return Err(Error::Unsupported {
                    file: "config.json".into(),
                    feature: "RoPE with explicit factors that are not a `llama3` scaling".into(),
                    supported: "default, linear, llama3".into(),
                });
            }
        }
        Ok(out)
    };
    match &config.rope_local {
        None => one(&config.rope),
        Some(local) => Ok(json!({
            "full_attention": one(&config.rope)?,
            "sliding_attention": one(local)?,
        })),
    }
}

/// The double that prints as the single-precision number does: 1e-6, not 9.999999974752427e-7.
pub(crate) fn shortest(value: f32) -> Value {
    json!(value.to_string().parse::<f64>().unwrap_or(f64::from(value)))
}
