//! Plain numbers: f32, f16 and bf16, packed as f32 or multiplied with one token directly.

use super::direct::through_panel;
use super::lines::{HALF_LINE, HALF_ROWS, load_rows, store, widen_f16};
use super::tile_f32;
use crate::matmul::PanelLayout;
use crate::matmul::panel::{DirectArgs, LINE_BYTES, PANEL_ROWS, PackArgs, PanelSource};
use std::arch::x86_64::*;

/// Bytes that [`load_rows`] takes from each row.
const STEP_BYTES: usize = 16;

/// Formats; the codes are const parameters.
const F32: u8 = 0;
const F16: u8 = 1;
const BF16: u8 = 2;

macro_rules! functions_of_format {
    ($($pack:ident $direct:ident $format:ident;)*) => {$(
        #[doc = concat!("Packs ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $pack(args: &PackArgs) {
            // SAFETY: forwarded.
            unsafe { pack::<$format>(args) }
        }

        #[doc = concat!("Multiplies ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::DirectFn`].
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $direct(args: &DirectArgs) {
            // SAFETY: forwarded.
            unsafe {
                match args.m {
                    1 => direct_row::<$format>(args),
                    _ => through_panel(args, PanelLayout::F32, $pack, tile_f32::tile),
                }
            }
        }
    )*};
}
functions_of_format!(
    f32 direct_f32 F32;
    f16 direct_f16 F16;
    bf16 direct_bf16 BF16;
);

/// Columns in the four bytes of a lane.
const fn columns(format: u8) -> usize {
    if format == F32 { 1 } else { 2 }
}

/// The columns in the lanes of `v`, as f32: one, twice, or two.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn widen<const FORMAT: u8>(v: __m256i) -> [__m256; 2] {
    match FORMAT {
        F16 => [widen_f16(v), widen_f16(_mm256_srli_epi32::<16>(v))],
        BF16 => {
            let upper = _mm256_set1_epi32(0xFFFF_0000_u32.cast_signed());
            [
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(v)),
                _mm256_castsi256_ps(_mm256_and_si256(v, upper)),
            ]
        }
        _ => [_mm256_castsi256_ps(v); 2],
    }
}

/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pack<const FORMAT: u8>(args: &PackArgs) {
    let columns = columns(FORMAT);
    // SAFETY: forwarded; lines below `k` are the panel's.
    unsafe {
        each_vector(&args.source, 4 / columns, |i, halves| {
            for (half, v) in halves.into_iter().enumerate() {
                for (j, v) in widen::<FORMAT>(v).into_iter().take(columns).enumerate() {
                    let column = columns * i + j;
                    if column < args.source.k {
                        let to = args.panel.add(column * LINE_BYTES + half * HALF_LINE);
                        store(to, _mm256_castps_si256(v));
                    }
                }
            }
        });
    }
}

/// One token: what [`pack`] would store is multiplied at once.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`], with one token.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn direct_row<const FORMAT: u8>(args: &DirectArgs) {
    let columns = columns(FORMAT);
    let x: *const f32 = args.x.cast();
    let mut sums = [_mm256_setzero_ps(); 2];
    // SAFETY: forwarded; the token has the chunk's columns, the accumulators two vectors.
    unsafe {
        each_vector(&args.source, 4 / columns, |i, halves| {
            let halves = halves.map(|v| widen::<FORMAT>(v));
            for j in 0..columns {
                let column = columns * i + j;
                if column < args.source.k {
                    let x = _mm256_set1_ps(*x.add(column));
                    for (sum, w) in sums.iter_mut().zip(halves) {
                        *sum = _mm256_fmadd_ps(w[j], x, *sum);
                    }
                }
            }
        });
        for (half, sum) in sums.into_iter().enumerate() {
            let acc = args.acc.add(half * HALF_ROWS);
            _mm256_store_ps(acc, _mm256_add_ps(_mm256_load_ps(acc), sum));
        }
    }
}

/// Gives `use_vector` vector `i` of the chunk for each half of the rows: bytes `4i..4i + 4` of each row, zeros beyond the last column.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`], for columns of `elem_bytes`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn each_vector(
    source: &PanelSource,
    elem_bytes: usize,
    mut use_vector: impl FnMut(usize, [__m256i; 2]),
) {
    let n_bytes = source.k * elem_bytes;
    let steps = n_bytes / STEP_BYTES;
    let mut ahead = source.ahead;
    for step in 0..steps {
        ahead.fetch(PANEL_ROWS * STEP_BYTES / LINE_BYTES);
        // SAFETY: whole steps are within the rows.
        let (low, high) = unsafe {
            let rows = source.base.add(step * STEP_BYTES);
            let second = rows.add(HALF_ROWS * source.stride);
            (
                load_rows(rows, source.stride),
                load_rows(second, source.stride),
            )
        };
        for (i, (low, high)) in low.into_iter().zip(high).enumerate() {
            use_vector(4 * step + i, [low, high]);
        }
    }
    let left = n_bytes % STEP_BYTES;
    if left > 0 {
        // SAFETY: the last bytes of each row's chunk.
        let (low, high) = unsafe {
            let rows = source.base.add(steps * STEP_BYTES);
            let second = rows.add(HALF_ROWS * source.stride);
            (
                load_tail(rows, source.stride, left),
                load_tail(second, source.stride, left),
            )
        };
        let vectors = low.into_iter().zip(high).take(left.div_ceil(4));
        for (i, (low, high)) in vectors.enumerate() {
            use_vector(4 * steps + i, [low, high]);
        }
    }
}

/// As [`load_rows`] of rows that end after `left` bytes.
///
/// # Safety
/// All eight rows have `left` readable bytes, fewer than 16.
#[target_feature(enable = "avx2")]
unsafe fn load_tail(first: *const u8, stride: usize, left: usize) -> [__m256i; 4] {
    let mut tail = [0_u8; HALF_ROWS * STEP_BYTES];
    for (r, to) in tail.chunks_exact_mut(STEP_BYTES).enumerate() {
        // SAFETY: forwarded; `to` is longer.
        unsafe { std::ptr::copy_nonoverlapping(first.add(r * stride), to.as_mut_ptr(), left) };
    }
    // SAFETY: eight rows of sixteen bytes.
    unsafe { load_rows(tail.as_ptr(), STEP_BYTES) }
}
