//! Prefetching of the bytes that will be packed soon.

use super::panel::{LINE_BYTES, PANEL_ROWS};
use millrace_quant::DType;

/// Bytes that will be packed soon: rows of a few lines each, fetched a few lines at a time between the
/// steps of packing. Sixteen rows at a time are more streams than a hardware prefetcher follows.
///
/// It runs on past the last row: those bytes are seldom needed, but fetching them is never wrong.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    /// Start of the current row.
    row: *const u8,
    /// Bytes from a row to the next.
    stride: usize,
    /// Bytes to fetch of each row.
    row_bytes: usize,
    /// Where in the current row the next line is.
    at: usize,
}

impl Ahead {
    /// Nothing worth fetching: one line again and again.
    pub(crate) const NONE: Ahead = Ahead {
        row: std::ptr::null(),
        stride: 0,
        row_bytes: 0,
        at: 0,
    };

    /// Rows of `row_bytes` bytes, `stride` apart.
    pub(crate) fn new(row: *const u8, stride: usize, row_bytes: usize) -> Ahead {
        Ahead {
            row,
            stride,
            row_bytes,
            at: 0,
        }
    }

    /// `row_bytes` bytes of each row, from its byte `at` on.
    pub(crate) fn part(&self, at: usize, row_bytes: usize) -> Ahead {
        Ahead::new(self.row.wrapping_add(at), self.stride, row_bytes)
    }

    /// The rows from `row` on.
    pub(crate) fn rows_from(&self, row: usize) -> Ahead {
        let start = self.row.wrapping_add(row * self.stride);
        Ahead::new(start, self.stride, self.row_bytes)
    }

    /// Fetches the next `n` lines.
    #[inline(always)]
    pub(crate) fn fetch(&mut self, n: usize) {
        for _ in 0..n {
            prefetch::<false>(self.row.wrapping_add(self.at));
            self.at += LINE_BYTES;
            // A row's last, partly covered line comes with the columns that follow.
            let row_ends = self.at >= self.row_bytes;
            self.row = self
                .row
                .wrapping_add(if row_ends { self.stride } else { 0 });
            self.at = if row_ends { 0 } else { self.at };
        }
    }

    /// Fetches the next line in each of four runs of [`PANEL_ROWS`] / 4 rows, `n` times. Buffers for misses are few. Side by side, the
    /// runs are streams that the second-level cache's own prefetcher follows and fetches in advance. Use it for all of a piece or for
    /// none.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn fetch_in_runs(&mut self, n: usize) {
        let run = PANEL_ROWS / 4 * self.stride;
        for _ in 0..n {
            let line = self.row.wrapping_add(self.at);
            for i in 0..4 {
                prefetch::<false>(line.wrapping_add(i * run));
            }
            self.at += LINE_BYTES;
            // Rows without a gap are one; otherwise as in `fetch`.
            let row_ends = self.at >= self.row_bytes && self.row_bytes < self.stride;
            let step = if row_ends { self.stride } else { 0 };
            self.row = self.row.wrapping_add(step);
            self.at = if row_ends { 0 } else { self.at };
        }
    }

    /// Fetches the line of byte `at` of row `row`, counted from where this starts, into the nearest cache: readers that go
    /// row by row get there soon.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn fetch_at(&self, row: usize, at: usize) {
        prefetch::<true>(self.row.wrapping_add(row * self.stride + at));
    }
}

/// Asks for the cache line of an address, which need not be readable, in the nearest cache or the one after.
#[inline(always)]
pub(crate) fn prefetch<const NEAREST: bool>(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and cannot fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        if NEAREST {
            _mm_prefetch::<_MM_HINT_T0>(address.cast());
        } else {
            _mm_prefetch::<_MM_HINT_T1>(address.cast());
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; the intrinsic is not stable.
    unsafe {
        use std::arch::asm;
        if NEAREST {
            asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
        } else {
            asm!("prfm pldl2keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Cache lines of a panel's blocks of `dtype`, divided by `steps`: the lines to fetch in each of the
/// steps that pack them.
pub(crate) fn lines_a_step(dtype: DType, steps: usize) -> usize {
    (PANEL_ROWS * dtype.block_bytes()).div_ceil(steps * LINE_BYTES)
}
