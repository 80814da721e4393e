//! A publication's tables beside predictions.

use super::ProfileArgs;
use crate::exit::CommandResult;
use crate::output::{Out, Ui};
use crate::progress::ProgressDisplay;
use crate::target_args::evidence;
use millrace_plan::SettingError;

/// Prints the tables. A row that misses a target is marked there; it is a finding, not a failure.
pub(super) fn run(args: &ProfileArgs, name: &str, ui: Ui) -> CommandResult {
    let target = args.target.device;
    let evidence = evidence(target);
    let papers = evidence.map(|evidence| evidence.papers());
    let papers = papers.unwrap_or_default();
    let known = papers.iter().any(|paper| paper.name == name);
    let Some(evidence) = evidence.filter(|_| known) else {
        return Err(SettingError::unknown(target.name(), "paper", name, &papers).into());
    };
    let report = {
        let _progress = ProgressDisplay::spinner(ui, "predicting");
        evidence.paper(name, args.up_to.unwrap_or(u64::MAX))?
    };
    let mut out = Out::new();
    match args.json {
        true => out.json(&report.json)?,
        false => out.text(&report.text)?,
    }
    out.flush()
}
