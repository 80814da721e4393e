//! Finds the model in a folder.

use std::fs;
use std::path::Path;

use super::{open_gguf, open_index, open_safetensors};
use crate::gguf::SplitName;
use crate::safetensors::{INDEX_FILE, MODEL_FILE};
use crate::{Checkpoint, Error};

const LOOKED_FOR: &str = "model.safetensors.index.json, model.safetensors, one .q4nx file, one .gguf file (or the shards of one)";

/// Opens the model of a folder: Hugging Face weights first, then a Q4NX bundle, then a GGUF file.
pub(super) fn open(dir: &Path) -> Result<Checkpoint, Error> {
    let index = dir.join(INDEX_FILE);
    if index.exists() {
        return open_index(&index, dir);
    }
    let model = dir.join(MODEL_FILE);
    if model.exists() {
        return open_safetensors(&model, dir);
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
    // A shard without its index says so itself.
    let is_shard = |name: &&str| SplitName::parse_with(Path::new(name), ".safetensors").is_some();
    if let Some(shard) = with(".safetensors").into_iter().find(is_shard) {
        return open_safetensors(&dir.join(shard), dir);
    }
    Err(Error::NoWeights {
        dir: dir.to_owned(),
        looked_for: LOOKED_FOR,
        hint: hint(&with(".safetensors"), &with(".bin")),
    })
}

/// Names of the folder's entries, sorted.
fn list(dir: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::io(dir, "read the folder"))? {
        let entry = entry.map_err(Error::io(dir, "read the folder"))?;
        // A name that is not UTF-8 is none of those looked for.
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}

/// Whether a file's name is that of a vision tower beside a GGUF model: `mmproj….gguf`, or with
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

/// What to do about weights that are there but not under a name that was looked for.
fn hint(safetensors: &[&str], pickles: &[&str]) -> String {
    if let Some(name) = safetensors.first() {
        return format!("; found {name}: name the file itself to open it");
    }
    if let Some(name) = pickles.first() {
        return format!(
            "; found {name}: PyTorch pickles are not read, convert them to safetensors"
        );
    }
    String::new()
}
