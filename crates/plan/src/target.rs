//! The contract of a kind of NPU with everything above it: a row in the registry of targets.

use crate::{Cluster, Disassembler, Exporter, Planner, Prober, SettingError, Settings, Workbench};
use millrace_graph::Graph;
use std::fmt;
use std::sync::Arc;

/// A kind of NPU: one static row in the registry of targets.
///
/// This is all that a command, a server or a plugin knows of a kind of NPU; nothing outside the target's own crate
/// names it. A feature of some targets only is a separate trait, which the row returns if it has it.
pub trait Target: Sync {
    /// Its name as a value of `--device`, and in its programs' containers (`xdna2`).
    fn name(&self) -> &'static str;

    /// Description for people: maker and model, and whether it is simulated.
    fn title(&self) -> &'static str;

    /// Settings that it takes, with their values.
    fn options(&self) -> TargetOptions;

    /// A planner with those settings.
    ///
    /// # Errors
    /// A setting that it does not know, or invalid values.
    fn planner(&self, settings: &Settings) -> Result<Arc<dyn Planner>, SettingError>;

    /// The default mode for a model; `None` takes the first of its modes.
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

    /// Its kernels by themselves, for developers who map models onto it.
    fn workbench(&self) -> Option<&dyn Workbench> {
        None
    }

    /// Prober that tries devices of this kind step by step.
    fn prober(&self) -> Option<&dyn Prober> {
        None
    }

    /// Exporter of programs for the vendor's own toolchain.
    fn exporter(&self) -> Option<&dyn Exporter> {
        None
    }

    /// Disassembler of the words that a device of this kind reads.
    fn disassembler(&self) -> Option<&dyn Disassembler> {
        None
    }

    /// Predictor of a model on several devices of this kind; `None` where one works alone.
    fn cluster(&self) -> Option<&dyn Cluster> {
        None
    }
}

impl fmt::Debug for dyn Target + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Settings that a target takes. The first entry of each list is the default.
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
    /// Simulators that can execute programs on a virtual device; empty where there is no choice.
    pub simulators: Vec<Choice>,
}

/// A value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its name.
    pub name: String,
    /// Its meaning, in a line.
    pub summary: String,
}

impl Choice {
    /// A name with its meaning.
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
    /// Name that it reports.
    pub name: String,
    /// Whether it can run a model, or why not and what to do.
    pub state: Result<(), String>,
}
