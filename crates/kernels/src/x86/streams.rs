//! Rows that are read side by side, each from memory in order.
//!
//! A hardware prefetcher follows a few streams and loses its way among sixteen rows; one stream waits for memory at each page. A chunk
//! of rows is therefore cut into four runs of neighbours, and kernels take one row of each at a time. These are four streams without a
//! gap.

use crate::level::is_zen_4;
use crate::matmul::ahead::prefetch;
use crate::matmul::panel::{LINE_BYTES, RowsArgs};
use std::arch::x86_64::*;

/// Rows at a time.
pub(in crate::x86) const STREAMS: usize = 4;

/// Where lines that streams will need are fetched to: the second-level cache, or the nearest. It is a parameter of kernels, since a
/// choice at each line would cost more than it gains; [`fetched`] makes the choice once a call.
pub(in crate::x86) struct Fetch<const SECOND: bool>;

/// Whether this processor fetches into the second-level cache. Zen 4 does: it reads Q8_0 with 43 GB/s so, and with 36 where the lines
/// go into the nearest cache. All others fetch into the nearest.
pub(in crate::x86) fn fetches_into_second() -> bool {
    is_zen_4()
}

/// Evaluates a call with `$second`, the parameter of [`Fetch`], as this processor wants it.
macro_rules! fetched {
    ($second:ident => $call:expr) => {
        if $crate::x86::streams::fetches_into_second() {
            const $second: bool = true;
            $call
        } else {
            const $second: bool = false;
            $call
        }
    };
}
pub(in crate::x86) use fetched;

impl<const SECOND: bool> Fetch<SECOND> {
    /// How far ahead of its use a line is fetched in its stream.
    ///
    /// Zen 5 with two cores, weights of 400 to 700 MB, into the nearest cache, GB/s with 1024, 1536, 2048 and 3072 bytes: Q4_K 38, 43,
    /// 43, 41; Q6_K 39, 43, 42, 40; Q8_0 59, 64, 66, 65. Too many do not fit the buffers for misses and stop the core.
    ///
    /// Zen 4 with two cores, weights of 400 MB, into the second cache, GB/s with 512, 768, 1024 and 2048 bytes: Q4_K 38, 41, 36, 31;
    /// Q8_0 44, 43, 40, 30; IQ4_XS 37, 40, 39, 27; BF16 52, 53, 42, 44. Q8_0 with 1536 bytes into the nearest cache: 36.
    const AHEAD_BYTES: usize = if SECOND { 768 } else { 1536 };

    /// Fetches the lines that a stream needs soon after the `n_bytes` from `at`. A line that begins in them and ends after them is
    /// left to the processor's own prefetcher. A line requested twice takes a buffer for misses twice.
    #[inline(always)]
    pub(in crate::x86) fn after(at: *const u8, n_bytes: usize) {
        let at = at.wrapping_add(Self::AHEAD_BYTES);
        Self::lines(at, n_bytes / LINE_BYTES * LINE_BYTES);
    }

    /// Fetches `n_bytes` from `at`.
    #[inline(always)]
    pub(in crate::x86) fn lines(at: *const u8, n_bytes: usize) {
        let lines =
            (0..n_bytes.div_ceil(LINE_BYTES)).map(|line| at.wrapping_add(line * LINE_BYTES));
        if SECOND {
            lines.for_each(prefetch::<false>);
        } else {
            lines.for_each(prefetch::<true>);
        }
    }
}

/// Passes `sum` the addresses of four rows and their sums so far, from zero if `from_zero`, and stores its results, for all rows.
/// It is always inlined, so that it has the features of its caller, as `sum` does.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`]; `sum` may read the contents of the rows.
#[inline(always)]
pub(in crate::x86) unsafe fn each_four_rows<const SECOND: bool>(
    args: &RowsArgs,
    from_zero: bool,
    mut sum: impl FnMut([*const u8; STREAMS], __m128) -> __m128,
) {
    let rows_a_stream = args.n.div_ceil(STREAMS);
    let last = args.n - 1;
    for i in 0..rows_a_stream {
        let places: [usize; STREAMS] = std::array::from_fn(|s| s * rows_a_stream + i);
        // Streams that end early read the last row once more.
        let rows = places.map(|place| place.min(last));
        // SAFETY: rows are below `n`.
        unsafe {
            let at = rows.map(|row| args.base.add(row * args.row_bytes));
            if i == 0 {
                for at in at {
                    Fetch::<SECOND>::lines(at, Fetch::<SECOND>::AHEAD_BYTES);
                }
            }
            let mut sums = [0.0_f32; STREAMS];
            if !from_zero {
                sums = rows.map(|row| args.out.add(row).read());
            }
            let acc = sum(at, _mm_loadu_ps(sums.as_ptr()));
            _mm_storeu_ps(sums.as_mut_ptr(), acc);
            // Writes only rows at their own place: the sum that a repeated row began with may have been the finished one.
            for (place, sum) in places.into_iter().zip(sums) {
                if place <= last {
                    args.out.add(place).write(sum);
                }
            }
        }
    }
}
