//! GGUF metadata of a converted model.

use std::path::Path;

use millrace_format::Checkpoint;
use millrace_format::gguf::{Metadata, Value};
use serde_json::{Map, json};

use super::tokenizer::from_hf as tokenizer;
use super::{Error, Recipe};
use crate::ModelConfig;
use crate::config::gguf;

/// Version of ggml's block formats; unchanged since 2023.
const QUANTIZATION_VERSION: u32 = 2;

/// GGUF's keys for sampling settings and those of `generation_config.json`.
const SAMPLING: [(&str, &str); 4] = [
    ("general.sampling.temp", "temperature"),
    ("general.sampling.top_p", "top_p"),
    ("general.sampling.min_p", "min_p"),
    ("general.sampling.penalty_repeat", "repetition_penalty"),
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

/// The metadata of a model that came from a Hugging Face folder, and what they lack.
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
    set_formats(&mut out, recipe);
    let Some(files) = checkpoint.hf() else {
        return Ok((out, notes));
    };
    if let Some(generation) = &files.generation_config {
        put_sampling(&mut out, generation);
    }
    match &files.tokenizer_json {
        Some(json) => {
            let source = tokenizer::Source {
                file: checkpoint.name(),
                json,
                files,
            };
            for (key, value) in source.to_gguf(config.vocab_size)? {
                out.insert(key, value);
            }
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
    if let Some(template) = &files.chat_template {
        out.insert("tokenizer.chat_template", template.as_str());
    }
    Ok((out, notes))
}

/// What to call the model: the name of its folder.
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
    // Without sampling the other settings have no effect.
    if generation.get("do_sample") == Some(&json!(false)) {
        return;
    }
    if let Some(top_k) = generation
        .get(SAMPLING_TOP_K.1)
        .and_then(serde_json::Value::as_i64)
        && let Ok(top_k) = i32::try_from(top_k)
    {
        out.insert(SAMPLING_TOP_K.0, top_k);
    }
    for (key, name) in SAMPLING {
        if let Some(value) = generation.get(name).and_then(serde_json::Value::as_f64) {
            out.insert(key, value as f32);
        }
    }
}

/// The sampling settings of GGUF metadata as `generation_config.json` has them.
pub(super) fn generation_config(
    source: &Metadata,
) -> Result<Map<String, serde_json::Value>, Error> {
    let mut out = Map::new();
    if let Some(top_k) = source.get_i32(SAMPLING_TOP_K.0)? {
        out.insert(SAMPLING_TOP_K.1.to_owned(), json!(top_k));
    }
    for (key, name) in SAMPLING {
        if let Some(value) = source.get_f32(key)? {
            // The double that prints as the single-precision number does.
            let value = value.to_string().parse().unwrap_or(f64::from(value));
            out.insert(name.to_owned(), json!(value));
        }
    }
    if !out.is_empty() {
        out.insert("do_sample".to_owned(), json!(true));
    }
    Ok(out)
}

/// Keys and values to be added to GGUF metadata.
pub(super) type Entries = Vec<(&'static str, Value)>;
