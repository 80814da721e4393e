//! What each weight of a tower is for, and its names.

use super::VisionConfig;
use crate::catalog::Catalog;
use crate::names::ParameterKind;

/// The purpose of a weight of a tower or projector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VisionRole {
    /// `[d_model, 3, patch, patch]`: the patch convolution.
    Patches,
    /// `[n_patches, d_model]`: the position table.
    Positions,
    /// `[d_model]`: layer norm before attention.
    Norm1,
    /// `[d_model, d_model]`: query projection.
    AttnQ,
    /// `[d_model, d_model]`: key projection.
    AttnK,
    /// `[d_model, d_model]`: value projection.
    AttnV,
    /// `[d_model, d_model]`: projection of the attention's output.
    AttnOutput,
    /// `[d_model]`: layer norm before the feed-forward.
    Norm2,
    /// `[d_ff, d_model]`: first matrix of the feed-forward.
    FfnUp,
    /// `[d_model, d_ff]`: second matrix of the feed-forward.
    FfnDown,
    /// `[d_model]`: layer norm after the blocks.
    PostNorm,
    /// `[d_model]`: RMSNorm of the pooled rows.
    PooledNorm,
    /// `[d_model, d_text]`: projection to the text model's width.
    Projection,
}

/// Names in GGUF files (llama.cpp's `tensor_mapping.py`), and in Hugging Face files (module names of
/// `modeling_siglip.py` and `modeling_gemma3.py`), in the order of the enum.
const TABLE: [(&str, &str); 13] = [
    ("v.patch_embd", "embeddings.patch_embedding"),
    ("v.position_embd", "embeddings.position_embedding"),
    ("ln1", "layer_norm1"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_out", "self_attn.out_proj"),
    ("ln2", "layer_norm2"),
    ("ffn_up", "mlp.fc1"),
    ("ffn_down", "mlp.fc2"),
    ("v.post_ln", "post_layernorm"),
    ("mm.soft_emb_norm", "mm_soft_emb_norm"),
    ("mm.input_projection", "mm_input_projection_weight"),
];

/// Where Hugging Face files put tower and projector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HfSpelling {
    /// The hub's files: `vision_tower.vision_model.…`, `multi_modal_projector.…`.
    Hub,
    /// transformers 4.52 and later: `model.vision_tower.vision_model.…`.
    Nested,
    /// transformers 5: `vision_tower.…`, without `vision_model`.
    Flat,
}

impl HfSpelling {
    /// All of them, the longer prefix of two that share their beginning first.
    pub const ALL: [HfSpelling; 3] = [HfSpelling::Hub, HfSpelling::Nested, HfSpelling::Flat];

    /// What stands before the tower's modules.
    pub fn tower(self) -> &'static str {
        match self {
            HfSpelling::Hub => "vision_tower.vision_model.",
            HfSpelling::Nested => "model.vision_tower.vision_model.",
            HfSpelling::Flat => "vision_tower.",
        }
    }

    /// What stands before the projector's.
    pub fn projector(self) -> &'static str {
        match self {
            HfSpelling::Hub | HfSpelling::Flat => "multi_modal_projector.",
            HfSpelling::Nested => "model.multi_modal_projector.",
        }
    }

    /// The spelling of a file, by the name of its position table. Without one the hub's makes the error
    /// name the usual tensor.
    pub(super) fn of(catalog: &Catalog<'_>) -> HfSpelling {
        let name = VisionName::weight(None, VisionRole::Positions);
        let found = HfSpelling::ALL.into_iter();
        let mut found = found.filter(|spelling| catalog.has(&name.hf(*spelling)));
        found.next().unwrap_or(HfSpelling::Hub)
    }
}

/// One weight, whatever the file calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VisionName {
    pub(crate) layer: Option<usize>,
    pub(crate) role: VisionRole,
    pub(crate) part: ParameterKind,
}

impl VisionName {
    pub(crate) fn weight(layer: Option<usize>, role: VisionRole) -> VisionName {
        VisionName {
            layer,
            role,
            part: ParameterKind::Weight,
        }
    }

    pub(crate) fn bias(self) -> VisionName {
        VisionName {
            part: ParameterKind::Bias,
            ..self
        }
    }

    /// What the elements of a vector are near, in a model that was just made.
    pub(crate) fn usual(self, is_gguf: bool) -> f32 {
        use VisionRole::*;
        match (self.role, self.part) {
            (Norm1 | Norm2 | PostNorm, ParameterKind::Weight) => 1.0,
            // Hugging Face files hold it less one.
            (PooledNorm, _) if is_gguf => 1.0,
            _ => 0.0,
        }
    }

    /// The other matrix of the feed-forward; others are themselves. Biases were never swapped in shape
    /// alone, so they go along.
    pub(super) fn swapped(self) -> VisionName {
        let role = match self.role {
            VisionRole::FfnUp => VisionRole::FfnDown,
            VisionRole::FfnDown => VisionRole::FfnUp,
            other => other,
        };
        VisionName { role, ..self }
    }

    fn suffix(self) -> &'static str {
        match self.part {
            ParameterKind::Weight => "weight",
            ParameterKind::Scale => "scale",
            ParameterKind::Bias => "bias",
        }
    }

    pub(crate) fn gguf(self) -> String {
        let (name, suffix) = (TABLE[self.role as usize].0, self.suffix());
        match self.layer {
            Some(layer) => format!("v.blk.{layer}.{name}.{suffix}"),
            None => format!("{name}.{suffix}"),
        }
    }

    pub(crate) fn hf(self, spelling: HfSpelling) -> String {
        let (name, suffix) = (TABLE[self.role as usize].1, self.suffix());
        let tower = spelling.tower();
        match (self.role, self.layer) {
            // A bare parameter, not a layer's.
            (VisionRole::Projection, _) => format!("{}{name}", spelling.projector()),
            (VisionRole::PooledNorm, _) => format!("{}{name}.{suffix}", spelling.projector()),
            (_, Some(layer)) => format!("{tower}encoder.layers.{layer}.{name}.{suffix}"),
            (_, None) => format!("{tower}{name}.{suffix}"),
        }
    }
}

impl VisionConfig {
    /// The shape of a weight, slowest dimension first.
    pub(crate) fn shape_of(&self, name: VisionName) -> Vec<usize> {
        use VisionRole::*;
        let (d, ff) = (self.d_model, self.d_ff);
        let patch = self.patch_size;
        match (name.role, name.part) {
            (FfnUp, ParameterKind::Bias) => vec![ff],
            (_, ParameterKind::Bias) | (Norm1 | Norm2 | PostNorm | PooledNorm, _) => vec![d],
            (Patches, _) => vec![d, VisionConfig::CHANNELS, patch, patch],
            (Positions, _) => vec![self.n_patches(), d],
            (AttnQ | AttnK | AttnV | AttnOutput, _) => vec![d, d],
            (FfnUp, _) => vec![ff, d],
            (FfnDown, _) => vec![d, ff],
            (Projection, _) => vec![d, self.d_text],
        }
    }

    /// All weights, in the order of files.
    pub(crate) fn names(&self) -> Vec<VisionName> {
        use VisionRole::*;
        let mut names = Vec::new();
        let with_bias = |layer, role| {
            let weight = VisionName::weight(layer, role);
            [weight, weight.bias()]
        };
        names.extend(with_bias(None, Patches));
        names.push(VisionName::weight(None, Positions));
        for layer in 0..self.n_layers {
            let roles = [
                Norm1, AttnQ, AttnK, AttnV, AttnOutput, Norm2, FfnUp, FfnDown,
            ];
            names.extend(
                roles
                    .into_iter()
                    .flat_map(|role| with_bias(Some(layer), role)),
            );
        }
        names.extend(with_bias(None, PostNorm));
        names.push(VisionName::weight(None, PooledNorm));
        names.push(VisionName::weight(None, Projection));
        names
    }
}
