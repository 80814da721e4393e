//! A model on a device.

use crate::{Chat, Device, Error, Event, Model, Options, Prompt, PromptTokens, Result, Stream};
use millrace_runtime::vision::{EncodedImage, ImageReader, Pixels, VisionDevice};
use millrace_runtime::{
    BatchItem, Embedder, Engine, Generation, LogitsFor, Pooling, SeqId, SpeculationStats,
    Speculator, Turn, generate_batch, generate_each, image,
};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// A model on a device, made by [`Model::on`]. Clones are the same session, and any thread may use it. Calls take
/// turns step by step: streams of two threads advance side by side, and a [`batch`](Session::batch) shares every pass
/// over the weights.
#[derive(Clone)]
pub struct Session {
    model: Model,
    shared: Arc<SessionState>,
}

struct SessionState {
    name: String,
    n_ctx: usize,
    max_sequences: usize,
    /// The name of a draft model, which cannot read images.
    draft: Option<String>,
    core: Mutex<SessionCore>,
    /// Where a vision encoder's blocks run; set by the first image.
    encoder: OnceLock<VisionDevice>,
}

/// State that one step needs exclusively.
pub(crate) struct SessionCore {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) speculator: Option<Speculator>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = (self.model.name(), &self.shared.name);
        f.debug_tuple("Session").field(&names).finish()
    }
}

/// Logits of tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Logits {
    vocab_size: usize,
    data: Vec<f32>,
}

impl Logits {
    /// `[n_tokens, vocab_size]`, row-major: row `i` is for the token after token `i`.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// The same numbers, owned by the caller.
    pub fn into_data(self) -> Vec<f32> {
        self.data
    }

    /// Elements of a row.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// One row for each token of the prompt, in order.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = &[f32]> + ExactSizeIterator {
        self.data.chunks_exact(self.vocab_size)
    }
}

impl Session {
    pub(crate) fn open(model: &Model, device: &Device) -> Result<Session> {
        let engine = device.engine(model.loaded())?;
        let speculator = device.speculator(&*engine)?;
        let draft = device.draft_name().map(str::to_owned);
        Ok(Session::with(model, engine, speculator, draft))
    }

    /// A session over an existing engine of the model, and an optional speculator for it.
    pub fn over(model: &Model, engine: Box<dyn Engine>, speculator: Option<Speculator>) -> Session {
        Session::with(model, engine, speculator, None)
    }

    fn with(
        model: &Model,
        engine: Box<dyn Engine>,
        speculator: Option<Speculator>,
        draft: Option<String>,
    ) -> Session {
        let limits = engine.limits();
        Session {
            model: model.clone(),
            shared: Arc::new(SessionState {
                name: engine.name(),
                n_ctx: limits.n_ctx,
                max_sequences: limits.max_sequences,
                draft,
                core: Mutex::new(SessionCore { engine, speculator }),
                encoder: OnceLock::new(),
            }),
        }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Where it runs, for messages: `cpu (avx512)`.
    pub fn device_name(&self) -> &str {
        &self.shared.name
    }

    /// Tokens that a sequence may hold, prompt and answer together.
    pub fn n_ctx(&self) -> usize {
        self.shared.n_ctx
    }

    /// Sequences alive at a time.
    pub fn max_sequences(&self) -> usize {
        self.shared.max_sequences
    }

    /// Statistics of drafts so far; `None` for a session without drafts.
    pub fn speculation(&self) -> Option<SpeculationStats> {
        self.lock().speculator.as_ref().map(Speculator::stats)
    }

    /// Access to the engine, for operations that this crate does not have. Other calls of the session wait meanwhile;
    /// a call from within `work` would deadlock.
    pub fn with_engine<T>(&self, work: impl FnOnce(&mut dyn Engine) -> T) -> T {
        work(&mut *self.lock().engine)
    }

    /// Ignores a poisoned lock: the engine is consistent between steps, so it is also consistent after a panic.
    pub(crate) fn lock(&self) -> MutexGuard<'_, SessionCore> {
        let core = self.shared.core.lock();
        core.unwrap_or_else(PoisonError::into_inner)
    }

    /// Generates text after a prompt, sampled as the model's files recommend.
    ///
    /// # Errors
    /// A prompt that does not fit the context; errors of [`Model::prepare`]; a device that fails.
    pub fn generate(&self, prompt: impl Into<Prompt>) -> Result<Generation> {
        self.generate_with(prompt, &Options::new())
    }

    /// As [`generate`](Session::generate), with options.
    ///
    /// # Errors
    /// As [`generate`](Session::generate) and [`Options::params`].
    pub fn generate_with(
        &self,
        prompt: impl Into<Prompt>,
        options: &Options,
    ) -> Result<Generation> {
        self.stream(prompt, options)?.finish()
    }

    /// As [`generate_with`](Session::generate_with); `on_event` gets the events, with the text piece by piece. During
    /// events about images it must not use the session, which waits for it.
    ///
    /// # Errors
    /// As [`generate_with`](Session::generate_with).
    pub fn generate_events(
        &self,
        prompt: impl Into<Prompt>,
        options: &Options,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Generation> {
        let prepared = self.model.prepare(prompt)?;
        self.generate_prepared(prepared, options, on_event)
    }

    /// As [`generate_events`](Session::generate_events), for a prepared prompt.
    ///
    /// # Errors
    /// As [`generate_events`](Session::generate_events); a prompt of another model.
    pub fn generate_prepared(
        &self,
        prepared: PromptTokens,
        options: &Options,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Generation> {
        Stream::start(self, prepared, options, on_event)?.finish_events(on_event)
    }

    /// Text after a prompt as an iterator over its pieces. Before the first piece is requested, only the prompt's
    /// images are computed.
    ///
    /// # Errors
    /// As [`generate_with`](Session::generate_with).
    pub fn stream(&self, prompt: impl Into<Prompt>, options: &Options) -> Result<Stream> {
        let prepared = self.model.prepare(prompt)?;
        Stream::start(self, prepared, options, &mut |_| {})
    }

    /// Texts after many prompts, in their order: as many at a time as the session has sequences, computed together.
    /// Each equals the result of [`generate_with`](Session::generate_with) for its prompt alone; without a seed each
    /// takes a new one. Nothing is drafted, and other calls of the session wait until all are done.
    ///
    /// # Errors
    /// The first error of a prompt or a step: then no prompt has a result.
    pub fn batch<P: Into<Prompt>>(
        &self,
        prompts: impl IntoIterator<Item = P>,
        options: &Options,
    ) -> Result<Vec<Generation>> {
        let mut turns = Vec::new();
        for prompt in prompts {
            let prepared = self.model.prepare(prompt)?;
            turns.push(self.turn(prepared, options, &mut |_| {})?);
        }
        let cancel = options.cancel_handle().flag();
        let mut core = self.lock();
        let generations = generate_batch(&mut *core.engine, turns, cancel, &mut |_, _| {});
        Ok(generations?)
    }

    /// As [`batch`](Session::batch), but a prompt that fails has its error in its place, and the others their texts.
    ///
    /// # Errors
    /// Errors that belong to no single prompt: a step of the engine that fails.
    pub fn batch_each<P: Into<Prompt>>(
        &self,
        prompts: impl IntoIterator<Item = P>,
        options: &Options,
    ) -> Result<Vec<Result<Generation>>> {
        let (mut turns, mut refused) = (Vec::new(), Vec::new());
        for prompt in prompts {
            let prepared = self.model.prepare(prompt);
            let turn = prepared.and_then(|prepared| self.turn(prepared, options, &mut |_| {}));
            match turn {
                Ok(turn) => turns.push(turn),
                Err(error) => refused.push((turns.len() + refused.len(), error)),
            }
        }
        let cancel = options.cancel_handle().flag();
        let mut core = self.lock();
        let done = generate_each(&mut *core.engine, turns, cancel, &mut |_, _| {})?;
        let mut results: Vec<_> = done.into_iter().map(|one| Ok(one?)).collect();
        // Indices ascend, so each is right once the entries before it are inserted.
        for (index, error) in refused {
            results.insert(index, Err(error));
        }
        Ok(results)
    }

    /// A conversation, in the model's chat template.
    ///
    /// # Errors
    /// A model without a chat template; more chats and streams than the session has sequences.
    pub fn chat(&self) -> Result<Chat> {
        Chat::new(self)
    }

    /// The embedding of a text, `[d_model]` of length 1, pooled as the model's file says, else by the mean.
    ///
    /// # Errors
    /// A model or a device without embeddings; a text of no tokens, or of more than the context holds.
    pub fn embed(&self, text: &str) -> Result<Vec<f32>> {
        let pooling = Pooling::of(self.model.loaded())?;
        self.embed_with(text, pooling.unwrap_or(Pooling::Mean))
    }

    /// As [`embed`](Session::embed), with this pooling.
    ///
    /// # Errors
    /// As [`embed`](Session::embed).
    pub fn embed_with(&self, text: &str, pooling: Pooling) -> Result<Vec<f32>> {
        let tokens = self.model.tokenize(text)?;
        self.embed_tokens(&tokens, pooling, true)
    }

    /// The embedding of tokens, `[d_model]`: of length 1 with `normalize`, else unscaled.
    ///
    /// # Errors
    /// As [`embed`](Session::embed).
    pub fn embed_tokens(
        &self,
        tokens: &[u32],
        pooling: Pooling,
        normalize: bool,
    ) -> Result<Vec<f32>> {
        let embedder = Embedder::new(self.model.loaded())?;
        let mut core = self.lock();
        let embedding = embedder.pool(&mut *core.engine, tokens, pooling)?;
        Ok(match normalize {
            true => embedding.finish()?,
            false => embedding.unscaled()?,
        })
    }

    /// The logits after every token of a prompt.
    ///
    /// # Errors
    /// As [`generate`](Session::generate).
    pub fn logits(&self, prompt: impl Into<Prompt>) -> Result<Logits> {
        let mut prepared = self.model.prepare(prompt)?;
        self.read_images(&mut prepared, &Options::new(), &mut |_| {})?;
        let images = prepared.read.take().unwrap_or_default().images;
        let lease = Lease::new(self)?;
        let item = BatchItem::new(lease.seq, &prepared.tokens, LogitsFor::All);
        let item = item.with_images(&images);
        let output = self.lock().engine.compute(&[item])?;
        Ok(Logits {
            vocab_size: output.vocab_size(),
            data: output.logits(0).to_vec(),
        })
    }

    /// Encodes the images of a prompt, if that was not done. Callers who want its cost call it before
    /// [`generate_prepared`](Session::generate_prepared), which does it otherwise.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; a draft model, which cannot read images; a device that fails.
    pub fn read_images(
        &self,
        prepared: &mut PromptTokens,
        options: &Options,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<()> {
        if prepared.pixels.is_empty() || prepared.read.is_some() {
            return Ok(());
        }
        let start = Instant::now();
        let pixels: Vec<&Pixels> = prepared.pixels.iter().collect();
        let reader = self.model.image_reader()?;
        let mut read = crate::ImageReading::default();
        for encoded in self.encode(&reader, &pixels, options, on_event)? {
            read.push(encoded);
        }
        image::place(&mut prepared.tokens, &read.images)?;
        read.time = start.elapsed();
        prepared.read = Some(read);
        Ok(())
    }

    /// Runs the vision encoder over images.
    pub(crate) fn encode(
        &self,
        reader: &ImageReader,
        pixels: &[&Pixels],
        options: &Options,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Vec<EncodedImage>> {
        if let Some(draft) = self.shared.draft.clone() {
            return Err(Error::DraftImages { draft });
        }
        let core = self.lock();
        let engine = &*core.engine;
        let on = self.shared.encoder.get_or_init(|| reader.on(engine));
        if let VisionDevice::Cpu(Some(reason)) = on {
            let detail = format!("the vision encoder runs on the CPU: {reason}");
            on_event(Event::Detail(&detail));
        }
        let cancel = options.cancel_handle();
        let mut watch = |done, total| {
            on_event(Event::Images { done, total });
            match cancel.is_cancelled() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let encoded = reader.encode(on, engine.cpu(), pixels, &mut watch)?;
        encoded.ok_or(Error::Cancelled)
    }

    /// A turn after a prompt, with its images encoded.
    pub(crate) fn turn(
        &self,
        mut prepared: PromptTokens,
        options: &Options,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Turn> {
        let params = options.params(&self.model)?;
        // Checked before the vision encoder runs.
        let n_prompt = prepared.tokens.len();
        let fits = self
            .lock()
            .engine
            .check_context(n_prompt, params.least_tokens());
        fits?;
        self.read_images(&mut prepared, options, on_event)?;
        let turn = Turn::new(self.model.loaded(), &prepared.tokens, &params, self.n_ctx())?;
        let images = prepared.read.take().unwrap_or_default().images;
        Ok(turn.with_images(images))
    }
}

/// A sequence of a session, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    session: Session,
    pub(crate) seq: SeqId,
}

impl Lease {
    pub(crate) fn new(session: &Session) -> Result<Lease> {
        let seq = session.lock().engine.create()?;
        Ok(Lease {
            session: session.clone(),
            seq,
        })
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut core = self.session.lock();
        // The engine has it, since it was made here.
        let _ = core.engine.release(self.seq);
        if let Some(speculator) = &mut core.speculator {
            // This fails only if a draft engine fails, which the next draft reports.
            let _ = speculator.forget(self.seq);
        }
    }
}
