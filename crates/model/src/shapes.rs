//! Which weights a configuration calls for, and their shapes: what its family's function asks for.

use crate::arch::WeightConvention;
use crate::builder;
use crate::config::ModelConfig;
use crate::names::{ParameterKind, TensorName, WeightRole};

impl ModelConfig {
    /// The shape of a weight, slowest dimension first. A bias is as long as its matrix has rows, a family's own or not.
    ///
    /// # Panics
    /// If the family has no weight of that role.
    pub fn shape_of(&self, name: TensorName) -> Vec<usize> {
        if name.role == WeightRole::RopeFactors {
            return vec![self.head_dim / 2];
        }
        let layers = name.layer.map_or(0..0, |layer| layer..layer + 1);
        let is_it = |known: &TensorName| known.layer == name.layer && known.role == name.role;
        let head = [self.vocab_size, self.d_model];
        let known = builder::weights(self, WeightConvention::Gguf, layers);
        let known = known.into_iter().find(|(known, _)| is_it(known));
        let shape = match known {
            Some((_, shape)) => shape,
            // A file may have both of them, tied or not.
            None if matches!(name.role, WeightRole::Output | WeightRole::TokenEmbedding) => {
                head.to_vec()
            }
            None => panic!("{} has no {name}", self.family),
        };
        match name.part {
            ParameterKind::Weight => shape,
            ParameterKind::Bias => vec![shape[0]],
            ParameterKind::Scale => vec![1],
        }
    }

    /// Every weight of the model in the order llama.cpp's converter writes them: global ones first,
    /// then block by block.
    pub fn tensors(&self, layout: WeightConvention) -> Vec<TensorName> {
        let weights = builder::weights(self, layout, 0..self.n_layers);
        let names = weights.into_iter().map(|(name, _)| name);
        let (of_blocks, mut all): (Vec<_>, Vec<_>) = names.partition(|name| name.layer.is_some());
        if layout == WeightConvention::Gguf && self.rope.gguf_factors(self.head_dim).is_some() {
            all.insert(
                1.min(all.len()),
                TensorName::global(WeightRole::RopeFactors),
            );
        }
        all.extend(of_blocks);
        all
    }
}
