//! Common part of ops with a matrix for each head: from page to page, strips of tokens over a head's part of the slots.

use super::{Before, PageTokens, SharedSlots, StateRun};
use std::ops::Range;

/// Tokens that are worked on at a time.
pub(super) const STRIP_TOKENS: usize = 16;

impl SharedSlots<'_> {
    /// Goes over a run's tokens in order, at most `n_strip` at a time, with the state that they read and update: that of
    /// a head whose `n_elems` elements begin at `first`.
    ///
    /// # Safety
    /// No one else has a reference to the head's part of any slot while this runs.
    pub(super) unsafe fn for_strips(
        &self,
        run: &StateRun<'_>,
        (first, n_elems): (usize, usize),
        n_strip: usize,
        mut strip: impl FnMut(Range<usize>, &mut [f32]),
    ) {
        for page in self.pages(run, first) {
            // SAFETY: by this function's contract.
            let state = unsafe { self.data.slice(page.slot..page.slot + n_elems) };
            // SAFETY: by this function's contract.
            unsafe { self.begin(&page, state) };
            let mut first = page.rows.start;
            while first < page.rows.end {
                let rows = first..page.rows.end.min(first + n_strip);
                first = rows.end;
                strip(rows, state);
            }
        }
    }

    /// The state before a page's tokens.
    ///
    /// # Safety
    /// As [`for_strips`](SharedSlots::for_strips); `state` is the head's part of the page's slot.
    unsafe fn begin(&self, page: &PageTokens, state: &mut [f32]) {
        match page.before {
            Before::Same => {}
            Before::Zeros => state.fill(0.0),
            // A slot that precedes itself holds the state already.
            Before::Slot(from) if from == page.slot => {}
            Before::Slot(from) => {
                // SAFETY: another slot's part of the same head.
                let before = unsafe { self.data.slice(from..from + state.len()) };
                state.copy_from_slice(before);
            }
        }
    }
}

/// `ln(1 + e^x)`.
pub(super) fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}
