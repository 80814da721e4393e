//! The trace of a prediction as a file.

use crate::exit::{Failure, Outcome};
use millrace_format::output::AtomicFile;
use millrace_xdna2::timing::Timing;
use std::path::Path;

/// Spans a trace may hold: more only slow the viewer down.
pub(super) const MOST_SPANS: usize = 200_000;

/// Writes the spans in the Chrome trace-event format.
pub(super) fn write(path: &Path, timing: &Timing) -> Outcome {
    let failed = |error| Failure::io(format!("cannot write {}", path.display()), &error);
    let mut file = AtomicFile::create(path).map_err(|error| Failure::writing(&error))?;
    timing.to_trace().write_chrome(&mut file).map_err(failed)?;
    file.commit().map_err(|error| Failure::writing(&error))
}
