//! IQ1_*, IQ2_* and IQ3_* of one token: 64 points are looked up at once, and multiplied plane by plane.
//!
//! Plane `p` of a block has element `p` of each point. A point's elements take few values, so a table holds them as codes, several in a
//! byte: two bytes a point. `vpermi2b` finds a byte of 64 points, a shift and `vpermb` turn codes into magnitudes, and activations in the
//! same order get the points' signs. IQ1_* have no signs: the shift of a point is added to its levels. The sums are those of the AVX2
//! functions, which look up one point at a time.

mod formats;

use super::tile_i8x32;
use crate::matmul::panel::{DirectArgs, GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileFn, X32};
use crate::x86::avx2::levels::{Unpack, one_or_few};
use crate::x86::avx2::lines::transpose_quad;
use std::arch::x86_64::*;

/// Columns of a block of these formats.
const BLOCK: usize = 256;

/// Blocks of 32 activations in one.
const PARTS: usize = BLOCK / 32;

/// Rows whose sums are transposed together.
const ROWS: usize = 8;

/// Bytes in which the second half of four neighbours is: columns `16..32` of each 32, of points of eight.
const SECOND: __mmask64 = 0xCCCC_CCCC_CCCC_CCCC;

/// Bytes that `vpermb` and its like select: `from`, `from + step`, ….
const fn every(from: u8, step: u8) -> [u8; 64] {
    let mut bytes = [0; 64];
    let mut i = 0;
    while i < 64 {
        bytes[i] = from.wrapping_add((i as u8).wrapping_mul(step));
        i += 1;
    }
    bytes
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: 64 readable bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Indices of the points of 64 bytes, and the rest of the information on their elements.
#[derive(Clone, Copy)]
pub(crate) struct Indices {
    /// The lower eight bits.
    low: __m512i,
    /// The ninth bit and those above it, of formats that have them.
    high: [__mmask64; 3],
    /// A bit for each element of a point, the first at the bottom: it is negative. For IQ1_*, the shift added to each element.
    signs: __m512i,
}

/// A format of points.
pub(crate) trait Points: Unpack {
    /// Elements of a point: 8 or 4. A block of 256 has 32 or 64 points, so 64 are of two rows or of one.
    const ELEMENTS: usize;
    /// How many points there are.
    const N: usize;

    /// `[2, N]` codes, 64-byte aligned, and their magnitudes.
    fn tables() -> (*const u8, &'static [u8; 64]);

    /// The points of a block in two rows, or in the first of them.
    ///
    /// # Safety
    /// The CPU has AVX-512 with VBMI; both are blocks.
    unsafe fn indices(rows: [*const u8; 2]) -> Indices;
}

/// Multiplies with a few tokens.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub(crate) unsafe fn direct<P: Points>(args: &DirectArgs) {
    let tile: TileFn = const {
        match P::SCALES {
            1 => tile_i8x32::tile,
            _ => tile_i8x32::tile_16,
        }
    };
    // SAFETY: forwarded.
    unsafe {
        match args.m {
            1 => one_token::<P>(args),
            _ => one_or_few::<P, 128>(args, tile),
        }
    }
}

/// As AVX2's function of one token, with [`sums_of_rows`] for its sums: the accumulators receive the same values.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`], with one token.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,fma,f16c")]
unsafe fn one_token<P: Points>(args: &DirectArgs) {
    const { assert!(PANEL_ROWS == 2 * ROWS && GROUP_ROWS >= PANEL_ROWS) };
    let source = &args.source;
    let bytes = const { P::DTYPE.block_bytes() };
    // SAFETY: forwarded: sixteen rows of the chunk's blocks, as many records, sixteen accumulators.
    unsafe {
        let mut acc = [0, ROWS].map(|first| _mm256_load_ps(args.acc.add(first)));
        for b in 0..source.k / BLOCK {
            let x = args.x.cast::<X32>().add(b * PARTS);
            let planes = planes::<P>(x);
            for (half, acc) in acc.iter_mut().enumerate() {
                let first = half * ROWS;
                for r in first..first + ROWS {
                    for line in 0..bytes.div_ceil(LINE_BYTES) {
                        source.ahead.fetch_at(r, b * bytes + line * LINE_BYTES);
                    }
                }
                let block = source.base.add(first * source.stride + b * bytes);
                let header = P::header(block, source.stride);
                let sums = sums_of_rows::<P>(block, source.stride, &planes);
                for j in 0..PARTS {
                    let x = &*x.add(j);
                    let d_x = _mm256_set1_ps(x.d);
                    let scales = P::scales(header, block, source.stride, j);
                    for (s, (sums, d)) in sums.iter().zip(scales).enumerate().take(P::SCALES) {
                        // −128 · Σ q is a multiple of the offset's contribution.
                        let offset = match P::SCALES {
                            1 => x.offset::<1>(s),
                            _ => x.offset::<2>(s),
                        };
                        let offset = _mm256_set1_epi32(offset / 128 * i32::from(P::OFFSET));
                        let sum = _mm256_cvtepi32_ps(_mm256_add_epi32(sums[j], offset));
                        *acc = _mm256_fmadd_ps(sum, _mm256_mul_ps(d, d_x), *acc);
                    }
                }
            }
        }
        for (first, acc) in [0, ROWS].into_iter().zip(acc) {
            _mm256_store_ps(args.acc.add(first), acc);
        }
    }
}

/// The activations of a block in planes; of points of eight, 32 bytes twice.
///
/// # Safety
/// `x` reaches eight records.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn planes<P: Points>(x: *const X32) -> [__m512i; 8] {
    // SAFETY: forwarded.
    let part = |j: usize| unsafe { _mm256_loadu_si256((*x.add(j)).q.as_ptr().cast()) };
    let two = |j: usize| _mm512_inserti64x4::<1>(_mm512_castsi256_si512(part(j)), part(j + 1));
    let q = [two(0), two(2), two(4), two(6)];
    let mut planes = [_mm512_setzero_si512(); 8];
    for (p, plane) in planes.iter_mut().enumerate().take(P::ELEMENTS) {
        // Picks 16 or 32 of 128 columns; only 7 bits of an index count, so they repeat.
        let step = load(&if P::ELEMENTS == 8 {
            every(0, 8)
        } else {
            every(0, 4)
        });
        let order = _mm512_add_epi8(step, _mm512_set1_epi8(p as i8));
        let low = _mm512_permutex2var_epi8(q[0], order, q[1]);
        let high = _mm512_permutex2var_epi8(q[2], order, q[3]);
        let behind = if P::ELEMENTS == 8 {
            0xFFFF_0000_FFFF_0000
        } else {
            0xFFFF_FFFF_0000_0000
        };
        *plane = _mm512_mask_mov_epi8(low, behind, high);
    }
    planes
}

/// Σ w·q of each 32 columns in eight rows, a lane each; of a format with two scales, of the first and the second sixteen.
///
/// # Safety
/// As [`Points::indices`], for eight rows, `stride` bytes apart.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn sums_of_rows<P: Points>(
    block: *const u8,
    stride: usize,
    planes: &[__m512i; 8],
) -> [[__m256i; PARTS]; 2] {
    let mut all = [_mm256_setzero_si256(); ROWS];
    let mut second = all;
    for r in (0..ROWS).step_by(2) {
        // SAFETY: forwarded.
        let sums = unsafe {
            let rows = [block.add(r * stride), block.add((r + 1) * stride)];
            sums_of_two::<P>(rows, planes)
        };
        for (of, sums) in [&mut all, &mut second].into_iter().zip(sums) {
            of[r] = _mm512_castsi512_si256(sums);
            of[r + 1] = _mm512_extracti64x4_epi64::<1>(sums);
        }
    }
    let all = transpose(all);
    if P::SCALES == 1 {
        return [all, second];
    }
    let second = transpose(second);
    let mut first = all;
    for (first, second) in first.iter_mut().zip(second) {
        *first = _mm256_sub_epi32(*first, second);
    }
    [first, second]
}

/// Σ w·q of each 32 columns of two rows, eight lanes each, and the sum of the second sixteen of them.
///
/// # Safety
/// As [`Points::indices`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn sums_of_two<P: Points>(rows: [*const u8; 2], planes: &[__m512i; 8]) -> [__m512i; 2] {
    // SAFETY: forwarded.
    unsafe {
        if P::ELEMENTS == 8 {
            return products::<P>(P::indices(rows), planes);
        }
        // For points of four, a lane has 16 columns.
        let [a, b] = rows.map(|row| products::<P>(P::indices([row; 2]), planes)[0]);
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        let low = _mm512_permutex2var_epi32(a, even, b);
        let high = _mm512_permutex2var_epi32(a, odd, b);
        [_mm512_add_epi32(low, high), _mm512_setzero_si512()]
    }
}

/// Σ w·q of four points in each lane, and if there are two scales, also the sum of the last two points.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn products<P: Points>(indices: Indices, planes: &[__m512i; 8]) -> [__m512i; 2] {
    let (codes, levels) = P::tables();
    let levels = load(levels);
    let eighth = _mm512_movepi8_mask(indices.low);
    let zero = _mm512_setzero_si512();
    let (mut all, mut second) = (zero, zero);
    for half in 0..2 {
        // SAFETY: `N` codes of each half.
        let mut codes = unsafe { look_up::<P>(codes.add(half * P::N), &indices, eighth) };
        for i in 0..P::ELEMENTS / 2 {
            let p = half * P::ELEMENTS / 2 + i;
            let w = _mm512_permutexvar_epi8(codes, levels);
            // Bits shifted over from the byte above are above the bits that count.
            codes = if P::ELEMENTS == 8 {
                _mm512_srli_epi16::<2>(codes)
            } else {
                _mm512_srli_epi16::<3>(codes)
            };
            let (w, q) = if P::OFFSET > 0 {
                (_mm512_add_epi8(w, indices.signs), planes[p])
            } else {
                let own = _mm512_set1_epi8((1u8 << p) as i8);
                let negative = _mm512_test_epi8_mask(indices.signs, own);
                let q = _mm512_mask_sub_epi8(planes[p], negative, zero, planes[p]);
                (w, q)
            };
            all = _mm512_dpbusd_epi32(all, w, q);
            if P::SCALES == 2 {
                second = _mm512_dpbusd_epi32(second, _mm512_maskz_mov_epi8(SECOND, w), q);
            }
        }
    }
    [all, second]
}

/// A byte of codes of each of 64 points.
///
/// # Safety
/// `N` readable bytes at `codes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn look_up<P: Points>(codes: *const u8, indices: &Indices, eighth: __mmask64) -> __m512i {
    // For 256 points from `first` on.
    // SAFETY: forwarded.
    let of_256 = |first: usize| unsafe {
        let line = |i: usize| _mm512_load_si512(codes.add(first + 64 * i).cast());
        let low = _mm512_permutex2var_epi8(line(0), indices.low, line(1));
        let high = _mm512_permutex2var_epi8(line(2), indices.low, line(3));
        _mm512_mask_mov_epi8(low, eighth, high)
    };
    let of_512 =
        |first: usize| _mm512_mask_mov_epi8(of_256(first), indices.high[0], of_256(first + 256));
    let of_1024 =
        |first: usize| _mm512_mask_mov_epi8(of_512(first), indices.high[1], of_512(first + 512));
    match P::N {
        256 => of_256(0),
        512 => of_512(0),
        1024 => of_1024(0),
        _ => _mm512_mask_mov_epi8(of_1024(0), indices.high[2], of_1024(1024)),
    }
}

/// Turns 8 × 8 lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(rows: [__m256i; 8]) -> [__m256i; 8] {
    let [a, b, c, d, e, f, g, h] = rows;
    let (low, high) = (transpose_quad(a, b, c, d), transpose_quad(e, f, g, h));
    let mut out = [_mm256_setzero_si256(); 8];
    for i in 0..4 {
        out[i] = _mm256_permute2x128_si256::<0x20>(low[i], high[i]);
        out[i + 4] = _mm256_permute2x128_si256::<0x31>(low[i], high[i]);
    }
    out
}
