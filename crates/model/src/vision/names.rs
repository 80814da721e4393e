//! What each weight of a tower is for, and its names.

use millrace_format::Source;

use super::VisionConfig;
use super::family::{HfSpelling, VisionFamily};
use crate::catalog::Catalog;
use crate::names::ParameterKind;

/// The purpose of a weight of a tower or projector.
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
    /// `[d_ff, d_model]`: what goes through the activation of a gated feed-forward.
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
}

/// A role and its names: in GGUF files, and in Hugging Face files. `{}` is for a block's number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoleNames(
    pub(super) VisionRole,
    pub(super) &'static str,
    pub(super) HfName,
);

/// A name in Hugging Face files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HfName {
    /// A module of the tower.
    Tower(&'static str),
    /// A module of the projector.
    Projector(&'static str),
    /// A bare parameter of the projector, not a module's.
    Parameter(&'static str),
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

    fn names(self, family: &VisionFamily) -> &RoleNames {
        let found = family.names.iter().find(|names| names.0 == self.role);
        found.expect("a family asks for the roles that it names")
    }

    /// The name with its block's number.
    fn numbered(self, name: &str) -> String {
        match self.layer {
            Some(layer) => name.replacen("{}", &layer.to_string(), 1),
            None => name.to_owned(),
        }
    }

    pub(crate) fn gguf(self, family: &VisionFamily) -> String {
        let name = self.numbered(self.names(family).1);
        match self.role {
            // Its name is whole.
            VisionRole::SecondFrame => name,
            _ => format!("{name}.{}", self.suffix()),
        }
    }

    pub(crate) fn hf(self, family: &VisionFamily, spelling: HfSpelling) -> String {
        let suffix = self.suffix();
        match self.names(family).2 {
            HfName::Tower(name) => {
                format!("{}{}.{suffix}", spelling.tower, self.numbered(name))
            }
            HfName::Projector(name) => format!("{}{name}.{suffix}", spelling.projector),
            HfName::Parameter(name) => format!("{}{name}", spelling.projector),
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
        match (name.role, name.part) {
            (FfnUp | FfnGate, ParameterKind::Bias) => vec![ff],
            (AttnQkv, ParameterKind::Bias) => vec![3 * d],
            (MergerUp | DeepstackUp | DeepstackNorm, ParameterKind::Bias) | (DeepstackNorm, _) => {
                vec![merged]
            }
            (MergerDown | DeepstackDown, ParameterKind::Bias) => vec![self.d_text],
            (_, ParameterKind::Bias) | (Norm1 | Norm2 | PostNorm | PooledNorm | MergerNorm, _) => {
                vec![d]
            }
            // A folder has both frames in one tensor.
            (Patches, _) if self.grid.is_some() && source == Source::HuggingFace => {
                vec![d, channels, 2, patch, patch]
            }
            (Patches | SecondFrame, _) => vec![d, channels, patch, patch],
            (Positions, _) => {
                let side = self.patches_per_side();
                vec![side * side, d]
            }
            (AttnQkv, _) => vec![3 * d, d],
            (AttnQ | AttnK | AttnV | AttnOutput, _) => vec![d, d],
            (FfnUp | FfnGate, _) => vec![ff, d],
            (FfnDown, _) => vec![d, ff],
            (Projection, _) => vec![d, self.d_text],
            (MergerUp | DeepstackUp, _) => vec![merged, merged],
            (MergerDown | DeepstackDown, _) => vec![self.d_text, merged],
        }
    }

    /// All weights of a tower of Gemma 3, in the order of files.
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
