//! Closed forms of whole models: a token of fused decode and a prompt under FastFlowLM's scheme,
//! with the constants of a profile. `docs/timing-model.md` lists their omissions.

use super::geometry::Geometry;
use millrace_xdna2_machine::timing::closed;
use millrace_xdna2_machine::{Machine, Profile};

/// Keys of a block of the cache.
const KEYS: u64 = 16;

/// Bytes of a Q4NX weight: 5120 a block of 32 × 256.
const Q4NX_BYTES: f64 = 5120.0 / (32.0 * 256.0);

/// Bytes of a bf16 weight.
const BF16_BYTES: f64 = 2.0;

/// A constant that a profile does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("profile `{profile}` has no `{key}`: this software's {what} is not calibrated")]
pub struct NoConstant {
    /// The profile.
    pub profile: String,
    /// The key.
    pub key: String,
    /// Decode or prefill.
    pub what: &'static str,
}

/// How a decode kernel reads its weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weights {
    /// At the profile's rate, over that many shim channels a column.
    Stream {
        /// Channels.
        channels: u64,
    },
    /// Bound by the cores: each 32 × 256 block takes `16 · bundles` cycles of one of 16 cores.
    Bundles(f64),
}

/// A token of fused decode from position `context`, in nanoseconds:
/// `W / B_w + n_layers t_layer + t_blk Σ ceil(L_eff / 16)`.
///
/// `W` is the model's streamed weights at 5 bits, `B_w` the profile's rate but no more than its
/// columns' shim channels carry, `L_eff` the context or, where the software implements windows, the
/// window; `t_blk` the cycles of a block of 16 keys of the attention object for that head
/// dimension.
///
/// # Errors
/// The profile lacks a constant.
pub fn decode_token_ns(
    model: &Geometry,
    context: u64,
    weights: Weights,
    machine: &Machine,
    profile: &Profile,
) -> Result<f64, NoConstant> {
    let lacks = |key: &str| NoConstant {
        profile: profile.name.clone(),
        key: key.into(),
        what: "decode",
    };
    let decode = &profile.decode;
    if decode.weight_gb_per_s <= 0.0 {
        return Err(lacks("decode.weight_gb_per_s"));
    }
    let object = format!("decode_attention.d{}", model.head_dim);
    let block = profile
        .kernel(&object)
        .ok_or_else(|| lacks(&format!("kernel.{object}")))?;
    let cycle_ns = 1e9 / machine.clock_hz;
    let n_weights = model.streamed_weights() as f64;
    let weights_ns = match weights {
        Weights::Stream { channels } => {
            let ports = decode.weight_columns * channels as f64 * profile.shim.port_gb_per_s;
            n_weights * Q4NX_BYTES / decode.weight_gb_per_s.min(ports)
        }
        Weights::Bundles(bundles) => n_weights / (32.0 * 256.0) * bundles * cycle_ns,
    };
    let blocks: u64 = (model
        .attention_lengths(context, decode.windows > 0.0)
        .iter())
    .map(|(layers, positions)| layers * positions.div_ceil(KEYS))
    .sum();
    let cache_ns = blocks as f64 * block.call_cycles * cycle_ns;
    Ok(weights_ns + model.n_layers as f64 * decode.layer_ns + cache_ns)
}

/// A prompt of `length` tokens to its first one under FastFlowLM's scheme, in nanoseconds:
/// `n t_cfg + W (0.625 + 2) / B_dequant + 2 W L / R_gemm + element-wise + A / R_attn + n L t_row`.
///
/// `W` counts the linear layers, `A = 4 head_dim heads Σ pairs` the operations of causal attention
/// within the windows, with at least `group_heads` query heads a KV head. Element-wise operators
/// run on a row of cores at the cycles of the profile's kernel objects.
///
/// # Errors
/// The profile lacks a constant.
pub fn prefill_ns(
    model: &Geometry,
    length: u64,
    machine: &Machine,
    profile: &Profile,
) -> Result<f64, NoConstant> {
    let prefill = &profile.prefill;
    if prefill.gemm_gflop_per_s <= 0.0 || prefill.attention_gflop_per_s <= 0.0 {
        return Err(NoConstant {
            profile: profile.name.clone(),
            key: "prefill.gemm_gflop_per_s".into(),
            what: "prefill",
        });
    }
    let weights = model.linear_weights() as f64;
    let layers = model.n_layers as f64;
    let rows = layers * length as f64;
    let group = prefill.group_heads.max(1.0) as u64;
    let heads = model.n_heads.max(model.n_kv_heads * group);
    let attention = 4.0 * (model.head_dim * heads) as f64 * model.causal_pairs(length) as f64;
    let dequant_ns = weights * (Q4NX_BYTES + BF16_BYTES) / prefill.dequant_gb_per_s;
    Ok(layers * prefill.layer_ns
        + dequant_ns
        + 2.0 * weights * length as f64 / prefill.gemm_gflop_per_s
        + layers * elementwise_ns(model, length, machine, profile)
        + attention / prefill.attention_gflop_per_s
        + rows * prefill.row_ns)
}

/// Norms, RoPE, gate and residual adds of a layer.
fn elementwise_ns(model: &Geometry, length: u64, machine: &Machine, profile: &Profile) -> f64 {
    let cores = u64::from(machine.cols);
    let ns = |object: &str, rows: u64, width: u64, bytes: (u64, u64)| {
        let cycles = profile.kernel(object).copied().unwrap_or_default();
        let each = cycles.cycles_per_element + cycles.call_cycles / width as f64;
        closed::elementwise_ns(rows * width, cores, each, bytes, machine, profile)
    };
    let gate = if model.gelu {
        "gelu_mul_bf16"
    } else {
        "silu_mul_bf16"
    };
    let d_model = model.d_model;
    let heads = model.n_heads + model.n_kv_heads;
    model.norms as f64 * ns("rmsnorm_bf16", length, d_model, (2, 2))
        + ns(
            "rope_halfsplit_bf16",
            length * heads,
            model.head_dim,
            (4, 2),
        )
        + flat(profile, gate, length * model.d_ff, machine)
        + 2.0 * flat(profile, "add_bf16", length * d_model, machine)
}

/// A kernel over flat data, with so few calls that they have no separate cost.
fn flat(profile: &Profile, object: &str, n: u64, machine: &Machine) -> f64 {
    let each = profile
        .kernel(object)
        .map_or(0.0, |cycles| cycles.cycles_per_element);
    let cores = u64::from(machine.cols);
    closed::elementwise_ns(n, cores, each, (4, 2), machine, profile)
}

#[cfg(test)]
mod tests;
