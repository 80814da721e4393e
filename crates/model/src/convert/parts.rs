//! Tensors of the result that are not one tensor of the source: the weights that they consist of, and the place of each.
//!
//! One layout has a tensor an expert and the other all experts in one. One has gates and up projections apart and the
//! other joined, with rows as columns or alternating. Both sides describe it as graphs read it ([`WeightSource`]), so
//! each form can be written from any other.

use std::collections::HashMap;
use std::ops::Range;

use millrace_graph::{Derivation, HeadRows, Weight, WeightSource};

use super::transform::Transform;
use crate::builder::{TensorLayout, TensorUse};
use crate::names::TensorName;

/// A weight of the source, and its place in each matrix of a tensor of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorPart {
    /// As the source's graph reads it. The elements of a vector are rows of one element.
    pub weight: Weight,
    /// The transformation of its numbers.
    pub transform: Transform,
    /// Their place.
    pub place: PartPlace,
}

/// Place of the rows of a part in a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartPlace {
    /// Row `i` is row `first + i · step`.
    Rows {
        /// Place of the first row.
        first: usize,
        /// Distance from one row to the next.
        step: usize,
    },
    /// Row `i` is row `source(i)`.
    OfHeads(HeadRows),
    /// Row `i` is column `first_column + i · step`, from row `first_row` on.
    Columns {
        /// Place of the first element of a row.
        first_row: usize,
        /// Place of the first row.
        first_column: usize,
        /// Distance in columns from one row to the next.
        step: usize,
    },
}

/// A tensor of the result, of parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembly {
    /// Which matrices of the parts it has.
    pub matrices: Range<usize>,
    /// Rows and columns of a matrix of the result.
    pub shape: [usize; 2],
    /// The parts of each matrix, by their first rows.
    pub parts: Vec<TensorPart>,
}

/// Whether the tensor is one of the source's, read and written whole.
pub(super) fn is_whole(tensor: &TensorLayout, sources: &HashMap<TensorName, Weight>) -> bool {
    // The number added to a norm's weight is a separate transformation.
    let is_whole = |source: &WeightSource| {
        matches!(
            source,
            WeightSource::Whole | WeightSource::Derived(Derivation::PlusOne)
        )
    };
    let whole = |used: &TensorUse| {
        let source = sources.get(&used.weight);
        is_whole(&used.source) && source.is_none_or(|weight| is_whole(&weight.source))
    };
    tensor.uses.len() == 1 && tensor.uses.iter().all(whole)
}

/// The parts of a tensor, or of the tensors per head or expert that it is split into; `None` where the source lacks one, which
/// its graph would have refused.
pub(super) fn assembly(
    (tensor, is_split): (&TensorLayout, bool),
    sources: &HashMap<TensorName, Weight>,
    transform: &dyn Fn(TensorName) -> Transform,
) -> Option<Assembly> {
    let n_elems: usize = tensor.shape.iter().product();
    let first = tensor.uses.first()?;
    let by_elements = by_elements(first);
    let by_vectors = !by_elements && (is_split || is_of_vectors(sources.get(&first.weight)?));
    let n_matrices = match (by_elements, &first.shape[..]) {
        (true, [n_experts, _]) => *n_experts,
        (false, [n_experts, _, _]) => *n_experts,
        (false, [n_heads, _]) if by_vectors => *n_heads,
        _ => 1,
    };
    let k = match by_elements {
        true => 1,
        false => *tensor.shape.last()?,
    };
    let part = |used: &TensorUse| {
        let weight = sources.get(&used.weight)?.clone();
        Some(TensorPart {
            weight: match by_elements {
                true => elementwise(weight, n_matrices),
                false if by_vectors && first.shape.len() == 2 => vectors(weight, n_matrices),
                false => weight,
            },
            transform: transform(used.weight),
            place: place(&used.source),
        })
    };
    let mut parts: Vec<TensorPart> = tensor.uses.iter().map(part).collect::<Option<_>>()?;
    parts.sort_by_key(|part| match part.place {
        PartPlace::Rows { first, .. } => first,
        PartPlace::OfHeads(rows) => rows.parts[0].0,
        PartPlace::Columns { first_row, .. } => first_row,
    });
    Some(Assembly {
        matrices: 0..n_matrices,
        shape: [n_elems.checked_div(n_matrices * k)?, k],
        parts,
    })
}

/// A tensor whose last rows repeat the first row of the source's matrix. It is a table by token whose graph takes the first
/// row for tokens beyond it.
pub(super) fn extended(
    tensor: &TensorLayout,
    sources: &HashMap<TensorName, Weight>,
    transform: &dyn Fn(TensorName) -> Transform,
) -> Option<Assembly> {
    let (&[n, k], used) = (&tensor.shape[..], tensor.uses.first()?) else {
        return None;
    };
    let is_short = |weight: &&Weight| weight.n < n && weight.k == k;
    let weight = sources.get(&used.weight).filter(is_short)?;
    let n_rows = weight.n;
    let first_row = Weight {
        n: 1,
        source: WeightSource::Rows { first: 0, n_rows },
        ..weight.clone()
    };
    let part = |(weight, first): (&Weight, usize)| TensorPart {
        weight: weight.clone(),
        transform: transform(used.weight),
        place: PartPlace::Rows { first, step: 1 },
    };
    let beyond = (n_rows..n).map(|row| (&first_row, row));
    Some(Assembly {
        matrices: 0..1,
        shape: [n, k],
        parts: std::iter::once((weight, 0))
            .chain(beyond)
            .map(part)
            .collect(),
    })
}

/// Whether the weight has a vector for each head, stored as separate tensors.
fn is_of_vectors(weight: &Weight) -> bool {
    matches!(weight.source, WeightSource::Experts(_)) && weight.n == 1
}

/// The same weight as one vector for each head.
fn vectors(weight: Weight, n_heads: usize) -> Weight {
    Weight {
        n_experts: n_heads,
        n: 1,
        ..weight
    }
}

/// Whether rows of the tensor are elements: it is a vector, or a vector for each expert that takes every n-th element.
fn by_elements(used: &TensorUse) -> bool {
    let every = matches!(
        used.source,
        WeightSource::Derived(Derivation::EveryRow { .. })
    );
    used.shape.len() == 1 || (used.shape.len() == 2 && every)
}

/// The weight as `n_matrices` of one column.
fn elementwise(weight: Weight, n_matrices: usize) -> Weight {
    Weight {
        n_experts: n_matrices,
        n: weight.n_experts * weight.n * weight.k / n_matrices.max(1),
        k: 1,
        ..weight
    }
}

fn place(source: &WeightSource) -> PartPlace {
    match *source {
        WeightSource::Whole | WeightSource::Experts(_) => PartPlace::Rows { first: 0, step: 1 },
        WeightSource::Rows { first, .. } => PartPlace::Rows { first, step: 1 },
        WeightSource::Derived(derivation) => match derivation {
            Derivation::EveryRow { first, step, .. }
            | Derivation::Mxfp4Parts { first, step, .. } => PartPlace::Rows { first, step },
            // Of no tensor, or of a whole one.
            Derivation::Ones
            | Derivation::Sinusoids { .. }
            | Derivation::PlusOne
            | Derivation::UnitRows => PartPlace::Rows { first: 0, step: 1 },
            Derivation::OfHeads(rows) => PartPlace::OfHeads(rows),
            Derivation::Transposed { first, step, .. } => PartPlace::Columns {
                first_row: 0,
                first_column: first,
                step,
            },
            Derivation::TransposedHeads { first, .. } => PartPlace::Columns {
                first_row: first,
                first_column: 0,
                step: 1,
            },
        },
    }
}

impl Assembly {
    /// Whether the parts' rows are the matrix's, one part below the other.
    pub(super) fn is_stacked(&self) -> bool {
        let mut next = 0;
        let follows = |part: &TensorPart| {
            let PartPlace::Rows { first, step: 1 } = part.place else {
                return false;
            };
            let fits = first == next;
            next = first + part.weight.n;
            fits
        };
        self.parts.iter().all(follows) && next == self.shape[0]
    }
}
