//! What an NPU is to everything above it: a row in the registry, and who makes plans for it.

use crate::predict::{MachineFacts, PredictError, Work};
use crate::{
    Annex, Arithmetic, BenchError, Chunk, Export, HeadRows, Lengths, LowerError, PassKind, Phase,
    Plan, PlannedLaunch, PlannedProgram, Pricer, Prober, Settings, SourceFile, TowerPlan,
    TowerShape, WeightLayout, Workbench,
};
use crate::{AttentionOn, SettingError};
use millrace_kernels::Cpu;
use millrace_model::ModelConfig;
use millrace_model::graph::Graph;
use millrace_npu::{Container, Device, DeviceError, Provenance};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A kind of NPU: one static row in the registry of targets.
///
/// Everything a command, a server or a plugin knows of a kind of NPU it asks here; nothing outside the
/// target's own crate names it.
pub trait Target: Sync {
    /// Its name as a value of `--device`, and in its programs' containers (`xdna2`).
    fn name(&self) -> &'static str;

    /// What it is, for people: maker and model, and whether it is simulated.
    fn title(&self) -> &'static str;

    /// What can be set, with the values there are.
    fn options(&self) -> TargetOptions;

    /// Who makes plans for it, set up so.
    ///
    /// # Errors
    /// A setting that it does not know, or values that cannot be.
    fn planner(&self, settings: &Settings) -> Result<Arc<dyn Planner>, SettingError>;

    /// The mode that is taken for a model where none is said; `None` takes the first of its modes.
    fn mode_of(&self, graph: &Graph) -> Option<ModeChoice> {
        let _ = graph;
        None
    }

    /// The name of the mode that an earlier release called `former`, where it has another name. A planner takes both.
    fn renamed_mode(&self, former: &str) -> Option<&'static str> {
        let _ = former;
        None
    }

    /// Hardware of this kind that this computer has.
    fn hardware(&self) -> Vec<Hardware> {
        Vec::new()
    }

    /// Its kernels by themselves, for who maps models onto it.
    fn workbench(&self) -> Option<&dyn Workbench> {
        None
    }

    /// What tries devices of this kind step by step.
    fn prober(&self) -> Option<&dyn Prober> {
        None
    }

    /// What a model costs on several devices of this kind; `None` where one works alone.
    fn shared(&self, request: &Shared<'_>) -> Option<Result<SharedCost, PredictError>> {
        let _ = request;
        None
    }

    /// What [`export`](Target::export) writes, in words; `None` where programs have no form for the vendor's
    /// own toolchain.
    fn export_form(&self) -> Option<&'static str> {
        None
    }

    /// A model's programs as source for the vendor's own toolchain; `None` where there is no such form.
    fn export(&self, request: &Export<'_>) -> Option<Result<Vec<SourceFile>, BenchError>> {
        let _ = request;
        None
    }
}

impl fmt::Debug for dyn Target + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What can be set of a target. Of each list the first is what is taken if nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetOptions {
    /// Machines whose facts are built in.
    pub machines: Vec<Choice>,
    /// Profiles of constants that are built in.
    pub profiles: Vec<Choice>,
    /// Ways of making plans.
    pub modes: Vec<Choice>,
    /// Improvements that can be left out one by one.
    pub features: Vec<Choice>,
    /// How matrices are multiplied.
    pub numerics: Vec<Choice>,
}

/// Several devices that share a model.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    /// The model.
    pub config: &'a ModelConfig,
    /// What is asked of the target.
    pub settings: &'a Settings,
    /// How many.
    pub n_devices: u64,
    /// How: `pp`, each has some of the layers; `tp`, each a share of every layer.
    pub parallel: &'a str,
    /// A prompt, and a token behind as many as its context says.
    pub work: Work,
}

/// What a model costs on several devices.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SharedCost {
    /// The machine of each.
    pub machine: String,
    /// How many there are.
    pub n_devices: u64,
    /// How they share the model, in words.
    pub parallel: String,
    /// Memory of a device.
    pub memory_bytes: u64,
    /// Weights of the device that has most.
    pub weight_bytes: u64,
    /// Keys and values of a token there.
    pub token_bytes: u64,
    /// Tokens that fit beside the weights.
    pub n_tokens: u64,
    /// Time to the first token.
    pub ttft_ns: f64,
    /// Time of a token.
    pub token_ns: f64,
    /// A token's, if memories did nothing but read weights and cache at their peak.
    pub token_roof_ns: f64,
    /// Where the times come from.
    pub provenance: Provenance,
}

/// A value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its name.
    pub name: String,
    /// What it means, in a line.
    pub summary: String,
}

impl Choice {
    /// A name and what it means.
    pub fn new(name: &str, summary: &str) -> Choice {
        Choice {
            name: name.to_owned(),
            summary: summary.to_owned(),
        }
    }
}

/// A mode that a model's weights decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChoice {
    /// Its name, one of [`TargetOptions::modes`].
    pub mode: &'static str,
    /// Why, in words for people.
    pub reason: String,
}

/// A device that was found on this computer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// Where it is (`/dev/accel/accel0`, a bus address).
    pub place: String,
    /// What it says it is.
    pub name: String,
    /// Whether a model can be run on it, or why not and what to do.
    pub state: Result<(), String>,
}

/// Why an op is not computed on a device, in words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(pub String);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A weight as the checkpoint has it, for a target that arranges it in a way of its own.
#[derive(Clone, Copy, Debug)]
pub struct WeightSource<'a> {
    /// Its element or block format.
    pub dtype: millrace_quant::DType,
    /// The checkpoint's bytes.
    pub bytes: &'a [u8],
    /// Rows.
    pub n: usize,
    /// Elements of a row.
    pub k: usize,
    /// With a head's elements: rows of each head are put from interleaved to half-split order.
    pub half_split: Option<usize>,
}

/// A slot whose content lies in an arrangement of the target's own.
#[derive(Clone, Copy, Debug)]
pub struct OwnSlot<'a> {
    /// The program.
    pub program: &'a PlannedProgram,
    /// The slot's number.
    pub slot: usize,
    /// The arrangement, by a number that only the target knows.
    pub id: u32,
}

/// Where a pass stands in its sequence.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    /// The model.
    pub graph: &'a Graph,
    /// Its tokens, padding behind them.
    pub tokens: &'a [u32],
    /// Tokens that are no padding.
    pub n_real: usize,
    /// Position of the first: tokens of the sequence before it.
    pub first: usize,
}

/// What the host keeps of a slot that it wrote and needs again to read the program's results: scales of
/// quantised rows. Empty where there is nothing to keep.
pub type Scales = Arc<[f32]>;

/// A weight as a launch multiplies with it, read back from a slot whose layout is the target's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PackedWeight {
    /// The numbers, `[n, k]` in the order of the layout's rows; n may be padded.
    pub values: Vec<f32>,
    /// Where `w = scale·q + offset` and a group's two sums of products, with q and with the offset, are
    /// each rounded to bf16: the group's size and the offsets `[n, k / group]`.
    pub offsets: Option<(usize, Vec<f32>)>,
}

/// Makes plans of a model's graph for one machine of a target, and opens devices that run them.
///
/// Lowering is pure: the same graph and kind of pass give the same plan, byte for byte.
pub trait Planner: Send + Sync {
    /// The target's [name](Target::name).
    fn target(&self) -> &'static str;

    /// Everything that plans depend on beside graph and kind of pass: the target's compiler, machine,
    /// constants and options, as text. Equal identities make equal plans, so caches are keyed by it.
    fn identity(&self) -> String;

    /// The machine.
    fn machine(&self) -> MachineFacts;

    /// How plans are made, in a few words (`fast without alias`).
    fn mode(&self) -> String;

    /// The improvements in force, by name.
    fn features(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Lengths that prefill plans are made for.
    fn lengths(&self) -> Lengths;

    /// Rows of a sequence's cache of `n_ctx` tokens: at least those.
    fn cache_rows(&self, graph: &Graph, n_ctx: u64) -> u64 {
        let _ = graph;
        n_ctx
    }

    /// The kind of pass that a chunk takes, where a sequence's cache has `cache_rows` rows. Without a
    /// mapping over the cache, attention of later chunks is the host's.
    fn kind(&self, graph: &Graph, phase: Phase, chunk: Chunk, cache_rows: u64) -> PassKind {
        let _ = (graph, cache_rows);
        PassKind {
            phase,
            n_tokens: chunk.n_padded,
            attention: match (phase, chunk.first) {
                (Phase::Prefill, 1..) => AttentionOn::Host,
                _ => AttentionOn::Device,
            },
            head: HeadRows::Last,
        }
    }

    /// The first position behind `first` whose token may take another plan than the one at `first`.
    fn decode_until(&self, first: u64) -> u64 {
        let _ = first;
        u64::MAX
    }

    /// What becomes of a weight's numbers in a slot, in words; `None` where nothing is said of it.
    fn becomes(&self, dtype: millrace_quant::DType, layout: &WeightLayout) -> Option<&'static str> {
        let _ = (dtype, layout);
        None
    }

    /// Whether a node of the graph, by its number, is computed on the device in passes of that kind.
    ///
    /// # Errors
    /// The rule that leaves it to the host.
    fn supports(&self, graph: &Graph, kind: &PassKind, node: usize) -> Result<(), Reason>;

    /// The plan of a kind of pass.
    ///
    /// # Errors
    /// A graph that makes no sense, a length beyond the limits, an op that neither device nor host
    /// computes.
    fn lower(&self, graph: &Graph, kind: &PassKind) -> Result<Plan, LowerError>;

    /// The programs of a vision tower's blocks.
    ///
    /// # Errors
    /// Why blocks of those sizes are the host's.
    fn tower(&self, shape: &TowerShape) -> Result<TowerPlan, Reason> {
        let _ = shape;
        let target = self.target();
        Err(Reason(format!(
            "{target} has no programs for the blocks of a vision tower"
        )))
    }

    /// Who makes the same plans with programs that give out what every op gives, for checks of each op; `None`
    /// where programs do so anyway. Slots and results that both have are the same.
    fn observed(&self) -> Option<Arc<dyn Planner>> {
        None
    }

    /// The target's own form of a program that comes from a cache; `None` where the bytes are none.
    fn annex(&self, container: &Container, launches: &[PlannedLaunch]) -> Option<Annex> {
        let _ = (container, launches);
        Some(Annex::default())
    }

    /// Writes a weight whose layout is the target's own ([`crate::WeightLayout::Own`])
    /// into its slot; `out` holds anything. Gives what [`unpack`](Planner::unpack) needs of it.
    ///
    /// # Errors
    /// What does not fit, in words.
    fn fill(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_>,
        weight: &WeightSource<'_>,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        let _ = (cpu, weight, out);
        Err(format!(
            "{} has no layout {} of weights",
            self.target(),
            at.id
        ))
    }

    /// Reads a weight of such a layout back from its slot, for who checks what a launch made of it. `None`
    /// where that is not looked at.
    fn read_weight(
        &self,
        launch: &PlannedLaunch,
        id: u32,
        bytes: &[u8],
        k: usize,
    ) -> Option<PackedWeight> {
        let _ = (launch, id, bytes, k);
        None
    }

    /// Writes rows of a value into a slot with an arrangement of the target's own
    /// ([`Binding::Packed`](crate::Binding::Packed)). `rows` is `[n_rows, width]`, `out` holds zeros.
    /// Gives what [`unpack`](Planner::unpack) needs of it.
    ///
    /// # Errors
    /// What does not fit, in words.
    fn pack(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_>,
        rows: &[f32],
        width: usize,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        let _ = (cpu, rows, width, out);
        Err(format!(
            "{} has no layout {} of values",
            self.target(),
            at.id
        ))
    }

    /// Reads rows of a value from such a slot. `scales` has what the call's slots were filled and packed
    /// with, one a slot.
    ///
    /// # Errors
    /// What does not fit, in words.
    fn unpack(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_>,
        bytes: &[u8],
        scales: &[Scales],
        width: usize,
        rows: &mut [f32],
    ) -> Result<(), String> {
        let _ = (cpu, bytes, scales, width, rows);
        Err(format!(
            "{} has no layout {} of values",
            self.target(),
            at.id
        ))
    }

    /// Writes what follows from where a pass stands ([`Binding::Made`](crate::Binding::Made)); `out` holds
    /// zeros.
    ///
    /// # Errors
    /// What does not fit, in words.
    fn make(
        &self,
        at: &OwnSlot<'_>,
        standing: &Standing<'_>,
        out: &mut [u8],
    ) -> Result<(), String> {
        let _ = (standing, out);
        Err(format!("{} makes no input {}", self.target(), at.id))
    }

    /// The numbers that a product multiplies, from a slot that [`fill`](Planner::fill) or
    /// [`pack`](Planner::pack) wrote: rows of the width of k, changed as
    /// [`arithmetic`](Planner::arithmetic) says. For who checks the product.
    ///
    /// # Errors
    /// That they cannot be told.
    fn operand(
        &self,
        cpu: &Cpu,
        at: &OwnSlot<'_>,
        bytes: &[u8],
        scales: &Scales,
        rows: &mut [f32],
    ) -> Result<(), String> {
        let _ = (cpu, bytes, scales, rows);
        Err(format!(
            "{} cannot tell what lies in layout {}",
            self.target(),
            at.id
        ))
    }

    /// How a launch of one of its plans computes, for who checks the result.
    fn arithmetic(&self, launch: &PlannedLaunch) -> Arithmetic {
        let _ = launch;
        Arithmetic::default()
    }

    /// What physical launches of a program take of the machine.
    fn occupied(&self, planned: &PlannedProgram, physical: Range<usize>) -> Occupied {
        let _ = planned;
        Occupied {
            n_launches: physical.len(),
            ..Occupied::default()
        }
    }

    /// What a launch's kernel is, and how near it comes to the machine's limits.
    fn kernel(&self, launch: &PlannedLaunch) -> KernelFacts {
        let _ = launch;
        KernelFacts::default()
    }

    /// A device of that machine: hardware where there is some and it can be opened, otherwise a virtual
    /// one, whose name says so. Simulations run on the CPU's threads.
    ///
    /// # Errors
    /// Hardware that is there and cannot be used, memory.
    fn open(&self, cpu: Cpu) -> Result<Arc<dyn Device>, DeviceError>;

    /// What predicts the cost of its plans; `None` where nothing was ever measured.
    fn pricer(&self) -> Option<Box<dyn Pricer + '_>> {
        None
    }
}

/// What launches take of a machine's cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupied {
    /// Launches that there are.
    pub n_launches: usize,
    /// Columns and rows of their herds, each size once.
    pub herds: Vec<(u32, u32)>,
    /// Cores that one of them takes at most: its herds lie beside each other.
    pub n_cores: u32,
}

/// A kernel in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// What it computes.
    pub summary: String,
    /// What it takes of the machine's limits.
    pub limits: String,
}

impl fmt::Debug for dyn Planner + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.target(), self.identity())
    }
}
