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

/// A sequence by itself, on an engine of its own: for checks and measurements, which say what is a prompt
/// and what a token. Conversations hold a [`PlannedEngine`].
///
/// After an error it is where the last complete step left it: the same call may be made again. What
/// it holds is the host's, so this is so even where the device was lost: once it is back, the next
/// call loads the model again, which takes as long as it did at first.
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

    /// What was done so far.
    pub fn counters(&self) -> &DeviceCounters {
        self.engine.phases()
    }

    /// Has `observer` called after every dispatch that ends well, or nothing. It sees what the device
    /// holds and changes no bit of it.
    pub fn observe(&mut self, observer: Option<Observer>) {
        self.engine.observe(observer);
    }

    /// Has tokens take the experts that are given instead of their own choice, or their own again.
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

    /// Appends a prompt, in chunks where it is longer than a plan; the logits `[vocab]` of its last
    /// token.
    ///
    /// # Errors
    /// An empty prompt, a token outside the vocabulary, more tokens than the context holds: nothing
    /// has changed then. A failed dispatch: whole chunks before it stay.
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

    /// Whether so many tokens of prompt and answer fit behind what is held.
    ///
    /// # Errors
    /// [`Error::ContextOverflow`](crate::Error::ContextOverflow).
    pub fn check_context(&self, n_prompt: usize, n_new: usize) -> Result<(), NpuError> {
        let n_prompt = self.tokens().len().saturating_add(n_prompt);
        Ok(self.engine.check_context(n_prompt, n_new)?)
    }
}
