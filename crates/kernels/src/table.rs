//! The table of matrix-multiplication kernels: dispatch, tests and benches walk the same rows.

use crate::level::Level;
use crate::matmul::PanelLayout;
use crate::matmul::panel::{DirectFn, PackFn, RowsFn, TileFn};
use crate::matmul::scalar;
use millrace_quant::DType;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) use amx::EMULATED;

/// One way to multiply with weights of one format.
pub struct MatmulKernel {
    /// `level/matmul/format`, or `level/matmul_f32/format` where weights are decoded to f32.
    pub name: &'static str,
    /// Storage format of the weights.
    pub dtype: DType,
    /// Instructions the functions need.
    pub level: Level,
    /// Form of the unpacked weights, which decides the form of the activations. Columns must be whole
    /// blocks of `dtype`; there are no other limits on shapes.
    pub layout: PanelLayout,
    pub(crate) pack: PackFn,
    pub(crate) tile: TileFn,
    /// Replaces the two for a few tokens.
    pub(crate) direct: Option<DirectFn>,
    /// Replaces them for one token.
    pub(crate) rows: Option<RowsFn>,
    /// Fewest tokens for which the dispatcher takes the row. Rows that share a format, a level and this limit's other side compute the
    /// same bits, so the choice shows in nothing but speed.
    pub least_tokens: usize,
}

/// Rows of one level for every format, decoding to f32.
macro_rules! decoded_rows {
    ($level:expr, $name:literal, $tile:expr) => {
        decoded_rows!(@each $level, $name, $tile,
            (F32 "f32") (F16 "f16") (BF16 "bf16") (Q4_0 "q4_0") (Q4_1 "q4_1") (Q5_0 "q5_0")
            (Q5_1 "q5_1") (Q8_0 "q8_0") (Q8_1 "q8_1") (Q2K "q2_k") (Q3K "q3_k") (Q4K "q4_k")
            (Q5K "q5_k") (Q6K "q6_k") (Q8K "q8_k") (Iq4Nl "iq4_nl") (Mxfp4 "mxfp4")
            (Q4nx "q4nx") (Q4nxSub "q4nx_sub"))
    };
    (@each $level:expr, $name:literal, $tile:expr, $(($dtype:ident $format:literal))*) => {
        &[$(MatmulKernel {
            name: concat!($name, "/matmul_f32/", $format),
            dtype: DType::$dtype,
            level: $level,
            layout: PanelLayout::F32,
            pack: scalar::pack_f32,
            tile: $tile,
            direct: None,
            rows: None,
            least_tokens: 1,
        }),*]
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use decoded_rows;

/// Portable rows: every format.
const SCALAR: &[MatmulKernel] = decoded_rows!(Level::Scalar, "scalar", scalar::tile_f32);

/// Every row this build has, the preferred first.
pub fn kernels() -> impl DoubleEndedIterator<Item = &'static MatmulKernel> {
    #[cfg(target_arch = "x86_64")]
    let levels = x86::ROWS.iter().copied().chain([SCALAR]);
    #[cfg(target_arch = "aarch64")]
    let levels = aarch64::ROWS.iter().copied().chain([SCALAR]);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let levels = [SCALAR].into_iter();
    levels.flatten()
}

/// The row that a CPU of `level` uses for weights of `dtype` and `m` tokens; `exact` asks for one that neither
/// rounds activations nor weights.
#[must_use]
pub fn pick(dtype: DType, level: Level, m: usize, exact: bool) -> &'static MatmulKernel {
    kernels()
        .find(|row| {
            row.dtype == dtype
                && level.includes(row.level)
                && m >= row.least_tokens
                && (!exact || row.layout == PanelLayout::F32)
        })
        .expect("the portable rows cover every format")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Switching by the number of tokens must not show in results: both rows round alike, so both multiply whole numbers.
    #[test]
    fn rows_for_many_tokens_only_are_exact() {
        for row in kernels().filter(|row| row.least_tokens > 1) {
            let few = pick(row.dtype, row.level, 1, false);
            assert_eq!(few.layout.input(), row.layout.input(), "{}", row.name);
            let is_exact = !matches!(
                row.layout,
                PanelLayout::F32 | PanelLayout::Bf16Tiles | PanelLayout::F16Tiles
            );
            assert!(is_exact, "{}", row.name);
        }
    }

    #[test]
    fn every_format_has_a_row_at_every_level_and_names_are_unique() {
        for level in Level::ALL {
            for dtype in DType::all() {
                for m in [1, 512] {
                    assert!(level.includes(pick(dtype, level, m, false).level));
                    assert_eq!(pick(dtype, level, m, true).layout, PanelLayout::F32);
                }
            }
        }
        let names: HashSet<_> = kernels().map(|row| row.name).collect();
        assert_eq!(names.len(), kernels().count());
        for row in kernels() {
            assert!(
                row.name.ends_with(&format!("/{}", row.dtype)),
                "{}",
                row.name
            );
            let prefix = format!("{}/", row.level);
            assert!(row.name.starts_with(&prefix), "{}", row.name);
        }
    }
}
