//! Llama Nemotron and DeciLM: Llama's layers after an architecture search. Some have fewer key heads, narrower networks, a
//! matrix in place of attention, or lack attention, network or both.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use super::openelm::{LayerSizes, read_sizes, write_sizes};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, HfDefaults};
use crate::config::{Biases, MAX_WIDTH, ModelConfig};
use crate::names::WeightRole;
use millrace_graph::ValueId;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "deci",
    gguf_arch: "deci",
    hf_model_types: &["nemotron-nas", "deci"],
    hf_classes: &["DeciLMForCausalLM"],
    models: "Llama Nemotron 49B, 51B, 253B; DeciLM 7B",
    permuted_in_gguf: true,
    sizes_by_layer: true,
    hf_own_keys: &["intermediate_size"],
    hf_biases: Some(Biases::NONE),
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 128_256,
        d_model: 8192,
        d_ff: 28_672,
        n_layers: 80,
        n_heads: 64,
        n_kv_heads: Some(8),
        head_dim: None,
        context_length: 131_072,
        tied_head: false,
        rope_theta: 500_000.0,
    },
    gguf: read_sizes,
    write_gguf: write_sizes,
    hf,
    write_hf,
    hf_unsayable,
    build,
    ..Family::PLAIN
};

const BLOCKS: &str = "block_configs";
const KV_HEADS: &str = "num_key_value_heads_per_layer";
/// Divisor of the widths of networks: they are rounded to its multiples.
const DIVISOR: usize = 256;

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    for (key, usual) in [("attention_bias", false), ("mlp_bias", false)] {
        if let Some(found) = text.bool(key)?.filter(|found| *found != usual) {
            return Err(text.unsupported(format!("`{key}` = {found}"), &usual.to_string()));
        }
    }
    let n_layers = config.n_layers;
    let count = |key: &str, found: usize| match found == n_layers {
        true => Ok(()),
        false => {
            let expected = format!("one for each of the {n_layers} layers");
            Err(text.bad(key, &json!(format!("{found} layers")), &expected))
        }
    };
    let Some(blocks) = text.array(BLOCKS)? else {
        let n_kv_heads = text.usizes(KV_HEADS)?.unwrap_or_default();
        if text.get(KV_HEADS).is_some() {
            count(KV_HEADS, n_kv_heads.len())?;
        }
        let sizes = LayerSizes {
            n_heads: Vec::new(),
            n_kv_heads,
            d_ff: Vec::new(),
        };
        sizes.take(config);
        return Ok(());
    };
    count(BLOCKS, blocks.len())?;
    let mut sizes = LayerSizes {
        n_heads: Vec::new(),
        n_kv_heads: Vec::new(),
        d_ff: Vec::new(),
    };
    for block in blocks {
        let part = |key: &str| {
            let map = block.get(key).and_then(Value::as_object);
            let map =
                map.ok_or_else(|| text.bad(BLOCKS, block, "`attention` and `ffn`, an object each"));
            map.map(|map| ConfigObject {
                file: text.file,
                map,
            })
        };
        let (n_heads, n_kv_heads) = heads(&part("attention")?, config.n_heads)?;
        sizes.n_heads.push(n_heads);
        sizes.n_kv_heads.push(n_kv_heads);
        sizes.d_ff.push(width(&part("ffn")?, config.d_model)?);
    }
    sizes.take(config);
    Ok(())
}

/// Query heads and key heads of a layer. Key heads are 0 where a matrix replaces attention; both are 0 without attention.
fn heads(part: &ConfigObject<'_>, n_heads: usize) -> Result<(usize, usize), Error> {
    for key in ["window_length", "num_sink_tokens"] {
        if let Some(found) = part.get(key) {
            let feature = format!("`{BLOCKS}.attention.{key}` = {found}");
            return Err(part.unsupported(feature, "null"));
        }
    }
    let is_matrix = part.bool("replace_with_linear")?.unwrap_or(false);
    let is_absent = part.bool("no_op")?.unwrap_or(false);
    let key = "n_heads_in_group";
    match (part.usize(key)?, is_matrix, is_absent) {
        (_, true, _) => Ok((n_heads, 0)),
        (None, false, _) | (_, false, true) => Ok((0, 0)),
        (Some(group), ..) if group > 0 && n_heads.is_multiple_of(group) => {
            Ok((n_heads, n_heads / group))
        }
        (Some(group), ..) => {
            let expected = format!("a divisor of the {n_heads} query heads");
            Err(part.bad(
                &format!("{BLOCKS}.attention.{key}"),
                &json!(group),
                &expected,
            ))
        }
    }
}

/// The width of a layer's network, 0 without one.
fn width(part: &ConfigObject<'_>, d_model: usize) -> Result<usize, Error> {
    if part.bool("replace_with_linear")? == Some(true) {
        let feature = format!("`{BLOCKS}.ffn.replace_with_linear` = true");
        return Err(part.unsupported(feature, "networks with gates, or none"));
    }
    let key = "ffn_mult";
    let is_absent = part.bool("no_op")?.unwrap_or(false);
    let Some(factor) = part.f64(key)?.filter(|_| !is_absent) else {
        return Ok(0);
    };
    let width = (2.0 * factor * d_model as f64 / 3.0) as usize;
    match factor.is_finite() && factor >= 0.0 && width <= MAX_WIDTH {
        true => Ok(width.next_multiple_of(DIVISOR)),
        false => {
            let expected = format!("a width between 1 and {MAX_WIDTH}");
            Err(part.bad(&format!("{BLOCKS}.ffn.{key}"), &json!(factor), &expected))
        }
    }
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    let block = |layer: usize| {
        let (n_heads, d_ff) = (config.n_heads_of(layer), config.d_ff_of(layer));
        let n_kv_heads = config.heads_of(layer).n_kv_heads;
        let group = config.has_heads(layer).then(|| n_heads / n_kv_heads.max(1));
        let factor = (d_ff > 0).then(|| factor_of(d_ff, config.d_model));
        json!({
            "attention": {
                "n_heads_in_group": group,
                "no_op": n_heads == 0,
                "replace_with_linear": n_heads > 0 && group.is_none(),
            },
            "ffn": {"ffn_mult": factor, "no_op": d_ff == 0, "replace_with_linear": false},
        })
    };
    out[BLOCKS] = (0..config.n_layers).map(block).collect();
    out["num_key_value_heads"] = Value::Null;
    out["intermediate_size"] = Value::Null;
}

fn hf_unsayable(config: &ModelConfig) -> Option<String> {
    let mut widths = (0..config.n_layers).map(|layer| config.d_ff_of(layer));
    let odd = widths.find(|width| !width.is_multiple_of(DIVISOR))?;
    Some(format!(
        "a network of {odd} elements in deci, whose widths are multiples of {DIVISOR}"
    ))
}

/// A factor that reads back as this width.
fn factor_of(d_ff: usize, d_model: usize) -> f64 {
    // Half an element less, so that no rounding reaches the next multiple.
    1.5 * (d_ff as f64 - 0.5) / d_model as f64
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, block)
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let x = attended(b, layer, x)?;
    if b.d_ff() == 0 {
        return Ok(x);
    }
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::gated(b, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}

/// The stream behind the layer's attention, or behind the matrix in its place.
fn attended(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    if b.n_heads() == 0 {
        return Ok(x);
    }
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let out = match b.config().has_heads(layer) {
        true => {
            let heads = attention::project(b, normed)?;
            attention::attend(b, layer, heads)?
        }
        false => {
            let d_model = b.config().d_model;
            b.linear(
                "attn_linear",
                WeightRole::AttnLinear,
                (d_model, false),
                normed,
            )?
        }
    };
    Ok(b.residual("attn_residual", x, out))
}
