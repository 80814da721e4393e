//! Rows of the x86-64 levels.

use super::{Kernel, decoded_rows};
use crate::level::Level;
use crate::matmul::{Layout, scalar};
use crate::x86::{avx2, avx512};
use millrace_quant::DType;

/// One row: `name, format, layout, pack, tile`.
macro_rules! rows {
    ($level:expr; $($name:literal $dtype:ident $layout:ident $pack:path, $tile:path;)*) => {
        &[$(Kernel {
            name: $name,
            dtype: DType::$dtype,
            level: $level,
            layout: Layout::$layout,
            pack: $pack,
            tile: $tile,
        }),*]
    };
}

const AVX512_BF16: &[Kernel] = rows! {
    Level::Avx512Bf16;
    "avx512bf16/matmul/bf16" BF16 Bf16 avx512::pack_float::bf16_pairs, avx512::tile_bf16::tile;
};

const AVX512: &[Kernel] = rows! {
    Level::Avx512;
    "avx512/matmul/f32" F32 F32 avx512::pack_float::f32, avx512::tile_f32::tile;
    "avx512/matmul/f16" F16 F32 avx512::pack_float::f16, avx512::tile_f32::tile;
    "avx512/matmul/bf16" BF16 F32 avx512::pack_float::bf16, avx512::tile_f32::tile;
    "avx512/matmul/q4_0" Q4_0 Block32 avx512::pack_block32::q4_0, avx512::tile_i8x32::tile;
    "avx512/matmul/q4_1" Q4_1 Block32Min avx512::pack_block32::q4_1, avx512::tile_i8x32::tile_min;
    "avx512/matmul/q5_0" Q5_0 Block32 avx512::pack_block32::q5_0, avx512::tile_i8x32::tile;
    "avx512/matmul/q5_1" Q5_1 Block32Min avx512::pack_block32::q5_1, avx512::tile_i8x32::tile_min;
    "avx512/matmul/q8_0" Q8_0 Block32 avx512::pack_block32::q8_0, avx512::tile_i8x32::tile;
    "avx512/matmul/q8_1" Q8_1 Block32 avx512::pack_block32::q8_1, avx512::tile_i8x32::tile;
    "avx512/matmul/iq4_nl" Iq4Nl Block32 avx512::pack_block32::iq4_nl, avx512::tile_i8x32::tile;
    "avx512/matmul/mxfp4" Mxfp4 Block32 avx512::pack_block32::mxfp4, avx512::tile_i8x32::tile;
    "avx512/matmul/q4nx" Q4nx Block32Min avx512::pack_q4nx::q4nx, avx512::tile_i8x32::tile_min;
    "avx512/matmul/q4nx_sub" Q4nxSub Block32Min
        avx512::pack_q4nx::q4nx_sub, avx512::tile_i8x32::tile_min;
    "avx512/matmul/q2_k" Q2K Super16Min avx512::pack_super::q2_k, avx512::tile_i8x256::tile_super16_min;
    "avx512/matmul/q3_k" Q3K Super16 avx512::pack_super::q3_k, avx512::tile_i8x256::tile_super16;
    "avx512/matmul/q4_k" Q4K Super32Min avx512::pack_super::q4_k, avx512::tile_i8x256::tile_super32_min;
    "avx512/matmul/q5_k" Q5K Super32Min avx512::pack_super::q5_k, avx512::tile_i8x256::tile_super32_min;
    "avx512/matmul/q6_k" Q6K Super16 avx512::pack_super::q6_k, avx512::tile_i8x256::tile_super16;
};

const AVX512_DECODED: &[Kernel] =
    decoded_rows!(Level::Avx512, "avx512", avx512::tile_f32::tile);

const AVX2_DECODED: &[Kernel] = decoded_rows!(Level::Avx2, "avx2", avx2::tile_f32::tile);

/// All rows, the preferred first.
pub(super) const ROWS: [&[Kernel]; 4] = [AVX512_BF16, AVX512, AVX512_DECODED, AVX2_DECODED];
