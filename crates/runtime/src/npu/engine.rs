//! The engine on a device that runs plans.

use super::counters::{DeviceCounters, PhaseCounters};
use super::given::GivenExperts;
use super::host::HostValues;
use super::observe::Observer;
use super::pass::Pass;
use super::prepared::PreparedPlan;
use super::{NpuError, NpuModel};
use crate::Error;
use crate::engine::{BatchItem, Engine, EngineLimits, ItemRows, LogitsFor, StepSink};
use crate::image::{self, Image, ImageRows};
use crate::kv::{KvCache, KvSizes, ROLLBACK_TOKENS};
use crate::sequences::SeqId;
use crate::shell::{Compute, EngineOf, Shell};
use half::slice::HalfFloatSliceExt;
use millrace_kernels::{AttentionScratch, Cpu, KvType};
use millrace_model::ImageSight;
use millrace_plan::{AttentionOn, Chunk, HeadRows, PassKind, Scales};
use std::sync::Arc;

/// A model on a device, with the sequences it is running.
///
/// Keys and values are on the host, in bf16 pages, as in [`crate::CpuEngine`]; programs that attend over
/// a cache have a copy on the device. A prompt is cut into the passes that the target has plans for. Each
/// item of a batch is computed separately, because a device runs one pass at a time. Passes of different
/// kinds add in different orders. So here, unlike on the CPU, the cut of a sequence into steps may show
/// in the last bits of its logits. The other items of a step do not show.
pub type PlannedEngine = EngineOf<DeviceCompute>;

/// State of a device's engine besides model and cache.
pub struct DeviceCompute {
    npu: Arc<NpuModel>,
    values: HostValues,
    scratch: AttentionScratch,
    /// `[n_rows, vocab]` of the last pass.
    logits: Vec<f32>,
    phases: DeviceCounters,
    observer: Option<Observer>,
    given: Option<Arc<GivenExperts>>,
}

/// Rows of logits that one pass computes at most, where those of all tokens are wanted.
const LOGIT_ROWS: u64 = 128;

/// Purpose of appended tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A prompt's.
    Prompt,
    /// Behind a prompt, with the logits of all: drafts that are checked, a text that is scored.
    Check,
    /// A single one, of decode.
    Token,
}

/// A pass and its purpose.
struct EnginePass<'t> {
    seq: SeqId,
    tokens: &'t [u32],
    images: &'t [Arc<Image>],
    chunk: Chunk,
    head: HeadRows,
    purpose: Purpose,
}

impl PlannedEngine {
    /// An engine without sequences.
    ///
    /// # Errors
    /// [`Error::CacheTooLarge`], a layer that no cache has the shape of.
    pub fn new(npu: &Arc<NpuModel>) -> Result<PlannedEngine, Error> {
        let graph = &npu.model().model().graph;
        let longest = npu.lengths().all().last().copied().unwrap_or(1) as usize;
        let max_sequences = npu.max_sequences();
        let sizes = KvSizes {
            dtype: KvType::BF16,
            n_ctx: npu.n_ctx(),
            kv_tokens: npu.n_ctx().saturating_mul(max_sequences),
            max_sequences,
            max_chunk: longest,
            keep_prefixes: false,
            rollback_tokens: ROLLBACK_TOKENS,
        };
        let cache = KvCache::new(graph, sizes)?;
        let limits = EngineLimits {
            n_ctx: sizes.n_ctx,
            max_sequences,
            max_chunk: longest,
            keeps_prefixes: cache.keeps_prefixes(),
        };
        Ok(EngineOf {
            shell: Shell::new(npu.model().clone(), cache, limits),
            compute: DeviceCompute {
                values: HostValues::new(graph),
                scratch: AttentionScratch::default(),
                logits: Vec::new(),
                phases: DeviceCounters::default(),
                observer: None,
                given: None,
                npu: npu.clone(),
            },
        })
    }

    /// The model on its device.
    pub fn npu(&self) -> &Arc<NpuModel> {
        &self.compute.npu
    }

    /// Counters so far, by phase.
    pub fn phases(&self) -> &DeviceCounters {
        &self.compute.phases
    }

    /// Sets the observer called after every dispatch that ends well, or removes it. It sees the
    /// device's contents and changes no bit of them.
    pub fn observe(&mut self, observer: Option<Observer>) {
        self.compute.observer = observer;
    }

    /// Makes tokens use the given experts instead of their own choice, or with `None` their own again.
    pub fn give_experts(&mut self, given: Option<Arc<GivenExperts>>) {
        self.compute.given = given;
    }

    /// Appends an item's tokens to its sequence: as a prompt, in chunks if they are longer than a plan, or a single
    /// one as in decode. Passes on the requested rows of logits with the index of the first.
    ///
    /// # Errors
    /// A failed dispatch: whole chunks before it are kept.
    pub(super) fn append(
        &mut self,
        item: &BatchItem<'_>,
        purpose: Purpose,
        sink: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), NpuError> {
        let (seq, tokens, wanted) = (item.seq, item.tokens, item.logits);
        if let Some(tokens) = self.shell.cache.take_replay(seq)? {
            let again = BatchItem::new(seq, &tokens, LogitsFor::None);
            self.append(&again, Purpose::Prompt, &mut |_, _| {})?;
        }
        let decodes = purpose == Purpose::Token;
        let mut done = 0;
        while done < tokens.len() {
            let first = self.shell.cache.len(seq)? as u64;
            let head = match wanted {
                LogitsFor::All if !decodes => HeadRows::All,
                _ => HeadRows::Last,
            };
            let chunk = match decodes {
                true => Chunk::token(first),
                false => self.next_chunk(first, &tokens[done..], head),
            };
            let end = done + chunk.n_tokens as usize;
            let part = EnginePass {
                seq,
                tokens: &tokens[done..end],
                images: item.images,
                chunk,
                head,
                purpose,
            };
            let ran = self.run(&part);
            let npu = self.compute.npu.clone();
            npu.settle(ran)?;
            let wanted_here = match wanted {
                LogitsFor::None => false,
                LogitsFor::Last => end == tokens.len(),
                LogitsFor::All => true,
            };
            if wanted_here {
                let vocab_size = self.vocab_size();
                let row = end - self.compute.logits.len() / vocab_size.max(1);
                self.shell.counters.n_logit_rows += (end - row) as u64;
                sink(row, &self.compute.logits);
            }
            done = end;
        }
        Ok(())
    }

    /// The next pass of a prompt with these remaining tokens: as long as possible without cutting an image.
    fn next_chunk(&self, first: u64, left: &[u32], head: HeadRows) -> Chunk {
        let lengths = self.compute.npu.lengths();
        let most = match head {
            HeadRows::Last => left.len() as u64,
            // Every row is as wide as the vocabulary: fewer at a time.
            HeadRows::All => LOGIT_ROWS.min(left.len() as u64),
        };
        let whole = lengths.next(first, most).n_tokens as usize;
        let n_tokens = match image::cut_before(left, whole) {
            0 => image::unit_len(left),
            n => n,
        };
        lengths.next(first, n_tokens as u64)
    }

    fn vocab_size(&self) -> usize {
        self.compute.npu.model().model().config.vocab_size
    }

    fn run(&mut self, part: &EnginePass<'_>) -> Result<(), NpuError> {
        let ran = self.pass(part);
        if ran.is_err() {
            self.shell.cache.unreserve(part.seq)?;
        }
        ran
    }

    fn pass(&mut self, part: &EnginePass<'_>) -> Result<(), NpuError> {
        let npu = self.compute.npu.clone();
        let _turn = npu.turn();
        let first = part.chunk.first as usize;
        let images: Vec<ImageRows> = image::placed(part.tokens, part.images, 0).collect();
        let kind = self.kind(part, images.len());
        let prepared = npu.prepared(part.chunk.first, &kind, self.compute.observer.is_some())?;
        let graph = &npu.model().model().graph;
        // Positions on three axes and sights that differ by layer are the CPU's.
        let takes = |image: &ImageRows| {
            image.sight() == ImageSight::All && prepared.takes_images(graph, kind.attention)
        };
        if !images.iter().all(takes) {
            let engine = self.name();
            return Err(Error::NoImages { engine }.into());
        }
        let tokens = part.tokens.iter().map(|token| image::in_vocabulary(*token));
        let mut padded: Vec<u32> = tokens.collect();
        padded.resize(part.chunk.n_padded as usize, npu.pad());
        self.shell.cache.reserve(part.seq, part.tokens.len())?;
        let phase: &mut PhaseCounters = match part.purpose {
            Purpose::Token => &mut self.compute.phases.decode,
            Purpose::Prompt => &mut self.compute.phases.prefill,
            Purpose::Check => &mut self.compute.phases.check,
        };
        let before_ns = phase.device_ns;
        let ran = Pass {
            npu: &npu,
            prepared: &prepared,
            tokens: &padded,
            images: &images,
            n_real: part.tokens.len(),
            first,
            seq: part.seq,
            scales: vec![Scales::default(); prepared.n_buffers()],
            values: &mut self.compute.values,
            scores: Vec::new(),
            delta_rows: None,
            cache: &mut self.shell.cache,
            scratch: &mut self.compute.scratch,
            counters: phase,
            observer: self.compute.observer.as_mut(),
            given: self.compute.given.as_deref(),
        }
        .run();
        self.shell.counters.device_ns += phase.device_ns - before_ns;
        ran?;
        self.read_logits(&prepared, part, first)?;
        self.shell.cache.commit(part.seq, part.tokens)?;
        self.shell.counters.n_passes += 1;
        self.shell.counters.n_tokens += part.tokens.len() as u64;
        Ok(())
    }

    /// The kind of its pass. Rows of an image look forward. The device may support a prompt's first pass with one image;
    /// any other pass with images has attention on the host.
    fn kind(&self, part: &EnginePass<'_>, n_images: usize) -> PassKind {
        let (first, sequences) = (part.chunk.first, self.compute.npu.sequences());
        if part.purpose == Purpose::Token {
            return sequences.decode(first);
        }
        let kind = sequences.prefill(part.chunk).with_head(part.head);
        match (n_images, first) {
            (0, _) => kind,
            (1, 0) => kind.with_attention(AttentionOn::Image),
            _ => kind.with_attention(AttentionOn::Host),
        }
    }

    /// Completes the pass by reading its logits: of the last token before the padding, or of all.
    fn read_logits(
        &mut self,
        prepared: &PreparedPlan,
        part: &EnginePass<'_>,
        first: usize,
    ) -> Result<(), NpuError> {
        let logits = self.compute.npu.model().model().graph.logits;
        let rows = logits.map_or(&[][..], |value| self.compute.values.get(value));
        let vocab_size = self.vocab_size();
        let n_wanted = match part.head {
            HeadRows::Last => 1,
            HeadRows::All => part.tokens.len(),
        };
        // A plan may compute more rows than requested, or have read only the last.
        let n_rows = rows.len() / vocab_size.max(1);
        let end = n_rows.min(part.tokens.len());
        let range = end.saturating_sub(n_wanted) * vocab_size..end * vocab_size;
        let rows = rows.get(range).filter(|r| r.len() == n_wanted * vocab_size);
        let Some(rows) = rows else {
            let problem = format!("{n_rows} rows where {n_wanted} are wanted");
            return Err(NpuError::plan(
                format!("logits of {}", prepared.plan.n_tokens),
                problem,
            ));
        };
        self.compute.logits.resize(rows.len(), 0.0);
        rows.convert_to_f32_slice(&mut self.compute.logits);
        // One pass over a row finds NaN and infinities: 0 · x is 0 only for finite x.
        for (row, logits) in self.compute.logits.chunks_exact(vocab_size).enumerate() {
            if logits.iter().map(|logit| logit * 0.0).sum::<f32>() != 0.0 {
                let position = first + part.tokens.len() - n_wanted + row;
                return Err(Error::NotFinite { position }.into());
            }
        }
        Ok(())
    }
}

impl Compute for DeviceCompute {
    const HIDES_STATES: Option<&'static str> =
        Some("left out: a device's programs keep the states between blocks to themselves");
    const KEEPS_ON_DISK: bool = false;

    fn name(&self) -> String {
        self.npu.device_name().to_owned()
    }

    fn cpu(&self) -> &Cpu {
        &self.npu.cpu
    }

    fn compute(
        engine: &mut PlannedEngine,
        batch: &[BatchItem<'_>],
        sink: &mut dyn StepSink,
    ) -> Result<(), Error> {
        for (item, wanted) in batch.iter().enumerate() {
            let is_first = engine.shell.cache.len(wanted.seq)? == 0;
            let purpose = match (wanted.tokens.len(), wanted.logits) {
                (1, _) if !is_first && !image::is_row(wanted.tokens[0]) => Purpose::Token,
                (_, LogitsFor::All) if !is_first => Purpose::Check,
                _ => Purpose::Prompt,
            };
            let done = engine.append(wanted, purpose, &mut |first_token, data| {
                sink.logits(ItemRows {
                    item,
                    first_token,
                    data,
                });
            });
            done.map_err(Error::from)?;
        }
        Ok(())
    }

    fn device_model(&self) -> Option<&Arc<NpuModel>> {
        Some(&self.npu)
    }

    fn device_counters(&self) -> Option<&DeviceCounters> {
        Some(&self.phases)
    }
}
