//! Which weights a configuration calls for, and their shapes: what its family's function asks for.

use crate::arch::WeightConvention;
use crate::builder;
use crate::config::{ModelConfig, RopeScaling};
use crate::names::{ParameterKind, TensorName, WeightRole};

impl ModelConfig {
    /// The shape of a weight, slowest dimension first. A bias is as long as its matrix has rows, a family's own or not.
    ///
    /// # Panics
    /// If the family has no weight of that role.
    pub fn shape_of(&self, name: TensorName) -> Vec<usize> {
        if name.role.is_rope_table() {
            return vec![self.n_rot / 2];
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
        }
    }

    /// Every weight of the model in the order llama.cpp's converter writes them: global ones first,
    /// then block by block.
    pub fn tensors(&self, layout: WeightConvention) -> Vec<TensorName> {
        let weights = builder::weights(self, layout, 0..self.n_layers);
        let names = weights.into_iter().map(|(name, _)| name);
        let (of_blocks, mut all): (Vec<_>, Vec<_>) = names.partition(|name| name.layer.is_some());
        if layout == WeightConvention::Gguf {
            let at = 1.min(all.len());
            let tables = self.rope_tables().into_iter().map(|(role, _)| role);
            all.splice(at..at, tables.map(TensorName::global));
        }
        all.extend(of_blocks);
        all
    }

    /// The tensors of RoPE divisors that GGUF files have, with their contents.
    pub(crate) fn rope_tables(&self) -> Vec<(WeightRole, Vec<f32>)> {
        if let RopeScaling::Long(long) = &self.rope.scaling {
            return vec![
                (WeightRole::RopeFactorsLong, long.long.clone()),
                (WeightRole::RopeFactorsShort, long.short.clone()),
            ];
        }
        let factors = self.rope.gguf_factors(self.n_rot);
        let table = |factors| (WeightRole::RopeFactors, factors);
        factors.map(table).into_iter().collect()
    }
}
