//! One sequence on an NPU.

use super::NpuError;
use super::attention::HeadMajorCache;
use super::counters::Counters;
use super::host::Values;
use super::model::NpuModel;
use super::observe::Observer;
use super::pass::Pass;
use crate::Error;
use half::slice::HalfFloatSliceExt;
use millrace_xdna2::lower::Chunk;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of the next session.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A sequence: tokens whose keys and values are cached, and what a pass needs.
///
/// After an error it is where the last complete step left it: the same call may be made again. What
/// it holds is the host's, so this is so even where the device was lost: once it is back, the next
/// call loads the model again, which takes as long as it did at first.
pub struct NpuSession {
    npu: Arc<NpuModel>,
    /// Tells it from others.
    id: u64,
    cache: HeadMajorCache,
    tokens: Vec<u32>,
    values: Values,
    logits: Vec<f32>,
    counters: Counters,
    observer: Option<Observer>,
}

impl NpuSession {
    /// An empty sequence.
    pub fn new(npu: &Arc<NpuModel>) -> NpuSession {
        let graph = &npu.model.model().graph;
        NpuSession {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            cache: HeadMajorCache::new(graph, npu.n_ctx(), npu.cache_rows()),
            tokens: Vec::new(),
            values: Values::new(graph),
            logits: Vec::new(),
            counters: Counters::default(),
            observer: None,
            npu: npu.clone(),
        }
    }

    /// The model.
    pub fn model(&self) -> &Arc<NpuModel> {
        &self.npu
    }

    /// Tokens whose keys and values are cached.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Bytes of the KV cache.
    pub fn kv_bytes(&self) -> u64 {
        self.cache.size_bytes()
    }

    /// What was done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Has `observer` called after every dispatch that ends well, or nothing. It sees what the device
    /// holds and changes no bit of it.
    pub fn observe(&mut self, observer: Option<Observer>) {
        self.observer = observer;
    }

    /// Cuts the sequence back to its first `len` tokens.
    pub fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
    }

    /// Appends a prompt, in chunks where it is longer than a plan; the logits `[vocab]` of its last
    /// token.
    ///
    /// # Errors
    /// An empty prompt, a token outside the vocabulary, more tokens than the context holds: nothing
    /// has changed then. A failed dispatch: whole chunks before it stay.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<&[f32], NpuError> {
        self.check(tokens)?;
        let mut rest = tokens;
        while !rest.is_empty() {
            let lengths = self.npu.lengths();
            let chunk = lengths.next(self.tokens.len() as u64, rest.len() as u64);
            let (tokens, after) = rest.split_at(chunk.n_tokens as usize);
            let done = self.chunk(tokens, chunk);
            self.npu.settle(done)?;
            rest = after;
        }
        Ok(&self.logits)
    }

    fn chunk(&mut self, tokens: &[u32], chunk: Chunk) -> Result<(), NpuError> {
        let npu = self.npu.clone();
        let _turn = npu.turn();
        let first = self.tokens.len();
        let prepared = npu.prefill(chunk)?;
        let mut padded = tokens.to_vec();
        padded.resize(chunk.n_padded as usize, npu.pad());
        Pass {
            npu: &npu,
            prepared: &prepared,
            tokens: &padded,
            n_real: tokens.len(),
            first,
            session: self.id,
            values: &mut self.values,
            cache: &mut self.cache,
            counters: &mut self.counters.prefill,
            observer: self.observer.as_mut(),
        }
        .run()?;
        self.commit(tokens)
    }

    /// Appends a token; its logits `[vocab]`.
    ///
    /// # Errors
    /// As [`prefill`](NpuSession::prefill).
    pub fn decode(&mut self, token: u32) -> Result<&[f32], NpuError> {
        self.check(&[token])?;
        let done = self.token(token);
        self.npu.settle(done)?;
        Ok(&self.logits)
    }

    fn token(&mut self, token: u32) -> Result<(), NpuError> {
        let npu = self.npu.clone();
        let _turn = npu.turn();
        let first = self.tokens.len();
        let prepared = npu.decode_at(first)?;
        Pass {
            npu: &npu,
            prepared: &prepared,
            tokens: &[token],
            n_real: 1,
            first,
            session: self.id,
            values: &mut self.values,
            cache: &mut self.cache,
            counters: &mut self.counters.decode,
            observer: self.observer.as_mut(),
        }
        .run()?;
        self.commit(&[token])
    }

    /// The pass is complete: its logits are read, and its tokens count.
    fn commit(&mut self, tokens: &[u32]) -> Result<(), NpuError> {
        let logits = self.npu.model.model().graph.logits;
        let logits = logits.map_or(&[][..], |value| self.values.get(value));
        let vocab_size = self.npu.model.model().config.vocab_size;
        if logits.len() != vocab_size {
            return Err(NpuError::plan(
                "logits",
                format!("{} of {vocab_size}", logits.len()),
            ));
        }
        self.logits.resize(vocab_size, 0.0);
        logits.convert_to_f32_slice(&mut self.logits);
        // One pass over the row finds NaN and infinities alike: 0 · x is 0 only for finite x.
        if self.logits.iter().map(|logit| logit * 0.0).sum::<f32>() != 0.0 {
            let position = self.tokens.len() + tokens.len() - 1;
            return Err(Error::NotFinite { position }.into());
        }
        self.tokens.extend_from_slice(tokens);
        Ok(())
    }

    fn check(&self, tokens: &[u32]) -> Result<(), NpuError> {
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt.into());
        }
        let vocab_size = self.npu.model.model().config.vocab_size;
        if let Some(&token) = tokens.iter().find(|token| **token as usize >= vocab_size) {
            return Err(Error::BadToken { token, vocab_size }.into());
        }
        self.check_context(tokens.len(), 0)
    }

    /// Whether so many tokens of prompt and answer fit behind what is held.
    ///
    /// # Errors
    /// [`Error::ContextOverflow`].
    pub fn check_context(&self, n_prompt: usize, n_new: usize) -> Result<(), NpuError> {
        let n_prompt = self.tokens.len() + n_prompt;
        let n_ctx = self.cache.max_tokens();
        if n_prompt.saturating_add(n_new) <= n_ctx {
            return Ok(());
        }
        let trained = self.npu.model.model().config.context_length;
        Err(Error::ContextOverflow {
            n_prompt,
            n_new,
            n_ctx,
            trained,
        }
        .into())
    }
}
