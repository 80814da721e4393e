//! The table of matrix-multiplication kernels: dispatch, tests and benches walk the same rows.

use crate::level::Level;
use crate::matmul::Layout;
use crate::matmul::panel::{DirectFn, PackFn, RowsFn, TileFn};
use crate::matmul::scalar;
use millrace_quant::DType;

#[cfg(target_arch = "x86_64")]
mod x86;

/// One way to multiply with weights of one format.
pub struct Kernel {
    /// `level/matmul/format`, or `level/matmul_f32/format` where weights are decoded to f32.
    pub name: &'static str,
    /// Storage format of the weights.
    pub dtype: DType,
    /// Instructions the functions need.
    pub level: Level,
    /// Form of the unpacked weights, which decides the form of the activations. Columns must be whole
    /// blocks of `dtype`; there are no other limits on shapes.
    pub layout: Layout,
    pub(crate) pack: PackFn,
    pub(crate) tile: TileFn,
    /// Replaces the two for a few tokens.
    pub(crate) direct: Option<DirectFn>,
    /// Replaces them for one token.
    pub(crate) rows: Option<RowsFn>,
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
        &[$(Kernel {
            name: concat!($name, "/matmul_f32/", $format),
            dtype: DType::$dtype,
            level: $level,
            layout: Layout::F32,
            pack: scalar::pack_f32,
            tile: $tile,
            direct: None,
            rows: None,
        }),*]
    };
}
#[cfg(target_arch = "x86_64")]
pub(crate) use decoded_rows;

/// Portable rows: every format.
const SCALAR: &[Kernel] = decoded_rows!(Level::Scalar, "scalar", scalar::tile_f32);

/// Every row this build has, the preferred first.
pub fn kernels() -> impl DoubleEndedIterator<Item = &'static Kernel> {
    #[cfg(target_arch = "x86_64")]
    let levels = x86::ROWS.iter().copied().chain([SCALAR]);
    #[cfg(not(target_arch = "x86_64"))]
    let levels = [SCALAR].into_iter();
    levels.flatten()
}

/// The row that a CPU of `level` uses for weights of `dtype`; `exact` asks for one that neither
/// rounds activations nor weights.
#[must_use]
pub fn pick(dtype: DType, level: Level, exact: bool) -> &'static Kernel {
    kernels()
        .find(|row| {
            row.dtype == dtype && level.includes(row.level) && (!exact || row.layout == Layout::F32)
        })
        .expect("the portable rows cover every format")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_format_has_a_row_at_every_level_and_names_are_unique() {
        for level in Level::ALL {
            for dtype in DType::all() {
                assert!(level.includes(pick(dtype, level, false).level));
                assert_eq!(pick(dtype, level, true).layout, Layout::F32);
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
