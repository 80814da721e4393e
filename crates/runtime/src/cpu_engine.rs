//! The engine on this computer's CPU.

mod memory;
mod sink;

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use millrace_kernels::{Cpu, CpuOptions, KvType, Level};

use crate::Error;
use crate::engine::{BatchItem, EngineLimits, LogitsFor, StepSink};
use crate::execute::{Chunk, Executor, RunSpan};
use crate::image;
use crate::kv::{KvCache, PAGE_TOKENS, ROLLBACK_TOKENS};
use crate::load::LoadedModel;
use crate::lora::{AdaptedRows, AdapterSet, SequenceAdapters};
use crate::ranks::{Communicator, RankTraffic};
use crate::shell::{Compute, EngineOf, Shell};
pub use memory::EngineMemory;
pub(crate) use memory::check_rope;
use sink::ChunkSink;

/// How an [`CpuEngine`] is set up. The default suits one conversation.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Threads, the caller included; `None` uses the physical cores.
    pub n_threads: Option<usize>,
    /// Forces an instruction-set level; `None` uses the best.
    pub level: Option<Level>,
    /// Format of cached keys and values.
    pub kv_type: KvType,
    /// Tokens a sequence may hold; `None` uses the trained context, at most [`EngineOptions::DEFAULT_MAX_CTX`]. For a
    /// model with LongRoPE, `None` uses at most the context before the stretch. A longer context uses the frequencies
    /// for long contexts, for sequences of every length.
    pub n_ctx: Option<usize>,
    /// Sequences alive at a time.
    pub max_sequences: usize,
    /// Tokens all sequences together may hold; `None` uses `n_ctx · max_sequences`.
    pub kv_tokens: Option<usize>,
    /// Tokens one pass computes; longer prompts are cut into chunks. Results do not depend on it.
    pub max_chunk: usize,
    /// Whether full pages outlive their sequences, for prompts with the same beginning. They use room
    /// that nothing else needs; layers with a sliding window get room for twice the pages.
    pub keep_prefixes: bool,
    /// Adapters of new sequences; [`Engine::set_adapters`](crate::Engine::set_adapters) changes those of one.
    pub adapters: AdapterSet,
}

impl EngineOptions {
    /// The longest context used when none is requested.
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
            adapters: AdapterSet::default(),
        }
    }
}

/// A model ready to run on this CPU, with the sequences it is running.
pub type CpuEngine = EngineOf<CpuCompute>;

/// State of the CPU engine besides model and cache.
pub struct CpuCompute {
    cpu: Cpu,
    executor: Executor,
    chunk: Chunk,
    /// Where each span of the chunk comes from.
    sources: Vec<SpanSource>,
    /// The other ranks that share the model.
    ranks: Option<Communicator>,
}

/// Where a span of a chunk comes from.
#[derive(Clone, Copy, Debug)]
struct SpanSource {
    /// The item of the batch.
    item: usize,
    /// Index among its tokens of the span's first.
    first_token: usize,
    /// Whether the span holds tokens before the item's, whose results are not needed.
    is_replay: bool,
}

impl CpuEngine {
    /// Starts the threads and lays out scratch and cache.
    ///
    /// # Errors
    /// A level this CPU lacks, an option out of range, adapters of another model, or a graph the kernels cannot run.
    pub fn new(model: Arc<LoadedModel>, options: EngineOptions) -> Result<CpuEngine, Error> {
        let model = for_context(model, &options)?;
        CpuEngine::of(model, options, None)
    }

    /// The engine of one rank, for its part of the model.
    pub(crate) fn with_ranks(
        model: &Arc<LoadedModel>,
        options: EngineOptions,
        ranks: Communicator,
    ) -> Result<CpuEngine, Error> {
        // The products of adapters are not divided.
        options.adapters.refuse()?;
        let model = for_context(Arc::clone(model), &options)?;
        let own = LoadedModel::for_rank(&model, ranks.place())?;
        CpuEngine::of(Arc::new(own), options, Some(ranks))
    }

    fn of(
        model: Arc<LoadedModel>,
        options: EngineOptions,
        ranks: Option<Communicator>,
    ) -> Result<CpuEngine, Error> {
        let cpu = Cpu::new(CpuOptions {
            n_threads: options.n_threads,
            level: options.level,
        })?;
        model.check_runs_alone()?;
        model.decode_packed();
        let sizes = memory::sizes(&model.model().config, &options)?;
        options.adapters.check(&model)?;
        let cache = KvCache::new(&model.model().graph, sizes)?;
        let limits = EngineLimits {
            n_ctx: sizes.n_ctx,
            max_sequences: sizes.max_sequences,
            max_chunk: sizes.max_chunk,
            keeps_prefixes: cache.keeps_prefixes(),
        };
        let executor = Executor::new(&model, sizes.max_chunk)?;
        let mut shell = Shell::new(model, cache, limits);
        shell.adapters = SequenceAdapters::with_default(options.adapters);
        Ok(EngineOf {
            compute: CpuCompute {
                cpu,
                executor,
                chunk: Chunk::default(),
                sources: Vec::new(),
                ranks,
            },
            shell,
        })
    }

    /// The other ranks, if any.
    pub(crate) fn ranks_mut(&mut self) -> Option<&mut Communicator> {
        self.compute.ranks.as_mut()
    }

    /// Its rank among those that share the model.
    pub(crate) fn rank(&self) -> usize {
        let ranks = self.compute.ranks.as_ref();
        ranks.map_or(0, |ranks| ranks.place().rank)
    }

    /// Computes a batch, chunk by chunk. Tokens of a sequence whose states are missing come before the item's own.
    fn passes(
        &mut self,
        sink: &mut dyn StepSink,
        batch: &[BatchItem<'_>],
        replays: &[Vec<u32>],
    ) -> Result<(), Error> {
        let config = &self.shell.model.model().config;
        let mut chunker = Chunker {
            batch,
            replays,
            item: 0,
            token: 0,
            whole: config.encoder.is_some(),
            has_planes: config.rope_axes(0).is_some() && image::planes::are_known(),
        };
        while chunker.fill(
            &mut self.compute.chunk,
            &mut self.compute.sources,
            &self.shell.cache,
            self.shell.limits.max_chunk,
        )? {
            self.pass(sink, batch)?;
        }
        Ok(())
    }

    /// Computes the filled chunk. If that fails, no sequence keeps a page of it.
    fn pass(&mut self, sink: &mut dyn StepSink, batch: &[BatchItem<'_>]) -> Result<(), Error> {
        let ran = self.run(sink, batch);
        if ran.is_err() {
            for span in &self.compute.chunk.spans {
                self.shell.cache.unreserve(span.seq)?;
            }
        }
        ran
    }

    fn run(&mut self, sink: &mut dyn StepSink, batch: &[BatchItem<'_>]) -> Result<(), Error> {
        let CpuCompute {
            cpu,
            executor,
            chunk,
            sources,
            ranks,
        } = &mut self.compute;
        let Shell {
            model,
            cache,
            counters,
            adapters,
            ..
        } = &mut self.shell;
        for span in &chunk.spans {
            // The first of two spans of a sequence is not counted yet.
            let end = span.first_pos + span.rows.len();
            cache.reserve(span.seq, end - cache.len(span.seq)?)?;
            if span.takes_snapshot {
                cache.drop_snapshot(span.seq)?;
            }
            let (_, set) = adapters.get(span.seq);
            if !set.is_empty() {
                let rows = span.rows.clone();
                chunk.adapted.push(AdaptedRows { rows, set });
            }
        }
        let mut sink = ChunkSink {
            chunk,
            sources,
            batch,
            n_rows: 0,
            sink,
        };
        let _hot = cpu.pool().enter();
        let start = Instant::now();
        executor.run(cpu, model, cache.parts(), ranks.as_mut(), chunk, &mut sink)?;
        if let Some(ranks) = ranks {
            ranks.count_pass(chunk.tokens.len(), start.elapsed());
        }
        counters.n_logit_rows += sink.n_rows as u64;
        for span in &chunk.spans {
            cache.commit(span.seq, &chunk.tokens[span.rows.clone()])?;
            if span.takes_snapshot {
                cache.set_snapshot(span.seq, span.first_pos)?;
            }
        }
        counters.n_passes += 1;
        counters.n_tokens += chunk.tokens.len() as u64;
        Ok(())
    }
}

impl Compute for CpuCompute {
    const HIDES_STATES: Option<&'static str> = None;
    const KEEPS_ON_DISK: bool = true;
    const TAKES_ADAPTERS: bool = true;

    fn name(&self) -> String {
        let level = self.cpu.level();
        match &self.ranks {
            None => format!("cpu ({level})"),
            Some(ranks) => {
                let place = ranks.place();
                format!("cpu ({level}), rank {} of {}", place.rank, place.n_ranks)
            }
        }
    }

    fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    fn hides_keys(&self) -> Option<&'static str> {
        let ranks = self.ranks.as_ref();
        ranks.map(|_| "one process: of several, each has the keys and values of some heads alone")
    }

    fn rank_traffic(&self) -> Option<RankTraffic> {
        self.ranks.as_ref().map(Communicator::traffic)
    }

    fn compute(
        engine: &mut CpuEngine,
        batch: &[BatchItem<'_>],
        sink: &mut dyn StepSink,
    ) -> Result<(), Error> {
        let mut replays = Vec::new();
        for (i, item) in batch.iter().enumerate() {
            if let Some(tokens) = engine.shell.cache.take_replay(item.seq)? {
                replays.resize(batch.len(), Vec::new());
                replays[i] = tokens;
            }
        }
        engine.passes(sink, batch, &replays)
    }
}

/// The model for the context that the options request.
fn for_context(
    model: Arc<LoadedModel>,
    options: &EngineOptions,
) -> Result<Arc<LoadedModel>, Error> {
    let n_ctx = memory::sizes(&model.model().config, options)?.n_ctx;
    Ok(LoadedModel::for_context(model, n_ctx))
}

/// Cuts a batch into chunks, in order.
struct Chunker<'a> {
    batch: &'a [BatchItem<'a>],
    /// By item, tokens to compute before its own; empty if there are none at all.
    replays: &'a [Vec<u32>],
    item: usize,
    /// Index among the tokens before the item's and its own together.
    token: usize,
    /// Whether no item may be cut.
    whole: bool,
    /// Whether positions may differ from places in the cache.
    has_planes: bool,
}

/// Tokens of one item that go into a chunk.
struct ItemSpan<'a> {
    /// The item's, or those before them.
    tokens: &'a [u32],
    taken: Range<usize>,
    is_replay: bool,
}

impl<'a> Chunker<'a> {
    /// Fills `chunk` with the next tokens; false if none are left.
    fn fill(
        &mut self,
        chunk: &mut Chunk,
        sources: &mut Vec<SpanSource>,
        cache: &KvCache,
        max_chunk: usize,
    ) -> Result<bool, Error> {
        chunk.clear();
        sources.clear();
        while self.item < self.batch.len() && chunk.tokens.len() < max_chunk {
            let Some(span) = self.next(max_chunk - chunk.tokens.len()) else {
                break;
            };
            self.push(chunk, cache, &span)?;
            sources.push(SpanSource {
                item: self.item,
                first_token: span.taken.start,
                is_replay: span.is_replay,
            });
            self.token += span.taken.len();
            if self.token == self.replay().len() + self.batch[self.item].tokens.len() {
                self.item += 1;
                self.token = 0;
            }
        }
        Ok(!chunk.tokens.is_empty())
    }

    /// Tokens to compute before the item's own.
    fn replay(&self) -> &'a [u32] {
        self.replays.get(self.item).map_or(&[], Vec::as_slice)
    }

    /// The item's next tokens; none if an image or a whole text is next that does not fit in `room`. An empty chunk holds any.
    fn next(&self, room: usize) -> Option<ItemSpan<'a>> {
        let replay = self.replay();
        let is_replay = self.token < replay.len();
        let (tokens, first) = match is_replay {
            true => (replay, self.token),
            false => (self.batch[self.item].tokens, self.token - replay.len()),
        };
        let end = image::cut_before(tokens, first + room);
        let is_cut = self.whole && end < tokens.len();
        (end > first && !is_cut).then_some(ItemSpan {
            tokens,
            taken: first..end,
            is_replay,
        })
    }

    fn push(&self, chunk: &mut Chunk, cache: &KvCache, span: &ItemSpan<'_>) -> Result<(), Error> {
        let item = &self.batch[self.item];
        let ItemSpan {
            tokens,
            taken,
            is_replay,
        } = span;
        let row = chunk.tokens.len();
        let rows = row..row + taken.len();
        let last = chunk.spans.last().filter(|span| span.seq == item.seq);
        let first_pos = match last {
            Some(span) => span.first_pos + span.rows.len(),
            None => cache.len(item.seq)?,
        };
        chunk.push_tokens(&tokens[taken.clone()], item.images);
        match self.has_planes {
            true => chunk.push_places(cache.tokens(item.seq)?, first_pos),
            false => chunk.push_positions(first_pos),
        }
        match item.logits {
            _ if *is_replay => {}
            LogitsFor::All => chunk.logit_rows.extend(rows.clone()),
            LogitsFor::Last if taken.end == item.tokens.len() => {
                chunk.logit_rows.push(rows.end - 1);
            }
            _ => {}
        }
        chunk.hidden |= item.hidden;
        chunk.head_input |= item.head_input;
        let width = item.given.len() / item.tokens.len().max(1);
        let given = item.given.get(taken.start * width..taken.end * width);
        chunk.given.extend_from_slice(given.unwrap_or_default());
        chunk.spans.push(RunSpan {
            seq: item.seq,
            rows,
            first_pos,
            is_replay: *is_replay,
            takes_snapshot: !is_replay
                && taken.start == 0
                && cache.has_states()
                && may_be_cut_back(item)
                // The states after a page's end are kept anyway.
                && !first_pos.is_multiple_of(PAGE_TOKENS),
        });
        Ok(())
    }
}

/// Whether tokens are probably drafts, the last of which may be cut off.
fn may_be_cut_back(item: &BatchItem<'_>) -> bool {
    item.logits == LogitsFor::All && (2..=ROLLBACK_TOKENS).contains(&item.tokens.len())
}
