//! Rows of AMX.

use super::MatmulKernel;
use crate::level::Level;
use crate::matmul::PanelLayout;
use crate::matmul::panel::{DirectFn, PackFn, TileFn};
#[cfg(test)]
use crate::x86::amx::EmulatedUnit;
use crate::x86::amx::{Amx, bf16, planes};
use millrace_quant::DType;

/// Minimum number of tokens for tiles of bytes: below it, unpacking to tiles costs more than all of AVX-512's work.
/// `millrace hwbench -m 16,32,64` measures it; on an Emerald Rapids AVX-512 was 7 % faster for 32 tokens, tiles 4 to 10 % for 64.
const LEAST_TOKENS: usize = 64;

/// The rows of a unit, as if at a level.
macro_rules! rows_of_unit {
    ($unit:ident $level:expr, $stem:literal) => {
        rows_of_unit!(@each $unit $level, $stem,
            (Q2K Planes16Min planes::q2_k, planes::tile_16_min)
            (Q3K Planes planes::q3_k, planes::tile)
            (Q4K Planes32Min planes::q4_k, planes::tile_32_min)
            (Q5K Planes32Min planes::q5_k, planes::tile_32_min)
            (Q6K Planes planes::q6_k, planes::tile);
            (BF16 Bf16Tiles bf16::bf16, bf16::tile_bf16, bf16::direct_bf16)
            (F16 F16Tiles bf16::f16, bf16::tile_f16, bf16::direct_f16))
    };
    (@each $unit:ident $level:expr, $stem:literal,
        $(($dtype:ident $layout:ident $pack:path, $module:ident::$tile:ident))*;
        $(($float_dtype:ident $float_layout:ident $float_pack:path, $float_module:ident::$float_tile:ident, $direct:path))*
    ) => {
        &[
            $(MatmulKernel {
                stem: $stem,
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
                stem: $stem,
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

/// The rows of the processor's unit.
pub(super) const AMX: &[MatmulKernel] = rows_of_unit!(Amx Level::Amx, "amx/matmul");

/// The rows of the emulated unit, for tests: the rest of their instructions is AVX-512.
#[cfg(test)]
pub(crate) const EMULATED: &[MatmulKernel] =
    rows_of_unit!(EmulatedUnit Level::Avx512, "emulated_amx/matmul");
