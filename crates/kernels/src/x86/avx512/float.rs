//! Plain numbers: f32, f16 and bf16 as f32, and bf16 in pairs; packed into panels, or multiplied with a
//! few tokens directly.

use super::float_rows;
use super::transpose::load_lines;
use crate::matmul::panel::{
    DIRECT_TOKENS, DirectArgs, GROUP_ROWS, LINE_BYTES, PANEL_ROWS, PackArgs, PanelSource, RowsArgs,
    slot,
};
use std::arch::x86_64::*;

/// Bytes that [`load_lines`] takes from each row.
pub(super) const STEP_BYTES: usize = 64;

/// Formats; the codes are const parameters.
pub(super) const F32: u8 = 0;
pub(in crate::x86) const F16: u8 = 1;
pub(in crate::x86) const BF16: u8 = 2;
pub(super) const BF16_PAIRS: u8 = 3;

macro_rules! functions_of_format {
    ($($pack:ident $direct:ident $rows:ident $format:ident $features:literal;)*) => {$(
        #[doc = concat!("Multiplies ", stringify!($format), " with one token.")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::RowsFn`].
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn $rows(args: &RowsArgs) {
            // SAFETY: forwarded.
            unsafe { float_rows::rows::<$format>(args) }
        }

        #[doc = concat!("Packs ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn $pack(args: &PackArgs) {
            // SAFETY: forwarded.
            unsafe { pack::<$format>(args) }
        }

        #[doc = concat!("Multiplies ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::DirectFn`].
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn $direct(args: &DirectArgs) {
            // SAFETY: forwarded.
            unsafe {
                match args.m {
                    1 => direct::<$format, 1>(args),
                    2 => direct::<$format, 2>(args),
                    3 | 4 => direct::<$format, 4>(args),
                    _ => direct::<$format, DIRECT_TOKENS>(args),
                }
            }
        }
    )*};
}
functions_of_format!(
    f32 direct_f32 rows_f32 F32 "avx512f,avx512bw,avx512dq,avx512vl";
    f16 direct_f16 rows_f16 F16 "avx512f,avx512bw,avx512dq,avx512vl";
    bf16 direct_bf16 rows_bf16 BF16 "avx512f,avx512bw,avx512dq,avx512vl";
    bf16_pairs direct_bf16_pairs rows_bf16_pairs BF16_PAIRS "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16";
);

pub(super) const fn elem_bytes(format: u8) -> usize {
    if format == F32 { 4 } else { 2 }
}

/// The lines of a panel that a vector of 4 bytes a row becomes: one column of f32 or a pair of bf16,
/// or two columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(in crate::x86) fn widen<const FORMAT: u8>(v: __m512i) -> [__m512i; 2] {
    match FORMAT {
        F16 => {
            // Even columns to the lower half, odd ones to the upper.
            let order = _mm512_set_epi16(
                31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, //
                30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0,
            );
            let v = _mm512_permutexvar_epi16(order, v);
            let widen = |v| _mm512_castps_si512(_mm512_cvtph_ps(v));
            [
                widen(_mm512_castsi512_si256(v)),
                widen(_mm512_extracti64x4_epi64::<1>(v)),
            ]
        }
        BF16 => {
            let upper = _mm512_set1_epi32(0xFFFF_0000_u32.cast_signed());
            [_mm512_slli_epi32::<16>(v), _mm512_and_si512(v, upper)]
        }
        _ => [v; 2],
    }
}

pub(super) const fn lines_a_vector(format: u8) -> usize {
    if format == F16 || format == BF16 {
        2
    } else {
        1
    }
}

/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pack<const FORMAT: u8>(args: &PackArgs) {
    let lines = lines_a_vector(FORMAT);
    let n_lines = if FORMAT == BF16_PAIRS {
        args.source.k.div_ceil(2)
    } else {
        args.source.k
    };
    // SAFETY: forwarded; the second column of an odd chunk's last pair is beyond the panel.
    unsafe {
        each_vector(&args.source, elem_bytes(FORMAT), |i, v| {
            for (j, v) in widen::<FORMAT>(v).into_iter().take(lines).enumerate() {
                if lines * i + j < n_lines {
                    let line = args.panel.add((lines * i + j) * LINE_BYTES);
                    _mm512_store_si512(line.cast(), v);
                }
            }
        });
    }
}

/// # Safety
/// As [`crate::matmul::panel::DirectFn`], for at most `T` tokens; bf16 pairs need AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn direct<const FORMAT: u8, const T: usize>(args: &DirectArgs) {
    let lines = lines_a_vector(FORMAT);
    // SAFETY: tokens below `m` have the chunk's columns, and bf16 ones a pair for the last; accumulators have a row for each
    // token.
    unsafe {
        let x: [*const u8; T] =
            std::array::from_fn(|t| args.x.add(slot(t, args.m) * args.x_stride));
        let mut sum = [_mm512_setzero_ps(); T];
        each_vector(&args.source, elem_bytes(FORMAT), |i, v| {
            for (j, v) in widen::<FORMAT>(v).into_iter().take(lines).enumerate() {
                let c = lines * i + j;
                // The second column of an odd chunk's last pair has no activation.
                if lines == 2 && c >= args.source.k {
                    continue;
                }
                for t in 0..T {
                    let x = x[t].cast::<i32>().add(c).read_unaligned();
                    let x = _mm512_set1_epi32(x);
                    sum[t] = if FORMAT == BF16_PAIRS {
                        super::tile_bf16::dot_pairs(sum[t], v, x)
                    } else {
                        _mm512_fmadd_ps(_mm512_castsi512_ps(v), _mm512_castsi512_ps(x), sum[t])
                    };
                }
            }
        });
        for (t, sum) in sum.into_iter().enumerate().take(args.m) {
            let acc = args.acc.add(t * GROUP_ROWS);
            _mm512_store_ps(acc, _mm512_add_ps(_mm512_load_ps(acc), sum));
        }
    }
}

/// Gives `use_vector` vector `i` of the chunk: bytes `4i..4i + 4` of each row, zeros beyond the last column.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`], for columns of `elem_bytes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(in crate::x86) unsafe fn each_vector(
    source: &PanelSource,
    elem_bytes: usize,
    mut use_vector: impl FnMut(usize, __m512i),
) {
    let n_bytes = source.k * elem_bytes;
    let steps = n_bytes / STEP_BYTES;
    let mut ahead = source.ahead;
    for step in 0..steps {
        ahead.fetch(PANEL_ROWS);
        // SAFETY: whole steps are within the rows.
        let lines = unsafe { load_lines(source.base.add(step * STEP_BYTES), source.stride) };
        for (i, v) in lines.into_iter().enumerate() {
            use_vector(16 * step + i, v);
        }
    }
    let left = n_bytes % STEP_BYTES;
    if left > 0 {
        let mut tail = [0_u8; PANEL_ROWS * STEP_BYTES];
        for (r, to) in tail.chunks_exact_mut(STEP_BYTES).enumerate() {
            // SAFETY: the last bytes of each row's chunk; `to` is longer.
            unsafe {
                let from = source.base.add(r * source.stride + steps * STEP_BYTES);
                std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), left);
            }
        }
        // SAFETY: sixteen rows of 64 bytes.
        let lines = unsafe { load_lines(tail.as_ptr(), STEP_BYTES) };
        for (i, v) in lines.into_iter().enumerate().take(left.div_ceil(4)) {
            use_vector(16 * steps + i, v);
        }
    }
}
