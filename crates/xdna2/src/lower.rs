//! Lowering: from a model's op graph to programs, the calls of them, and what the host does between.
//!
//! The pass is pure: the same graph, machine and options give the same [`Plan`], byte for byte. It
//! works in three steps.
//!
//! 1. **Kernels.** Every node is offered to a [mapping](crate::mapping) with a tiling that the mapping
//!    builds and the [verifier](millrace_xdna2_machine::verify()) accepts. A node without one is the host's, and its
//!    [`Placement`] says which rule sent it there.
//! 2. **Groups.** Neighbouring device nodes become one program. A group ends at a host op, around
//!    attention ([`ATTENTION_ALONE`], unless it is on the cores of its projections, [`Feature::ResidentAttention`]),
//!    around the head, and at the end of a block ([`WITHIN_BLOCK`], unless [`Feature::MergedBlocks`]).
//! 3. **Slots.** Launches of a group are stitched. A value that is used within its group only is
//!    `intermediate`; one that leaves it is `output`. Groups that are equal but for their weights
//!    share a program, and each call has a buffer set of its own (seed 000 B7: `bo_key`).
//!
//! For Llama-3.2-1B this arrives at the six programs of seed 000 B5. Their slots, by liveness:
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
//! The seed's `intermediate_indices` are the slots that the program overwrites, `output` ones
//! among them: {2, 4, 6, 8, 11, 12} for the first program ([`IndexSets::of`]). Its
//! `output_indices` {11, 12} leave out slot 8, the values v, although attention and the cache take
//! v from there (B8's table of reads, and `out[8]` in B9); so 8 is an output here. In decode the
//! RoPE tables hold one position's row and change with every token: they are inputs.
//!
//! With [`Feature::FastTilings`] projections of one input are one launch, so the first program has
//! four, and the head's has one.
//!
//! # Layouts (seed 000 B4)
//! - GEMM takes B as `[k, n]`, so its weights are transposed when they are loaded
//!   ([`WeightLayout::Transposed`]); GEMV takes W as `[n, k]`, as checkpoints store it, and so does
//!   the GEMM of [`Feature::OneCopy`].
//! - Heads stay in a token's row: what leaves the K projection is `[n_tokens, n_kv_heads,
//!   head_dim]` without a move, and so does flash attention read it. The cache's head-major copy
//!   is the host's ([`HostStep::AppendKv`]).
//! - Reshapes between launches are free: a slot is a dense array, and a launch sees it as it likes.
//! - The second residual add writes one dimension (`add-flat`).
//! - GEMVs of several k in one program are calls of one tile kernel with other dimensions.
//! - Rotation is half-split. Where a checkpoint pairs neighbours ([`RopeStyle::Interleaved`], Llama
//!   in GGUF files), rows of the weights before it are put in half-split order when they are
//!   loaded; scores do not change, as Q and K are permuted alike. This holds for host steps too.
//!
//! [`RopeStyle::Interleaved`]: millrace_model::graph::RopeStyle::Interleaved

mod all_rows;
mod assemble;
mod attention;
mod feature;
mod group;
mod joined;
mod kernel;
mod name;
mod over;
mod packed;
mod resident;
mod tiling;
mod tower;

pub(crate) use attention::resident_keys;
pub use attention::{
    AttentionTimes, attention_times, cache_rows, key_bucket, prompt_bucket, token_bucket,
};
pub use feature::{Feature, Features};
pub use millrace_plan::{
    AttentionOn, Binding, BufferKind, Buffers, CachePart, Call, Chunk, Device, Edge, End, HeadRows,
    HostMove, HostStep, IndexSets, Lengths, LowerError, PassKind, Phase, Place, Placement, Plan,
    PlannedBuffer, PlannedLaunch, PlannedProgram, Reach, Rows, Sequences, SlotUse, Step, TableRows,
    WeightLayout, position_slot, rope_table,
};

use assemble::Wired;
use group::{Group, Item};
use kernel::Kernels;
use millrace_model::graph::Graph;
use millrace_plan::{Annex, MAX_TOKENS, graph as check};
use millrace_xdna2_machine::{Machine, Program, verify};
pub(crate) use packed::layout_unit;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
pub(crate) use tiling::seed as reference_tilings;
pub use tower::tower;

/// Why attention shares a program with nothing: the rule's text in placements.
///
/// Seed 000 B5.
pub const ATTENTION_ALONE: &str = "attention is a program of its own: its cascade takes so many \
    channels that the published stack's compiler, whose pass over shim descriptors takes longer than \
    their number grows, needs more than ten minutes with other launches beside it";

/// Why a group ends with its block: the rule's text. Seed 000 B7.
pub const WITHIN_BLOCK: &str = "a program ends with its transformer block: every block then runs \
    the same programs on buffers of its own, and hidden states can be read";

/// Why the head shares a program with nothing: the rule's text. Seed 000 B5.
pub const HEAD_ALONE: &str = "the head's parts of the vocabulary are one program, the same for prompt \
    and token; its input is a single row from the host";

/// The same where every row of a prompt goes through it.
pub const HEAD_OF_ALL_ROWS: &str = "the head's parts of the vocabulary are one program, here over all \
    rows of the prompt (single-row-head is left out)";

/// Parts of the vocabulary, each a launch of the head's program (seed 000 B5).
pub const LM_HEAD_PARTITIONS: usize = 8;

/// Lengths that prefill plans are made for with [`Feature::Buckets`], ascending.
pub const BUCKETS: [u64; 14] = [
    64, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 1792, 2048,
];

/// Tokens that every prompt is padded to without it, as the published stack does (seed 000 A5).
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
    /// That of seed 000: compiler-generated GEMMs, the production tilings ([`Features::PUBLISHED`]).
    Reference,
    /// Better where the array allows: every [`Feature`] but those of weights in blocks.
    Best,
    /// The same with weights in blocks of 4 bits.
    Q4nx,
    /// The same with a prompt's weights expanded to bf16 in DDR, as the Gemma 3 paper does it.
    Paper,
}

/// What to lower for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// What is better than the seed's behaviour.
    pub features: Features,
    /// Tokens of a prefill; shorter prompts are padded to it. Decode takes one at a time.
    pub n_tokens: u64,
    /// Who computes attention.
    pub attention: AttentionOn,
    /// Which rows of a prompt get logits; without [`Feature::SingleRowHead`] it is all of them.
    pub head: HeadRows,
}

impl Options {
    /// A mode's features, attention on the array.
    pub fn new(mode: Mode, n_tokens: u64) -> Options {
        Options {
            features: Features::of(mode),
            n_tokens,
            attention: AttentionOn::Device,
            head: HeadRows::Last,
        }
    }

    /// For a kind of pass.
    pub fn of(features: Features, kind: &PassKind) -> Options {
        Options {
            features,
            n_tokens: kind.n_tokens,
            attention: kind.attention,
            head: kind.head,
        }
    }

    /// Whether only the row whose logits are wanted goes through the last norm and the head of a
    /// prompt.
    fn is_single_row(&self) -> bool {
        self.features.has(Feature::SingleRowHead) && self.head == HeadRows::Last
    }
}

/// The plan of a prefill of [`Options::n_tokens`] tokens.
///
/// # Errors
/// A graph that makes no sense, a length beyond the limits, an op that plans cannot express.
pub fn prefill(graph: &Graph, machine: &Machine, options: &Options) -> Result<Plan, LowerError> {
    if !(1..=MAX_TOKENS).contains(&options.n_tokens) {
        return Err(LowerError::Tokens(options.n_tokens));
    }
    lower(graph, machine, options, Phase::Prefill)
}

/// The plan of one token.
///
/// # Errors
/// As [`prefill`].
pub fn decode(graph: &Graph, machine: &Machine, options: &Options) -> Result<Plan, LowerError> {
    lower(graph, machine, options, Phase::Decode)
}

fn lower(
    graph: &Graph,
    machine: &Machine,
    options: &Options,
    phase: Phase,
) -> Result<Plan, LowerError> {
    check::check(graph)?;
    let resident_keys = match (phase, options.attention) {
        (Phase::Decode, AttentionOn::Cached { n_keys, max_tokens }) => {
            resident_keys(graph, machine, options.features, (n_keys, max_tokens))
        }
        _ => None,
    };
    if resident_keys.is_some()
        && let Some(plan) = lowered(graph, machine, options, (phase, resident_keys))?
    {
        return Ok(plan);
    }
    let plan = lowered(graph, machine, options, (phase, None))?;
    plan.ok_or_else(|| LowerError::Program {
        program: "a plan without resident attention".to_owned(),
        problem: "attention that does not fit".to_owned(),
    })
}

/// The plan; `None` where attention should share the cores of projections and they do not fit together.
fn lowered(
    graph: &Graph,
    machine: &Machine,
    options: &Options,
    (phase, resident_keys): (Phase, Option<u64>),
) -> Result<Option<Plan>, LowerError> {
    let mut kernels = Kernels::new(graph, machine, options, phase)?;
    kernels.resident_keys = resident_keys;
    if phase == Phase::Prefill && !options.is_single_row() {
        kernels.all_rows = kernels.head_of_all_rows();
    }
    let items = group::items(&mut kernels, options);
    if kernels.resident_fails {
        return Ok(None);
    }
    let mut assembly = Assembly {
        plan: Plan {
            phase,
            n_tokens: kernels.n_tokens(),
            alias: options.features.has(Feature::Alias),
            head: options.head,
            programs: Vec::new(),
            steps: Vec::new(),
            placement: Vec::new(),
            single_row: match kernels.is_single_row() {
                true => check::single_row(graph),
                false => Vec::new(),
            },
        },
        kernels: &kernels,
        machine,
        known: HashMap::new(),
        sets: HashSet::new(),
        columns: HashMap::new(),
    };
    for item in items {
        let fits = assembly.add(item)?;
        if !fits {
            return Ok(None);
        }
    }
    assembly.plan.placement.sort_by_key(|p| p.node);
    Ok(Some(assembly.plan))
}

/// Puts a plan together.
struct Assembly<'a> {
    plan: Plan,
    kernels: &'a Kernels<'a>,
    machine: &'a Machine,
    /// Programs by signature.
    known: HashMap<String, usize>,
    /// Keys of buffer sets in use.
    sets: HashSet<String>,
    /// Columns of a group's projections where it is one configuration, by the signature of the plain group.
    columns: HashMap<String, Option<u64>>,
}

impl Assembly<'_> {
    /// Whether it fits.
    fn add(&mut self, item: Item) -> Result<bool, LowerError> {
        match item {
            Item::Also(step) => self.plan.steps.push(Step::Host(step)),
            Item::Host {
                node,
                steps,
                reason,
            } => {
                self.plan.steps.extend(steps.into_iter().map(Step::Host));
                let place = Place::Host;
                self.plan.placement.push(Placement {
                    node,
                    place,
                    reason,
                });
            }
            Item::Group(group) => return self.add_group(&group),
        }
        Ok(true)
    }

    /// The group as one configuration of the array, if it may be and fits.
    fn resident(&mut self, group: &Group) -> Option<Group> {
        let kernels = self.kernels;
        let wanted = kernels.options.features.has(Feature::Resident);
        if !wanted || kernels.phase != Phase::Decode || group.members.len() < 2 {
            return None;
        }
        let plain = Wired::new(group, kernels).signature;
        let fits = |cols: &u64| {
            let group = resident::rebuilt(group, kernels, *cols)?;
            let (program, _) = Wired::new(&group, kernels).stitch("p", kernels).ok()?;
            let placed = resident::place(&program, self.machine)?;
            verify(&placed, self.machine).ok().map(|_| ())
        };
        let all = (1..=u64::from(self.machine.cols)).rev();
        let cols = *(self.columns.entry(plain))
            .or_insert_with(|| all.into_iter().find(|cols| fits(cols).is_some()));
        resident::rebuilt(group, kernels, cols?)
    }

    fn add_group(&mut self, group: &Group) -> Result<bool, LowerError> {
        let resident = self.resident(group);
        if resident.is_none() && group.attends() {
            return Ok(false);
        }
        let group = resident.as_ref().unwrap_or(group);
        let wired = Wired::new(group, self.kernels);
        let program = match self.known.get(&wired.signature) {
            Some(&known) => known,
            None => self.add_program(&wired, resident.is_some())?,
        };
        let step = self.plan.steps.len();
        let mut first = 0_usize;
        for (i, (node, kernels)) in group.members.iter().enumerate() {
            // One without a kernel is computed by the kernel before it.
            let launches = match kernels.len() {
                0 => first.saturating_sub(1)..first,
                n => first..first + n,
            };
            first = launches.end;
            let reason = match i.checked_sub(1).map(|before| group.members[before].0) {
                None => group.reason.clone(),
                Some(before) => format!(
                    "shares the dispatch of its neighbour {}",
                    self.kernels.graph.nodes[before].label
                ),
            };
            let device = Device {
                step,
                program,
                launches,
            };
            self.plan.placement.push(Placement {
                node: *node,
                place: Place::Device(device),
                reason,
            });
        }
        let name = self.plan.programs[program].name().to_owned();
        let set = self.set(&name, group.block);
        self.plan.steps.push(Step::Call(Call {
            program,
            set,
            bindings: wired.bindings(),
            nodes: group.members.iter().map(|&(node, _)| node).collect(),
        }));
        Ok(true)
    }

    fn add_program(&mut self, wired: &Wired<'_>, resident: bool) -> Result<usize, LowerError> {
        let taken = |name: &str| {
            let mut programs = self.plan.programs.iter();
            programs.any(|p| p.name() == name)
        };
        let name = distinct(&wired.base, taken);
        let (mut program, launches) = wired.stitch(&name, self.kernels)?;
        if let (true, Some(placed)) = (resident, resident::place(&program, self.machine)) {
            program = placed;
        }
        if let Err(refusals) = verify(&program, self.machine) {
            return Err(LowerError::Refused {
                program: name,
                refusals: refusals.iter().map(ToString::to_string).collect(),
            });
        }
        let container = program.to_container();
        let container = container.map_err(|error| LowerError::Program {
            program: name,
            problem: error.to_string(),
        })?;
        let planned = PlannedProgram {
            container: Arc::new(container),
            launches,
            annex: Annex::new(program),
        };
        self.known
            .insert(wired.signature.clone(), self.plan.programs.len());
        self.plan.programs.push(planned);
        Ok(self.plan.programs.len() - 1)
    }

    /// A key of its own for a call's buffers: seed 000 B7.
    fn set(&mut self, program: &str, block: Option<usize>) -> String {
        let base = match block {
            Some(block) => format!("{program}_L{block}"),
            None => program.to_owned(),
        };
        let set = distinct(&base, |name| self.sets.contains(name));
        self.sets.insert(set.clone());
        set
    }
}

/// The name, or the first of `name_2`, `name_3`, … that is free.
fn distinct(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut found = name.to_owned();
    let mut number = 2_usize;
    while taken(&found) {
        found = format!("{name}_{number}");
        number += 1;
    }
    found
}
