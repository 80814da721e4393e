//! Finds the model in a folder.

use std::fs;
use std::path::Path;

use super::{open_gguf, open_index, open_safetensors};
use crate::gguf::SplitName;
use crate::safetensors::{INDEX_FILE, MODEL_FILE};
use crate::{Checkpoint, Error, recognize};

const LOOKED_FOR: &str = "model.safetensors, model.safetensors.index.json, one .q4nx file, one .gguf file (or the shards of one)";

/// Opens the model of a folder: Hugging Face weights first, then a Q4NX bundle, then a GGUF file.
pub(super) fn open(dir: &Path) -> Result<Checkpoint, Error> {
    // As in transformers: an index beside the one whole file belongs to shards that the file replaced.
    let (model, index) = (dir.join(MODEL_FILE), dir.join(INDEX_FILE));
    if model.exists() {
        return open_safetensors(&model, dir);
    }
    if index.exists() {
        return open_index(&index, dir);
    }
    if let Some(link) = [model, index].iter().find(|path| path.read_link().is_ok()) {
        // The error of opening it names its target.
        return open_safetensors(link, dir);
    }
    let names = list(dir)?;
    let with = |extension: &str| -> Vec<&str> {
        names
            .iter()
            .map(String::as_str)
            .filter(|name| name.ends_with(extension) && !is_mmproj(name))
            .collect()
    };
    if let Some(name) = only(dir, &with(".q4nx"))? {
        return open_safetensors(&dir.join(name), dir);
    }
    if let Some(name) = only(dir, &first_of_splits(&with(".gguf")))? {
        return open_gguf(&dir.join(name), dir);
    }
    // A shard without its index gives its own error.
    let is_shard = |name: &&str| SplitName::parse_with(Path::new(name), ".safetensors").is_some();
    if let Some(shard) = with(".safetensors").into_iter().find(is_shard) {
        return open_safetensors(&dir.join(shard), dir);
    }
    Err(
        recognize::folder(dir, &names).unwrap_or_else(|| Error::NoWeights {
            dir: dir.to_owned(),
            looked_for: LOOKED_FOR,
            hint: hint(&names),
        }),
    )
}

/// Names of the folder's entries, sorted.
fn list(dir: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::io(dir, "read the folder"))? {
        let entry = entry.map_err(Error::io(dir, "read the folder"))?;
        // A name that is not UTF-8 is never looked for.
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}

/// Whether a file's name is that of a vision encoder beside a GGUF model: `mmproj….gguf`, or with
/// `mmproj` after a dash or dot.
pub fn is_mmproj(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let marked = ["-mmproj", ".mmproj", "_mmproj"]
        .iter()
        .any(|part| name.contains(part));
    name.ends_with(".gguf") && (name.starts_with("mmproj") || marked)
}

/// One name for each split, that of the first shard found, and all names of unsplit files.
fn first_of_splits<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut firsts: Vec<&str> = Vec::new();
    let mut last = None;
    for &name in names {
        let split = SplitName::parse(Path::new(name)).map(|split| (split.prefix, split.count));
        if split.is_none() || split != last {
            firsts.push(name);
        }
        last = split;
    }
    firsts
}

fn only<'a>(dir: &Path, names: &[&'a str]) -> Result<Option<&'a str>, Error> {
    match names {
        [] => Ok(None),
        [name] => Ok(Some(name)),
        _ => Err(Error::SeveralModels {
            dir: dir.to_owned(),
            found: names.iter().map(|&name| name.to_owned()).collect(),
        }),
    }
}

/// Advice about weights that are there under a name that was not looked for.
fn hint(names: &[String]) -> String {
    let is_mmproj_only = names.iter().any(|name| is_mmproj(name));
    let with = |extensions: &[&str]| {
        let has = |name: &&String| extensions.iter().any(|ext| name.ends_with(ext));
        names.iter().find(has)
    };
    if names.is_empty() {
        return "; the folder is empty".to_owned();
    }
    if let Some(name) = with(&[".safetensors"]) {
        return format!("; found {name}: name the file itself to open it");
    }
    if let Some(name) = with(&[".bin", ".pt", ".pth", ".ckpt"]) {
        return format!(
            "; found {name}: PyTorch pickles are not read, convert them to safetensors"
        );
    }
    if is_mmproj_only {
        return "; found a vision encoder (mmproj) alone: the text model's GGUF file belongs beside it"
            .to_owned();
    }
    String::new()
}
