//! Qwen 2 VL, and Qwen 2.5 VL with RMS norms, gated feed-forward networks and attention within windows.

use super::config::{PatchColumns, PatchGrid, VisionActivation, VisionConfig, WindowedAttention};
use super::family::{ClipKeys, HfVision, VisionFamily};
use super::finder::BlockForm;
use super::names::{HfName, RoleName, VisionRole};
use super::qwen::{self, MARKS, PREFIXES};
use super::{Finder, Merger, Projector, VisionLayer, VisionModel};
use crate::Error;

/// Names of the feed-forward (`modeling_qwen2_vl.py`).
const FFN_NAMES: &[RoleName] = {
    use HfName::VisionEncoder;
    use VisionRole::*;
    &[
        RoleName(FfnUp, VisionEncoder("blocks.{}.mlp.fc1")),
        RoleName(FfnDown, VisionEncoder("blocks.{}.mlp.fc2")),
    ]
};

/// The same of `modeling_qwen2_5_vl.py`.
const FFN_NAMES_25: &[RoleName] = {
    use HfName::VisionEncoder;
    use VisionRole::*;
    &[
        RoleName(FfnGate, VisionEncoder("blocks.{}.mlp.gate_proj")),
        RoleName(FfnUp, VisionEncoder("blocks.{}.mlp.up_proj")),
        RoleName(FfnDown, VisionEncoder("blocks.{}.mlp.down_proj")),
    ]
};

/// Blocks of Qwen 2.5 VL.
const FORM_25: BlockForm = BlockForm {
    gated: true,
    ..BlockForm::RMS_NORMS
};

pub(super) static FAMILY: VisionFamily = VisionFamily {
    name: "qwen2vl",
    text_families: &["qwen2vl"],
    projector: "qwen2vl_merger",
    hf_model_types: &["qwen2_vl"],
    hf_vision_types: &["qwen2_vl_vision", "qwen2_vl"],
    hf_prefixes: &PREFIXES,
    names: &[qwen::NAMES, qwen::MERGER_NAMES, FFN_NAMES],
    marks: MARKS,
    hf,
    gguf,
    build,
};

pub(super) static FAMILY_25: VisionFamily = VisionFamily {
    name: "qwen2.5vl",
    text_families: &["qwen2vl"],
    projector: "qwen2.5vl_merger",
    hf_model_types: &["qwen2_5_vl"],
    hf_vision_types: &["qwen2_5_vl_vision", "qwen2_5_vl"],
    hf_prefixes: &PREFIXES,
    names: &[qwen::NAMES, qwen::MERGER_NAMES, FFN_NAMES_25],
    marks: MARKS,
    hf: hf_25,
    gguf: gguf_25,
    build: build_25,
};

/// Pixels of a window's side, in `mmproj` files that do not give it (llama.cpp, `clip.cpp`).
const WINDOW_SIZE: usize = 112;

fn hf(keys: &HfVision<'_>) -> Result<VisionConfig, Error> {
    let activation =
        keys.activation("hidden_act", &[("quick_gelu", VisionActivation::QuickGelu)])?;
    let d_model = keys.or("embed_dim", 1280)?;
    Ok(VisionConfig {
        family: FAMILY.name,
        d_model,
        d_ff: d_model.saturating_mul(keys.or("mlp_ratio", 4)?),
        d_text: keys.or("hidden_size", 3584)?,
        activation,
        ..both_of_hf(keys)?
    })
}

fn hf_25(keys: &HfVision<'_>) -> Result<VisionConfig, Error> {
    const FULL: &str = "fullatt_block_indexes";
    let activation = keys.activation("hidden_act", &[("silu", VisionActivation::Silu)])?;
    let full_layers = match keys.encoder.array(FULL)? {
        Some(_) => keys.indexes(FULL)?,
        None => vec![7, 15, 23, 31],
    };
    Ok(VisionConfig {
        family: FAMILY_25.name,
        d_model: keys.or("hidden_size", 3584)?,
        d_ff: keys.or("intermediate_size", 3420)?,
        d_text: keys.or("out_hidden_size", 3584)?,
        activation,
        windows: Some(WindowedAttention {
            side: keys.or("window_size", WINDOW_SIZE)?,
            full_layers,
        }),
        ..both_of_hf(keys)?
    })
}

/// Keys that both have, and zeros for the rest.
fn both_of_hf(keys: &HfVision<'_>) -> Result<VisionConfig, Error> {
    keys.check_channels("in_channels")?;
    keys.check_channels("in_chans")?;
    keys.check_frames()?;
    let patch_size = keys.or("patch_size", 14)?;
    let merge = keys.or("spatial_merge_size", 2)?;
    let grid = PatchGrid::of_transformers(merge, keys.rope_theta(10_000.0)?);
    Ok(VisionConfig {
        n_layers: keys.or("depth", 32)?,
        n_heads: keys.or("num_heads", 16)?,
        ..without_widths(grid, patch_size)
    })
}

fn gguf(keys: &ClipKeys<'_>) -> Result<VisionConfig, Error> {
    let d_model = keys.need("embedding_length")?;
    Ok(VisionConfig {
        family: FAMILY.name,
        // The converter writes the text model's width under `feed_forward_length`.
        d_ff: keys.inner_width(d_model)?,
        activation: VisionActivation::QuickGelu,
        ..both_of_gguf(keys)?
    })
}

fn gguf_25(keys: &ClipKeys<'_>) -> Result<VisionConfig, Error> {
    let n_layers = keys.need("block_count")?;
    let every = keys.need("n_wa_pattern")?;
    if every == 0 {
        return Err(keys.unsupported("`clip.vision.n_wa_pattern` = 0", "1 or more"));
    }
    Ok(VisionConfig {
        family: FAMILY_25.name,
        d_ff: keys.need("feed_forward_length")?,
        activation: VisionActivation::Silu,
        windows: Some(WindowedAttention {
            side: keys.size("window_size")?.unwrap_or(WINDOW_SIZE),
            full_layers: (0..n_layers.min(VisionConfig::MAX_LAYERS))
                .filter(|layer| (layer + 1).is_multiple_of(every))
                .collect(),
        }),
        ..both_of_gguf(keys)?
    })
}

fn both_of_gguf(keys: &ClipKeys<'_>) -> Result<VisionConfig, Error> {
    let patch_size = keys.need("patch_size")?;
    let grid = PatchGrid::of_llama_cpp(keys, patch_size)?;
    Ok(VisionConfig {
        n_layers: keys.need("block_count")?,
        d_model: keys.need("embedding_length")?,
        n_heads: keys.need("attention.head_count")?,
        norm_eps: keys.norm_eps()?,
        d_text: keys.need("projection_dim")?,
        ..without_widths(grid, patch_size)
    })
}

fn without_widths(grid: PatchGrid, patch_size: usize) -> VisionConfig {
    VisionConfig {
        patches: PatchColumns::TwoFrames,
        ..VisionConfig::on_grid(FAMILY.name, grid, patch_size)
    }
}

fn build(finder: &Finder<'_>) -> Result<VisionModel, Error> {
    let merger = Merger {
        norm: finder.norm(None, VisionRole::MergerNorm)?,
        up: finder.linear(None, VisionRole::MergerUp)?,
        down: finder.linear(None, VisionRole::MergerDown)?,
    };
    let layers = finder.layers(BlockForm::LAYER_NORMS)?;
    model(finder, merger, layers)
}

fn build_25(finder: &Finder<'_>) -> Result<VisionModel, Error> {
    let merger = Merger {
        norm: finder.rms_norm(None, VisionRole::MergerNorm)?,
        up: finder.linear(None, VisionRole::MergerUp)?,
        down: finder.linear(None, VisionRole::MergerDown)?,
    };
    let layers = finder.layers(FORM_25)?;
    model(finder, merger, layers)
}

fn model(
    finder: &Finder<'_>,
    merger: Merger,
    layers: Vec<VisionLayer>,
) -> Result<VisionModel, Error> {
    Ok(VisionModel {
        patches: finder.without_bias(None, VisionRole::Patches)?,
        second_frame: finder.second_frame()?,
        pre_norm: None,
        positions: None,
        layers,
        norm: None,
        projector: Projector::Merged(Box::new(merger)),
        deepstack: Vec::new(),
        config: finder.config.clone(),
    })
}
