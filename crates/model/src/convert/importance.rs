//! Effects of an importance matrix and of the user's own types on a conversion.

use fancy_regex::Regex;
use millrace_format::{Checkpoint, TensorType};
use millrace_quant::DType;

use super::merge::Merge;
use super::{ConversionTarget, Error, PlannedTensor, TensorOrigin};
use crate::adapter::Adapter;
use crate::importance::{ImportanceEntry, ImportanceMatrix};

/// A type for the matrices whose names match a pattern.
#[derive(Clone, Debug)]
pub struct TensorTypeRule {
    /// A regular expression that is looked for anywhere in the tensor's name in the result.
    pub pattern: Regex,
    /// The format of these matrices.
    pub dtype: DType,
}

/// Options of a conversion besides its target.
#[derive(Clone, Debug, Default)]
pub struct ConversionOptions<'a> {
    /// The importance of columns.
    pub importance: Option<&'a ImportanceMatrix>,
    /// Formats by name; the first match counts. They do not change vectors, biases and routers.
    pub tensor_types: Vec<TensorTypeRule>,
    /// The format of the embedding table, before every rule.
    pub token_embedding: Option<DType>,
    /// The format of the head, before every rule; also of a table that is the head, unless a separate format is
    /// given for the table.
    pub output_tensor: Option<DType>,
    /// LoRA adapters that are added to the weights, each with a factor; opened for the model of the checkpoint.
    pub adapters: &'a [(Adapter, f32)],
}

impl ConversionOptions<'_> {
    /// Whether any tensor has a format that the user chose.
    pub(super) fn has_types(&self) -> bool {
        !self.tensor_types.is_empty()
            || self.token_embedding.is_some()
            || self.output_tensor.is_some()
    }
}

/// The importance of a tensor's columns, matrix by matrix.
pub(super) struct TensorImportance<'a> {
    entry: Option<&'a ImportanceEntry>,
    n_matrices: usize,
}

impl<'a> TensorImportance<'a> {
    /// That of a planned tensor, whose size was checked.
    pub(super) fn new(
        matrix: Option<&'a ImportanceMatrix>,
        tensor: &PlannedTensor,
    ) -> TensorImportance<'a> {
        TensorImportance {
            entry: matrix.and_then(|matrix| matrix.entry(&tensor.name)),
            n_matrices: shape_of(tensor).map_or(1, |(n_matrices, _)| n_matrices),
        }
    }

    pub(super) fn is_none(&self) -> bool {
        self.entry.is_none()
    }

    pub(super) fn n_matrices(&self) -> usize {
        self.n_matrices.max(1)
    }

    /// The importance for matrix `matrix`, `[k]`; `None` where nothing is known, or no row went through it.
    pub(super) fn columns(&self, matrix: usize) -> Option<Vec<f32>> {
        self.entry?.mean_squares(matrix, self.n_matrices())
    }
}

/// Matrices and columns of a tensor; `None` for vectors.
fn shape_of(tensor: &PlannedTensor) -> Option<(usize, usize)> {
    match *tensor.shape {
        [_, k] => Some((1, k)),
        [n_matrices, _, k] => Some((n_matrices, k)),
        _ => None,
    }
}

/// Refuses an importance matrix of other sizes, and formats that need the importance of columns without one. Returns the
/// tensors in block formats that the matrix has no entry for. A tensor that is in its format already is copied.
pub(super) fn check(
    checkpoint: &Checkpoint,
    target: ConversionTarget,
    (importance, merge): (Option<&ImportanceMatrix>, &Merge<'_>),
    tensors: &[PlannedTensor],
) -> Result<Vec<String>, Error> {
    let mut unknown = Vec::new();
    for tensor in tensors {
        let (TensorType::Weights(dtype), Some((n_matrices, k))) =
            (tensor.tensor_type, shape_of(tensor))
        else {
            continue;
        };
        let entry = match importance {
            Some(matrix) => matrix.check(&tensor.name, n_matrices, k)?,
            None => None,
        };
        if dtype.is_float() || entry.is_some() || is_copied(checkpoint, merge, tensor) {
            continue;
        }
        if dtype.needs_importance() {
            let (recipe, tensor) = (target.recipe.to_string(), tensor.name.clone());
            return Err(match importance {
                Some(_) => Error::NoImportanceOf { tensor, dtype },
                None => Error::NeedsImportance {
                    recipe,
                    tensor,
                    dtype,
                },
            });
        }
        if importance.is_some() {
            unknown.push(tensor.name.clone());
        }
    }
    Ok(unknown)
}

fn is_copied(checkpoint: &Checkpoint, merge: &Merge<'_>, tensor: &PlannedTensor) -> bool {
    let TensorOrigin::Tensor(source) = &tensor.origin else {
        return false;
    };
    let same_type = checkpoint.info(source);
    let same_type = same_type.is_some_and(|info| info.tensor_type == tensor.tensor_type);
    same_type && merge.of(source).is_empty()
}
