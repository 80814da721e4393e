//! DBRX: LayerNorms without biases, bounded queries, keys and values of one matrix, experts in every layer.

use super::block::{self, attention, feed_forward, norm};
use super::{Family, GateOrder};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::qkv_bound;
use crate::config::hf::{
    ConfigObject, HfDefaults, HfExperts, HfObject, Spelling, activation_name, activation_named,
    shortest,
};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use millrace_graph::ValueId;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "dbrx",
    gguf_arch: "dbrx",
    hf_model_types: &["dbrx"],
    hf_classes: &["DbrxForCausalLM"],
    models: "DBRX 132B",
    layer_norms: true,
    hf_norm_eps: NORM_EPS,
    hf_biases: Some(Biases::NONE),
    hf_layers: "blocks",
    hf_prefix: "transformer.",
    own_roles: &[WeightRole::AttnQkv],
    hf_names: &[
        (WeightRole::TokenEmbedding, "wte"),
        (WeightRole::AttnNorm, "norm_attn_norm.norm_1"),
        (WeightRole::AttnQkv, "norm_attn_norm.attn.Wqkv"),
        (WeightRole::AttnOutput, "norm_attn_norm.attn.out_proj"),
        // GGUF files call the norm before the experts so.
        (WeightRole::AttnOutNorm, "norm_attn_norm.norm_2"),
        (WeightRole::Router, "ffn.router.layer"),
        (WeightRole::ExpertsGate, "ffn.experts.mlp.w1!"),
        (WeightRole::ExpertsUp, "ffn.experts.mlp.v1!"),
        (WeightRole::ExpertsDown, "ffn.experts.mlp.w2!"),
        (WeightRole::OutputNorm, "norm_f"),
    ],
    hf_turned_experts: Some(GateOrder::Stacked),
    hf_experts: Some(HfExperts {
        n_experts: ("moe_num_experts", 4),
        n_used: ("moe_top_k", 1),
        d_ff: ("ffn_hidden_size", 3584),
        normalized: Some((NORMALIZED, true)),
        ..HfExperts::PLAIN
    }),
    hf_defaults: HfDefaults {
        vocab_size: 32_000,
        d_model: 2048,
        d_ff: 3584,
        n_layers: 24,
        n_heads: 16,
        n_kv_heads: Some(1),
        head_dim: None,
        context_length: 2048,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf_spelling: spelling,
    hf: |text, config| {
        config.norm_eps = NORM_EPS;
        config.layers.qkv_bound = text.f32(BOUND)?;
        Ok(())
    },
    write_hf,
    hf_unsayable: |config| {
        let is_usual =
            config.norm_eps == NORM_EPS && config.head_dim * config.n_heads == config.d_model;
        (!is_usual).then(|| "an epsilon or heads of another size than the class's in dbrx".into())
    },
    gguf: |keys, config| {
        config.layers.qkv_bound = qkv_bound(keys)?;
        Ok(())
    },
    build,
    ..Family::PLAIN
};

/// Epsilon of the class; no key gives another.
const NORM_EPS: f32 = 1e-5;
const BOUND: &str = "clip_qkv";
/// In files the exponent of the norm that weights of experts are divided by, `null` for none.
const NORMALIZED: &str = "moe_normalize_expert_weights";

/// Files have short names, and two objects within.
fn spelling(text: &ConfigObject<'_>) -> Result<Option<HfObject>, Error> {
    let mut spelling = Spelling::of(text);
    for (from, to) in [
        ("d_model", "hidden_size"),
        ("n_heads", "num_attention_heads"),
        ("n_layers", "num_hidden_layers"),
        ("max_seq_len", "max_position_embeddings"),
    ] {
        spelling.rename(from, to);
    }
    let mut take = |object: Option<ConfigObject<'_>>, keys: &[(&str, &str)]| {
        for (from, to) in keys {
            let value = object.as_ref().and_then(|object| object.map.get(*from));
            if let Some(value) = value {
                spelling.set(to, value.clone());
            }
        }
    };
    let attention = text.object("attn_config")?;
    let given = text.get("rope_parameters").is_some();
    take(
        attention,
        &[("kv_n_heads", "num_key_value_heads"), (BOUND, BOUND)],
    );
    if !given {
        take(attention, &[("rope_theta", "rope_theta")]);
    }
    let network = text.object("ffn_config")?;
    take(
        network,
        &[
            ("ffn_hidden_size", "ffn_hidden_size"),
            ("ffn_hidden_size", "intermediate_size"),
            ("moe_num_experts", "moe_num_experts"),
            ("moe_top_k", "moe_top_k"),
        ],
    );
    if let Some(network) = network {
        let exponent = match network.map.contains_key(NORMALIZED) {
            true => network.f64(NORMALIZED)?,
            false => Some(1.0),
        };
        if let Some(other) = exponent.filter(|exponent| *exponent != 1.0) {
            return Err(text.unsupported(format!("`{NORMALIZED}` = {other}"), "1, or null"));
        }
        spelling.set(NORMALIZED, json!(exponent.is_some()));
        if let Some(activation) = network.object("ffn_act_fn")? {
            let name = activation.str("name")?.unwrap_or("silu");
            if activation_named(name).is_none() {
                return Err(text.unsupported(format!("activation `{name}` (`ffn_act_fn`)"), "silu"));
            }
            spelling.set("hidden_act", json!(name));
        }
    }
    spelling.done()
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    let experts = config.experts.as_ref();
    let sizes = experts.map_or([0; 3], |e| [e.n_experts, e.n_used, e.d_ff]);
    let is_normalized = experts.is_some_and(|experts| experts.normalized.is_some());
    *out = json!({
        "architectures": [FAMILY.hf_classes[0]],
        "model_type": "dbrx",
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "n_layers": config.n_layers,
        "n_heads": config.n_heads,
        "max_seq_len": config.context_length,
        "attn_config": {
            "kv_n_heads": config.n_kv_heads,
            BOUND: config.layers.qkv_bound.map(shortest),
            "rope_theta": shortest(config.rope.theta),
        },
        "ffn_config": {
            "ffn_hidden_size": sizes[2],
            "moe_num_experts": sizes[0],
            "moe_top_k": sizes[1],
            NORMALIZED: is_normalized.then_some(1.0),
            "ffn_act_fn": { "name": activation_name(config.activation) },
        },
        "rope_parameters": out["rope_parameters"].take(),
        "tie_word_embeddings": config.tied_head,
    });
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, block)
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project(b, normed)?;
    let out = attention::attend(b, layer, heads)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::AttnOutNorm, x)?;
    let out = feed_forward::network(b, layer, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}
