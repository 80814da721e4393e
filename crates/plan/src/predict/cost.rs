//! Cost of a program on a device.

use super::Rate;
use millrace_npu::{Role, Slot};
use serde::Serialize;
use std::fmt;

/// A program of a pass.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramCost {
    /// Name.
    pub name: String,
    /// Calls in the pass.
    pub calls: u64,
    /// One run on the NPU: `dispatch_ns + load_ns +` its launches.
    pub run_ns: f64,
    /// The call itself, as with an empty program.
    pub dispatch_ns: f64,
    /// Loading core programs.
    pub load_ns: f64,
    /// Loading them where another program ran before; not part of `run_ns`. 0 where every run loads its cores'
    /// programs, or none does.
    pub switch_ns: f64,
    /// Operations of a run, and their rate over it.
    #[serde(flatten)]
    pub rate: Rate,
    /// One for each kernel, in order.
    pub launches: Vec<LaunchCost>,
    /// Bytes of its slots by role, of one call.
    pub slots: SlotBytes,
}

/// Bytes of a program's slots by role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlotBytes {
    /// Weights, tables, a sequence's cache.
    pub r#static: u64,
    /// Written by the host, or by a call before.
    pub input: u64,
    /// Neither written nor read by the host.
    pub intermediate: u64,
    /// Read by the host, or by a call after.
    pub output: u64,
}

impl SlotBytes {
    /// Sizes of an argument list.
    pub fn of(slots: &[Slot]) -> SlotBytes {
        let mut bytes = SlotBytes::default();
        for slot in slots {
            let size = slot.size_bytes().unwrap_or(0);
            match slot.role {
                Role::Static => bytes.r#static += size,
                Role::Input => bytes.input += size,
                Role::Intermediate => bytes.intermediate += size,
                Role::Output => bytes.output += size,
            }
        }
        bytes
    }
}

/// A kernel within a program.
#[derive(Clone, Debug, Serialize)]
pub struct LaunchCost {
    /// The node's label.
    pub name: String,
    /// The target's kernel.
    pub kernel: String,
    /// The part of the model that it computes.
    #[serde(skip)]
    pub part: ModelPart,
    /// The problem, as `millrace kernel` takes it: `2048x2048x8192`.
    pub shape: String,
    /// How it is tiled.
    pub tiling: String,
    /// Launches of the program that it takes.
    pub physical: u64,
    /// Time from its first task to its last token.
    pub ns: f64,
    /// Loading its cores' programs.
    pub load_ns: f64,
    /// Its operations.
    pub flops: u64,
    /// The resource that limits it.
    pub bottleneck: Bottleneck,
    /// Bytes read from DDR.
    pub ddr_read_bytes: f64,
    /// Bytes written to DDR.
    pub ddr_write_bytes: f64,
    /// Cores that compute.
    pub cores: Vec<CoreCost>,
    /// Share of the machine's cores times the launch's time in which they compute.
    pub utilization: f64,
}

/// A part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelPart {
    /// Projections of attention.
    Projections,
    /// Attention itself.
    Attention,
    /// Products of the feed-forward network.
    FeedForward,
    /// Norms, rotation, activation, sums.
    Elementwise,
    /// The head.
    Head,
}

impl ModelPart {
    /// Every part, in the order in which a model has them.
    pub const ALL: [ModelPart; 5] = [
        ModelPart::Projections,
        ModelPart::Attention,
        ModelPart::FeedForward,
        ModelPart::Elementwise,
        ModelPart::Head,
    ];

    /// Its name, in words.
    pub fn name(self) -> &'static str {
        match self {
            ModelPart::Projections => "projections of attention",
            ModelPart::Attention => "attention",
            ModelPart::FeedForward => "feed-forward products",
            ModelPart::Elementwise => "norms, rotation, activation, sums",
            ModelPart::Head => "head",
        }
    }

    /// The part of a product of matrices, by the label of its node.
    pub fn of_product(label: &str) -> ModelPart {
        match label {
            label if label.starts_with("lm_head") => ModelPart::Head,
            label if label.starts_with("ffn") => ModelPart::FeedForward,
            "attn" => ModelPart::Attention,
            _ => ModelPart::Projections,
        }
    }
}

/// The resource that is busy for most of a launch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Bottleneck {
    /// Its name.
    pub resource: String,
    /// Share of the launch's time for which it is busy.
    pub utilization: f64,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.utilization;
        write!(f, "{}, busy {percent:.0} % of the time", self.resource)?;
        if self.utilization < 0.6 {
            write!(
                f,
                " (no resource is full: fills, drains and waits do not overlap)"
            )?;
        }
        Ok(())
    }
}

/// A core in a launch, as shares of the launch's time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CoreCost {
    /// Column.
    pub col: u32,
    /// Row.
    pub row: u32,
    /// Computing.
    pub busy: f64,
    /// Waiting for a full or an empty block.
    pub stalled: f64,
}
