//! Tile kernels: the computations of a core in one call, with shapes, cost and numerics.
//!
//! [`TABLE`] has a row for each kernel *object*. A name with a dot is a variant of object code. It computes the same as
//! the others of its stem (or says how it differs), and a profile has separate cycles for it. Operands are inputs, then
//! outputs; an operand that is read and written is an output.
//!
//! # Layouts
//! Matrices of the vector units are cut into 8 × 8 blocks, and within the tile a block column is
//! contiguous. For `C[m, n] += A[m, k] · B[k, n]`:
//!
//! | operand | element | order of dimensions |
//! |---|---|---|
//! | A | bf16 | `[k/8][m/8][8 m][8 k]` |
//! | B | bf16 | `[n/8][k/8][8 k][8 n]` |
//! | C | f32 | `[n/8][m/8][8 m][8 n]` |
//! | Bᵀ | bf16 | `[k/8][n/8][8 n][8 k]` |
//!
//! Products of 8-bit integers have A and Bᵀ of i8 and C of i32 in the same order.
//!
//! So the C of one product, rounded to bf16, is the A of the next, as flash attention needs.
//!
//! # Numerics
//! Elements are bf16, sums are f32, and every rounding to bf16 is to nearest, ties to even, unless a
//! row says otherwise. A result that is not a number is the canonical one (`0x7fc0`, `0x7fc00000`).
//! Results are the same bits on every machine.

mod attention;
mod bfp16;
mod cached;
mod delta;
mod elementwise;
mod flow;
mod integer;
mod math;
mod matmul;
mod norm;
mod part;
mod q4nx;
mod rope;
mod shape;
mod symbol;
mod table;
#[cfg(test)]
mod tests;
mod token;

pub use shape::{CallShape, MAX_DIM};
pub use symbol::KernelInstance;
pub use table::TABLE;

use millrace_kernels::Cpu;
use millrace_npu::Element;

/// A row of the table.
pub struct TileKernel {
    /// Name, also of the object code.
    pub name: &'static str,
    /// Its computation, dimensions, operands, scalars and constants.
    pub summary: &'static str,
    /// Number of operands that are only read.
    pub inputs: usize,
    /// Number of operands that are written, after the inputs.
    pub outputs: usize,
    /// Checks dimensions, types and sizes of operands, numbers of scalars and constants.
    pub check: fn(&CallShape<'_>) -> Result<(), String>,
    /// Work of a call, which its cost is charged on. Takes any numbers; saturates.
    pub work: fn(dims: &[u32], scalars: &[i64]) -> TileWork,
    /// Computes. The call must have passed `check` and its buffers be aligned for their elements,
    /// as [`TileKernel::call`] ensures.
    pub run: fn(&mut TileCall<'_>),
}

/// Work of a call, in units that a profile has rates for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TileWork {
    /// Multiply-accumulates of the matrix or vector unit.
    pub macs: u64,
    /// Elements that pass through an element-wise loop (0 for pure products).
    pub elements: u64,
    /// Bytes of all operands: the least traffic with L1.
    pub bytes: u64,
}

/// The arguments of one call.
pub struct TileCall<'a> {
    /// Threads and instruction set of the host. Kernels run on the calling thread.
    pub cpu: &'a Cpu,
    /// Dimensions.
    pub dims: &'a [u32],
    /// Operands that are only read.
    pub inputs: Vec<&'a [u8]>,
    /// Operands that are written.
    pub outputs: Vec<&'a mut [u8]>,
    /// Scalars computed by the core.
    pub scalars: &'a [i64],
    /// Constants compiled in, as bits of an `f32`.
    pub constants: &'a [u32],
}

impl TileKernel {
    /// Checks and computes. `elements` are the types of all operands, inputs first.
    ///
    /// # Errors
    /// A refusal of [`check`](TileKernel::check), and buffers that are not aligned for their elements.
    pub fn call(&self, elements: &[Element], call: &mut TileCall<'_>) -> Result<(), String> {
        let lengths = (call.inputs.iter().map(|bytes| bytes.len()))
            .chain(call.outputs.iter().map(|bytes| bytes.len()));
        if lengths.clone().count() != elements.len() {
            let found = lengths.count();
            return Err(format!(
                "{found} buffers for {} element types",
                elements.len()
            ));
        }
        let operands: Vec<(Element, u64)> = elements
            .iter()
            .zip(lengths)
            .map(|(&element, bytes)| (element, bytes as u64 / element.size_bytes()))
            .collect();
        (self.check)(&CallShape {
            dims: call.dims,
            operands: &operands,
            n_scalars: call.scalars.len(),
            constants: call.constants,
        })?;
        let starts = (call.inputs.iter().map(|bytes| bytes.as_ptr()))
            .chain(call.outputs.iter().map(|bytes| bytes.as_ptr()));
        let aligned = |(start, element): (*const u8, &Element)| {
            (start as usize).is_multiple_of(element.size_bytes() as usize)
        };
        if !starts.zip(elements).all(aligned) {
            return Err("a buffer is not aligned for its elements".to_owned());
        }
        (self.run)(call);
        Ok(())
    }
}

/// The kernel of that name.
pub fn find(name: &str) -> Option<&'static TileKernel> {
    TABLE.iter().find(|kernel| kernel.name == name)
}
