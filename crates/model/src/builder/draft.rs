//! The place of the draft layer in checkpoints, and the names of its weights.

use super::DraftPlace;
use super::locate::is_of_a_block;
use crate::arch::draft::DraftLayer;
use crate::arch::{Family, WeightConvention};
use crate::catalog::Catalog;
use crate::names::{TensorName, WeightRole};

/// Prefixes of the names of a layer that is stored separately, in plain folders and in those of wrappers.
const HF_PREFIXES: [&str; 2] = ["mtp.", "model.mtp."];

impl DraftPlace {
    /// Where a checkpoint has the layer behind `n_layers` blocks; `None` if it has no tensor of it.
    pub(crate) fn find(
        catalog: &Catalog<'_>,
        (family, layer): (&Family, DraftLayer),
        n_layers: usize,
    ) -> Option<DraftPlace> {
        let behind = DraftPlace {
            layer,
            block: n_layers,
            hf_prefix: None,
        };
        let beside = |prefix| DraftPlace {
            layer,
            block: 0,
            hf_prefix: Some(prefix),
        };
        let by_itself = HF_PREFIXES.into_iter().map(beside);
        let may_be = by_itself
            .filter(|_| catalog.layout() != WeightConvention::Gguf && !layer.hf_modules.is_empty());
        let mut places = may_be.chain([behind]);
        places.find(|place| {
            catalog
                .names()
                .any(|name| place.holds(catalog, name, family))
        })
    }

    /// Where files of that layout have the layer of a model of `n_layers` blocks.
    pub(crate) fn usual(
        (layer, layout): (DraftLayer, WeightConvention),
        n_layers: usize,
    ) -> DraftPlace {
        let stands_alone = layout != WeightConvention::Gguf && !layer.hf_modules.is_empty();
        DraftPlace {
            layer,
            block: if stands_alone { 0 } else { n_layers },
            hf_prefix: stands_alone.then_some(HF_PREFIXES[0]),
        }
    }

    /// The name of the layer's first tensor in files like this one.
    pub(crate) fn first_tensor(
        catalog: &Catalog<'_>,
        (family, layer): (&Family, DraftLayer),
        n_layers: usize,
    ) -> String {
        let place = DraftPlace::usual((layer, catalog.layout()), n_layers);
        let name = TensorName::block(place.block, WeightRole::DraftProj);
        let spelled = match catalog.layout() {
            WeightConvention::Gguf => None,
            WeightConvention::HuggingFace | WeightConvention::Q4nx => place
                .hf(name, family)
                .or_else(|| name.hf(catalog.hf_prefix(), family.hf_names())),
        };
        spelled.unwrap_or_else(|| name.gguf())
    }

    /// The Hugging Face name of a weight of a layer that is stored separately; `None` for one with the usual name.
    pub(crate) fn hf(&self, name: TensorName, family: &Family) -> Option<String> {
        let prefix = self.hf_prefix.filter(|_| name.layer.is_some())?;
        let mut modules = self.layer.hf_modules.iter();
        match modules.find(|(role, _)| *role == name.role) {
            Some((_, module)) => Some(format!("{prefix}{}", name.hf_module(module))),
            None => name.hf(prefix, family.hf_names()),
        }
    }

    /// Whether a tensor is one of the layer's.
    pub(crate) fn holds(&self, catalog: &Catalog<'_>, name: &str, family: &Family) -> bool {
        match self.hf_prefix {
            Some(prefix) => name.starts_with(prefix),
            None => is_of_a_block(catalog, name, (family, self.block..self.block + 1)),
        }
    }
}
