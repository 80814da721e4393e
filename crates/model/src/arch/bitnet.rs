//! BitNet b1.58: Llama with norms before the projections back to the stream, and a squared ReLU as its gate.
//!
//! Ternary matrices have a factor beside them: that of packed folders (`weight_scale`), or of GGUF files (`.scale`).

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::ModelConfig;
use crate::config::gguf::{ACTIVATION_KEY, Keys};
use crate::config::hf::{HfDefaults, activation_name};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::{Activation, ValueId};

pub(super) static FAMILY: Family = Family {
    name: "bitnet",
    gguf_arch: "bitnet",
    hf_model_types: &["bitnet"],
    hf_classes: &["BitNetForCausalLM"],
    activation: Activation::ReluSquared,
    models: "BitNet b1.58",
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 128_256,
        d_model: 2560,
        d_ff: 6912,
        n_layers: 30,
        n_heads: 20,
        n_kv_heads: Some(5),
        head_dim: None,
        context_length: 2048,
        tied_head: false,
        rope_theta: 500_000.0,
    },
    gguf_own_keys: &[ACTIVATION_KEY],
    gguf,
    write_gguf: |config, set| {
        let name = activation_name(config.activation);
        set(ACTIVATION_KEY, GgufValue::Str(name.into()));
    },
    build,
    ..Family::PLAIN
};

/// Files that leave it unsaid have the gate of the first BitNets, a SiLU (llama.cpp, `bitnet.cpp`).
fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.activation = keys.activation()?.unwrap_or(Activation::Silu);
    Ok(())
}

/// Llama's blocks with a norm before the attention's output projection and one before the down projection.
fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let heads = attention::project(b, normed)?;
        let heads = attention::rotate(b, layer, heads);
        let out = attention::attend_rotated(b, layer, heads)?;
        let role = (WeightRole::AttnSubNorm, b.width(out));
        let out = norm::rms(b, "attn_sub_norm", role, out)?;
        let out = attention::project_back(b, out)?;
        let x = b.residual("attn_residual", x, out);
        let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
        let out = network(b, normed)?;
        Ok(b.residual("ffn_residual", x, out))
    })
}

fn network(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let config = b.config();
    let biased = config.biases.ffn;
    let inner = (config.d_ff, biased);
    let gate = b.linear("ffn_gate", WeightRole::FfnGate, inner, x)?;
    let up = b.linear("ffn_up", WeightRole::FfnUp, inner, x)?;
    let out = feed_forward::glu(b, "ffn_glu", gate, up);
    let role = (WeightRole::FfnSubNorm, config.d_ff);
    let out = norm::rms(b, "ffn_sub_norm", role, out)?;
    let outer = (config.d_model, biased);
    b.linear("ffn_down", WeightRole::FfnDown, outer, out)
}
