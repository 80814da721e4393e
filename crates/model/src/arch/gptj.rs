//! GPT-J and CodeGen: attention and a network without a gate side by side behind one LayerNorm. Neighbours of a part of
//! each head rotate; the network and the head have biases. llama.cpp has the name of GPT-J's files and cannot read
//! them.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use super::gpt2::{hf_words, write_words};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, HfDefaults};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use attention::Heads;
use millrace_graph::{Activation, Derivation, HeadRows, ValueId, WeightSource};
use serde_json::{Value, json};

/// Biases of the network alone.
const BIASES: Biases = Biases {
    ffn: true,
    ..Biases::NONE
};

const COMMON: Family = Family {
    hf_layers: "h",
    hf_prefix: "transformer.",
    activation: Activation::GeluTanh,
    interleaved: true,
    hf_rotates_part: true,
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_biases: Some(BIASES),
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::OutputNorm,
        WeightRole::Output,
    ],
    hf_defaults: HfDefaults {
        vocab_size: 50_400,
        d_model: 4096,
        d_ff: 16_384,
        n_layers: 28,
        n_heads: 16,
        n_kv_heads: None,
        head_dim: None,
        context_length: 2048,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf,
    ..Family::PLAIN
};

pub(super) static FAMILY: Family = Family {
    name: "gptj",
    gguf_arch: "gptj",
    hf_model_types: &["gptj"],
    hf_classes: &["GPTJForCausalLM"],
    models: "GPT-J 6B",
    hf_names: &[
        (WeightRole::TokenEmbedding, "wte"),
        (WeightRole::AttnNorm, "ln_1"),
        (WeightRole::AttnQ, "attn.q_proj"),
        (WeightRole::AttnK, "attn.k_proj"),
        (WeightRole::AttnV, "attn.v_proj"),
        (WeightRole::AttnOutput, "attn.out_proj"),
        (WeightRole::FfnUp, "mlp.fc_in"),
        (WeightRole::FfnDown, "mlp.fc_out"),
        (WeightRole::OutputNorm, "ln_f"),
    ],
    write_hf: |config, out| write_hf(config, &FAMILY, out),
    build: |b| {
        block::decoder(b, |b, layer, x| {
            decoder_block(b, layer, attention::project, x)
        })
    },
    ..COMMON
};

/// CodeGen, whose folders have queries, values and keys in one matrix.
pub(super) static CODEGEN: Family = Family {
    name: "codegen",
    gguf_arch: "codegen",
    hf_model_types: &["codegen"],
    hf_classes: &["CodeGenForCausalLM"],
    models: "CodeGen, CodeGen 2.5 (350M to 16B)",
    hf_names: &[
        (WeightRole::TokenEmbedding, "wte"),
        (WeightRole::AttnNorm, "ln_1"),
        (WeightRole::AttnQkv, "attn.qkv_proj"),
        (WeightRole::AttnOutput, "attn.out_proj"),
        (WeightRole::FfnUp, "mlp.fc_in"),
        (WeightRole::FfnDown, "mlp.fc_out"),
        (WeightRole::OutputNorm, "ln_f"),
    ],
    write_hf: |config, out| write_hf(config, &CODEGEN, out),
    build: |b| block::decoder(b, |b, layer, x| decoder_block(b, layer, project, x)),
    ..COMMON
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    hf_words(text, config, &COMMON.hf_defaults)?;
    if config.family == CODEGEN.name && !config.d_model.is_multiple_of(N_SHARDS) {
        let expected = format!("a multiple of {N_SHARDS}");
        return Err(text.bad("n_embd", &json!(config.d_model), &expected));
    }
    // `null` means that whole heads rotate.
    config.n_rot = match text.map.get("rotary_dim") {
        None => 64,
        Some(_) => text.usize("rotary_dim")?.unwrap_or(config.head_dim),
    };
    Ok(())
}

fn write_hf(config: &ModelConfig, family: &Family, out: &mut Value) {
    write_words(config, family, out);
    out["rotary_dim"] = json!(config.n_rot);
}

/// Parts of CodeGen's matrix: it was trained in four shards, each with queries, then values, then keys.
const N_SHARDS: usize = 4;

/// Queries, keys and values of CodeGen; GGUF files have them apart.
fn project(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<Heads, Error> {
    if b.is_gguf() {
        return attention::project(b, x);
    }
    let d_model = b.config().d_model;
    let shard = d_model / N_SHARDS;
    let fused = b.name_of(WeightRole::AttnQkv);
    let parts = [
        ("attn_q", WeightRole::AttnQ, 0),
        ("attn_k", WeightRole::AttnK, 2 * shard),
        ("attn_v", WeightRole::AttnV, shard),
    ];
    let mut values = [x; 3];
    for (value, (label, role, first)) in values.iter_mut().zip(parts) {
        let rows = HeadRows {
            n_heads: N_SHARDS,
            n_rows: 3 * shard,
            parts: [(first, shard), (0, 0), (0, 0)],
        };
        let source = WeightSource::Derived(Derivation::OfHeads(rows));
        let name = b.name_of(role);
        let weight = b.weight_from(name, fused, &[d_model, d_model], source)?;
        *value = b.scaled_product(label, fused, (weight, None), x)?;
    }
    let [q, k, v] = values;
    Ok(Heads { q, k, v })
}

fn decoder_block(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    project: fn(&mut GraphBuilder<'_>, ValueId) -> Result<Heads, Error>,
    x: ValueId,
) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = project(b, normed)?;
    let attended = attention::attend(b, layer, heads)?;
    let out = feed_forward::plain(b, normed)?;
    let both = b.add("attn_ffn", attended, out);
    Ok(b.residual("residual", x, both))
}
