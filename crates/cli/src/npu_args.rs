//! Which NPU, and which of its constants: the arguments that all commands about NPUs share.

use crate::exit::{Failure, Outcome};
use millrace_xdna2::{Machine, Profile};
use std::path::Path;

/// The NPU's facts and the software's constants
#[derive(clap::Args, Debug)]
pub(crate) struct NpuArgs {
    /// The kind of NPU
    #[arg(long, value_name = "NAME", default_value = "xdna2", value_parser = ["xdna2"])]
    device: String,
    /// Facts of the machine: a name, or a TOML file of your own
    #[arg(long, value_name = "NAME|FILE", default_value = "npu2", value_hint = clap::ValueHint::FilePath)]
    machine: String,
    /// Change a fact of the machine or a constant of the profile (`cols=4`, `profile.ddr.total_gb_per_s=120`)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Calibrated constants of the software stack: a name, or a TOML file of your own
    #[arg(long, value_name = "NAME|FILE", default_value = Profile::DEFAULT, value_hint = clap::ValueHint::FilePath)]
    profile: String,
}

/// How a profile's constant is told from a fact of the machine in `--set`.
const PROFILE_PREFIX: &str = "profile.";

impl NpuArgs {
    /// The machine with its profile, changes applied.
    pub(crate) fn read(&self) -> Outcome<(Machine, Profile)> {
        let mut machine = self.machine()?;
        let mut profile = self.profile()?;
        for change in &self.set {
            let changed = match change.strip_prefix(PROFILE_PREFIX) {
                Some(change) => profile.set(change).map_err(|error| error.to_string()),
                None => machine.set(change).map_err(|error| error.to_string()),
            };
            changed.map_err(|error| Failure::usage(format!("--set {change}: {error}")))?;
        }
        Ok((machine, profile))
    }

    fn machine(&self) -> Outcome<Machine> {
        if let Some(machine) = Machine::builtin(&self.machine) {
            return Ok(machine);
        }
        let text = read_file(&self.machine, "machine", Machine::builtin_names())?;
        Machine::from_toml(&text, &self.machine)
            .map_err(|error| Failure::bad_input(error.to_string()))
    }

    fn profile(&self) -> Outcome<Profile> {
        if let Some(profile) = Profile::builtin(&self.profile) {
            return Ok(profile);
        }
        let text = read_file(&self.profile, "profile", Profile::builtin_names())?;
        Profile::from_toml(&text, &self.profile)
            .map_err(|error| Failure::bad_input(error.to_string()))
    }
}

/// A file that is no built-in name.
fn read_file<'a>(
    name: &str,
    what: &str,
    builtin: impl Iterator<Item = &'a str>,
) -> Outcome<String> {
    let path = Path::new(name);
    if !path.exists() {
        let known = builtin.collect::<Vec<_>>().join(", ");
        return Err(Failure::not_found(format!("no {what} `{name}`"))
            .hint(format!("built in are {known}; anything else is a file")));
    }
    std::fs::read_to_string(path)
        .map_err(|error| Failure::io(format!("cannot read {what} {name}"), &error))
}
