//! `millrace fidelity`: predictions beside published measurements.

use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Out, Ui};
use crate::progress::Progress;
use millrace_xdna2::fidelity::leave_out::{self, LeaveOut};
use millrace_xdna2::fidelity::{self, Kind, Report};

const EXAMPLES: &str = "\
Examples:
  millrace fidelity               every published row of a kernel: predicted, measured, error
  millrace fidelity --model       the same for whole models
  millrace fidelity --leave-out   constants fitted without a kernel family or a model, and the error on it (minutes)
  millrace fidelity --json        as JSON

Rows that a constant was fitted on are marked. Exit code 1 when a group leaves its stated bound.";

/// Compare predicted times with published measurements
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Rows of single kernels (the default)
    #[arg(long, conflicts_with = "model")]
    kernel: bool,
    /// Rows of whole models
    #[arg(long)]
    model: bool,
    /// Fit the constants anew without each kernel family and each model, and compare the errors on what
    /// was left out with those of a fit on everything
    #[arg(long, conflicts_with_all = ["kernel", "model"])]
    leave_out: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, ui: Ui) -> Outcome {
    if args.leave_out {
        return run_leave_out(args, ui);
    }
    let kind = if args.model {
        Kind::Models
    } else {
        Kind::Kernels
    };
    let report = {
        let _progress = Progress::spinner(ui, "predicting");
        fidelity::report(kind)
    };
    let mut out = Out::new();
    if args.json {
        out.json(&report)?;
    } else {
        out.text(&report)?;
    }
    out.flush()?;
    verdict(&report)
}

fn run_leave_out(args: &Args, ui: Ui) -> Outcome {
    let found: LeaveOut = {
        let _progress = Progress::spinner(ui, "fitting");
        leave_out::evaluate()
    };
    let mut out = Out::new();
    if args.json {
        out.json(&found)?;
    } else {
        out.text(&found)?;
    }
    out.flush()?;
    match found.pass() {
        true => Ok(()),
        false => {
            let message =
                "a family or a model needs its own rows, and no missing mechanism is named";
            Err(Failure::new(Exit::Failed, message))
        }
    }
}

fn verdict(report: &Report) -> Outcome {
    if report.rows.is_empty() {
        let message = "nothing was predicted: no measurement has a mapping and a profile";
        return Err(Failure::new(Exit::Failed, message));
    }
    let outside = report.groups.iter().filter(|group| !group.pass);
    let outside: Vec<&str> = outside.map(|group| group.name.as_str()).collect();
    if outside.is_empty() {
        return Ok(());
    }
    let message = format!("outside the stated bound: {}", outside.join(", "));
    Err(Failure::new(Exit::Failed, message))
}
