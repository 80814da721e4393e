//! Common parts of every NPU *plan*, and the contract of a kind of NPU with the rest of the workspace.
//!
//! A [`Target`] is a kind of NPU: one row in a registry, one crate behind it. Its [`Planner`] lowers a model's graph
//! for a [kind of pass](PassKind) to a [`Plan`]: calls of programs and steps of the host, with the content of every
//! slot, and where every op runs and why. The same plan is run (by the runtime's sessions), compiled ahead of time
//! ([`compile()`]), predicted ([`predict`]) and explained.
//!
//! | module | holds |
//! |---|---|
//! | `target`, [`settings`] | a target's row in the registry, and its settings |
//! | `planner` | a target's work for one machine: the sum of the four traits that follow, devices, prices |
//! | `lowering` | which plan a kind of pass has |
//! | `arrangement` | slots whose content only the target can write and read |
//! | `arithmetic` | how a launch computes, for checks |
//! | `explain` | machine resources of plans |
//! | [`workbench`], `probe`, `export`, `disassemble`, `cluster`, `evidence` | features of some targets: kernels one by one, a check whether a device is alive, source for a vendor's toolchain, words as text, several devices, published measurements |
//! | `passes` | how sequences are cut into passes: the one rule |
//! | `plan` | plan, programs, launches, calls, bindings, host steps, placement |
//! | `layout` | how weights, rotation tables and positions are arranged in slots |
//! | `buffers` | the buffer of each slot, and the host's transfers |
//! | `inspect`, `stored` | looking into a plan; checks of a plan from a cache |
//! | [`graph`] | graphs that make sense |
//! | [`offload`] | plans in which each op runs on the device or on the host |
//! | [`experts`] | calls that multiply with the experts that tokens chose |
//! | `compile` | plans and programs from a cache, or lowered and put there |
//! | [`quantise`] | 8-bit activations and weights, rotated, for targets with arrays of integers |
//! | [`vision`] | a vision encoder's blocks on a device |
//! | [`predict`] | the cost of a plan |
//! | `named`, [`units`] | shapes and tilings; bytes and times as people read them |
#![forbid(unsafe_code)]

mod arithmetic;
mod arrangement;
pub mod attention_products;
pub mod bound;
mod buffers;
mod cluster;
mod compile;
mod disassemble;
mod error;
mod evidence;
pub mod experts;
mod explain;
mod export;
pub mod graph;
mod inspect;
mod layout;
mod lowering;
mod named;
pub mod offload;
mod passes;
mod plan;
mod planner;
pub mod predict;
mod probe;
pub mod quantise;
pub mod settings;
mod stored;
mod target;
pub mod units;
pub mod vision;
pub mod workbench;

pub use arithmetic::{Arithmetic, AttentionSteps, Factor, NarrowOperands, Numerics, QuantisedRows};
pub use arrangement::{
    Arrangement, InputId, OperandArrangement, OwnSlot, PackedWeight, PassPosition, Scales,
    ValueArrangement, WeightArrangement, WeightSource,
};
pub use attention_products::{AttentionPart, AttentionProducts};
pub use buffers::{BufferKind, Buffers, HostMove, HostRows, PlannedBuffer, SlotUse};
pub use cluster::{Cluster, ClusterCost, ClusterRequest};
pub use compile::{CompiledPlan, compile};
pub use disassemble::{Disassembler, Disassembly, DisassemblyLine, FieldValue};
pub use error::{LowerError, MAX_TOKENS};
pub use evidence::{Evidence, FidelityOf, FidelityReport};
pub use experts::ExpertCall;
pub use explain::{CoreOccupancy, Explain, KernelFacts};
pub use export::{Export, Exporter, SourceFile};
pub use layout::{
    Bias, KeyRange, TableRows, WeightLayout, cache_element, position_and_image, position_slot,
    rope_table,
};
pub use lowering::{Lowering, Reason};
pub use named::{NamedNumbers, Shape, ShapeError, Tiling};
pub use passes::{AttentionOn, Chunk, HeadRows, Lengths, PassKind, Sequences};
pub use plan::{
    Annex, Binding, CachePart, Call, Device, Edge, End, IndexSets, NodePlace, Phase, Placement,
    Plan, PlannedLaunch, PlannedProgram, Step, host_step::HostStep,
};
pub use planner::Planner;
pub use predict::{MachineFacts, Pricer};
pub use probe::{ProbeFigure, ProbeOf, ProbeReport, ProbeStatus, ProbeStep, Prober};
pub use settings::{FactSource, SettingError, Settings};
pub use target::{Choice, Hardware, ModeChoice, Target, TargetOptions};
pub use vision::{VisionCost, VisionMatrix, VisionPlan, VisionProgram, VisionShape, VisionSlot};
pub use workbench::{
    BenchError, KernelReport, KernelRequest, KernelSubject, LineSpan, RankedTiling, ReportLine,
    Sweep, Tone, Workbench,
};
