//! `millrace doctor`: checks that this machine is ready, and suggests fixes if not.
//!
//! Each check is a function from facts to a [`CheckResult`]; the facts are gathered once.

mod checks;
mod self_test;

use crate::engine_args::CpuArgs;
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::output::{Out, Paint, Ui};
use serde::Serialize;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  millrace doctor           one line per check; causes and fixes of problems
  millrace doctor --json    the same for programs

Exit code 0: ready, perhaps with warnings. Exit code 1: a check failed.";

/// Check that this machine is ready, and suggest fixes if not
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cpu: CpuArgs,
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warn,
    Fail,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct CheckResult {
    check: &'static str,
    status: Status,
    /// Finding, in a few words.
    found: String,
    /// Why that is a problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    /// Suggested fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl CheckResult {
    fn ok(check: &'static str, found: impl Into<String>) -> CheckResult {
        CheckResult {
            check,
            status: Status::Ok,
            found: found.into(),
            cause: None,
            fix: None,
        }
    }

    fn warn(check: &'static str, found: impl Into<String>) -> CheckResult {
        CheckResult {
            status: Status::Warn,
            ..CheckResult::ok(check, found)
        }
    }

    fn fail(check: &'static str, found: impl Into<String>) -> CheckResult {
        CheckResult {
            status: Status::Fail,
            ..CheckResult::ok(check, found)
        }
    }

    fn because(mut self, cause: impl Into<String>) -> CheckResult {
        self.cause = Some(cause.into());
        self
    }

    fn fix(mut self, fix: impl Into<String>) -> CheckResult {
        self.fix = Some(fix.into());
        self
    }
}

pub(crate) fn run(args: &DoctorArgs, ui: Ui) -> CommandResult {
    let mut findings = checks::all(args.cpu.threads);
    findings.push(self_test::check(&args.cpu, ui)?);
    let failed = findings
        .iter()
        .filter(|finding| finding.status == Status::Fail)
        .count();
    let mut out = Out::new();
    if args.json {
        out.json(&json!({ "ready": failed == 0, "checks": findings }))?;
    } else {
        print(&findings, &mut out)?;
    }
    out.flush()?;
    match failed {
        0 => Ok(()),
        1 => Err(CommandFailure::new(Exit::Failed, "a check failed")),
        n => Err(CommandFailure::new(
            Exit::Failed,
            format!("{n} checks failed"),
        )),
    }
}

fn print(findings: &[CheckResult], out: &mut Out) -> CommandResult {
    for finding in findings {
        let mark = match finding.status {
            Status::Ok => Paint::Good.stdout("ok  "),
            Status::Warn => Paint::Warning.stdout("warn"),
            Status::Fail => Paint::Error.stdout("FAIL"),
        };
        out.line(format!("{mark}  {:<10} {}", finding.check, finding.found))?;
        for (label, text) in [("why", &finding.cause), ("do", &finding.fix)] {
            if let Some(text) = text {
                out.line(format!(
                    "{:16} {} {text}",
                    "",
                    Paint::Bold.stdout(&format!("{label}:"))
                ))?;
            }
        }
    }
    Ok(())
}
