//! Progress of a download, and cancelling it.

use super::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Progress reports of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// The hub has listed the files of the model.
    Start {
        /// `owner/name`.
        repo: &'a str,
        /// Files of the model.
        n_files: usize,
        /// Bytes of all of them, those in the cache included.
        total_bytes: u64,
    },
    /// The next file begins.
    File {
        /// Its path within the repository.
        name: &'a str,
        /// Its number, from 0.
        index: usize,
        /// Number of files.
        n_files: usize,
    },
    /// Bytes of all files that are present. Decreases when a damaged file is downloaded again.
    Bytes {
        /// Bytes present.
        done: u64,
        /// Bytes wanted.
        total: u64,
    },
    /// Another process is downloading a file, and this one waits for it.
    Waiting {
        /// The file's path within the repository.
        name: &'a str,
    },
}

/// Observer of a download.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Gets progress reports, on the thread that downloads.
    pub tell: &'a dyn Fn(Progress<'_>),
    /// Cancels the download within a tenth of a second of being set: [`Error::Interrupted`].
    pub cancel: &'a AtomicBool,
}

impl Watch<'_> {
    pub(crate) fn tell(&self, progress: Progress<'_>) {
        (self.tell)(progress);
    }
}

/// Returns an error once the flag is set.
pub(crate) fn check(cancel: &AtomicBool) -> Result<(), Error> {
    match cancel.load(Ordering::Relaxed) {
        true => Err(Error::Interrupted),
        false => Ok(()),
    }
}

/// Sleeps, and wakes up when the flag is set.
pub(crate) fn sleep(time: Duration, cancel: &AtomicBool) -> Result<(), Error> {
    let slice = Duration::from_millis(50);
    let mut left = time;
    while !left.is_zero() {
        check(cancel)?;
        std::thread::sleep(left.min(slice));
        left = left.saturating_sub(slice);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_raised_flag_ends_a_sleep() {
        let start = Instant::now();
        let stopped = sleep(Duration::from_secs(60), &AtomicBool::new(true));
        assert!(matches!(stopped, Err(Error::Interrupted)));
        assert!(start.elapsed() < Duration::from_secs(1));
        sleep(Duration::from_millis(1), &AtomicBool::new(false)).expect("nobody stops it");
    }
}
