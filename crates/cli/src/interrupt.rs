//! Ctrl-C: the first stops the work at its next step, the second ends the process at once.

use crate::exit::{Exit, Failure, Outcome};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

static FLAG: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Takes Ctrl-C over from the system's default, which would kill the process mid-write.
pub(crate) fn install() -> Outcome {
    use signal_hook::consts::SIGINT;
    let flag = &*FLAG;
    // Handlers run in order of registration: the shutdown looks at the flag before it is set.
    signal_hook::flag::register_conditional_shutdown(
        SIGINT,
        Exit::Interrupted as i32,
        Arc::clone(flag),
    )
    .and_then(|_| signal_hook::flag::register(SIGINT, Arc::clone(flag)))
    .map(|_| ())
    .map_err(|error| Failure::io("cannot watch for Ctrl-C", &error))
}

/// The flag that Ctrl-C raises, for work that polls it.
pub(crate) fn flag() -> &'static AtomicBool {
    &FLAG
}

/// Stops the work as Ctrl-C would.
pub(crate) fn raise() {
    FLAG.store(true, Ordering::Relaxed);
}

/// Whether Ctrl-C was pressed since the last [`clear`].
pub(crate) fn is_raised() -> bool {
    FLAG.load(Ordering::Relaxed)
}

/// Forgets a Ctrl-C that has been acted on.
pub(crate) fn clear() {
    FLAG.store(false, Ordering::Relaxed);
}
