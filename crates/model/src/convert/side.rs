//! Everything of the result that is not a tensor: GGUF metadata, or the files beside the weights.

use std::path::{Path, PathBuf};

use millrace_format::Checkpoint;
use millrace_format::gguf::Metadata;
use millrace_quant::DType;
use serde_json::{Map, Value, json};

use super::tokenizer::to_hf;
use super::{ConversionTarget, Error, OutputContainer, metadata, sentence};
use crate::ModelConfig;
use crate::arch;
use crate::config::hf;

/// Files of a Hugging Face folder that do not depend on the weights.
const UNCHANGED_FILES: [&str; 11] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "preprocessor_config.json",
];

/// Entries of `config.json` that do not affect the graph but that programs look for.
const KEPT_KEYS: [&str; 4] = [
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    crate::ranking::JUDGE_MARK,
];

/// Contents of a side file.
#[derive(Debug)]
pub(super) enum Contents {
    Bytes(Vec<u8>),
    /// The bytes of another file.
    Copy(PathBuf),
}

/// The result's metadata and side files.
#[derive(Debug, Default)]
pub(super) struct SideOutput {
    /// Metadata of a GGUF file.
    pub(super) metadata: Option<Metadata>,
    /// Files of a folder: name, which may lead into a folder within it, and contents.
    pub(super) files: Vec<(String, Contents)>,
    /// Parts that the result lacks, for the user.
    pub(super) notes: Vec<String>,
    /// Tensors of the source that side files hold.
    pub(super) taken: Vec<String>,
    /// `config.json` of a folder; empty of a GGUF file.
    pub(super) config: Map<String, Value>,
}

impl SideOutput {
    fn put(&mut self, name: &str, text: String) {
        let contents = Contents::Bytes(text.into_bytes());
        self.files.push((name.to_owned(), contents));
    }

    fn set_config(&mut self, config: Value) {
        if let Value::Object(words) = config {
            self.config = words;
        }
    }

    /// Puts `config.json` among the files, once all of its entries are known.
    pub(super) fn put_config(&mut self) {
        if !self.config.is_empty() {
            let config = Value::Object(std::mem::take(&mut self.config));
            self.put_json("config.json", &config);
        }
    }

    pub(super) fn put_json(&mut self, name: &str, value: &Value) {
        self.put(name, format!("{value:#}\n"));
    }
}

/// Inputs of side files.
pub(super) struct SideFiles<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) config: &'a ModelConfig,
    pub(super) target: ConversionTarget,
    /// Whether source and result follow the same conventions, so that `config.json` stays true.
    pub(super) same_layout: bool,
}

impl SideFiles<'_> {
    pub(super) fn plan(&self) -> Result<SideOutput, Error> {
        let mut side = SideOutput::default();
        match (self.target.container, self.checkpoint.gguf()) {
            (OutputContainer::Gguf, Some(source)) => {
                side.metadata = Some(metadata::requantised(source, self.target.recipe));
            }
            (OutputContainer::Gguf, None) => {
                let metadata = metadata::from_hf(self.checkpoint, self.config, self.target.recipe);
                let (metadata, notes) = metadata?;
                side.metadata = Some(metadata);
                side.notes = notes;
            }
            (_, Some(source)) => self.folder_from_gguf(source, &mut side)?,
            (_, None) => self.folder_from_folder(&mut side)?,
        }
        Ok(side)
    }

    fn folder_from_folder(&self, side: &mut SideOutput) -> Result<(), Error> {
        let source = self.checkpoint.hf().and_then(|files| files.config.as_ref());
        let config = match (source, self.same_layout) {
            (Some(source), true) => self.with_dtype(self.unpacked(source.clone())),
            (source, _) => self.new_config(source)?,
        };
        side.set_config(config);
        let first = self.checkpoint.files().first();
        let folder = first.and_then(|file| file.parent());
        let folder = folder.unwrap_or(Path::new("."));
        for name in UNCHANGED_FILES.into_iter().chain(sentence::FILES) {
            let path = folder.join(name);
            if path.is_file() {
                side.files.push((name.to_owned(), Contents::Copy(path)));
            }
        }
        sentence::copy(self.checkpoint, folder, side);
        Ok(())
    }

    fn folder_from_gguf(&self, source: &Metadata, side: &mut SideOutput) -> Result<(), Error> {
        let parts = to_hf::build(source, self.checkpoint.name())?;
        let mut config = self.new_config(None)?;
        merge(&mut config, parts.token_ids.clone());
        sentence::mark_judge(self.checkpoint, source, &mut config, side)?;
        side.set_config(config);
        let mut generation = metadata::generation_config(source)?;
        generation.extend(parts.token_ids);
        if !generation.is_empty() {
            side.put_json("generation_config.json", &Value::Object(generation));
        }
        side.notes.extend(parts.notes);
        if let Some(tokenizer) = &parts.tokenizer {
            // Hundreds of thousands of lines help no reader: not indented.
            side.put("tokenizer.json", tokenizer.to_string());
            let config = Value::Object(parts.tokenizer_config);
            side.put_json("tokenizer_config.json", &config);
        }
        if let Some(template) = parts.chat_template {
            side.put("chat_template.jinja", template);
        }
        sentence::put_into_folder(self.checkpoint, source, self.config.d_model, side)
    }

    /// A `config.json` of the language model alone.
    fn new_config(&self, source: Option<&Value>) -> Result<Value, Error> {
        let config = arch::by_name(self.config.family).in_folders(self.config);
        let mut out = self.with_dtype(hf::write(&config)?);
        if let Some(source) = source {
            let found = KEPT_KEYS.iter().filter_map(|&key| {
                let value = source
                    .get(key)
                    .or_else(|| source.get("text_config")?.get(key))?;
                Some((key.to_owned(), value.clone()))
            });
            merge(&mut out, found.collect());
        }
        Ok(out)
    }

    /// The configuration without the packing of the source's matrices: the result's are not packed.
    fn unpacked(&self, mut config: Value) -> Value {
        let packing = self.checkpoint.hf().and_then(|files| files.packing());
        if packing.is_some_and(|packing| packing.is_ok()) {
            let text = config.get_mut("text_config").and_then(Value::as_object_mut);
            text.map(|text| text.remove("quantization_config"));
            config
                .as_object_mut()
                .map(|config| config.remove("quantization_config"));
        }
        config
    }

    /// The configuration with the type of the new weights, in the spelling it has.
    fn with_dtype(&self, mut config: Value) -> Value {
        let dtype = json!(match self.target.recipe.base() {
            DType::F32 => "float32",
            DType::F16 => "float16",
            _ => "bfloat16",
        });
        let key = if config.get("torch_dtype").is_some() {
            "torch_dtype"
        } else {
            "dtype"
        };
        config[key] = dtype.clone();
        if let Some(text) = config.get_mut("text_config") {
            for key in ["dtype", "torch_dtype"] {
                if text.get(key).is_some() {
                    text[key] = dtype.clone();
                }
            }
        }
        config
    }
}

fn merge(config: &mut Value, entries: Map<String, Value>) {
    for (key, value) in entries {
        config[key.as_str()] = value;
    }
}
