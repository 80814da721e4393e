//! Recognises the kind of a path and opens it with the right reader.

mod folder;

pub use folder::is_mmproj;

use std::path::Path;

use crate::checkpoint::{CheckpointParts, FileBytes};
use crate::gguf::SplitName;
use crate::mmap::FileMapping;
use crate::output::folder_of;
use crate::safetensors::{Header, Index};
use crate::{Checkpoint, Error, gguf, hf, recognize};

/// An index lists every tensor in about a hundred bytes: this is room for half a million.
const MAX_INDEX_BYTES: u64 = 64 << 20;

pub(crate) fn open(path: &Path) -> Result<Checkpoint, Error> {
    let kind = std::fs::metadata(path).map_err(Error::opening(path))?;
    if kind.is_dir() {
        return folder::open(path);
    }
    let opened = match FileContainer::of(path) {
        Ok(FileContainer::Gguf) => open_gguf(path, path),
        Ok(FileContainer::Safetensors) => open_safetensors(path, path),
        Ok(FileContainer::Index) => open_index(path, path),
        Err(error) => Err(error),
    };
    opened.map_err(|error| recognize::explain(error, path))
}

enum FileContainer {
    Gguf,
    Safetensors,
    Index,
}

impl FileContainer {
    /// Judges by the first bytes, then by the name: files in a download cache have no extension.
    fn of(path: &Path) -> Result<FileContainer, Error> {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_ascii_lowercase();
        if name.ends_with(".safetensors.index.json") {
            return Ok(FileContainer::Index);
        }
        let mapping = FileMapping::open(path)?;
        let head = &mapping[..mapping.len().min(64)];
        if head.starts_with(&gguf::MAGIC) {
            return Ok(FileContainer::Gguf);
        }
        recognize::check_weights(&mapping, path)?;
        let is_safetensors = name.ends_with(".safetensors") || name.ends_with(".q4nx");
        if name.ends_with(".gguf") {
            return Ok(FileContainer::Gguf);
        }
        if is_safetensors || head.get(8) == Some(&b'{') {
            return Ok(FileContainer::Safetensors);
        }
        let found = format!(
            "a file that begins with `{}`",
            head[..head.len().min(16)].escape_ascii()
        );
        Err(Error::UnknownFormat {
            file: path.to_owned(),
            expected: "GGUF, safetensors, a safetensors index or a model folder",
            found,
        })
    }
}

/// The name in messages of a path that the user gave.
fn name_of(path: &Path) -> String {
    path.display().to_string()
}

/// `shown` is the path the user gave, which may be the folder.
fn open_gguf(path: &Path, shown: &Path) -> Result<Checkpoint, Error> {
    let mut parts = CheckpointParts::default();
    let mut metadata = None;
    for shard in gguf::open_split(path)? {
        metadata.get_or_insert(shard.header.metadata);
        parts.push(
            shard.path,
            FileBytes::Mapped(shard.mapping),
            shard.header.tensors,
        )?;
    }
    // The first shard has the model's metadata, and there always is one.
    Ok(parts.into_gguf(name_of(shown), metadata.unwrap_or_default()))
}

fn open_safetensors(path: &Path, shown: &Path) -> Result<Checkpoint, Error> {
    let split = SplitName::parse_with(path, ".safetensors");
    if let Some(split) = split.filter(|split| split.count > 1) {
        let mut index = split.prefix.into_os_string();
        index.push(".safetensors.index.json");
        let index = Path::new(&index);
        if !index.exists() {
            return Err(Error::MissingIndex {
                file: path.to_owned(),
                index: index.to_owned(),
            });
        }
        return open_index(index, shown);
    }
    let mut parts = CheckpointParts::default();
    push_safetensors(&mut parts, path)?;
    parts.into_hugging_face(name_of(shown), hf::Files::read(folder_of(path))?)
}

fn push_safetensors(parts: &mut CheckpointParts, path: &Path) -> Result<(), Error> {
    let mapping = FileMapping::open(path)?;
    recognize::check_weights(&mapping, path)?;
    let header = match Header::parse(&mapping, path) {
        Err(Error::Hole { offset, .. }) if is_safetensors_at(&mapping, offset) => {
            return Err(Error::NotAModel {
                file: path.to_owned(),
                what: "several safetensors files, joined into one".to_owned(),
                advice: "do not join shards: keep them beside their index and name the folder"
                    .to_owned(),
            });
        }
        parsed => parsed?,
    };
    parts.push(path.to_owned(), FileBytes::Mapped(mapping), header.tensors)
}

/// Whether a header's length and a header seem to be at an offset.
fn is_safetensors_at(bytes: &[u8], offset: u64) -> bool {
    let rest = bytes.get(offset as usize..).unwrap_or_default();
    rest.get(8..10) == Some(b"{\"") || rest.get(8..10) == Some(b"{}")
}

/// Opens the shards that an index names. Its entries say which files to open and nothing more: each
/// file's own header lists its tensors, and the code that needs a missing tensor names it.
fn open_index(path: &Path, shown: &Path) -> Result<Checkpoint, Error> {
    let index = Index::parse(&hf::read_file(path, MAX_INDEX_BYTES)?, path)?;
    let folder = folder_of(path);
    let mut parts = CheckpointParts::default();
    for name in index.shards() {
        let shard = folder.join(name);
        if !shard.exists() && shard.read_link().is_err() {
            return Err(Error::MissingShard {
                shard,
                listed_in: path.to_owned(),
            });
        }
        push_safetensors(&mut parts, &shard)?;
    }
    parts.into_hugging_face(name_of(shown), hf::Files::read(folder)?)
}
