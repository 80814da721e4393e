//! Gemma 4: images of as many patches as a number of rows allows, and tables of positions by column and by row. Heads have norms
//! and rotate by both, matrices have bounds, and squares of patches are averaged, normalised and projected.

use super::config::{AxialTurns, PatchColumns, PatchGrid, VisionActivation, VisionConfig};
use super::family::{ClipKeys, HfSpelling, HfVision, ImageMarks, RowsAt, VisionFamily};
use super::finder::BlockForm;
use super::names::{HfName, RoleName, VisionName, VisionRole};
use super::{AverageProjector, Finder, Projector, VisionModel};
use crate::Error;

/// Names in Hugging Face files (module names of `modeling_gemma4.py`).
const NAMES: &[RoleName] = {
    use HfName::{Projector, VisionEncoder, VisionParameter};
    use VisionRole::*;
    &[
        RoleName(Patches, VisionEncoder("patch_embedder.input_proj")),
        RoleName(
            Positions,
            VisionParameter("patch_embedder.position_embedding_table"),
        ),
        RoleName(Norm1, VisionEncoder("encoder.layers.{}.input_layernorm")),
        RoleName(
            AttnQ,
            VisionEncoder("encoder.layers.{}.self_attn.q_proj.linear"),
        ),
        RoleName(
            AttnK,
            VisionEncoder("encoder.layers.{}.self_attn.k_proj.linear"),
        ),
        RoleName(
            AttnV,
            VisionEncoder("encoder.layers.{}.self_attn.v_proj.linear"),
        ),
        RoleName(
            AttnOutput,
            VisionEncoder("encoder.layers.{}.self_attn.o_proj.linear"),
        ),
        RoleName(QNorm, VisionEncoder("encoder.layers.{}.self_attn.q_norm")),
        RoleName(KNorm, VisionEncoder("encoder.layers.{}.self_attn.k_norm")),
        RoleName(
            PostAttentionNorm,
            VisionEncoder("encoder.layers.{}.post_attention_layernorm"),
        ),
        RoleName(
            Norm2,
            VisionEncoder("encoder.layers.{}.pre_feedforward_layernorm"),
        ),
        RoleName(
            FfnGate,
            VisionEncoder("encoder.layers.{}.mlp.gate_proj.linear"),
        ),
        RoleName(FfnUp, VisionEncoder("encoder.layers.{}.mlp.up_proj.linear")),
        RoleName(
            FfnDown,
            VisionEncoder("encoder.layers.{}.mlp.down_proj.linear"),
        ),
        RoleName(
            PostFfnNorm,
            VisionEncoder("encoder.layers.{}.post_feedforward_layernorm"),
        ),
        RoleName(StandardBias, VisionParameter("std_bias")),
        RoleName(StandardScale, VisionParameter("std_scale")),
        RoleName(AverageProjection, Projector("embedding_projection")),
    ]
};

pub(super) static FAMILY: VisionFamily = VisionFamily {
    name: "gemma4",
    text_families: &["gemma4"],
    projector: "gemma4v",
    hf_model_types: &["gemma4"],
    hf_vision_types: &["gemma4_vision"],
    hf_prefixes: &[HfSpelling {
        encoder: "model.vision_tower.",
        projector: "model.embed_vision.",
    }],
    names: &[NAMES],
    marks: ImageMarks {
        place: "<|image|>",
        alone: "<|image|>",
        rows: RowsAt::Place {
            begin: "<|image>",
            end: "<image|>",
        },
        around: "",
        placeholder: "<|image|>",
        placeholder_id: 258_880,
    },
    hf,
    gguf,
    build,
};

const FORM: BlockForm = BlockForm {
    biases: false,
    gated: true,
    inner_norms: true,
    ..BlockForm::RMS_NORMS
};

/// Default rows of an image (transformers, `image_processing_gemma4.py`).
const USUAL_TOKENS: usize = 280;

/// Default positions by column, and by row (transformers, `configuration_gemma4.py`).
const USUAL_POSITIONS: usize = 10_240;

/// The base of rotary positions (transformers, `configuration_gemma4.py`; llama.cpp, `clip.cpp`).
const ROPE_THETA: f32 = 100.0;

/// Images of the usual number of rows, or of fewer, so that even the longest image has positions.
fn grid(merge: usize, rope_theta: f32, (patch_size, axis_positions): (usize, usize)) -> PatchGrid {
    let grid = PatchGrid {
        turns: AxialTurns::HalvesByColumnsAndRows,
        ..PatchGrid::of_transformers(merge, rope_theta)
    };
    let n_tokens = axis_positions.checked_div(merge).unwrap_or(0);
    grid.filled(n_tokens.min(USUAL_TOKENS), patch_size)
}

fn hf(keys: &HfVision<'_>) -> Result<VisionConfig, Error> {
    let known = [("gelu_pytorch_tanh", VisionActivation::GeluTanh)];
    let (d_model, n_heads) = (
        keys.or("hidden_size", 768)?,
        keys.or("num_attention_heads", 12)?,
    );
    keys.check_heads(d_model, n_heads)?;
    let patch_size = keys.or("patch_size", 16)?;
    let theta = keys.rope_theta(ROPE_THETA)?;
    let axis_positions = keys.or("position_embedding_size", USUAL_POSITIONS)?;
    let merge = keys.or("pooling_kernel_size", 3)?;
    let grid = grid(merge, theta, (patch_size, axis_positions));
    Ok(VisionConfig {
        n_layers: keys.or("num_hidden_layers", 16)?,
        d_model,
        d_ff: keys.or("intermediate_size", 3072)?,
        n_heads,
        norm_eps: keys.encoder.f32("rms_norm_eps")?.unwrap_or(1e-6),
        d_text: keys.text.usize("hidden_size")?.unwrap_or(2304),
        activation: keys.activation("hidden_activation", &known)?,
        patches: PatchColumns::ChannelsLast,
        axis_positions,
        bounded: keys.encoder.bool("use_clipped_linears")?.unwrap_or(false),
        ..VisionConfig::on_grid(FAMILY.name, grid, patch_size)
    })
}

fn gguf(keys: &ClipKeys<'_>) -> Result<VisionConfig, Error> {
    let patch_size = keys.need("patch_size")?;
    let merge = keys.size("projector.scale_factor")?.unwrap_or(3);
    // No key gives the number of positions in the tables. A tensor that is not two tables is refused by its shape.
    let axis_positions = match keys.shape("v.position_embd.weight") {
        Some([2, n, _]) => *n,
        _ => USUAL_POSITIONS,
    };
    let grid = grid(merge, ROPE_THETA, (patch_size, axis_positions));
    Ok(VisionConfig {
        n_layers: keys.need("block_count")?,
        d_model: keys.need("embedding_length")?,
        d_ff: keys.need("feed_forward_length")?,
        n_heads: keys.need("attention.head_count")?,
        norm_eps: keys.norm_eps()?,
        d_text: keys.need("projection_dim")?,
        patches: PatchColumns::ChannelsLast,
        axis_positions,
        bounded: true,
        ..VisionConfig::on_grid(FAMILY.name, grid, patch_size)
    })
}

fn build(finder: &Finder<'_>) -> Result<VisionModel, Error> {
    let standard = match finder.has(VisionRole::StandardBias) {
        true => Some([
            finder.weight(VisionName::weight(None, VisionRole::StandardBias))?,
            finder.weight(VisionName::weight(None, VisionRole::StandardScale))?,
        ]),
        false => None,
    };
    let projector = AverageProjector {
        standard,
        projection: finder.without_bias(None, VisionRole::AverageProjection)?,
    };
    Ok(VisionModel {
        patches: finder.without_bias(None, VisionRole::Patches)?,
        second_frame: None,
        positions: Some(finder.weight(VisionName::weight(None, VisionRole::Positions))?),
        pre_norm: None,
        layers: finder.layers(FORM)?,
        norm: None,
        projector: Projector::Averaged(Box::new(projector)),
        deepstack: Vec::new(),
        config: finder.config.clone(),
    })
}
