//! Granite 4 hybrids: selective scans, and attention in some layers; experts or one network behind; Granite's factors.

use super::Family;
use super::block::mamba_config::{self as files, LayerKind};
use super::block::{self, feed_forward, norm, recurrent};
use super::{bamba, granite};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::ModelConfig;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfShared, HfWindows};
use crate::names::{TensorName, WeightRole};
use millrace_format::gguf::GgufValue;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "granitehybrid",
    gguf_arch: "granitehybrid",
    hf_model_types: &["granitemoehybrid"],
    hf_classes: &["GraniteMoeHybridForCausalLM"],
    models: "Granite 4 (H, and those without recurrent layers)",
    permuted_in_gguf: true,
    logit_divisor: true,
    hf_windows: HfWindows::Recurrent,
    hf_roles: &[
        WeightRole::ExpertsGateUp,
        WeightRole::SharedGateUp,
        WeightRole::FfnGateUp,
    ],
    hf_names: &[
        (WeightRole::Router, "block_sparse_moe.router.layer"),
        (WeightRole::ExpertsGateUp, "block_sparse_moe.input_linear"),
        (WeightRole::ExpertsDown, "block_sparse_moe.output_linear"),
        (WeightRole::SharedGateUp, "shared_mlp.input_linear"),
        (WeightRole::SharedDown, "shared_mlp.output_linear"),
        (WeightRole::FfnGateUp, "shared_mlp.input_linear"),
        (WeightRole::FfnDown, "shared_mlp.output_linear"),
        (WeightRole::SsmIn, "mamba.in_proj"),
        (WeightRole::SsmConv, "mamba.conv1d"),
        (WeightRole::SsmRate, "mamba.A_log!"),
        (WeightRole::SsmDt, "mamba.dt!"),
        (WeightRole::SsmSkip, "mamba.D!"),
        (WeightRole::SsmNorm, "mamba.norm"),
        (WeightRole::SsmOut, "mamba.out_proj"),
    ],
    hf_experts: Some(HfExperts {
        n_experts: ("num_local_experts", 8),
        n_used: ("num_experts_per_tok", 2),
        d_ff: ("intermediate_size", 11_008),
        shared: HfShared::Width(SHARED, 1024),
        ..HfExperts::PLAIN
    }),
    hf_defaults: HfDefaults {
        head_dim: None,
        ..Family::PLAIN.hf_defaults
    },
    gguf,
    // Where heads rotate in part, the model is of the other family of this kind.
    hf_family: |config| match config.rotates(0) && config.n_rot < config.head_dim {
        true => Some(bamba::NAME),
        false => None,
    },
    write_gguf: |config, set| {
        files::write_gguf(config, set);
        set(ROTATES, GgufValue::Bool(config.rotates(0)));
    },
    hf,
    write_hf,
    build,
    ..Family::PLAIN
};

/// The width of the network that every token uses: the only network where there are no experts.
const SHARED: &str = "shared_intermediate_size";

/// With `false` no head rotates (llama.cpp, `granite-hybrid.cpp`).
pub(super) const ROTATES: &str = "rope.scaling.finetuned";

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let heads = keys.per_layer("attention.head_count_kv", config.n_layers)?;
    let layers = heads.iter().map(|n| *n == 0).collect();
    files::gguf(keys, layers, config)?;
    files::gguf_biases(keys, config);
    // In a dense model the key gives the width of another network, which does not exist.
    let network = keys.shape(TensorName::block(0, WeightRole::FfnUp));
    if let (None, Some(&[d_ff, _])) = (&config.experts, network) {
        config.d_ff = d_ff;
    }
    if keys.bool(ROTATES)? == Some(false) {
        config.unrotated_layers = (0..config.n_layers).collect();
    }
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    granite::hf(text, config)?;
    let kinds = files::hf_kinds(text, &[LayerKind::Scan, LayerKind::Attention])?;
    let layers = match kinds {
        Some(kinds) => kinds.iter().map(|kind| *kind == LayerKind::Scan).collect(),
        None => vec![true; config.n_layers],
    };
    let inner = files::hf_inner(text, config)?;
    files::hf(text, (layers, inner), config)?;
    if config.experts.is_none() {
        config.d_ff = text.usize(SHARED)?.unwrap_or(1024);
    }
    match text.str("position_embedding_type")? {
        Some("rope") => {}
        None | Some("nope") => config.unrotated_layers = (0..config.n_layers).collect(),
        Some(other) => {
            let feature = format!("`position_embedding_type` = {other}");
            return Err(text.unsupported(feature, "rope, or none"));
        }
    }
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    granite::write_hf(config, out);
    files::write_hf(config, out);
    let kind = |layer| match config.mixer_of(layer) {
        Some(_) => LayerKind::Scan.name(),
        None => LayerKind::Attention.name(),
    };
    out["layer_types"] = (0..config.n_layers).map(kind).collect();
    out["position_embedding_type"] = match config.rotates(0) {
        true => json!("rope"),
        false => Value::Null,
    };
    if config.experts.is_none() {
        out["num_local_experts"] = json!(0);
        out[SHARED] = json!(config.d_ff);
    }
}

pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let out = recurrent::mix(b, layer, b.config().activation, normed)?;
        let x = b.residual("attn_residual", x, out);
        let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
        let in_one = b.has_role(WeightRole::FfnGateUp) && b.config().experts.is_none();
        let out = match in_one {
            true => feed_forward::gated_in_one(b, normed)?,
            false => feed_forward::network(b, layer, normed)?,
        };
        Ok(b.residual("ffn_residual", x, out))
    })
}
