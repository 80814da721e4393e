//! The k-quants Q4_K, Q5_K and Q6_K: AVX2's panels, and its walk along rows for one token.

use super::tile_i8x256;
use crate::matmul::PanelLayout;
use crate::matmul::panel::DirectArgs;
use crate::x86::avx2::direct::through_panel;
use crate::x86::avx2::superblock as panels;
use crate::x86::avx2::superblock_rows::{Q4_K, Q5_K, Q6_K, direct_row};

macro_rules! functions_of_format {
    ($($direct:ident $pack:ident $layout:ident $format:ident $tile:ident;)*) => {$(
        #[doc = concat!("Multiplies ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::DirectFn`].
        #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
        pub(crate) unsafe fn $direct(args: &DirectArgs) {
            // SAFETY: forwarded.
            unsafe {
                match args.m {
                    1 => direct_row::<$format>(args),
                    _ => through_panel(args, PanelLayout::$layout, panels::$pack, tile_i8x256::$tile),
                }
            }
        }
    )*};
}
functions_of_format!(
    direct_q4_k q4_k Super32Min Q4_K tile_q45_k;
    direct_q5_k q5_k Super32Min Q5_K tile_q45_k;
    direct_q6_k q6_k Super16 Q6_K tile_q6_k;
);
