//! Pixtral and Mistral 3: images of any size up to a longer side, a norm before the blocks, heads that rotate by rows and columns, and
//! a network over patches. Mistral 3 merges squares of patches before it. A token separates the lines of an image's rows.

use super::config::{AxialTurns, LineBreak, PatchGrid, VisionActivation, VisionConfig};
use super::family::{ClipKeys, HfSpelling, HfVision, ImageMarks, RowsAt, VisionFamily};
use super::finder::BlockForm;
use super::names::{HfName, RoleName, VisionRole};
use super::{Finder, PatchAdapter, Projector, VisionModel};
use crate::Error;
use crate::config::hf::ConfigObject;

/// Names in Hugging Face files (module names of `modeling_pixtral.py` and `modeling_mistral3.py`).
const NAMES: &[RoleName] = {
    use HfName::{Projector, VisionEncoder};
    use VisionRole::*;
    &[
        RoleName(Patches, VisionEncoder("patch_conv")),
        RoleName(PreNorm, VisionEncoder("ln_pre")),
        RoleName(Norm1, VisionEncoder("transformer.layers.{}.attention_norm")),
        RoleName(
            AttnQ,
            VisionEncoder("transformer.layers.{}.attention.q_proj"),
        ),
        RoleName(
            AttnK,
            VisionEncoder("transformer.layers.{}.attention.k_proj"),
        ),
        RoleName(
            AttnV,
            VisionEncoder("transformer.layers.{}.attention.v_proj"),
        ),
        RoleName(
            AttnOutput,
            VisionEncoder("transformer.layers.{}.attention.o_proj"),
        ),
        RoleName(Norm2, VisionEncoder("transformer.layers.{}.ffn_norm")),
        RoleName(
            FfnGate,
            VisionEncoder("transformer.layers.{}.feed_forward.gate_proj"),
        ),
        RoleName(
            FfnUp,
            VisionEncoder("transformer.layers.{}.feed_forward.up_proj"),
        ),
        RoleName(
            FfnDown,
            VisionEncoder("transformer.layers.{}.feed_forward.down_proj"),
        ),
        RoleName(PatchMergerNorm, Projector("norm")),
        RoleName(PatchMerger, Projector("patch_merger.merging_layer")),
        RoleName(AdapterUp, Projector("linear_1")),
        RoleName(AdapterDown, Projector("linear_2")),
    ]
};

/// The model with a patch merger; `llava` is Pixtral's.
const WITH_MERGER: &str = "mistral3";

pub(super) static FAMILY: VisionFamily = VisionFamily {
    name: "pixtral",
    // GGUF files of Pixtral and of Mistral Small call the text model a Llama.
    text_families: &["mistral", "mistral3", "llama"],
    projector: "pixtral",
    hf_model_types: &[WITH_MERGER, "llava"],
    hf_vision_types: &["pixtral"],
    hf_prefixes: &[
        HfSpelling {
            encoder: "vision_tower.",
            projector: "multi_modal_projector.",
        },
        HfSpelling {
            encoder: "model.vision_tower.",
            projector: "model.multi_modal_projector.",
        },
    ],
    names: &[NAMES],
    marks: ImageMarks {
        place: "[IMG]",
        alone: "[IMG]",
        rows: RowsAt::Place {
            begin: "",
            end: "[IMG_END]",
        },
        around: "",
        placeholder: "[IMG]",
        placeholder_id: 10,
    },
    hf,
    gguf,
    build,
};

const FORM: BlockForm = BlockForm {
    biases: false,
    gated: true,
    ..BlockForm::RMS_NORMS
};

/// The epsilon of norms, which `config.json` does not have (transformers, `modeling_pixtral.py`).
const NORM_EPS: f32 = 1e-5;

const ROPE_THETA: f32 = 10_000.0;

/// `neighbours`: the converter of llama.cpp puts the elements of a pair side by side.
fn grid(merge: usize, theta: f32, neighbours: bool) -> PatchGrid {
    PatchGrid {
        turns: AxialTurns::Alternating { neighbours },
        line_break: Some(LineBreak {
            token: "[IMG_BREAK]",
            id: 12,
        }),
        ..PatchGrid::of_transformers(merge, theta)
    }
}

/// Refuses configurations in which the projector does not take all features of the last block, unchanged. The defaults of `llava` differ.
fn check_features(config: &ConfigObject<'_>, merges: bool) -> Result<(), Error> {
    let (layer, strategy) = if merges {
        (-1, "full")
    } else {
        (-2, "default")
    };
    let found = config.get("vision_feature_layer").cloned();
    let found = found.unwrap_or_else(|| layer.into());
    if found.as_i64() != Some(-1) {
        return Err(config.unsupported(format!("`vision_feature_layer` = {found}"), "-1"));
    }
    let found = config.str("vision_feature_select_strategy")?;
    match found.unwrap_or(strategy) {
        "full" => Ok(()),
        found => {
            let feature = format!("`vision_feature_select_strategy` = {found}");
            Err(config.unsupported(feature, "full"))
        }
    }
}

fn hf(keys: &HfVision<'_>) -> Result<VisionConfig, Error> {
    keys.check_channels("num_channels")?;
    let known = [
        ("gelu", VisionActivation::Gelu),
        ("silu", VisionActivation::Silu),
    ];
    let config = &keys.config;
    if let Some(found) = config
        .str("projector_hidden_act")?
        .filter(|act| *act != "gelu")
    {
        let feature = format!("activation `{found}` (`projector_hidden_act`)");
        return Err(config.unsupported(feature, "gelu"));
    }
    let merges = config.str("model_type")? == Some(WITH_MERGER);
    check_features(config, merges)?;
    let merge = match merges {
        true => config.usize("spatial_merge_size")?.unwrap_or(2),
        false => 1,
    };
    let (d_model, n_heads) = (
        keys.or("hidden_size", 1024)?,
        keys.or("num_attention_heads", 16)?,
    );
    keys.check_heads(d_model, n_heads)?;
    let patch_size = keys.or("patch_size", if merges { 14 } else { 16 })?;
    let image_size = keys.or("image_size", if merges { 1540 } else { 1024 })?;
    let grid = grid(merge, keys.rope_theta(ROPE_THETA)?, false);
    Ok(VisionConfig {
        n_layers: keys.or("num_hidden_layers", 24)?,
        d_model,
        d_ff: keys.or("intermediate_size", 4096)?,
        n_heads,
        norm_eps: NORM_EPS,
        merger_eps: keys.text.f32("rms_norm_eps")?,
        d_text: keys.text.usize("hidden_size")?.unwrap_or(5120),
        activation: keys.activation("hidden_act", &known)?,
        ..sized(grid, image_size, patch_size)
    })
}

/// A vision encoder for images of `image_size` pixels in the longer side, as far as that is known.
fn sized(grid: PatchGrid, image_size: usize, patch_size: usize) -> VisionConfig {
    let grid = grid.with_longer_side(image_size, patch_size);
    VisionConfig::on_grid(FAMILY.name, grid, patch_size)
}

fn gguf(keys: &ClipKeys<'_>) -> Result<VisionConfig, Error> {
    let patch_size = keys.need("patch_size")?;
    let merge = keys.size("spatial_merge_size")?.unwrap_or(1);
    let is_silu = keys.metadata.get_bool("clip.use_silu")? == Some(true);
    Ok(VisionConfig {
        n_layers: keys.need("block_count")?,
        d_model: keys.need("embedding_length")?,
        d_ff: keys.need("feed_forward_length")?,
        n_heads: keys.need("attention.head_count")?,
        norm_eps: keys.norm_eps()?,
        d_text: keys.need("projection_dim")?,
        activation: match is_silu {
            true => VisionActivation::Silu,
            false => VisionActivation::Gelu,
        },
        ..sized(
            grid(merge, ROPE_THETA, true),
            keys.need("image_size")?,
            patch_size,
        )
    })
}

fn build(finder: &Finder<'_>) -> Result<VisionModel, Error> {
    let merges = finder.config.grid.is_some_and(|grid| grid.merge > 1);
    let merger = match merges || finder.has(VisionRole::PatchMerger) {
        true => Some((
            finder.rms_norm(None, VisionRole::PatchMergerNorm)?,
            finder.without_bias(None, VisionRole::PatchMerger)?,
        )),
        false => None,
    };
    let adapter = PatchAdapter {
        merger,
        up: finder.with_any_bias(VisionRole::AdapterUp)?,
        down: finder.with_any_bias(VisionRole::AdapterDown)?,
    };
    Ok(VisionModel {
        patches: finder.without_bias(None, VisionRole::Patches)?,
        second_frame: None,
        positions: None,
        pre_norm: Some(finder.rms_norm(None, VisionRole::PreNorm)?),
        layers: finder.layers(FORM)?,
        norm: None,
        projector: Projector::Adapted(Box::new(adapter)),
        deepstack: Vec::new(),
        config: finder.config.clone(),
    })
}
