//! A model that was opened, and its public properties.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use millrace_runtime::npu::NpuModel;
use millrace_runtime::ranking::Ranker;
use millrace_runtime::{
    CpuOptions, Embedder, EmbeddingPrompts, Engine, EngineLimits, LoadedModel, LoraAdapter,
    Pooling, Speculator,
};
use millrace_text::{ChatTemplate, Tokenizer};

use crate::grammar::GrammarFactory;
use crate::vision::Vision;

/// Opens a model on a device. It is called on the scheduler's own thread, once for each loading.
pub type EngineFactory = Arc<dyn Fn() -> Result<EngineSetup, String> + Send + Sync>;

/// Result of an [`EngineFactory`].
pub struct EngineSetup {
    /// The engine.
    pub engine: Box<dyn Engine>,
    /// The speculator that drafts for it, if there is one.
    pub speculator: Option<Speculator>,
    /// File of the vision encoder, if it is neither the model's own nor the one beside it.
    pub mmproj: Option<PathBuf>,
    /// The adapters that [`ModelSpec::adapters`](crate::ModelSpec::adapters) names, in that order.
    pub adapters: Vec<Arc<LoraAdapter>>,
}

impl From<Box<dyn Engine>> for EngineSetup {
    fn from(engine: Box<dyn Engine>) -> EngineSetup {
        EngineSetup {
            engine,
            speculator: None,
            mmproj: None,
            adapters: Vec::new(),
        }
    }
}

/// Properties of a running model.
pub struct ModelInfo {
    /// The model.
    pub model: Arc<LoadedModel>,
    /// Its tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Its chat template, or the reason why there is none.
    pub template: Result<ChatTemplate, String>,
    /// Limits that the engine was set up with.
    pub limits: EngineLimits,
    /// Number of tokens that a sequence can hold when it is alone.
    pub capacity_tokens: usize,
    /// The engine's name, such as `cpu (avx512)`.
    pub device: String,
    /// Compiles grammars for this vocabulary.
    pub grammars: GrammarFactory,
    /// The embedder, with the pooling from the model's file; or the reason why there is none.
    pub embedder: Result<(Arc<Embedder>, Option<Pooling>), String>,
    /// Prefixes for texts to embed.
    pub embedding_prompts: EmbeddingPrompts,
    /// The ranker, or the reason why there is none.
    pub ranker: Result<Arc<Ranker>, String>,
    /// Its adapters.
    pub adapters: Vec<Arc<LoraAdapter>>,
    /// The vision encoder, opened with the first image; or the reason why there is none.
    pub(crate) vision: OnceLock<Result<Vision, String>>,
    mmproj: Option<PathBuf>,
    /// The engine's threads and level, and its device.
    cpu: CpuOptions,
    npu: Option<Arc<NpuModel>>,
}

impl ModelInfo {
    /// Collects the properties of an opened model.
    ///
    /// # Errors
    /// A model without a tokenizer, or an engine without room.
    pub(super) fn of(opened: &EngineSetup) -> Result<ModelInfo, String> {
        let engine = &*opened.engine;
        let model = Arc::clone(engine.model());
        let tokenizer = model.tokenizer().map_err(|error| error.to_string())?;
        let limits = engine.limits();
        let capacity_tokens = engine.room(&[], 1).map_err(|error| error.to_string())?;
        let vocab_size = model.model().config.vocab_size;
        Ok(ModelInfo {
            template: model.chat_template().map_err(|error| error.to_string()),
            grammars: GrammarFactory::new(Arc::clone(&tokenizer), vocab_size),
            tokenizer,
            limits,
            capacity_tokens,
            device: engine.name(),
            ranker: match engine.device_model() {
                Some(_) => Err("a device makes no hidden states to rank by".to_owned()),
                None => Ranker::of(&model)
                    .map(Arc::new)
                    .map_err(|error| error.to_string()),
            },
            embedder: embedder(engine, &model),
            embedding_prompts: EmbeddingPrompts::of(&model).map_err(|error| error.to_string())?,
            model,
            vision: OnceLock::new(),
            mmproj: opened.mmproj.clone(),
            adapters: opened.adapters.clone(),
            cpu: CpuOptions {
                n_threads: Some(engine.cpu().pool().n_threads()),
                level: Some(engine.cpu().level()),
            },
            npu: engine.device_model().cloned(),
        })
    }

    /// Whether it is an encoder, which reads a text at once and generates none.
    pub(crate) fn reads_whole(&self) -> bool {
        self.model.model().config.encoder.is_some()
    }

    /// The vision encoder of the model.
    ///
    /// # Errors
    /// The reason why images cannot be read.
    pub(crate) fn vision(&self) -> Result<&Vision, String> {
        let (mmproj, npu) = (self.mmproj.as_deref(), self.npu.as_ref());
        let open = || Vision::open(&self.model, mmproj, self.cpu.clone(), npu);
        self.vision
            .get_or_init(open)
            .as_ref()
            .map_err(String::clone)
    }
}

/// A model's embedder, or the reason why there is none.
fn embedder(
    engine: &dyn Engine,
    model: &LoadedModel,
) -> Result<(Arc<Embedder>, Option<Pooling>), String> {
    if engine.device_model().is_some() {
        return Err(format!(
            "{} makes no embeddings: a device's programs keep the states between blocks to themselves; serve the \
             model without --device",
            engine.name()
        ));
    }
    let embedder = Embedder::new(model).map_err(|error| error.to_string())?;
    let pooling = Pooling::of(model).map_err(|error| error.to_string())?;
    Ok((Arc::new(embedder), pooling))
}
