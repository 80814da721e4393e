//! The k-quants times one token, row by row: lanes are columns.
//!
//! Unpacking a superblock for sixteen rows at a time costs more than one token's products. Here four rows are read side by side, each
//! in order. Only the whole-number sums of a superblock are transposed so that an element is a row. These sums are exact, so their
//! order does not matter, and the sums of a row receive the same bits as from the tile.

#![allow(
    clippy::needless_range_loop,
    reason = "superblocks index addresses and arrays together"
)]

use super::streams::{add_elements, lanes, quarters_of, spread};
use super::superblock_lines::{Q4_K, Q5_K, Q6_K, dtype};
use crate::matmul::panel::{LINE_BYTES, RowsArgs, X256};
use crate::x86::streams::{Fetch, STREAMS, each_four_rows, fetched};
use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Superblocks of a row that are summed together: one for each 128-bit lane.
const MOST: usize = 4;

/// Superblocks for which activations are put in order at a time: in the nearest cache they leave room for the weights.
const SEGMENT: usize = 32;

/// Sets of a segment: full ones, and the last superblocks in twos and ones.
const SETS: usize = SEGMENT / MOST + 1;

/// Activations of [`MOST`] superblocks, prepared for all rows.
#[repr(align(64))]
struct ActivationSuperblocks {
    /// Bytes in the order in which a format's nibbles come.
    q: [[[u8; LINE_BYTES]; 4]; MOST],
    /// A lane for each superblock: sums of its groups of 32 columns.
    sums: __m512i,
    /// For Q6_K: the contribution of its elements' offset, from [`offsets_16`].
    offsets: [__m512i; MOST],
    /// A lane for each superblock: its scale, four times.
    d: __m512,
}

/// Multiplies [`Q4_K`], [`Q5_K`] or [`Q6_K`] with one token.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn rows<const FORMAT: u8>(args: &RowsArgs) {
    let blocks = args.k / 256;
    let mut first = 0;
    while first < blocks {
        let end = blocks.min(first + SEGMENT);
        // SAFETY: forwarded, for superblocks of the rows.
        unsafe {
            fetched!(SECOND => segment::<FORMAT, SECOND>(args, first, end));
        }
        first = end;
    }
}

/// # Safety
/// As [`rows`], for superblocks from `first` to `end`, at most [`SEGMENT`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn segment<const FORMAT: u8, const SECOND: bool>(args: &RowsArgs, first: usize, end: usize) {
    let mut sets = [const { MaybeUninit::<ActivationSuperblocks>::uninit() }; SETS];
    let full = (end - first) / MOST;
    let left = (end - first) % MOST;
    // SAFETY: forwarded: records and superblocks up to `end`; each set is written before it is read.
    unsafe {
        let x = args.x.cast::<X256>().add(first);
        for i in 0..full {
            prepare::<FORMAT, MOST>(x.add(i * MOST), sets[i].as_mut_ptr());
        }
        let x_left = x.add(full * MOST);
        let mut two = MaybeUninit::<ActivationSuperblocks>::uninit();
        if left & 2 > 0 {
            prepare::<FORMAT, 2>(x_left, two.as_mut_ptr());
        }
        if left & 1 > 0 {
            prepare::<FORMAT, 1>(x_left.add(left & 2), sets[full].as_mut_ptr());
        }
        let block_bytes = const { dtype(FORMAT).block_bytes() };
        each_four_rows::<SECOND>(args, first == 0, |rows, mut acc| {
            let mut at = rows.map(|row| row.add(first * block_bytes));
            let mut x = x;
            for i in 0..full {
                acc = some::<FORMAT, MOST, SECOND>(at, x, sets[i].as_ptr(), acc);
                at = at.map(|at| at.add(MOST * block_bytes));
                x = x.add(MOST);
            }
            if left & 2 > 0 {
                acc = some::<FORMAT, 2, SECOND>(at, x, two.as_ptr(), acc);
                at = at.map(|at| at.add(2 * block_bytes));
                x = x.add(2);
            }
            if left & 1 > 0 {
                acc = some::<FORMAT, 1, SECOND>(at, x, sets[full].as_ptr(), acc);
            }
            acc
        });
    }
}

/// Puts the activations of `N` superblocks in order.
///
/// # Safety
/// There are as many records; `set` may be written.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn prepare<const FORMAT: u8, const N: usize>(
    x: *const X256,
    set: *mut ActivationSuperblocks,
) {
    // SAFETY: forwarded; fields are written through pointers, the set as a whole is not there yet.
    unsafe {
        let d: [f32; 4] = std::array::from_fn(|i| if i < N { (*x.add(i)).d } else { 0.0 });
        let d = spread(d.map(|d| d.to_bits().cast_signed()));
        (&raw mut (*set).d).write(_mm512_castsi512_ps(d));
        if FORMAT == Q6_K {
            for i in 0..N {
                (&raw mut (*set).offsets[i]).write(offsets_16(&*x.add(i)));
            }
            return;
        }
        let sums = lanes::<N>((&raw const (*x).sums_32).cast(), size_of::<X256>());
        (&raw mut (*set).sums).write(sums);
        for i in 0..N {
            order_for_nibbles(&*x.add(i), (&raw mut (*set).q[i]).cast());
        }
    }
}

/// Adds the products of `N` superblocks of four rows to their sums.
///
/// # Safety
/// At each address and at `x` are `N` superblocks or records; `set` was prepared for them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn some<const FORMAT: u8, const N: usize, const SECOND: bool>(
    at: [*const u8; STREAMS],
    x: *const X256,
    set: *const ActivationSuperblocks,
    acc: __m128,
) -> __m128 {
    // SAFETY: forwarded.
    unsafe {
        if matches!(FORMAT, Q4_K | Q5_K) {
            with_minimums::<FORMAT, N, SECOND>(at, set, acc)
        } else {
            six_bits::<N, SECOND>(at, x, set, acc)
        }
    }
}

/// Q4_K and Q5_K.
///
/// # Safety
/// As [`some`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn with_minimums<const FORMAT: u8, const N: usize, const SECOND: bool>(
    at: [*const u8; STREAMS],
    set: *const ActivationSuperblocks,
    mut acc: __m128,
) -> __m128 {
    let block_bytes = const { dtype(FORMAT).block_bytes() };
    // SAFETY: forwarded.
    let (d_x, row) = unsafe {
        let row = |at: *const u8| {
            let header = lanes::<N>(at, block_bytes);
            let scales = six_bit_scales(header);
            let high = _mm512_unpackhi_epi8(scales, _mm512_setzero_si512());
            let low = in_all_lanes(scales);
            Fetch::<SECOND>::after(at, N * block_bytes);
            let sum = |i: usize| {
                let block = at.add(i * block_bytes);
                nibble_products::<FORMAT>(block, low[i], &(*set).q[i])
            };
            let sum = add_lanes(each_of::<N>(sum));
            [sum, _mm512_madd_epi16(high, (*set).sums), header]
        };
        ((*set).d, row)
    };
    // Written out as in `each_of`.
    let rows = [row(at[0]), row(at[1]), row(at[2]), row(at[3])];
    // A lane is a superblock, each of its elements a row.
    let sums = _mm512_cvtepi32_ps(add_elements(rows.map(|row| row[0])));
    let minimums = _mm512_cvtepi32_ps(add_elements(rows.map(|row| row[1])));
    let headers = first_elements(rows.map(|row| row[2]));
    let d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(headers));
    let d_min = _mm512_srli_epi32::<16>(headers);
    let d_min = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(d_min));
    let d_min = _mm512_sub_ps(_mm512_set1_ps(-0.0), d_min);
    let (d, d_min) = (_mm512_mul_ps(d, d_x), _mm512_mul_ps(d_min, d_x));
    let [sums, minimums, d, d_min] = [sums, minimums, d, d_min].map(|v| quarters_of(v));
    for i in 0..N {
        acc = _mm_fmadd_ps(sums[i], d[i], acc);
        acc = _mm_fmadd_ps(minimums[i], d_min[i], acc);
    }
    acc
}

/// Q6_K.
///
/// # Safety
/// As [`some`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn six_bits<const N: usize, const SECOND: bool>(
    at: [*const u8; STREAMS],
    x: *const X256,
    set: *const ActivationSuperblocks,
    mut acc: __m128,
) -> __m128 {
    let block_bytes = const { dtype(Q6_K).block_bytes() };
    // SAFETY: forwarded.
    let (d_x, row) = unsafe {
        let row = |at: *const u8| {
            Fetch::<SECOND>::after(at, N * block_bytes);
            let sum =
                |i: usize| six_bit_products(at.add(i * block_bytes), &*x.add(i), (*set).offsets[i]);
            add_lanes(each_of::<N>(sum))
        };
        ((*set).d, row)
    };
    // Written out as in `each_of`.
    let rows = [row(at[0]), row(at[1]), row(at[2]), row(at[3])];
    // SAFETY: forwarded; the scale of a superblock is its last field.
    let d = unsafe {
        let d = |i: usize| {
            let i = i.min(N - 1) * block_bytes + 208;
            at.map(|at| at.add(i).cast::<i16>().read_unaligned())
        };
        let ([a, b, c, e], [f, g, h, j]) = (d(0), d(1));
        let ([k, l, m, n], [o, p, q, r]) = (d(2), d(3));
        _mm512_cvtph_ps(_mm256_setr_epi16(
            a, b, c, e, f, g, h, j, k, l, m, n, o, p, q, r,
        ))
    };
    let sums = _mm512_cvtepi32_ps(add_elements(rows));
    let [sums, d] = [sums, _mm512_mul_ps(d, d_x)].map(|v| quarters_of(v));
    for i in 0..N {
        acc = _mm_fmadd_ps(sums[i], d[i], acc);
    }
    acc
}

/// The first `N` of four vectors; the others are zero. Written out, since the compiler keeps a loop over them as a loop, with its
/// vectors in memory.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn each_of<const N: usize>(of: impl Fn(usize) -> __m512i) -> [__m512i; 4] {
    let mut all = [_mm512_setzero_si512(); 4];
    all[0] = of(0);
    if N > 1 {
        all[1] = of(1);
    }
    if N > 2 {
        all[2] = of(2);
        all[3] = of(3);
    }
    all
}

/// Scaled products of a row's superblock, to be added up over all lanes. `scales`: the superblock's eight bytes in every 128-bit lane.
///
/// Sums of four products fit 16 bits: 4 · 31 · 127.
///
/// # Safety
/// `block` is a superblock.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn nibble_products<const FORMAT: u8>(
    block: *const u8,
    scales: __m512i,
    x: &[[u8; LINE_BYTES]; 4],
) -> __m512i {
    let mask = _mm512_set1_epi8(0x0F);
    let mut sum = _mm512_setzero_si512();
    // SAFETY: fields are where ggml's `block_*` structures have them.
    unsafe {
        let (nibbles, fifth) = if FORMAT == Q4_K {
            (block.add(16), _mm512_setzero_si512())
        } else {
            let fifth = _mm256_loadu_si256(block.add(16).cast());
            (block.add(48), _mm512_broadcast_i64x4(fifth))
        };
        for half in 0..2 {
            let v = _mm512_loadu_si512(nibbles.add(LINE_BYTES * half).cast());
            let mut parts = [v, _mm512_srli_epi16::<4>(v)].map(|v| _mm512_and_si512(v, mask));
            for (odd, part) in parts.iter_mut().enumerate() {
                // The groups of 32 columns in the lower and upper half of the vector.
                let (group, other) = (4 * half + odd, 4 * half + odd + 2);
                if FORMAT == Q5_K {
                    let bit = _mm512_rolv_epi32(fifth, halves(4 - group as i32, 4 - other as i32));
                    let bit = _mm512_and_si512(bit, _mm512_set1_epi8(0x10));
                    *part = _mm512_or_si512(*part, bit);
                }
                let x = _mm512_load_si512(x[2 * half + odd].as_ptr().cast());
                *part = _mm512_dpbusd_epi32(_mm512_setzero_si512(), *part, x);
            }
            // In each lane, four sums of an even group and four of the odd group after it.
            let sums = _mm512_packs_epi32(parts[0], parts[1]);
            sum = add_word_products(sum, sums, _mm512_shuffle_epi8(scales, pairs_of(4 * half)));
        }
    }
    sum
}

/// For a byte shuffle: in the lower half, four times the words of scale `first` and of the next one; in the upper half, of the two
/// after those.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn pairs_of(first: usize) -> __m512i {
    // An index above 0x7F gives a zero byte.
    let word = |scale: usize| ((0x8000 | scale as u64) * 0x0001_0001_0001_0001).cast_signed();
    let (a, b, c, d) = (
        word(first),
        word(first + 1),
        word(first + 2),
        word(first + 3),
    );
    _mm512_setr_epi64(a, b, a, b, c, d, c, d)
}

/// Adds the products of the words of `a` and `b`, two to an element.
///
/// It is the instruction itself: the compiler would split the intrinsic into a multiplication and an addition, and leave two instructions.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn add_word_products(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
    let mut out = sum;
    // SAFETY: the level has the instruction; it touches only its registers.
    unsafe {
        asm!(
            "vpdpwssd {out}, {a}, {b}",
            out = inout(zmm_reg) out,
            a = in(zmm_reg) a,
            b = in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    out
}

/// The contribution of the elements' offset: −16 · Σ q over each 16 columns, twice, which fits 16 bits: 16 · 16 · 127.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn offsets_16(x: &X256) -> __m512i {
    // SAFETY: sixteen words.
    let sums = unsafe { _mm256_loadu_si256(x.sums_16.as_ptr().cast()) };
    let offsets = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16::<4>(sums));
    _mm512_broadcast_i64x4(offsets)
}

/// As [`nibble_products`] of Q6_K. Sums of four products: 4 · 63 · 127.
///
/// # Safety
/// `block` is a superblock.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn six_bit_products(block: *const u8, x: &X256, offsets: __m512i) -> __m512i {
    let mask = _mm512_set1_epi8(0x0F);
    let upper = _mm512_set1_epi8(0x30);
    // SAFETY: fields are where ggml's `block_q6_K` has them.
    unsafe {
        let scales = _mm_loadu_si128(block.add(192).cast());
        let scales = _mm512_cvtepi8_epi16(_mm256_broadcastsi128_si256(scales));
        let mut sum = add_word_products(_mm512_setzero_si512(), scales, offsets);
        for half in 0..2 {
            let low = _mm512_loadu_si512(block.add(64 * half).cast());
            let high = _mm256_loadu_si256(block.add(128 + 32 * half).cast());
            let high = _mm512_broadcast_i64x4(high);
            let parts = [
                (low, _mm512_sllv_epi32(high, halves(4, 2))),
                (
                    _mm512_srli_epi16::<4>(low),
                    _mm512_srlv_epi32(high, halves(0, 2)),
                ),
            ];
            let mut sums = [_mm512_setzero_si512(); 2];
            for (i, (low, high)) in parts.into_iter().enumerate() {
                let v = _mm512_or_si512(_mm512_and_si512(low, mask), _mm512_and_si512(high, upper));
                let x = _mm512_loadu_si512(x.q.as_ptr().add(64 * (2 * half + i)).cast());
                sums[i] = _mm512_dpbusd_epi32(sums[i], v, x);
            }
            // In each lane, the scale of its 16 columns four times, and that of the 16 columns one vector later.
            let first = |lane: i32| 8 * half as i32 + lane;
            let order = |from: i32| i64::from(first(from)) * 0x0001_0001_0001_0001;
            let order = _mm512_setr_epi64(
                order(0),
                order(4),
                order(1),
                order(5),
                order(2),
                order(6),
                order(3),
                order(7),
            );
            let scale = _mm512_permutexvar_epi16(order, scales);
            sum = add_word_products(sum, _mm512_packs_epi32(sums[0], sums[1]), scale);
        }
        sum
    }
}

/// Stores a superblock's activations in the order of nibbles: groups of 32 columns 0 and 2, 1 and 3, 4 and 6, 5 and 7.
///
/// # Safety
/// Four lines may be written.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn order_for_nibbles(x: &X256, to: *mut [u8; LINE_BYTES]) {
    for half in 0..2 {
        // SAFETY: within the record and the four lines.
        unsafe {
            let q = x.q.as_ptr().add(128 * half);
            let a = _mm512_loadu_si512(q.cast());
            let b = _mm512_loadu_si512(q.add(64).cast());
            let even = _mm512_shuffle_i32x4::<0b01_00_01_00>(a, b);
            let odd = _mm512_shuffle_i32x4::<0b11_10_11_10>(a, b);
            _mm512_store_si512(to.add(2 * half).cast(), even);
            _mm512_store_si512(to.add(2 * half + 1).cast(), odd);
        }
    }
}

/// Scales and minimums of Q4_K and Q5_K from headers, one a lane: eight bytes of scales, eight of minimums. See
/// [`super::superblock_lines`] for their bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn six_bit_scales(header: __m512i) -> __m512i {
    let elements = |a, b, c, d| _mm512_broadcast_i32x4(_mm_setr_epi32(a, b, c, d));
    let low = _mm512_shuffle_epi32::<0b11_10_11_01>(header);
    let low = _mm512_srlv_epi32(low, elements(0, 0, 0, 4));
    let (six, four) = (0x3F3F_3F3F, 0x0F0F_0F0F);
    let low = _mm512_and_si512(low, elements(six, four, six, four));
    let high = _mm512_srli_epi32::<2>(_mm512_shuffle_epi32::<0b10_10_01_01>(header));
    let top = 0x3030_3030;
    _mm512_or_si512(low, _mm512_and_si512(high, elements(0, top, 0, top)))
}

/// Lane `i` in all lanes of vector `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn in_all_lanes(v: __m512i) -> [__m512i; 4] {
    [
        _mm512_shuffle_i32x4::<0b00_00_00_00>(v, v),
        _mm512_shuffle_i32x4::<0b01_01_01_01>(v, v),
        _mm512_shuffle_i32x4::<0b10_10_10_10>(v, v),
        _mm512_shuffle_i32x4::<0b11_11_11_11>(v, v),
    ]
}

/// A 32-bit number for the lower and one for the upper half.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn halves(low: i32, high: i32) -> __m512i {
    quarters(|lane| if lane < 2 { low } else { high })
}

/// A 32-bit number for each 128-bit lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn quarters(of_lane: impl Fn(i32) -> i32) -> __m512i {
    spread([of_lane(0), of_lane(1), of_lane(2), of_lane(3)])
}

/// Lane `i` of the result is the sum of the lanes of vector `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn add_lanes([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let even_and_odd = |a, b| {
        let even = _mm512_shuffle_i32x4::<0b10_00_10_00>(a, b);
        _mm512_add_epi32(even, _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b))
    };
    even_and_odd(even_and_odd(a, b), even_and_odd(c, d))
}

/// In each lane, element `i` of the result is the first element of vector `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn first_elements([a, b, c, d]: [__m512i; 4]) -> __m512i {
    _mm512_unpacklo_epi64(_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d))
}
