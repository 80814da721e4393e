//! Matrix multiplication with weights in any storage format: `out[m, n] = x[m, k] · W[n, k]ᵀ + bias`.
//!
//! Weights stay in the file's own layout, and there is no other copy. A thread unpacks sixteen rows
//! × a few hundred columns at a time into its scratch and multiplies them with all tokens. Each
//! pair of functions for that is a row of [`crate::table`].
//!
//! The bits of an output element depend on the element's row, the token's own activations, the
//! format, the level and the [`Precision`], never on the other tokens, rows or threads.

pub(crate) mod activations;
pub(crate) mod ahead;
mod cuts;
mod driver;
mod experts;
mod job;
pub(crate) mod panel;
pub(crate) mod quantize;
pub(crate) mod scalar;
pub(crate) mod scratch;
#[cfg(test)]
mod tests;

pub use activations::{Activations, Precision};
pub use experts::{ChosenProduct, GatherScratch, RowUse, matmul_chosen};
pub use panel::PanelLayout;

use crate::cpu::Cpu;
use crate::error::Error;
use crate::table::{self, MatmulKernel};
use millrace_quant::DType;

/// A weight matrix `[n, k]` in its storage format, row-major (tiles row-major where the format is tiled).
#[derive(Clone, Copy, Debug)]
pub struct WeightMatrix<'a> {
    dtype: DType,
    n: usize,
    k: usize,
    bytes: &'a [u8],
}

impl<'a> WeightMatrix<'a> {
    /// A matrix over `bytes`.
    ///
    /// # Errors
    /// [`Error::MatrixShape`] if the format cannot hold `[n, k]`, [`Error::MatrixBytes`] if `bytes` is not that long.
    pub fn new(
        dtype: DType,
        n: usize,
        k: usize,
        bytes: &'a [u8],
    ) -> Result<WeightMatrix<'a>, Error> {
        let expected = dtype
            .size_bytes(n, k)
            .ok_or(Error::MatrixShape { dtype, n, k })?;
        if bytes.len() != expected {
            return Err(Error::MatrixBytes {
                dtype,
                n,
                k,
                expected,
                found: bytes.len(),
            });
        }
        Ok(WeightMatrix { dtype, n, k, bytes })
    }

    /// Storage format.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Rows: outputs.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// Columns: inputs.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// The stored bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// One multiplication: a weight, a bias and where the result goes.
#[derive(Debug)]
pub struct Multiplication<'a> {
    /// `[n, k]`.
    pub weight: WeightMatrix<'a>,
    /// `[n]`, added once the sum is complete.
    pub bias: Option<&'a [f32]>,
    /// `[m, n]` f32, row-major; overwritten.
    pub out: &'a mut [f32],
}

/// Multiplies one input `x: [m, k]` f32, row-major, with each product's weight.
///
/// The input is converted once for all products, and one parallel region computes them all.
///
/// # Panics
/// If `x` is not `m` rows of each weight's `k`, `out` not `[m, n]`, or `bias` not `[n]`.
pub fn matmul(
    cpu: &Cpu,
    x: &[f32],
    m: usize,
    scratch: &mut Activations,
    products: &mut [Multiplication<'_>],
) {
    for product in products.iter() {
        check(x, m, product);
    }
    let exact = scratch.precision() == Precision::Exact;
    let choose = |dtype| table::pick(dtype, cpu.level(), m, exact);
    by_width(x, m, products, &mut |x, products| {
        for products in products.chunks_mut(driver::MAX_PRODUCTS) {
            driver::run(cpu, x, m, scratch, products, &choose);
        }
    });
}

/// Calls `run` with products whose weights are stored as wide as the input. That is one call with all of them, unless
/// tiles reach beyond the last column of some. Then there is one call for each width, with the input zero-padded to it.
fn by_width(
    x: &[f32],
    m: usize,
    products: &mut [Multiplication<'_>],
    run: &mut dyn FnMut(&[f32], &mut [Multiplication<'_>]),
) {
    let stored = |product: &Multiplication<'_>| product.weight.dtype.stored_width(product.weight.k);
    if products.iter().all(|p| stored(p) == p.weight.k) {
        return run(x, products);
    }
    let k = products.first().map_or(1, |p| p.weight.k);
    let mut widths: Vec<usize> = products.iter().map(stored).collect();
    widths.sort_unstable();
    widths.dedup();
    for width in widths {
        let of_width = products.iter_mut().filter(|p| stored(p) == width);
        let mut of_width: Vec<Multiplication<'_>> = of_width
            .map(|p| Multiplication {
                weight: WeightMatrix {
                    k: width,
                    ..p.weight
                },
                bias: p.bias,
                out: &mut *p.out,
            })
            .collect();
        let mut padded = vec![0.0; m * width];
        for (to, x) in padded.chunks_exact_mut(width).zip(x.chunks_exact(k)) {
            to[..k].copy_from_slice(x);
        }
        run(&padded, &mut of_width);
    }
}

/// [`matmul`] of one product with a row of the table instead of the dispatcher's pick, for benches and tests.
///
/// # Panics
/// As [`matmul`], and if `kernel` needs another format or a level that this CPU lacks.
pub fn matmul_with(
    cpu: &Cpu,
    kernel: &'static MatmulKernel,
    x: &[f32],
    m: usize,
    scratch: &mut Activations,
    product: &mut Multiplication<'_>,
) {
    assert!(
        kernel.level.is_supported(),
        "{} needs {}",
        kernel.name(),
        kernel.level
    );
    assert_eq!(kernel.dtype, product.weight.dtype, "{}", kernel.name());
    check(x, m, product);
    by_width(x, m, std::slice::from_mut(product), &mut |x, products| {
        driver::run(cpu, x, m, scratch, products, &|_| kernel);
    });
}

fn check(x: &[f32], m: usize, product: &Multiplication<'_>) {
    let WeightMatrix { n, k, .. } = product.weight;
    assert_eq!(x.len(), m * k, "x is [{m}, {k}]");
    assert_eq!(product.out.len(), m * n, "out is [{m}, {n}]");
    assert!(
        product.bias.is_none_or(|bias| bias.len() == n),
        "bias is [{n}]"
    );
}
