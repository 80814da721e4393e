//! Rows of AMX.

use super::MatmulKernel;
use crate::level::Level;
use crate::matmul::PanelLayout;
use crate::matmul::panel::{DirectFn, PackFn, TileFn};
#[cfg(test)]
use crate::x86::amx::EmulatedUnit;
use crate::x86::amx::{Amx, bf16, bytes, planes};
use crate::x86::avx512::block32;
use millrace_quant::DType;

/// Fewest tokens for which tiles of bytes are taken: below, unpacking to tiles costs more than AVX-512 takes for all. Two tiles of tokens by
/// a count of instructions; `millrace hwbench -m 16,32,64` measures it.
const LEAST_TOKENS: usize = 32;

/// The rows of a unit, as if at a level.
macro_rules! rows_of_unit {
    ($unit:ident $level:expr, $prefix:literal) => {
        rows_of_unit!(@each $unit $level, $prefix,
            ("q4_0" Q4_0 Block32 block32::q4_0, bytes::tile)
            ("q4_1" Q4_1 Block32Min block32::q4_1, bytes::tile_min)
            ("q5_0" Q5_0 Block32 block32::q5_0, bytes::tile)
            ("q5_1" Q5_1 Block32Min block32::q5_1, bytes::tile_min)
            ("q8_0" Q8_0 Block32 block32::q8_0, bytes::tile)
            ("q8_1" Q8_1 Block32 block32::q8_1, bytes::tile)
            ("iq4_nl" Iq4Nl Block32 block32::iq4_nl, bytes::tile)
            ("mxfp4" Mxfp4 Block32 block32::mxfp4, bytes::tile)
            ("q4nx" Q4nx Block32Min block32::q4nx, bytes::tile_min)
            ("q4nx_sub" Q4nxSub Block32Min block32::q4nx_sub, bytes::tile_min)
            ("q2_k" Q2K Planes16Min planes::q2_k, planes::tile_16_min)
            ("q3_k" Q3K Planes planes::q3_k, planes::tile)
            ("q4_k" Q4K Planes32Min planes::q4_k, planes::tile_32_min)
            ("q5_k" Q5K Planes32Min planes::q5_k, planes::tile_32_min)
            ("q6_k" Q6K Planes planes::q6_k, planes::tile);
            ("bf16" BF16 Bf16Tiles bf16::bf16, bf16::tile_bf16, bf16::direct_bf16)
            ("f16" F16 F16Tiles bf16::f16, bf16::tile_f16, bf16::direct_f16))
    };
    (@each $unit:ident $level:expr, $prefix:literal,
        $(($format:literal $dtype:ident $layout:ident $pack:path, $module:ident::$tile:ident))*;
        $(($float_format:literal $float_dtype:ident $float_layout:ident $float_pack:path, $float_module:ident::$float_tile:ident, $direct:path))*
    ) => {
        &[
            $(MatmulKernel {
                name: concat!($prefix, "/matmul/", $format),
                dtype: DType::$dtype,
                level: $level,
                layout: PanelLayout::$layout,
                pack: $pack as PackFn,
                tile: $module::$tile::<$unit> as TileFn,
                direct: None,
                rows: None,
                least_tokens: LEAST_TOKENS,
            },)*
            $(MatmulKernel {
                name: concat!($prefix, "/matmul/", $float_format),
                dtype: DType::$float_dtype,
                level: $level,
                layout: PanelLayout::$float_layout,
                pack: $float_pack as PackFn,
                tile: $float_module::$float_tile::<$unit> as TileFn,
                direct: Some($direct as DirectFn),
                rows: None,
                least_tokens: 1,
            },)*
        ]
    };
}

/// Those of the processor's unit.
pub(super) const AMX: &[MatmulKernel] = rows_of_unit!(Amx Level::Amx, "amx");

/// Those of the emulated unit, for tests: what they need beside it is AVX-512.
#[cfg(test)]
pub(crate) const EMULATED: &[MatmulKernel] =
    rows_of_unit!(EmulatedUnit Level::Avx512, "emulated_amx");
