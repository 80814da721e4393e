//! The k-quants Q4_K, Q5_K and Q6_K in AVX2's panels. One token is AVX2's: it adds the same, bit for bit.

use super::tile_i8x256;
use crate::matmul::PanelLayout;
use crate::matmul::panel::DirectArgs;
use crate::x86::avx2::direct::through_panel;
use crate::x86::avx2::superblock as panels;

macro_rules! functions_of_format {
    ($($direct:ident $pack:ident $layout:ident $tile:ident;)*) => {$(
        #[doc = concat!("Multiplies ", stringify!($pack), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::DirectFn`].
        #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
        pub(crate) unsafe fn $direct(args: &DirectArgs) {
            // SAFETY: forwarded.
            unsafe { through_panel(args, PanelLayout::$layout, panels::$pack, tile_i8x256::$tile) }
        }
    )*};
}
functions_of_format!(
    direct_q4_k q4_k Super32Min tile_q45_k;
    direct_q5_k q5_k Super32Min tile_q45_k;
    direct_q6_k q6_k Super16 tile_q6_k;
);
