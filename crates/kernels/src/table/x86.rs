//! Rows of the x86-64 levels.

use super::{Kernel, decoded_rows};
use crate::level::Level;
use crate::matmul::{Layout, scalar};
use crate::x86::avx512::{block32, float, superblock, tile_bf16, tile_i8x32, tile_i8x256};
use crate::x86::{avx2, avx512};
use millrace_quant::DType;

/// A level's rows: `name format layout pack direct tile`.
macro_rules! rows {
    ($level:expr; $($name:literal $dtype:ident $layout:ident $pack:path, $direct:path, $tile:path;)*) => {
        &[$(Kernel {
            name: $name,
            dtype: DType::$dtype,
            level: $level,
            layout: Layout::$layout,
            pack: $pack,
            tile: $tile,
            direct: Some($direct),
        }),*]
    };
}

const AVX512_BF16: &[Kernel] = rows! {
    Level::Avx512Bf16;
    "avx512bf16/matmul/bf16" BF16 Bf16 float::bf16_pairs, float::direct_bf16_pairs, tile_bf16::tile;
};

#[rustfmt::skip]
const AVX512: &[Kernel] = rows! {
    Level::Avx512;
    "avx512/matmul/f32" F32 F32 float::f32, float::direct_f32, avx512::tile_f32::tile;
    "avx512/matmul/f16" F16 F32 float::f16, float::direct_f16, avx512::tile_f32::tile;
    "avx512/matmul/bf16" BF16 F32 float::bf16, float::direct_bf16, avx512::tile_f32::tile;
    "avx512/matmul/q4_0" Q4_0 Block32 block32::q4_0, block32::direct_q4_0, tile_i8x32::tile;
    "avx512/matmul/q4_1" Q4_1 Block32Min block32::q4_1, block32::direct_q4_1, tile_i8x32::tile_min;
    "avx512/matmul/q5_0" Q5_0 Block32 block32::q5_0, block32::direct_q5_0, tile_i8x32::tile;
    "avx512/matmul/q5_1" Q5_1 Block32Min block32::q5_1, block32::direct_q5_1, tile_i8x32::tile_min;
    "avx512/matmul/q8_0" Q8_0 Block32 block32::q8_0, block32::direct_q8_0, tile_i8x32::tile;
    "avx512/matmul/q8_1" Q8_1 Block32 block32::q8_1, block32::direct_q8_1, tile_i8x32::tile;
    "avx512/matmul/iq4_nl" Iq4Nl Block32 block32::iq4_nl, block32::direct_iq4_nl, tile_i8x32::tile;
    "avx512/matmul/mxfp4" Mxfp4 Block32 block32::mxfp4, block32::direct_mxfp4, tile_i8x32::tile;
    "avx512/matmul/q4nx" Q4nx Block32Min block32::q4nx, block32::direct_q4nx, tile_i8x32::tile_min;
    "avx512/matmul/q4nx_sub" Q4nxSub Block32Min block32::q4nx_sub, block32::direct_q4nx_sub, tile_i8x32::tile_min;
    "avx512/matmul/q2_k" Q2K Super16Min superblock::q2_k, superblock::direct_q2_k, tile_i8x256::tile_super16_min;
    "avx512/matmul/q3_k" Q3K Super16 superblock::q3_k, superblock::direct_q3_k, tile_i8x256::tile_super16;
    "avx512/matmul/q4_k" Q4K Super32Min superblock::q4_k, superblock::direct_q4_k, tile_i8x256::tile_super32_min;
    "avx512/matmul/q5_k" Q5K Super32Min superblock::q5_k, superblock::direct_q5_k, tile_i8x256::tile_super32_min;
    "avx512/matmul/q6_k" Q6K Super16 superblock::q6_k, superblock::direct_q6_k, tile_i8x256::tile_super16;
};

const AVX512_DECODED: &[Kernel] =
    decoded_rows!(Level::Avx512, "avx512", avx512::tile_f32::tile);

const AVX2_DECODED: &[Kernel] = decoded_rows!(Level::Avx2, "avx2", avx2::tile_f32::tile);

/// All rows, the preferred first.
pub(super) const ROWS: [&[Kernel]; 4] = [AVX512_BF16, AVX512, AVX512_DECODED, AVX2_DECODED];
