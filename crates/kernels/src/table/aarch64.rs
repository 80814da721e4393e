//! Rows of the AArch64 levels.

use super::{MatmulKernel, decoded_rows};
use crate::aarch64::{block32, float, superblock, tile_f32, tile_i8x32, tile_i8x256};
use crate::level::Level;
use crate::matmul::PanelLayout;
use millrace_quant::DType;

/// A level's rows: `format layout pack, tile, rows`.
macro_rules! rows {
    ($level:expr, $stem:literal; $($dtype:ident $layout:ident $pack:path, $tile:path, $rows:path;)*) => {
        &[$(MatmulKernel {
            stem: $stem,
            dtype: DType::$dtype,
            level: $level,
            least_tokens: 1,
            layout: PanelLayout::$layout,
            pack: $pack,
            tile: $tile,
            direct: None,
            rows: Some($rows),
        }),*]
    };
}

#[rustfmt::skip]
const I8MM: &[MatmulKernel] = rows! {
    Level::I8mm, "i8mm/matmul";
    Q4_0 Block32 block32::q4_0_pairs, tile_i8x32::i8mm, block32::dot_rows_q4_0;
    Q4_1 Block32Min block32::q4_1_pairs, tile_i8x32::i8mm_min, block32::dot_rows_q4_1;
    Q5_0 Block32 block32::q5_0_pairs, tile_i8x32::i8mm, block32::dot_rows_q5_0;
    Q5_1 Block32Min block32::q5_1_pairs, tile_i8x32::i8mm_min, block32::dot_rows_q5_1;
    Q8_0 Block32 block32::q8_0_pairs, tile_i8x32::i8mm, block32::dot_rows_q8_0;
    Q8_1 Block32 block32::q8_1_pairs, tile_i8x32::i8mm, block32::dot_rows_q8_1;
    Iq4Nl Block32 block32::iq4_nl_pairs, tile_i8x32::i8mm, block32::dot_rows_iq4_nl;
    Mxfp4 Block32 block32::mxfp4_pairs, tile_i8x32::i8mm, block32::dot_rows_mxfp4;
    Q4K Super32Min superblock::q4_k_pairs, tile_i8x256::i8mm_min, superblock::dot_rows_q4_k;
    Q5K Super32Min superblock::q5_k_pairs, tile_i8x256::i8mm_min, superblock::dot_rows_q5_k;
    Q6K Super16 superblock::q6_k_pairs, tile_i8x256::i8mm, superblock::dot_rows_q6_k;
};

#[rustfmt::skip]
const DOTPROD: &[MatmulKernel] = rows! {
    Level::DotProd, "dotprod/matmul";
    Q4_0 Block32 block32::q4_0, tile_i8x32::dotprod, block32::dot_rows_q4_0;
    Q4_1 Block32Min block32::q4_1, tile_i8x32::dotprod_min, block32::dot_rows_q4_1;
    Q5_0 Block32 block32::q5_0, tile_i8x32::dotprod, block32::dot_rows_q5_0;
    Q5_1 Block32Min block32::q5_1, tile_i8x32::dotprod_min, block32::dot_rows_q5_1;
    Q8_0 Block32 block32::q8_0, tile_i8x32::dotprod, block32::dot_rows_q8_0;
    Q8_1 Block32 block32::q8_1, tile_i8x32::dotprod, block32::dot_rows_q8_1;
    Iq4Nl Block32 block32::iq4_nl, tile_i8x32::dotprod, block32::dot_rows_iq4_nl;
    Mxfp4 Block32 block32::mxfp4, tile_i8x32::dotprod, block32::dot_rows_mxfp4;
    Q4K Super32Min superblock::q4_k, tile_i8x256::dotprod_min, superblock::dot_rows_q4_k;
    Q5K Super32Min superblock::q5_k, tile_i8x256::dotprod_min, superblock::dot_rows_q5_k;
    Q6K Super16 superblock::q6_k, tile_i8x256::dotprod, superblock::dot_rows_q6_k;
};

#[rustfmt::skip]
const NEON: &[MatmulKernel] = rows! {
    Level::Neon, "neon/matmul";
    F32 F32 float::f32, tile_f32::tile, float::rows_f32;
    F16 F32 float::f16, tile_f32::tile, float::rows_f16;
    BF16 F32 float::bf16, tile_f32::tile, float::rows_bf16;
    Q4_0 Block32 block32::q4_0, tile_i8x32::neon, block32::rows_q4_0;
    Q4_1 Block32Min block32::q4_1, tile_i8x32::neon_min, block32::rows_q4_1;
    Q5_0 Block32 block32::q5_0, tile_i8x32::neon, block32::rows_q5_0;
    Q5_1 Block32Min block32::q5_1, tile_i8x32::neon_min, block32::rows_q5_1;
    Q8_0 Block32 block32::q8_0, tile_i8x32::neon, block32::rows_q8_0;
    Q8_1 Block32 block32::q8_1, tile_i8x32::neon, block32::rows_q8_1;
    Iq4Nl Block32 block32::iq4_nl, tile_i8x32::neon, block32::rows_iq4_nl;
    Mxfp4 Block32 block32::mxfp4, tile_i8x32::neon, block32::rows_mxfp4;
    Q4K Super32Min superblock::q4_k, tile_i8x256::neon_min, superblock::rows_q4_k;
    Q5K Super32Min superblock::q5_k, tile_i8x256::neon_min, superblock::rows_q5_k;
    Q6K Super16 superblock::q6_k, tile_i8x256::neon, superblock::rows_q6_k;
};

const NEON_DECODED: &[MatmulKernel] = &decoded_rows(Level::Neon, "neon/matmul_f32", tile_f32::tile);

/// All rows, the preferred first.
pub(super) const ROWS: [&[MatmulKernel]; 4] = [I8MM, DOTPROD, NEON, NEON_DECODED];
