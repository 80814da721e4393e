//! The prompt and a token as a trace.

use super::document::Document;
use super::subject::Subject;
use crate::exit::{Exit, Failure, Outcome};
use millrace_xdna2::predict::{self, Timer, Work};
use millrace_xdna2::timing::{self, Timing};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Spans of cores and channels that a program may have: more only slow the viewer down.
const SPANS_A_PROGRAM: usize = 40_000;

pub(super) fn write(
    path: &Path,
    cores: bool,
    subject: &Subject,
    work: &Work,
    timer: &Timer<'_>,
    document: &Document,
) -> Outcome {
    let detail = match cores {
        true => detail(subject, work, timer)?,
        false => Vec::new(),
    };
    let trace = predict::trace(&document.model, &document.prediction, &detail);
    let failed = |error| Failure::io(format!("cannot write {}", path.display()), &error);
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    trace.write_chrome(&mut file).map_err(failed)?;
    file.flush().map_err(failed)
}

/// Every program with the spans of its cores and channels.
fn detail(subject: &Subject, work: &Work, timer: &Timer<'_>) -> Outcome<Vec<Timing>> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(Exit::Failed, error.to_string());
    let options = timing::Options {
        trace_spans: SPANS_A_PROGRAM,
        ..timing::Options::default()
    };
    let programs = predict::programs(subject.graph(), timer.machine(), work);
    let programs = programs.map_err(|error| failed(&error))?;
    let time = |program: &_| {
        timing::predict_with(program, timer.machine(), timer.profile(), &options)
            .map_err(|error| failed(&error))
    };
    programs.iter().map(time).collect()
}
