//! Formats that AVX2's functions unpack, multiplied by AVX-VNNI's tiles.

use super::tile_i8x32::{tile_128, tile_128_twice};
use crate::matmul::panel::{DirectArgs, TileFn};
use crate::x86::avx2::levels::{Unpack, one_or_few};

/// Multiplies with a few tokens.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`].
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(crate) unsafe fn direct<F: Unpack>(args: &DirectArgs) {
    let tile: TileFn = const {
        match F::SCALES {
            1 => tile_128,
            _ => tile_128_twice,
        }
    };
    // SAFETY: forwarded.
    unsafe { one_or_few::<F, 128>(args, tile) }
}
