//! The crate's errors: each names the file, the key or tensor, the value found and the value expected.

/// A value of an assistant that differs from that of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetDifference {
    /// Its name.
    pub key: String,
    /// The assistant's.
    pub found: String,
    /// The model's.
    pub expected: String,
}

/// Why a checkpoint is not a model this crate can describe.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller stopped the work. Nothing is left behind.
    #[error("stopped")]
    Cancelled,
    /// The file could not be read, or a metadata value has the wrong type.
    #[error(transparent)]
    Format(#[from] millrace_format::Error),
    /// The architecture has no row in the table of families.
    #[error(
        "{file}: architecture `{found}` is not supported{}; supported: {supported}",
        crate::arch::reason(found)
    )]
    Architecture {
        /// The checkpoint's name.
        file: String,
        /// The kind that it declares.
        found: String,
        /// The supported ones, comma-separated.
        supported: String,
    },
    /// The architecture is known, but this model uses a part of it that is not implemented.
    #[error("{file}: {feature} is not supported; supported: {supported}")]
    Unsupported {
        /// The checkpoint's name.
        file: String,
        /// The feature, with the key and value that ask for it.
        feature: String,
        /// Values that would be accepted instead.
        supported: String,
    },
    /// An adapter that does not fit the model, or a file that is not an adapter.
    #[error("{file}: {problem}")]
    Adapter {
        /// The adapter's file.
        file: String,
        /// Description of the fault, with names and shapes.
        problem: String,
    },
    /// A key that has no default is absent.
    #[error("{file}: the configuration has no `{key}`")]
    MissingKey {
        /// The checkpoint's name.
        file: String,
        /// The key, as this file format spells it.
        key: String,
    },
    /// A key has an invalid value.
    #[error("{file}: `{key}` is {found}; it must be {expected}")]
    BadValue {
        /// The checkpoint's name.
        file: String,
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// Values that it may have.
        expected: String,
    },
    /// A weight that the configuration calls for is absent.
    #[error("{file}: tensor `{tensor}` of shape {expected:?} is missing")]
    MissingTensor {
        /// The checkpoint's name.
        file: String,
        /// The tensor's name in this file format.
        tensor: String,
        /// Its shape by the configuration, slowest dimension first.
        expected: Vec<usize>,
    },
    /// Drafts were requested from a layer that the checkpoint does not have.
    #[error(
        "{file}: there is no MTP layer: no tensor `{tensor}`, and none beside it; take a file that was converted with it, \
         or another draft"
    )]
    NoDraftLayer {
        /// The checkpoint's name.
        file: String,
        /// The layer's first tensor in this file format.
        tensor: String,
    },
    /// An assistant was to run by itself.
    #[error(
        "{file}: an assistant, which drafts for another model with that model's keys and values, and writes no text without it; \
         name that model, and this file with --draft"
    )]
    Assistant {
        /// The checkpoint's name.
        file: String,
    },
    /// An assistant drafts for other models than this one.
    #[error(
        "{file} does not draft for {target}: `{}` is {}; in {target} it is {}",
        difference.key, difference.found, difference.expected
    )]
    OtherTarget {
        /// The assistant's checkpoint.
        file: String,
        /// The model to draft for.
        target: String,
        /// The first value that differs. Boxed, so that errors stay small.
        difference: Box<TargetDifference>,
    },
    /// The shape of a weight differs from that of the configuration.
    #[error("{file}: tensor `{tensor}` has shape {found:?}; the configuration says {expected:?}")]
    TensorShape {
        /// The checkpoint's name.
        file: String,
        /// The tensor's name.
        tensor: String,
        /// Shape by the configuration, slowest dimension first.
        expected: Vec<usize>,
        /// Shape in the file.
        found: Vec<usize>,
    },
    /// A weight is stored in a format that its use does not allow.
    #[error("{file}: tensor `{tensor}` is stored as {found}; it must be {expected}")]
    TensorType {
        /// The checkpoint's name.
        file: String,
        /// The tensor's name.
        tensor: String,
        /// Format in the file.
        found: String,
        /// Values that would be accepted.
        expected: String,
    },
    /// A weight is stored in a format that this program does not decode.
    #[error(
        "{file}: tensor `{tensor}` has type {found}, which this program does not compute with; take the \
         model in another quantisation, or convert it"
    )]
    OpaqueWeight {
        /// The checkpoint's name.
        file: String,
        /// The tensor's name.
        tensor: String,
        /// The type's name, with its number where the file has one.
        found: String,
    },
    /// A file holds zeros from a place within its weights up to its end.
    #[error(
        "{file}: zeros from offset {offset}, in tensor `{tensor}`, up to the end: the file is damaged, \
         perhaps by an unfinished download; fetch it again"
    )]
    ZeroTail {
        /// The file's path.
        file: String,
        /// The first tensor whose numbers are missing.
        tensor: String,
        /// Where the zeros begin, from the start of the file.
        offset: u64,
    },
    /// The file holds a weight inside a block that the family has no use for. Running without it
    /// would compute a different function from the trained one.
    #[error(
        "{file}: tensor `{tensor}` has no place in a {family} model, so this is a variant that is \
         not supported"
    )]
    UnknownTensor {
        /// The checkpoint's name.
        file: String,
        /// The tensor's name.
        tensor: String,
        /// The family it was read as.
        family: &'static str,
    },
    /// A recipe name that is not in the table.
    #[error("`{found}` is not a format this program writes; known: {known}")]
    UnknownRecipe {
        /// The name given.
        found: String,
        /// All names, comma-separated.
        known: String,
    },
    /// A number format the writer cannot fill or the shape does not divide into.
    #[error("tensor `{tensor}` of shape {shape:?} cannot be written as {dtype}: {reason}")]
    Unwritable {
        /// The tensor's name.
        tensor: String,
        /// Its shape, slowest dimension first.
        shape: Vec<usize>,
        /// The format asked for.
        dtype: String,
        /// The reason.
        reason: String,
    },
}
