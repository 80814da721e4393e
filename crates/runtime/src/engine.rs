//! Interface of every engine, on the CPU or on a device: sequences, ragged batches, room, counters.

mod output;

use std::path::Path;
use std::sync::Arc;

use millrace_kernels::Cpu;
use millrace_npu::Provenance;

use crate::Error;
use crate::assistant::Assistant;
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
/// An engine is driven from outside: it has no loop, no queue, and no clock except for its counters.
/// The caller decides which sequences share a [`step`](Engine::step). The results of a sequence do
/// not depend on that.
///
/// Every method that can refuse does so before any work: after such an error nothing has changed. If
/// an engine's device fails in the middle of a step, every sequence stays at its last complete pass;
/// [`tokens`](Engine::tokens) says where that is.
pub trait Engine: Send {
    /// The model.
    fn model(&self) -> &Arc<LoadedModel>;

    /// Where it runs, for messages: `cpu (avx512)`.
    fn name(&self) -> String;

    /// The CPU whose kernels it uses: for all of the model, or for the host part of a device.
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

    /// Cuts a sequence back to its first `len` tokens; nothing happens if it has no more. Cutting all
    /// tokens never fails. Neither does cutting at most the last
    /// [`ROLLBACK_TOKENS`](crate::ROLLBACK_TOKENS) of those that steps appended since the last cut.
    ///
    /// # Errors
    /// [`Error::NoSequence`]; [`Error::BadImage`] if that would cut an image; [`Error::WindowGone`] if a sliding-window layer no longer
    /// holds the positions that the shorter sequence would see.
    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), Error>;

    /// Puts a sequence into a scope. [`reuse_prefix`](Engine::reuse_prefix) finds only pages that sequences of the same
    /// scope left behind; those of other scopes show neither in its length nor in its time. A new sequence is in scope 0;
    /// a sequence that changes its scope gives up its tokens.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn set_scope(&mut self, seq: SeqId, scope: u64) -> Result<(), Error>;

    /// Makes a sequence compute with exactly these adapters. If its adapters change, it gives up its tokens.
    /// [`reuse_prefix`](Engine::reuse_prefix) finds pages that sequences of its scope with the same adapters left behind.
    ///
    /// # Errors
    /// [`Error::NoSequence`]; [`Error::BadOption`] if an adapter belongs to another model, or the engine supports none.
    fn set_adapters(&mut self, seq: SeqId, adapters: &AdapterSet) -> Result<(), Error> {
        self.len(seq)?;
        adapters.refuse()
    }

    /// Makes a sequence hold the longest beginning of `prompt` that need not be computed. That is the
    /// part of its own past that agrees, or pages that earlier sequences left behind. At least the
    /// last token is left to compute, since its logits are needed. Returns the number of tokens held.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn reuse_prefix(&mut self, seq: SeqId, prompt: &[u32]) -> Result<usize, Error>;

    /// Forgets a sequence. Its name is never reused.
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

    /// Appends every item's tokens to its sequence and passes the requested logits to `sink`, some
    /// rows at a time.
    ///
    /// # Errors
    /// Before any work: unknown or repeated sequences, tokens outside the vocabulary, empty items, more
    /// tokens than the context or the cache holds. During the work: a device that fails.
    fn step(&mut self, batch: &[BatchItem<'_>], sink: &mut dyn StepSink) -> Result<(), Error>;

    /// As [`step`](Engine::step), collecting the results: for callers that do not mind the memory.
    ///
    /// # Errors
    /// As [`step`](Engine::step).
    fn compute(&mut self, batch: &[BatchItem<'_>]) -> Result<StepOutput, Error> {
        let mut output = StepOutput::default();
        self.step(batch, &mut output)?;
        Ok(output)
    }

    /// Why an [`Assistant`] cannot read the keys and values of its sequences; `None` if it can.
    fn hides_keys(&self) -> Option<&'static str> {
        Some("an engine on the CPU, without ranks: this one does not hand out its keys and values")
    }

    /// Computes a row of an assistant behind the tokens of a sequence, over the sequence's keys and values. The row stands at
    /// `token`, which the engine has not computed, and has a state `[d_model]`: the engine's at its last token, or the one of
    /// the assistant's row before. `output` gets the logits, and as the head's input the state `[d_model]` for the next row.
    /// Returns false, and computes nothing, for an empty sequence and for one whose window a cut has reached. The sequence
    /// does not change.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::BadToken`]; [`Error::BadOption`] for an engine that cannot, an assistant of another
    /// model, and a state of another width.
    fn assist(
        &mut self,
        assistant: &mut Assistant,
        seq: SeqId,
        (token, state): (u32, &[f32]),
        output: &mut StepOutput,
    ) -> Result<bool, Error> {
        let _ = (seq, token, state, output);
        assistant.refuse(self.hides_keys())?;
        Ok(false)
    }

    /// Writes the memory of a sequence to a file, with a note of the caller's: its tokens, keys, values and states. The
    /// file gets its name only when all of it is on disk.
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

    /// Restores a sequence that [`save_sequence`](Engine::save_sequence) wrote, bit for bit, and returns the note. `None` if the file does
    /// not exist; then the sequence is unchanged.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::CacheFull`]; [`Error::Disk`] for a file of another model, build, level or cache format, for a
    /// damaged file, and for one with more tokens than the context. The sequence may be empty then.
    fn load_sequence(&mut self, seq: SeqId, path: &Path) -> Result<Option<Vec<u8>>, Error> {
        let _ = (seq, path);
        Err(DiskError::Engine {
            engine: self.name(),
        }
        .into())
    }

    /// Also keeps the full pages of released sequences in a folder, and finds those that are already there.
    ///
    /// # Errors
    /// [`Error::Disk`] for an engine that keeps no prefixes, and for a folder that cannot be used or that another engine uses.
    fn keep_pages_in(&mut self, folder: &PageFolder) -> Result<(), Error> {
        let _ = folder;
        Err(DiskError::Engine {
            engine: self.name(),
        }
        .into())
    }

    /// Limits that the engine was set up with.
    fn limits(&self) -> EngineLimits;

    /// Tokens that each of `seqs` and of `n_new` future sequences can still take, in one step or in
    /// many; 0 if that many sequences cannot be created. Up to that number [`step`](Engine::step) never
    /// refuses for lack of room; with one token more it does.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    fn room(&self, seqs: &[SeqId], n_new: usize) -> Result<usize, Error>;

    /// Bytes of cached keys and values.
    fn kv_usage(&self) -> KvUsage;

    /// Counters of the work so far.
    fn counters(&self) -> EngineCounters;

    /// Provenance of [`EngineCounters::device_ns`]: measured by a named source, or modelled by a named profile. `None`
    /// for an engine without a device.
    fn device_time(&self) -> Option<Provenance> {
        self.device_model().map(|npu| npu.provenance().clone())
    }

    /// The model on the engine's device: its plans, its memory, the work left to the host.
    /// `None` for an engine without a device.
    fn device_model(&self) -> Option<&Arc<NpuModel>> {
        None
    }

    /// Counters of the device so far, by phase. `None` for an engine without one.
    fn device_counters(&self) -> Option<&DeviceCounters> {
        None
    }

    /// Traffic of this process with the other ranks of the model. `None` if there are none.
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
    /// Tokens to append; at least one.
    pub tokens: &'a [u32],
    /// Which of the tokens get logits.
    pub logits: LogitsFor,
    /// Whether to return the hidden states of all tokens. An engine that cannot see them refuses.
    pub hidden: bool,
    /// Whether to return the head's input, the last norm's output, for all tokens. An engine that cannot see it refuses.
    pub head_input: bool,
    /// A row `[d_model]` for each token, if the model takes one ([`TargetState`](millrace_graph::TargetState)), as a draft
    /// layer does. Empty otherwise.
    pub given: &'a [f32],
    /// The images that tokens are rows of ([`Image::ids`]). Their rows appear in the prompt whole and
    /// in order. An engine that does not support images refuses.
    pub images: &'a [Arc<Image>],
}

impl<'a> BatchItem<'a> {
    /// An item that requests these logits and no hidden states.
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

    /// An item that requests the last token's logits.
    pub fn last(seq: SeqId, tokens: &'a [u32]) -> Self {
        BatchItem::new(seq, tokens, LogitsFor::Last)
    }
}

/// Shape of a step's results.
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

/// Receives the results of a step while it computes. A closure over [`ItemRows`] is a sink: it gets the
/// logits.
pub trait StepSink {
    /// The batch was accepted; the results that follow have this shape.
    fn begin(&mut self, shape: StepShape) {
        let _ = shape;
    }

    /// Some of the requested logits, at most 128 rows. Calls come in the order of items and tokens.
    fn logits(&mut self, rows: ItemRows<'_>);

    /// Some rows of hidden state `index`; for one state they come in the order of items and tokens.
    /// The first state is the embeddings as they enter the first block, the next is the first
    /// block's output, and so on: `n_layers + 1` of them.
    fn hidden(&mut self, index: usize, rows: ItemRows<'_>) {
        let _ = (index, rows);
    }

    /// Some rows of the head's input, in the order of items and tokens.
    fn head_input(&mut self, rows: ItemRows<'_>) {
        let _ = rows;
    }
}

impl<F: FnMut(ItemRows<'_>)> StepSink for F {
    fn logits(&mut self, rows: ItemRows<'_>) {
        self(rows);
    }
}

/// Limits of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Tokens a sequence may hold. It is the only limit on a sequence.
    pub n_ctx: usize,
    /// Sequences alive at a time.
    pub max_sequences: usize,
    /// Maximum number of tokens in one pass. Longer batches are cut. Callers that want control in
    /// between, to cancel or to mix in other sequences, cut them at this size.
    pub max_chunk: usize,
    /// Whether pages of a sequence, present or past, serve other sequences that begin with the same tokens.
    pub keeps_prefixes: bool,
}

/// Bytes of cached keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvUsage {
    /// Bytes of live sequences.
    pub used_bytes: usize,
    /// Bytes of released sequences, kept for prompts with the same beginning until the room is needed.
    pub idle_bytes: usize,
    /// The most there can be.
    pub capacity_bytes: usize,
    /// Maximum number of pages of [`PAGE_TOKENS`](crate::PAGE_TOKENS) tokens in layers without a window; if all layers have one, in
    /// the layers with most pages.
    pub capacity_pages: usize,
}

/// Counters of an engine since its creation.
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
    /// Time on a device, from the source in [`Engine::device_time`]; 0 without one.
    pub device_ns: u64,
    /// Counters of cached prefixes.
    pub prefix: PrefixCounters,
}
