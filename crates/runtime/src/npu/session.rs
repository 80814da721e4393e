//! One sequence on an NPU.

use super::NpuError;
use super::counters::DeviceCounters;
use super::engine::{PlannedEngine, Purpose};
use super::given::GivenExperts;
use super::model::NpuModel;
use super::observe::Observer;
use crate::engine::{BatchItem, Engine, LogitsFor};
use crate::sequences::SeqId;
use std::sync::Arc;

/// A single sequence on its own engine, for checks and measurements. The caller says which tokens are a
/// prompt and which are decoded. Conversations use a [`PlannedEngine`].
///
/// After an error it stays at its last complete step: the same call may be made again. Its contents
/// are on the host, so this holds even if the device was lost. Once the device is back, the next
/// call loads the model again, which takes as long as the first load.
pub struct NpuSession {
    engine: PlannedEngine,
    seq: SeqId,
    logits: Vec<f32>,
}

impl NpuSession {
    /// An empty sequence.
    ///
    /// # Errors
    /// As [`PlannedEngine::new`].
    pub fn new(npu: &Arc<NpuModel>) -> Result<NpuSession, NpuError> {
        let mut engine = PlannedEngine::new(npu)?;
        Ok(NpuSession {
            seq: engine.create()?,
            engine,
            logits: Vec::new(),
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<NpuModel> {
        self.engine.npu()
    }

    /// The engine it runs on.
    pub fn engine(&self) -> &PlannedEngine {
        &self.engine
    }

    /// Tokens whose keys and values are cached.
    pub fn tokens(&self) -> &[u32] {
        self.engine.tokens(self.seq).unwrap_or_default()
    }

    /// Bytes of the KV cache.
    pub fn kv_bytes(&self) -> u64 {
        self.engine.kv_usage().used_bytes as u64
    }

    /// Counters so far.
    pub fn counters(&self) -> &DeviceCounters {
        self.engine.phases()
    }

    /// Sets the observer called after every dispatch that ends well, or removes it. It sees the
    /// device's contents and changes no bit of them.
    pub fn observe(&mut self, observer: Option<Observer>) {
        self.engine.observe(observer);
    }

    /// Makes tokens use the given experts instead of their own choice, or with `None` their own again.
    pub fn give_experts(&mut self, given: Option<Arc<GivenExperts>>) {
        self.engine.give_experts(given);
    }

    /// Cuts the sequence back to its first `len` tokens.
    ///
    /// # Errors
    /// As [`Engine::truncate`].
    pub fn truncate(&mut self, len: usize) -> Result<(), NpuError> {
        Ok(self.engine.truncate(self.seq, len)?)
    }

    /// Appends a prompt, in chunks if it is longer than a plan; returns the logits `[vocab]` of its
    /// last token.
    ///
    /// # Errors
    /// An empty prompt, a token outside the vocabulary, more tokens than the context holds: then
    /// nothing has changed. A failed dispatch: whole chunks before it are kept.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<&[f32], NpuError> {
        self.append(tokens, Purpose::Prompt, LogitsFor::Last)
    }

    /// The same with the logits of all its tokens, `[n_tokens, vocab]`.
    ///
    /// # Errors
    /// As [`prefill`](NpuSession::prefill).
    pub fn prefill_all(&mut self, tokens: &[u32]) -> Result<&[f32], NpuError> {
        self.append(tokens, Purpose::Prompt, LogitsFor::All)
    }

    /// Appends a token; its logits `[vocab]`.
    ///
    /// # Errors
    /// As [`prefill`](NpuSession::prefill).
    pub fn decode(&mut self, token: u32) -> Result<&[f32], NpuError> {
        self.append(&[token], Purpose::Token, LogitsFor::Last)
    }

    fn append(
        &mut self,
        tokens: &[u32],
        purpose: Purpose,
        wanted: LogitsFor,
    ) -> Result<&[f32], NpuError> {
        let item = BatchItem::new(self.seq, tokens, wanted);
        self.engine.check_item(&item)?;
        let logits = &mut self.logits;
        logits.clear();
        let mut keep = |_, rows: &[f32]| logits.extend_from_slice(rows);
        self.engine.append(&item, purpose, &mut keep)?;
        Ok(&self.logits)
    }

    /// Whether that many tokens of prompt and answer fit after the present ones.
    ///
    /// # Errors
    /// [`Error::ContextOverflow`](crate::Error::ContextOverflow).
    pub fn check_context(&self, n_prompt: usize, n_new: usize) -> Result<(), NpuError> {
        let n_prompt = self.tokens().len().saturating_add(n_prompt);
        Ok(self.engine.check_context(n_prompt, n_new)?)
    }
}
