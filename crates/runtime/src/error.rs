//! The runtime's errors.

use crate::disk::DiskError;
use crate::execute::PlanError;
use crate::npu::NpuError;
use crate::ranks::RankError;
use crate::sequences::SeqId;

/// Errors on the way from a file to its text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read or is not of the claimed kind.
    #[error(transparent)]
    Format(#[from] millrace_format::Error),
    /// The model is not one this build runs.
    #[error(transparent)]
    Model(#[from] millrace_model::Error),
    /// The tokenizer or template is unusable.
    #[error(transparent)]
    Text(#[from] millrace_text::Error),
    /// The CPU kernels cannot be set up as requested.
    #[error(transparent)]
    Kernels(#[from] millrace_kernels::Error),
    /// A weight's bytes do not decode.
    #[error(transparent)]
    Quant(#[from] millrace_quant::Error),
    /// The graph cannot be planned.
    #[error("this model's graph cannot run here: {0}")]
    Plan(#[from] PlanError),
    /// The model has no tokenizer and text was requested.
    #[error(
        "{model} has no tokenizer; give token ids instead (`logits --tokens`), \
         or add tokenizer.json beside the weights"
    )]
    NoTokenizer {
        /// The model's name.
        model: String,
    },
    /// The model has no chat template and its vocabulary has no usual one.
    #[error(
        "{model} has no chat template, and its vocabulary is of no family that has a usual one; \
         use `run` with plain text, or add chat_template.jinja beside the weights"
    )]
    NoTemplate {
        /// The model's name.
        model: String,
    },
    /// More tokens than the context holds.
    #[error("{}", overflow(*n_prompt, *n_new, *n_ctx, *trained))]
    ContextOverflow {
        /// Tokens already in the sequence plus those of the prompt.
        n_prompt: usize,
        /// Tokens to generate.
        n_new: usize,
        /// Tokens a sequence may hold.
        n_ctx: usize,
        /// The model's trained context.
        trained: usize,
    },
    /// The context is too long for the model's RoPE: its frequencies there depend on the length of each sequence, or its
    /// table of positions is shorter.
    #[error(
        "ctx is {n_ctx}, and this model's positions end at {limit} tokens: beyond them {}; give --ctx of at most \
         {limit}, or leave it out",
        match has_table {
            true => "its table of positions has no row",
            false => "its RoPE (`dynamic`) turns every position otherwise",
        }
    )]
    BeyondRope {
        /// Tokens a sequence may hold.
        n_ctx: usize,
        /// The most for these frequencies, or the rows of the table.
        limit: usize,
        /// Whether the model has a table of positions.
        has_table: bool,
    },
    /// The KV cache has too few free pages for the step.
    #[error(
        "the KV cache is full: the step needs {needed} pages of {page_tokens} tokens and {free} \
         are free; release sequences or raise the cache size"
    )]
    CacheFull {
        /// Pages the step needs.
        needed: usize,
        /// Pages that are free.
        free: usize,
        /// Tokens a page.
        page_tokens: usize,
    },
    /// The KV cache cannot be allocated.
    #[error(
        "no room for a KV cache of {:.1} GiB; lower --ctx, or take a smaller type with --kv-type",
        *needed_bytes as f64 / (1u64 << 30) as f64
    )]
    CacheTooLarge {
        /// Bytes of address space the cache would need; saturates.
        needed_bytes: usize,
    },
    /// Every sequence slot is taken.
    #[error("all {max_sequences} sequences are in use; release one or raise max_sequences")]
    TooManySequences {
        /// Sequences the engine was set up for.
        max_sequences: usize,
    },
    /// The sequence does not exist (never created, or released).
    #[error("there is no sequence {0}: it was released, or it is another engine's")]
    NoSequence(SeqId),
    /// A sequence appears twice in one batch.
    #[error("sequence {0} stands twice in one batch")]
    DuplicateSequence(SeqId),
    /// A batch item has no tokens.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// A token id beyond the vocabulary.
    #[error("token id {token} is not in the vocabulary of {vocab_size}")]
    BadToken {
        /// The id.
        token: u32,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// A sliding-window layer has dropped keys that the truncated sequence would need.
    #[error(
        "cannot cut the sequence back to {len} tokens: a sliding-window layer has dropped \
         positions before {oldest}; start it again from its tokens"
    )]
    WindowGone {
        /// The requested length.
        len: usize,
        /// The oldest position still held.
        oldest: usize,
    },
    /// A sampling or engine option is out of range.
    #[error("{option} is {found}; it must be {expected}")]
    BadOption {
        /// The option's name.
        option: &'static str,
        /// The value found.
        found: String,
        /// The condition that it must satisfy.
        expected: &'static str,
    },
    /// The device, or a plan for it.
    #[error("{0}")]
    Device(Box<NpuError>),
    /// A file of cached keys and values, or its folder.
    #[error(transparent)]
    Disk(#[from] Box<DiskError>),
    /// A rank of several that share the model.
    #[error(transparent)]
    Rank(#[from] RankError),
    /// Rows of an image that cannot be computed.
    #[error("an image cannot be read: {reason}")]
    BadImage {
        /// Description of the fault.
        reason: String,
    },
    /// More images than there are ids for.
    #[error("no ids are left for images in this process; start it again")]
    TooManyImages,
    /// The engine has no way for images.
    #[error(
        "{engine} takes no images, since it computes embeddings or attention of their passes itself, and attention \
         within an image looks forward; leave out --device to read them on the CPU"
    )]
    NoImages {
        /// The engine's name.
        engine: String,
    },
    /// The model is for text alone.
    #[error(
        "{model} has no vision encoder: it is a text model, or its encoder is in another file \
         (name llama.cpp's mmproj file with --mmproj FILE)"
    )]
    NoVision {
        /// The model's name.
        model: String,
    },
    /// A draft model with another vocabulary.
    #[error(
        "{draft} cannot draft for {target}: its vocabulary is another one ({n_draft} tokens; the \
         model has {n_target}). Token {token} is {in_draft} there and {in_target} in the model; \
         take a draft model of the same family, or draft with ngram"
    )]
    OtherVocabulary {
        /// The model.
        target: String,
        /// The draft model.
        draft: String,
        /// The first id that differs.
        token: u32,
        /// The model's spelling, in quotes, or `nothing`.
        in_target: Box<str>,
        /// How the draft model spells it.
        in_draft: Box<str>,
        /// Ids of the model's vocabulary.
        n_target: usize,
        /// Ids of the draft model's.
        n_draft: usize,
    },
    /// A draft model that is larger than its target.
    #[error(
        "{draft} cannot draft for {target}: its weights take {:.1} MB and the model's {:.1} MB; a \
         draft must be the smaller of the two, so exchange them", *draft_bytes as f64 / 1e6,
        *target_bytes as f64 / 1e6
    )]
    LargerDraft {
        /// The model.
        target: String,
        /// The draft model.
        draft: String,
        /// Bytes of the model's weights.
        target_bytes: u64,
        /// Bytes of the draft model's.
        draft_bytes: u64,
    },
    /// A vision encoder that is another model's.
    #[error(
        "{encoder} makes rows of {found} elements, and {model} takes {expected}: it is another \
         model's"
    )]
    OtherVisionEncoder {
        /// The file with the vision encoder.
        encoder: String,
        /// The text model.
        model: String,
        /// Width of its rows.
        found: usize,
        /// Width of the model.
        expected: usize,
    },
    /// A vision encoder for text models of other families.
    #[error(
        "{encoder} is a vision encoder for {expected}, and {model} is {found}: it is another model's"
    )]
    ForeignVisionEncoder {
        /// The file with the vision encoder.
        encoder: String,
        /// The text model.
        model: String,
        /// The text model's family.
        found: String,
        /// The families that the vision encoder is for.
        expected: String,
    },
    /// The model computed a logit that is not a number.
    #[error(
        "the model computed NaN or infinite logits at position {position}: the weights are damaged \
         or overflow this precision"
    )]
    NotFinite {
        /// Position of the token.
        position: usize,
    },
    /// The model computed one logit for all tokens.
    #[error(
        "the model computed the same logit for every token at position {position}: its weights are \
         damaged, perhaps by an unfinished download; fetch the files again"
    )]
    AllEqual {
        /// Position of the token.
        position: usize,
    },
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Error {
        Error::Disk(Box::new(error))
    }
}

impl From<NpuError> for Error {
    fn from(error: NpuError) -> Error {
        match error {
            NpuError::Runtime(error) => error,
            error => Error::Device(Box::new(error)),
        }
    }
}

/// Describes the overflow and its remedy. If nothing is to be written, no option sets the number of new tokens.
fn overflow(n_prompt: usize, n_new: usize, n_ctx: usize, trained: usize) -> String {
    let trained = format!("(the model was trained for {trained})");
    match n_new {
        0 => format!(
            "{n_prompt} tokens do not fit the context of {n_ctx} tokens; shorten the text, or raise --ctx {trained}"
        ),
        _ => format!(
            "{n_prompt} prompt tokens + {n_new} new tokens = {} do not fit the context of {n_ctx} tokens; shorten the \
             prompt, lower --max-tokens, or raise --ctx {trained}",
            n_prompt.saturating_add(n_new)
        ),
    }
}
