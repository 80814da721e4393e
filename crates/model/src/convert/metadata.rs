//! GGUF metadata of a converted model.

use std::path::Path;

use millrace_format::gguf::{GgufValue, Metadata};
use millrace_format::{Checkpoint, hf};
use serde_json::{Map, json};

use super::tokenizer::from_hf as tokenizer;
use super::{Error, Recipe};
use crate::ModelConfig;
use crate::config::gguf;
use crate::with_tokenizer_json;

/// Version of ggml's block formats; unchanged since 2023.
const QUANTIZATION_VERSION: u32 = 2;

/// Temperature in GGUF and in `generation_config.json`, where 0 is `do_sample: false`.
const TEMPERATURE: (&str, &str) = ("general.sampling.temp", "temperature");
/// GGUF's keys for other sampling settings and those of `generation_config.json`. llama.cpp defines the
/// first three keys, Ollama the rest.
const SAMPLING: [(&str, &str); 6] = [
    ("general.sampling.top_p", "top_p"),
    ("general.sampling.min_p", "min_p"),
    ("general.sampling.penalty_repeat", "repetition_penalty"),
    ("general.sampling.typ_p", "typical_p"),
    ("general.sampling.penalty_present", "presence_penalty"),
    ("general.sampling.penalty_freq", "frequency_penalty"),
];
const SAMPLING_TOP_K: (&str, &str) = ("general.sampling.top_k", "top_k");

/// The metadata of a GGUF file whose tensors get other formats.
pub(super) fn requantised(source: &Metadata, recipe: Recipe) -> Metadata {
    let mut out = source.clone();
    // The result is one file.
    out.retain(|key| !key.starts_with("split."));
    set_formats(&mut out, recipe);
    out
}

fn set_formats(out: &mut Metadata, recipe: Recipe) {
    if let Some(file_type) = recipe.file_type() {
        out.insert("general.file_type", file_type);
    }
    out.insert("general.quantization_version", QUANTIZATION_VERSION);
}

/// The metadata of a model that came from a Hugging Face folder, with notes on missing parts.
pub(super) fn from_hf(
    checkpoint: &Checkpoint,
    config: &ModelConfig,
    recipe: Recipe,
) -> Result<(Metadata, Vec<String>), Error> {
    let mut out = Metadata::new();
    let mut notes = Vec::new();
    let written = gguf::write(config)?;
    // Readers expect the architecture before its keys.
    if let Some(architecture) = written.get("general.architecture") {
        out.insert("general.architecture", architecture.clone());
    }
    out.insert("general.type", "model");
    out.insert("general.name", model_name(checkpoint));
    for (key, value) in written.iter() {
        out.insert(key, value.clone());
    }
    if let Some(encoder) = config.encoder.as_ref().filter(|e| e.n_token_types > 0) {
        // llama.cpp asks for it, though it uses only the first.
        let n_types = u32::try_from(encoder.n_token_types).unwrap_or(u32::MAX);
        out.insert("tokenizer.ggml.token_type_count", n_types);
    }
    set_formats(&mut out, recipe);
    let Some(files) = checkpoint.hf() else {
        return Ok((out, notes));
    };
    if let Some(generation) = &files.generation_config {
        put_sampling(&mut out, generation);
    }
    let with_tokenizer = with_tokenizer_json(files).map_err(|error| Error::Tokenizer {
        file: checkpoint.name().to_owned(),
        reason: error.to_string(),
    })?;
    match &with_tokenizer.tokenizer_json {
        Some(json) => {
            let source = tokenizer::TokenizerFolder {
                file: checkpoint.name(),
                json,
                files: &with_tokenizer,
            };
            let (entries, lost) = source.to_gguf(config.vocab_size)?;
            for (key, value) in entries {
                out.insert(key, value);
            }
            notes.extend(lost);
        }
        None => {
            out.insert("tokenizer.ggml.model", "no_vocab");
            notes.push(
                "the folder has no tokenizer.json: the result has no tokenizer and runs on token \
                 numbers only"
                    .to_owned(),
            );
        }
    }
    put_templates(&mut out, files);
    Ok((out, notes))
}

/// The chat template, and those with names where `tokenizer_config.json` lists several. A separate file
/// takes the place of all.
fn put_templates(out: &mut Metadata, files: &hf::Files) {
    if let Some(template) = &files.chat_template {
        out.insert("tokenizer.chat_template", template.as_str());
    }
    let config = files.tokenizer_config.as_ref();
    let list = config.and_then(|config| config.get("chat_template")?.as_array());
    let named = list.into_iter().flatten();
    let named =
        named.filter_map(|entry| Some((entry["name"].as_str()?, entry["template"].as_str()?)));
    let (usual, named): (Vec<_>, Vec<_>) = named.partition(|(name, _)| *name == "default");
    if usual.first().map(|(_, source)| *source) != files.chat_template.as_deref()
        || named.is_empty()
    {
        return;
    }
    let names: Vec<String> = named.iter().map(|(name, _)| (*name).to_owned()).collect();
    out.insert("tokenizer.chat_templates", names);
    for (name, source) in named {
        out.insert(format!("tokenizer.chat_template.{name}"), source);
    }
}

/// A name for the model: that of its folder.
fn model_name(checkpoint: &Checkpoint) -> String {
    let folder = checkpoint.files().first().and_then(|file| file.parent());
    // `canonicalize` gives `.` a name.
    let folder = folder.and_then(|folder| Path::canonicalize(folder).ok());
    let name = folder.as_deref().and_then(Path::file_name);
    name.map_or_else(
        || "model".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn put_sampling(out: &mut Metadata, generation: &serde_json::Value) {
    let number = |name: &str| generation.get(name).and_then(serde_json::Value::as_f64);
    let temperature = match generation.get("do_sample") == Some(&json!(false)) {
        true => Some(0.0),
        false => number(TEMPERATURE.1),
    };
    if let Some(temperature) = temperature {
        out.insert(TEMPERATURE.0, temperature as f32);
    }
    if let Some(top_k) = generation
        .get(SAMPLING_TOP_K.1)
        .and_then(serde_json::Value::as_i64)
        && let Ok(top_k) = i32::try_from(top_k)
    {
        out.insert(SAMPLING_TOP_K.0, top_k);
    }
    for (key, name) in SAMPLING {
        if let Some(value) = number(name) {
            out.insert(key, value as f32);
        }
    }
}

/// The sampling settings of GGUF metadata, in the form of `generation_config.json`.
pub(super) fn generation_config(
    source: &Metadata,
) -> Result<Map<String, serde_json::Value>, Error> {
    let mut out = Map::new();
    if let Some(top_k) = source.get_i32(SAMPLING_TOP_K.0)? {
        out.insert(SAMPLING_TOP_K.1.to_owned(), json!(top_k));
    }
    let temperature = source.get_f32(TEMPERATURE.0)?;
    let is_greedy = temperature == Some(0.0);
    let all = [TEMPERATURE].into_iter().chain(SAMPLING);
    for (key, name) in all.filter(|(key, _)| !(is_greedy && *key == TEMPERATURE.0)) {
        if let Some(value) = source.get_f32(key)? {
            // The double that prints as the single-precision number does.
            let value = value.to_string().parse().unwrap_or(f64::from(value));
            out.insert(name.to_owned(), json!(value));
        }
    }
    if !out.is_empty() {
        out.insert("do_sample".to_owned(), json!(true));
    }
    if is_greedy {
        out.insert("do_sample".to_owned(), json!(false));
    }
    Ok(out)
}

/// Keys and values to be added to GGUF metadata.
pub(super) type MetadataEntries = Vec<(&'static str, GgufValue)>;
