//! Rows that are read side by side, each from memory in order.
//!
//! A hardware prefetcher follows a few streams and loses its way among sixteen rows; one stream waits for memory at each page. So a
//! chunk of rows is cut into four runs of neighbours, and kernels take one row of each at a time: four streams without a gap.

use crate::matmul::panel::{LINE_BYTES, RowsArgs, prefetch};
use std::arch::x86_64::*;

/// Rows at a time.
pub(super) const STREAMS: usize = 4;

/// How lines that streams will need are fetched.
#[derive(Clone, Copy)]
pub(super) struct Fetch {
    /// How far ahead of its use a line is fetched in its stream.
    ahead_bytes: usize,
    /// Into the second cache; else into the nearest.
    pub(super) second: bool,
}

impl Fetch {
    /// Zen 5 with two cores, weights of 400 to 700 MB, into the nearest cache, GB/s with 1024, 1536, 2048 and 3072 bytes: Q4_K 38, 43,
    /// 43, 41; Q6_K 39, 43, 42, 40; Q8_0 59, 64, 66, 65. Too many do not fit the buffers for misses and stop the core.
    const NEAREST: Fetch = Fetch {
        ahead_bytes: 1536,
        second: false,
    };

    /// Zen 4 with two cores, weights of 500 MB: Q4_K 22 to 27 GB/s with [`Fetch::NEAREST`], 29 to 35 with this, Q6_K 23 to 28 and 30 to
    /// 33, Q8_0 25 to 30 and 32; 4096 and 6144 bytes are no faster.
    const SECOND: Fetch = Fetch {
        ahead_bytes: 2048,
        second: true,
    };

    /// The fastest of those measured on this processor, or of a related one.
    pub(super) fn of_this_cpu() -> Fetch {
        if crate::level::is_zen_4() {
            Fetch::SECOND
        } else {
            Fetch::NEAREST
        }
    }

    /// Fetches what a stream needs soon, as far as `n_bytes` from `at` reach.
    #[inline(always)]
    pub(super) fn after(self, at: *const u8, n_bytes: usize) {
        self.lines(at.wrapping_add(self.ahead_bytes), n_bytes);
    }

    /// Fetches `n_bytes` from `at`.
    #[inline(always)]
    pub(super) fn lines(self, at: *const u8, n_bytes: usize) {
        let lines =
            (0..n_bytes.div_ceil(LINE_BYTES)).map(|line| at.wrapping_add(line * LINE_BYTES));
        if self.second {
            lines.for_each(prefetch::<false>);
        } else {
            lines.for_each(prefetch::<true>);
        }
    }
}

/// Gives `sum` the addresses of four rows and their sums so far, from zero where `from_zero`, and stores what it returns, for all
/// rows.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`]; `sum` may read what the rows hold.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn each_four_rows(
    args: &RowsArgs,
    from_zero: bool,
    fetch: Fetch,
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
                    fetch.lines(at, fetch.ahead_bytes);
                }
            }
            let mut sums = [0.0_f32; STREAMS];
            if !from_zero {
                sums = rows.map(|row| args.out.add(row).read());
            }
            let acc = sum(at, _mm_loadu_ps(sums.as_ptr()));
            _mm_storeu_ps(sums.as_mut_ptr(), acc);
            // Only what a row's own place computed: the sum that a repetition began with may have been the finished one.
            for (place, sum) in places.into_iter().zip(sums) {
                if place <= last {
                    args.out.add(place).write(sum);
                }
            }
        }
    }
}

/// The four lanes of a vector.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn quarters_of(v: __m512) -> [__m128; 4] {
    [
        _mm512_castps512_ps128(v),
        _mm512_extractf32x4_ps::<1>(v),
        _mm512_extractf32x4_ps::<2>(v),
        _mm512_extractf32x4_ps::<3>(v),
    ]
}

/// The first 16 bytes at each of `N` addresses, `stride` bytes apart, as lanes.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn lanes<const N: usize>(first: *const u8, stride: usize) -> __m512i {
    // SAFETY: forwarded.
    let at = |i: usize| unsafe { _mm_loadu_si128(first.add(i * stride).cast()) };
    let mut v = _mm512_zextsi128_si512(at(0));
    if N > 1 {
        v = _mm512_inserti32x4::<1>(v, at(1));
    }
    if N > 2 {
        v = _mm512_inserti32x4::<2>(v, at(2));
        v = _mm512_inserti32x4::<3>(v, at(3));
    }
    v
}

/// In each lane, element `i` of the result is the sum of the elements of vector `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn add_elements([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let pair = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (ab, cd) = (pair(a, b), pair(c, d));
    _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
}

/// Each number in all elements of its 128-bit lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn spread([a, b, c, d]: [i32; 4]) -> __m512i {
    _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d)
}
