//! Rows of the x86-64 levels.

use super::amx::AMX;
use super::{MatmulKernel, decoded_rows};
use crate::level::Level;
use crate::matmul::PanelLayout;
use crate::x86::avx2::levels;
use crate::x86::avx512::{block32, float_columns, superblock, tile_i8x32, tile_i8x256};
use crate::x86::{avx_vnni, avx2, avx512};
use millrace_quant::DType;

/// A level's rows: `format layout pack, tile` and, where there are, `, direct` and `, rows`.
macro_rules! rows {
    ($level:expr, $stem:literal; $($dtype:ident $layout:ident $pack:path, $tile:path $(, $direct:path $(, $rows:path)?)?;)*) => {
        &[$(MatmulKernel {
            stem: $stem,
            dtype: DType::$dtype,
            level: $level,
            layout: PanelLayout::$layout,
            pack: $pack,
            tile: $tile,
            direct: rows!(@some $($direct)?),
            rows: rows!(@some $($($rows)?)?),
            least_tokens: 1,
        }),*]
    };
    (@some) => { None };
    (@some $function:path) => { Some($function) };
}

const AVX512_BF16: &[MatmulKernel] = rows! {
    Level::Avx512Bf16, "avx512bf16/matmul";
    BF16 Bf16Columns float_columns::pack_bf16_pairs, float_columns::tile_bf16, float_columns::direct_bf16_pairs, float_columns::rows_bf16_pairs;
};

#[rustfmt::skip]
const AVX512: &[MatmulKernel] = rows! {
    Level::Avx512, "avx512/matmul";
    F32 F32Columns float_columns::pack_f32, float_columns::tile_f32, float_columns::direct_f32, float_columns::rows_f32;
    F16 F32Columns float_columns::pack_f16, float_columns::tile_f32, float_columns::direct_f16, float_columns::rows_f16;
    BF16 F32Columns float_columns::pack_bf16, float_columns::tile_f32, float_columns::direct_bf16, float_columns::rows_bf16;
    Q4_0 Block32 block32::q4_0, tile_i8x32::tile, block32::direct_q4_0, block32::rows_q4_0;
    Q4_1 Block32Min block32::q4_1, tile_i8x32::tile_min, block32::direct_q4_1, block32::rows_q4_1;
    Q5_0 Block32 block32::q5_0, tile_i8x32::tile, block32::direct_q5_0, block32::rows_q5_0;
    Q5_1 Block32Min block32::q5_1, tile_i8x32::tile_min, block32::direct_q5_1;
    Q8_0 Block32 block32::q8_0, tile_i8x32::tile, block32::direct_q8_0, block32::rows_q8_0;
    Q8_1 Block32 block32::q8_1, tile_i8x32::tile, block32::direct_q8_1;
    Iq4Nl Block32 block32::iq4_nl, tile_i8x32::tile, block32::direct_iq4_nl, block32::rows_iq4_nl;
    Iq4Xs Block32 block32::iq4_xs, tile_i8x32::tile, block32::direct_iq4_xs, block32::rows_iq4_xs;
    Mxfp4 Block32 block32::mxfp4, tile_i8x32::tile, block32::direct_mxfp4, block32::rows_mxfp4;
    Q4nx Block32Min block32::q4nx, tile_i8x32::tile_min, block32::direct_q4nx, block32::rows_q4nx;
    Q4nxSub Block32Min block32::q4nx_sub, tile_i8x32::tile_min, block32::direct_q4nx_sub, block32::rows_q4nx_sub;
    Iq3Xxs Block32 levels::pack::<levels::Iq3Xxs, 128>, tile_i8x32::tile, avx512::points::direct::<levels::Iq3Xxs>;
    Iq3S Block32 levels::pack::<levels::Iq3S, 128>, tile_i8x32::tile, avx512::points::direct::<levels::Iq3S>;
    Iq2Xxs Block32 levels::pack::<levels::Iq2Xxs, 128>, tile_i8x32::tile, avx512::points::direct::<levels::Iq2Xxs>;
    Iq2Xs Block16 levels::pack::<levels::Iq2Xs, 128>, tile_i8x32::tile_16, avx512::points::direct::<levels::Iq2Xs>;
    Iq2S Block16 levels::pack::<levels::Iq2S, 128>, tile_i8x32::tile_16, avx512::points::direct::<levels::Iq2S>;
    Iq1S Block32 levels::pack::<levels::Iq1S, 128>, tile_i8x32::tile, avx512::points::direct::<levels::Iq1S>;
    Iq1M Block16 levels::pack::<levels::Iq1M, 128>, tile_i8x32::tile_16, avx512::points::direct::<levels::Iq1M>;
    Tq1_0 Block32 levels::pack::<levels::Tq1_0, 128>, tile_i8x32::tile, avx512::levels::direct::<levels::Tq1_0>;
    Tq2_0 Block32 levels::pack::<levels::Tq2_0, 128>, tile_i8x32::tile, avx512::levels::direct::<levels::Tq2_0>;
    Q1_0 Block32 levels::pack::<levels::Q1_0, 128>, tile_i8x32::tile, avx512::levels::direct::<levels::Q1_0>;
    Q2_0 Block32 levels::pack::<levels::Q2_0, 128>, tile_i8x32::tile, avx512::levels::direct::<levels::Q2_0>;
    Nvfp4 Block16 levels::pack::<levels::Nvfp4, 128>, tile_i8x32::tile_16, avx512::levels::direct::<levels::Nvfp4>;
    Q2K Super16Min superblock::q2_k, tile_i8x256::tile_q2_k, superblock::direct_q2_k;
    Q3K Super16 superblock::q3_k, tile_i8x256::tile_q6_k, superblock::direct_q3_k;
    Q4K Super32Min superblock::q4_k, tile_i8x256::tile_q45_k, superblock::direct_q4_k, superblock::rows_q4_k;
    Q5K Super32Min superblock::q5_k, tile_i8x256::tile_q45_k, superblock::direct_q5_k, superblock::rows_q5_k;
    Q6K Super16 superblock::q6_k, tile_i8x256::tile_q6_k, superblock::direct_q6_k, superblock::rows_q6_k;
};

const AVX512_DECODED: &[MatmulKernel] =
    &decoded_rows(Level::Avx512, "avx512/matmul_f32", avx512::tile_f32::tile);

#[rustfmt::skip]
const AVX_VNNI: &[MatmulKernel] = rows! {
    Level::AvxVnni, "avxvnni/matmul";
    Q4_0 Block32 avx2::block32::q4_0, avx_vnni::tile_i8x32::tile_8, avx_vnni::block32::direct_q4_0, avx2::block32::rows_q4_0;
    Q4_1 Block32Min avx2::block32::q4_1, avx_vnni::tile_i8x32::tile_min, avx_vnni::block32::direct_q4_1, avx2::block32::rows_q4_1;
    Q5_0 Block32 avx2::block32::q5_0, avx_vnni::tile_i8x32::tile_16, avx_vnni::block32::direct_q5_0, avx2::block32::rows_q5_0;
    Q5_1 Block32Min avx2::block32::q5_1, avx_vnni::tile_i8x32::tile_min, avx_vnni::block32::direct_q5_1, avx2::block32::rows_q5_1;
    Q8_0 Block32 avx_vnni::block32::q8_0, avx_vnni::tile_i8x32::tile_128, avx_vnni::block32::direct_q8_0, avx2::block32::rows_q8_0;
    Q8_1 Block32 avx_vnni::block32::q8_1, avx_vnni::tile_i8x32::tile_128, avx_vnni::block32::direct_q8_1, avx2::block32::rows_q8_1;
    Iq4Nl Block32 avx_vnni::block32::iq4_nl, avx_vnni::tile_i8x32::tile_128, avx_vnni::block32::direct_iq4_nl, avx2::block32::rows_iq4_nl;
    Iq4Xs Block32 avx_vnni::block32::iq4_xs, avx_vnni::tile_i8x32::tile_128, avx_vnni::block32::direct_iq4_xs, avx2::block32::rows_iq4_xs;
    Mxfp4 Block32 avx2::block32::mxfp4, avx_vnni::tile_i8x32::tile_12, avx_vnni::block32::direct_mxfp4, avx2::block32::rows_mxfp4;
    Q4nx Block32Min avx2::q4nx::q4nx, avx_vnni::tile_i8x32::tile_min, avx_vnni::block32::direct_q4nx;
    Q4nxSub Block32Min avx2::q4nx::q4nx_sub, avx_vnni::tile_i8x32::tile_min, avx_vnni::block32::direct_q4nx_sub;
    Iq3Xxs Block32 levels::pack::<levels::Iq3Xxs, 128>, avx_vnni::tile_i8x32::tile_128, avx_vnni::levels::direct::<levels::Iq3Xxs>;
    Iq3S Block32 levels::pack::<levels::Iq3S, 128>, avx_vnni::tile_i8x32::tile_128, avx_vnni::levels::direct::<levels::Iq3S>;
    Iq2Xxs Block32 levels::pack::<levels::Iq2Xxs, 128>, avx_vnni::tile_i8x32::tile_128, avx_vnni::levels::direct::<levels::Iq2Xxs>;
    Iq2Xs Block16 levels::pack::<levels::Iq2Xs, 128>, avx_vnni::tile_i8x32::tile_128_twice, avx_vnni::levels::direct::<levels::Iq2Xs>;
    Iq2S Block16 levels::pack::<levels::Iq2S, 128>, avx_vnni::tile_i8x32::tile_128_twice, avx_vnni::levels::direct::<levels::Iq2S>;
    Iq1S Block32 levels::pack::<levels::Iq1S, 128>, avx_vnni::tile_i8x32::tile_128, avx_vnni::levels::direct::<levels::Iq1S>;
    Iq1M Block16 levels::pack::<levels::Iq1M, 128>, avx_vnni::tile_i8x32::tile_128_twice, avx_vnni::levels::direct::<levels::Iq1M>;
    Tq1_0 Block32 levels::pack::<levels::Tq1_0, 128>, avx_vnni::tile_i8x32::tile_128, avx_vnni::levels::direct::<levels::Tq1_0>;
    Tq2_0 Block32 levels::pack::<levels::Tq2_0, 128>, avx_vnni::tile_i8x32::tile_128, avx_vnni::levels::direct::<levels::Tq2_0>;
    Q1_0 Block32 levels::pack::<levels::Q1_0, 128>, avx_vnni::tile_i8x32::tile_128, avx_vnni::levels::direct::<levels::Q1_0>;
    Q2_0 Block32 levels::pack::<levels::Q2_0, 128>, avx_vnni::tile_i8x32::tile_128, avx_vnni::levels::direct::<levels::Q2_0>;
    Nvfp4 Block16 levels::pack::<levels::Nvfp4, 128>, avx_vnni::tile_i8x32::tile_128_twice, avx_vnni::levels::direct::<levels::Nvfp4>;
    Q4K Super32Min avx2::superblock::q4_k, avx_vnni::tile_i8x256::tile_q45_k, avx_vnni::superblock::direct_q4_k, avx2::superblock::rows_q4_k;
    Q5K Super32Min avx2::superblock::q5_k, avx_vnni::tile_i8x256::tile_q45_k, avx_vnni::superblock::direct_q5_k, avx2::superblock::rows_q5_k;
    Q6K Super16 avx2::superblock::q6_k, avx_vnni::tile_i8x256::tile_q6_k, avx_vnni::superblock::direct_q6_k, avx2::superblock::rows_q6_k;
};

#[rustfmt::skip]
const AVX2: &[MatmulKernel] = rows! {
    Level::Avx2, "avx2/matmul";
    F32 F32Eights avx2::float_columns::pack_f32, avx2::float_columns::tile, avx2::float_columns::direct_f32, avx2::float_columns::rows_f32;
    F16 F32Eights avx2::float_columns::pack_f16, avx2::float_columns::tile, avx2::float_columns::direct_f16, avx2::float_columns::rows_f16;
    BF16 F32Eights avx2::float_columns::pack_bf16, avx2::float_columns::tile, avx2::float_columns::direct_bf16, avx2::float_columns::rows_bf16;
    Q4_0 Block32 avx2::block32::q4_0, avx2::tile_i8x32::tile_four, avx2::block32::direct_q4_0, avx2::block32::rows_q4_0;
    Q4_1 Block32Min avx2::block32::q4_1, avx2::tile_i8x32::tile_four_min, avx2::block32::direct_q4_1, avx2::block32::rows_q4_1;
    Q5_0 Block32 avx2::block32::q5_0, avx2::tile_i8x32::tile_five, avx2::block32::direct_q5_0, avx2::block32::rows_q5_0;
    Q5_1 Block32Min avx2::block32::q5_1, avx2::tile_i8x32::tile_five_min, avx2::block32::direct_q5_1, avx2::block32::rows_q5_1;
    Q8_0 Block32Wide avx2::block32::q8_0, avx2::tile_wide::tile, avx2::block32::direct_q8_0, avx2::block32::rows_q8_0;
    Q8_1 Block32Wide avx2::block32::q8_1, avx2::tile_wide::tile, avx2::block32::direct_q8_1, avx2::block32::rows_q8_1;
    Iq4Nl Block32Wide avx2::block32::iq4_nl, avx2::tile_wide::tile, avx2::block32::direct_iq4_nl, avx2::block32::rows_iq4_nl;
    Iq4Xs Block32Wide avx2::block32::iq4_xs, avx2::tile_wide::tile, avx2::block32::direct_iq4_xs, avx2::block32::rows_iq4_xs;
    Mxfp4 Block32 avx2::block32::mxfp4, avx2::tile_i8x32::tile_e2m1, avx2::block32::direct_mxfp4, avx2::block32::rows_mxfp4;
    Q4nx Block32Min avx2::q4nx::q4nx, avx2::tile_i8x32::tile_four_min, avx2::q4nx::direct_q4nx;
    Q4nxSub Block32Min avx2::q4nx::q4nx_sub, avx2::tile_i8x32::tile_four_min, avx2::q4nx::direct_q4nx_sub;
    Iq3Xxs Block32 levels::pack::<levels::Iq3Xxs, 64>, avx2::tile_i8x32::tile_seven, levels::direct::<levels::Iq3Xxs, 64>;
    Iq3S Block32 levels::pack::<levels::Iq3S, 16>, avx2::tile_i8x32::tile_five, levels::direct::<levels::Iq3S, 16>;
    Iq2Xxs Block32 levels::pack::<levels::Iq2Xxs, 64>, avx2::tile_i8x32::tile_seven, levels::direct::<levels::Iq2Xxs, 64>;
    Iq2Xs Block16 levels::pack::<levels::Iq2Xs, 64>, avx2::tile_i8x32::tile_seven_twice, levels::direct::<levels::Iq2Xs, 64>;
    Iq2S Block16 levels::pack::<levels::Iq2S, 64>, avx2::tile_i8x32::tile_seven_twice, levels::direct::<levels::Iq2S, 64>;
    Iq1S Block32 levels::pack::<levels::Iq1S, 12>, avx2::tile_i8x32::tile_e2m1, levels::direct::<levels::Iq1S, 12>;
    Iq1M Block16 levels::pack::<levels::Iq1M, 12>, avx2::tile_i8x32::tile_e2m1_twice, levels::direct::<levels::Iq1M, 12>;
    Tq1_0 Block32 levels::pack::<levels::Tq1_0, 12>, avx2::tile_i8x32::tile_e2m1, levels::direct::<levels::Tq1_0, 12>;
    Tq2_0 Block32 levels::pack::<levels::Tq2_0, 12>, avx2::tile_i8x32::tile_e2m1, levels::direct::<levels::Tq2_0, 12>;
    Q1_0 Block32 levels::pack::<levels::Q1_0, 12>, avx2::tile_i8x32::tile_e2m1, levels::direct::<levels::Q1_0, 12>;
    Q2_0 Block32 levels::pack::<levels::Q2_0, 12>, avx2::tile_i8x32::tile_e2m1, levels::direct::<levels::Q2_0, 12>;
    Nvfp4 Block16 levels::pack::<levels::Nvfp4, 12>, avx2::tile_i8x32::tile_e2m1_twice, levels::direct::<levels::Nvfp4, 12>;
    Q2K Super16Min avx2::superblock::q2_k, avx2::tile_i8x256::tile_q2_k, avx2::superblock::direct_q2_k, avx2::superblock::rows_q2_k;
    Q3K Super16 avx2::superblock::q3_k, avx2::tile_i8x256::tile_q3_k, avx2::superblock::direct_q3_k, avx2::superblock::rows_q3_k;
    Q4K Super32Min avx2::superblock::q4_k, avx2::tile_i8x256::tile_q4_k, avx2::superblock::direct_q4_k, avx2::superblock::rows_q4_k;
    Q5K Super32Min avx2::superblock::q5_k, avx2::tile_i8x256::tile_q5_k, avx2::superblock::direct_q5_k, avx2::superblock::rows_q5_k;
    Q6K Super16 avx2::superblock::q6_k, avx2::tile_i8x256::tile_q6_k, avx2::superblock::direct_q6_k, avx2::superblock::rows_q6_k;
};

const AVX2_DECODED: &[MatmulKernel] =
    &decoded_rows(Level::Avx2, "avx2/matmul_f32", avx2::tile_f32::tile);

/// All rows, the preferred first.
pub(super) const ROWS: [&[MatmulKernel]; 7] = [
    AMX,
    AVX512_BF16,
    AVX512,
    AVX512_DECODED,
    AVX_VNNI,
    AVX2,
    AVX2_DECODED,
];
