//! Formats that AVX2's functions unpack, multiplied by AVX-512's tiles.

use super::tile_i8x32;
use crate::matmul::PanelLayout;
use crate::matmul::panel::{DirectArgs, TileFn};
use crate::x86::avx2::levels::{Unpack, one_or_few, pack};

/// Multiplies with a few tokens.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) unsafe fn direct<F: Unpack>(args: &DirectArgs) {
    let (layout, tile) = if F::SCALES == 1 {
        (PanelLayout::Block32, tile_i8x32::tile as TileFn)
    } else {
        (PanelLayout::Block16, tile_i8x32::tile_16 as TileFn)
    };
    // SAFETY: forwarded.
    unsafe { one_or_few::<F>(args, layout, pack::<F>, tile) }
}
