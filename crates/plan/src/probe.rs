//! Checks step by step whether a device is alive, for the command `probe`.

use crate::{Choice, SettingError, Settings};
use millrace_npu::Provenance;
use serde::Serialize;

/// Probes devices of a target, real or virtual.
pub trait Prober: Sync {
    /// Faults that a virtual device can have, for testing the probe: names and effects.
    fn faults(&self) -> Vec<Choice>;

    /// Opens a device and tries each thing that a model will need, from the plainest on.
    ///
    /// # Errors
    /// A setting or a fault that it does not know. Faults of the device are in the report.
    fn probe(&self, settings: &Settings, of: &ProbeOf) -> Result<ProbeReport, SettingError>;
}

/// Device to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOf {
    /// This computer's device.
    Hardware,
    /// A virtual one, with a fault by its name.
    Virtual(Option<String>),
}

/// How a step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeStatus {
    /// As it should.
    Ok,
    /// It works, and something is worth knowing.
    Note,
    /// It failed.
    Failed,
    /// A step before it failed.
    Skipped,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeStep {
    /// Its name (`open`).
    pub name: String,
    /// How it went.
    pub status: ProbeStatus,
    /// Finding of the step.
    pub detail: String,
    /// Advice, where there is something to do.
    pub advice: Option<String>,
}

/// A number that a probe took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeFigure {
    /// Its name, with the unit (`clock_hz`).
    pub name: &'static str,
    /// Its value.
    pub value: f64,
}

/// Result of a probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeReport {
    /// Where it looked.
    pub place: String,
    /// Where its times come from; `None` where no device was opened.
    pub provenance: Option<Provenance>,
    /// The steps in order.
    pub steps: Vec<ProbeStep>,
    /// Numbers for programs.
    pub figures: Vec<ProbeFigure>,
    /// A profile with the measured constants, as the text of a file that `--profile` takes. `None` where nothing was
    /// measured, or the target's probe takes no constants.
    #[serde(skip)]
    pub profile: Option<String>,
}

impl ProbeReport {
    /// The first step that failed.
    pub fn failure(&self) -> Option<&ProbeStep> {
        let mut steps = self.steps.iter();
        steps.find(|step| step.status == ProbeStatus::Failed)
    }
}
