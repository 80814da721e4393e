//! Blocked product by fused multiply-adds of f32, for data where that changes no bit.

use super::GROUP;
use crate::tile::portable::{self, LEAST};
use crate::tile::{BLOCK, BLOCK_ELEMENTS, MatmulShape, fused};
use half::bf16;
use std::arch::x86_64::*;
use std::cell::RefCell;

thread_local! {
    /// A as f32 in its own layout, then B of a group of columns, a row of k after the other.
    static SCRATCH: RefCell<(Vec<__m512>, Vec<__m512>)> = const {
        RefCell::new((Vec::new(), Vec::new()))
    };
}

/// `C += A · B` of tame A and B. Tiles where C is not tame are done one element at a time.
///
/// # Safety
/// The CPU must have AVX-512 F, BW, DQ and VL, and the slices the lengths of the shape.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn matmul<const BT: bool>(
    shape: MatmulShape,
    a: &[bf16],
    b: &[bf16],
    c: &mut [f32],
) {
    SCRATCH.with_borrow_mut(|(wide_a, panel)| {
        wide_a.clear();
        wide_a.extend(a.as_chunks::<16>().0.iter().map(|a| {
            // SAFETY: a chunk has sixteen elements.
            unsafe { widen(_mm256_loadu_si256(a.as_ptr().cast())) }
        }));
        let col_blocks = shape.n / BLOCK;
        for first in (0..col_blocks).step_by(GROUP) {
            // SAFETY: forwarded; the column blocks exist, A has been widened.
            unsafe {
                match col_blocks - first {
                    1 => group::<BT, 1, 1>(shape, first, wide_a, b, c, panel),
                    2 => group::<BT, 1, 2>(shape, first, wide_a, b, c, panel),
                    3 => group::<BT, 2, 3>(shape, first, wide_a, b, c, panel),
                    _ => group::<BT, 2, 4>(shape, first, wide_a, b, c, panel),
                }
            }
        }
    });
}

/// Sixteen bf16 as f32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn widen(x: __m256i) -> __m512 {
    // One instruction: element `i` into the upper half of lane `i`.
    let upper = _mm512_set_epi32(
        15 << 16,
        14 << 16,
        13 << 16,
        12 << 16,
        11 << 16,
        10 << 16,
        9 << 16,
        8 << 16,
        7 << 16,
        6 << 16,
        5 << 16,
        4 << 16,
        3 << 16,
        2 << 16,
        1 << 16,
        0,
    );
    let x = _mm512_castsi256_si512(x);
    _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaa_aaaa, upper, x))
}

/// `N` column blocks from `first`, in `R` registers.
///
/// # Safety
/// As [`matmul`], and the column blocks exist; `a` is all of A.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn group<const BT: bool, const R: usize, const N: usize>(
    shape: MatmulShape,
    first: usize,
    a: &[__m512],
    b: &[bf16],
    c: &mut [f32],
    panel: &mut Vec<__m512>,
) {
    let (row_blocks, k_blocks) = (shape.m / BLOCK, shape.k / BLOCK);
    // SAFETY: every column block of B has `k` rows of eight elements; C has a block for every block
    // of rows and columns, A for every block of `k` and rows.
    unsafe {
        panel.resize(shape.k * R, _mm512_setzero_ps());
        if BT {
            unpack_transposed::<R, N>(shape, first, b, panel);
        } else {
            unpack::<R, N>(shape, first, b, panel);
        }
        for row_block in 0..row_blocks {
            let a = a.as_ptr().cast::<f32>().add(row_block * BLOCK_ELEMENTS);
            let c: [*mut f32; N] = std::array::from_fn(|block| {
                c.as_mut_ptr()
                    .add(((first + block) * row_blocks + row_block) * BLOCK_ELEMENTS)
            });
            if row_block + 1 < row_blocks {
                for c in c {
                    for row in (0..BLOCK).step_by(2) {
                        _mm_prefetch::<_MM_HINT_T0>(c.add(BLOCK_ELEMENTS + row * BLOCK).cast());
                    }
                }
            }
            tile::<R, N>(k_blocks, a, row_blocks * BLOCK_ELEMENTS, panel, c);
        }
    }
}

/// Rows of `k` of `N` column blocks as f32.
///
/// # Safety
/// The column blocks exist, the panel has `R` registers for every `k`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn unpack<const R: usize, const N: usize>(
    shape: MatmulShape,
    first: usize,
    b: &[bf16],
    panel: &mut [__m512],
) {
    // SAFETY: a column block has `k` rows of eight elements.
    unsafe {
        let block: [*const bf16; N] =
            std::array::from_fn(|block| b.as_ptr().add((first + block) * shape.k * BLOCK));
        for i in 0..shape.k {
            for r in 0..R {
                let low = _mm_loadu_si128(block[2 * r].add(i * BLOCK).cast());
                let high = match block.get(2 * r + 1) {
                    Some(block) => _mm_loadu_si128(block.add(i * BLOCK).cast()),
                    None => _mm_setzero_si128(),
                };
                *panel.get_unchecked_mut(i * R + r) = widen(_mm256_set_m128i(high, low));
            }
        }
    }
}

/// Elements of a transposed block, rows of `k` 0 to 3 and 4 to 7, in the order that
/// [`unpack_transposed`] needs: pairs of rows, of each pair half the columns, then the others.
const TRANSPOSED: [[u16; BLOCK_ELEMENTS / 2]; 2] = {
    let mut order = [[0; BLOCK_ELEMENTS / 2]; 2];
    let mut at = 0;
    while at < BLOCK_ELEMENTS / 2 {
        let (pair, half, odd, col) = (at / 16, at / 8 % 2, at / 4 % 2, at % 4);
        let from = (half * 4 + col) * BLOCK + pair * 2 + odd;
        order[0][at] = from as u16;
        order[1][at] = from as u16 + 4;
        at += 1;
    }
    order
};

/// [`unpack`] from blocks of eight columns of eight `k`.
///
/// # Safety
/// As [`unpack`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn unpack_transposed<const R: usize, const N: usize>(
    shape: MatmulShape,
    first: usize,
    b: &[bf16],
    panel: &mut [__m512],
) {
    let col_blocks = shape.n / BLOCK;
    let [early, late] = TRANSPOSED.map(|order| {
        // SAFETY: an array of the register's size.
        unsafe { _mm512_loadu_si512(order.as_ptr().cast()) }
    });
    for i in 0..shape.k / BLOCK {
        for r in 0..R {
            let rows = |block: usize| {
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
                    [early, late].map(|rows| _mm512_permutex2var_epi16(low, rows, high))
                }
            };
            let (low, high) = (rows(2 * r), rows(2 * r + 1));
            for (half, (low, high)) in low.into_iter().zip(high).enumerate() {
                let zero = _mm512_setzero_si512();
                let rows = [
                    _mm512_shuffle_i64x2::<0b0100_0100>(low, high),
                    _mm512_shuffle_i64x2::<0b1110_1110>(low, high),
                ];
                for (pair, rows) in rows.into_iter().enumerate() {
                    // An element becomes the upper half of a lane.
                    let (even, odd) = (
                        _mm512_unpacklo_epi16(zero, rows),
                        _mm512_unpackhi_epi16(zero, rows),
                    );
                    let k = i * BLOCK + half * 4 + pair * 2;
                    panel[k * R + r] = _mm512_castsi512_ps(even);
                    panel[(k + 1) * R + r] = _mm512_castsi512_ps(odd);
                }
            }
        }
    }
}

/// Eight rows of C, `N` blocks of columns.
///
/// # Safety
/// `a` is a block of A, followed by `k_blocks − 1` more every `a_step` elements; `c` are blocks;
/// the panel has `R` registers for every `k`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn tile<const R: usize, const N: usize>(
    k_blocks: usize,
    a: *const f32,
    a_step: usize,
    panel: &[__m512],
    c: [*mut f32; N],
) {
    let mut sums = [[_mm512_setzero_ps(); R]; BLOCK];
    // SAFETY: a block has eight rows of eight elements; the panel as promised.
    unsafe {
        for (row, sums) in sums.iter_mut().enumerate() {
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = super::load_row::<N>(&c, r, row);
            }
        }
        if may_have_small(&sums) && has_small(&c) {
            return tile_by_element::<R, N>(k_blocks, a, a_step, panel, c);
        }
        let mut lines = panel.as_ptr();
        for i in 0..k_blocks {
            let a = a.add(i * a_step);
            for step in 0..BLOCK {
                let i = step ^ 1;
                let b: [__m512; R] = std::array::from_fn(|r| *lines.add(i * R + r));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let a = _mm512_set1_ps(*a.add(row * BLOCK + i));
                    for (sum, b) in sums.iter_mut().zip(b) {
                        *sum = _mm512_fmadd_ps(a, b, *sum);
                    }
                }
            }
            lines = lines.add(BLOCK * R);
        }
        let may_have_nan = may_have_nan(&sums);
        // One may have hidden small elements.
        if may_have_nan && has_small(&c) {
            return tile_by_element::<R, N>(k_blocks, a, a_step, panel, c);
        }
        for (row, sums) in sums.iter().enumerate() {
            for (r, &sum) in sums.iter().enumerate() {
                super::store_row::<N>(&c, r, row, sum);
            }
        }
        if may_have_nan {
            make_canonical(&c);
        }
    }
}

/// Whether an element is too small to be tame, or zero. A NaN may hide others.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn may_have_small<const R: usize>(sums: &[[__m512; R]; BLOCK]) -> bool {
    /// The lesser magnitude.
    const LESSER: i32 = 0b1010;
    let (halves, _) = sums.as_flattened().as_chunks::<BLOCK>();
    let mut least = [_mm512_set1_ps(f32::INFINITY); BLOCK / 2];
    for half in halves {
        for (i, &sum) in half.iter().enumerate() {
            least[i % 4] = _mm512_range_ps::<LESSER>(least[i % 4], sum);
        }
    }
    let low = _mm512_range_ps::<LESSER>(least[0], least[1]);
    let high = _mm512_range_ps::<LESSER>(least[2], least[3]);
    let least = _mm512_range_ps::<LESSER>(low, high);
    let bound = _mm512_set1_ps(f32::from_bits(LEAST >> 1));
    _mm512_cmp_ps_mask::<_CMP_NGE_UQ>(least, bound) != 0
}

/// Whether an element may be NaN; infinite ones count too.
#[inline]
#[target_feature(enable = "avx512f")]
fn may_have_nan<const R: usize>(sums: &[[__m512; R]; BLOCK]) -> bool {
    // Zero times a finite number is zero. The sums are independent, without a chain of masks.
    let zero = _mm512_setzero_ps();
    let mut found = [zero; 4];
    for (i, &sum) in sums.as_flattened().iter().enumerate() {
        found[i % 4] = _mm512_fmadd_ps(sum, zero, found[i % 4]);
    }
    let (low, high) = (
        _mm512_add_ps(found[0], found[1]),
        _mm512_add_ps(found[2], found[3]),
    );
    _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(low, high) != 0
}

/// Whether an element of C is nonzero and too small to be tame.
///
/// # Safety
/// `c` are blocks.
#[cold]
#[inline(never)]
unsafe fn has_small(c: &[*mut f32]) -> bool {
    c.iter().any(|c| {
        // SAFETY: a block has that many elements.
        let block = unsafe { std::slice::from_raw_parts(c.cast_const(), BLOCK_ELEMENTS) };
        portable::has_small(block)
    })
}

/// Every not-a-number of C as the canonical one.
///
/// # Safety
/// `c` are blocks.
#[cold]
#[inline(never)]
unsafe fn make_canonical(c: &[*mut f32]) {
    for c in c {
        // SAFETY: a block has that many elements.
        portable::canonical(unsafe { std::slice::from_raw_parts_mut(*c, BLOCK_ELEMENTS) });
    }
}

/// [`tile`] by the rule.
///
/// # Safety
/// As [`tile`].
#[cold]
unsafe fn tile_by_element<const R: usize, const N: usize>(
    k_blocks: usize,
    a: *const f32,
    a_step: usize,
    panel: &[__m512],
    c: [*mut f32; N],
) {
    let panel = panel.as_ptr().cast::<f32>();
    for (block, c) in c.into_iter().enumerate() {
        for at in 0..BLOCK_ELEMENTS {
            let (row, col) = (at / BLOCK, at % BLOCK);
            // SAFETY: blocks have eight rows of eight elements; the panel has `R` registers of
            // two blocks for every `k`.
            unsafe {
                let mut sum = *c.add(at);
                for step in 0..k_blocks * BLOCK {
                    let k = step ^ 1;
                    let a = *a.add(k / BLOCK * a_step + row * BLOCK + k % BLOCK);
                    let b = *panel.add(k * R * 2 * BLOCK + block * BLOCK + col);
                    sum = fused(sum, a, b);
                }
                *c.add(at) = if sum.is_nan() { f32::NAN } else { sum };
            }
        }
    }
}
