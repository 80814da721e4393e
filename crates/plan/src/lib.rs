//! What every NPU *plan* shares, and what a kind of NPU is to the rest of the house.
//!
//! A [`Target`] is a kind of NPU: one row in a registry, one crate behind it. Its [`Planner`] lowers a
//! model's graph for a [kind of pass](PassKind) to a [`Plan`]: calls of programs and steps of the host,
//! with what every slot holds and where every op runs and why. The same plan is run (by the runtime's
//! sessions), compiled ahead of time ([`compile()`]), predicted ([`predict`]) and explained.
//!
//! | module | holds |
//! |---|---|
//! | [`target`], [`settings`] | the contract of targets: registry row, planner, options |
//! | [`passes`] | how sequences are cut into passes: the one rule |
//! | [`plan`] | plan, programs, launches, calls, bindings, host steps, placement |
//! | [`layout`] | how weights, rotation tables and positions lie in slots |
//! | [`buffers`] | which buffer each slot is, and what the host moves |
//! | [`inspect`], [`stored`] | looking into a plan; what a plan from a cache must keep to |
//! | [`graph`] | graphs that make sense |
//! | [`offload`] | plans in which each op is the device's or the host's |
//! | [`mod@compile`] | plans and programs from a cache, or lowered and put there |
//! | [`quantise`] | 8-bit activations and weights, rotated, for targets with arrays of integers |
//! | [`arithmetic`] | how a launch computes, for who checks it |
//! | [`tower`] | a vision tower's blocks on a device |
//! | [`predict`] | what a plan costs |
//! | [`probe`] | whether a device is alive |
//! | [`workbench`] | kernels one by one |
//! | [`evidence`] | what others published, beside predictions |
//! | [`named`], [`units`] | shapes and tilings; bytes and times as people read them |
#![forbid(unsafe_code)]

pub mod arithmetic;
pub mod attended;
pub mod bound;
pub mod buffers;
pub mod compile;
pub mod error;
pub mod evidence;
pub mod export;
pub mod graph;
pub mod inspect;
pub mod layout;
pub mod named;
pub mod offload;
pub mod passes;
pub mod plan;
pub mod predict;
pub mod probe;
pub mod quantise;
pub mod settings;
pub mod stored;
pub mod target;
pub mod tower;
pub mod units;
pub mod workbench;

pub use arithmetic::{Arithmetic, AttentionSteps, Factor, Narrowed, Quantised};
pub use attended::{Attended, AttendedPart};
pub use buffers::{BufferKind, Buffers, HostMove, PlannedBuffer, Rows, SlotUse};
pub use compile::{Compiled, compile};
pub use error::{LowerError, MAX_TOKENS};
pub use evidence::{Evidence, FidelityOf, FidelityReport};
pub use export::{Export, SourceFile};
pub use layout::{
    Bias, Reach, TableRows, WeightLayout, cache_element, position_and_image, position_slot,
    rope_table,
};
pub use named::{Named, Shape, ShapeError, Tiling};
pub use passes::{AttentionOn, Chunk, HeadRows, Lengths, PassKind, Sequences};
pub use plan::{
    Annex, Binding, CachePart, Call, Device, Edge, End, HostStep, IndexSets, Phase, Place,
    Placement, Plan, PlannedLaunch, PlannedProgram, Step,
};
pub use predict::{MachineFacts, Pricer};
pub use probe::{ProbeFigure, ProbeOf, ProbeReport, ProbeStatus, ProbeStep, Prober};
pub use settings::{Facts, SettingError, Settings};
pub use target::{
    Choice, Hardware, KernelFacts, ModeChoice, Occupied, OwnSlot, PackedWeight, Planner, Reason,
    Scales, Shared, SharedCost, Standing, Target, TargetOptions, WeightSource,
};
pub use tower::{TowerCost, TowerMatrix, TowerPlan, TowerProgram, TowerShape, TowerSlot};
pub use workbench::{
    BenchError, KernelReport, KernelRequest, KernelSubject, Line, RankedTiling, Span, Sweep, Tone,
    Workbench,
};
