//! Qwen 3 VL and Qwen 3.5: images of any size in patches of two equal frames, with learned positions stretched to the image.
//! Rotary positions are those of rows and columns, and a network merges squares of patches. Qwen 3 VL taps some blocks besides,
//! for the first layers of the text model.

use super::config::{PatchColumns, PatchGrid, VisionActivation, VisionConfig};
use super::family::{ClipKeys, HfVision, VisionFamily};
use super::finder::BlockForm;
use super::names::{HfName, RoleName, VisionName, VisionRole};
use super::qwen::{self, MARKS, PREFIXES};
use super::{Finder, Merger, Projector, VisionModel};
use crate::Error;

/// Names that only this family has in Hugging Face files (module names of `modeling_qwen3_vl.py`).
const NAMES: &[RoleName] = {
    use HfName::VisionEncoder;
    use VisionRole::*;
    &[
        RoleName(Positions, VisionEncoder("pos_embed")),
        RoleName(FfnUp, VisionEncoder("blocks.{}.mlp.linear_fc1")),
        RoleName(FfnDown, VisionEncoder("blocks.{}.mlp.linear_fc2")),
        RoleName(MergerNorm, VisionEncoder("merger.norm")),
        RoleName(MergerUp, VisionEncoder("merger.linear_fc1")),
        RoleName(MergerDown, VisionEncoder("merger.linear_fc2")),
        RoleName(
            DeepstackNorm,
            VisionEncoder("deepstack_merger_list.{}.norm"),
        ),
        RoleName(
            DeepstackUp,
            VisionEncoder("deepstack_merger_list.{}.linear_fc1"),
        ),
        RoleName(
            DeepstackDown,
            VisionEncoder("deepstack_merger_list.{}.linear_fc2"),
        ),
    ]
};

pub(super) static FAMILY: VisionFamily = VisionFamily {
    name: "qwen3vl",
    text_families: &["qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"],
    projector: "qwen3vl_merger",
    hf_model_types: &["qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"],
    hf_vision_types: &[
        "qwen3_vl_vision",
        "qwen3_vl_moe_vision",
        "qwen3_5_vision",
        "qwen3_5_moe_vision",
        // Early folders name the vision encoder as the model.
        "qwen3_vl",
        "qwen3_vl_moe",
        "qwen3_5",
        "qwen3_5_moe",
    ],
    hf_prefixes: &PREFIXES,
    names: &[qwen::NAMES, NAMES],
    marks: MARKS,
    hf,
    gguf,
    build,
};

fn hf(keys: &HfVision<'_>) -> Result<VisionConfig, Error> {
    let activation = keys.activation(
        "hidden_act",
        &[("gelu_pytorch_tanh", VisionActivation::GeluTanh)],
    )?;
    keys.check_channels("in_channels")?;
    keys.check_frames()?;
    let patch_size = keys.or("patch_size", 16)?;
    let n_positions = keys.or("num_position_embeddings", 2304)?;
    let merge = keys.or("spatial_merge_size", 2)?;
    let grid = PatchGrid::of_transformers(merge, keys.rope_theta(10_000.0)?);
    Ok(VisionConfig {
        n_layers: keys.or("depth", 27)?,
        d_model: keys.or("hidden_size", 1152)?,
        d_ff: keys.or("intermediate_size", 4304)?,
        n_heads: keys.or("num_heads", 16)?,
        image_size: n_positions.isqrt().saturating_mul(patch_size),
        d_text: keys.or("out_hidden_size", 3584)?,
        activation,
        patches: PatchColumns::TwoFrames,
        deepstack: deepstack_of_hf(keys)?,
        ..VisionConfig::on_grid(FAMILY.name, grid, patch_size)
    })
}

/// The blocks whose output goes to the text model's first layers. Qwen 3.5 has none.
fn deepstack_of_hf(keys: &HfVision<'_>) -> Result<Vec<usize>, Error> {
    const KEY: &str = "deepstack_visual_indexes";
    let model_type = keys.config.str("model_type")?.unwrap_or_default();
    match keys.encoder.array(KEY)? {
        Some(_) => keys.indexes(KEY),
        None if model_type.starts_with("qwen3_vl") => Ok(vec![8, 16, 24]),
        None => Ok(Vec::new()),
    }
}

fn gguf(keys: &ClipKeys<'_>) -> Result<VisionConfig, Error> {
    let patch_size = keys.need("patch_size")?;
    let grid = PatchGrid::of_llama_cpp(keys, patch_size)?;
    let flags = "clip.vision.is_deepstack_layers";
    let flags = keys.metadata.get_bool_array(flags)?.unwrap_or_default();
    let tapped = flags
        .iter()
        .enumerate()
        .filter(|(_, is_tapped)| **is_tapped);
    Ok(VisionConfig {
        n_layers: keys.need("block_count")?,
        d_model: keys.need("embedding_length")?,
        d_ff: keys.need("feed_forward_length")?,
        n_heads: keys.need("attention.head_count")?,
        image_size: keys.need("image_size")?,
        norm_eps: keys.norm_eps()?,
        d_text: keys.need("projection_dim")?,
        patches: PatchColumns::TwoFrames,
        deepstack: tapped.map(|(layer, _)| layer).collect(),
        ..VisionConfig::on_grid(FAMILY.name, grid, patch_size)
    })
}

fn build(finder: &Finder<'_>) -> Result<VisionModel, Error> {
    let merger = |index, [norm, up, down]: [VisionRole; 3]| {
        Ok::<_, Error>(Merger {
            norm: finder.norm(index, norm)?,
            up: finder.linear(index, up)?,
            down: finder.linear(index, down)?,
        })
    };
    let own = [
        VisionRole::MergerNorm,
        VisionRole::MergerUp,
        VisionRole::MergerDown,
    ];
    let tapped = [
        VisionRole::DeepstackNorm,
        VisionRole::DeepstackUp,
        VisionRole::DeepstackDown,
    ];
    let deepstack = finder.config.deepstack.iter().enumerate();
    let deepstack = deepstack.map(|(i, layer)| {
        // Folders count them, GGUF files name them by their blocks.
        let index = if finder.is_gguf() { *layer } else { i };
        merger(Some(index), tapped)
    });
    Ok(VisionModel {
        patches: finder.linear(None, VisionRole::Patches)?,
        second_frame: finder.second_frame()?,
        pre_norm: None,
        positions: Some(finder.weight(VisionName::weight(None, VisionRole::Positions))?),
        layers: finder.layers(BlockForm::LAYER_NORMS)?,
        norm: None,
        projector: Projector::Merged(Box::new(merger(None, own)?)),
        deepstack: deepstack.collect::<Result<_, _>>()?,
        config: finder.config.clone(),
    })
}
