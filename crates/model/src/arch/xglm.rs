//! XGLM: OPT's blocks, with sines and cosines of positions and a factor on embeddings. llama.cpp has no name for it.

use super::Family;
use super::block::{self, attention};
use super::bloom::{check_heads, set_sizes, unsayable_heads};
use super::gpt2::set_positions;
use super::opt;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::ACTIVATION_KEY;
use crate::config::hf::{ConfigObject, HfDefaults, activation_name, activation_of};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use millrace_graph::{Activation, Derivation, TableRow, ValueId};
use serde_json::{Value, json};

/// Whether embeddings are multiplied by the root of their width.
const SCALES: &str = "scale_embedding";

pub(super) static FAMILY: Family = Family {
    name: "xglm",
    gguf_arch: "xglm",
    hf_model_types: &["xglm"],
    hf_classes: &["XGLMForCausalLM"],
    models: "XGLM 564M to 7.5B",
    hf_names: &opt::names("layer_norm", "lm_head"),
    activation: Activation::Gelu,
    gguf_own_keys: &[ACTIVATION_KEY],
    scaled_embeddings: true,
    layer_norms: true,
    hf_norm_eps: opt::EPS,
    hf_biases: Some(Biases::ALL),
    hf_defaults: HfDefaults {
        vocab_size: 256_008,
        d_model: 1024,
        d_ff: 4096,
        n_layers: 24,
        // The class has a different key, which the hook reads.
        n_heads: 1,
        n_kv_heads: None,
        head_dim: None,
        context_length: 2048,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    gguf: |_, config| {
        set_positions(config);
        Ok(())
    },
    hf,
    write_hf,
    hf_unsayable: |config| {
        if config.norm_eps != opt::EPS {
            return Some(format!("an epsilon of {} in XGLM", config.norm_eps));
        }
        opt::unsayable_scale(config, "XGLM").or_else(|| unsayable_heads(config, "XGLM"))
    },
    build: |b| {
        let x = b.embed()?;
        let x = add_sinusoids(b, x);
        let block =
            |b: &mut GraphBuilder<'_>, layer, x| block::ungated(b, layer, attention::project, x);
        block::decoder_from(b, block, x)
    },
    ..Family::PLAIN
};

fn add_sinusoids(b: &mut GraphBuilder<'_>, x: ValueId) -> ValueId {
    let (d_model, n) = (b.config().d_model, b.config().context_length);
    let first = opt::FIRST_POSITION;
    let name = format!("sinusoids of {n} positions");
    let table = b.without_tensor(name, (n, d_model), Derivation::Sinusoids { first });
    let row = TableRow { table, step: 1 };
    let row = b.push("position", row.into(), vec![], d_model);
    b.add("position_add", x, row)
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if text.bool("add_cross_attention")? == Some(true) {
        let feature = "`add_cross_attention`".into();
        return Err(text.unsupported(feature, "models without it"));
    }
    let first = |keys: [&str; 2], default: usize| {
        let [own, other] = keys.map(|key| text.usize(key));
        Ok::<usize, Error>(own?.or(other?).unwrap_or(default))
    };
    let defaults = &FAMILY.hf_defaults;
    config.d_model = first(["d_model", "hidden_size"], defaults.d_model)?;
    let n_layers = first(["num_layers", "num_hidden_layers"], defaults.n_layers)?;
    let n_heads = first(["attention_heads", "num_attention_heads"], 16)?;
    set_sizes(config, n_layers, n_heads);
    check_heads(text, "attention_heads", config)?;
    config.d_ff = text.usize("ffn_dim")?.unwrap_or(defaults.d_ff);
    config.norm_eps = opt::EPS;
    config.embed_scale = match text.bool(SCALES)?.unwrap_or(true) {
        true => FAMILY.embed_scale(config.d_model),
        false => 1.0,
    };
    // The class sets the row of the padding token to zero, whatever position that is.
    let padding = text.usize("pad_token_id")?;
    let positions = opt::FIRST_POSITION..opt::FIRST_POSITION.saturating_add(config.context_length);
    if let Some(id) = padding.filter(|id| positions.contains(id)) {
        let feature = format!("`pad_token_id` = {id}, which is a position too, in XGLM");
        return Err(text.unsupported(feature, "0 or 1, as all published ones"));
    }
    let activation = activation_of(text, "activation_function")?;
    config.activation = activation.unwrap_or(FAMILY.activation);
    set_positions(config);
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    *out = json!({
        "architectures": FAMILY.hf_classes,
        "model_type": "xglm",
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "num_layers": config.n_layers,
        "attention_heads": config.n_heads,
        "ffn_dim": config.d_ff,
        "max_position_embeddings": config.context_length,
        "activation_function": activation_name(config.activation),
        "scale_embedding": config.embed_scale != 1.0,
        "tie_word_embeddings": config.tied_head,
    });
}
