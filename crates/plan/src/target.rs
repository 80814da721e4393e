//! What a kind of NPU is to everything above it: a row in the registry of targets.

use crate::{Cluster, Disassembler, Exporter, Planner, Prober, SettingError, Settings, Workbench};
use millrace_graph::Graph;
use std::fmt;
use std::sync::Arc;

/// A kind of NPU: one static row in the registry of targets.
///
/// Everything a command, a server or a plugin knows of a kind of NPU it asks here; nothing outside the
/// target's own crate names it. What only some targets can do is a trait of its own, which the row gives out or
/// has not.
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

    /// What writes programs for the vendor's own toolchain.
    fn exporter(&self) -> Option<&dyn Exporter> {
        None
    }

    /// What tells the words that a device of this kind reads.
    fn disassembler(&self) -> Option<&dyn Disassembler> {
        None
    }

    /// What several devices of this kind make of a model together; `None` where one works alone.
    fn cluster(&self) -> Option<&dyn Cluster> {
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
    /// What can execute programs on a virtual device; none where there is nothing to choose.
    pub simulators: Vec<Choice>,
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
