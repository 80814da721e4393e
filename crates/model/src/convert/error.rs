//! Why a conversion cannot be done.

use std::path::PathBuf;

/// Why a checkpoint cannot be converted, or writing the result failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The checkpoint is not a model this crate can describe.
    #[error(transparent)]
    Model(#[from] crate::Error),
    /// A file could not be read or written.
    #[error(transparent)]
    Format(#[from] millrace_format::Error),
    /// A tensor's bytes and shape do not fit each other.
    #[error("tensor `{tensor}`: {source}")]
    Quant {
        /// The tensor's name in the source.
        tensor: String,
        /// The mismatch.
        source: millrace_quant::Error,
    },
    /// The kind of files cannot hold the formats of the recipe.
    #[error("{container} cannot hold {recipe}; it can hold {possible}")]
    Target {
        /// The recipe's name.
        recipe: String,
        /// The kind of files.
        container: &'static str,
        /// The recipes that it can hold.
        possible: &'static str,
    },
    /// Formats of so few bits are useless unless the encoder knows how much each column counts.
    #[error(
        "{recipe} puts tensor `{tensor}` in {dtype}, which needs an importance matrix (the mean squares of what each \
         weight is multiplied with): make one with `millrace imatrix`; without one choose IQ3_S, Q2_K or a larger type"
    )]
    NeedsImportance {
        /// The recipe's name.
        recipe: String,
        /// The tensor's name in the result.
        tensor: String,
        /// Its format.
        dtype: millrace_quant::DType,
    },
    /// The importance matrix lacks a tensor whose format needs it.
    #[error(
        "tensor `{tensor}` would be {dtype}, which needs the importance of its columns, and the importance matrix has no \
         entry for it; give it another type (--tensor-type, --token-embedding-type), or make the matrix from more text"
    )]
    NoImportanceOf {
        /// The tensor's name in the result.
        tensor: String,
        /// Its format.
        dtype: millrace_quant::DType,
    },
    /// The importance matrix belongs to another model.
    #[error(transparent)]
    Importance(#[from] crate::importance::ImportanceError),
    /// A weight is infinite or not a number: no format keeps it, and no model computes with it.
    #[error("tensor `{tensor}`: element {column} of row {row} is {found}; the file is damaged")]
    NotFinite {
        /// The tensor's name in the source.
        tensor: String,
        /// Row of the matrix.
        row: usize,
        /// Element of the row.
        column: usize,
        /// The value.
        found: f32,
    },
    /// A weight is beyond the range of F16.
    #[error(
        "tensor `{tensor}`: element {column} of row {row} is {found}, beyond F16's 65504; choose \
         BF16 or F32"
    )]
    F16Range {
        /// The tensor's name in the source.
        tensor: String,
        /// Row of the matrix.
        row: usize,
        /// Element of the row.
        column: usize,
        /// The value.
        found: f32,
    },
    /// The tokenizer of the source has no equivalent in the target.
    #[error("{file}: {reason}")]
    Tokenizer {
        /// The checkpoint's name.
        file: String,
        /// The obstacle, and a convertible alternative.
        reason: String,
    },
    /// The output path names something other than a file or folder that can be written there.
    #[error("{}: {reason}", path.display())]
    Output {
        /// The path.
        path: PathBuf,
        /// Description of the fault, and a path to give instead.
        reason: String,
    },
    /// The output folder could not be made, or a side file not be read.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The caller's progress function asked to stop. Nothing was left behind.
    #[error("cancelled")]
    Cancelled,
}
