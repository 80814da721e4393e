//! Progress display of a download.

use crate::output::Ui;
use crate::progress::ProgressDisplay;
use std::sync::{Mutex, PoisonError};

/// Progress bar for the files of a model.
pub(crate) struct DownloadBar {
    ui: Ui,
    /// The bar, present from the first byte to the last.
    bar: Mutex<Option<ProgressDisplay>>,
}

impl DownloadBar {
    pub(crate) fn new(ui: Ui) -> DownloadBar {
        DownloadBar {
            ui,
            bar: Mutex::default(),
        }
    }

    /// Shows the progress reported by the hub's client.
    pub(crate) fn tell(&self, progress: millrace_hub::Progress<'_>) {
        use millrace_hub::Progress as Step;
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        match progress {
            Step::Start {
                repo,
                n_files,
                total_bytes,
            } => {
                self.ui.detail(format_args!(
                    "{n_files} files of {total_bytes} bytes in {repo}"
                ));
                *bar = Some(ProgressDisplay::bytes(self.ui, total_bytes));
            }
            Step::File {
                name,
                index,
                n_files,
            } => {
                if let Some(bar) = &*bar {
                    bar.message(format!("{name} ({}/{n_files})", index + 1));
                }
            }
            Step::Bytes { done, .. } => {
                if let Some(bar) = &*bar {
                    bar.set(done);
                }
            }
            Step::Waiting { name } => self
                .ui
                .note(format_args!("waiting: another process downloads {name}")),
        }
    }
}
