//! A handle that stops work from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops the work that it was given to: a generation after its current step, a download within a tenth of a second.
/// Clones share one handle, and any thread may hold one.
///
/// ```
/// use millrace::{Cancel, Finish, Model, Options};
///
/// # fn main() -> Result<(), millrace::Error> {
/// let cancel = Cancel::new();
/// let handle = cancel.clone();
/// std::thread::spawn(move || handle.cancel()).join().unwrap();
///
/// let session = Model::open("demo")?.on("cpu")?;
/// let stopped = session.generate_with("Once upon a time", &Options::new().cancel(&cancel))?;
/// assert_eq!(stopped.finish, Finish::Cancelled);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A handle that is not used yet.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Stops the work that has this handle, and all work that gets it before [`reset`](Cancel::reset).
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Makes the handle usable for new work.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// The flag itself, for code that polls one.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}
