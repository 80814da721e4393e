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
#[derive(Clone, Copy)]
pub struct MatmulKernel {
    /// `level/matmul`, or `level/matmul_f32` where weights of any format are decoded to f32.
    pub(crate) stem: &'static str,
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
    /// Minimum number of tokens for which the dispatcher picks the row. Below it another row with the same format and level computes
    /// the same bits, so the choice affects only speed.
    pub least_tokens: usize,
}

impl MatmulKernel {
    /// `level/matmul/format`, or `level/matmul_f32/format` where weights are decoded to f32.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.stem, self.dtype)
    }
}

/// Rows of one level for every format, decoding to f32. Specialised kernels of a format precede them.
const fn decoded_rows(
    level: Level,
    stem: &'static str,
    tile: TileFn,
) -> [MatmulKernel; DType::ALL.len()] {
    let row = MatmulKernel {
        stem,
        dtype: DType::ALL[0],
        level,
        layout: PanelLayout::F32,
        pack: scalar::pack_f32,
        tile,
        direct: None,
        rows: None,
        least_tokens: 1,
    };
    let mut rows = [row; DType::ALL.len()];
    let mut i = 0;
    while i < rows.len() {
        rows[i].dtype = DType::ALL[i];
        i += 1;
    }
    rows
}

/// Portable rows: every format.
const SCALAR: &[MatmulKernel] = &decoded_rows(Level::Scalar, "scalar/matmul_f32", scalar::tile_f32);

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

/// The row that a CPU of `level` uses for weights of `dtype` and `m` tokens. With `exact`, a row that rounds
/// neither activations nor weights.
#[must_use]
pub fn pick(dtype: DType, level: Level, m: usize, exact: bool) -> &'static MatmulKernel {
    kernels()
        .find(|row| {
            row.dtype == dtype
                && level.includes(row.level)
                && m >= row.least_tokens
                && (!exact || row.layout.is_f32())
        })
        .expect("the portable rows cover every format")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Switching by the number of tokens must not show in results. Both rows round in the same way, so both multiply whole numbers.
    #[test]
    fn rows_for_many_tokens_only_are_exact() {
        for row in kernels().filter(|row| row.least_tokens > 1) {
            let few = pick(row.dtype, row.level, 1, false);
            assert_eq!(few.layout.input(), row.layout.input(), "{}", row.name());
            let is_exact = !matches!(
                row.layout,
                PanelLayout::F32
                    | PanelLayout::F32Columns
                    | PanelLayout::F32Eights
                    | PanelLayout::Bf16Columns
                    | PanelLayout::Bf16Tiles
                    | PanelLayout::F16Tiles
            );
            assert!(is_exact, "{}", row.name());
        }
    }

    #[test]
    fn every_format_has_a_row_at_every_level_and_names_are_unique() {
        for level in Level::ALL {
            for dtype in DType::all() {
                for m in [1, 512] {
                    assert!(level.includes(pick(dtype, level, m, false).level));
                    assert!(pick(dtype, level, m, true).layout.is_f32());
                }
            }
        }
        let names: HashSet<_> = kernels().map(|row| row.name()).collect();
        assert_eq!(names.len(), kernels().count());
        for row in kernels() {
            let prefix = format!("{}/", row.level);
            assert!(row.name().starts_with(&prefix), "{}", row.name());
        }
    }

    /// Names are in users' scripts and in tables.
    #[test]
    fn names_say_level_arithmetic_and_format() {
        let names = [DType::Q4_0, DType::BF16]
            .map(|dtype| [false, true].map(|exact| pick(dtype, Level::Scalar, 1, exact).name()));
        assert_eq!(names[0][0], "scalar/matmul_f32/q4_0");
        assert_eq!(names[1][1], "scalar/matmul_f32/bf16");
        for row in kernels() {
            let arithmetic = row.name().split('/').nth(1).map(str::to_owned);
            let is_decoded = arithmetic.as_deref() == Some("matmul_f32");
            assert!(is_decoded || arithmetic.as_deref() == Some("matmul"));
            assert!(
                !is_decoded || row.layout == PanelLayout::F32,
                "{}",
                row.name()
            );
            assert_eq!(row.name().rsplit('/').next(), Some(row.dtype.name()));
        }
    }
}
