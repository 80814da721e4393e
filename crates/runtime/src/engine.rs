//! The engine: ragged batches in, logits out.

mod memory;

pub use memory::EngineMemory;

use std::ops::Range;
use std::sync::Arc;

use millrace_kernels::{Cpu, CpuOptions, KvType, Level};

use crate::Error;
use crate::exec::{Chunk, Executor, RunSpan, Sink};
use crate::kv::{KvCache, SeqId};
use crate::load::LoadedModel;

/// How an [`Engine`] is set up. The default suits one conversation.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Threads, the caller included; `None` takes the physical cores.
    pub n_threads: Option<usize>,
    /// Forces an instruction-set level; `None` takes the best.
    pub level: Option<Level>,
    /// Format of cached keys and values.
    pub kv_type: KvType,
    /// Tokens a sequence may hold; `None` takes the trained context, at most
    /// [`EngineOptions::DEFAULT_MAX_CTX`].
    pub n_ctx: Option<usize>,
    /// Sequences alive at a time.
    pub max_sequences: usize,
    /// Tokens all sequences together may hold; `None` takes `n_ctx · max_sequences`.
    pub kv_tokens: Option<usize>,
    /// Tokens one pass computes; longer prompts are cut into chunks. Results do not depend on it.
    pub max_chunk: usize,
}

impl EngineOptions {
    /// The longest context taken when none is asked for.
    pub const DEFAULT_MAX_CTX: usize = 8192;
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            n_threads: None,
            level: None,
            kv_type: KvType::F16,
            n_ctx: None,
            max_sequences: 1,
            kv_tokens: None,
            max_chunk: 512,
        }
    }
}

/// Which tokens of a [`BatchItem`] get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitsFor {
    /// None: the tokens only fill the cache.
    None,
    /// The last one, which is all generation needs (seed 000 A7).
    Last,
    /// Every one.
    All,
}

/// Tokens to append to one sequence.
#[derive(Clone, Copy, Debug)]
pub struct BatchItem<'a> {
    /// The sequence.
    pub seq: SeqId,
    /// What to append; at least one token.
    pub tokens: &'a [u32],
    /// Which of them get logits.
    pub logits: LogitsFor,
    /// Whether to capture the hidden states of all of them.
    pub hidden: bool,
}

impl<'a> BatchItem<'a> {
    /// An item that asks for the last token's logits.
    pub fn last(seq: SeqId, tokens: &'a [u32]) -> Self {
        BatchItem {
            seq,
            tokens,
            logits: LogitsFor::Last,
            hidden: false,
        }
    }

    fn n_logit_rows(&self) -> usize {
        match self.logits {
            LogitsFor::None => 0,
            LogitsFor::Last => 1,
            LogitsFor::All => self.tokens.len(),
        }
    }
}

/// What a step computed, by batch item.
#[derive(Clone, Debug, Default)]
pub struct StepOutput {
    vocab_size: usize,
    d_model: usize,
    logits: Vec<f32>,
    /// Rows of `logits` that belong to each item.
    rows: Vec<Range<usize>>,
    /// By item, then by hidden state: `[n_tokens, d_model]`.
    hidden: Vec<Vec<Vec<f32>>>,
}

impl StepOutput {
    /// Logits of item `item`: `[n_rows, vocab]`, row-major; `n_rows` is 0, 1 or its token count.
    pub fn logits(&self, item: usize) -> &[f32] {
        let rows = &self.rows[item];
        &self.logits[rows.start * self.vocab_size..rows.end * self.vocab_size]
    }

    /// Hidden states of item `item`, if it asked: `[n_layers + 1]` of `[n_tokens, d_model]`; the
    /// first is the embeddings as they enter the first block.
    pub fn hidden(&self, item: usize) -> &[Vec<f32>] {
        &self.hidden[item]
    }

    /// Elements of a logit row.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Elements of a hidden-state row.
    pub fn d_model(&self) -> usize {
        self.d_model
    }
}

/// A model ready to run on this CPU, with the sequences it is running.
pub struct Engine {
    model: Arc<LoadedModel>,
    cpu: Cpu,
    executor: Executor,
    cache: KvCache,
    n_ctx: usize,
    max_chunk: usize,
    chunk: Chunk,
    output: StepOutput,
}

impl Engine {
    /// Starts the threads and lays out scratch and cache.
    ///
    /// # Errors
    /// A level this CPU lacks, an option out of range, or a graph the kernels cannot run.
    pub fn new(model: Arc<LoadedModel>, options: EngineOptions) -> Result<Engine, Error> {
        let cpu = Cpu::new(CpuOptions {
            n_threads: options.n_threads,
            level: options.level,
        })?;
        let sizes = memory::sizes(&model, &options)?;
        Ok(Engine {
            executor: Executor::new(&model, sizes.max_chunk)?,
            cache: KvCache::new(&model.model().graph, sizes)?,
            model,
            cpu,
            n_ctx: sizes.n_ctx,
            max_chunk: sizes.max_chunk,
            chunk: Chunk::default(),
            output: StepOutput::default(),
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<LoadedModel> {
        &self.model
    }

    /// The CPU it runs on.
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// Tokens a sequence may hold.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Tokens one pass computes.
    pub fn max_chunk(&self) -> usize {
        self.max_chunk
    }

    /// Bytes of cached keys and values in use, and the most there can be.
    pub fn kv_bytes(&self) -> (usize, usize) {
        (self.cache.used_bytes(), self.cache.capacity_bytes())
    }

    /// Bytes of activations scratch.
    pub fn scratch_bytes(&self) -> usize {
        self.executor.scratch_bytes()
    }

    /// A new, empty sequence.
    ///
    /// # Errors
    /// [`Error::TooManySequences`].
    pub fn create(&mut self) -> Result<SeqId, Error> {
        self.cache.create()
    }

    /// A second sequence with the same past, sharing its pages until one of the two writes.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::TooManySequences`].
    pub fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        self.cache.fork(seq)
    }

    /// Cuts a sequence back to its first `len` tokens.
    ///
    /// # Errors
    /// [`Error::NoSequence`]; [`Error::WindowGone`] if a sliding-window layer no longer holds what
    /// the shorter sequence would see.
    pub fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), Error> {
        self.cache.truncate(seq, len)
    }

    /// Forgets a sequence.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn release(&mut self, seq: SeqId) -> Result<(), Error> {
        self.cache.release(seq)
    }

    /// Tokens in a sequence.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn len(&self, seq: SeqId) -> Result<usize, Error> {
        self.cache.len(seq)
    }

    /// Appends every item's tokens to its sequence and computes the logits asked for. Everything
    /// that can be refused is refused before any work, and then no sequence has changed.
    ///
    /// # Errors
    /// Unknown or repeated sequences, tokens outside the vocabulary, empty items, more tokens than
    /// the context or the cache holds.
    pub fn step(&mut self, batch: &[BatchItem<'_>]) -> Result<&StepOutput, Error> {
        self.check(batch)?;
        self.begin_output(batch);
        let model = Arc::clone(&self.model);
        let mut chunker = Chunker {
            batch,
            item: 0,
            token: 0,
        };
        while chunker.fill(&mut self.chunk, &self.cache, self.max_chunk)? {
            for span in &self.chunk.spans {
                self.cache.reserve(span.seq, span.rows.len());
            }
            let mut sink = ChunkSink {
                chunk: &self.chunk,
                batch,
                output: &mut self.output,
            };
            let _hot = self.cpu.pool().enter();
            self.executor.run(
                &self.cpu,
                &model,
                self.cache.parts(),
                &self.chunk,
                &mut sink,
            )?;
            for span in &self.chunk.spans {
                self.cache.commit(span.seq, span.rows.len());
            }
        }
        Ok(&self.output)
    }

    fn check(&self, batch: &[BatchItem<'_>]) -> Result<(), Error> {
        let vocab_size = self.model.model().config.vocab_size;
        for (i, item) in batch.iter().enumerate() {
            let len = self.cache.len(item.seq)?;
            if item.tokens.is_empty() {
                return Err(Error::EmptyPrompt);
            }
            if batch[..i].iter().any(|other| other.seq == item.seq) {
                return Err(Error::DuplicateSequence(item.seq));
            }
            if let Some(&token) = item.tokens.iter().find(|t| **t as usize >= vocab_size) {
                return Err(Error::BadToken { token, vocab_size });
            }
            self.check_context(len + item.tokens.len(), 0)?;
        }
        let wanted = batch.iter().map(|item| (item.seq, item.tokens.len()));
        self.cache.check_room(wanted)
    }

    /// Refuses a sequence of `n_prompt` tokens to which `n_new` shall be added.
    ///
    /// # Errors
    /// [`Error::ContextOverflow`], with the numbers.
    pub fn check_context(&self, n_prompt: usize, n_new: usize) -> Result<(), Error> {
        if n_prompt + n_new > self.n_ctx {
            let trained = self.model.model().config.context_length;
            return Err(Error::ContextOverflow {
                n_prompt,
                n_new,
                n_ctx: self.n_ctx,
                trained,
            });
        }
        Ok(())
    }

    fn begin_output(&mut self, batch: &[BatchItem<'_>]) {
        let graph = &self.model.model().graph;
        let output = &mut self.output;
        output.vocab_size = self.model.model().config.vocab_size;
        output.d_model = self.model.model().config.d_model;
        output.logits.clear();
        output.rows.clear();
        output.hidden.clear();
        let mut first = 0;
        for item in batch {
            output.rows.push(first..first + item.n_logit_rows());
            first += item.n_logit_rows();
            let n_states = if item.hidden { graph.hidden.len() } else { 0 };
            output.hidden.push(vec![Vec::new(); n_states]);
        }
    }
}

/// Cuts a batch into chunks, in order.
struct Chunker<'a> {
    batch: &'a [BatchItem<'a>],
    item: usize,
    token: usize,
}

impl Chunker<'_> {
    /// Fills `chunk` with the next tokens; false when there are none.
    fn fill(
        &mut self,
        chunk: &mut Chunk,
        cache: &KvCache,
        max_chunk: usize,
    ) -> Result<bool, Error> {
        chunk.tokens.clear();
        chunk.positions.clear();
        chunk.spans.clear();
        chunk.logit_rows.clear();
        chunk.hidden = false;
        while self.item < self.batch.len() && chunk.tokens.len() < max_chunk {
            let item = &self.batch[self.item];
            let room = max_chunk - chunk.tokens.len();
            let end = item.tokens.len().min(self.token + room);
            let row = chunk.tokens.len();
            let rows = row..row + (end - self.token);
            let first_pos = cache.len(item.seq)?;
            chunk
                .tokens
                .extend_from_slice(&item.tokens[self.token..end]);
            chunk
                .positions
                .extend((first_pos..first_pos + rows.len()).map(|p| p as u32));
            match item.logits {
                LogitsFor::All => chunk.logit_rows.extend(rows.clone()),
                LogitsFor::Last if end == item.tokens.len() => chunk.logit_rows.push(rows.end - 1),
                _ => {}
            }
            chunk.hidden |= item.hidden;
            chunk.spans.push(RunSpan {
                seq: item.seq,
                rows,
                first_pos,
            });
            self.token = end;
            if end == item.tokens.len() {
                self.item += 1;
                self.token = 0;
            }
        }
        Ok(!chunk.tokens.is_empty())
    }
}

/// Sorts a chunk's results into the step's output.
struct ChunkSink<'a> {
    chunk: &'a Chunk,
    batch: &'a [BatchItem<'a>],
    output: &'a mut StepOutput,
}

impl Sink for ChunkSink<'_> {
    fn hidden(&mut self, index: usize, rows: &[f32]) {
        let width = self.output.d_model;
        for span in &self.chunk.spans {
            let item = self.batch.iter().position(|item| item.seq == span.seq);
            let Some(item) = item.filter(|&item| self.batch[item].hidden) else {
                continue;
            };
            let rows = &rows[span.rows.start * width..span.rows.end * width];
            self.output.hidden[item][index].extend_from_slice(rows);
        }
    }

    fn logits(&mut self, rows: &[f32]) {
        // Chunks, and the rows within one, come in batch order.
        self.output.logits.extend_from_slice(rows);
    }
}
