//! Formats that AVX2's functions unpack, multiplied by AVX-512's tiles.

use super::tile_i8x32;
use crate::matmul::panel::{DirectArgs, TileFn};
use crate::x86::avx2::levels::{Unpack, one_or_few};

/// Multiplies with a few tokens.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) unsafe fn direct<F: Unpack>(args: &DirectArgs) {
    let tile: TileFn = const {
        match F::SCALES {
            1 => tile_i8x32::tile,
            _ => tile_i8x32::tile_16,
        }
    };
    // SAFETY: forwarded.
    unsafe { one_or_few::<F, 128>(args, tile) }
}
