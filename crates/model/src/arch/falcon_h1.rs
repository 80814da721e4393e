//! Falcon H1: a selective scan and attention side by side in every layer, with factors on all branches.

use super::block::feed_forward;
use super::block::mamba_config as files;
use super::block::{self, attention, mamba, norm};
use super::{Family, StoredForm, WeightConvention};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfWindows, shortest};
use crate::config::{BranchScales, MambaNorm, ModelConfig, RecurrentConfig, RecurrentMixer};
use crate::names::{ParameterKind, TensorName, WeightRole};
use millrace_graph::ValueId;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "falcon_h1",
    gguf_arch: "falcon-h1",
    hf_model_types: &["falcon_h1"],
    hf_classes: &["FalconH1ForCausalLM"],
    models: "Falcon H1",
    hf_norm_eps: 1e-5,
    hf_mlp_bias: true,
    hf_windows: HfWindows::Recurrent,
    hf_names: &[
        (WeightRole::OutputNorm, "final_layernorm"),
        (WeightRole::FfnPreNorm, "pre_ff_layernorm"),
        (WeightRole::FfnGate, "feed_forward.gate_proj"),
        (WeightRole::FfnUp, "feed_forward.up_proj"),
        (WeightRole::FfnDown, "feed_forward.down_proj"),
        (WeightRole::SsmIn, "mamba.in_proj"),
        (WeightRole::SsmConv, "mamba.conv1d"),
        (WeightRole::SsmRate, "mamba.A_log!"),
        (WeightRole::SsmDt, "mamba.dt!"),
        (WeightRole::SsmSkip, "mamba.D!"),
        (WeightRole::SsmNorm, "mamba.norm"),
        (WeightRole::SsmPreNorm, "mamba.norm"),
        (WeightRole::SsmOut, "mamba.out_proj"),
    ],
    hf_defaults: HfDefaults {
        vocab_size: 128_000,
        d_model: 4096,
        d_ff: 14_336,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: Some(8),
        head_dim: None,
        context_length: 8192,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf,
    write_gguf: files::write_gguf,
    stored: |config, (name, layout)| StoredForm {
        factor: match layout {
            WeightConvention::Gguf => gguf_factor(config, name),
            WeightConvention::HuggingFace | WeightConvention::Q4nx => 1.0,
        },
        ..StoredForm::PLAIN
    },
    hf,
    write_hf,
    build,
    ..Family::PLAIN
};

/// Takes `scales` as the factors of both branches.
fn set(config: &mut ModelConfig, scales: BranchScales) {
    if let Some(recurrent) = &mut config.recurrent {
        recurrent.beside_attention = Some(scales);
    }
}

fn scales(config: &ModelConfig) -> BranchScales {
    let recurrent = config.recurrent.as_ref();
    let scales = recurrent.and_then(|recurrent| recurrent.beside_attention);
    scales.unwrap_or(BranchScales::NONE)
}

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    files::gguf(keys, vec![true; config.n_layers], config)?;
    set(config, BranchScales::NONE);
    Ok(())
}

/// llama.cpp's converter multiplies weights with the factors.
fn gguf_factor(config: &ModelConfig, name: TensorName) -> f32 {
    let scales = scales(config);
    // A factor on the input is not a factor on the bias.
    let way_in = |factor: f32| match name.part {
        ParameterKind::Weight => factor,
        ParameterKind::Bias | ParameterKind::Scale => 1.0,
    };
    let part = |index: usize| way_in(scales.ssm_in) * scales.ssm[index];
    match name.role {
        WeightRole::TokenEmbedding => config.embed_scale,
        WeightRole::Output => config.logit_scale,
        WeightRole::AttnQ | WeightRole::AttnV => way_in(scales.attention_in),
        WeightRole::AttnK => way_in(scales.attention_in) * scales.key,
        WeightRole::AttnOutput => scales.attention_out,
        WeightRole::SsmInGate => part(0),
        WeightRole::SsmInX | WeightRole::SsmInXbc => part(1),
        WeightRole::SsmInB => part(2),
        WeightRole::SsmInC => part(3),
        WeightRole::SsmInDt => part(4),
        WeightRole::SsmOut => scales.ssm_out,
        WeightRole::FfnGate => scales.ffn_gate,
        WeightRole::FfnDown => scales.ffn_out,
        _ => 1.0,
    }
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let inner = match text.map.get("mamba_d_ssm") {
        None => 1024,
        Some(_) => match text.usize("mamba_d_ssm")? {
            Some(inner) => inner,
            None => files::hf_inner(text, config)?,
        },
    };
    files::hf(text, (vec![true; config.n_layers], inner), config)?;
    let flag = |key: &str, default| Ok::<_, Error>(text.bool(key)?.unwrap_or(default));
    if let Some(RecurrentMixer::Mamba(mamba)) = config.recurrent.as_mut().map(|r| &mut r.mixer) {
        mamba.out_bias = flag("projectors_bias", false)?;
        mamba.norm = match flag("mamba_rms_norm", false)? {
            false => MambaNorm::Absent,
            true if flag("mamba_norm_before_gate", true)? => MambaNorm::BeforeGate,
            true => MambaNorm::BehindGate,
        };
    }
    let factor = |key: &str| Ok::<_, Error>(text.f32(key)?.unwrap_or(1.0));
    config.embed_scale = factor("embedding_multiplier")?;
    config.logit_scale = factor("lm_head_multiplier")?;
    let [ffn_gate, ffn_out] = factors(text, "mlp_multipliers")?;
    let scales = BranchScales {
        attention_in: factor("attention_in_multiplier")?,
        attention_out: factor("attention_out_multiplier")?,
        key: factor("key_multiplier")?,
        ssm_in: factor("ssm_in_multiplier")?,
        ssm_out: factor("ssm_out_multiplier")?,
        ssm: factors(text, "ssm_multipliers")?,
        ffn_gate,
        ffn_out,
    };
    set(config, scales);
    Ok(())
}

/// A list of factors; ones where it is absent.
fn factors<const N: usize>(text: &ConfigObject<'_>, key: &str) -> Result<[f32; N], Error> {
    let Some(list) = text.array(key)? else {
        return Ok([1.0; N]);
    };
    let numbers: Option<Vec<f32>> = list.iter().map(|x| Some(x.as_f64()? as f32)).collect();
    let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
    numbers.ok_or_else(|| text.bad(key, &json!(list), &format!("{N} numbers")))
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    files::write_hf(config, out);
    let scales = scales(config);
    let factors = [
        ("embedding_multiplier", config.embed_scale),
        ("lm_head_multiplier", config.logit_scale),
        ("attention_in_multiplier", scales.attention_in),
        ("attention_out_multiplier", scales.attention_out),
        ("key_multiplier", scales.key),
        ("ssm_in_multiplier", scales.ssm_in),
        ("ssm_out_multiplier", scales.ssm_out),
    ];
    for (key, factor) in factors {
        out[key] = shortest(factor);
    }
    out["mlp_multipliers"] = json!([shortest(scales.ffn_gate), shortest(scales.ffn_out)]);
    out["ssm_multipliers"] = json!(scales.ssm.map(shortest));
    if let Some(mamba) = config.recurrent.as_ref().and_then(RecurrentConfig::mamba) {
        out["mamba_d_ssm"] = json!(mamba.d_inner());
        out["projectors_bias"] = json!(mamba.out_bias);
        out["mamba_rms_norm"] = json!(mamba.norm != MambaNorm::Absent);
        out["mamba_norm_before_gate"] = json!(mamba.norm != MambaNorm::BehindGate);
    }
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let scales = scales(b.config());
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let attended = attend(b, layer, &scales, normed)?;
        let mixed = match b.config().mixer_of(layer) {
            Some(RecurrentMixer::Mamba(config)) => {
                let scanned = mamba::scan(b, &config, b.config().activation, normed)?;
                b.add("branches", scanned, attended)
            }
            _ => attended,
        };
        let x = b.residual("attn_residual", x, mixed);
        let normed = norm::stream(b, "ffn_norm", WeightRole::FfnPreNorm, x)?;
        let out = network(b, &scales, normed)?;
        Ok(b.residual("ffn_residual", x, out))
    })
}

fn attend(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    scales: &BranchScales,
    x: ValueId,
) -> Result<ValueId, Error> {
    let x = b.scale("attn_in_scale", scales.attention_in, x);
    let heads = attention::project(b, x)?;
    let heads = attention::scale_keys(b, scales.key, heads);
    let out = attention::attend(b, layer, heads)?;
    Ok(b.scale("attn_out_scale", scales.attention_out, out))
}

fn network(b: &mut GraphBuilder<'_>, scales: &BranchScales, x: ValueId) -> Result<ValueId, Error> {
    let (d_ff, d_model) = (b.config().d_ff, b.config().d_model);
    let biased = b.config().biases.ffn;
    let gate = b.linear("ffn_gate", WeightRole::FfnGate, (d_ff, biased), x)?;
    let gate = b.scale("ffn_gate_scale", scales.ffn_gate, gate);
    let up = b.linear("ffn_up", WeightRole::FfnUp, (d_ff, biased), x)?;
    let out = feed_forward::glu(b, "ffn_glu", gate, up);
    let out = b.linear("ffn_down", WeightRole::FfnDown, (d_model, biased), out)?;
    Ok(b.scale("ffn_out_scale", scales.ffn_out, out))
}
