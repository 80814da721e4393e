//! The target of commands about published measurements.

use super::{default_target, target_parser};
use crate::exit::{CommandFailure, CommandResult};
use millrace_plan::Target;

/// Kind of NPU for published measurements. Predictions use the machine and the constants of each row, so nothing
/// can be set.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct EvidenceTargetArgs {
    /// The kind of NPU
    #[arg(long, value_name = "NAME", default_value = default_target(), value_parser = target_parser())]
    pub(crate) device: &'static dyn Target,
    /// Refused: rows have machines of their own
    #[arg(long, value_name = "NAME|FILE", hide = true)]
    machine: Option<String>,
    /// Refused: rows have constants of their own
    #[arg(long, value_name = "KEY=VALUE", hide = true)]
    set: Vec<String>,
    /// Refused: rows have profiles of their own
    #[arg(long, value_name = "NAME|FILE", hide = true)]
    profile: Option<String>,
}

impl EvidenceTargetArgs {
    /// Refuses options that would have no effect.
    pub(crate) fn check(&self) -> CommandResult {
        let given = [
            (self.machine.is_some(), "--machine"),
            (!self.set.is_empty(), "--set"),
            (self.profile.is_some(), "--profile"),
        ];
        match given.iter().find(|row| row.0) {
            None => Ok(()),
            Some((_, name)) => Err(CommandFailure::usage(format!(
                "{name} changes nothing here: each row is predicted with the machine and the constants that it is of"
            ))
            .hint(format!("`millrace kernel … {name}` predicts a kernel with others"))),
        }
    }
}
