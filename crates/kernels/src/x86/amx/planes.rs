//! The k-quants: levels times integer scales, as two planes of signed bytes that need no scale within a superblock.
//!
//! A product `v` of level and scale is at most 32 · 128 in magnitude. It becomes `64·h + l` with `l` in −32…31 and `h` in −64…64, and
//! Σ v·q is `64 · Σ h·q + Σ l·q`: two sums over the whole superblock, as exact as the single sum.

use super::unit::{
    SUMS_00, SUMS_01, SUMS_10, SUMS_11, Shapes, TILE_ROW_BYTES, TILE_ROWS, TOKENS_0, TileUnit,
    WEIGHTS_0, WEIGHTS_1,
};
use crate::matmul::PanelLayout;
use crate::matmul::panel::{
    GROUP_PANELS, GROUP_ROWS, LINE_BYTES, PANEL_ROWS, PackArgs, PackFn, TileArgs, X256,
};
use crate::x86::avx512::superblock;
use crate::x86::avx512::tile_i8x256::add_superblock;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Lines of a plane.
const PLANE_LINES: usize = 64;

/// Lines of the largest unit of AVX-512's panels.
const MOST_LINES: usize = PanelLayout::Super16Min.unit_lines();

macro_rules! pack_of_format {
    ($($pack:ident $format:literal $sub:literal $offset:literal $from:ident;)*) => {$(
        #[doc = concat!("Packs ", $format, ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
        pub(crate) unsafe fn $pack(args: &PackArgs) {
            // SAFETY: forwarded.
            unsafe { pack::<$sub, $offset>(args, superblock::$pack, PanelLayout::$from) }
        }
    )*};
}
pack_of_format!(
    q2_k "Q2_K" 16 0 Super16Min;
    q3_k "Q3_K" 16 32 Super16;
    q4_k "Q4_K" 32 0 Super32Min;
    q5_k "Q5_K" 32 0 Super32Min;
    q6_k "Q6_K" 16 32 Super16;
);

/// The layout of planes for a panel of AVX-512's.
const fn layout(from: PanelLayout) -> PanelLayout {
    match from {
        PanelLayout::Super16Min => PanelLayout::Planes16Min,
        PanelLayout::Super32Min => PanelLayout::Planes32Min,
        _ => PanelLayout::Planes,
    }
}

/// AVX-512's panel of one superblock, as an intermediate.
#[repr(align(64))]
struct SuperblockPanel(MaybeUninit<[u8; MOST_LINES * LINE_BYTES]>);

/// # Safety
/// As [`PackFn`]; `levels` packs the format into layout `from`, which has a scale for each `SUB` columns and levels less `OFFSET`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pack<const SUB: usize, const OFFSET: i16>(
    args: &PackArgs,
    levels: PackFn,
    from: PanelLayout,
) {
    let mut panel = SuperblockPanel(MaybeUninit::uninit());
    let panel = panel.0.as_mut_ptr().cast::<u8>();
    for b in 0..args.source.k / 256 {
        // SAFETY: forwarded, for a superblock; `panel` is long enough for one unit of any layout.
        unsafe {
            levels(&PackArgs {
                source: args.source.columns(256 * b, 256),
                panel,
            });
            let unit = args.panel.add(b * layout(from).unit_bytes());
            for s in 0..256 / SUB {
                let scales = _mm512_load_si512(panel.add((PLANE_LINES + s) * LINE_BYTES).cast());
                let scales = four_times(scales);
                for line in s * SUB / 4..(s + 1) * SUB / 4 {
                    let at = line * LINE_BYTES;
                    scale_line::<OFFSET>(panel.add(at), scales, unit.add(at));
                }
            }
            // Scales of superblocks and minimums are as they were.
            let rest = (PLANE_LINES + 256 / SUB) * LINE_BYTES;
            let n_bytes = from.unit_bytes() - rest;
            let to = unit.add(2 * PLANE_LINES * LINE_BYTES);
            std::ptr::copy_nonoverlapping(panel.add(rest), to, n_bytes);
        }
    }
}

/// The low i16 of each 32-bit lane, four times: for the rows of the lower half, and for those of the upper.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn four_times(scales: __m512i) -> [__m512i; 2] {
    let repeat = |lanes: __m256i| {
        let low = _mm512_cvtepu32_epi64(lanes);
        let low = _mm512_and_si512(low, _mm512_set1_epi64(0xFFFF));
        let two = _mm512_or_si512(low, _mm512_slli_epi64::<16>(low));
        _mm512_or_si512(two, _mm512_slli_epi64::<32>(two))
    };
    [
        repeat(_mm512_castsi512_si256(scales)),
        repeat(_mm512_extracti64x4_epi64::<1>(scales)),
    ]
}

/// Writes a line of levels, scaled, to the same line of both planes.
///
/// # Safety
/// `from` is a line; `to` is one of the upper plane's.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn scale_line<const OFFSET: i16>(from: *const u8, scales: [__m512i; 2], to: *mut u8) {
    for (half, scales) in scales.into_iter().enumerate() {
        // SAFETY: half a line of each.
        unsafe {
            let levels = _mm256_loadu_si256(from.add(half * LINE_BYTES / 2).cast());
            let levels = _mm512_sub_epi16(_mm512_cvtepu8_epi16(levels), _mm512_set1_epi16(OFFSET));
            let v = _mm512_mullo_epi16(levels, scales);
            let high = _mm512_srai_epi16::<6>(_mm512_add_epi16(v, _mm512_set1_epi16(32)));
            let low = _mm512_sub_epi16(v, _mm512_slli_epi16::<6>(high));
            for (plane, v) in [high, low].into_iter().enumerate() {
                let at = plane * PLANE_LINES * LINE_BYTES + half * LINE_BYTES / 2;
                _mm256_storeu_si256(to.add(at).cast(), _mm512_cvtepi16_epi8(v));
            }
        }
    }
}

macro_rules! tile_of_layout {
    ($($name:ident $layout:ident $sub:literal $min:literal;)*) => {$(
        #[doc = concat!("The tile of [`Layout::", stringify!($layout), "`].")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::TileFn`], and the unit is there.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        pub(crate) unsafe fn $name<U: TileUnit>(args: &TileArgs) {
            // SAFETY: forwarded.
            unsafe { tile_all::<U, $sub, $min>(args, PanelLayout::$layout) }
        }
    )*};
}
tile_of_layout!(
    tile Planes 16 false;
    tile_16_min Planes16Min 16 true;
    tile_32_min Planes32Min 32 true;
);

/// Sums of a tile of tokens with a plane of a panel.
type PlaneTotals = [[i32; PANEL_ROWS]; TILE_ROWS];

/// Totals of both planes of each panel.
#[repr(align(64))]
struct PlaneSums([[PlaneTotals; 2]; GROUP_PANELS]);

/// # Safety
/// As the tiles; the layout has minimums for each `SUB` columns if `MIN`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn tile_all<U: TileUnit, const SUB: usize, const MIN: bool>(
    args: &TileArgs,
    layout: PanelLayout,
) {
    let mut unit = U::new();
    let mut sums = PlaneSums([[[[0; PANEL_ROWS]; TILE_ROWS]; 2]; GROUP_PANELS]);
    for first in (0..args.m).step_by(TILE_ROWS) {
        let n_tokens = TILE_ROWS.min(args.m - first);
        // SAFETY: forwarded, for tokens below `m` and superblocks of the chunk.
        unsafe {
            if first == 0 || n_tokens < TILE_ROWS {
                unit.set_shapes(&Shapes::new(n_tokens, n_tokens, TILE_ROW_BYTES));
            }
            for b in 0..args.k / 256 {
                let x = args.x.add(first * args.x_stride + b * size_of::<X256>());
                let panel = args.panels.add(b * layout.unit_bytes());
                multiply(&mut unit, args, x, panel, &mut sums);
                for p in 0..args.n_panels {
                    let lines = panel.add(p * args.panel_stride + 2 * PLANE_LINES * LINE_BYTES);
                    // `add_superblock` counts from the scales, which planes do not have.
                    let tail = lines.wrapping_sub(256 / SUB * LINE_BYTES);
                    let [high, low] = &sums.0[p];
                    for (t, (high, low)) in high.iter().zip(low).enumerate().take(n_tokens) {
                        let high = _mm512_load_si512(high.as_ptr().cast());
                        let low = _mm512_load_si512(low.as_ptr().cast());
                        let sum = _mm512_add_epi32(_mm512_slli_epi32::<6>(high), low);
                        let acc = args.acc.add((first + t) * GROUP_ROWS + p * PANEL_ROWS);
                        let x = &*x.add(t * args.x_stride).cast::<X256>();
                        add_superblock::<SUB, MIN>(acc, sum, tail, x);
                    }
                }
            }
        }
    }
    // SAFETY: forwarded.
    unsafe { unit.release() };
}

/// Sums over a superblock of both planes of each panel.
///
/// # Safety
/// As the tiles, with the superblock's part of the first token and of the first panel; shapes are set.
#[inline(always)]
unsafe fn multiply<U: TileUnit>(
    unit: &mut U,
    args: &TileArgs,
    x: *const u8,
    panel: *const u8,
    sums: &mut PlaneSums,
) {
    const { assert!(std::mem::offset_of!(X256, q) == 0) };
    const TILE_LINES_BYTES: usize = TILE_ROWS * LINE_BYTES;
    const PLANE_BYTES: usize = PLANE_LINES * LINE_BYTES;
    // SAFETY: forwarded; each of `sums` has a row for each token.
    unsafe {
        unit.zero::<SUMS_00>();
        unit.zero::<SUMS_01>();
        if args.n_panels > 1 {
            unit.zero::<SUMS_10>();
            unit.zero::<SUMS_11>();
        }
        for i in 0..256 / TILE_ROW_BYTES {
            let high = panel.add(i * TILE_LINES_BYTES);
            unit.load::<TOKENS_0>(x.add(i * TILE_ROW_BYTES), args.x_stride);
            unit.load::<WEIGHTS_0>(high, LINE_BYTES);
            unit.dot_signed::<SUMS_00, TOKENS_0, WEIGHTS_0>();
            unit.load::<WEIGHTS_1>(high.add(PLANE_BYTES), LINE_BYTES);
            unit.dot_signed::<SUMS_01, TOKENS_0, WEIGHTS_1>();
            if args.n_panels > 1 {
                let high = high.add(args.panel_stride);
                unit.load::<WEIGHTS_0>(high, LINE_BYTES);
                unit.dot_signed::<SUMS_10, TOKENS_0, WEIGHTS_0>();
                unit.load::<WEIGHTS_1>(high.add(PLANE_BYTES), LINE_BYTES);
                unit.dot_signed::<SUMS_11, TOKENS_0, WEIGHTS_1>();
            }
        }
        let [first, second] = &mut sums.0;
        unit.store::<SUMS_00>(first[0].as_mut_ptr().cast(), LINE_BYTES);
        unit.store::<SUMS_01>(first[1].as_mut_ptr().cast(), LINE_BYTES);
        if args.n_panels > 1 {
            unit.store::<SUMS_10>(second[0].as_mut_ptr().cast(), LINE_BYTES);
            unit.store::<SUMS_11>(second[1].as_mut_ptr().cast(), LINE_BYTES);
        }
    }
}
