//! An open model.

use crate::{Device, Error, ModelFiles, OpenOptions, Prompt, PromptTokens, Result, Session};
use millrace_model::config::RopeScaling;
use millrace_runtime::LoadedModel;
use millrace_runtime::vision::{ImageReader, ReadOptions};
use millrace_text::EncodeOptions;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A model whose files are open. Weights stay mapped and are shared by clones and by all sessions. It is `Send` and
/// `Sync`.
///
/// ```
/// use millrace::Model;
///
/// # fn main() -> Result<(), millrace::Error> {
/// let model = Model::open("demo")?;
/// assert_eq!(model.name(), "demo");
/// let tokens = model.tokenize("Once upon a time")?;
/// assert_eq!(model.detokenize(&tokens)?, "Once upon a time");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Model {
    loaded: Arc<LoadedModel>,
    mmproj: Option<PathBuf>,
    reading: ReadOptions,
    /// Opened with the first image.
    reader: Arc<Mutex<Option<Arc<ImageReader>>>>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Model").field(&self.name()).finish()
    }
}

impl Model {
    /// Opens a model: `demo` (built in), a GGUF or safetensors file, a folder as transformers writes it, or a model of
    /// the Hugging Face Hub, `hf:OWNER/REPO[@REVISION][:QUANT]`, which is downloaded if it is not in the cache.
    ///
    /// # Errors
    /// [`Error::NoModel`](crate::Error::NoModel) with similar names; a file that is damaged; an architecture that is
    /// not supported; errors of the hub.
    pub fn open(name: &str) -> Result<Model> {
        Model::open_with(name, &OpenOptions::new())
    }

    /// As [`open`](Model::open), with options.
    ///
    /// # Errors
    /// As [`open`](Model::open); [`Error::Read`] for a vision encoder's file that cannot be read. That file is only
    /// opened here: it is read with the first image.
    pub fn open_with(name: &str, options: &OpenOptions) -> Result<Model> {
        if let Some(path) = &options.mmproj {
            let opened = File::open(path);
            opened.map_err(|source| Error::Read {
                path: path.clone(),
                source,
            })?;
        }
        let loaded = ModelFiles::find(name, options)?.load()?;
        Ok(Model::new(loaded, options))
    }

    /// Opens a model to draft with ([`Device::draft`]): any model, or the assistant of another one, which runs with that
    /// model alone.
    ///
    /// # Errors
    /// As [`open`](Model::open).
    pub fn open_draft(name: &str, options: &OpenOptions) -> Result<Model> {
        let loaded = ModelFiles::find(name, options)?.load_draft()?;
        Ok(Model::new(loaded, options))
    }

    /// A model whose files are already open. Only the options about images apply.
    pub fn new(loaded: Arc<LoadedModel>, options: &OpenOptions) -> Model {
        Model {
            loaded,
            mmproj: options.mmproj.clone(),
            reading: options.reading,
            reader: Arc::default(),
        }
    }

    /// Places the model on a device: `"cpu"`, or a name from [`Device::names`]; with settings, a [`Device`].
    ///
    /// # Errors
    /// [`Error::NoDevice`](crate::Error::NoDevice); settings that the device does not accept; a model that it cannot
    /// run; too little memory.
    pub fn on(&self, device: impl Into<Device>) -> Result<Session> {
        Session::open(self, &device.into())
    }

    /// Its name for messages.
    pub fn name(&self) -> &str {
        self.loaded.name()
    }

    /// Tokens of context that it was trained for.
    pub fn trained_context(&self) -> usize {
        self.loaded.model().config.context_length
    }

    /// Tokens of its vocabulary: elements of a row of logits.
    pub fn vocab_size(&self) -> usize {
        self.loaded.model().config.vocab_size
    }

    /// Elements of a hidden state and of an embedding.
    pub fn d_model(&self) -> usize {
        self.loaded.model().config.d_model
    }

    /// Base of the frequencies of RoPE; `None` where they are scaled, or differ by layer.
    pub fn rope_base(&self) -> Option<f32> {
        let config = &self.loaded.model().config;
        let is_plain = config.rope_local.is_none() && config.rope.scaling == RopeScaling::None;
        is_plain.then_some(config.rope.theta)
    }

    /// Parts of its files that are ignored or overruled, as sentences; empty for most models.
    pub fn warnings(&self) -> Vec<String> {
        millrace_model::warnings(self.loaded.checkpoint(), self.loaded.model())
    }

    /// The tokens of a text, with the tokens that the model adds around every text. Spelled-out control tokens are
    /// plain text.
    ///
    /// # Errors
    /// A model without a tokenizer, or with an unknown one.
    pub fn tokenize(&self, text: &str) -> Result<Vec<u32>> {
        let options = EncodeOptions {
            add_special: true,
            parse_special: false,
        };
        Ok(self.loaded.tokenizer()?.encode(text, options))
    }

    /// The text of tokens, without control tokens.
    ///
    /// # Errors
    /// As [`tokenize`](Model::tokenize).
    pub fn detokenize(&self, tokens: &[u32]) -> Result<String> {
        Ok(self.loaded.tokenizer()?.decode(tokens, true))
    }

    /// A prompt in tokens, with its images decoded and not yet encoded: the first step of every generation. Called
    /// directly, it shows the cost of a prompt before anything runs.
    ///
    /// # Errors
    /// A model without tokenizer, chat template or vision, where the prompt needs it; a prompt whose placeholders do
    /// not match its images.
    pub fn prepare(&self, prompt: impl Into<Prompt>) -> Result<PromptTokens> {
        PromptTokens::new(self, prompt.into())
    }

    /// The open files, with graph, tokenizer and template: for callers who drive an [engine](crate::engine)
    /// themselves.
    pub fn loaded(&self) -> &Arc<LoadedModel> {
        &self.loaded
    }

    /// The image reader of the model; opened at the first call.
    ///
    /// # Errors
    /// A model without vision, or the vision encoder of another model.
    pub fn image_reader(&self) -> Result<Arc<ImageReader>> {
        let mut slot = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = &*slot {
            return Ok(Arc::clone(reader));
        }
        let reader = ImageReader::open(&self.loaded, self.mmproj.as_deref(), self.reading)?;
        Ok(Arc::clone(slot.insert(Arc::new(reader))))
    }
}
