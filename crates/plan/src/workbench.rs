//! A target's kernels one by one: what the command `kernel` asks for.

mod data;

pub use data::{SlotOutput, contents, described};

use crate::{Choice, SettingError, Settings};
use millrace_kernels::Cpu;
use millrace_npu::{Slot, Trace};
use serde_json::Value;

/// A target's kernels, for who writes or changes them.
pub trait Workbench: Sync {
    /// Its kernels, each with a line on what it computes and how its shape is written.
    fn kernels(&self) -> Vec<Choice>;

    /// Builds, verifies, computes, compares and times a kernel, as far as is asked.
    ///
    /// # Errors
    /// What is wrong with the request, or what refuses the kernel.
    fn kernel(&self, request: &KernelRequest, cpu: &Cpu) -> Result<KernelReport, BenchError>;

    /// The slots of a program of somebody's own.
    ///
    /// # Errors
    /// Text that is no program.
    fn slots(&self, text: &str) -> Result<Vec<Slot>, BenchError>;

    /// The kernel's program as text.
    ///
    /// # Errors
    /// As [`kernel`](Workbench::kernel).
    fn program_text(&self, request: &KernelRequest) -> Result<String, BenchError>;

    /// All legal tilings of a kernel, the fastest first. `progress` is told how many there are and how
    /// many were looked at.
    ///
    /// # Errors
    /// As [`kernel`](Workbench::kernel).
    fn sweep(
        &self,
        request: &KernelRequest,
        progress: &mut dyn FnMut(usize, usize, &str),
    ) -> Result<Sweep, BenchError>;
}

/// A kernel and what to do with it.
#[derive(Clone, Debug, Default)]
pub struct KernelRequest {
    /// Machine, profile, numerics.
    pub settings: Settings,
    /// What is looked at.
    pub subject: KernelSubject,
    /// Predict its time only: compute nothing.
    pub time_only: bool,
    /// Seed of the random inputs.
    pub seed: u64,
    /// Spans that a trace may have; none is wanted with 0.
    pub trace_spans: usize,
}

/// What is looked at.
#[derive(Clone, Debug)]
pub enum KernelSubject {
    /// A kernel of the target.
    Kernel {
        /// Its name.
        name: String,
        /// The problem's dimensions, as the kernel writes them.
        shape: String,
        /// Changes to its tiling, as `name=number,…`.
        tile: Option<String>,
    },
    /// A program of somebody's own.
    Program {
        /// Its text.
        text: String,
        /// Slots with their bytes; the others are random.
        inputs: Vec<(String, Vec<u8>)>,
        /// Slots whose bytes are wanted.
        outputs: Vec<String>,
    },
}

impl Default for KernelSubject {
    fn default() -> KernelSubject {
        KernelSubject::Kernel {
            name: String::new(),
            shape: String::new(),
            tile: None,
        }
    }
}

/// What was found out.
#[derive(Clone, Debug, Default)]
pub struct KernelReport {
    /// What it is: `gemm-drain`, emphasised where that can be.
    pub name: String,
    /// Shape and machine, behind the name.
    pub heading: String,
    /// Lines of the report.
    pub lines: Vec<ReportLine>,
    /// All of it for programs.
    pub json: Value,
    /// What ran when, if asked for.
    pub trace: Option<Trace>,
    /// Contents of the slots that were asked for, in that order; of what was not computed, none.
    pub outputs: Vec<Vec<u8>>,
    /// How the result differs from the reference beyond its tolerance.
    pub wrong: Option<String>,
}

/// A line of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportLine {
    /// What it tells of; empty in lines that go on.
    pub label: &'static str,
    /// The text, in parts.
    pub text: Vec<LineSpan>,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineSpan {
    /// The text.
    pub text: String,
    /// How it is shown where that can be.
    pub tone: Tone,
}

/// How a text is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As any.
    Plain,
    /// What the reader looks for.
    Strong,
    /// What is wrong.
    Wrong,
}

impl ReportLine {
    /// A line of plain text.
    pub fn plain(label: &'static str, text: impl Into<String>) -> ReportLine {
        ReportLine {
            label,
            text: vec![LineSpan::new(text, Tone::Plain)],
        }
    }
}

impl LineSpan {
    /// A text and how it is shown.
    pub fn new(text: impl Into<String>, tone: Tone) -> LineSpan {
        LineSpan {
            text: text.into(),
            tone,
        }
    }
}

/// Legal tilings of a kernel, the fastest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// The kernel.
    pub kernel: String,
    /// The shape, as its dimensions.
    pub shape: String,
    /// Where times come from.
    pub profile: String,
    /// Tilings with their predictions.
    pub tilings: Vec<RankedTiling>,
    /// How many the verifier refused.
    pub n_refused: usize,
}

/// A tiling with its prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedTiling {
    /// The tiling.
    pub tiling: String,
    /// Predicted time.
    pub ns: f64,
    /// Operations a second, in 10^12; 0 for a kernel without.
    pub tflop_per_s: f64,
    /// What bounds its longest launch.
    pub bottleneck: String,
    /// Whether it is the one that is taken if none is asked for.
    pub is_default: bool,
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BenchError {
    /// A setting.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// No such thing, and what is near it.
    #[error("{message}")]
    NotFound {
        /// What is not there.
        message: String,
        /// What to do.
        hint: String,
    },
    /// A shape or a tiling that cannot be.
    #[error("{message}")]
    Usage {
        /// What cannot be.
        message: String,
        /// What to do; empty where the message says it.
        hint: String,
    },
    /// A program or data of somebody's own that makes no sense.
    #[error("{0}")]
    Input(String),
    /// The machine would refuse it, or it fails.
    #[error("{0}")]
    Failed(String),
}
