//! Writes a model folder's weights, in several files with an index where they are too many for
//! one.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{INDEX_FILE, Index, MODEL_FILE, Writer};
use crate::gguf::SplitName;
use crate::output::AtomicFile;
use crate::{Error, TensorSpec};

/// Writes `model.safetensors`, or shards `model-00001-of-0000N.safetensors` and their index.
///
/// All files appear on [`ShardedWriter::commit`], the index last.
#[derive(Debug)]
pub struct ShardedWriter {
    dir: PathBuf,
    shards: Vec<Shard>,
    /// Shard of each tensor.
    shard_of: HashMap<String, usize>,
    index: Index,
    total_bytes: u64,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    writer: Writer<AtomicFile>,
}

impl ShardedWriter {
    /// Starts the weights of the folder `dir`, which must exist. A file holds tensors, in the order
    /// given, of up to `max_shard_bytes`; a larger tensor gets a separate file.
    ///
    /// # Errors
    /// [`Error::OtherWeights`] if the folder holds weights under names that this model will not
    /// replace, and as [`Writer::create`].
    pub fn create(
        dir: &Path,
        metadata: &BTreeMap<String, String>,
        tensors: &[TensorSpec],
        max_shard_bytes: u64,
    ) -> Result<ShardedWriter, Error> {
        let groups = group(tensors, max_shard_bytes);
        let names = shard_names(groups.len());
        check_folder(dir, &names)?;
        let mut shards = Vec::with_capacity(groups.len());
        let mut shard_of = HashMap::new();
        let mut index = Index::default();
        for (i, (name, tensors)) in names.iter().zip(&groups).enumerate() {
            let path = dir.join(name);
            let writer = Writer::create(&path, metadata, tensors)?;
            shards.push(Shard { path, writer });
            for tensor in tensors {
                if shard_of.insert(tensor.name.clone(), i).is_some() {
                    return Err(Error::DuplicateTensor {
                        file: dir.to_owned(),
                        tensor: tensor.name.clone(),
                        first: None,
                    });
                }
                index.weight_map.push((tensor.name.clone(), name.clone()));
            }
        }
        Ok(ShardedWriter {
            dir: dir.to_owned(),
            shards,
            shard_of,
            index,
            total_bytes: tensors.iter().map(spec_bytes).sum(),
        })
    }

    /// The next bytes of a tensor.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn write(&mut self, tensor: &str, bytes: &[u8]) -> Result<(), Error> {
        // A name that no shard has is refused by the first one's writer.
        let shard = self.shard_of.get(tensor).copied().unwrap_or(0);
        self.shards[shard].writer.write(tensor, bytes)
    }

    /// Checks that every tensor is complete and gives the files their names. Returns them, the
    /// index last.
    ///
    /// # Errors [`Error::WrongLength`], [`Error::Io`]. All bytes are on the disk before the first
    /// file gets its name, so that want of space leaves nothing. Should a renaming fail
    /// nevertheless, files that got their names are removed.
    pub fn commit(self) -> Result<Vec<PathBuf>, Error> {
        let mut files = Vec::with_capacity(self.shards.len());
        let mut paths = Vec::with_capacity(self.shards.len() + 1);
        for shard in self.shards {
            files.push(shard.writer.finish()?);
            paths.push(shard.path);
        }
        if paths.len() > 1 {
            let path = self.dir.join(INDEX_FILE);
            let mut file = AtomicFile::create(&path)?;
            let json = self.index.to_json(self.total_bytes);
            file.write_all(json.as_bytes())
                .map_err(Error::io(&path, "write"))?;
            files.push(file);
            paths.push(path);
        }
        for file in &mut files {
            file.sync()?;
        }
        for (i, file) in files.into_iter().enumerate() {
            if let Err(error) = file.commit() {
                for path in &paths[..i] {
                    let _ = fs::remove_file(path);
                }
                return Err(error);
            }
        }
        Ok(paths)
    }
}

/// Bytes of a tensor; 0 for a shape that its writer will refuse.
fn spec_bytes(tensor: &TensorSpec) -> u64 {
    tensor.size_bytes().unwrap_or(0) as u64
}

/// Cuts the list into runs of up to `max_bytes`; never empty.
fn group(tensors: &[TensorSpec], max_bytes: u64) -> Vec<Vec<TensorSpec>> {
    let mut groups = vec![Vec::new()];
    let mut group_bytes = 0u64;
    for tensor in tensors {
        let bytes = spec_bytes(tensor);
        let last = groups.len() - 1;
        if !groups[last].is_empty() && group_bytes.saturating_add(bytes) > max_bytes {
            groups.push(Vec::new());
            group_bytes = 0;
        }
        group_bytes = group_bytes.saturating_add(bytes);
        let last = groups.len() - 1;
        groups[last].push(tensor.clone());
    }
    groups
}

fn shard_names(count: usize) -> Vec<String> {
    if count == 1 {
        return vec![MODEL_FILE.to_owned()];
    }
    (1..=count)
        .map(|number| format!("model-{number:05}-of-{count:05}.safetensors"))
        .collect()
}

/// Refuses a folder where a reader would find other weights than the ones about to be written.
fn check_folder(dir: &Path, names: &[String]) -> Result<(), Error> {
    let entries = fs::read_dir(dir).map_err(Error::io(dir, "read the folder"))?;
    for entry in entries {
        let entry = entry.map_err(Error::io(dir, "read the folder"))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let is_index = name == INDEX_FILE;
        let is_shard = SplitName::parse_with(Path::new(&name), ".safetensors").is_some();
        let is_ours = if is_index {
            names.len() > 1
        } else {
            names.contains(&name)
        };
        if (is_index || is_shard || name == MODEL_FILE) && !is_ours {
            return Err(Error::OtherWeights {
                dir: dir.to_owned(),
                found: name,
            });
        }
    }
    Ok(())
}
