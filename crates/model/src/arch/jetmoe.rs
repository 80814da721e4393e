//! JetMoE: experts in both halves of a block. Those of attention are pairs of query and output projections, whose heads share
//! one set of keys and values. llama.cpp has no name for it.

use super::Family;
use super::block::feed_forward::Inner;
use super::block::{self, attention, experts, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::ACTIVATION_KEY;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfObject, Spelling};
use crate::config::{Biases, ExpertConfig, ModelConfig};
use crate::names::WeightRole;
use attention::Heads;
use millrace_graph::{CombineExperts, ConcatHeads, ExpertLinear, SliceHeads, TableRow, ValueId};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "jetmoe",
    gguf_arch: "jetmoe",
    hf_model_types: &["jetmoe"],
    hf_classes: &["JetMoeForCausalLM"],
    models: "JetMoE 8B",
    hf_names: &[
        (
            WeightRole::AttnRouter,
            "self_attention.experts.router.layer",
        ),
        (
            WeightRole::AttnQExperts,
            "self_attention.experts.input_linear",
        ),
        (
            WeightRole::AttnOutputExperts,
            "self_attention.experts.output_linear",
        ),
        // Biases of the sums of experts have the names of modules around them.
        (WeightRole::AttnOutput, "self_attention.experts"),
        (WeightRole::AttnKv, "self_attention.kv_proj"),
        (WeightRole::Router, "mlp.router.layer"),
        (WeightRole::ExpertsGateUp, "mlp.input_linear"),
        (WeightRole::ExpertsDown, "mlp.output_linear"),
        (WeightRole::FfnDown, "mlp"),
    ],
    gguf_own_keys: &[ACTIVATION_KEY],
    own_roles: &[WeightRole::AttnKv],
    hf_roles: &[WeightRole::ExpertsGateUp],
    hf_biases: Some(Biases {
        qkv: false,
        attn_output: true,
        ffn: true,
    }),
    hf_experts: Some(HfExperts {
        n_experts: ("num_local_experts", 8),
        n_used: (N_USED, 2),
        d_ff: ("intermediate_size", 5632),
        ..HfExperts::PLAIN
    }),
    hf_defaults: HfDefaults {
        vocab_size: 32_000,
        d_model: 2048,
        d_ff: 5632,
        n_layers: 12,
        n_heads: 32,
        n_kv_heads: Some(16),
        head_dim: Some(128),
        context_length: 4096,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    hf_spelling: spelling,
    write_hf,
    hf_unsayable: |config| {
        let n_used = config.experts.as_ref().map_or(1, |experts| experts.n_used);
        let is_usual = config.n_heads == config.n_kv_heads.saturating_mul(n_used);
        (!is_usual).then(|| format!("{} query heads in JetMoE", config.n_heads))
    },
    build: |b| block::decoder(b, block),
    ..Family::PLAIN
};

const N_USED: &str = "num_experts_per_tok";
const N_KV_HEADS: &str = "num_key_value_heads";

/// Every expert of attention that a token uses has as many heads of queries as there are heads of keys.
fn spelling(text: &ConfigObject<'_>) -> Result<Option<HfObject>, Error> {
    let mut spelling = Spelling::of(text);
    spelling.rename("kv_channels", "head_dim");
    spelling.rename("activation_function", "hidden_act");
    let n_used = text.usize(N_USED)?.unwrap_or(2);
    let n_kv_heads = text.usize(N_KV_HEADS)?.unwrap_or(16);
    let n_heads = n_kv_heads.saturating_mul(n_used);
    spelling.set("num_attention_heads", json!(n_heads));
    spelling.done()
}

fn write_hf(_: &ModelConfig, out: &mut Value) {
    out["activation_function"] = out["hidden_act"].take();
    out["kv_channels"] = out["head_dim"].take();
    if let Some(map) = out.as_object_mut() {
        for key in ["hidden_act", "head_dim"] {
            map.remove(key);
        }
    }
}

/// Epsilon of the norms in blocks, whatever `rms_norm_eps` says, which is for the last norm alone (transformers,
/// `JetMoeDecoderLayer`).
const BLOCK_EPS: f32 = 1e-6;

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    let normed = norm::rms_with(
        "attn_norm",
        (WeightRole::AttnNorm, d_model),
        BLOCK_EPS,
        b,
        x,
    )?;
    let mut out = normed;
    if let Some(config) = b.config().experts_of(layer) {
        out = attend(b, layer, config, normed)?;
    }
    let out = biased(b, "attn_output_bias", WeightRole::AttnOutput, out)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::rms_with("ffn_norm", (WeightRole::FfnNorm, d_model), BLOCK_EPS, b, x)?;
    let mut out = normed;
    if let Some(config) = b.config().experts_of(layer) {
        out = experts::mixture(b, config, Inner::Gated(None), normed)?;
    }
    let out = biased(b, "ffn_down_bias", WeightRole::FfnDown, out)?;
    Ok(b.residual("ffn_residual", x, out))
}

/// The sum of experts plus a bias, which is that of this role.
fn biased(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    role: WeightRole,
    x: ValueId,
) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    let table = b.bias(role, &[d_model])?;
    let row = TableRow { table, step: 0 };
    let bias = b.push(label, row.into(), vec![], d_model);
    Ok(b.add("bias_add", x, bias))
}

/// Attention whose query heads are those of the chosen experts.
fn attend(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    config: &ExpertConfig,
    x: ValueId,
) -> Result<ValueId, Error> {
    let (n_experts, n_used) = (config.n_experts, config.n_used);
    let (d_model, width) = (b.config().d_model, b.config().kv_width());
    let scores = b.linear("attn_router", WeightRole::AttnRouter, (n_experts, false), x)?;
    let choice = experts::choose(b, config, scores)?;
    let queries = (WeightRole::AttnQExperts, [n_experts, width, d_model]);
    let q = product(b, "attn_q_exps", queries, (n_used, false), [x, choice])?;
    let [k, v] = attention::keys_and_values(b, x)?;
    let q = by_key_heads(b, n_used, q);
    let heads = attention::rotate(b, layer, Heads { q, k, v });
    let out = attention::attend_rotated(b, layer, heads)?;
    let out = by_experts(b, n_used, out);
    let outputs = (WeightRole::AttnOutputExperts, [n_experts, d_model, width]);
    let out = product(
        b,
        "attn_output_exps",
        outputs,
        (n_used, true),
        [out, choice],
    )?;
    let combine = CombineExperts {
        n_used,
        weighted: true,
    };
    Ok(b.push("attn_exps_sum", combine.into(), vec![out, choice], d_model))
}

/// Products with the chosen matrices of this role and shape, of one row or of a row for each.
fn product(
    b: &mut GraphBuilder<'_>,
    label: &'static str,
    (role, shape): (WeightRole, [usize; 3]),
    (n_used, own_rows): (usize, bool),
    inputs: [ValueId; 2],
) -> Result<ValueId, Error> {
    let op = ExpertLinear {
        weight: b.experts(role, shape)?,
        bias: None,
        scale: None,
        n_used,
        own_rows,
    };
    Ok(b.push(label, op.into(), inputs.to_vec(), n_used * shape[1]))
}

/// Heads of experts, one expert after the other, in an order in which those that read one key head are adjacent.
fn by_key_heads(b: &mut GraphBuilder<'_>, n_used: usize, x: ValueId) -> ValueId {
    let width = b.config().kv_width();
    let n_heads = b.config().n_kv_heads;
    reordered(
        b,
        n_used,
        x,
        &|part| (1, part * width..(part + 1) * width),
        n_heads,
    )
}

/// The reverse.
fn by_experts(b: &mut GraphBuilder<'_>, n_used: usize, x: ValueId) -> ValueId {
    let (n_heads, head_dim) = (b.config().n_kv_heads, b.config().head_dim);
    let own = |part: usize| (n_heads, part * head_dim..(part + 1) * head_dim);
    reordered(b, n_used, x, &own, 1)
}

/// Parts of each of some heads, side by side in each of `n_heads` heads.
fn reordered(
    b: &mut GraphBuilder<'_>,
    n_parts: usize,
    x: ValueId,
    part: &dyn Fn(usize) -> (usize, std::ops::Range<usize>),
    n_heads: usize,
) -> ValueId {
    let mut out = None;
    for (n_heads_before, range) in (0..n_parts).map(part) {
        let width = n_heads_before * range.len();
        let slice = SliceHeads {
            n_heads: n_heads_before,
            range,
        };
        let next = b.push("attn_exps_part", slice.into(), vec![x], width);
        out = Some(match out {
            None => next,
            Some(before) => {
                let (from_a, from_b) = (b.width(before) / n_heads, width / n_heads);
                let concat = ConcatHeads {
                    n_heads,
                    from_a: 0..from_a,
                    from_b: 0..from_b,
                };
                let width = b.width(before) + width;
                b.push("attn_exps_parts", concat.into(), vec![before, next], width)
            }
        });
    }
    out.unwrap_or(x)
}
