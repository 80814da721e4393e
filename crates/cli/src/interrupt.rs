//! Ctrl-C: the first one asks the work to stop at its next step. If that takes too long, or at the
//! second one, the process ends and removes its unfinished files. SIGTERM ends the process at once in
//! the same way, unless the work handles it.

use crate::exit::{CommandFailure, CommandResult, Exit};
use millrace::Cancel;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Flag that asks the work to stop.
static FLAG: LazyLock<Cancel> = LazyLock::new(Cancel::new);

/// Whether the request to stop came from Ctrl-C.
static PRESSED: AtomicBool = AtomicBool::new(false);

/// Number of parts of the program that need to reach their next step, however long it takes.
static PATIENT: AtomicUsize = AtomicUsize::new(0);

/// Time that the work may take to stop: long enough for a step of a small model, and short enough
/// that nobody presses twice.
const GRACE: Duration = Duration::from_millis(600);

/// Polling interval of the waiting thread.
const TICK: Duration = Duration::from_millis(20);

/// Replaces the system's handling of Ctrl-C, which would kill the process mid-write.
pub(crate) fn install() -> CommandResult {
    let failed = |error| CommandFailure::io("cannot watch for Ctrl-C", &error);
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let watch = move || {
        loop {
            match signals.wait().next() {
                None => continue,
                Some(SIGTERM) => {
                    terminate();
                    continue;
                }
                Some(_) => {}
            }
            let second = PRESSED.swap(true, Ordering::Relaxed);
            FLAG.cancel();
            if second {
                end();
            }
            let pressed = Instant::now();
            // Waits until the work stops by itself, or the flag is cleared.
            while PRESSED.load(Ordering::Relaxed) && PATIENT.load(Ordering::Relaxed) == 0 {
                if pressed.elapsed() >= GRACE || signals.pending().next().is_some() {
                    end();
                }
                std::thread::sleep(TICK);
            }
        }
    };
    let thread = std::thread::Builder::new().name("ctrl-c".to_owned());
    thread.spawn(watch).map(|_| ()).map_err(failed)
}

/// Ends the process at once, leaving nothing half-written.
fn end() -> ! {
    millrace_format::output::discard_unfinished();
    std::process::exit(Exit::Interrupted as i32)
}

/// Ends the process as SIGTERM does by default, but leaves nothing half-written. A server completes its requests.
fn terminate() {
    if PATIENT.load(Ordering::Relaxed) > 0 {
        FLAG.cancel();
        return;
    }
    millrace_format::output::discard_unfinished();
    std::process::exit(TERMINATED)
}

/// The code that shells give a process that SIGTERM ended: 128 and the signal's number.
const TERMINATED: i32 = 128 + SIGTERM;

/// While this value lives, the work handles one Ctrl-C, however long that takes.
pub(crate) struct InterruptGuard(());

/// Leaves the first Ctrl-C to the work, for a program that continues afterwards.
pub(crate) fn patience() -> InterruptGuard {
    PATIENT.fetch_add(1, Ordering::Relaxed);
    InterruptGuard(())
}

impl Drop for InterruptGuard {
    fn drop(&mut self) {
        PATIENT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Flag that Ctrl-C raises, for work that polls it.
pub(crate) fn flag() -> &'static AtomicBool {
    FLAG.flag()
}

/// The same flag, for the library's work.
pub(crate) fn cancel() -> &'static Cancel {
    &FLAG
}

/// Stops the work as Ctrl-C would.
pub(crate) fn raise() {
    FLAG.cancel();
}

/// Whether the work was asked to stop since the last [`clear`].
pub(crate) fn is_raised() -> bool {
    FLAG.is_cancelled()
}

/// Whether Ctrl-C was pressed since the last [`clear`].
pub(crate) fn is_pressed() -> bool {
    PRESSED.load(Ordering::Relaxed)
}

/// Forgets a Ctrl-C that has been acted on.
pub(crate) fn clear() {
    PRESSED.store(false, Ordering::Relaxed);
    FLAG.reset();
}
