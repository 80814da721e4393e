//! A checkpoint ready to run: its graph, tokenizer, chat template and sampling defaults.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use millrace_format::hf::Files;
use millrace_format::{Checkpoint, gguf};
use millrace_model::Model;
use millrace_model::graph::WeightId;
use millrace_text::{ChatTemplate, GgufVocab, Tokenizer};

use crate::{Error, SamplingParams};

/// A model with the text side its files carry. The weights stay mapped; nothing is copied.
pub struct LoadedModel {
    checkpoint: Checkpoint,
    model: Model,
    /// Built when first asked for: token ids alone need none.
    tokenizer: Mutex<Option<Arc<Tokenizer>>>,
}

impl LoadedModel {
    /// Opens a GGUF file, a safetensors file or a model folder.
    ///
    /// # Errors
    /// Whatever is wrong with the file, or an architecture this build does not run.
    pub fn open(path: &Path) -> Result<LoadedModel, Error> {
        LoadedModel::from_checkpoint(Checkpoint::open(path)?)
    }

    /// Takes an open checkpoint.
    ///
    /// # Errors
    /// An architecture this build does not run; missing or misshapen tensors.
    pub fn from_checkpoint(checkpoint: Checkpoint) -> Result<LoadedModel, Error> {
        let model = Model::from_checkpoint(&checkpoint)?;
        Ok(LoadedModel {
            checkpoint,
            model,
            tokenizer: Mutex::new(None),
        })
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Configuration and graph.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What to call it in messages.
    pub fn name(&self) -> &str {
        self.checkpoint.name()
    }

    /// The bytes of a weight, where they lie in the file.
    pub(crate) fn weight_bytes(&self, weight: WeightId) -> &[u8] {
        let name = &self.model.graph.weights[weight.0].name;
        let tensor = self.checkpoint.tensor(name);
        tensor
            .expect("the model was built from this checkpoint's tensors")
            .bytes
    }

    /// Gives back memory that reading these bytes of a weight took; they can be read again.
    pub(crate) fn release_weight(&self, weight: WeightId, bytes: Range<usize>) {
        let name = &self.model.graph.weights[weight.0].name;
        self.checkpoint.release(name, bytes);
    }

    /// The tokenizer; built at the first call.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`] if the files carry none; [`Error::Text`] if it is one that this build
    /// does not know.
    pub fn tokenizer(&self) -> Result<Arc<Tokenizer>, Error> {
        let mut slot = self
            .tokenizer
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(tokenizer) = &*slot {
            return Ok(Arc::clone(tokenizer));
        }
        let tokenizer = Arc::new(tokenizer_of(&self.checkpoint)?);
        *slot = Some(Arc::clone(&tokenizer));
        Ok(tokenizer)
    }

    /// The chat template of the files, else the usual one of the vocabulary or family.
    ///
    /// # Errors
    /// [`Error::Text`] if the template does not parse; [`Error::NoTemplate`] if there is none and
    /// none is usual; [`Error::NoTokenizer`].
    pub fn chat_template(&self) -> Result<ChatTemplate, Error> {
        let tokenizer = self.tokenizer()?;
        let text = |id: Option<u32>| id.map(|id| tokenizer.token_text(id));
        let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos()));
        if let Some(metadata) = self.checkpoint.gguf() {
            if let Some(source) = metadata.get_str("tokenizer.chat_template")? {
                let origin = format!("of {}, tokenizer.chat_template", self.name());
                return Ok(ChatTemplate::new(&origin, source, bos, eos)?);
            }
        } else if let Some(files) = self.checkpoint.hf() {
            let (config, source) = (
                files.tokenizer_config.as_ref(),
                files.chat_template.as_deref(),
            );
            let in_config = config.and_then(|config| config.get("chat_template")?.as_str());
            let file = match source {
                Some(source) if in_config != Some(source) => "chat_template.jinja",
                _ => "tokenizer_config.json",
            };
            let origin = format!("of {}, {file}", self.name());
            if let Some(template) = ChatTemplate::from_hf(&origin, config, source)? {
                return Ok(template);
            }
        }
        let family = self.model.config.family;
        let usual = ChatTemplate::default_for(&tokenizer, Some(family));
        usual.ok_or_else(|| Error::NoTemplate {
            model: self.name().to_owned(),
        })
    }

    /// The sampling the model's authors recommend, where the files say.
    ///
    /// # Errors
    /// [`Error::Format`] if a value has the wrong type.
    pub fn recommended_sampling(&self) -> Result<Option<SamplingParams>, Error> {
        let mut found = Recommended::default();
        if let Some(metadata) = self.checkpoint.gguf() {
            found.temperature = metadata.get_f32("general.sampling.temp")?;
            found.top_k = metadata
                .get_u32("general.sampling.top_k")?
                .map(|k| k as usize);
            found.top_p = metadata.get_f32("general.sampling.top_p")?;
            found.min_p = metadata.get_f32("general.sampling.min_p")?;
        } else if let Some(config) = self
            .checkpoint
            .hf()
            .and_then(|files| files.generation_config.as_ref())
        {
            if config["do_sample"] == serde_json::Value::Bool(false) {
                return Ok(None);
            }
            let number = |key: &str| config[key].as_f64().map(|value| value as f32);
            found.temperature = number("temperature");
            found.top_k = config["top_k"].as_u64().map(|k| k as usize);
            found.top_p = number("top_p");
            found.min_p = number("min_p");
        }
        Ok(found.params())
    }
}

/// The tokenizer of a checkpoint: of any architecture, with or without weights.
///
/// # Errors
/// [`Error::NoTokenizer`], [`Error::Text`], [`Error::Format`].
pub fn tokenizer_of(checkpoint: &Checkpoint) -> Result<Tokenizer, Error> {
    let missing = || Error::NoTokenizer {
        model: checkpoint.name().to_owned(),
    };
    if let Some(metadata) = checkpoint.gguf() {
        let vocab = gguf_vocab(metadata)?.ok_or_else(missing)?;
        return Ok(Tokenizer::from_gguf(vocab)?);
    }
    let files = checkpoint.hf().ok_or_else(missing)?;
    tokenizer_of_files(files)?.ok_or_else(missing)
}

/// The tokenizer of a folder's files, which need not hold a model; `None` without tokenizer.json.
///
/// # Errors
/// [`Error::Text`].
pub fn tokenizer_of_files(files: &Files) -> Result<Option<Tokenizer>, Error> {
    let Some(json) = files.tokenizer_json.as_deref() else {
        return Ok(None);
    };
    let mut tokenizer = Tokenizer::from_hf(json, files.tokenizer_config.as_ref())?;
    tokenizer.add_end_of_generation(&end_tokens(files.generation_config.as_ref()));
    Ok(Some(tokenizer))
}

/// The end tokens of a `generation_config.json`, which may list more than the tokenizer knows.
fn end_tokens(config: Option<&serde_json::Value>) -> Vec<u32> {
    let Some(ids) = config.map(|config| &config["eos_token_id"]) else {
        return Vec::new();
    };
    let as_id = |value: &serde_json::Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match ids.as_array() {
        Some(list) => list.iter().filter_map(as_id).collect(),
        None => as_id(ids).into_iter().collect(),
    }
}

/// What GGUF metadata says of the vocabulary; `None` without one.
fn gguf_vocab(metadata: &gguf::Metadata) -> Result<Option<GgufVocab<'_>>, Error> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let Some(tokens) = metadata.get_str_array(&key("tokens"))? else {
        return Ok(None);
    };
    let id = |name: &str| metadata.get_u32(&key(name));
    let flag = |name: &str| metadata.get_bool(&key(name));
    let merges = metadata.get_str_array(&key("merges"))?.unwrap_or_default();
    Ok(Some(GgufVocab {
        model: metadata.get_str(&key("model"))?.unwrap_or_default(),
        pre: metadata.get_str(&key("pre"))?,
        tokens: tokens.iter().map(String::as_str).collect(),
        scores: metadata.get_f32_array(&key("scores"))?.unwrap_or_default(),
        token_types: metadata
            .get_i32_array(&key("token_type"))?
            .unwrap_or_default(),
        merges: merges.iter().map(String::as_str).collect(),
        bos: id("bos_token_id")?,
        eos: id("eos_token_id")?,
        eot: id("eot_token_id")?,
        eom: id("eom_token_id")?,
        unk: id("unknown_token_id")?,
        add_bos: flag("add_bos_token")?,
        add_eos: flag("add_eos_token")?,
        add_space_prefix: flag("add_space_prefix")?,
    }))
}

#[derive(Default)]
struct Recommended {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
}

impl Recommended {
    /// `None` when nothing was said. A file may say anything: what makes no sense is left out.
    fn params(self) -> Option<SamplingParams> {
        let default = SamplingParams {
            temperature: 1.0,
            ..SamplingParams::default()
        };
        let params = SamplingParams {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_k: self.top_k.unwrap_or(default.top_k),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            ..default
        };
        let said = self.temperature.is_some() || self.top_k.is_some() || self.top_p.is_some();
        (said || self.min_p.is_some())
            .then_some(params)
            .filter(|params| params.check().is_ok())
    }
}
