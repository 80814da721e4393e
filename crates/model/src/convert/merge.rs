//! Tensors beside the matrices of the source that a conversion merges into them. They are LoRA adapters,
//! `W + scale · B · A`, and factors of GGUF files (`.scale`) that the result has no tensors for.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use millrace_format::Checkpoint;
use millrace_graph::WeightSource;

use crate::adapter::{Adapter, LowRank};
use crate::names::{ParameterKind, TensorName};
use crate::{Error, Model};

/// The term that one adapter adds to rows of a tensor of the source.
#[derive(Debug)]
pub(super) struct Addend<'a> {
    /// The tensor's row that the product's first row is added to.
    first_row: usize,
    product: &'a LowRank,
    /// Factor on `B · A`.
    scale: f32,
}

impl Addend<'_> {
    /// Adds the term to `numbers`, which are these rows of the tensor, `k` columns each.
    pub(super) fn add(&self, rows: Range<usize>, k: usize, numbers: &mut [f32]) {
        let LowRank { rank, a, b, .. } = self.product;
        let mut sums = vec![0.0; k];
        for (row, out) in rows.zip(numbers.chunks_exact_mut(k)) {
            let own = row.checked_sub(self.first_row);
            let Some(b) = own.and_then(|row| b.chunks_exact(*rank).nth(row)) else {
                continue;
            };
            sums.fill(0.0);
            for (factor, a) in b.iter().zip(a.chunks_exact(k)) {
                for (sum, a) in sums.iter_mut().zip(a) {
                    *sum += factor * a;
                }
            }
            for (number, sum) in out.iter_mut().zip(&sums) {
                *number += self.scale * sum;
            }
        }
    }
}

/// All that is merged, by the name of the source's tensor.
#[derive(Debug, Default)]
pub(super) struct Merge<'a> {
    addends: HashMap<String, Vec<Addend<'a>>>,
    /// A factor on the whole of a tensor, or on each of its matrices.
    factors: HashMap<String, Vec<f32>>,
}

impl<'a> Merge<'a> {
    /// The merge of adapters that were opened for this model, each with a factor. Those with a factor of 0 add nothing.
    pub(super) fn new(model: &Model, adapters: &'a [(Adapter, f32)]) -> Result<Merge<'a>, Error> {
        let mut merge = Merge::default();
        for (adapter, factor) in adapters.iter().filter(|(_, factor)| *factor != 0.0) {
            let refuse = |problem: String| Error::Adapter {
                file: adapter.file.clone(),
                problem,
            };
            for product in &adapter.products {
                let fits = |weight: &&millrace_graph::Weight| {
                    product.a.len() == product.rank * weight.k
                        && product.b.len() == product.rank * weight.n
                };
                let weight = model.graph.weights.get(product.weight.0).filter(fits);
                let weight = weight.ok_or_else(|| {
                    refuse("it was opened for another model than the one to convert".to_owned())
                })?;
                let first_row = match weight.source {
                    WeightSource::Whole => 0,
                    WeightSource::Rows { first, .. } => first,
                    WeightSource::Experts(_) | WeightSource::Derived(_) => {
                        return Err(refuse(format!(
                            "it changes `{}`, whose rows no tensor of the model's files holds in this order: \
                             it cannot be merged into them; convert the model to GGUF first",
                            weight.name
                        )));
                    }
                };
                merge
                    .addends
                    .entry(weight.name.clone())
                    .or_default()
                    .push(Addend {
                        first_row,
                        product,
                        scale: product.scale * factor,
                    });
            }
        }
        Ok(merge)
    }

    /// The terms that are added to a tensor of the source.
    pub(super) fn of(&self, tensor: &str) -> &[Addend<'a>] {
        self.addends.get(tensor).map_or(&[], Vec::as_slice)
    }

    /// Takes the factors beside the matrices of a GGUF file, except those that the result has tensors for.
    ///
    /// # Errors
    /// [`Error::Format`] for one that is not numeric, [`Error::BadValue`] for one that cannot be decoded.
    pub(super) fn take_factors(
        &mut self,
        checkpoint: &Checkpoint,
        kept: &HashSet<TensorName>,
    ) -> Result<(), Error> {
        for info in checkpoint.tensors() {
            let name = TensorName::parse_gguf(&info.name);
            let is_factor = |name: &TensorName| name.part == ParameterKind::Scale;
            let Some(name) = name.filter(|name| is_factor(name) && !kept.contains(name)) else {
                continue;
            };
            let matrix = TensorName {
                part: ParameterKind::Weight,
                ..name
            };
            let tensor = checkpoint.require(&info.name)?;
            let mut numbers = vec![0.0; info.n_elems()];
            let decoded =
                millrace_quant::decode_blocks(tensor.dtype()?, tensor.bytes, &mut numbers);
            decoded.map_err(|error| Error::BadValue {
                file: checkpoint.name().into(),
                key: info.name.clone(),
                found: error.to_string(),
                expected: "factors of matrices, F32 or F16".into(),
            })?;
            self.factors.insert(matrix.gguf(), numbers);
        }
        Ok(())
    }

    /// The factor that the result folds into a matrix of a tensor, 1 where there is none.
    pub(super) fn factor(&self, checkpoint: &Checkpoint, tensor: &str, matrix: usize) -> f32 {
        let own = self.factors.get(tensor);
        let own = own.and_then(|own| own.get(matrix).or(own.first()));
        own.copied()
            .or_else(|| checkpoint.factor_of(tensor))
            .unwrap_or(1.0)
    }

    /// How many factors a tensor has: 0, 1, or as many as matrices.
    pub(super) fn n_factors(&self, checkpoint: &Checkpoint, tensor: &str) -> usize {
        match self.factors.get(tensor) {
            Some(own) => own.len(),
            None => usize::from(checkpoint.factor_of(tensor).is_some()),
        }
    }

    /// Whether a tensor of the source is a factor that the result folds into a matrix.
    pub(super) fn is_within(&self, tensor: &str) -> bool {
        let matrix = tensor.strip_suffix(".scale");
        matrix.is_some_and(|stem| self.factors.contains_key(&format!("{stem}.weight")))
    }
}
