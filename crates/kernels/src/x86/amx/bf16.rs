//! BF16 and F16 weights in tiles of bf16, and the same arithmetic in vectors for a few tokens.
//!
//! Activations are rounded to bf16. An F16 weight is the sum of two bf16 numbers, exactly. They are the upper bits of its significand and
//! the lower ones, each a plane of the panel. (For an infinite weight the lower part is NaN.)

use super::unit::{
    SUMS_00, SUMS_01, SUMS_10, SUMS_11, Shapes, TILE_ROW_BYTES, TILE_ROWS, TOKENS_0, TOKENS_1,
    TileUnit, WEIGHTS_0, WEIGHTS_1,
};
use crate::matmul::PanelLayout;
use crate::matmul::panel::{
    DirectArgs, GROUP_ROWS, LINE_BYTES, PANEL_ROWS, PackArgs, TileArgs, slot,
};
use crate::x86::avx512::float::{BF16, F16, each_vector, widen};
use std::arch::x86_64::*;

/// Pairs of columns in a tile, which are summed before anything is added to the accumulators.
const GROUP_PAIRS: usize = TILE_ROW_BYTES / 4;

macro_rules! functions_of_format {
    ($($pack:ident $tile:ident $direct:ident $format:ident $planes:literal;)*) => {$(
        #[doc = concat!("Packs ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        pub(crate) unsafe fn $pack(args: &PackArgs) {
            // SAFETY: forwarded.
            unsafe { pack::<$format>(args) }
        }

        #[doc = concat!("The tile of ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::TileFn`], and the unit is there.
        pub(crate) unsafe fn $tile<U: TileUnit>(args: &TileArgs) {
            // SAFETY: forwarded.
            unsafe { tile::<U, $planes>(args) }
        }

        #[doc = concat!("Multiplies ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::DirectFn`].
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        pub(crate) unsafe fn $direct(args: &DirectArgs) {
            for first in (0..args.m).step_by(DIRECT_T) {
                let n_tokens = DIRECT_T.min(args.m - first);
                // SAFETY: forwarded, for tokens below `m`.
                unsafe {
                    match n_tokens {
                        1 => direct::<$format, $planes, 1>(args, first, n_tokens),
                        2 => direct::<$format, $planes, 2>(args, first, n_tokens),
                        _ => direct::<$format, $planes, DIRECT_T>(args, first, n_tokens),
                    }
                }
            }
        }
    )*};
}
functions_of_format!(
    bf16 tile_bf16 direct_bf16 BF16 1;
    f16 tile_f16 direct_f16 F16 2;
);

/// Tokens that are multiplied side by side: four sums each of two planes stay in registers.
const DIRECT_T: usize = 4;

/// The upper half of each lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn upper(v: __m512i) -> __m512i {
    _mm512_and_si512(v, _mm512_set1_epi32(0xFFFF_0000_u32.cast_signed()))
}

/// Even and odd columns of a vector of pairs, each in as many parts as there are planes. A part is an f32 whose lower half is zero.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn parts<const FORMAT: u8, const PLANES: usize>(v: __m512i) -> [[__m512i; 2]; PLANES] {
    let columns = widen::<FORMAT>(v);
    std::array::from_fn(|plane| {
        if plane == 0 {
            return columns.map(|v| upper(v));
        }
        columns.map(|v| {
            let high = _mm512_castsi512_ps(upper(v));
            _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(v), high))
        })
    })
}

/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pack<const FORMAT: u8>(args: &PackArgs) {
    const { assert!(PanelLayout::F16Tiles.unit_lines() == 2 * GROUP_PAIRS) };
    // SAFETY: forwarded; vector `i` is pair `i` of the columns, and the panel has lines for each.
    unsafe {
        each_vector(&args.source, 2, |i, v| {
            let line = |i: usize| args.panel.add(i * LINE_BYTES).cast();
            if FORMAT == BF16 {
                return _mm512_store_si512(line(i), v);
            }
            let parts = parts::<FORMAT, 2>(v);
            for (plane, [even, odd]) in parts.into_iter().enumerate() {
                let at = i / GROUP_PAIRS * 2 * GROUP_PAIRS + plane * GROUP_PAIRS + i % GROUP_PAIRS;
                let pair = _mm512_or_si512(_mm512_srli_epi32::<16>(even), odd);
                _mm512_store_si512(line(at), pair);
            }
        });
    }
}

/// # Safety
/// As [`crate::matmul::panel::TileFn`], and the unit is there; the panel has `PLANES` planes.
#[inline(always)]
unsafe fn tile<U: TileUnit, const PLANES: usize>(args: &TileArgs) {
    let mut unit = U::new();
    let n_pairs = args.k.div_ceil(2);
    // A shorter last group needs other shapes.
    let whole = n_pairs / GROUP_PAIRS * GROUP_PAIRS;
    for (from, to, group) in [(0, whole, GROUP_PAIRS), (whole, n_pairs, n_pairs - whole)] {
        let mut shapes = None;
        for first in (0..args.m).step_by(2 * TILE_ROWS) {
            if from == to {
                continue;
            }
            let left = args.m - first;
            let n_first = left.min(TILE_ROWS);
            let n_second = (left - n_first).min(TILE_ROWS);
            let wanted = Shapes::new(n_first, n_second, 4 * group);
            // SAFETY: forwarded, for tokens below `m` and groups of the chunk.
            unsafe {
                if shapes != Some(wanted) {
                    unit.set_shapes(&wanted);
                    shapes = Some(wanted);
                }
                let has_second = n_second > 0;
                load_sums(&mut unit, args, first, has_second);
                for pair in (from..to).step_by(group) {
                    multiply::<U, PLANES>(&mut unit, args, first, has_second, pair);
                }
                store_sums(&mut unit, args, first, has_second);
            }
        }
    }
    // SAFETY: forwarded.
    unsafe { unit.release() };
}

/// Bytes from a token's accumulators to the next one's.
const ACC_STRIDE: usize = GROUP_ROWS * size_of::<f32>();

/// Accumulators of token `t`, panel `p`.
///
/// # Safety
/// The token and the panel exist.
#[inline(always)]
unsafe fn acc_at(args: &TileArgs, t: usize, p: usize) -> *mut u8 {
    // SAFETY: forwarded.
    unsafe { args.acc.add(t * GROUP_ROWS + p * PANEL_ROWS).cast() }
}

/// # Safety
/// As [`tile`]; shapes are set for the tokens from `first`.
#[inline(always)]
unsafe fn load_sums<U: TileUnit>(unit: &mut U, args: &TileArgs, first: usize, has_second: bool) {
    // SAFETY: forwarded.
    unsafe {
        unit.load::<SUMS_00>(acc_at(args, first, 0), ACC_STRIDE);
        if args.n_panels > 1 {
            unit.load::<SUMS_01>(acc_at(args, first, 1), ACC_STRIDE);
        }
        if has_second {
            let second = first + TILE_ROWS;
            unit.load::<SUMS_10>(acc_at(args, second, 0), ACC_STRIDE);
            if args.n_panels > 1 {
                unit.load::<SUMS_11>(acc_at(args, second, 1), ACC_STRIDE);
            }
        }
    }
}

/// # Safety
/// As [`load_sums`].
#[inline(always)]
unsafe fn store_sums<U: TileUnit>(unit: &mut U, args: &TileArgs, first: usize, has_second: bool) {
    // SAFETY: forwarded.
    unsafe {
        unit.store::<SUMS_00>(acc_at(args, first, 0), ACC_STRIDE);
        if args.n_panels > 1 {
            unit.store::<SUMS_01>(acc_at(args, first, 1), ACC_STRIDE);
        }
        if has_second {
            let second = first + TILE_ROWS;
            unit.store::<SUMS_10>(acc_at(args, second, 0), ACC_STRIDE);
            if args.n_panels > 1 {
                unit.store::<SUMS_11>(acc_at(args, second, 1), ACC_STRIDE);
            }
        }
    }
}

/// Adds the products of the group of columns from `pair` on.
///
/// # Safety
/// As [`load_sums`]; the group's columns exist.
#[inline(always)]
unsafe fn multiply<U: TileUnit, const PLANES: usize>(
    unit: &mut U,
    args: &TileArgs,
    first: usize,
    has_second: bool,
    pair: usize,
) {
    // SAFETY: forwarded.
    unsafe {
        let x = args.x.add(first * args.x_stride + 4 * pair);
        unit.load::<TOKENS_0>(x, args.x_stride);
        if has_second {
            unit.load::<TOKENS_1>(x.add(TILE_ROWS * args.x_stride), args.x_stride);
        }
        for plane in 0..PLANES {
            let line = PLANES * pair + plane * GROUP_PAIRS;
            let weights = args.panels.add(line * LINE_BYTES);
            unit.load::<WEIGHTS_0>(weights, LINE_BYTES);
            unit.dot_bf16::<SUMS_00, TOKENS_0, WEIGHTS_0>();
            if has_second {
                unit.dot_bf16::<SUMS_10, TOKENS_1, WEIGHTS_0>();
            }
            if args.n_panels > 1 {
                unit.load::<WEIGHTS_1>(weights.add(args.panel_stride), LINE_BYTES);
                unit.dot_bf16::<SUMS_01, TOKENS_0, WEIGHTS_1>();
                if has_second {
                    unit.dot_bf16::<SUMS_11, TOKENS_1, WEIGHTS_1>();
                }
            }
        }
    }
}

/// Sums of a group: of even and of odd columns, in each plane, for each token.
type GroupSums<const PLANES: usize, const T: usize> = [[[__m512; 2]; PLANES]; T];

/// The unit's arithmetic in vectors: for at most `T` tokens from `first`. (Sums below the smallest normal number are kept, where the unit
/// gives zero.)
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`], for `n_tokens` of its tokens.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn direct<const FORMAT: u8, const PLANES: usize, const T: usize>(
    args: &DirectArgs,
    first: usize,
    n_tokens: usize,
) {
    // SAFETY: tokens have the chunk's columns, a pair for an odd last one; accumulators have a row for each token.
    unsafe {
        let x: [*const i32; T] = std::array::from_fn(|t| {
            args.x
                .add((first + slot(t, n_tokens)) * args.x_stride)
                .cast()
        });
        let acc = |t: usize| args.acc.add((first + slot(t, n_tokens)) * GROUP_ROWS);
        let mut sums: [__m512; T] = std::array::from_fn(|t| _mm512_load_ps(acc(t)));
        let zero: GroupSums<PLANES, T> = [[[_mm512_setzero_ps(); 2]; PLANES]; T];
        let mut group = zero;
        each_vector(&args.source, 2, |i, v| {
            let parts = parts::<FORMAT, PLANES>(v);
            for (x, group) in x.iter().zip(&mut group) {
                let x = _mm512_set1_epi32(x.add(i).read_unaligned());
                let x = [_mm512_slli_epi32::<16>(x), upper(x)];
                for (parts, sums) in parts.iter().zip(group) {
                    for ((w, x), sum) in parts.iter().zip(x).zip(sums) {
                        *sum =
                            _mm512_fmadd_ps(_mm512_castsi512_ps(*w), _mm512_castsi512_ps(x), *sum);
                    }
                }
            }
            if i % GROUP_PAIRS == GROUP_PAIRS - 1 {
                add_group(&mut sums, &group);
                group = zero;
            }
        });
        if !args.source.k.div_ceil(2).is_multiple_of(GROUP_PAIRS) {
            add_group(&mut sums, &group);
        }
        for (t, sum) in sums.into_iter().enumerate().take(n_tokens) {
            _mm512_store_ps(acc(t), sum);
        }
    }
}

/// Adds a group's products to the accumulators, plane by plane.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_group<const PLANES: usize, const T: usize>(
    sums: &mut [__m512; T],
    group: &GroupSums<PLANES, T>,
) {
    for (sum, planes) in sums.iter_mut().zip(group) {
        for [even, odd] in planes {
            *sum = _mm512_add_ps(*sum, _mm512_add_ps(*even, *odd));
        }
    }
}
