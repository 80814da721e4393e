//! Arguments of a call before there is data, and the checks that all rows share.

use super::TileWork;
use millrace_npu::Element;

/// Largest dimension of a tile kernel: far above the size of L1, so that products of two dimensions
/// cannot overflow.
pub const MAX_DIM: u32 = 1 << 24;

/// Dimensions and operands of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallShape<'a> {
    /// Dimensions fixed at compile time.
    pub dims: &'a [u32],
    /// Element type and number of elements of each operand, inputs first.
    pub operands: &'a [(Element, u64)],
    /// Number of scalars.
    pub n_scalars: usize,
    /// Constants, as bits of an `f32`.
    pub constants: &'a [u32],
}

impl CallShape<'_> {
    /// The dimensions, each from 1 to [`MAX_DIM`].
    pub(super) fn dims<const N: usize>(&self, names: [&str; N]) -> Result<[u64; N], String> {
        let Ok(dims) = <[u32; N]>::try_from(self.dims) else {
            return Err(format!(
                "needs dimensions [{}], {:?} given",
                names.join(", "),
                self.dims
            ));
        };
        for (name, dim) in names.iter().zip(dims) {
            if dim == 0 || dim > MAX_DIM {
                return Err(format!("{name} must be 1 to {MAX_DIM}, it is {dim}"));
            }
        }
        Ok(dims.map(u64::from))
    }

    /// The numbers of scalars and constants.
    pub(super) fn extras(&self, n_scalars: usize, n_constants: usize) -> Result<(), String> {
        let of = |what: &str, expected: usize, found: usize| {
            if expected == found {
                return Ok(());
            }
            Err(format!("needs {expected} {what}, {found} given"))
        };
        of("scalars", n_scalars, self.n_scalars)?;
        of("constants", n_constants, self.constants.len())
    }

    /// Names, types and numbers of elements of all operands.
    pub(super) fn operands(&self, expected: &[(&str, Element, u64)]) -> Result<(), String> {
        if expected.len() != self.operands.len() {
            let names: Vec<&str> = expected.iter().map(|e| e.0).collect();
            return Err(format!(
                "needs {} operands ({}), {} given",
                expected.len(),
                names.join(", "),
                self.operands.len()
            ));
        }
        for (&(name, element, n), &(found_element, found_n)) in expected.iter().zip(self.operands) {
            if (element, n) != (found_element, found_n) {
                return Err(format!(
                    "operand {name} must have {n} elements of {element}, it has {found_n} of {found_element}"
                ));
            }
        }
        Ok(())
    }
}

/// A dimension must be a multiple of the vector unit's blocks.
pub(super) fn multiple_of_8(names: &[&str], dims: &[u64]) -> Result<(), String> {
    for (name, dim) in names.iter().zip(dims) {
        if !dim.is_multiple_of(8) {
            return Err(format!("{name} must be a multiple of 8, it is {dim}"));
        }
    }
    Ok(())
}

/// Dimension `i`, or 0 if it is missing.
pub(super) fn dim(dims: &[u32], i: usize) -> u64 {
    dims.get(i).copied().map_or(0, u64::from)
}

/// Product, saturating.
pub(super) fn product(factors: &[u64]) -> u64 {
    factors
        .iter()
        .fold(1, |product: u64, &factor| product.saturating_mul(factor))
}

/// Work from its parts; `bytes` is a sum of products.
pub(super) fn work(macs: &[u64], elements: &[u64], bytes: &[&[u64]]) -> TileWork {
    let part = |factors: &[u64]| {
        if factors.is_empty() {
            0
        } else {
            product(factors)
        }
    };
    TileWork {
        macs: part(macs),
        elements: part(elements),
        bytes: bytes
            .iter()
            .fold(0, |sum: u64, factors| sum.saturating_add(product(factors))),
    }
}
