//! How far weights are on their way to a device.

use std::fmt;
use std::sync::Arc;

/// Callback for the bytes of weights and tables that are filled, and their total; called with 0 before
/// the first.
#[derive(Clone)]
pub struct LoadProgress(Arc<dyn Fn(u64, u64) + Send + Sync>);

impl LoadProgress {
    /// Calls that function.
    pub fn new(tell: impl Fn(u64, u64) + Send + Sync + 'static) -> LoadProgress {
        LoadProgress(Arc::new(tell))
    }

    pub(super) fn tell(&self, done_bytes: u64, total_bytes: u64) {
        (self.0)(done_bytes, total_bytes);
    }
}

impl fmt::Debug for LoadProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoadProgress")
    }
}
