//! What every engine offers, be it the CPU's or a device's: sequences, ragged batches, room, counters.

mod output;

use std::path::Path;
use std::sync::Arc;

use millrace_kernels::Cpu;
use millrace_npu::Provenance;

use crate::Error;
use crate::disk::{DiskError, PageFolder};
use crate::image::Image;
use crate::kv::PrefixCounters;
use crate::load::LoadedModel;
use crate::lora::AdapterSet;
use crate::npu::{DeviceCounters, NpuModel};
use crate::ranks::RankTraffic;
use crate::sequences::SeqId;
pub use output::StepOutput;

/// A model ready to run, with the sequences it is running.
///
/// An engine is driven from outside: it has no loop, no queue and no clock but for its counters, and
/// whoever holds it decides which sequences share a [`step`](Engine::step). What a sequence computes
/// does not depend on that.
///
/// Every method that can refuse does so before any work: after such an error nothing has changed. An
/// engine whose device fails in the middle of a step leaves every sequence at its last complete pass;
/// [`tokens`](Engine::tokens) says where that is.
pub trait Engine: Send {
    /// The model.
    fn model(&self) -> &Arc<LoadedModel>;

    /// Where it runs, for messages: `cpu (avx512)`.
    fn name(&self) -> String;

    /// The CPU whose kernels it uses: for all of the model, or for what a device leaves to the host.
    fn cpu(&self) -> &Cpu;

    /// A new, empty sequence.
    ///
    /// # Errors
    /// [`Error::TooManySequences`].
    fn create(&mut self) -> Result<SeqId, Error>;

    /// A second sequence with the same past. Where it can, the engine shares that past instead of
    /// copying it.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::TooManySequences`].
    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error>;

    /// Cuts a sequence back to its first `len` tokens; nothing happens if it has no more. To give up
    /// all, or at most the last [`ROLLBACK_TOKENS`](crate::ROLLBACK_TOKENS) of what steps appended since
    /// it was last cut, never fails.
    ///
    /// # Errors
    /// [`Error::NoSequence`]; [`Error::BadImage`] if that would cut an image; [`Error::WindowGone`] if a sliding-window layer no longer holds what the
    /// shorter sequence would see.
    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), Error>;

    /// Puts a sequence into a scope: [`reuse_prefix`](Engine::reuse_prefix) finds what sequences of the same scope left
    /// behind and nothing else, neither its length nor its time. A new sequence is in scope 0; one that changes its scope
    /// gives up what it holds.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn set_scope(&mut self, seq: SeqId, scope: u64) -> Result<(), Error>;

    /// Has a sequence compute with these adapters and no others. One whose adapters change gives up what it holds, and
    /// [`reuse_prefix`](Engine::reuse_prefix) finds what sequences of its scope with the same adapters left behind.
    ///
    /// # Errors
    /// [`Error::NoSequence`]; [`Error::BadOption`] if an adapter is another model's, or the engine takes none.
    fn set_adapters(&mut self, seq: SeqId, adapters: &AdapterSet) -> Result<(), Error> {
        self.len(seq)?;
        adapters.refuse()
    }

    /// Makes a sequence hold the longest beginning of `prompt` that need not be computed: its own past
    /// as far as it agrees, or what sequences before it left behind. At least the last token is left
    /// to compute, since its logits are wanted. Returns the number of tokens held.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn reuse_prefix(&mut self, seq: SeqId, prompt: &[u32]) -> Result<usize, Error>;

    /// Forgets a sequence. Its name is never given out again.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn release(&mut self, seq: SeqId) -> Result<(), Error>;

    /// The tokens of a sequence: those whose keys and values are cached.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn tokens(&self, seq: SeqId) -> Result<&[u32], Error>;

    /// Tokens in a sequence.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn len(&self, seq: SeqId) -> Result<usize, Error> {
        Ok(self.tokens(seq)?.len())
    }

    /// Appends every item's tokens to its sequence and hands the logits asked for to `sink`, some rows
    /// at a time.
    ///
    /// # Errors
    /// Before any work: unknown or repeated sequences, tokens outside the vocabulary, empty items, more
    /// tokens than the context or the cache holds. Amid it: a device that fails.
    fn step(&mut self, batch: &[BatchItem<'_>], sink: &mut dyn StepSink) -> Result<(), Error>;

    /// As [`step`](Engine::step), collecting what it computes: for callers to whom memory for it does
    /// not matter.
    ///
    /// # Errors
    /// As [`step`](Engine::step).
    fn compute(&mut self, batch: &[BatchItem<'_>]) -> Result<StepOutput, Error> {
        let mut output = StepOutput::default();
        self.step(batch, &mut output)?;
        Ok(output)
    }

    /// Writes what is kept of a sequence to a file, with a note of the caller's: its tokens, keys, values and states. The
    /// file has its name only when all of it is on the disk.
    ///
    /// # Errors
    /// [`Error::NoSequence`]; [`Error::Disk`] for a sequence with images, an engine on a device, or a file that cannot be written.
    fn save_sequence(&self, seq: SeqId, note: &[u8], path: &Path) -> Result<(), Error> {
        let _ = (seq, note, path);
        Err(DiskError::Engine {
            engine: self.name(),
        }
        .into())
    }

    /// Makes a sequence hold what [`save_sequence`](Engine::save_sequence) wrote, with the very bits, and returns the note; `None` if there is no
    /// such file, and then the sequence is as it was.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::CacheFull`]; [`Error::Disk`] for a file of another model, build, level or cache format, one that is
    /// damaged, and one of more tokens than the context. The sequence may be empty then.
    fn load_sequence(&mut self, seq: SeqId, path: &Path) -> Result<Option<Vec<u8>>, Error> {
        let _ = (seq, path);
        Err(DiskError::Engine {
            engine: self.name(),
        }
        .into())
    }

    /// Keeps the full pages of sequences that are released in a folder too, and finds those that are there already.
    ///
    /// # Errors
    /// [`Error::Disk`] for an engine that keeps no prefixes, and for a folder that cannot be used or that another engine has.
    fn keep_pages_in(&mut self, folder: &PageFolder) -> Result<(), Error> {
        let _ = folder;
        Err(DiskError::Engine {
            engine: self.name(),
        }
        .into())
    }

    /// What the engine was set up for.
    fn limits(&self) -> EngineLimits;

    /// Tokens that each of `seqs` and of `n_new` sequences yet to be made can still take, in one step or
    /// in many; 0 if so many sequences cannot be made. Whatever is asked of them up to there,
    /// [`step`](Engine::step) does not refuse for want of room; one token more it does.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn room(&self, seqs: &[SeqId], n_new: usize) -> Result<usize, Error>;

    /// Bytes of cached keys and values.
    fn kv_usage(&self) -> KvUsage;

    /// What was done so far.
    fn counters(&self) -> EngineCounters;

    /// Where [`EngineCounters::device_ns`] comes from: measured by what, or modelled by which profile. `None`
    /// for an engine without a device.
    fn device_time(&self) -> Option<Provenance> {
        self.device_model().map(|npu| npu.provenance().clone())
    }

    /// The model on the device that computes for the engine: its plans, its memory, what it leaves to the host.
    /// `None` for an engine without a device.
    fn device_model(&self) -> Option<&Arc<NpuModel>> {
        None
    }

    /// What the device did so far, by phase. `None` for an engine without one.
    fn device_counters(&self) -> Option<&DeviceCounters> {
        None
    }

    /// What this process exchanged with the others that share the model. `None` where no others do.
    fn rank_traffic(&self) -> Option<RankTraffic> {
        None
    }

    /// Refuses a sequence of `n_prompt` tokens to which `n_new` shall be added.
    ///
    /// # Errors
    /// [`Error::ContextOverflow`], with the numbers.
    fn check_context(&self, n_prompt: usize, n_new: usize) -> Result<(), Error> {
        let n_ctx = self.limits().n_ctx;
        check_context(n_prompt, n_new, n_ctx, self.model())
    }
}

/// As [`Engine::check_context`], for a context of `n_ctx`.
pub(crate) fn check_context(
    n_prompt: usize,
    n_new: usize,
    n_ctx: usize,
    model: &LoadedModel,
) -> Result<(), Error> {
    match n_prompt.checked_add(n_new) {
        Some(n_tokens) if n_tokens <= n_ctx => Ok(()),
        _ => Err(Error::ContextOverflow {
            n_prompt,
            n_new,
            n_ctx,
            trained: model.model().config.context_length,
        }),
    }
}

/// Which tokens of a [`BatchItem`] get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitsFor {
    /// None: the tokens only fill the cache.
    None,
    /// The last one, which is all generation needs.
    Last,
    /// Every one: to score a text, or to check the tokens another model drafted.
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
    /// Whether to hand over the hidden states of all of them. An engine that cannot see them refuses.
    pub hidden: bool,
    /// Whether to hand over what enters the head, of all of them: the last norm's output. An engine that cannot see it refuses.
    pub head_input: bool,
    /// A row `[d_model]` for each token, where the model takes one ([`TargetState`](millrace_graph::TargetState)): a draft
    /// layer does. Empty otherwise.
    pub given: &'a [f32],
    /// The images that tokens are rows of ([`Image::ids`]). Their rows stand in the prompt whole and in
    /// order. An engine that takes no images refuses.
    pub images: &'a [Arc<Image>],
}

impl<'a> BatchItem<'a> {
    /// An item that asks for these logits and no hidden states.
    pub fn new(seq: SeqId, tokens: &'a [u32], logits: LogitsFor) -> Self {
        BatchItem {
            seq,
            tokens,
            logits,
            hidden: false,
            head_input: false,
            given: &[],
            images: &[],
        }
    }

    /// The item with the images that some of its tokens are rows of.
    pub fn with_images(self, images: &'a [Arc<Image>]) -> Self {
        BatchItem { images, ..self }
    }

    /// An item that asks for the last token's logits.
    pub fn last(seq: SeqId, tokens: &'a [u32]) -> Self {
        BatchItem::new(seq, tokens, LogitsFor::Last)
    }
}

/// The shape of what a step will hand over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepShape {
    /// Items of the batch.
    pub n_items: usize,
    /// Elements of a row of logits.
    pub vocab_size: usize,
    /// Elements of a row of hidden states.
    pub d_model: usize,
}

/// Rows of neighbouring tokens of one item.
#[derive(Clone, Copy, Debug)]
pub struct ItemRows<'a> {
    /// The item of the batch.
    pub item: usize,
    /// Index among the item's tokens of the one the first row belongs to.
    pub first_token: usize,
    /// `[n_rows, vocab_size]` or `[n_rows, d_model]`, row-major.
    pub data: &'a [f32],
}

/// Takes what a step computes, while it computes. A closure that takes [`ItemRows`] is one: it gets the
/// logits.
pub trait StepSink {
    /// The batch was accepted; what follows has this shape.
    fn begin(&mut self, shape: StepShape) {
        let _ = shape;
    }

    /// Some of the logits asked for, at most 128 rows. Calls come in the order of items and tokens.
    fn logits(&mut self, rows: ItemRows<'_>);

    /// Some rows of hidden state `index`; of one state they come in the order of items and tokens.
    /// The first state is the embeddings as they enter the first block, the next what leaves it, and
    /// so on: `n_layers + 1` of them.
    fn hidden(&mut self, index: usize, rows: ItemRows<'_>) {
        let _ = (index, rows);
    }

    /// Some rows of what enters the head, in the order of items and tokens.
    fn head_input(&mut self, rows: ItemRows<'_>) {
        let _ = rows;
    }
}

impl<F: FnMut(ItemRows<'_>)> StepSink for F {
    fn logits(&mut self, rows: ItemRows<'_>) {
        self(rows);
    }
}

/// What an engine was set up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Tokens a sequence may hold. There is no other limit on one.
    pub n_ctx: usize,
    /// Sequences alive at a time.
    pub max_sequences: usize,
    /// Tokens one pass computes at most. Longer batches are cut; who wants to be asked in between, to
    /// cancel or to mix in others, cuts them there.
    pub max_chunk: usize,
    /// Whether what a sequence leaves behind, or has read, serves others that begin with the same tokens.
    pub keeps_prefixes: bool,
}

/// Bytes of cached keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvUsage {
    /// Of live sequences.
    pub used_bytes: usize,
    /// Of released ones, kept for prompts that begin the same until the room is needed.
    pub idle_bytes: usize,
    /// The most there can be.
    pub capacity_bytes: usize,
    /// Pages of [`PAGE_TOKENS`](crate::PAGE_TOKENS) tokens that there can be in layers that look back without a bound; in the layers
    /// that have most, where all have a window.
    pub capacity_pages: usize,
}

/// What an engine did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Steps that ended well.
    pub n_steps: u64,
    /// Passes over the weights; a long step takes several.
    pub n_passes: u64,
    /// Tokens appended.
    pub n_tokens: u64,
    /// Rows of logits handed over.
    pub n_logit_rows: u64,
    /// Time inside steps on this computer, measured. On a virtual device that is its simulation's.
    pub host_ns: u64,
    /// Time on a device, as [`Engine::device_time`] says; 0 without one.
    pub device_ns: u64,
    /// What prompts found cached.
    pub prefix: PrefixCounters,
}
