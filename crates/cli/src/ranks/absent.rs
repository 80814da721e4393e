//! Substitute for MPI in a build without it.

use super::MpiJob;
use crate::exit::{CommandFailure, CommandResult};
use std::time::Duration;

/// Fails: there is no MPI.
pub(super) fn start(_timeout: Duration) -> CommandResult<MpiJob> {
    let failure = CommandFailure::usage("--mpi: this program was built without MPI");
    Err(failure.hint(
        "build it with `cargo build --release -p millrace-cli --features mpi`; docs/many-machines.md says what that needs",
    ))
}

/// Does nothing: there is nothing to end.
pub(crate) fn finish(_is_done: bool) {}

/// Always false: nothing can fail.
pub(crate) fn has_failed() -> bool {
    false
}
