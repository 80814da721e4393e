//! LoRA adapters that a conversion adds to the weights that they change: `W + scale · B · A`.

use std::collections::HashMap;
use std::ops::Range;

use millrace_graph::WeightSource;

use crate::adapter::{Adapter, LowRank};
use crate::{Error, Model};

/// What one adapter adds to rows of a tensor of the source.
#[derive(Debug)]
pub(super) struct Addend<'a> {
    /// The tensor's row that the product's first row is added to.
    first_row: usize,
    product: &'a LowRank,
    /// On `B · A`.
    scale: f32,
}

impl Addend<'_> {
    /// Adds to `numbers`, which are these rows of the tensor, `k` columns each.
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

/// What adapters add, by the name of the source's tensor.
#[derive(Debug, Default)]
pub(super) struct Merge<'a>(HashMap<String, Vec<Addend<'a>>>);

impl<'a> Merge<'a> {
    /// Of adapters that were opened for this model, each with a factor. Those with a factor of 0 add nothing.
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
                    .0
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

    /// What is added to a tensor of the source.
    pub(super) fn of(&self, tensor: &str) -> &[Addend<'a>] {
        self.0.get(tensor).map_or(&[], Vec::as_slice)
    }
}
