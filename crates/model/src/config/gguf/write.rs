//! Writes the metadata of a configuration.

use millrace_format::gguf::{GgufArray, GgufValue, Metadata};
use millrace_graph::Gating;

use super::keys::{ACTIVATION_KEY, key_of};
use super::rope;
use crate::Error;
use crate::arch::{self, Family};
use crate::config::hf::activation_name;
use crate::config::{
    EncoderConfig, EncoderPooling, ExpertConfig, LatentConfig, ModelConfig, RopeScaling,
};

/// The metadata of a configuration, `general.architecture` first, without the vocabulary and without keys about
/// the file itself.
///
/// Divisors of RoPE frequencies are not among them: they are tensors ([`crate::config::RopeConfig::gguf_factors`],
/// [`crate::config::LongScaling`]). Dynamic NTK has no key there: up to the trained context it is no scaling.
///
/// # Errors
/// [`Error::Unsupported`] for values that the keys cannot express: another activation than the family's, a scaled
/// RoPE in sliding layers.
pub fn write(config: &ModelConfig) -> Result<Metadata, Error> {
    let family = arch::by_name(config.family);
    refuse_unwritable(config, family)?;
    let mut out = Metadata::new();
    out.insert(
        "general.architecture",
        GgufValue::Str(family.gguf_arch.into()),
    );
    let mut set = |key: &str, value: GgufValue| {
        out.insert(key_of(family.gguf_arch, key), value);
    };
    set("block_count", size(config.n_layers));
    set("context_length", size(config.context_length));
    set("embedding_length", size(config.d_model));
    set("feed_forward_length", size(config.d_ff));
    set("vocab_size", size(config.vocab_size));
    set("attention.head_count", size(config.n_heads));
    set("attention.head_count_kv", size(config.n_kv_heads));
    set("attention.key_length", size(config.head_dim));
    let v_dim = config.layers.v_dim.unwrap_or(config.head_dim);
    set("attention.value_length", size(v_dim));
    let eps = match family.layer_norms {
        true => "attention.layer_norm_epsilon",
        false => "attention.layer_norm_rms_epsilon",
    };
    set(eps, GgufValue::F32(config.norm_eps));
    set("rope.dimension_count", size(config.n_rot));
    set("rope.freq_base", GgufValue::F32(config.rope.theta));
    rope::write(family, &config.rope, &mut set);
    if let Some(local) = &config.rope_local {
        set("rope.freq_base_swa", GgufValue::F32(local.theta));
    }
    write_windows(config, family, &mut set);
    write_factors(config, family, &mut set);
    if let Some(experts) = &config.experts {
        write_experts(experts, &mut set);
    }
    if let Some(latent) = &config.latent {
        write_latent(latent, &mut set);
    }
    if let Some(encoder) = &config.encoder {
        write_encoder(encoder, &mut set);
    }
    let default_scale = (family.gguf_attention_scale)(config);
    if (config.attention_scale - default_scale).abs() > 1e-6 * default_scale {
        set("attention.scale", GgufValue::F32(config.attention_scale));
    }
    // Others are refused above.
    if config.activation != family.activation {
        let name = activation_name(config.activation);
        set(ACTIVATION_KEY, GgufValue::Str(name.into()));
    }
    (family.write_gguf)(config, &mut set);
    Ok(out)
}

fn write_windows(config: &ModelConfig, family: &Family, set: &mut dyn FnMut(&str, GgufValue)) {
    if let Some(window) = config.window {
        set("attention.sliding_window", size(window));
        if !follows_pattern(config, family) {
            let layers = GgufArray::Bool(config.layer_windowed.clone());
            set("attention.sliding_window_pattern", GgufValue::Array(layers));
        }
    }
}

/// Factors and soft bounds that are not neutral, and the factor that grows with the position.
fn write_factors(config: &ModelConfig, family: &Family, set: &mut dyn FnMut(&str, GgufValue)) {
    let factors = [
        ("residual_scale", config.residual_scale, 1.0),
        (
            "logit_scale",
            match family.logit_divisor {
                true => 1.0 / config.logit_scale,
                false => config.logit_scale,
            },
            1.0,
        ),
        (
            "attn_logit_softcapping",
            config.attention_softcap.unwrap_or(0.0),
            0.0,
        ),
        (
            "final_logit_softcapping",
            config.logit_softcap.unwrap_or(0.0),
            0.0,
        ),
        (
            super::QKV_BOUND,
            config.layers.qkv_bound.unwrap_or(0.0),
            0.0,
        ),
        (
            "embedding_scale",
            config.embed_scale,
            family.embed_scale(config.d_model),
        ),
    ];
    for (key, factor, neutral) in factors {
        if factor != neutral {
            set(key, GgufValue::F32(factor));
        }
    }
    if let Some(scale) = config.layers.value_scale {
        set("attention.value_scale", GgufValue::F32(scale));
    }
    if let Some(temperature) = config.temperature {
        set(
            "attention.temperature_scale",
            GgufValue::F32(temperature.scale),
        );
        set("attention.temperature_length", size(temperature.length));
    }
}

/// How a text's rows become one.
fn write_encoder(encoder: &EncoderConfig, set: &mut dyn FnMut(&str, GgufValue)) {
    if let Some(pooling) = encoder.pooling {
        set("pooling_type", pooling_number(pooling));
    }
    let classifier = encoder.classifier;
    if let Some(pooling) = classifier.and_then(|classifier| classifier.pooling) {
        set("classifier.pooling_type", pooling_number(pooling));
    }
}

/// A size as the value of a key.
fn size(size: usize) -> GgufValue {
    GgufValue::U32(u32::try_from(size).unwrap_or(u32::MAX))
}

/// llama.cpp's number for a kind of pooling.
fn pooling_number(pooling: EncoderPooling) -> GgufValue {
    GgufValue::U32(match pooling {
        EncoderPooling::Mean => 1,
        EncoderPooling::First => 2,
        EncoderPooling::Last => 3,
    })
}

fn write_experts(experts: &ExpertConfig, set: &mut dyn FnMut(&str, GgufValue)) {
    set("expert_count", size(experts.n_experts));
    set("expert_used_count", size(experts.n_used));
    set("expert_feed_forward_length", size(experts.d_ff));
    if experts.shared_d_ff > 0 {
        set(
            "expert_shared_feed_forward_length",
            size(experts.shared_d_ff),
        );
        set(
            "expert_shared_count",
            size(experts.shared_d_ff.div_ceil(experts.d_ff)),
        );
    }
    let gating = match experts.gating {
        Gating::Softmax => Some(1),
        Gating::Sigmoid => Some(2),
        Gating::SoftmaxChosen => Some(3),
        // It has no number: the family implies it.
        Gating::SparseMixer => None,
    };
    if let Some(gating) = gating {
        set("expert_gating_func", GgufValue::U32(gating));
    }
    set(
        "expert_weights_norm",
        GgufValue::Bool(experts.normalized.is_some()),
    );
    if experts.scale != 1.0 {
        set("expert_weights_scale", GgufValue::F32(experts.scale));
    }
    if let Some(cap) = experts.softcap {
        set("router_logit_softcapping", GgufValue::F32(cap));
    }
    if let Some(groups) = experts.groups {
        set("expert_group_count", size(groups.n_groups));
        set("expert_group_used_count", size(groups.n_used));
    }
    if experts.latent_dim > 0 {
        set("moe_latent_size", size(experts.latent_dim));
    }
    if experts.n_dense_layers > 0 {
        set("leading_dense_block_count", size(experts.n_dense_layers));
    }
}

fn write_latent(latent: &LatentConfig, set: &mut dyn FnMut(&str, GgufValue)) {
    if let Some(q_rank) = latent.q_rank {
        set("attention.q_lora_rank", size(q_rank));
    }
    set("attention.kv_lora_rank", size(latent.kv_rank));
    set("attention.key_length", size(latent.cache_dim()));
    set("attention.value_length", size(latent.kv_rank));
    set("attention.key_length_mla", size(latent.q_dim()));
    set("attention.value_length_mla", size(latent.v_dim));
}

fn follows_pattern(config: &ModelConfig, family: &Family) -> bool {
    let Some(pattern) = family.gguf_window_pattern else {
        return false;
    };
    config
        .layer_windowed
        .iter()
        .enumerate()
        .all(|(layer, &windowed)| windowed == family.slides(layer, pattern))
}

fn refuse_unwritable(config: &ModelConfig, family: &Family) -> Result<(), Error> {
    let refuse = |feature: String, supported: &str| {
        let file = "GGUF metadata".into();
        Err(Error::Unsupported {
            file,
            feature,
            supported: supported.into(),
        })
    };
    if config.activation != family.activation && !family.owns_gguf_key(ACTIVATION_KEY) {
        let feature = format!("activation {:?} in {}", config.activation, family.name);
        return refuse(feature, "the family's own activation");
    }
    let networks = config.layers.networks.iter().enumerate();
    let mut networks = networks.filter(|(_, alone)| **alone);
    if config.experts.is_some() && networks.any(|(layer, _)| config.experts_of(layer).is_none()) {
        let feature = format!("layers of {} without experts beside others", family.name);
        return refuse(feature, "networks of one kind");
    }
    if let Some(local) = &config.rope_local
        && local.scaling != RopeScaling::None
    {
        return refuse("a scaled RoPE in sliding layers".into(), "an unscaled one");
    }
    Ok(())
}
