//! Nemotron H, Nemotron Nano 2 and Nemotron 3: each layer is one thing. It is a selective scan, attention
//! without rotation, or a network with squared ReLU and no gate.

use super::Family;
use super::block::feed_forward::{self, Inner};
use super::block::mamba_config::{self as files, LayerKind};
use super::block::{self, norm, recurrent};
use super::{ExpertDefaults, SetKey};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{
    ConfigObject, HfDefaults, HfExperts, HfShared, HfWindows, activation_of, shortest,
};
use crate::config::{
    Biases, ExpertConfig, MambaConfig, MambaNorm, ModelConfig, RecurrentConfig, RecurrentMixer,
};
use crate::names::WeightRole;
use millrace_format::gguf::{GgufArray, GgufValue};
use millrace_graph::{Activation, Gating};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = DENSE;

const DENSE: Family = Family {
    name: "nemotron_h",
    gguf_arch: "nemotron_h",
    hf_model_types: &["nemotron_h"],
    hf_classes: &["NemotronHForCausalLM"],
    models: "Nemotron H, Nemotron Nano 2, Nemotron 3",
    activation: Activation::ReluSquared,
    hf_own_biases: true,
    hf_prefix: "backbone.",
    hf_norm_eps: 1e-5,
    hf_windows: HfWindows::Recurrent,
    hf_names: &[
        (WeightRole::TokenEmbedding, "embeddings"),
        (WeightRole::OutputNorm, "norm_f"),
        (WeightRole::AttnNorm, "norm"),
        (WeightRole::AttnQ, "mixer.q_proj"),
        (WeightRole::AttnK, "mixer.k_proj"),
        (WeightRole::AttnV, "mixer.v_proj"),
        (WeightRole::AttnOutput, "mixer.o_proj"),
        (WeightRole::FfnUp, "mixer.up_proj"),
        (WeightRole::FfnDown, "mixer.down_proj"),
        (WeightRole::Router, "mixer.gate"),
        (
            WeightRole::RouterBias,
            "mixer.gate.e_score_correction_bias!",
        ),
        (WeightRole::ExpertsUp, "mixer.experts.{}.up_proj"),
        (WeightRole::ExpertsDown, "mixer.experts.{}.down_proj"),
        (WeightRole::LatentDown, "mixer.fc1_latent_proj"),
        (WeightRole::LatentUp, "mixer.fc2_latent_proj"),
        (WeightRole::SharedUp, "mixer.shared_experts.up_proj"),
        (WeightRole::SharedDown, "mixer.shared_experts.down_proj"),
        (WeightRole::SsmIn, "mixer.in_proj"),
        (WeightRole::SsmConv, "mixer.conv1d"),
        (WeightRole::SsmRate, "mixer.A_log!"),
        (WeightRole::SsmDt, "mixer.dt!"),
        (WeightRole::SsmSkip, "mixer.D!"),
        (WeightRole::SsmNorm, "mixer.norm"),
        (WeightRole::SsmOut, "mixer.out_proj"),
    ],
    hf_experts: Some(HfExperts {
        n_experts: ("n_routed_experts", 8),
        n_used: ("num_experts_per_tok", 2),
        d_ff: ("moe_intermediate_size", 7688),
        normalized: Some(("norm_topk_prob", true)),
        scale: Some(("routed_scaling_factor", 1.0)),
        groups: Some([("n_group", 1), ("topk_group", 1)]),
        choice_bias: true,
        shared: HfShared::Width("moe_shared_expert_intermediate_size", 7688),
        ..HfExperts::PLAIN
    }),
    experts: ExpertDefaults {
        gating: Gating::Sigmoid,
        // transformers, `NemotronHTopkRouter`.
        normalized: Some(1e-20),
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 131_072,
        d_model: 4096,
        d_ff: 21_504,
        n_layers: 4,
        n_heads: 32,
        n_kv_heads: Some(8),
        head_dim: Some(128),
        context_length: 4096,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf,
    gguf_family: |config| config.experts.as_ref().map(|_| EXPERTS_NAME),
    write_gguf,
    hf,
    write_hf,
    build,
    ..Family::PLAIN
};

/// The same with experts: its GGUF files have another name.
pub(super) static WITH_EXPERTS: Family = Family {
    name: EXPERTS_NAME,
    gguf_arch: EXPERTS_NAME,
    golden: Some("nemotron_h-experts"),
    hf_model_types: &[],
    hf_classes: &[],
    models: "Nemotron 3 with experts (from GGUF files)",
    hf_family: |_| Some("nemotron_h"),
    ..DENSE
};

const EXPERTS_NAME: &str = "nemotron_h_moe";

/// Least step, where the configuration gives none.
const LEAST_STEP: f32 = 0.001;

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let n_layers = config.n_layers;
    let by_layer = |key: &str| {
        // Blocks behind the last predict further tokens.
        let mut sizes = keys.per_layer(key, n_layers)?;
        sizes.truncate(n_layers);
        Ok::<_, Error>(sizes)
    };
    let heads = by_layer("attention.head_count_kv")?;
    let widths = by_layer("feed_forward_length")?;
    config.layers.networks = widths.iter().map(|width| *width > 0).collect();
    let both = heads.iter().zip(&widths);
    let layers = both.map(|(heads, width)| *heads == 0 && *width == 0);
    files::gguf(keys, layers.collect(), config)?;
    files::gguf_biases(keys, config);
    config.unrotated_layers = (0..n_layers).collect();
    // Files give a size, though nothing rotates.
    config.n_rot = config.head_dim;
    Ok(())
}

fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    files::write_gguf(config, set);
    let width = |layer| match (config.is_network(layer), config.experts_of(layer)) {
        (false, _) => 0,
        (true, Some(experts)) => experts.d_ff,
        (true, None) => config.d_ff,
    };
    let widths = (0..config.n_layers).map(width);
    let widths = widths.map(|width| i32::try_from(width).unwrap_or(i32::MAX));
    let widths = GgufArray::I32(widths.collect());
    set("feed_forward_length", GgufValue::Array(widths));
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let kinds = kinds(text)?;
    config.n_layers = kinds.len();
    config.layer_windowed = vec![false; kinds.len()];
    config.unrotated_layers = (0..kinds.len()).collect();
    let are = |kind: LayerKind| kinds.iter().map(move |found| *found == kind);
    let networks = are(LayerKind::Network).zip(are(LayerKind::Experts));
    config.layers.networks = networks.map(|(plain, experts)| plain || experts).collect();
    if text.get("head_dim").is_none()
        && let Some(head_dim) = text.usize("attention_head_dim")?
    {
        config.head_dim = head_dim;
        config.n_rot = head_dim;
        config.attention_scale = 1.0 / (head_dim as f32).sqrt();
    }
    config.norm_eps = text.f32("layer_norm_epsilon")?.unwrap_or(DENSE.hf_norm_eps);
    config.activation = activation_of(text, "mlp_hidden_act")?.unwrap_or(DENSE.activation);
    config.biases = Biases {
        qkv: false,
        attn_output: false,
        ffn: text.bool("mlp_bias")?.unwrap_or(false),
    };
    config.recurrent = Some(RecurrentConfig {
        layers: are(LayerKind::Scan).collect(),
        mixer: RecurrentMixer::Mamba(hf_mamba(text)?),
        beside_attention: None,
    });
    match &mut config.experts {
        Some(experts) if kinds.contains(&LayerKind::Experts) => {
            experts.latent_dim = text.usize("moe_latent_size")?.unwrap_or(0);
            let others = are(LayerKind::Experts).enumerate().filter(|(_, has)| !has);
            experts.dense_layers = others.map(|(layer, _)| layer).collect();
            if !kinds.contains(&LayerKind::Network) {
                config.d_ff = experts.d_ff;
            }
        }
        experts => *experts = None,
    }
    Ok(())
}

/// Kinds of the layers: from a list, or from the letters of a pattern.
fn kinds(text: &ConfigObject<'_>) -> Result<Vec<LayerKind>, Error> {
    use LayerKind::{Attention, Experts, Network, Scan};
    if let Some(kinds) = files::hf_kinds(text, &[Scan, Attention, Network, Experts])? {
        return Ok(kinds);
    }
    let key = "hybrid_override_pattern";
    let Some(pattern) = text.str(key)? else {
        return Ok(vec![Scan, Experts, Attention, Network]);
    };
    let kinds: Option<Vec<_>> = pattern.chars().map(LayerKind::of_letter).collect();
    kinds.ok_or_else(|| text.bad(key, &json!(pattern), "letters M, *, - and E"))
}

fn hf_mamba(text: &ConfigObject<'_>) -> Result<MambaConfig, Error> {
    // Each has an older name.
    let size = |keys: [&str; 2], default| {
        let size = text.usize(keys[1])?.or(text.usize(keys[0])?);
        Ok::<_, Error>(size.unwrap_or(default))
    };
    if let Some(other) = text.str("mamba_hidden_act")?.filter(|name| *name != "silu") {
        let feature = format!("`mamba_hidden_act` = {other}");
        return Err(text.unsupported(feature, "silu"));
    }
    let conv_bias = text
        .bool("mamba_conv_bias")?
        .or(text.bool("use_conv_bias")?);
    let least = text.f32("mamba_dt_min")?.or(text.f32("time_step_min")?);
    let bias = text.bool("use_bias")?.unwrap_or(false);
    Ok(MambaConfig {
        n_taps: size(["conv_kernel", "mamba_d_conv"], 4)?,
        n_heads: size(["mamba_num_heads"; 2], 128)?,
        n_groups: size(["n_groups", "mamba_n_groups"], 8)?,
        head_dim: size(["mamba_head_dim"; 2], 64)?,
        d_state: size(["ssm_state_size"; 2], 128)?,
        dt_limit: (least.unwrap_or(LEAST_STEP), f32::INFINITY),
        norm: MambaNorm::BehindGate,
        conv_bias: conv_bias.unwrap_or(true),
        in_bias: bias,
        out_bias: bias,
    })
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    let kind = |layer| match (config.is_network(layer), config.experts_of(layer)) {
        (true, Some(_)) => LayerKind::Experts,
        (true, None) => LayerKind::Network,
        (false, _) if config.attends(layer) => LayerKind::Attention,
        (false, _) => LayerKind::Scan,
    };
    let kinds = (0..config.n_layers).map(|layer| kind(layer).name());
    out["layers_block_type"] = kinds.collect();
    out["layer_norm_epsilon"] = shortest(config.norm_eps);
    out["mlp_hidden_act"] = out["hidden_act"].take();
    out["mlp_bias"] = json!(config.biases.ffn);
    let latent = |experts: &ExpertConfig| (experts.latent_dim > 0).then_some(experts.latent_dim);
    out["moe_latent_size"] = json!(config.experts.as_ref().and_then(latent));
    if let Some(mamba) = config.recurrent.as_ref().and_then(RecurrentConfig::mamba) {
        out["conv_kernel"] = json!(mamba.n_taps);
        out["mamba_num_heads"] = json!(mamba.n_heads);
        out["n_groups"] = json!(mamba.n_groups);
        out["mamba_head_dim"] = json!(mamba.head_dim);
        out["ssm_state_size"] = json!(mamba.d_state);
        out["time_step_min"] = shortest(mamba.dt_limit.0);
        out["use_conv_bias"] = json!(mamba.conv_bias);
        out["use_bias"] = json!(mamba.in_bias);
    }
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let out = match b.config().is_network(layer) {
            true => feed_forward::network_of(b, Inner::Plain, layer, normed)?,
            // The activation of the networks is a different one.
            false => recurrent::mix(b, layer, Activation::Silu, normed)?,
        };
        Ok(b.residual("residual", x, out))
    })
}
