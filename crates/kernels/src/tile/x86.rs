//! x86-64 leaves.

mod fused;

use super::{
    BLOCK, BLOCK_ELEMENTS, MatmulShape, matmul_bf16_reference, matmul_bt_bf16_reference, portable,
};
use half::bf16;
use std::arch::x86_64::*;
use std::cell::RefCell;
use std::sync::OnceLock;
use std::time::Instant;

/// # Safety
/// The CPU must have AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn matmul_tame_avx2(shape: MatmulShape, a: &[bf16], b: &[bf16], c: &mut [f32]) {
    portable::matmul_tame::<true>(shape, a, b, c);
}

/// # Safety
/// The CPU must have AVX-512 F, BW, DQ and VL, and BF16 where `has_pairs`; the slices have the
/// lengths of the shape. With `BT`, `b` is B's transpose, here and below.
pub(super) unsafe fn matmul_avx512<const BT: bool>(
    has_pairs: bool,
    shape: MatmulShape,
    a: &[bf16],
    b: &[bf16],
    c: &mut [f32],
) {
    let pairs = has_pairs && dot_pairs_follow_the_rule();
    // SAFETY: forwarded.
    unsafe {
        if !(pairs && dot_pairs_are_faster()) && are_tame(a, b) {
            fused::matmul::<BT>(shape, a, b, c);
        } else if pairs {
            matmul_pairs::<BT>(shape, a, b, c);
        } else if BT {
            matmul_bt_bf16_reference(shape, a, b, c);
        } else {
            matmul_bf16_reference(shape, a, b, c);
        }
    }
}

/// [`portable::are_tame`].
///
/// # Safety
/// The CPU must have AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn are_tame(a: &[bf16], b: &[bf16]) -> bool {
    portable::are_tame(a, b)
}

/// Whether the dot product of pairs beats fused multiply-adds of f32 on this processor, tried once:
/// some issue it at a quarter of the rate. The CPU must have AVX512-BF16. Both give the same bits.
fn dot_pairs_are_faster() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let shape = MatmulShape {
            m: 64,
            n: 64,
            k: 64,
        };
        let ones = vec![bf16::ONE; 64 * 64];
        let mut c = vec![0.0; 64 * 64];
        let mut least = |f: &mut dyn FnMut(&mut [f32])| {
            let mut once = || {
                let start = Instant::now();
                f(&mut c);
                start.elapsed()
            };
            (0..12).map(|_| once()).min().unwrap_or_default()
        };
        // SAFETY: the caller's CPU has both; the lengths are the shape's.
        let pairs = least(&mut |c| unsafe { matmul_pairs::<false>(shape, &ones, &ones, c) });
        // SAFETY: as above.
        let fused = least(&mut |c| unsafe {
            if are_tame(&ones, &ones) {
                fused::matmul::<false>(shape, &ones, &ones, c);
            }
        });
        pairs < fused
    })
}

/// # Safety
/// The CPU must have AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn matvec_avx2(w: &[bf16], x: &[bf16], y: &mut [f32]) {
    portable::matvec(w, x, y);
}

/// # Safety
/// The CPU must have AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn matvec_avx512(w: &[bf16], x: &[bf16], y: &mut [f32]) {
    portable::matvec(w, x, y);
}

/// A register of sixteen bf16 pairs: pair (k, k + 1) of sixteen columns.
type PairRegister = __m512i;

thread_local! {
    /// B of a group of columns, in pairs.
    static PANEL: RefCell<Vec<PairRegister>> = const { RefCell::new(Vec::new()) };
}

/// Blocks of columns of a register tile: two registers of sixteen columns.
const GROUP: usize = 4;

/// `C += A · B` by dot products of pairs.
///
/// # Safety
/// The CPU must have AVX-512 F, BW, VL and BF16, and the slices the lengths of the shape.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn matmul_pairs<const BT: bool>(
    shape: MatmulShape,
    a: &[bf16],
    b: &[bf16],
    c: &mut [f32],
) {
    PANEL.with_borrow_mut(|panel| {
        let col_blocks = shape.n / BLOCK;
        for first in (0..col_blocks).step_by(GROUP) {
            let n_blocks = GROUP.min(col_blocks - first);
            // SAFETY: forwarded; blocks `first .. first + n_blocks` exist.
            unsafe {
                match n_blocks {
                    4 => group::<BT, 2, 4>(shape, first, a, b, c, panel),
                    3 => group::<BT, 2, 3>(shape, first, a, b, c, panel),
                    2 => group::<BT, 1, 2>(shape, first, a, b, c, panel),
                    _ => group::<BT, 1, 1>(shape, first, a, b, c, panel),
                }
            }
        }
    });
}

/// `N` column blocks from `first`, in `R` registers.
///
/// # Safety
/// As [`matmul_pairs`], and the column blocks exist.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn group<const BT: bool, const R: usize, const N: usize>(
    shape: MatmulShape,
    first: usize,
    a: &[bf16],
    b: &[bf16],
    c: &mut [f32],
    panel: &mut Vec<PairRegister>,
) {
    let (row_blocks, k_blocks) = (shape.m / BLOCK, shape.k / BLOCK);
    panel.resize(k_blocks * BLOCK / 2 * R, _mm512_setzero_si512());
    // SAFETY: block `(first + block) · k_blocks + i` of B exists, C has a block for every block of
    // rows and columns, A for every block of `k` and rows; the panel has just been given `R` lines
    // for every pair.
    unsafe {
        if BT {
            pack_transposed::<R, N>(first, [k_blocks, shape.n / BLOCK], b, panel);
        } else {
            pack::<R, N>(first, k_blocks, b, panel);
        }
        for row_block in 0..row_blocks {
            let a = a.as_ptr().add(row_block * BLOCK_ELEMENTS);
            let c: [*mut f32; N] = std::array::from_fn(|block| {
                c.as_mut_ptr()
                    .add(((first + block) * row_blocks + row_block) * BLOCK_ELEMENTS)
            });
            tile::<R, N>(k_blocks, a, row_blocks * BLOCK_ELEMENTS, panel, c);
        }
    }
}

/// Interleaves the rows of B in pairs: `R` lines for every pair, eight columns in each half.
///
/// # Safety
/// B has the blocks, the panel the lines.
#[target_feature(enable = "avx512f,avx512vl")]
unsafe fn pack<const R: usize, const N: usize>(
    first: usize,
    k_blocks: usize,
    b: &[bf16],
    panel: &mut [PairRegister],
) {
    for block in 0..2 * R {
        for i in 0..k_blocks {
            for pair in 0..BLOCK / 2 {
                // SAFETY: a block of B has four pairs of rows of eight elements; a line has two
                // halves of 32 bytes.
                unsafe {
                    let line = panel.as_mut_ptr().add((i * 4 + pair) * R + block / 2);
                    let to = line.cast::<__m128i>().add(block % 2 * 2);
                    let (low, high) = if block < N {
                        let rows = b
                            .as_ptr()
                            .add(((first + block) * k_blocks + i) * BLOCK_ELEMENTS)
                            .cast::<__m128i>()
                            .add(pair * 2);
                        let (even, odd) = (_mm_loadu_si128(rows), _mm_loadu_si128(rows.add(1)));
                        (_mm_unpacklo_epi16(even, odd), _mm_unpackhi_epi16(even, odd))
                    } else {
                        (_mm_setzero_si128(), _mm_setzero_si128())
                    };
                    _mm_store_si128(to, low);
                    _mm_store_si128(to.add(1), high);
                }
            }
        }
    }
}

/// [`pack`] from blocks of eight columns of eight `k`: a pair is 32 bits.
///
/// # Safety
/// As [`pack`].
#[target_feature(enable = "avx512f,avx512vl")]
unsafe fn pack_transposed<const R: usize, const N: usize>(
    first: usize,
    [k_blocks, col_blocks]: [usize; 2],
    b: &[bf16],
    panel: &mut [PairRegister],
) {
    // Pairs 0 and 1, then 2 and 3, of eight columns with four pairs each.
    let early = _mm512_set_epi32(29, 25, 21, 17, 13, 9, 5, 1, 28, 24, 20, 16, 12, 8, 4, 0);
    let late = _mm512_add_epi32(early, _mm512_set1_epi32(2));
    for i in 0..k_blocks {
        for r in 0..R {
            let pairs = |block: usize| {
                if block >= N {
                    return [_mm512_setzero_si512(); 2];
                }
                // SAFETY: the block exists; it has two registers of elements.
                unsafe {
                    let at = b
                        .as_ptr()
                        .add((i * col_blocks + first + block) * BLOCK_ELEMENTS);
                    let low = _mm512_loadu_si512(at.cast());
                    let high = _mm512_loadu_si512(at.add(BLOCK_ELEMENTS / 2).cast());
                    [early, late].map(|pairs| _mm512_permutex2var_epi32(low, pairs, high))
                }
            };
            let (low, high) = (pairs(2 * r), pairs(2 * r + 1));
            for (half, (low, high)) in low.into_iter().zip(high).enumerate() {
                // SAFETY: the panel has `R` lines for every pair.
                unsafe {
                    let line = panel.as_mut_ptr().add((i * 4 + half * 2) * R + r);
                    *line = _mm512_shuffle_i64x2::<0b0100_0100>(low, high);
                    *line.add(R) = _mm512_shuffle_i64x2::<0b1110_1110>(low, high);
                }
            }
        }
    }
}

/// Eight rows of C, `N` blocks of columns.
///
/// # Safety
/// `a` is a block of A, followed by `k_blocks − 1` more every `a_step` elements; `c` are blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn tile<const R: usize, const N: usize>(
    k_blocks: usize,
    a: *const bf16,
    a_step: usize,
    panel: &[PairRegister],
    c: [*mut f32; N],
) {
    let mut sums = [[_mm512_setzero_ps(); R]; BLOCK];
    // SAFETY: a block of C has eight rows of eight; of A eight rows of four pairs.
    unsafe {
        for (row, sums) in sums.iter_mut().enumerate() {
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = load_row::<N>(&c, r, row);
            }
        }
        let mut lines = panel.as_ptr();
        for i in 0..k_blocks {
            let a = a.add(i * a_step).cast::<i32>();
            for pair in 0..BLOCK / 2 {
                let b: [__m512i; R] = std::array::from_fn(|r| *lines.add(r));
                lines = lines.add(R);
                for (row, sums) in sums.iter_mut().enumerate() {
                    let a = _mm512_set1_epi32(a.add(row * BLOCK / 2 + pair).read_unaligned());
                    for (sum, b) in sums.iter_mut().zip(b) {
                        *sum = dot_pairs(*sum, a, b);
                    }
                }
            }
        }
        make_canonical(&mut sums);
        for (row, sums) in sums.iter().enumerate() {
            for (r, &sum) in sums.iter().enumerate() {
                store_row::<N>(&c, r, row, sum);
            }
        }
    }
}

/// Row `row` of blocks `2r` and, if there is one, `2r + 1` of C.
///
/// # Safety
/// `c` are blocks of C, and block `2r` exists.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn load_row<const N: usize>(c: &[*mut f32; N], r: usize, row: usize) -> __m512 {
    // SAFETY: a block has eight rows of eight elements.
    unsafe {
        let low = _mm512_castps256_ps512(_mm256_loadu_ps(c[2 * r].add(row * BLOCK)));
        match c.get(2 * r + 1) {
            Some(c) => _mm512_insertf32x8::<1>(low, _mm256_loadu_ps(c.add(row * BLOCK))),
            None => _mm512_insertf32x8::<1>(low, _mm256_setzero_ps()),
        }
    }
}

/// Writes the row that [`load_row`] read.
///
/// # Safety
/// As [`load_row`].
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn store_row<const N: usize>(c: &[*mut f32; N], r: usize, row: usize, sums: __m512) {
    // SAFETY: a block has eight rows of eight elements.
    unsafe {
        _mm256_storeu_ps(c[2 * r].add(row * BLOCK), _mm512_castps512_ps256(sums));
        if let Some(c) = c.get(2 * r + 1) {
            _mm256_storeu_ps(c.add(row * BLOCK), _mm512_extractf32x8_ps::<1>(sums));
        }
    }
}

/// Every not-a-number as the canonical one.
#[inline]
#[target_feature(enable = "avx512f")]
fn make_canonical<const R: usize>(sums: &mut [[__m512; R]; BLOCK]) {
    let mut any = 0;
    for pair in sums.chunks_exact(2) {
        for (&a, &b) in pair[0].iter().zip(&pair[1]) {
            any |= _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, b);
        }
    }
    if any != 0 {
        for sum in sums.as_flattened_mut() {
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(*sum, *sum);
            *sum = _mm512_mask_mov_ps(*sum, nan, _mm512_set1_ps(f32::NAN));
        }
    }
}

/// `sum` plus the products of two bf16 pairs a lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn dot_pairs(sum: __m512, a: __m512i, b: __m512i) -> __m512 {
    // SAFETY: both types are 512 bits without invalid values.
    let as_pairs = |v: __m512i| unsafe { std::mem::transmute::<__m512i, __m512bh>(v) };
    _mm512_dpbf16_ps(sum, as_pairs(a), as_pairs(b))
}

/// Whether this processor's dot product follows the rule, tried once on numbers of all kinds. The
/// CPU must have AVX512-BF16, or the answer is no.
pub(super) fn dot_pairs_follow_the_rule() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        if !(is_x86_feature_detected!("avx512bf16")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl"))
        {
            return false;
        }
        (0..16).all(|round| {
            let (shape, a, b, c) = probe(round);
            let (mut found, mut expected) = (c.clone(), c);
            // SAFETY: the features have been detected; the lengths are the shape's.
            unsafe { matmul_pairs::<false>(shape, &a, &b, &mut found) };
            matmul_bf16_reference(shape, &a, &b, &mut expected);
            found
                .iter()
                .zip(&expected)
                .all(|(a, b)| a.to_bits() == b.to_bits())
        })
    })
}

/// Operands around one magnitude, the lowest subnormal ones: bits from a multiplicative generator.
pub(super) fn probe(round: u32) -> (MatmulShape, Vec<bf16>, Vec<bf16>, Vec<f32>) {
    let shape = MatmulShape { m: 32, n: 32, k: 8 };
    let mut state = u64::from(round) * 2 + 1;
    let mut bits = move || {
        state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ 0x5851_f42d_4c95_7f2d;
        (state >> 24) as u32
    };
    // Exponents within 8 of a middle: sums then cancel, round and reach the subnormal numbers.
    let middles = [
        0_u32, 1, 8, 40, 56, 60, 63, 64, 66, 72, 100, 120, 127, 180, 190, 250,
    ];
    let middle = middles[round as usize % middles.len()];
    let mut number = |middle: u32, spread: u32| {
        let exponent = (middle + bits() % spread).min(254);
        (bits() & 0x807f_ffff) | exponent << 23
    };
    let mut narrow = |n: usize| -> Vec<bf16> {
        (0..n)
            .map(|_| bf16::from_bits((number(middle, 9) >> 16) as u16))
            .collect()
    };
    let (a, b) = (narrow(32 * 8), narrow(32 * 8));
    // A product's exponent field is about the sum of its factors' less the bias.
    let c_middle = (2 * middle).saturating_sub(127);
    let c = (0..32 * 32)
        .map(|_| f32::from_bits(number(c_middle, 20)))
        .collect();
    (shape, a, b, c)
}
