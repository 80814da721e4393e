//! Which weights a configuration calls for, and their shapes: the requests of its family's function.

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
            let tables = self.rope_tables().into_iter();
            let mut own = tables.filter(|(role, _)| *role == name.role);
            let n_pairs = own.next().map_or(self.n_rot / 2, |(_, table)| table.len());
            return vec![n_pairs];
        }
        let layers = name.layer.map_or(0..0, |layer| layer..layer + 1);
        let layouts = [WeightConvention::Gguf, WeightConvention::HuggingFace];
        let known = layouts.map(|layout| builder::layout(self, layout, layers.clone()));
        let find = |name: TensorName| {
            let known = known.iter().flatten();
            let mut known = known.filter(|tensor| tensor.name == name);
            known.next().map(|tensor| tensor.shape.clone())
        };
        if let Some(shape) = find(name) {
            return shape;
        }
        if name.part == ParameterKind::Scale {
            return vec![1];
        }
        let is_bias = name.part == ParameterKind::Bias;
        let matrix = TensorName {
            part: ParameterKind::Weight,
            ..name
        };
        match (name.role, find(matrix)) {
            // A bias that the family has not asked for is as long as its matrix has rows.
            (_, Some(shape)) if is_bias => shape[..shape.len() - 1].to_vec(),
            // A file may have both of them, tied or not.
            (WeightRole::Output | WeightRole::TokenEmbedding, _) => {
                vec![self.vocab_size, self.d_model]
            }
            _ => panic!("{} has no {name}", self.family),
        }
    }

    /// Every weight of the model in the order llama.cpp's converter writes them: global ones first,
    /// then block by block.
    pub fn tensors(&self, layout: WeightConvention) -> Vec<TensorName> {
        let tensors = builder::layout(self, layout, 0..self.n_layers);
        let names = tensors.into_iter().map(|tensor| tensor.name);
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
        // One table is for all layers, as long as the heads of any need; those of layers with a window do not read it.
        let heads = self.layers.sliding_heads;
        let n_pairs = heads.map_or(0, |heads| heads.n_rot / 2);
        let table = |mut factors: Vec<f32>| {
            factors.resize(factors.len().max(n_pairs), 1.0);
            (WeightRole::RopeFactors, factors)
        };
        factors.map(table).into_iter().collect()
    }
}
