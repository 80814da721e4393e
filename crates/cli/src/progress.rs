//! Progress bars on standard error, only where a user can see them.

use crate::output::Ui;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// A bar, a spinner, or nothing (no terminal, or `--quiet`). It clears itself when dropped.
pub(crate) struct ProgressDisplay {
    bar: ProgressBar,
}

impl ProgressDisplay {
    /// A transfer or conversion of `total_bytes`.
    pub(crate) fn bytes(ui: Ui, total_bytes: u64) -> ProgressDisplay {
        let template = "{msg} {wide_bar:.cyan/blue} {binary_bytes:>10}/{binary_total_bytes} \
                        {binary_bytes_per_sec:>12} {eta:>4}";
        ProgressDisplay::with(ui, Some(total_bytes), template)
    }

    /// `total` steps of something that the message names.
    pub(crate) fn steps(ui: Ui, total: u64) -> ProgressDisplay {
        ProgressDisplay::with(
            ui,
            Some(total),
            "{msg} {wide_bar:.cyan/blue} {pos:>6}/{len} {eta:>4}",
        )
    }

    /// Work of unknown length.
    pub(crate) fn spinner(ui: Ui, message: impl Into<String>) -> ProgressDisplay {
        let progress = ProgressDisplay::with(ui, None, "{spinner} {msg}");
        progress.message(message);
        progress.bar.enable_steady_tick(Duration::from_millis(120));
        progress
    }

    fn with(ui: Ui, length: Option<u64>, template: &str) -> ProgressDisplay {
        let target = if ui.quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(length, target);
        let style = ProgressStyle::with_template(template).expect("a template of this file");
        bar.set_style(style.progress_chars("━╸─"));
        ProgressDisplay { bar }
    }

    /// Sets the description of the current work.
    pub(crate) fn message(&self, text: impl Into<String>) {
        self.bar.set_message(text.into());
    }

    /// Sets the position, from the start.
    pub(crate) fn set(&self, position: u64) {
        self.bar.set_position(position);
    }

    /// Sets the position and the total.
    pub(crate) fn set_of(&self, position: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(position);
    }

    /// Advances the position.
    pub(crate) fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    /// Does `work` (printing a line, asking a question) with the bar hidden.
    pub(crate) fn suspend<T>(&self, work: impl FnOnce() -> T) -> T {
        self.bar.suspend(work)
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
