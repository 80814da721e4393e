//! The engine on this computer's CPU.

mod memory;

use std::sync::Arc;
use std::time::Instant;

use millrace_kernels::{Cpu, CpuOptions, KvType, Level};

use crate::Error;
use crate::engine::{
    BatchItem, Counters, Engine, KvUsage, Limits, LogitsFor, Rows, StepShape, StepSink,
};
use crate::execute::{Chunk, Executor, RunSpan, Sink};
use crate::image;
use crate::kv::KvCache;
use crate::load::LoadedModel;
use crate::sequences::SeqId;
pub use memory::EngineMemory;

/// How an [`CpuEngine`] is set up. The default suits one conversation.
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
    /// Whether full pages outlive their sequences, for prompts that begin the same. They take room that
    /// nothing else needs; layers with a sliding window are laid out with room for twice the pages.
    pub keep_prefixes: bool,
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
            keep_prefixes: false,
        }
    }
}

/// A model ready to run on this CPU, with the sequences it is running.
pub struct CpuEngine {
    model: Arc<LoadedModel>,
    cpu: Cpu,
    executor: Executor,
    cache: KvCache,
    limits: Limits,
    chunk: Chunk,
    /// Where each span of the chunk comes from.
    sources: Vec<Source>,
    counters: Counters,
}

/// Where a span of a chunk comes from.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// The item of the batch.
    item: usize,
    /// Index among its tokens of the span's first.
    first_token: usize,
}

impl CpuEngine {
    /// Starts the threads and lays out scratch and cache.
    ///
    /// # Errors
    /// A level this CPU lacks, an option out of range, or a graph the kernels cannot run.
    pub fn new(model: Arc<LoadedModel>, options: EngineOptions) -> Result<CpuEngine, Error> {
        let cpu = Cpu::new(CpuOptions {
            n_threads: options.n_threads,
            level: options.level,
        })?;
        let sizes = memory::sizes(&model, &options)?;
        let cache = KvCache::new(&model.model().graph, sizes)?;
        Ok(CpuEngine {
            executor: Executor::new(&model, sizes.max_chunk)?,
            model,
            cpu,
            limits: Limits {
                n_ctx: sizes.n_ctx,
                max_sequences: sizes.max_sequences,
                max_chunk: sizes.max_chunk,
                keeps_prefixes: cache.keeps_prefixes(),
            },
            cache,
            chunk: Chunk::default(),
            sources: Vec::new(),
            counters: Counters::default(),
        })
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
            let mut text = item.tokens.iter().filter(|token| !image::is_row(**token));
            if let Some(&token) = text.find(|token| **token as usize >= vocab_size) {
                return Err(Error::BadToken { token, vocab_size });
            }
            let last = self.cache.tokens(item.seq)?.last().copied();
            let sizes = (self.model.model().config.d_model, self.limits.max_chunk);
            image::check(item.tokens, item.images, last, sizes)?;
            self.check_context(len.saturating_add(item.tokens.len()), 0)?;
        }
        let wanted = batch.iter().map(|item| (item.seq, item.tokens.len()));
        self.cache.check_room(wanted, (0, 0))
    }

    /// Computes a batch, chunk by chunk.
    fn passes(&mut self, sink: &mut dyn StepSink, batch: &[BatchItem<'_>]) -> Result<(), Error> {
        let mut chunker = Chunker {
            batch,
            item: 0,
            token: 0,
        };
        while chunker.fill(
            &mut self.chunk,
            &mut self.sources,
            &self.cache,
            self.limits.max_chunk,
        )? {
            self.pass(sink, batch)?;
        }
        Ok(())
    }

    /// Computes the chunk that was filled. Where that fails, no sequence keeps a page of it.
    fn pass(&mut self, sink: &mut dyn StepSink, batch: &[BatchItem<'_>]) -> Result<(), Error> {
        let ran = self.run(sink, batch);
        if ran.is_err() {
            for span in &self.chunk.spans {
                self.cache.unreserve(span.seq)?;
            }
        }
        ran
    }

    fn run(&mut self, sink: &mut dyn StepSink, batch: &[BatchItem<'_>]) -> Result<(), Error> {
        for span in &self.chunk.spans {
            self.cache.reserve(span.seq, span.rows.len())?;
        }
        let mut sink = ChunkSink {
            chunk: &self.chunk,
            sources: &self.sources,
            batch,
            n_rows: 0,
            sink,
        };
        let _hot = self.cpu.pool().enter();
        let parts = self.cache.parts();
        self.executor
            .run(&self.cpu, &self.model, parts, &self.chunk, &mut sink)?;
        self.counters.n_logit_rows += sink.n_rows as u64;
        for span in &self.chunk.spans {
            let tokens = &self.chunk.tokens[span.rows.clone()];
            self.cache.commit(span.seq, tokens)?;
        }
        self.counters.n_passes += 1;
        self.counters.n_tokens += self.chunk.tokens.len() as u64;
        Ok(())
    }
}

impl Engine for CpuEngine {
    fn model(&self) -> &Arc<LoadedModel> {
        &self.model
    }

    fn name(&self) -> String {
        format!("cpu ({})", self.cpu.level())
    }

    fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    fn create(&mut self) -> Result<SeqId, Error> {
        self.cache.create()
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        self.cache.fork(seq)
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), Error> {
        image::check_cut(self.cache.tokens(seq)?, len)?;
        self.cache.truncate(seq, len)
    }

    fn set_scope(&mut self, seq: SeqId, scope: u64) -> Result<(), Error> {
        self.cache.set_scope(seq, scope)
    }

    fn reuse_prefix(&mut self, seq: SeqId, prompt: &[u32]) -> Result<usize, Error> {
        self.cache.reuse_prefix(seq, prompt)
    }

    fn release(&mut self, seq: SeqId) -> Result<(), Error> {
        self.cache.release(seq)
    }

    fn tokens(&self, seq: SeqId) -> Result<&[u32], Error> {
        self.cache.tokens(seq)
    }

    fn step(&mut self, batch: &[BatchItem<'_>], sink: &mut dyn StepSink) -> Result<(), Error> {
        self.check(batch)?;
        let start = Instant::now();
        let config = &self.model.model().config;
        sink.begin(StepShape {
            n_items: batch.len(),
            vocab_size: config.vocab_size,
            d_model: config.d_model,
        });
        for item in batch {
            if let Some(tokens) = self.cache.take_replay(item.seq)? {
                let again = [BatchItem::new(item.seq, &tokens, LogitsFor::None)];
                self.passes(&mut |_: Rows<'_>| {}, &again)?;
            }
        }
        self.passes(sink, batch)?;
        self.counters.n_steps += 1;
        self.counters.host_ns += u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(())
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn room(&self, seqs: &[SeqId], n_new: usize) -> Result<usize, Error> {
        self.cache.room(seqs, n_new)
    }

    fn kv_usage(&self) -> KvUsage {
        KvUsage {
            used_bytes: self.cache.used_bytes(),
            idle_bytes: self.cache.idle_bytes(),
            capacity_bytes: self.cache.capacity_bytes(),
        }
    }

    fn counters(&self) -> Counters {
        Counters {
            prefix: self.cache.prefix_counters(),
            ..self.counters
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
        sources: &mut Vec<Source>,
        cache: &KvCache,
        max_chunk: usize,
    ) -> Result<bool, Error> {
        chunk.clear();
        sources.clear();
        while self.item < self.batch.len() && chunk.tokens.len() < max_chunk {
            let item = &self.batch[self.item];
            let room = max_chunk - chunk.tokens.len();
            let end = image::cut_before(item.tokens, self.token + room);
            if end <= self.token {
                // An image that the rest of the chunk has no room for; an empty one has.
                break;
            }
            let row = chunk.tokens.len();
            let rows = row..row + (end - self.token);
            let first_pos = cache.len(item.seq)?;
            chunk.push_tokens(&item.tokens[self.token..end], item.images);
            chunk
                .positions
                .extend((first_pos..first_pos + rows.len()).map(|p| p as u32));
            match item.logits {
                LogitsFor::All => chunk.logit_rows.extend(rows.clone()),
                LogitsFor::Last if end == item.tokens.len() => chunk.logit_rows.push(rows.end - 1),
                _ => {}
            }
            chunk.hidden |= item.hidden;
            sources.push(Source {
                item: self.item,
                first_token: self.token,
            });
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

/// Tells the step's sink which item and tokens a chunk's rows belong to.
struct ChunkSink<'a> {
    chunk: &'a Chunk,
    sources: &'a [Source],
    batch: &'a [BatchItem<'a>],
    /// Rows of logits handed over so far.
    n_rows: usize,
    sink: &'a mut dyn StepSink,
}

impl Sink for ChunkSink<'_> {
    fn hidden(&mut self, index: usize, rows: &[f32]) {
        let width = rows.len() / self.chunk.tokens.len();
        for (span, source) in self.chunk.spans.iter().zip(self.sources) {
            if !self.batch[source.item].hidden {
                continue;
            }
            let rows = Rows {
                item: source.item,
                first_token: source.first_token,
                data: &rows[span.rows.start * width..span.rows.end * width],
            };
            self.sink.hidden(index, rows);
        }
    }

    fn logits(&mut self, rows: &[f32], width: usize) {
        // A span's wanted rows are one range: all of it, or its last.
        let mut rest = rows;
        for (span, source) in self.chunk.spans.iter().zip(self.sources) {
            let wanted = &self.chunk.logit_rows[self.n_rows..];
            let n_rows = wanted.iter().take(rest.len() / width);
            let n_rows = n_rows.take_while(|row| span.rows.contains(row)).count();
            if n_rows == 0 {
                continue;
            }
            let (data, after) = rest.split_at(n_rows * width);
            self.sink.logits(Rows {
                item: source.item,
                first_token: source.first_token + (wanted[0] - span.rows.start),
                data,
            });
            self.n_rows += n_rows;
            rest = after;
        }
    }
}
