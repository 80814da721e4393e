//! Kernels for the k-quants: packed into panels, or multiplied with a few tokens directly.

use super::superblock_lines::*;
use super::superblock_rows;
use super::tile_i8x256::add_superblock;
use crate::matmul::PanelLayout;
use crate::matmul::ahead::Ahead;
use crate::matmul::panel::{
    DIRECT_TOKENS, DirectArgs, GROUP_ROWS, LINE_BYTES, PackArgs, RowsArgs, X256, slot,
};
use std::arch::x86_64::*;

const _: () = assert!(DIRECT_TOKENS == 8, "as many as `products` writes out");

/// Lines of levels in a unit; scales follow.
const BYTE_LINES: usize = 64;

/// Most lines from the scales on, those of [`PanelLayout::Super16Min`].
const TAIL_LINES: usize = PanelLayout::Super16Min.unit_lines() - BYTE_LINES;

macro_rules! functions_of_format {
    ($($pack:ident $direct:ident $format:ident $layout:ident $sub:literal $min:literal;)*) => {$(
        #[doc = concat!("Packs ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        pub(crate) unsafe fn $pack(args: &PackArgs) {
            // SAFETY: forwarded.
            unsafe { pack::<$format>(args, PanelLayout::$layout.unit_bytes()) }
        }

        #[doc = concat!("Multiplies ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::DirectFn`].
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        pub(crate) unsafe fn $direct(args: &DirectArgs) {
            // SAFETY: forwarded.
            unsafe {
                match args.m {
                    1 => direct::<$format, 1, $sub, $min>(args),
                    2 => direct::<$format, 2, $sub, $min>(args),
                    3 | 4 => direct::<$format, 4, $sub, $min>(args),
                    5 | 6 => direct::<$format, 6, $sub, $min>(args),
                    _ => direct::<$format, DIRECT_TOKENS, $sub, $min>(args),
                }
            }
        }
    )*};
}
functions_of_format!(
    q2_k direct_q2_k Q2_K Super16Min 16 true;
    q3_k direct_q3_k Q3_K Super16 16 false;
    q4_k direct_q4_k Q4_K Super32Min 32 true;
    q5_k direct_q5_k Q5_K Super32Min 32 true;
    q6_k direct_q6_k Q6_K Super16 16 false;
);

macro_rules! rows_of_format {
    ($($rows:ident $format:ident;)*) => {$(
        #[doc = concat!("Multiplies ", stringify!($format), " with one token.")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::RowsFn`].
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        pub(crate) unsafe fn $rows(args: &RowsArgs) {
            // SAFETY: forwarded.
            unsafe { superblock_rows::rows::<$format>(args) }
        }
    )*};
}
rows_of_format!(
    rows_q4_k Q4_K;
    rows_q5_k Q5_K;
    rows_q6_k Q6_K;
);

/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pack<const FORMAT: u8>(args: &PackArgs, unit_bytes: usize) {
    let mut ahead = args.source.ahead;
    for b in 0..args.source.k / 256 {
        // SAFETY: superblock `b` of each row and unit `b` of the panel exist.
        unsafe {
            let block = args
                .source
                .base
                .add(b * const { dtype(FORMAT).block_bytes() });
            let unit = args.panel.add(b * unit_bytes);
            header::<FORMAT>(block, args.source.stride, unit.add(BYTE_LINES * LINE_BYTES));
            levels::<FORMAT>(block, args.source.stride, &mut ahead, |sixteen, lines| {
                for (i, v) in lines.into_iter().enumerate() {
                    let line = unit.add((4 * sixteen + i) * LINE_BYTES);
                    _mm512_store_si512(line.cast(), v);
                }
            });
        }
    }
}

/// A unit's lines from the scales on.
#[repr(align(64))]
struct Tail([u8; TAIL_LINES * LINE_BYTES]);

/// # Safety
/// As [`crate::matmul::panel::DirectFn`], for at most `T` tokens.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn direct<const FORMAT: u8, const T: usize, const SUB: usize, const MIN: bool>(
    args: &DirectArgs,
) {
    let mut tail = Tail([0; TAIL_LINES * LINE_BYTES]);
    let tail = tail.0.as_mut_ptr();
    let mut ahead = args.source.ahead;
    // SAFETY: tokens below `m` have a record for each superblock; accumulators have a row for each token; the tail
    // has the lines of any layout.
    unsafe {
        let x: [*const X256; T] =
            std::array::from_fn(|t| args.x.add(slot(t, args.m) * args.x_stride).cast());
        for b in 0..args.source.k / 256 {
            let block = args
                .source
                .base
                .add(b * const { dtype(FORMAT).block_bytes() });
            header::<FORMAT>(block, args.source.stride, tail);
            let source = (block, args.source.stride);
            let x = x.map(|x| x.add(b));
            let is_narrow = x.iter().all(|x| fits_i16::<FORMAT>(&**x));
            let sum = if is_narrow {
                products::<FORMAT, T, SUB, MIN, true>(source, &mut ahead, tail, &x)
            } else {
                products::<FORMAT, T, SUB, MIN, false>(source, &mut ahead, tail, &x)
            };
            for (t, sum) in sum.into_iter().enumerate().take(args.m) {
                let acc = args.acc.add(t * GROUP_ROWS);
                add_superblock::<SUB, MIN>(acc, sum, tail, &*x[t]);
            }
        }
    }
}

/// Scaled sums of products of a superblock: `block` of the first row and the rows' stride, with `T` tokens' records. `NARROW`: dot
/// products of sixteen columns fit 16 bits.
///
/// # Safety
/// As [`levels`], with a tail that [`header`] wrote.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn products<
    const FORMAT: u8,
    const T: usize,
    const SUB: usize,
    const MIN: bool,
    const NARROW: bool,
>(
    (block, stride): (*const u8, usize),
    ahead: &mut Ahead,
    tail: *const u8,
    x: &[*const X256; T],
) -> [__m512i; T] {
    let mut sum = [_mm512_setzero_si512(); T];
    // SAFETY: forwarded; a record has 64 times four bytes.
    unsafe {
        levels::<FORMAT>(block, stride, ahead, |sixteen, lines| {
            let scale = tail.add(sixteen * 16 / SUB * LINE_BYTES);
            let mut scale = _mm512_load_si512(scale.cast());
            if NARROW && !MIN {
                // The upper half of the pair must not count for a signed scale.
                scale = _mm512_and_si512(scale, _mm512_set1_epi32(0xFFFF));
            }
            // Written out: the compiler would leave a loop over eight tokens one, with the sums in memory.
            macro_rules! token {
                ($($t:literal)*) => {$(
                    if $t < T {
                        let x = &*x[$t];
                        let start = if MIN { 0 } else { x.offset_32[sixteen] };
                        let mut dot = _mm512_set1_epi32(start);
                        for (i, line) in lines.iter().enumerate() {
                            let q = (&raw const x.q).cast::<i32>().add(4 * sixteen + i);
                            let q = _mm512_set1_epi32(q.read_unaligned());
                            dot = _mm512_dpbusd_epi32(dot, *line, q);
                        }
                        sum[$t] = if NARROW {
                            dot_pairs(sum[$t], dot, scale)
                        } else {
                            _mm512_add_epi32(sum[$t], _mm512_mullo_epi32(dot, scale))
                        };
                    }
                )*};
            }
            token!(0 1 2 3 4 5 6 7);
        });
    }
    sum
}

/// Whether dot products of sixteen of these activations with levels fit 16 bits: with two and four bits they always do,
/// at most 16 · 15 · 127.
#[inline(always)]
fn fits_i16<const FORMAT: u8>(x: &X256) -> bool {
    match FORMAT {
        Q2_K | Q4_K => true,
        Q5_K => x.wide.five_bits == 0,
        _ => x.wide.six_bits == 0,
    }
}

/// `_mm512_dpwssd_epi32(sum, a, b)` as one instruction. The compiler would split it into a product and an addition to shorten a chain
/// that many tokens hide, at the cost of a port.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn dot_pairs(mut sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: registers alone; the CPU has the instruction by this function's features.
    unsafe {
        std::arch::asm!(
            "vpdpwssd {sum}, {a}, {b}",
            sum = inout(zmm_reg) sum,
            a = in(zmm_reg) a,
            b = in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}
