//! Formats of 32-column blocks times one token, row by row: lanes are columns.
//!
//! Four blocks of a row share a vector, one in each 128-bit lane. The sums of four rows' blocks are then transposed so that each
//! element of a lane is a row. Whole-number sums are exact, so the sums of a row receive the same bits as from the tile.

use super::block32_lines::{
    IQ4_NL, IQ4_NL_BYTES, IQ4_XS, MXFP4, MXFP4_BYTES, Q4_0, Q4_1, Q5_0, Q8_0,
};
use super::block32_lines::{dtype, half_powers, has_min, times_six_bits};
use super::streams::{add_elements, lanes, quarters_of, spread};
use crate::matmul::panel::{RowsArgs, X32};
use crate::x86::streams::{Fetch, STREAMS, each_four_rows, fetched};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Blocks of a set: one for each 128-bit lane.
const MOST: usize = 4;

/// Sets for which activations are put in order at a time: in the nearest cache they leave room for the weights.
const SEGMENT: usize = 64;

/// Activations of [`MOST`] blocks, prepared for all rows.
struct ActivationBlocks {
    /// A lane for each block: columns 0–15 and 16–31.
    q: [__m512i; 2],
    /// In each lane four times: the contribution of the offset of the weights' bytes.
    offset: __m512i,
    /// In each lane four times: the scale.
    d: __m512,
    /// In each lane four times: the scaled sum.
    scaled_sum: __m512,
}

/// Offset of the nibbles of IQ4_XS, after its scales. A set of it is half a superblock.
const NIBBLES: usize = 8;

/// Multiplies [`Q4_0`], [`Q4_1`], [`Q5_0`], [`Q8_0`], [`IQ4_NL`], [`IQ4_XS`] or [`MXFP4`] with one token.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub(super) unsafe fn rows<const FORMAT: u8>(args: &RowsArgs) {
    // SAFETY: forwarded.
    unsafe {
        fetched!(SECOND => segments::<FORMAT, SECOND>(args));
    }
}

/// # Safety
/// As [`rows`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn segments<const FORMAT: u8, const SECOND: bool>(args: &RowsArgs) {
    let mut sets = [const { MaybeUninit::<ActivationBlocks>::uninit() }; SEGMENT];
    // For IQ4_XS, a block's share of the superblock: sets come in pairs.
    let block_bytes = const { dtype(FORMAT).block_bytes() * 32 / dtype(FORMAT).block_elems() };
    let blocks = args.k / 32;
    let mut first = 0;
    while first < blocks {
        let end = blocks.min(first + SEGMENT * MOST);
        let full = (end - first) / MOST;
        // SAFETY: forwarded: records and blocks up to `end`; each set is written before it is read.
        unsafe {
            let x = args.x.cast::<X32>().add(first);
            for (i, set) in sets[..full].iter_mut().enumerate() {
                set.write(prepare::<MOST>(x.add(i * MOST)));
            }
            let left: [ActivationBlocks; MOST - 1] = std::array::from_fn(|i| {
                let i = first + full * MOST + i;
                prepare::<1>(args.x.cast::<X32>().add(i.min(blocks - 1)))
            });
            each_four_rows::<SECOND>(args, first == 0, |rows, mut acc| {
                let mut at = rows.map(|row| row.add(first * block_bytes));
                if FORMAT == IQ4_XS {
                    // A superblock is two sets.
                    for pair in sets[..full].as_chunks::<2>().0 {
                        for (half, set) in pair.iter().enumerate() {
                            let set = set.assume_init_ref();
                            acc = some::<FORMAT, MOST, SECOND>(at, half, set, acc);
                        }
                        at = at.map(|at| at.add(2 * MOST * block_bytes));
                    }
                } else {
                    for set in &sets[..full] {
                        let set = set.assume_init_ref();
                        acc = some::<FORMAT, MOST, SECOND>(at, 0, set, acc);
                        at = at.map(|at| at.add(MOST * block_bytes));
                    }
                }
                for set in &left[..(end - first) % MOST] {
                    acc = some::<FORMAT, 1, SECOND>(at, 0, set, acc);
                    at = at.map(|at| at.add(block_bytes));
                }
                acc
            });
        }
        first = end;
    }
}

/// Puts the activations of `N` blocks in order.
///
/// # Safety
/// There are as many records.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn prepare<const N: usize>(x: *const X32) -> ActivationBlocks {
    // SAFETY: forwarded.
    unsafe {
        let bytes = (&raw const (*x).q).cast::<u8>();
        let of = |i: usize| &*x.add(i.min(N - 1));
        let d: [f32; 4] = std::array::from_fn(|i| of(i).d);
        let scaled_sum: [f32; 4] = std::array::from_fn(|i| of(i).scaled_sum);
        let offset: [i32; 4] = std::array::from_fn(|i| of(i).offset_128);
        ActivationBlocks {
            q: [
                lanes::<N>(bytes, size_of::<X32>()),
                lanes::<N>(bytes.add(16), size_of::<X32>()),
            ],
            offset: spread(offset),
            d: _mm512_castsi512_ps(spread(d.map(|v| v.to_bits().cast_signed()))),
            scaled_sum: _mm512_castsi512_ps(spread(scaled_sum.map(|v| v.to_bits().cast_signed()))),
        }
    }
}

/// Adds the products of `N` blocks of four rows to their sums; of IQ4_XS, those of a half of the superblock.
///
/// # Safety
/// At each address are `N` blocks, or a superblock; `set` was prepared for them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn some<const FORMAT: u8, const N: usize, const SECOND: bool>(
    at: [*const u8; STREAMS],
    half: usize,
    set: &ActivationBlocks,
    mut acc: __m128,
) -> __m128 {
    let mut dots = [_mm512_setzero_si512(); STREAMS];
    // SAFETY: forwarded.
    let (d, min) = unsafe {
        for (at, dot) in at.into_iter().zip(&mut dots) {
            // One line for each half of a superblock.
            let from = if FORMAT == IQ4_XS { half * 64 } else { 0 };
            let n_bytes = if FORMAT == IQ4_XS {
                64
            } else {
                N * const { dtype(FORMAT).block_bytes() }
            };
            Fetch::<SECOND>::after(at.add(from), n_bytes);
            let [low, high] = levels::<FORMAT, N>(at, half);
            *dot = _mm512_dpbusd_epi32(*dot, low, set.q[0]);
            *dot = _mm512_dpbusd_epi32(*dot, high, set.q[1]);
        }
        scales::<FORMAT, N>(at, half)
    };
    let mut dot = add_elements(dots);
    if !has_min(FORMAT) {
        dot = _mm512_add_epi32(dot, set.offset);
    }
    let dot = quarters_of(_mm512_cvtepi32_ps(dot));
    let d = quarters_of(_mm512_mul_ps(d, set.d));
    let (min, sum) = (quarters_of(min), quarters_of(set.scaled_sum));
    for i in 0..N {
        acc = _mm_fmadd_ps(dot[i], d[i], acc);
        if has_min(FORMAT) {
            acc = _mm_fmadd_ps(min[i], sum[i], acc);
        }
    }
    acc
}

/// The bytes of `N` blocks as [`super::block32_lines::lines`] has them: columns 0–15 and 16–31, a lane for each block.
///
/// # Safety
/// At the address are `N` blocks, or a superblock.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn levels<const FORMAT: u8, const N: usize>(at: *const u8, half: usize) -> [__m512i; 2] {
    let block_bytes = const { dtype(FORMAT).block_bytes() };
    // SAFETY: forwarded; fields are where ggml's `block_*` structures have them.
    let part = |from: usize| unsafe { lanes::<N>(at.add(from), block_bytes) };
    let low_mask = _mm512_set1_epi8(0x0F);
    if FORMAT == Q8_0 {
        let flip = _mm512_set1_epi8(-128);
        return [
            _mm512_xor_si512(part(2), flip),
            _mm512_xor_si512(part(18), flip),
        ];
    }
    let v = match FORMAT {
        // SAFETY: as above.
        IQ4_XS => unsafe { _mm512_loadu_si512(at.add(NIBBLES + 64 * half).cast()) },
        // SAFETY: as above.
        _ if N == MOST => unsafe { four_nibbles::<FORMAT>(at) },
        _ => part(block_bytes - 16),
    };
    if FORMAT == Q4_0 {
        return [
            _mm512_andnot_si512(low_mask, _mm512_slli_epi16::<4>(v)),
            _mm512_andnot_si512(low_mask, v),
        ];
    }
    let low = _mm512_and_si512(v, low_mask);
    let high = _mm512_and_si512(_mm512_srli_epi16::<4>(v), low_mask);
    match FORMAT {
        Q5_0 => {
            // Sixteen mask bits for each lane: of all blocks' lower, then upper halves.
            // SAFETY: as above.
            let bits: [u32; 4] = std::array::from_fn(|i| unsafe {
                let i = i.min(N - 1) * block_bytes;
                at.add(i + 2).cast::<u32>().read_unaligned()
            });
            let masks = |shift: u32| {
                (0..4).fold(0, |all, i| {
                    all | u64::from(bits[i] >> shift & 0xFFFF) << (16 * i)
                })
            };
            let five = |v: __m512i, mask: u64| {
                let bit = _mm512_maskz_mov_epi8(mask, _mm512_set1_epi8(0x10));
                _mm512_slli_epi16::<3>(_mm512_or_si512(v, bit))
            };
            [five(low, masks(0)), five(high, masks(16))]
        }
        IQ4_NL | IQ4_XS | MXFP4 => {
            let table = match FORMAT {
                MXFP4 => &MXFP4_BYTES,
                _ => &IQ4_NL_BYTES,
            };
            // SAFETY: sixteen readable bytes.
            let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
            let table = _mm512_broadcast_i32x4(table);
            [low, high].map(|v| _mm512_shuffle_epi8(table, v))
        }
        _ => [low, high],
    }
}

/// Scales of `N` blocks of four rows, and minimums if the format has them: a lane is a block, each of its elements a row.
///
/// # Safety
/// At each address are `N` blocks, or a superblock.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn scales<const FORMAT: u8, const N: usize>(
    at: [*const u8; STREAMS],
    half: usize,
) -> (__m512, __m512) {
    let block_bytes = const { dtype(FORMAT).block_bytes() };
    let zero = _mm512_setzero_ps();
    // SAFETY: forwarded; loads stay within the blocks of their row.
    unsafe {
        if FORMAT == IQ4_XS {
            let word = |from: usize| {
                let of = at.map(|at| at.add(from).cast::<i32>().read_unaligned());
                _mm512_broadcast_i32x4(_mm_setr_epi32(of[0], of[1], of[2], of[3]))
            };
            let j = 4 * half as i32;
            let j = spread([j, j + 1, j + 2, j + 3]);
            return (times_six_bits(word(0), word(4), j), zero);
        }
        if FORMAT == MXFP4 {
            return (half_powers(exponents::<N>(at)), zero);
        }
        if N == 1 {
            let first = at.map(|at| at.cast::<u32>().read_unaligned().cast_signed());
            let v = _mm512_castsi128_si512(_mm_setr_epi32(first[0], first[1], first[2], first[3]));
            let min = if has_min(FORMAT) { upper_f16(v) } else { zero };
            return (scaled::<FORMAT>(lower_f16(v)), min);
        }
        if FORMAT == Q4_1 {
            // Scale and minimum of a block are every fifth double word of 64 bytes.
            let order = spread([0, 5, 10, 15]);
            let mut v = _mm512_setzero_si512();
            for (row, at) in at.into_iter().enumerate() {
                let from = _mm512_loadu_si512(at.cast());
                v = _mm512_mask_permutexvar_epi32(v, 0x1111 << row, order, from);
            }
            return (lower_f16(v), upper_f16(v));
        }
        // Words: element `4b + r` is block `b` of row `r`. Blocks are so short that 64 bytes have the scales of all four, of two
        // (Q8_0), or 32 those of two (Q5_0).
        let step = (block_bytes / 2) as i16;
        let mut v = _mm256_setzero_si256();
        for (row, at) in at.into_iter().enumerate() {
            let mask = 0x1111 << row;
            if block_bytes == 18 {
                let from = _mm512_loadu_si512(at.cast());
                v = take_words(v, mask, [0, step, 2 * step, 3 * step], from);
                continue;
            }
            for (pair, mask) in [mask & 0x00FF, mask & 0xFF00].into_iter().enumerate() {
                let at = at.add(2 * pair * block_bytes);
                let from = if block_bytes >= 32 {
                    _mm512_loadu_si512(at.cast())
                } else {
                    _mm512_castsi256_si512(_mm256_loadu_si256(at.cast()))
                };
                v = take_words(v, mask, [0, step, 0, step], from);
            }
        }
        (scaled::<FORMAT>(_mm512_cvtph_ps(v)), zero)
    }
}

/// The nibbles of four blocks, 16 to 32 bytes each, where each block ends with its nibbles: a lane for each. Two loads and a
/// permutation cost less than four loads.
///
/// # Safety
/// At the address are four blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn four_nibbles<const FORMAT: u8>(at: *const u8) -> __m512i {
    let block_bytes = const { dtype(FORMAT).block_bytes() };
    let order = const {
        let block_bytes = dtype(FORMAT).block_bytes();
        let mut order = [0; 64];
        let mut i = 0;
        while i < 64 {
            let from = (i / 16 + 1) * block_bytes - 16 + i % 16;
            // Bytes that the first vector lacks are in the second, which ends with the last block.
            order[i] = if from < 64 {
                from as u8
            } else {
                (from + 128).saturating_sub(4 * block_bytes) as u8
            };
            i += 1;
        }
        Line(order)
    };
    // SAFETY: forwarded: four blocks are 64 to 128 bytes.
    unsafe {
        let first = _mm512_loadu_si512(at.cast());
        let last = _mm512_loadu_si512(at.add(4 * block_bytes - 64).cast());
        let order = _mm512_load_si512(order.0.as_ptr().cast());
        _mm512_permutex2var_epi8(first, order, last)
    }
}

/// The bytes of a vector.
#[repr(align(64))]
struct Line([u8; 64]);

/// The first byte of `N` blocks of MXFP4 in each of four rows: a lane is a block, each of its elements a row.
///
/// # Safety
/// As [`scales`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn exponents<const N: usize>(at: [*const u8; STREAMS]) -> __m512i {
    let mut v = _mm512_setzero_si512();
    if N < MOST {
        // SAFETY: forwarded.
        let e = at.map(|at| unsafe { i32::from(*at) });
        return _mm512_zextsi128_si512(_mm_setr_epi32(e[0], e[1], e[2], e[3]));
    }
    let step = const { dtype(MXFP4).block_bytes() as i32 * 0x0101_0101 };
    let order = spread([0, step, 2 * step, 3 * step]);
    for (row, at) in at.into_iter().enumerate() {
        // SAFETY: forwarded: four blocks are 68 bytes.
        let from = unsafe { _mm512_loadu_si512(at.cast()) };
        // The lowest byte of the row's element in each lane.
        v = _mm512_mask_permutexvar_epi8(v, 0x0001_0001_0001_0001 << (4 * row), order, from);
    }
    v
}

/// Moves words of `from` to the elements of `mask`; four elements of a block take the same words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn take_words(v: __m256i, mask: u16, words: [i16; 4], from: __m512i) -> __m256i {
    let [a, b, c, d] = words;
    let order = _mm256_setr_epi16(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d);
    let v = _mm512_castsi256_si512(v);
    let order = _mm512_castsi256_si512(order);
    let v = _mm512_mask_permutexvar_epi16(v, u32::from(mask), order, from);
    _mm512_castsi512_si256(v)
}

/// Scales as [`super::block32_lines::scales`] has them.
#[inline]
#[target_feature(enable = "avx512f")]
fn scaled<const FORMAT: u8>(d: __m512) -> __m512 {
    match FORMAT {
        Q4_0 => _mm512_mul_ps(d, _mm512_set1_ps(1.0 / 16.0)),
        Q5_0 => _mm512_mul_ps(d, _mm512_set1_ps(1.0 / 8.0)),
        _ => d,
    }
}

/// The f16 number in the lower half of each element.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn lower_f16(v: __m512i) -> __m512 {
    _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v))
}

/// The f16 number in the upper half of each element.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn upper_f16(v: __m512i) -> __m512 {
    lower_f16(_mm512_srli_epi32::<16>(v))
}
