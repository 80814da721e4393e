//! Selects the files of a repository that make up the requested model.

use super::{Error, Reference};
use std::path::{Path, PathBuf};

/// A file of a repository.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RepoFile {
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

/// Quantisations in order of preference when none is named. The usual size for quality comes first, then its smaller
/// to larger neighbours, then lossless ones.
const PREFERRED: [&str; 12] = [
    "Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "Q5_K_M", "Q5_K_S", "Q6_K", "Q8_0", "BF16", "F16", "FP16",
    "F32",
];

/// Files beside safetensors weights that belong to the model.
const COMPANIONS: [&str; 12] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "model.safetensors.index.json",
];

const INDEX: &str = "model.safetensors.index.json";

/// Picks the files of `reference` from a listing.
pub(crate) fn select(listed: &[RepoFile], reference: &Reference) -> Result<Selection, Error> {
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
        let model = named.or_else(|| by_quant(&ggufs, pick));
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
            .find_map(|quant| by_quant(several, quant))
            .map(GgufModel::selection)
            .ok_or_else(|| Error::Ambiguous {
                repo: repo(),
                available: available(&ggufs),
            }),
    }
}

impl Selection {
    /// The path to open, below the snapshot's folder.
    pub(crate) fn path_in(&self, snapshot: &Path) -> PathBuf {
        match &self.gguf {
            Some(name) => snapshot.join(name),
            None => snapshot.to_owned(),
        }
    }

    /// Whether a cached listing holds every file the model needs. `read` gives a file's bytes.
    pub(crate) fn is_complete(
        &self,
        listed: &[RepoFile],
        read: &dyn Fn(&str) -> Option<Vec<u8>>,
    ) -> bool {
        let has = |name: &str| listed.iter().any(|file| file.name == name);
        let Some(first) = &self.gguf else {
            return match read(INDEX) {
                // The one whole file is the one that is opened, even if there is an index.
                _ if has("model.safetensors") => true,
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

    /// Whether the file or its folder is named after that quantisation, as a whole word. A match at the end of the
    /// name counts more than one within it.
    fn match_quant(&self, quant: &str) -> Option<Match> {
        let (folder, stem) = self.stem().rsplit_once('/').unwrap_or(("", self.stem()));
        if let Some(found) = find_word(stem, quant) {
            return Some(found);
        }
        let folder = folder.rsplit('/').next().unwrap_or_default();
        find_word(folder, quant).map(|_| Match::Within)
    }

    /// The quantisations in its name, the last first.
    fn quants(&self) -> Vec<&str> {
        let (folder, stem) = self.stem().rsplit_once('/').unwrap_or(("", self.stem()));
        let folder = folder.rsplit('/').next().unwrap_or_default();
        let mut found: Vec<&str> = quant_words(stem).collect();
        found.reverse();
        found.extend(quant_words(folder));
        found
    }
}

/// Position of a quantisation in a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    /// At its end.
    End,
    /// Before other words.
    Within,
}

/// The model that a quantisation names. Names that end with it are preferred over names that continue, and among
/// several the one with the fewest quantisations is chosen.
fn by_quant<'a>(models: &'a [GgufModel], quant: &str) -> Option<&'a GgufModel> {
    let rank = |model: &&GgufModel| {
        let within = model.match_quant(quant) == Some(Match::Within);
        (within, model.quants().len())
    };
    let named = models.iter();
    named
        .filter(|model| model.match_quant(quant).is_some())
        .min_by_key(rank)
}

/// Finds `word` in `name` between dashes, dots and ends, ignoring case. An underscore is a boundary too, unless the
/// text after it belongs to the quantisation: `Q4_K` is not found in `Q4_K_M`, but `Q4_K_M` is in `Q4_K_M_imat`.
fn find_word(name: &str, word: &str) -> Option<Match> {
    if word.is_empty() {
        return None;
    }
    let starts = name.char_indices().map(|(start, _)| start);
    let is_at = |start: usize| {
        let rest = name.get(start..start + word.len())?;
        let before = name[..start].chars().next_back();
        let after = &name[start + word.len()..];
        let begins = match before {
            // `model_Q8_0`, but not `K_M` in `Q4_K_M`.
            Some('_') => quant_at(word).is_some_and(|quant| quant.len() == word.len()),
            before => before.is_none_or(|c| matches!(c, '-' | '.' | ' ')),
        };
        (rest.eq_ignore_ascii_case(word) && begins && ends_word(after)).then_some(after.is_empty())
    };
    let found: Vec<bool> = starts.filter_map(is_at).collect();
    match found.last()? {
        true => Some(Match::End),
        false => Some(Match::Within),
    }
}

fn ends_word(after: &str) -> bool {
    match after.strip_prefix('_') {
        Some(rest) => {
            let part = rest.split(['-', '.', '_']).next().unwrap_or_default();
            part.starts_with(|c: char| c.is_ascii_alphabetic()) && !is_quant_part(part)
        }
        None => after.is_empty() || after.starts_with(['-', '.', ' ']),
    }
}

/// Whether this is a later part of a quantisation's name, after its first underscore: `K`, `M`, `0`, `NL`, `XXS`.
fn is_quant_part(part: &str) -> bool {
    const LETTERS: [&str; 9] = ["K", "S", "M", "L", "XS", "XXS", "XL", "XXL", "NL"];
    let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    // `P` and `R4` are those of ik_llama.cpp and of forks.
    let packed = ["P", "R4", "R8"]
        .iter()
        .any(|p| part.eq_ignore_ascii_case(p));
    digits || packed || LETTERS.iter().any(|known| part.eq_ignore_ascii_case(known))
}

/// The words of a name that are quantisations: `Q4_K_M`, `IQ4_XS`, `BF16`.
fn quant_words(name: &str) -> impl Iterator<Item = &str> {
    name.split(['-', '.', ' ']).filter_map(|word| {
        let after_underscores = word.match_indices('_').map(|(i, _)| i + 1);
        let mut starts = std::iter::once(0).chain(after_underscores);
        starts.find_map(|start| quant_at(&word[start..]))
    })
}

/// The quantisation at the beginning of a text.
fn quant_at(text: &str) -> Option<&str> {
    const KINDS: [&str; 8] = ["IQ", "TQ", "Q", "BF", "FP", "F", "MXFP", "NVFP"];
    let n_digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let begins = |kind: &&str| {
        let start = text.get(..kind.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(kind))
            && n_digits(&text[kind.len()..]) > 0
    };
    let kind = KINDS.iter().find(|kind| begins(kind))?;
    let mut end = kind.len() + n_digits(&text[kind.len()..]);
    while let Some(rest) = text[end..].strip_prefix('_') {
        let part = rest.split(['_', '-', '.']).next().unwrap_or_default();
        if !is_quant_part(part) {
            break;
        }
        end += 1 + part.len();
    }
    // `Q8nextn` is not a quantisation.
    ends_word(&text[end..]).then_some(&text[..end])
}

/// The GGUF models of a listing, each as its files, the first of a split one first.
pub(super) fn models(listed: &[RepoFile]) -> Vec<Vec<&RepoFile>> {
    let models = gguf_models(listed).into_iter();
    let files = |model: GgufModel| model.files.iter().map(|i| &listed[*i]).collect();
    models.map(files).collect()
}

/// The text to type for each model: a quantisation that picks it, else its name.
fn available(models: &[GgufModel]) -> Vec<String> {
    let label = |model: &GgufModel| {
        let picks =
            |quant: &&str| by_quant(models, quant).is_some_and(|found| found.name == model.name);
        let quant = model.quants().into_iter().find(picks);
        quant.map_or_else(|| model.name.clone(), str::to_uppercase)
    };
    models.iter().map(label).collect()
}

/// The GGUF models of a listing. Vision projectors and importance matrices are not models.
fn gguf_models(listed: &[RepoFile]) -> Vec<GgufModel> {
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

/// The files of a safetensors or Q4NX folder: the weights in the top folder and their companions.
fn folder_files(listed: &[RepoFile]) -> Vec<usize> {
    let top = |file: &&RepoFile| !file.name.contains('/');
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
    // Small files first, so that a wrong configuration is found before gigabytes are downloaded.
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
