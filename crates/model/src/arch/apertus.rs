//! Apertus: Qwen 3 with xIELU in place of a gate. Its folders have the factors of xIELU as tensors, its GGUF files as keys.

use super::block::{self, attention, norm};
use super::{Family, WeightConvention};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::catalog::Catalog;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults};
use crate::config::{MAX_LAYERS, ModelConfig, RopeConfig, RopeScaling, XieluParameters};
use crate::names::{TensorName, WeightRole};
use millrace_format::gguf::{GgufArray, GgufValue};
use millrace_format::{Checkpoint, TensorType};
use millrace_graph::ValueId;
use millrace_quant::decode_rows;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "apertus",
    gguf_arch: "apertus",
    hf_model_types: &["apertus"],
    hf_classes: &["ApertusForCausalLM"],
    models: "Apertus 8B, 70B",
    hf_names: &[
        (WeightRole::AttnNorm, "attention_layernorm"),
        (WeightRole::FfnNorm, "feedforward_layernorm"),
    ],
    hf_own_keys: &["hidden_act", "hidden_activation"],
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 131_072,
        d_ff: 14_336,
        context_length: 65_536,
        rope_theta: 12_000_000.0,
        ..Family::PLAIN.hf_defaults
    },
    gguf,
    hf,
    tensors,
    values,
    write_hf: |_, out| out["hidden_act"] = json!(ACTIVATION),
    write_gguf: |config, set| {
        for (index, key) in KEYS.into_iter().enumerate() {
            let of_layers = (0..config.n_layers).map(|layer| config.xielu_of(layer));
            let numbers = of_layers.map(|xielu| xielu.numbers()[index]).collect();
            set(key, GgufValue::Array(GgufArray::F32(numbers)));
        }
    },
    build: |b| block::decoder(b, decoder_block),
    ..Family::PLAIN
};

/// transformers' name of the activation.
const ACTIVATION: &str = "xielu";

/// Keys of the four numbers of a layer, which are not under the architecture's name.
const KEYS: [&str; 4] = [
    "!xielu.alpha_p",
    "!xielu.alpha_n",
    "!xielu.beta",
    "!xielu.eps",
];

/// Their tensors in folders.
const ROLES: [WeightRole; 4] = [
    WeightRole::XieluAlphaP,
    WeightRole::XieluAlphaN,
    WeightRole::XieluBeta,
    WeightRole::XieluEps,
];

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let mut of_keys = Vec::with_capacity(KEYS.len());
    for key in KEYS {
        of_keys.push(keys.f32_of_layers(key, config.n_layers)?);
    }
    let layer = |layer: usize| of_keys.iter().map(move |numbers| numbers[layer]);
    // `validate` refuses more layers after this.
    let n_layers = config.n_layers.min(MAX_LAYERS);
    let of_layers = (0..n_layers).map(|i| XieluParameters::of(layer(i)));
    config.layers.xielu = of_layers.collect();
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if let Some(found) = text.str("hidden_act")?.filter(|found| *found != ACTIVATION) {
        let feature = format!("activation `{found}` (`hidden_act`)");
        return Err(text.unsupported(feature, ACTIVATION));
    }
    let is_absent = |key: &&str| text.get(key).is_none();
    if ["rope_parameters", "rope_scaling", "rope_theta"]
        .iter()
        .all(is_absent)
    {
        config.rope = RopeConfig {
            theta: FAMILY.hf_defaults.rope_theta,
            scaling: RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_context: 8192,
            },
        };
    }
    Ok(())
}

/// The numbers of each layer, which folders have as tensors of one element.
fn tensors(
    checkpoint: &Checkpoint,
    catalog: &Catalog<'_>,
    config: &mut ModelConfig,
) -> Result<(), Error> {
    if catalog.layout() == WeightConvention::Gguf {
        return Ok(());
    }
    for layer in 0..config.n_layers {
        let names = ROLES.map(|role| {
            let name = TensorName::block(layer, role);
            name.hf(catalog.hf_prefix(), FAMILY.hf_names())
                .unwrap_or_default()
        });
        let numbers = names.map(|name| number(checkpoint, &name));
        // The graph's checks name a tensor that is missing or has another shape.
        if numbers.iter().any(Option::is_none) {
            return Ok(());
        }
        let xielu = XieluParameters::of(numbers.into_iter().flatten());
        config.layers.xielu.push(xielu);
    }
    config.validate(checkpoint.name())
}

/// The number that a tensor holds; `None` where there is no such tensor.
fn number(checkpoint: &Checkpoint, name: &str) -> Option<f32> {
    let tensor = checkpoint.tensor(name)?;
    let TensorType::Weights(dtype) = tensor.info.tensor_type else {
        return None;
    };
    let mut number = [0.0];
    let is_one = tensor.info.shape.iter().product::<usize>() == 1;
    let decoded = is_one.then(|| decode_rows(dtype, tensor.bytes, 1, 1, 0..1, &mut number));
    decoded?.ok().map(|()| number[0])
}

/// Those tensors, of a source that has them as keys.
fn values(
    config: &ModelConfig,
    (name, layout): (TensorName, WeightConvention),
) -> Option<Vec<f32>> {
    if layout == WeightConvention::Gguf {
        return None;
    }
    let index = ROLES.iter().position(|role| *role == name.role)?;
    let numbers = config.xielu_of(name.layer?).numbers();
    Some(vec![numbers[index]])
}

fn decoder_block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project(b, normed)?;
    let heads = attention::norm_heads(b, heads)?;
    let out = attention::attend(b, layer, heads)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let (d_ff, d_model) = (b.config().d_ff, b.config().d_model);
    let up = b.linear("ffn_up", WeightRole::FfnUp, (d_ff, false), normed)?;
    let act = activated(b, layer, up)?;
    let out = b.linear("ffn_down", WeightRole::FfnDown, (d_model, false), act)?;
    Ok(b.residual("ffn_residual", x, out))
}

fn activated(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    if !b.is_gguf() {
        // The configuration has read them. They must be there, and count as known.
        for role in ROLES {
            b.vector(role, 1)?;
        }
    }
    let op = b.config().xielu_of(layer).op();
    let width = b.width(x);
    Ok(b.push("ffn_act", op.into(), vec![x], width))
}
