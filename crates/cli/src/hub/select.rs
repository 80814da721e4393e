//! Which files of a repository make the model that was asked for.

use super::{Error, Reference};
use std::path::{Path, PathBuf};

/// A file of a repository.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    /// Path within the repository, checked by [`is_safe_path`].
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    /// SHA-256 of a large file, Git's SHA-1 of a small one; absent in a cached listing.
    pub(crate) hash: Option<String>,
}

/// The files of one model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Selection {
    /// Indices into the listing, in the order to download.
    pub(crate) files: Vec<usize>,
    /// The GGUF file to open (within the repository), or the whole folder.
    gguf: Option<String>,
}

/// Quantisations to prefer when none is named: the usual size for quality first, then smaller to
/// larger neighbours, then what converts without loss.
const PREFERRED: [&str; 12] = [
    "Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "Q5_K_M", "Q5_K_S", "Q6_K", "Q8_0", "BF16", "F16", "FP16",
    "F32",
];

/// Files beside safetensors weights that belong to the model.
const COMPANIONS: [&str; 10] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "model.safetensors.index.json",
];

const INDEX: &str = "model.safetensors.index.json";

/// Picks the files of `reference` from a listing.
pub(crate) fn select(listed: &[Listed], reference: &Reference) -> Result<Selection, Error> {
    let repo = || reference.repo.clone();
    let ggufs = gguf_models(listed);
    let folder = folder_files(listed);
    if let Some(pick) = &reference.pick {
        if pick.eq_ignore_ascii_case("safetensors") && !folder.is_empty() {
            return Ok(Selection {
                files: folder,
                gguf: None,
            });
        }
        let named = ggufs.iter().find(|model| model.name == *pick);
        let model = named.or_else(|| ggufs.iter().find(|model| model.has_quant(pick)));
        return model.map(GgufModel::selection).ok_or_else(|| {
            let mut available = available(&ggufs);
            available.extend((!folder.is_empty()).then(|| "safetensors".to_owned()));
            Error::NoSuchPick {
                repo: repo(),
                pick: pick.clone(),
                available,
            }
        });
    }
    match ggufs.as_slice() {
        [] if folder.is_empty() => Err(Error::NoWeights { repo: repo() }),
        [] => Ok(Selection {
            files: folder,
            gguf: None,
        }),
        [only] => Ok(only.selection()),
        several => PREFERRED
            .iter()
            .find_map(|quant| several.iter().find(|model| model.has_quant(quant)))
            .map(GgufModel::selection)
            .ok_or_else(|| Error::Ambiguous {
                repo: repo(),
                available: available(&ggufs),
            }),
    }
}

impl Selection {
    /// What to open, below the snapshot's folder.
    pub(crate) fn path_in(&self, snapshot: &Path) -> PathBuf {
        match &self.gguf {
            Some(name) => snapshot.join(name),
            None => snapshot.to_owned(),
        }
    }

    /// Whether a cached listing holds every file the model needs. `read` gives a file's bytes.
    pub(crate) fn is_complete(
        &self,
        listed: &[Listed],
        read: &dyn Fn(&str) -> Option<Vec<u8>>,
    ) -> bool {
        let has = |name: &str| listed.iter().any(|file| file.name == name);
        let Some(first) = &self.gguf else {
            return match read(INDEX) {
                Some(index) if has(INDEX) => {
                    let shards = index_shards(&index);
                    !shards.is_empty() && shards.iter().all(|shard| has(shard))
                }
                _ => true,
            };
        };
        match split_suffix(first) {
            Some((_, _, total)) => self.files.len() == total,
            None => true,
        }
    }
}

/// The distinct file names in a safetensors index; none if it does not parse.
fn index_shards(index: &[u8]) -> Vec<String> {
    let index: serde_json::Value = serde_json::from_slice(index).unwrap_or_default();
    let Some(map) = index.get("weight_map").and_then(|map| map.as_object()) else {
        return Vec::new();
    };
    let mut shards: Vec<String> = map
        .values()
        .filter_map(|file| file.as_str())
        .map(str::to_owned)
        .collect();
    shards.sort();
    shards.dedup();
    shards
}

/// A GGUF model: one file, or the shards of one.
struct GgufModel {
    /// The first file's path in the repository.
    name: String,
    files: Vec<usize>,
}

impl GgufModel {
    fn selection(&self) -> Selection {
        Selection {
            files: self.files.clone(),
            gguf: Some(self.name.clone()),
        }
    }

    /// The path without split suffix and extension.
    fn stem(&self) -> &str {
        match split_suffix(&self.name) {
            Some((stem, _, _)) => stem,
            None => &self.name[..self.name.len() - ".gguf".len()],
        }
    }

    /// Whether the file or its folder is named for that quantisation.
    fn has_quant(&self, quant: &str) -> bool {
        let (folder, stem) = self.stem().rsplit_once('/').unwrap_or(("", self.stem()));
        let split_at = stem.len().saturating_sub(quant.len());
        let at_end = stem.is_char_boundary(split_at)
            && stem[split_at..].eq_ignore_ascii_case(quant)
            && !stem[..split_at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        at_end
            || folder
                .rsplit('/')
                .next()
                .is_some_and(|name| name.eq_ignore_ascii_case(quant))
    }

    /// The part of the name that tells it from its siblings, as a user would type it.
    fn label(&self) -> String {
        let stem = self.stem().rsplit('/').next().unwrap_or_default();
        let tail = stem
            .rsplit(['-', '.'])
            .next()
            .unwrap_or(stem)
            .to_uppercase();
        let known = ["Q", "IQ", "BF", "F", "FP", "MXFP", "TQ"]
            .iter()
            .any(|prefix| {
                let digits = tail.strip_prefix(prefix).unwrap_or_default();
                digits.starts_with(|c: char| c.is_ascii_digit())
            });
        if known { tail } else { self.name.clone() }
    }
}

/// The GGUF models of a listing, each by its files, the first of a split one first.
pub(super) fn models(listed: &[Listed]) -> Vec<Vec<&Listed>> {
    let models = gguf_models(listed).into_iter();
    let files = |model: GgufModel| model.files.iter().map(|i| &listed[*i]).collect();
    models.map(files).collect()
}

fn available(models: &[GgufModel]) -> Vec<String> {
    models.iter().map(GgufModel::label).collect()
}

/// The GGUF models of a listing. Vision projectors and importance matrices are not models.
fn gguf_models(listed: &[Listed]) -> Vec<GgufModel> {
    let mut models: Vec<GgufModel> = Vec::new();
    let mut indices: Vec<usize> = (0..listed.len()).collect();
    indices.sort_by(|&a, &b| listed[a].name.cmp(&listed[b].name));
    for i in indices {
        let name = &listed[i].name;
        let file = name.rsplit('/').next().unwrap_or(name).to_lowercase();
        if !file.ends_with(".gguf") || file.starts_with("mmproj") || file.contains("imatrix") {
            continue;
        }
        match (split_suffix(name), models.last_mut()) {
            (Some((stem, number, _)), Some(last)) if number > 1 && last.stem() == stem => {
                last.files.push(i);
            }
            (Some((_, number, _)), _) if number > 1 => {} // its first shard is missing
            _ => models.push(GgufModel {
                name: name.clone(),
                files: vec![i],
            }),
        }
    }
    models
}

/// `stem-00001-of-00003.gguf` as `(stem, 1, 3)`.
fn split_suffix(name: &str) -> Option<(&str, usize, usize)> {
    let base = name.strip_suffix(".gguf")?;
    let (rest, total) = base.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let five = |digits: &str| (digits.len() == 5).then(|| digits.parse().ok()).flatten();
    Some((stem, five(number)?, five(total)?))
}

/// The files of a safetensors or Q4NX folder: weights in the top folder and what belongs to them.
fn folder_files(listed: &[Listed]) -> Vec<usize> {
    let top = |file: &&Listed| !file.name.contains('/');
    let is_model = |name: &str| name.starts_with("model") && name.ends_with(".safetensors");
    let any_model = listed.iter().filter(top).any(|file| is_model(&file.name));
    let is_weight = |name: &str| match any_model {
        // Repositories that also hold the trainer's own export (`consolidated.safetensors`).
        true => is_model(name),
        false => name.ends_with(".safetensors") || name.ends_with(".q4nx"),
    };
    if !listed.iter().filter(top).any(|file| is_weight(&file.name)) {
        return Vec::new();
    }
    let wanted = |name: &str| is_weight(name) || COMPANIONS.contains(&name);
    let mut files: Vec<usize> = (0..listed.len())
        .filter(|&i| wanted(&listed[i].name))
        .collect();
    // Small files first: a wrong configuration shows before gigabytes have come.
    files.sort_by_key(|&i| (is_weight(&listed[i].name), listed[i].name.clone()));
    files
}

/// Whether a name from the network may become a path below the cache.
pub(crate) fn is_safe_path(name: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part != "." && part != "..";
    !name.contains(['\\', ':', '\0']) && name.split('/').all(part)
}

#[cfg(test)]
mod tests;
