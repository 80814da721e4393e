//! A target's kernels one by one, for the command `kernel`.

mod data;

pub use data::{SlotOutput, contents, described};

use crate::{Choice, SettingError, Settings};
use millrace_kernels::Cpu;
use millrace_npu::{Slot, Trace};
use serde_json::Value;

/// A target's kernels, for developers who write or change them.
pub trait Workbench: Sync {
    /// Its kernels, each with a line on its computation and the form of its shape.
    fn kernels(&self) -> Vec<Choice>;

    /// Builds, verifies, computes, compares and times a kernel, as far as requested.
    ///
    /// # Errors
    /// A fault of the request, or the rule that refuses the kernel.
    fn kernel(&self, request: &KernelRequest, cpu: &Cpu) -> Result<KernelReport, BenchError>;

    /// The slots of a user's own program.
    ///
    /// # Errors
    /// Text that is not a program.
    fn slots(&self, text: &str) -> Result<Vec<Slot>, BenchError>;

    /// The kernel's program as text.
    ///
    /// # Errors
    /// As [`kernel`](Workbench::kernel).
    fn program_text(&self, request: &KernelRequest) -> Result<String, BenchError>;

    /// All legal tilings of a kernel, the fastest first. `progress` gets the number of tilings and how many were tried.
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
    /// The kernel or program to examine.
    pub subject: KernelSubject,
    /// Predict its time only: compute nothing.
    pub time_only: bool,
    /// Seed of the random inputs.
    pub seed: u64,
    /// Spans that a trace may have; none is wanted with 0.
    pub trace_spans: usize,
}

/// A kernel or program to examine.
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
    /// A user's own program.
    Program {
        /// Its text.
        text: String,
        /// Slots with their bytes; the others are random.
        inputs: Vec<(String, Vec<u8>)>,
        /// Slots whose bytes are requested.
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

/// Result of examining a kernel.
#[derive(Clone, Debug, Default)]
pub struct KernelReport {
    /// Its name: `gemm-drain`, emphasised where possible.
    pub name: String,
    /// Shape and machine, behind the name.
    pub heading: String,
    /// Lines of the report.
    pub lines: Vec<ReportLine>,
    /// The whole report for programs.
    pub json: Value,
    /// Trace of the run, if asked for.
    pub trace: Option<Trace>,
    /// Contents of the slots that were asked for, in that order; none for slots that were not computed.
    pub outputs: Vec<Vec<u8>>,
    /// How the result differs from the reference beyond its tolerance.
    pub wrong: Option<String>,
}

/// A line of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportLine {
    /// Subject of the line; empty in continuation lines.
    pub label: &'static str,
    /// The text, in parts.
    pub text: Vec<LineSpan>,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineSpan {
    /// The text.
    pub text: String,
    /// How it is shown where possible.
    pub tone: Tone,
}

/// How a text is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Plain text.
    Plain,
    /// The result that the reader looks for.
    Strong,
    /// A fault.
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
    /// Profile that times come from.
    pub profile: String,
    /// Tilings with their predictions.
    pub tilings: Vec<RankedTiling>,
    /// Number of tilings that the verifier refused.
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
    /// The resource that limits its longest launch.
    pub bottleneck: String,
    /// Whether it is the default tiling.
    pub is_default: bool,
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BenchError {
    /// A setting.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The subject does not exist; the hint names similar ones.
    #[error("{message}")]
    NotFound {
        /// The missing subject.
        message: String,
        /// Advice.
        hint: String,
    },
    /// An invalid shape or tiling.
    #[error("{message}")]
    Usage {
        /// The invalid part.
        message: String,
        /// Advice; empty where the message says it.
        hint: String,
    },
    /// A user's program or data that make no sense.
    #[error("{0}")]
    Input(String),
    /// The machine would refuse it, or it fails.
    #[error("{0}")]
    Failed(String),
}
