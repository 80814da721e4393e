//! Gemma 3: a SigLIP vision encoder over a square, whose patches are averaged, normalised and projected.

use super::config::{VisionActivation, VisionConfig};
use super::family::{ClipKeys, HfSpelling, HfVision, ImageMarks, RowsAt, VisionFamily};
use super::finder::BlockForm;
use super::names::{HfName, RoleName, VisionName, VisionRole};
use super::{Finder, PooledProjector, Projector, VisionModel};
use crate::Error;
use millrace_format::Source;

/// Names in Hugging Face files (module names of `modeling_siglip.py` and `modeling_gemma3.py`).
const NAMES: &[RoleName] = {
    use HfName::{Projector, ProjectorParameter, VisionEncoder};
    use VisionRole::*;
    &[
        RoleName(Patches, VisionEncoder("embeddings.patch_embedding")),
        RoleName(Positions, VisionEncoder("embeddings.position_embedding")),
        RoleName(Norm1, VisionEncoder("encoder.layers.{}.layer_norm1")),
        RoleName(AttnQ, VisionEncoder("encoder.layers.{}.self_attn.q_proj")),
        RoleName(AttnK, VisionEncoder("encoder.layers.{}.self_attn.k_proj")),
        RoleName(AttnV, VisionEncoder("encoder.layers.{}.self_attn.v_proj")),
        RoleName(
            AttnOutput,
            VisionEncoder("encoder.layers.{}.self_attn.out_proj"),
        ),
        RoleName(Norm2, VisionEncoder("encoder.layers.{}.layer_norm2")),
        RoleName(FfnUp, VisionEncoder("encoder.layers.{}.mlp.fc1")),
        RoleName(FfnDown, VisionEncoder("encoder.layers.{}.mlp.fc2")),
        RoleName(PostNorm, VisionEncoder("post_layernorm")),
        RoleName(PooledNorm, Projector("mm_soft_emb_norm")),
        RoleName(Projection, ProjectorParameter("mm_input_projection_weight")),
    ]
};

pub(super) static FAMILY: VisionFamily = VisionFamily {
    name: "gemma3",
    text_families: &["gemma3"],
    projector: "gemma3",
    hf_model_types: &["gemma3"],
    hf_vision_types: &["siglip_vision_model"],
    hf_prefixes: &PREFIXES,
    names: &[NAMES],
    marks: ImageMarks {
        place: "<start_of_image>",
        alone: "<start_of_image>",
        rows: RowsAt::Before("<end_of_image>"),
        around: "\n\n",
        placeholder: "<image_soft_token>",
        placeholder_id: 262_144,
    },
    hf,
    gguf,
    build,
};

/// The hub's files, which are written too.
pub(crate) const HUB: HfSpelling = HfSpelling {
    encoder: "vision_tower.vision_model.",
    projector: "multi_modal_projector.",
};

/// Names that transformers has given SigLIP vision encoders, the longer prefix of two that share their beginning first.
const PREFIXES: [HfSpelling; 3] = [
    HUB,
    // transformers 4.52 and later.
    HfSpelling {
        encoder: "model.vision_tower.vision_model.",
        projector: "model.multi_modal_projector.",
    },
    // transformers 5, without `vision_model`.
    HfSpelling {
        encoder: "vision_tower.",
        projector: "multi_modal_projector.",
    },
];

fn hf(keys: &HfVision<'_>) -> Result<VisionConfig, Error> {
    let activation = keys.activation(
        "hidden_act",
        &[("gelu_pytorch_tanh", VisionActivation::GeluTanh)],
    )?;
    keys.check_channels("num_channels")?;
    Ok(VisionConfig {
        n_layers: keys.or("num_hidden_layers", 12)?,
        d_model: keys.or("hidden_size", 768)?,
        d_ff: keys.or("intermediate_size", 3072)?,
        n_heads: keys.or("num_attention_heads", 12)?,
        image_size: keys.or("image_size", 224)?,
        patch_size: keys.or("patch_size", 16)?,
        norm_eps: keys.encoder.f32("layer_norm_eps")?.unwrap_or(1e-6),
        n_tokens: keys.config.usize("mm_tokens_per_image")?.unwrap_or(256),
        d_text: keys.text.usize("hidden_size")?.unwrap_or(2304),
        activation,
        ..VisionConfig::without_sizes(FAMILY.name)
    })
}

fn gguf(keys: &ClipKeys<'_>) -> Result<VisionConfig, Error> {
    if keys.metadata.get_bool("clip.use_gelu")? == Some(false) {
        return Err(keys.unsupported("`clip.use_gelu` = false", "true"));
    }
    let (image_size, patch_size) = (keys.need("image_size")?, keys.need("patch_size")?);
    let factor = keys.size("projector.scale_factor")?.unwrap_or(4);
    // Sizes that do not divide are refused with the rest.
    let side = image_size.checked_div(patch_size).unwrap_or(0);
    let side = side.checked_div(factor).unwrap_or(0);
    Ok(VisionConfig {
        n_layers: keys.need("block_count")?,
        d_model: keys.need("embedding_length")?,
        d_ff: keys.need("feed_forward_length")?,
        n_heads: keys.need("attention.head_count")?,
        image_size,
        patch_size,
        norm_eps: keys.norm_eps()?,
        n_tokens: side.saturating_mul(side),
        d_text: keys.need("projection_dim")?,
        ..VisionConfig::without_sizes(FAMILY.name)
    })
}

fn build(finder: &Finder<'_>) -> Result<VisionModel, Error> {
    let projector = PooledProjector {
        norm: finder.weight(VisionName::weight(None, VisionRole::PooledNorm))?,
        norm_offset: match finder.source() {
            Source::Gguf => 0.0,
            Source::HuggingFace => 1.0,
        },
        projection: finder.by_column(VisionName::weight(None, VisionRole::Projection))?,
    };
    Ok(VisionModel {
        patches: finder.linear(None, VisionRole::Patches)?,
        second_frame: None,
        pre_norm: None,
        positions: Some(finder.weight(VisionName::weight(None, VisionRole::Positions))?),
        layers: finder.layers(BlockForm::LAYER_NORMS)?,
        norm: Some(finder.norm(None, VisionRole::PostNorm)?),
        projector: Projector::Pooled(Box::new(projector)),
        deepstack: Vec::new(),
        config: finder.config.clone(),
    })
}
