//! ERNIE 4.5 with experts: ERNIE's blocks, experts by softmax with a bias for the choice, shared experts.

use super::ernie4_5;
use super::glm4moe::SHARED_EXPERTS;
use super::{Family, StoredForm, WeightConvention};
use crate::Error;
use crate::config::ModelConfig;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfShared};
use crate::names::{TensorName, WeightRole};
use millrace_format::gguf::GgufValue;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "ernie4.5moe",
    golden: Some("ernie4.5-moe"),
    gguf_arch: "ernie4_5-moe",
    hf_model_types: &["ernie4_5_moe"],
    hf_classes: &["Ernie4_5_MoeForCausalLM"],
    models: "ERNIE 4.5 with experts (21B-A3B, 300B-A47B)",
    hf_own_biases: true,
    interleaved: true,
    hf_norm_eps: 1e-5,
    // The bias for the choice of experts is a row in folders.
    stored: |_, (name, layout)| StoredForm {
        is_row: name.role == WeightRole::RouterBias && layout != WeightConvention::Gguf,
        ..StoredForm::PLAIN
    },
    hf_names: &[
        (
            WeightRole::RouterBias,
            "mlp.moe_statics.e_score_correction_bias!",
        ),
        SHARED_EXPERTS[0],
        SHARED_EXPERTS[1],
        SHARED_EXPERTS[2],
    ],
    hf_experts: Some(HfExperts {
        n_experts: ("moe_num_experts", 64),
        n_used: ("moe_k", 6),
        d_ff: ("moe_intermediate_size", 1536),
        choice_bias: true,
        shared: HfShared::Count("moe_num_shared_experts", 2),
        shared_biases: true,
        n_dense_layers: Some(("moe_layer_start_index", 1)),
        every: Some(("moe_layer_interval", 1)),
        ..HfExperts::PLAIN
    }),
    hf_defaults: HfDefaults {
        vocab_size: 103_424,
        d_model: 2560,
        d_ff: 12_288,
        n_layers: 28,
        n_heads: 20,
        n_kv_heads: Some(4),
        head_dim: None,
        context_length: 131_072,
        tied_head: true,
        rope_theta: 500_000.0,
    },
    gguf,
    hf,
    write_hf,
    write_gguf: |config, set| {
        let every = config.experts.as_ref().map_or(1, |experts| experts.every);
        let every = u32::try_from(every).unwrap_or(u32::MAX);
        set("interleave_moe_layer_step", GgufValue::U32(every));
    },
    ..Family::PLAIN
};

/// Key of the lower bound on the sum of the chosen scores.
const NORM_MIN: &str = "moe_norm_min";

/// A bound below it changes no weight that a token sees: chosen scores are shares of 1, of which one is large.
const NORM_MIN_MAX: f32 = 1e-6;

/// The key of shared experts' width is computed from other sizes: the tensor has the true one.
fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let layers = 0..config.n_layers;
    if let Some(experts) = &mut config.experts {
        let of = |layer| keys.shape(TensorName::block(layer, WeightRole::SharedUp));
        let mut shapes = layers.clone().filter_map(of);
        if let Some(&[d_ff, _]) = shapes.next() {
            experts.shared_d_ff = d_ff;
        }
    }
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    ernie4_5::hf(text, config)?;
    let least = text.f32(NORM_MIN)?.unwrap_or(0.0);
    if least > NORM_MIN_MAX {
        let feature = format!("`{NORM_MIN}` = {least}");
        return Err(text.unsupported(feature, "at most 1e-6"));
    }
    let Some(experts) = &mut config.experts else {
        return Ok(());
    };
    // -1 is the last layer, which is the default too.
    let end = text.f64("moe_layer_end_index")?.filter(|end| *end >= 0.0);
    let end = end.map_or(config.n_layers, |end| end as usize + 1);
    let behind = end..config.n_layers.max(end);
    experts.dense_layers = behind.filter(|layer| experts.has(*layer)).collect();
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut serde_json::Value) {
    out["use_bias"] = json!(config.biases.ffn);
    let experts = config.experts.as_ref();
    if let Some(first) = experts.and_then(|experts| experts.dense_layers.first()) {
        out["moe_layer_end_index"] = json!(first - 1);
    }
}
