//! Lowering: from a model's op graph to programs, the calls of them, and the host's work between the calls.
//!
//! The pass is pure: the same graph, machine and options give the same [`Plan`], byte for byte. It
//! works in three steps.
//!
//! 1. **Kernels.** Every node is offered to a [mapping](crate::mapping) with a tiling that the mapping
//!    builds and the [verifier](millrace_xdna2_machine::verify()) accepts. A node without one is left to the host, and its
//!    [`Placement`] says which rule sent it there.
//! 2. **Groups.** Neighbouring device nodes become one program. A group ends at a host op, around
//!    attention ([`ATTENTION_ALONE`], unless it is on the cores of its projections, [`Feature::ResidentAttention`]),
//!    around the head ([`HEAD_ALONE`], with the same exception: it then ends the last layers' program), and at the end
//!    of a block ([`WITHIN_BLOCK`], unless [`Feature::MergedBlocks`]).
//! 3. **Slots.** Launches of a group are stitched. A value that is used within its group only is
//!    `intermediate`; one that leaves it is `output`. Groups that differ only in their weights share a program, and each
//!    call has a separate buffer set (`bo_key` in MLIR-AIR's Llama-3.2-1B example).
//!
//! For Llama-3.2-1B this arrives at the six programs of that example. Their slots, by liveness:
//!
//! | program | launches | slots | static | input | intermediate | output |
//! |---|---|---|---|---|---|---|
//! | `rms_gemms_rope` | 6 | 13 | 1 3 5 7 9 10 | 0 | 2 4 6 | 8 11 12 |
//! | `flash_attn` | 1 | 4 | | 0 1 2 | | 3 |
//! | `o_ffn` | 8 | 15 | 1 5 7 9 12 | 0 3 | 2 4 6 8 10 11 13 | 14 |
//! | `rms_gemv_rope` | 6 | 13 | 1 3 5 7 | 0 9 10 | 2 4 6 | 8 11 12 |
//! | `o_gemv_ffn` | 8 | 15 | 1 5 7 9 12 | 0 3 | 2 4 6 8 10 11 13 | 14 |
//! | `lm_head_gemv` | 8 | 17 | 1 3 … 15 | 0 | | 2 4 … 16 |
//!
//! The example's `intermediate_indices` are the slots that the program overwrites, `output` ones
//! among them: {2, 4, 6, 8, 11, 12} for the first program ([`IndexSets::of`]). Its
//! `output_indices` {11, 12} leave out slot 8, the values v, although attention and the cache take
//! v from there (its table of reads, and `out[8]` in its decode); so 8 is an output here. In decode the
//! RoPE tables hold one position's row and change with every token: they are inputs.
//!
//! With [`Feature::FastTilings`] projections of one input are one launch, so the first program has
//! four, and the head's has one.
//!
//! # Layouts
//! - GEMM takes B as `[k, n]`, so its weights are transposed when they are loaded
//!   ([`WeightLayout::Transposed`]); GEMV takes W as `[n, k]`, as checkpoints store it, and so does
//!   the GEMM of [`Feature::OneCopy`].
//! - Heads stay in a token's row: the K projection's result is `[n_tokens, n_kv_heads, head_dim]` without a move, and
//!   flash attention reads it so. The cache's head-major copy is the host's ([`HostStep::AppendKv`]).
//! - Reshapes between launches are free: a slot is a dense array, and each launch may see it in its own shape.
//! - The second residual add writes one dimension (`add-flat`).
//! - GEMVs of several k in one program are calls of one tile kernel with other dimensions.
//! - Rotation is half-split. Where a checkpoint pairs neighbours ([`RopeStyle::Interleaved`], Llama
//!   in GGUF files), rows of the weights before it are put in half-split order when they are
//!   loaded; scores do not change, as Q and K are permuted alike. This holds for host steps too.
//!
//! [`RopeStyle::Interleaved`]: millrace_graph::RopeStyle::Interleaved

mod assemble;
mod attention;
mod cached;
mod delta_net;
mod feature;
mod full_head;
mod fused;
mod group;
mod kernel;
mod name;
mod packed;
mod resident;
mod steps;
mod tiling;
mod vision;

pub(crate) use attention::resident_keys;
pub use attention::{
    AttentionTimes, attention_times, cache_rows, key_bucket, prompt_bucket, token_bucket,
};
pub use delta_net::DeltaTimes;
pub use feature::{Feature, Features};
pub use millrace_plan::{
    AttentionOn, Binding, BufferKind, Buffers, CachePart, Call, Chunk, Device, Edge, End, HeadRows,
    HostMove, HostRows, HostStep, IndexSets, KeyRange, Lengths, LowerError, NodePlace, PassKind,
    Phase, Placement, Plan, PlannedBuffer, PlannedLaunch, PlannedProgram, Sequences, SlotUse, Step,
    TableRows, WeightLayout, position_slot, rope_table,
};

use kernel::Kernels;
use millrace_graph::Graph;
use millrace_plan::{MAX_TOKENS, graph as check};
use millrace_xdna2_machine::{Machine, Program};
pub(crate) use packed::layout_unit;
use steps::Assembly;
pub use tiling::seed as reference_tilings;
pub use vision::vision_encoder;

/// Why attention shares no program: the rule's text in placements.
///
/// MLIR-AIR's Llama-3.2-1B example does so.
pub const ATTENTION_ALONE: &str = "attention is a program of its own: its cascade takes so many \
    channels that the published stack's compiler, whose pass over shim descriptors takes longer than \
    their number grows, needs more than ten minutes with other launches beside it";

/// Why a group ends with its block: the rule's text.
pub const WITHIN_BLOCK: &str = "a program ends with its transformer block: every block then runs \
    the same programs on buffers of its own, and hidden states can be read";

/// Why the head shares a program with nothing: the rule's text.
pub const HEAD_ALONE: &str = "the head's parts of the vocabulary are one program, the same for prompt \
    and token; its input is a single row from the host";

/// Why the head shares no program where a token's layers are one program: the rule's text, before the refusal.
pub const HEAD_BESIDE_LAYERS: &str = "the head does not fit into the program of the token's layers";

/// The same if every row of a prompt goes through the head.
pub const HEAD_OF_ALL_ROWS: &str = "the head's parts of the vocabulary are one program, here over all \
    rows of the prompt (single-row-head is left out)";

/// Parts of the vocabulary, each a launch of the head's program, as in MLIR-AIR's Llama-3.2-1B example.
pub const LM_HEAD_PARTITIONS: usize = 8;

/// Lengths that prefill plans are made for with [`Feature::Buckets`], ascending.
pub const BUCKETS: [u64; 14] = [
    64, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 1792, 2048,
];

/// Tokens that every prompt is padded to without it, as MLIR-AIR's Llama-3.2-1B example does.
pub const REFERENCE_TOKENS: u64 = 2048;

/// Lengths that a set of features makes prefill plans for.
pub fn lengths(features: Features) -> Lengths {
    match features.has(Feature::Buckets) {
        true => Lengths::new(&BUCKETS),
        false => Lengths::fixed(REFERENCE_TOKENS),
    }
}

/// The tile program that a planned one is; `None` where another target made it.
pub fn program_of(planned: &PlannedProgram) -> Option<&Program> {
    planned.annex.get()
}

/// Whose behaviour a plan has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// That of MLIR-AIR's Llama-3.2-1B example: compiler-generated GEMMs, the production tilings ([`Features::PUBLISHED`]).
    MlirAir,
    /// The fastest plans here: every [`Feature`] except those of weights in blocks.
    Fast,
    /// The same with weights in blocks of 4 bits.
    Int4,
    /// FastFlowLM's: weights in blocks of 4 bits, and the rest as in the Gemma 3 paper. A prompt's weights are expanded
    /// to bf16 in DDR, attention is FlowQKV and FlowKV, and element-wise kernels run on the eight cores that shims feed
    /// straight.
    FastFlowLm,
}

/// Options of a lowering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LowerOptions {
    /// Improvements over the published stack.
    pub features: Features,
    /// Tokens of a prefill; shorter prompts are padded to it. Decode takes one at a time.
    pub n_tokens: u64,
    /// Who computes attention.
    pub attention: AttentionOn,
    /// Rows of a prompt that get logits; without [`Feature::SingleRowHead`] all of them.
    pub head: HeadRows,
}

impl LowerOptions {
    /// A mode's features, attention on the array.
    pub fn new(mode: Mode, n_tokens: u64) -> LowerOptions {
        LowerOptions {
            features: Features::of(mode),
            n_tokens,
            attention: AttentionOn::Device,
            head: HeadRows::Last,
        }
    }

    /// Options for a kind of pass.
    pub fn of(features: Features, kind: &PassKind) -> LowerOptions {
        LowerOptions {
            features,
            n_tokens: kind.n_tokens,
            attention: kind.attention,
            head: kind.head,
        }
    }

    /// Whether only the row whose logits are wanted goes through the last norm and the head of a prompt.
    fn is_single_row(&self) -> bool {
        self.features.has(Feature::SingleRowHead) && self.head == HeadRows::Last
    }
}

/// The plan of a prefill of [`LowerOptions::n_tokens`] tokens.
///
/// # Errors
/// A graph that makes no sense, a length beyond the limits, an op that plans cannot express.
pub fn prefill(
    graph: &Graph,
    machine: &Machine,
    options: &LowerOptions,
) -> Result<Plan, LowerError> {
    if !(1..=MAX_TOKENS).contains(&options.n_tokens) {
        return Err(LowerError::Tokens(options.n_tokens));
    }
    lower(graph, machine, options, Phase::Prefill)
}

/// The plan of one token.
///
/// # Errors
/// As [`prefill`].
pub fn decode(
    graph: &Graph,
    machine: &Machine,
    options: &LowerOptions,
) -> Result<Plan, LowerError> {
    lower(graph, machine, options, Phase::Decode)
}

fn lower(
    graph: &Graph,
    machine: &Machine,
    options: &LowerOptions,
    phase: Phase,
) -> Result<Plan, LowerError> {
    check::check(graph)?;
    let resident_keys = match (phase, options.attention) {
        (Phase::Decode, AttentionOn::Cached { n_keys, max_tokens }) => {
            resident_keys(graph, machine, options.features, (n_keys, max_tokens))
        }
        _ => None,
    };
    let mut among = resident_keys.map(Among::all);
    loop {
        match lowered(graph, machine, options, (phase, among.clone()))? {
            Ok(plan) => return Ok(plan),
            Err(misfit) => among = among.and_then(|among| among.without(misfit)),
        }
    }
}

/// Parts of a token that share the cores of its projections.
#[derive(Clone, Debug)]
struct Among {
    /// Attention of all layers, over so many keys.
    keys: u64,
    /// Why not the last norm and the head, where they do not.
    head_apart: Option<String>,
}

/// The part that does not fit.
enum Misfit {
    Attention,
    /// Behind layers that do, and why.
    Head(String),
}

impl Among {
    fn all(keys: u64) -> Among {
        Among {
            keys,
            head_apart: None,
        }
    }

    /// The rest without it, if that is less.
    fn without(self, misfit: Misfit) -> Option<Among> {
        match misfit {
            Misfit::Head(problem) if self.head_apart.is_none() => Some(Among {
                head_apart: Some(format!("{HEAD_BESIDE_LAYERS}: {problem}")),
                ..self
            }),
            _ => None,
        }
    }
}

/// The plan, or the part that should share the cores of projections and does not fit.
fn lowered(
    graph: &Graph,
    machine: &Machine,
    options: &LowerOptions,
    (phase, among): (Phase, Option<Among>),
) -> Result<Result<Plan, Misfit>, LowerError> {
    let mut kernels = Kernels::new(graph, machine, options, phase);
    if let Some(among) = among {
        kernels.resident_keys = Some(among.keys);
        kernels.head_apart = among.head_apart;
    }
    if phase == Phase::Prefill && !options.is_single_row() {
        kernels.full_head = kernels.full_head();
    }
    let items = group::items(&mut kernels, options);
    if kernels.resident_fails {
        return Ok(Err(Misfit::Attention));
    }
    let mut assembly = Assembly::new(&kernels);
    for item in items {
        if let Err(misfit) = assembly.add(item)? {
            return Ok(Err(misfit));
        }
    }
    Ok(Ok(assembly.done()))
}
