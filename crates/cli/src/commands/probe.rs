//! `millrace probe`: checks that an NPU works, step by step, before any model is tried.

use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::output::{Out, Paint, Ui};
use crate::progress::ProgressDisplay;
use crate::target_args::ProbeTargetArgs;
use millrace_plan::{ProbeOf, ProbeReport, ProbeStatus};
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  millrace probe                          this computer's NPU: open, allocate, submit, wait, compare
  millrace probe --virtual                the same on a virtual one, which needs no hardware
  millrace probe --virtual --fault list   the faults that can be injected
  millrace probe --json                   every step and figure, for scripts
  millrace probe --device xdna2 --virtual --write-profile probed.toml   writes the measurements, for predictions (`--profile probed.toml`)

Exit codes: 0 when every step succeeded (notes are not failures), 1 when one failed, 2 when the kind of NPU
has no probe, or a fault is unknown. Advice follows the step that failed.";

/// Check that an NPU works: open it, run a small product on it, measure
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProbeArgs {
    /// Probe a virtual device, with modelled times, instead of this computer's
    #[arg(long = "virtual")]
    is_virtual: bool,
    /// Inject a fault into the virtual device; `list` names the faults
    #[arg(long, value_name = "NAME", requires = "is_virtual")]
    fault: Option<String>,
    /// Write the measurements as a profile, which other commands take with `--profile FILE`
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    write_profile: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: ProbeTargetArgs,
}

pub(crate) fn run(args: &ProbeArgs, ui: Ui) -> CommandResult {
    let target = args.target.device;
    let Some(prober) = target.prober() else {
        let message = format!("{} has no probe", target.name());
        return Err(CommandFailure::usage(message));
    };
    let mut out = Out::new();
    if args.fault.as_deref() == Some("list") {
        let faults = prober.faults();
        if args.json {
            let rows = faults.iter();
            let rows = rows.map(|f| json!({ "name": f.name, "summary": f.summary }));
            out.json(&rows.collect::<Vec<_>>())?;
        } else {
            for fault in faults {
                out.line(format!("  {:<14} {}", fault.name, fault.summary))?;
            }
        }
        return out.flush();
    }
    let of = match args.is_virtual {
        true => ProbeOf::Virtual(args.fault.clone()),
        false => ProbeOf::Hardware,
    };
    let report = {
        let _progress = ProgressDisplay::spinner(ui, "probing");
        prober.probe(&args.target.settings()?, &of)?
    };
    match args.json {
        true => out.json(&report)?,
        false => print(&report, &mut out)?,
    }
    out.flush()?;
    match report.failure() {
        None => write_profile(args, &report),
        Some(step) => {
            let failure = CommandFailure::new(
                Exit::Failed,
                format!("step `{}` failed: {}", step.name, step.detail),
            );
            Err(match &step.advice {
                Some(advice) => failure.hint(advice.clone()),
                None => failure,
            })
        }
    }
}

/// Writes the profile, if one is asked for.
fn write_profile(args: &ProbeArgs, report: &ProbeReport) -> CommandResult {
    let Some(path) = &args.write_profile else {
        return Ok(());
    };
    let Some(profile) = &report.profile else {
        let target = args.target.device.name();
        let message = format!("the probe of {target} found no constants of a profile");
        return Err(CommandFailure::new(Exit::Failed, message));
    };
    std::fs::write(path, profile).map_err(|error| {
        let message = format!("cannot write {}: {error}", path.display());
        CommandFailure::new(Exit::Failed, message)
    })
}

fn print(report: &ProbeReport, out: &mut Out) -> CommandResult {
    let times = match &report.provenance {
        Some(provenance) => format!(", times {provenance}"),
        None => String::new(),
    };
    out.line(format!("{}{times}", Paint::Bold.stdout(&report.place)))?;
    for step in &report.steps {
        let status = match step.status {
            ProbeStatus::Ok => "ok".to_owned(),
            ProbeStatus::Note => Paint::Bold.stdout("note"),
            ProbeStatus::Failed => Paint::Error.stdout("FAILED"),
            ProbeStatus::Skipped => "skipped".to_owned(),
        };
        out.line(format!("  {:<12} {status:<7}  {}", step.name, step.detail))?;
        // A failed step's advice is the hint of the command's error.
        if let (ProbeStatus::Note, Some(advice)) = (step.status, &step.advice) {
            out.line(format!("  {:<12} {:<7}  {advice}", "", ""))?;
        }
    }
    Ok(())
}
