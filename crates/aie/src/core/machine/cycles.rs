//! Cycles of instructions, for models of time.

use super::State;
use crate::core::code::Instruction as I;
use crate::core::kernel::Kernel;
use crate::core::tile_kernel::TileFunction;
use crate::core::value::MemoryView;
use millrace_xdna2_machine::Profile;

/// Bytes that a core loads or stores in a cycle.
const VECTOR_BYTES: i64 = 64;
/// The object code whose rate products of other files are charged at.
const PRODUCTS: &str = "matmul_bf16_f32.peano";

impl State {
    /// Clock cycles of an instruction: one, except for kernels. Instructions that only name things take none.
    pub(super) fn cycles(&self, instruction: &I, profile: &Profile) -> u64 {
        match instruction {
            I::Call(kernel, from) => self.kernel_cycles(kernel, from, profile),
            I::CallTile(function, from) => self.tile_cycles(function, from, profile),
            I::Constant(..) | I::Copy(..) | I::Object(..) | I::Allocate(..) | I::End => 0,
            I::View(..) | I::Reshape(..) | I::Dimension(..) => 0,
            // A compiler leaves out most copies of tensors.
            I::Scratch(..) | I::TakeTensor(..) | I::PutTensor(..) => 0,
            // Locks have a separate constant.
            I::Acquire(..) | I::Release(..) => 0,
            I::AcquireObjects(..) | I::ReleaseObjects(..) => 0,
            _ => 1,
        }
    }

    fn tile_cycles(&self, function: &TileFunction, from: &[usize], profile: &Profile) -> u64 {
        let scalars = from.iter().skip(function.n_operands());
        let scalars: Vec<i64> = scalars
            .map(|&slot| self.slots[slot].integer().unwrap_or(0))
            .collect();
        function.cycles(&scalars, profile)
    }

    /// A kernel of another file: its operands once through the core, products at the rate of a GEMM.
    fn kernel_cycles(&self, kernel: &Kernel, from: &[usize], profile: &Profile) -> u64 {
        let views: Vec<&MemoryView> = from
            .iter()
            .filter_map(|&slot| self.slots[slot].view().ok())
            .collect();
        let bytes = views
            .iter()
            .map(|view| view.n_elements().saturating_mul(view.number.bytes() as i64));
        let moves = bytes.fold(0i64, i64::saturating_add) / VECTOR_BYTES;
        let macs = match &views[..] {
            // For matrices m x k, k x n and m x n it is the root of the product of their sizes.
            [a, b, c] if kernel.is_product() => {
                let sizes = [a, b, c].map(|view| view.n_elements() as f64);
                sizes.iter().product::<f64>().sqrt()
            }
            _ => 0.0,
        };
        let rate = profile.kernel(PRODUCTS).map_or(0.0, |of| of.macs_per_cycle);
        let products = if rate > 0.0 { macs / rate } else { 0.0 };
        (moves.max(0) as f64).max(products) as u64
    }
}
