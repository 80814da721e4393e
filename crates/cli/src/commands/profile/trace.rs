//! Trace of the prompt and one token.

use super::document::Document;
use super::subject::ProfileSubject;
use crate::exit::{CommandFailure, CommandResult, Exit};
use millrace_format::output::AtomicFile;
use millrace_plan::Lowering;
use millrace_plan::predict::{self, Pricer, ProgramDetail, PromptWorkload};
use std::path::Path;

/// Limit on the spans of cores and channels in a program: more only slow the viewer down.
const SPANS_A_PROGRAM: usize = 40_000;

/// Source of the plans, and of their costs.
type Plans<'a> = (&'a dyn Lowering, &'a dyn Pricer);

pub(super) fn write(
    path: &Path,
    cores: bool,
    subject: &ProfileSubject,
    work: &PromptWorkload,
    plans: Plans<'_>,
    document: &Document,
) -> CommandResult {
    let detail = match cores {
        true => detail(subject, work, plans)?,
        false => Vec::new(),
    };
    let trace = predict::trace(&document.model, &document.prediction, &detail);
    let failed = |error| CommandFailure::io(format!("cannot write {}", path.display()), &error);
    let mut file = AtomicFile::create(path).map_err(|error| CommandFailure::writing(&error))?;
    trace.write_chrome(&mut file).map_err(failed)?;
    file.commit()
        .map_err(|error| CommandFailure::writing(&error))
}

/// Every program with the spans of its cores and channels.
fn detail(
    subject: &ProfileSubject,
    work: &PromptWorkload,
    (planner, pricer): Plans<'_>,
) -> CommandResult<Vec<ProgramDetail>> {
    let failed =
        |error: &dyn std::fmt::Display| CommandFailure::new(Exit::Failed, error.to_string());
    let programs = predict::programs(subject.graph(), planner, work);
    let programs = programs.map_err(|error| failed(&error))?;
    let detail = |program: &_| {
        pricer
            .detail(program, SPANS_A_PROGRAM)
            .map_err(|error| failed(&error))
    };
    programs.iter().map(detail).collect()
}
