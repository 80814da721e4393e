//! The tile over AVX-512's panels of 32-column blocks: a block is half a tile deep, its sums are scaled in vectors.

use super::unit::{
    SUMS_00, SUMS_01, Shapes, TILE_ROWS, TOKENS_0, TOKENS_1, TileUnit, WEIGHTS_0, WEIGHTS_1,
};
use crate::matmul::PanelLayout;
use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, X32, slot};
use std::arch::x86_64::*;

/// Bytes of activations, and columns, of a block.
const BLOCK: usize = 32;

/// Sums of a tile of tokens with a panel.
#[repr(align(64))]
struct PanelSums([[i32; PANEL_ROWS]; TILE_ROWS]);

/// The tile of [`PanelLayout::Block32`].
///
/// # Safety
/// As [`crate::matmul::panel::TileFn`], and the unit is there.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) unsafe fn tile<U: TileUnit>(args: &TileArgs) {
    // SAFETY: forwarded.
    unsafe { tile_all::<U, false>(args) }
}

/// The tile of [`PanelLayout::Block32Min`].
///
/// # Safety
/// As [`tile`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) unsafe fn tile_min<U: TileUnit>(args: &TileArgs) {
    // SAFETY: forwarded.
    unsafe { tile_all::<U, true>(args) }
}

/// # Safety
/// As [`tile`] and [`tile_min`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn tile_all<U: TileUnit, const MIN: bool>(args: &TileArgs) {
    let mut unit = U::new();
    for first in (0..args.m).step_by(TILE_ROWS) {
        let n_tokens = TILE_ROWS.min(args.m - first);
        // SAFETY: forwarded, for tokens below `m`.
        unsafe {
            if first == 0 || n_tokens < TILE_ROWS {
                unit.set_shapes(&Shapes::new(n_tokens, n_tokens, BLOCK));
            }
            for p in 0..args.n_panels {
                panel::<U, MIN>(&mut unit, args, first, n_tokens, p);
            }
        }
    }
    // SAFETY: forwarded.
    unsafe { unit.release() };
}

/// Blocks of one panel in turn: the unit is at one while vectors scale the sums of the one before.
///
/// # Safety
/// As [`tile`], with `n_tokens` tokens from `first`, for which shapes are set, and panel `p`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn panel<U: TileUnit, const MIN: bool>(
    unit: &mut U,
    args: &TileArgs,
    first: usize,
    n_tokens: usize,
    p: usize,
) {
    let n_blocks = args.k / BLOCK;
    let mut sums = [const { PanelSums([[0; PANEL_ROWS]; TILE_ROWS]) }; 2];
    // SAFETY: forwarded; blocks are below `n_blocks`.
    unsafe {
        let x = args.x.add(first * args.x_stride);
        let panel = args.panels.add(p * args.panel_stride);
        let acc = args.acc.add(first * GROUP_ROWS + p * PANEL_ROWS);
        let mut accs: [__m512; TILE_ROWS] =
            std::array::from_fn(|i| _mm512_load_ps(acc.add(slot(i, n_tokens) * GROUP_ROWS)));
        let at = |b: usize| TileBlock {
            unit: panel.add(b * layout::<MIN>().unit_bytes()),
            x: x.add(b * size_of::<X32>()),
            x_stride: args.x_stride,
        };
        if n_blocks > 0 {
            at(0).multiply::<U, MIN, SUMS_00, TOKENS_0, WEIGHTS_0>(unit, &mut sums[0]);
        }
        for b in (0..n_blocks).step_by(2) {
            if b + 1 < n_blocks {
                let next = at(b + 1);
                next.multiply::<U, MIN, SUMS_01, TOKENS_1, WEIGHTS_1>(unit, &mut sums[1]);
            }
            at(b).add::<MIN>(&sums[0], &mut accs, n_tokens);
            if b + 2 < n_blocks {
                let next = at(b + 2);
                next.multiply::<U, MIN, SUMS_00, TOKENS_0, WEIGHTS_0>(unit, &mut sums[0]);
            }
            if b + 1 < n_blocks {
                at(b + 1).add::<MIN>(&sums[1], &mut accs, n_tokens);
            }
        }
        for (i, sum) in accs.into_iter().enumerate().take(n_tokens) {
            _mm512_store_ps(acc.add(i * GROUP_ROWS), sum);
        }
    }
}

const fn layout<const MIN: bool>() -> PanelLayout {
    if MIN {
        PanelLayout::Block32Min
    } else {
        PanelLayout::Block32
    }
}

/// A block of a panel and of the first token.
struct TileBlock {
    unit: *const u8,
    x: *const u8,
    x_stride: usize,
}

impl TileBlock {
    /// # Safety
    /// The block exists, and shapes are set for as many tokens as there are.
    #[inline(always)]
    unsafe fn multiply<
        U: TileUnit,
        const MIN: bool,
        const C: usize,
        const A: usize,
        const B: usize,
    >(
        &self,
        unit: &mut U,
        sums: &mut PanelSums,
    ) {
        const { assert!(std::mem::offset_of!(X32, q) == 0) };
        // SAFETY: forwarded; `sums` has a row for each token.
        unsafe {
            unit.load::<A>(self.x, self.x_stride);
            unit.load::<B>(self.unit, LINE_BYTES);
            unit.zero::<C>();
            unit.dot_signed_unsigned::<C, A, B>();
            unit.store::<C>(sums.0.as_mut_ptr().cast(), LINE_BYTES);
        }
    }

    /// Adds the scaled sums to the accumulators.
    ///
    /// # Safety
    /// The block exists, and `n_tokens` tokens.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn add<const MIN: bool>(
        &self,
        sums: &PanelSums,
        accs: &mut [__m512; TILE_ROWS],
        n_tokens: usize,
    ) {
        // SAFETY: forwarded.
        unsafe {
            let line = |i: usize| _mm512_load_ps(self.unit.add(i * LINE_BYTES).cast());
            let d = line(8);
            for (i, acc) in accs.iter_mut().enumerate() {
                let x = &*self.x.add(slot(i, n_tokens) * self.x_stride).cast::<X32>();
                let mut sum = _mm512_load_si512(sums.0[i].as_ptr().cast());
                if !MIN {
                    sum = _mm512_add_epi32(sum, _mm512_set1_epi32(x.offset_128));
                }
                let scale = _mm512_mul_ps(d, _mm512_set1_ps(x.d));
                *acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, *acc);
                if MIN {
                    *acc = _mm512_fmadd_ps(line(9), _mm512_set1_ps(x.scaled_sum), *acc);
                }
            }
        }
    }
}
