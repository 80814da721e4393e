//! `millrace fidelity`: compares predictions with published measurements.

use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::output::{Out, Ui};
use crate::progress::ProgressDisplay;
use crate::target_args::{EvidenceTargetArgs, evidence};
use millrace_plan::FidelityOf;

const EXAMPLES: &str = "\
Examples:
  millrace fidelity               every published row of a kernel: predicted, measured, error
  millrace fidelity --model       the same for whole models
  millrace fidelity --leave-out   constants fitted without a kernel family or a model, and their error on it (takes minutes)
  millrace fidelity --json        as JSON

Rows used to fit a constant are marked. The exit code is 1 when a group exceeds its stated bound.";

/// Compare predicted times with published measurements
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FidelityArgs {
    #[command(flatten)]
    target: EvidenceTargetArgs,
    /// Compare single kernels (the default)
    #[arg(long, conflicts_with = "model")]
    kernel: bool,
    /// Compare whole models
    #[arg(long)]
    model: bool,
    /// Refit the constants without each kernel family and each model, and compare the errors on the
    /// part left out with those of a fit on everything
    #[arg(long, conflicts_with_all = ["kernel", "model"])]
    leave_out: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &FidelityArgs, ui: Ui) -> CommandResult {
    args.target.check()?;
    let target = args.target.device;
    let Some(evidence) = evidence(target) else {
        let message = format!("{} has no measurements to compare with", target.name());
        return Err(CommandFailure::usage(message));
    };
    let (what, doing) = match (args.leave_out, args.model) {
        (true, _) => (FidelityOf::LeaveOut, "fitting"),
        (_, true) => (FidelityOf::Models, "predicting"),
        _ => (FidelityOf::Kernels, "predicting"),
    };
    let report = {
        let _progress = ProgressDisplay::spinner(ui, doing);
        evidence.fidelity(what)?
    };
    let mut out = Out::new();
    if args.json {
        out.json(&report.json)?;
    } else {
        out.text(&report.text)?;
    }
    out.flush()?;
    match report.failures.is_empty() {
        true => Ok(()),
        false => Err(CommandFailure::new(
            Exit::Failed,
            report.failures.join("; "),
        )),
    }
}
