//! The purpose of each weight of a vision encoder, and its names.

use millrace_format::Source;

use super::config::{PatchColumns, VisionConfig};
use super::family::{HfSpelling, VisionFamily};
use crate::catalog::Catalog;
use crate::names::ParameterKind;

/// The purpose of a weight of a vision encoder or projector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VisionRole {
    /// `[d_model, 3, patch, patch]`: the patch convolution.
    Patches,
    /// `[d_model, 3, patch, patch]`: that of the second of two frames.
    SecondFrame,
    /// `[n_patches, d_model]`: the position table.
    Positions,
    /// `[d_model]`: layer norm before attention.
    Norm1,
    /// `[3 · d_model, d_model]`: query, key and value projections one after the other.
    AttnQkv,
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
    /// `[d_ff, d_model]`: projection before the activation of a gated feed-forward.
    FfnGate,
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
    /// `[d_model]`: norm before patches are merged.
    MergerNorm,
    /// `[merge² · d_model, merge² · d_model]`: first matrix over merged patches.
    MergerUp,
    /// `[d_text, merge² · d_model]`: second matrix over merged patches.
    MergerDown,
    /// `[merge² · d_model]`: layer norm of merged patches of a block.
    DeepstackNorm,
    /// As [`MergerUp`](VisionRole::MergerUp), of a block's patches.
    DeepstackUp,
    /// As [`MergerDown`](VisionRole::MergerDown), of a block's patches.
    DeepstackDown,
    /// `[d_model]`: RMS norm before the blocks.
    PreNorm,
    /// `[d_model]`: RMS norm of attention's output.
    PostAttentionNorm,
    /// `[d_model]`: RMS norm of the feed-forward's output.
    PostFfnNorm,
    /// `[head_dim]`: RMS norm of each head of queries.
    QNorm,
    /// `[head_dim]`: RMS norm of each head of keys.
    KNorm,
    /// `[d_model]`: subtracted from averaged patches.
    StandardBias,
    /// `[d_model]`: factor on the difference.
    StandardScale,
    /// `[d_text, d_model]`: projection of averaged patches.
    AverageProjection,
    /// `[d_model]`: RMS norm before the patch merger.
    PatchMergerNorm,
    /// `[d_model, d_model · merge²]`: squares of patches to one.
    PatchMerger,
    /// `[d_text, d_model]`: first matrix of the adapter.
    AdapterUp,
    /// `[d_text, d_text]`: second matrix of the adapter.
    AdapterDown,
}

impl VisionRole {
    /// The name in GGUF files (llama.cpp's `tensor_mapping.py`), and whether `.weight` or another part's name follows. `{}` is
    /// replaced by a block's number.
    fn gguf_name(self) -> (&'static str, bool) {
        let name = match self {
            VisionRole::Patches => "v.patch_embd",
            VisionRole::SecondFrame => return ("v.patch_embd.weight.1", false),
            VisionRole::Positions => "v.position_embd",
            VisionRole::Norm1 => "v.blk.{}.ln1",
            VisionRole::AttnQkv => "v.blk.{}.attn_qkv",
            VisionRole::AttnQ => "v.blk.{}.attn_q",
            VisionRole::AttnK => "v.blk.{}.attn_k",
            VisionRole::AttnV => "v.blk.{}.attn_v",
            VisionRole::AttnOutput => "v.blk.{}.attn_out",
            VisionRole::Norm2 => "v.blk.{}.ln2",
            VisionRole::FfnGate => "v.blk.{}.ffn_gate",
            VisionRole::FfnUp => "v.blk.{}.ffn_up",
            VisionRole::FfnDown => "v.blk.{}.ffn_down",
            VisionRole::PostNorm | VisionRole::MergerNorm => "v.post_ln",
            VisionRole::PooledNorm => "mm.soft_emb_norm",
            VisionRole::Projection | VisionRole::AverageProjection => "mm.input_projection",
            VisionRole::MergerUp => "mm.0",
            VisionRole::MergerDown | VisionRole::AdapterDown => "mm.2",
            VisionRole::DeepstackNorm => "v.deepstack.{}.norm",
            VisionRole::DeepstackUp => "v.deepstack.{}.fc1",
            VisionRole::DeepstackDown => "v.deepstack.{}.fc2",
            VisionRole::PreNorm => "v.pre_ln",
            VisionRole::PostAttentionNorm => "v.blk.{}.attn_post_norm",
            VisionRole::PostFfnNorm => "v.blk.{}.ffn_post_norm",
            VisionRole::QNorm => "v.blk.{}.attn_q_norm",
            VisionRole::KNorm => "v.blk.{}.attn_k_norm",
            VisionRole::StandardBias => return ("v.std_bias", false),
            VisionRole::StandardScale => return ("v.std_scale", false),
            VisionRole::PatchMergerNorm => "mm.input_norm",
            VisionRole::PatchMerger => "mm.patch_merger",
            VisionRole::AdapterUp => "mm.1",
        };
        (name, true)
    }
}

/// A role and its name in Hugging Face files. `{}` is replaced by a block's number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoleName(pub(super) VisionRole, pub(super) HfName);

/// A name in Hugging Face files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HfName {
    /// A module of the vision encoder.
    VisionEncoder(&'static str),
    /// A bare parameter of the vision encoder, not a module's.
    VisionParameter(&'static str),
    /// A module of the projector.
    Projector(&'static str),
    /// A bare parameter of the projector.
    ProjectorParameter(&'static str),
}

impl HfSpelling {
    /// The spelling of a file, by the name of its patch convolution. Without one the first makes the error
    /// name the usual tensor.
    pub(super) fn of(family: &VisionFamily, catalog: &Catalog<'_>) -> HfSpelling {
        let name = VisionName::weight(None, VisionRole::Patches);
        let all = family.hf_prefixes.iter().copied();
        let mut found = all.filter(|spelling| catalog.has(&name.hf(family, *spelling)));
        found.next().unwrap_or(family.hf_prefixes[0])
    }
}

/// One weight, independent of its name in files.
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

    /// The number near which the elements of a vector are, in a model that was just made.
    pub(crate) fn usual(self, is_gguf: bool) -> f32 {
        use VisionRole::*;
        match (self.role, self.part) {
            (Norm1 | Norm2 | PostNorm, ParameterKind::Weight) => 1.0,
            // Hugging Face files hold it minus one.
            (PooledNorm, _) if is_gguf => 1.0,
            _ => 0.0,
        }
    }

    /// The other matrix of the feed-forward; other names stay themselves. Biases were never swapped in
    /// shape alone, so they are swapped along.
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

    /// The name with its block's number.
    fn numbered(self, name: &str) -> String {
        match self.layer {
            Some(layer) => name.replacen("{}", &layer.to_string(), 1),
            None => name.to_owned(),
        }
    }

    pub(crate) fn gguf(self) -> String {
        let (name, has_parts) = self.role.gguf_name();
        let name = self.numbered(name);
        match has_parts {
            true => format!("{name}.{}", self.suffix()),
            false => name,
        }
    }

    pub(crate) fn hf(self, family: &VisionFamily, spelling: HfSpelling) -> String {
        let (found, suffix) = (family.hf_name(self.role), self.suffix());
        match found.expect("a family asks for the roles that it names") {
            HfName::VisionEncoder(name) => {
                format!("{}{}.{suffix}", spelling.encoder, self.numbered(name))
            }
            HfName::VisionParameter(name) => format!("{}{name}", spelling.encoder),
            HfName::Projector(name) => format!("{}{name}.{suffix}", spelling.projector),
            HfName::ProjectorParameter(name) => format!("{}{name}", spelling.projector),
        }
    }
}

impl VisionConfig {
    /// The shape of a weight in such a file, slowest dimension first.
    pub(crate) fn shape_of(&self, name: VisionName, source: Source) -> Vec<usize> {
        use VisionRole::*;
        let (d, ff) = (self.d_model, self.d_ff);
        let (channels, patch) = (VisionConfig::CHANNELS, self.patch_size);
        let merge = self.grid.map_or(1, |grid| grid.merge);
        let merged = d * merge * merge;
        let is_bias = name.part == ParameterKind::Bias;
        match name.role {
            FfnUp | FfnGate if is_bias => vec![ff],
            AttnQkv if is_bias => vec![3 * d],
            MergerUp | DeepstackUp if is_bias => vec![merged],
            DeepstackNorm => vec![merged],
            MergerDown | DeepstackDown | AdapterUp | AdapterDown if is_bias => vec![self.d_text],
            QNorm | KNorm => vec![self.head_dim()],
            Norm1 | Norm2 | PostNorm | PooledNorm | MergerNorm | PreNorm | PostAttentionNorm
            | PostFfnNorm | StandardBias | StandardScale | PatchMergerNorm => vec![d],
            _ if is_bias => vec![d],
            Patches | SecondFrame => match (self.patches, source) {
                (PatchColumns::TwoFrames, Source::HuggingFace) => {
                    vec![d, channels, 2, patch, patch]
                }
                (PatchColumns::ChannelsLast, Source::HuggingFace) => vec![d, self.patch_elems()],
                _ => vec![d, channels, patch, patch],
            },
            Positions if self.axis_positions > 0 => vec![2, self.axis_positions, d],
            Positions => {
                let side = self.patches_per_side();
                vec![side * side, d]
            }
            AttnQkv => vec![3 * d, d],
            AttnQ | AttnK | AttnV | AttnOutput => vec![d, d],
            FfnUp | FfnGate => vec![ff, d],
            FfnDown => vec![d, ff],
            Projection => vec![d, self.d_text],
            AverageProjection | AdapterUp => vec![self.d_text, d],
            PatchMerger => vec![d, merged],
            AdapterDown => vec![self.d_text, self.d_text],
            MergerUp | DeepstackUp => vec![merged, merged],
            MergerDown | DeepstackDown => vec![self.d_text, merged],
        }
    }

    /// All weights of a vision encoder of Gemma 3, in the order of files.
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
