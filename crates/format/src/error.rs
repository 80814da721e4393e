//! The one error type of the crate: the fault, its place, the expected and the found value.

use std::path::PathBuf;

/// Any error when a model file is opened, read or written.
///
/// Offsets are bytes from the start of the named file unless a field says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // The fields are spelled out by each variant's message.
pub enum Error {
    /// The operating system refused an operation on a file or folder.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        path: PathBuf,
        action: &'static str,
        #[source]
        source: std::io::Error,
    },
    /// A path that must be a regular file is a folder, a pipe, a device…
    #[error("{}: not a regular file", path.display())]
    NotAFile { path: PathBuf },
    /// The first bytes belong to no format this crate reads.
    #[error("{}: not a model file this program reads: expected {expected}, found {found}", file.display())]
    UnknownFormat {
        file: PathBuf,
        expected: &'static str,
        found: String,
    },
    /// A file or folder of another kind than the reader expects.
    #[error("{}: this is {what}: {advice}", file.display())]
    NotAModel {
        file: PathBuf,
        /// Its kind, with its article.
        what: String,
        /// Advice to the user.
        advice: String,
    },
    /// A link whose target does not exist.
    #[error(
        "{}: a link to {}, which does not exist: move the target back, or download the file again",
        link.display(),
        target.display()
    )]
    DanglingLink { link: PathBuf, target: PathBuf },
    /// A GGUF file written for big-endian machines.
    #[error("{}: big-endian GGUF (version {version}): convert it to little-endian first", file.display())]
    BigEndian { file: PathBuf, version: u32 },
    /// A GGUF version outside 2 and 3.
    #[error("{}: GGUF version {found} is not supported: expected 2 or 3", file.display())]
    Version { file: PathBuf, found: u32 },
    /// The file ends before something that it announced.
    #[error(
        "{}: truncated at offset {offset}: {what} needs {expected_bytes} bytes, found {found_bytes} left \
         (an unfinished download? fetch the file again)",
        file.display()
    )]
    Truncated {
        file: PathBuf,
        what: String,
        offset: u64,
        expected_bytes: u64,
        found_bytes: u64,
    },
    /// A count, length or depth above the limit for a sane file.
    #[error("{}: {what} at offset {offset} is {found}: the limit is {limit}", file.display())]
    Limit {
        file: PathBuf,
        what: String,
        offset: u64,
        found: u64,
        limit: u64,
    },
    /// A text file that is not UTF-8.
    #[error("{}: {what} at offset {offset} is not UTF-8", file.display())]
    NotUtf8 {
        file: PathBuf,
        what: String,
        offset: u64,
    },
    /// A field with a value that the format does not define.
    #[error("{}: {what} at offset {offset}: expected {expected}, found {found}", file.display())]
    BadField {
        file: PathBuf,
        what: String,
        offset: u64,
        expected: &'static str,
        found: String,
    },
    /// Text that is not the expected JSON.
    #[error("{}: {what}: {source}", file.display())]
    Json {
        file: PathBuf,
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    /// The same metadata key twice.
    #[error("{}: metadata key `{key}` appears twice", file.display())]
    DuplicateKey { file: PathBuf, key: String },
    /// A metadata key that is needed is absent.
    #[error("{}: metadata key `{key}` is missing", file.display())]
    MissingKey { file: PathBuf, key: String },
    /// A metadata key has another type, or a number out of range.
    #[error("{}: metadata key `{key}`: expected {expected}, found {found}", file.display())]
    KeyType {
        file: PathBuf,
        key: String,
        expected: &'static str,
        found: String,
    },
    /// The same tensor name twice, in one file or in two shards.
    #[error(
        "{}: tensor `{tensor}` appears twice{}",
        file.display(),
        first.as_ref().map(|f| format!(": first in {}", f.display())).unwrap_or_default()
    )]
    DuplicateTensor {
        file: PathBuf,
        tensor: String,
        /// The file with the first one, if it is a different file.
        first: Option<PathBuf>,
    },
    /// A tensor in a number format this program does not read.
    #[error(
        "{}: tensor `{tensor}` has type {found}, which this program does not read; convert or requantise the model",
        file.display()
    )]
    UnsupportedType {
        file: PathBuf,
        tensor: String,
        /// The type's name, with its number where the file has one.
        found: String,
    },
    /// Impossible dimensions: too many, overflowing, or not whole blocks.
    #[error("{}: tensor `{tensor}` has shape {shape:?}: expected {expected}", file.display())]
    BadShape {
        file: PathBuf,
        tensor: String,
        /// Slowest dimension first.
        shape: Vec<u64>,
        expected: String,
    },
    /// A tensor starts off the file's alignment.
    #[error(
        "{}: tensor `{tensor}` starts at data offset {offset}: expected a multiple of {alignment}",
        file.display()
    )]
    Misaligned {
        file: PathBuf,
        tensor: String,
        /// From the start of the tensor data.
        offset: u64,
        alignment: u64,
    },
    /// A part of a packed matrix is absent, or does not fit the others.
    #[error("{}: tensor `{tensor}`: expected {expected}, found {found}", file.display())]
    PackedPart {
        file: PathBuf,
        tensor: String,
        expected: String,
        found: String,
    },
    /// Two tensors share bytes.
    #[error(
        "{}: tensor `{tensor}` at offset {offset} overlaps `{other}`, which ends at {other_end}",
        file.display()
    )]
    Overlap {
        file: PathBuf,
        tensor: String,
        offset: u64,
        other: String,
        other_end: u64,
    },
    /// A tensor's bytes are outside the file: a truncated download, or a forged offset.
    #[error(
        "{}: tensor `{tensor}` at offset {offset} needs {expected_bytes} bytes, but the file has {found_bytes} \
         bytes in all (truncated download?)",
        file.display()
    )]
    BeyondFile {
        file: PathBuf,
        tensor: String,
        offset: u64,
        expected_bytes: u64,
        /// Length of the file.
        found_bytes: u64,
    },
    /// The number of bytes of a tensor differs from that of its type and shape.
    #[error(
        "{}: tensor `{tensor}` at offset {offset}: its type and shape need {expected_bytes} bytes, \
         found {found_bytes}",
        file.display()
    )]
    SizeMismatch {
        file: PathBuf,
        tensor: String,
        offset: u64,
        expected_bytes: u64,
        found_bytes: u64,
    },
    /// Bytes of a safetensors file that belong to no tensor.
    #[error("{}: bytes {offset}..{end} belong to no tensor", file.display())]
    Hole {
        file: PathBuf,
        offset: u64,
        end: u64,
    },
    /// A shard that the others need is absent.
    #[error("{}: shard is missing (needed by {})", shard.display(), listed_in.display())]
    MissingShard { shard: PathBuf, listed_in: PathBuf },
    /// The index of a sharded safetensors model is absent.
    #[error("{}: one of several shards, but the index {} is missing", file.display(), index.display())]
    MissingIndex { file: PathBuf, index: PathBuf },
    /// A split GGUF file is not named `NAME-00001-of-00003.gguf`, so its siblings cannot be found.
    #[error(
        "{}: one of {count} shards, but its name does not end in -XXXXX-of-{count:05}.gguf",
        file.display()
    )]
    ShardName { file: PathBuf, count: u64 },
    /// A shard's own count and its name disagree about the number of shards.
    #[error("{}: expected {expected} shards, found split.count = {found}", file.display())]
    ShardCount {
        file: PathBuf,
        expected: u64,
        found: String,
    },
    /// A shard has the number of another file.
    #[error(
        "{}: calls itself shard {found} of the split: expected {expected} by its name",
        file.display()
    )]
    DuplicateShard {
        file: PathBuf,
        /// 1-based, as in file names.
        expected: u64,
        /// 1-based, as in file names.
        found: u64,
    },
    /// Shards that belong to different models.
    #[error("{}: belongs to another model than {}: {reason}", file.display(), first.display())]
    MixedShards {
        file: PathBuf,
        first: PathBuf,
        reason: String,
    },
    /// An index names a shard outside its own folder.
    #[error(
        "{}: names shard {shard:?} for tensor `{tensor}`: expected a plain file name",
        index.display()
    )]
    UnsafeShardName {
        index: PathBuf,
        tensor: String,
        shard: String,
    },
    /// An index names itself, or another index, as a shard.
    #[error(
        "{}: cyclic: names the index {shard:?} as the shard of tensor `{tensor}`",
        index.display()
    )]
    CyclicIndex {
        index: PathBuf,
        tensor: String,
        shard: String,
    },
    /// A folder without weights.
    #[error("{}: no model weights: looked for {looked_for}{hint}", dir.display())]
    NoWeights {
        dir: PathBuf,
        looked_for: &'static str,
        hint: String,
    },
    /// A folder with several models.
    #[error("{}: several models: name one of {}", dir.display(), found.join(", "))]
    SeveralModels { dir: PathBuf, found: Vec<String> },
    /// A tensor that is needed is absent.
    #[error("{checkpoint}: tensor `{tensor}` is missing")]
    MissingTensor { checkpoint: String, tensor: String },
    /// A tensor has other dimensions than the model's configuration asks for.
    #[error("{}: tensor `{tensor}`: expected shape {expected:?}, found {found}", file.display())]
    ShapeMismatch {
        file: PathBuf,
        tensor: String,
        expected: Vec<usize>,
        found: String,
    },
    /// A tensor of plain integers where weights are needed.
    #[error("{}: tensor `{tensor}`: expected weights, found type {found}", file.display())]
    NotWeights {
        file: PathBuf,
        tensor: String,
        found: &'static str,
    },
    /// Embedded bytes do not have the alignment that their tensors need.
    #[error(
        "{name}: embedded bytes must start at a multiple of {alignment}, found an address {found} past one"
    )]
    EmbeddedAlignment {
        name: String,
        alignment: u64,
        found: u64,
    },
    /// The format of a file to be written cannot hold the given contents.
    #[error("{}: cannot write tensor `{tensor}`: {reason}", file.display())]
    CannotStore {
        file: PathBuf,
        tensor: String,
        reason: String,
    },
    /// A folder that already holds other weights, which a reader would mix with the new ones.
    #[error("{}: already holds {found}: remove it or choose another folder", dir.display())]
    OtherWeights { dir: PathBuf, found: String },
    /// The caller of a writer gave a tensor too many or too few bytes.
    #[error(
        "{}: tensor `{tensor}` takes {expected_bytes} bytes, {found_bytes} were given",
        file.display()
    )]
    WrongLength {
        file: PathBuf,
        tensor: String,
        expected_bytes: u64,
        found_bytes: u64,
    },
}

impl Error {
    /// Wraps the error of opening `path`, which may be a link to nowhere.
    pub(crate) fn opening(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| match std::fs::read_link(&path) {
            Ok(target) if source.kind() == std::io::ErrorKind::NotFound => {
                Error::DanglingLink { link: path, target }
            }
            _ => Error::io(&path, "open")(source),
        }
    }

    /// Wraps an operating system error with the path and the action.
    pub(crate) fn io(
        path: &std::path::Path,
        action: &'static str,
    ) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io {
            path,
            action,
            source,
        }
    }
}
