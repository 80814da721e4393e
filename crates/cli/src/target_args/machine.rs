//! Facts of a machine and constants of a profile, for commands that need no model.

use super::{default_target, target_parser, targets};
use crate::exit::CommandResult;
use millrace::TargetSettings;
use millrace_plan::{Settings, Target};

/// Facts and constants that predictions are made from
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct MachineArgs {
    /// Facts of the machine: a name, or a TOML file of your own
    #[arg(long, value_name = "NAME|FILE", value_hint = clap::ValueHint::FilePath)]
    machine: Option<String>,
    /// Change a fact of the machine or a constant of the profile (`cols=4`, `profile.ddr.total_gb_per_s=120`)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Calibrated constants of the software stack: a name, or a TOML file of your own
    #[arg(long, value_name = "NAME|FILE", value_hint = clap::ValueHint::FilePath)]
    profile: Option<String>,
}

/// Default target to probe: the first that can be probed.
fn default_probed() -> &'static str {
    let all = || targets().iter().filter(|target| target.prober().is_some());
    // Prefers a kind that this computer has.
    let here = all().find(|target| !target.hardware().is_empty());
    let probed = here.or_else(|| all().next());
    probed.map_or_else(default_target, |target| target.name())
}

/// Kind of NPU to probe
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Device")]
pub(crate) struct ProbeTargetArgs {
    /// Kind of NPU
    #[arg(long, value_name = "NAME", default_value = default_probed(), value_parser = target_parser())]
    pub(crate) device: &'static dyn Target,
    #[command(flatten)]
    machine: MachineArgs,
}

impl ProbeTargetArgs {
    /// Settings for the target.
    pub(crate) fn settings(&self) -> CommandResult<Settings> {
        self.machine.settings(self.device)
    }
}

/// Kind of NPU for kernels
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct KernelTargetArgs {
    /// Kind of NPU
    #[arg(long, value_name = "NAME", default_value = default_target(), value_parser = target_parser())]
    pub(crate) device: &'static dyn Target,
    /// Simulator that executes the kernel [default: the first; `millrace devices -v` lists them]
    #[arg(long, value_name = "NAME")]
    simulator: Option<String>,
    #[command(flatten)]
    machine: MachineArgs,
}

impl KernelTargetArgs {
    /// Settings for the target.
    pub(crate) fn settings(&self, numerics: Option<String>) -> CommandResult<Settings> {
        let asked = TargetSettings {
            numerics,
            simulator: self.simulator.clone(),
            ..self.machine.target_settings()
        };
        Ok(asked.of_machine(self.device)?)
    }
}

impl MachineArgs {
    /// The first option that was given, if one was.
    pub(super) fn given(&self) -> Option<&'static str> {
        let options = [
            ("--machine", self.machine.is_some()),
            ("--set", !self.set.is_empty()),
            ("--profile", self.profile.is_some()),
        ];
        let given = options.iter().find(|(_, is_given)| *is_given);
        given.map(|(option, _)| *option)
    }

    pub(super) fn target_settings(&self) -> TargetSettings {
        TargetSettings {
            machine: self.machine.clone(),
            profile: self.profile.clone(),
            set: self.set.clone(),
            ..TargetSettings::default()
        }
    }

    fn settings(&self, target: &dyn Target) -> CommandResult<Settings> {
        Ok(self.target_settings().of_machine(target)?)
    }
}
