//! A checkpoint ready to run: its graph, tokenizer, chat template and sampling defaults.

mod draft;
mod rank;

use crate::host_memory::HostMemory;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_format::hf::Files;
use millrace_format::{Checkpoint, gguf};
use millrace_graph::{Graph, Weight, WeightId, WeightPart, WeightSource};
use millrace_model::derive::derive;
use millrace_model::{Model, with_tokenizer_json};
use millrace_text::{ChatTemplate, GgufVocab, Tokenizer};
use serde_json::{Value, json};

use crate::Error;
use crate::execute::PlanError;

/// A model with the text side from its files. The weights stay mapped, and nothing is copied except matrices that
/// a quantiser packed in a separate layout ([`millrace_format::Packing`]).
pub struct LoadedModel {
    checkpoint: Arc<Checkpoint>,
    model: Model,
    /// Bytes of weights that no tensor holds as the graph reads them, by weight.
    derived: Vec<Option<Arc<[u8]>>>,
    /// By weight, for a rank's weights that are parts of others.
    parts: Vec<Option<WeightPart>>,
    /// Whether the bytes of chosen experts are requested from the file before the product.
    reads_ahead: bool,
    /// Built on first use: token ids alone need none.
    tokenizer: Mutex<Option<Arc<Tokenizer>>>,
}

impl LoadedModel {
    /// Opens a GGUF file, a safetensors file or a model folder.
    ///
    /// # Errors
    /// Any fault of the file, or an architecture this build does not run.
    pub fn open(path: &Path) -> Result<LoadedModel, Error> {
        LoadedModel::from_checkpoint(Checkpoint::open(path)?)
    }

    /// Takes an open checkpoint.
    ///
    /// # Errors
    /// An architecture this build does not run; missing or misshapen tensors; an assistant, which runs with the model that
    /// it drafts for alone ([`open_draft`](LoadedModel::open_draft)).
    pub fn from_checkpoint(checkpoint: Checkpoint) -> Result<LoadedModel, Error> {
        let loaded = LoadedModel::from_draft_checkpoint(checkpoint)?;
        loaded.check_runs_alone()?;
        Ok(loaded)
    }

    fn with_model(checkpoint: Checkpoint, model: Model) -> Result<LoadedModel, Error> {
        let weights = model.graph.weights.iter();
        let derived = weights.map(|weight| bytes_of(&checkpoint, weight));
        let derived = derived.collect::<Result<Vec<_>, _>>()?;
        let usable = HostMemory::read().usable_bytes();
        Ok(LoadedModel {
            derived,
            reads_ahead: usable.is_some_and(|usable| checkpoint.size_bytes() > usable),
            checkpoint: Arc::new(checkpoint),
            parts: Vec::new(),
            model,
            tokenizer: Mutex::new(None),
        })
    }

    /// The model for sequences of up to `n_ctx` tokens: a different one if that needs other RoPE
    /// frequencies ([`Model::for_context`]). Weights are shared.
    pub(crate) fn for_context(model: Arc<LoadedModel>, n_ctx: usize) -> Arc<LoadedModel> {
        let Some(other) = model.model.for_context(n_ctx) else {
            return model;
        };
        let tokenizer = model
            .tokenizer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::new(LoadedModel {
            checkpoint: Arc::clone(&model.checkpoint),
            reads_ahead: model.reads_ahead,
            model: other,
            derived: model.derived.clone(),
            parts: model.parts.clone(),
            tokenizer: Mutex::new(tokenizer.clone()),
        })
    }

    /// The model with a changed graph: with a user-defined op in it, for example.
    ///
    /// # Errors
    /// An invalid graph, or a weight that the checkpoint does not have in that shape and format.
    pub fn with_graph(mut self, change: impl FnOnce(&mut Graph)) -> Result<LoadedModel, Error> {
        change(&mut self.model.graph);
        millrace_graph::check(&self.model.graph).map_err(PlanError::from)?;
        let weights = self.model.graph.weights.iter().skip(self.derived.len());
        let derived = weights.map(|weight| bytes_of(&self.checkpoint, weight));
        let derived = derived.collect::<Result<Vec<_>, _>>()?;
        self.derived.extend(derived);
        for (id, weight) in self.model.graph.weights.iter().enumerate() {
            let matrices = (0..weight.n_experts).map(|expert| self.find(WeightId(id), expert));
            let n_bytes: usize = matrices.map(|found| found.map_or(0, <[u8]>::len)).sum();
            if n_bytes as u64 != weight.size_bytes() {
                let problem = format!(
                    "{}: {n_bytes} bytes in {}, the graph reads {}",
                    weight.name,
                    self.name(),
                    weight.size_bytes()
                );
                return Err(Error::Plan(PlanError::Weight(problem)));
            }
        }
        Ok(self)
    }

    /// Decodes the packed matrices that the graph reads, so that no pass waits for it.
    pub(crate) fn decode_packed(&self) {
        let weights = self.model.graph.weights.iter();
        // Derived ones are computed already.
        let weights = weights.filter(|weight| !matches!(weight.source, WeightSource::Derived(_)));
        for name in weights.flat_map(Weight::tensors) {
            if self.checkpoint.is_packed(&name) {
                self.checkpoint.tensor(&name);
            }
        }
    }

    /// Whether steps request the bytes of chosen experts from the file before they multiply them. The default is yes if all
    /// weights exceed the memory that this process may use ([`HostMemory`]). A token's experts are then often not in
    /// memory, and each page fault would wait separately. Results do not depend on it.
    pub fn with_read_ahead(mut self, reads_ahead: bool) -> LoadedModel {
        self.reads_ahead = reads_ahead;
        self
    }

    pub(crate) fn reads_ahead(&self) -> bool {
        self.reads_ahead
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Configuration and graph.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Its name for messages.
    pub fn name(&self) -> &str {
        self.checkpoint.name()
    }

    /// The bytes of a weight of one matrix or vector, in place in the file.
    ///
    /// # Panics
    /// As [`matrix_bytes`](LoadedModel::matrix_bytes).
    pub fn weight_bytes(&self, weight: WeightId) -> &[u8] {
        self.matrix_bytes(weight, 0)
    }

    /// The bytes of one matrix of a weight, in place in the file. `expert` is the index of the matrix.
    ///
    /// # Panics
    /// If the weight has fewer matrices.
    pub fn matrix_bytes(&self, weight: WeightId, expert: usize) -> &[u8] {
        let found = self.find(weight, expert);
        found.expect("the model was built from this checkpoint's tensors")
    }

    fn find(&self, id: WeightId, expert: usize) -> Option<&[u8]> {
        let weight = self.model.graph.weights.get(id.0)?;
        let of = |rows: usize, k: usize| weight.dtype.size_bytes(rows, k);
        let matrix_bytes = of(weight.n, weight.k)?;
        if let Some(derived) = self.derived.get(id.0)?.as_deref() {
            let at = expert * matrix_bytes;
            return derived.get(at..at.checked_add(matrix_bytes)?);
        }
        if let Some(part) = self.part(id) {
            let whole = self.find(part.of, part.matrix + expert)?;
            let at = rank::offset(weight, self.model.graph.weights.get(part.of.0)?, part)?;
            return whole.get(at..at.checked_add(matrix_bytes)?);
        }
        let (bytes, at) = match &weight.source {
            WeightSource::Experts(names) => (self.checkpoint.tensor(names.get(expert)?)?.bytes, 0),
            // It would be among the derived ones.
            WeightSource::Derived(_) => return None,
            WeightSource::Whole => {
                let bytes = self.checkpoint.tensor(&weight.name)?.bytes;
                (bytes, expert * matrix_bytes)
            }
            WeightSource::Rows { first, n_rows } => {
                let tensor = self.checkpoint.tensor(&weight.name)?;
                let at = match tensor.info.shape.len() {
                    // For a vector, elements.
                    1 => of(1, *first)?,
                    _ => of(expert * n_rows + first, weight.k)?,
                };
                (tensor.bytes, at)
            }
        };
        bytes.get(at..at.checked_add(matrix_bytes)?)
    }

    /// Gives back memory that reading these bytes of one of a weight's matrices took; they can be read again.
    pub(crate) fn release_weight(&self, (id, matrix): (WeightId, usize), bytes: Range<usize>) {
        let weight = &self.model.graph.weights[id.0];
        let of = |rows: usize, k: usize| weight.dtype.size_bytes(rows, k).unwrap_or(0);
        let first = match &weight.source {
            _ if self.part(id).is_some() => return,
            WeightSource::Whole => matrix * of(weight.n, weight.k),
            WeightSource::Rows { first, n_rows } => {
                let shape = self.checkpoint.tensor(&weight.name);
                let is_vector = shape.is_some_and(|tensor| tensor.info.shape.len() == 1);
                let (rows, k) = if is_vector {
                    (1, *first)
                } else {
                    (matrix * n_rows + first, weight.k)
                };
                of(rows, k)
            }
            // From several tensors, or from none.
            WeightSource::Experts(_) | WeightSource::Derived(_) => return,
        };
        let bytes = first + bytes.start..first + bytes.end;
        self.checkpoint.release(&weight.name, bytes);
    }

    /// The tokenizer; built on the first call.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`] if the files have none; [`Error::Text`] if this build does not
    /// support it.
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

    /// The chat template of the files, otherwise the usual one of the vocabulary or family.
    ///
    /// # Errors
    /// [`Error::Text`] if the template does not parse; [`Error::NoTemplate`] if there is none and
    /// none is usual; [`Error::NoTokenizer`].
    pub fn chat_template(&self) -> Result<ChatTemplate, Error> {
        let tokenizer = self.tokenizer()?;
        if let Some(metadata) = self.checkpoint.gguf() {
            let config = gguf_templates(metadata, &tokenizer)?;
            let origin = format!("of {}, tokenizer.chat_template", self.name());
            if let Some(template) = ChatTemplate::from_hf(&origin, Some(&config), None)? {
                return Ok(template);
            }
        } else if let Some(files) = self.checkpoint.hf() {
            let (config, source) = (
                files.tokenizer_config.as_ref(),
                files.chat_template.as_deref(),
            );
            // The configuration may have named templates besides the usual one.
            let source = source.filter(|source| Some(*source) != config.and_then(usual_template));
            let file = match source {
                Some(_) => "chat_template.jinja",
                None => "tokenizer_config.json",
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
}

/// The bytes of a weight that is derived.
fn bytes_of(
    checkpoint: &Checkpoint,
    weight: &Weight,
) -> Result<Option<Arc<[u8]>>, millrace_model::Error> {
    Ok(derive(checkpoint, weight)?.map(Arc::from))
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

/// The tokenizer of a folder's files, which need not hold a model; `None` without tokenizer.json, and without a vocabulary
/// and merges of a class that is known.
///
/// # Errors
/// [`Error::Text`].
pub fn tokenizer_of_files(files: &Files) -> Result<Option<Tokenizer>, Error> {
    let files = with_tokenizer_json(files)?;
    let Some(json) = files.tokenizer_json.as_deref() else {
        return Ok(None);
    };
    let mut tokenizer = Tokenizer::from_hf(json, files.tokenizer_config.as_ref())?;
    tokenizer.add_end_of_generation(&files.end_token_ids());
    Ok(Some(tokenizer))
}

/// The template of a `tokenizer_config.json`: the only one, or the usual one of several.
fn usual_template(config: &Value) -> Option<&str> {
    match config.get("chat_template")? {
        Value::Array(list) => {
            let usual = list.iter().find(|entry| entry["name"] == "default")?;
            usual["template"].as_str()
        }
        one => one.as_str(),
    }
}

/// The templates of GGUF metadata, and the tokens they write, in the form of a `tokenizer_config.json`.
/// A file may have named templates besides the usual one (`tokenizer.chat_templates` lists them).
fn gguf_templates(metadata: &gguf::Metadata, tokenizer: &Tokenizer) -> Result<Value, Error> {
    const KEY: &str = "tokenizer.chat_template";
    let text = |id: Option<u32>| id.map(|id| tokenizer.token_text(id));
    let padding = metadata.get_u32("tokenizer.ggml.padding_token_id")?;
    let mut templates = Vec::new();
    if let Some(source) = metadata.get_str(KEY)? {
        templates.push(json!({"name": "default", "template": source}));
    }
    let names = metadata.get_str_array("tokenizer.chat_templates")?;
    for name in names.unwrap_or_default() {
        if let Some(source) = metadata.get_str(&format!("{KEY}.{name}"))? {
            templates.push(json!({"name": name, "template": source}));
        }
    }
    let mut config = json!({
        "bos_token": text(tokenizer.bos()), "eos_token": text(tokenizer.eos()),
        "unk_token": text(tokenizer.unknown()), "pad_token": text(padding),
    });
    if !templates.is_empty() {
        config["chat_template"] = Value::Array(templates);
    }
    Ok(config)
}

/// The vocabulary in GGUF metadata; `None` without one.
fn gguf_vocab(metadata: &gguf::Metadata) -> Result<Option<GgufVocab<'_>>, Error> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let Some(tokens) = metadata.get_str_array(&key("tokens"))? else {
        return Ok(None);
    };
    let id = |name: &str| metadata.get_u32(&key(name));
    let flag = |name: &str| metadata.get_bool(&key(name));
    let merges = metadata.get_str_array(&key("merges"))?;
    Ok(Some(GgufVocab {
        model: metadata.get_str(&key("model"))?.unwrap_or_default(),
        pre: metadata.get_str(&key("pre"))?,
        tokens: tokens.iter().map(String::as_str).collect(),
        scores: metadata.get_f32_array(&key("scores"))?.unwrap_or_default(),
        token_types: metadata
            .get_i32_array(&key("token_type"))?
            .unwrap_or_default(),
        merges: merges.map(|merges| merges.iter().map(String::as_str).collect()),
        bos: id("bos_token_id")?,
        eos: id("eos_token_id")?,
        eot: id("eot_token_id")?,
        eom: id("eom_token_id")?,
        fill: [
            id("fim_pad_token_id")?,
            id("fim_rep_token_id")?,
            id("fim_sep_token_id")?,
        ],
        ends: metadata
            .get_u32_array(&key("eog_token_ids"))?
            .unwrap_or_default(),
        unk: id("unknown_token_id")?,
        cls: id("cls_token_id")?,
        sep: id("seperator_token_id")?,
        add_bos: flag("add_bos_token")?,
        add_eos: flag("add_eos_token")?,
        add_space_prefix: flag("add_space_prefix")?,
        remove_extra_whitespaces: flag("remove_extra_whitespaces")?,
        precompiled_charsmap: metadata
            .get_byte_array(&key("precompiled_charsmap"))?
            .unwrap_or_default(),
        lowercase: flag("normalizer.lowercase")?,
        strip_accents: flag("normalizer.strip_accents")?,
        metaspace_prepend_scheme: metadata.get_str(&key("metaspace_prepend_scheme"))?,
    }))
}
