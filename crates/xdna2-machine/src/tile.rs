//! Tile kernels: what a core computes in one call, with shapes, cost and numerics.
//!
//! [`TABLE`] has a row for each kernel *object*: a name with a dot is a variant of object code that
//! computes the same as the others of its stem (or says how it differs) and has cycles of its own in
//! a profile. Operands are inputs, then outputs; an operand that is read and written is an output.
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
mod elementwise;
mod integer;
mod math;
mod matmul;
mod norm;
mod part;
mod q4nx;
mod rope;
mod shape;
#[cfg(test)]
mod tests;

pub use shape::{MAX_DIM, Shape};

use millrace_kernels::Cpu;
use millrace_npu::Element;

/// A row of the table.
pub struct TileKernel {
    /// Name, also of the object code.
    pub name: &'static str,
    /// What it computes, its dimensions, operands, scalars and constants.
    pub summary: &'static str,
    /// Number of operands that are only read.
    pub inputs: usize,
    /// Number of operands that are written, after the inputs.
    pub outputs: usize,
    /// Checks dimensions, types and sizes of operands, numbers of scalars and constants.
    pub check: fn(&Shape<'_>) -> Result<(), String>,
    /// What the cost of a call is charged on. Takes any numbers; saturates.
    pub work: fn(dims: &[u32], scalars: &[i64]) -> Work,
    /// Computes. The call must have passed `check` and its buffers be aligned for their elements,
    /// as [`TileKernel::call`] ensures.
    pub run: fn(&mut Call<'_>),
}

/// What a call costs, in units that a profile has rates for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Multiply-accumulates of the matrix or vector unit.
    pub macs: u64,
    /// Elements that pass through an element-wise loop (0 for pure products).
    pub elements: u64,
    /// Bytes of all operands: the least traffic with L1.
    pub bytes: u64,
}

/// The arguments of one call.
pub struct Call<'a> {
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
    /// What [`check`](TileKernel::check) refuses, and buffers that are not aligned for their
    /// elements.
    pub fn call(&self, elements: &[Element], call: &mut Call<'_>) -> Result<(), String> {
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
        (self.check)(&Shape {
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

const fn row(
    name: &'static str,
    summary: &'static str,
    (inputs, outputs): (usize, usize),
    check: fn(&Shape<'_>) -> Result<(), String>,
    work: fn(&[u32], &[i64]) -> Work,
    run: fn(&mut Call<'_>),
) -> TileKernel {
    TileKernel {
        name,
        summary,
        inputs,
        outputs,
        check,
        work,
        run,
    }
}

const MATMUL_BT_F32: &str = "C += A·B, the 8 × 8 blocks of B transposed in registers; [m, n, k]; A, Bᵀ bf16 → C f32 (in and out), blocked";
const MATMUL_BFP16: &str =
    "C += A·B through block floating point; [m, n, k]; A, B bf16 → C f32 (in and out), blocked";
const MATMUL_BT_BFP16: &str = "C += A·B through block floating point, B transposed; [m, n, k]; A, Bᵀ bf16 → C f32 (in and out), blocked";
const MATMUL_F32: &str = "C += A·B; [m, n, k]; A, B bf16 → C f32 (in and out), blocked";

const ATTEND: &str = "one tile of keys and values into the state, keys beyond a query, out of its window or before the first that counts masked; [tq, tk, d, group, span]; Q, block [2, tk, d], at [8] → P (scratch), state (in and out); scalars k0, k1 (modulo span), q0, window; constant scale";

/// Every tile kernel.
pub const TABLE: &[TileKernel] = &[
    row(
        "zero_f32",
        "y = 0; [n]; → y f32",
        (0, 1),
        elementwise::check_zero_f32,
        elementwise::work_zero_f32,
        elementwise::zero,
    ),
    row(
        "zero_bf16",
        "y = 0; [n]; → y bf16",
        (0, 1),
        elementwise::check_zero_bf16,
        elementwise::work_zero_bf16,
        elementwise::zero,
    ),
    row(
        "copy_bf16",
        "y = x; [n]; x → y bf16",
        (1, 1),
        elementwise::check_unary,
        elementwise::work_unary,
        elementwise::copy,
    ),
    row(
        "matmul_bf16_f32.peano",
        MATMUL_F32,
        (2, 1),
        matmul::check_f32,
        matmul::work_f32,
        matmul::run_f32,
    ),
    row(
        "matmul_bf16_f32.chess",
        MATMUL_F32,
        (2, 1),
        matmul::check_f32,
        matmul::work_f32,
        matmul::run_f32,
    ),
    row(
        "matmul_bf16_f32.flm",
        MATMUL_F32,
        (2, 1),
        matmul::check_f32,
        matmul::work_f32,
        matmul::run_f32,
    ),
    row(
        "matmul_bf16_f32.direct",
        MATMUL_F32,
        (2, 1),
        matmul::check_f32,
        matmul::work_f32,
        matmul::run_f32,
    ),
    row(
        "matmul_bt_bf16_f32.peano",
        MATMUL_BT_F32,
        (2, 1),
        matmul::check_f32,
        matmul::work_f32,
        matmul::run_bt_f32,
    ),
    row(
        "matmul_bt_bf16_f32.direct",
        MATMUL_BT_F32,
        (2, 1),
        matmul::check_f32,
        matmul::work_f32,
        matmul::run_bt_f32,
    ),
    row(
        "matmul_bf16_bf16.direct",
        "C = trunc(C + A·B), C truncated to bf16 once a call; [m, n, k]; A, B bf16 → C bf16 (in and out), blocked",
        (2, 1),
        matmul::check_bf16,
        matmul::work_bf16,
        matmul::run_bf16,
    ),
    row(
        "matmul_bfp16_f32.peano",
        MATMUL_BFP16,
        (2, 1),
        matmul::check_f32,
        matmul::work_f32,
        bfp16::run_f32,
    ),
    row(
        "matmul_bfp16_f32.chess",
        MATMUL_BFP16,
        (2, 1),
        matmul::check_f32,
        matmul::work_f32,
        bfp16::run_f32,
    ),
    row(
        "matmul_bfp16_f32.flm",
        MATMUL_BFP16,
        (2, 1),
        matmul::check_f32,
        matmul::work_f32,
        bfp16::run_f32,
    ),
    row(
        "matmul_bfp16_f32.direct",
        MATMUL_BFP16,
        (2, 1),
        matmul::check_f32,
        matmul::work_f32,
        bfp16::run_f32,
    ),
    row(
        "matmul_bt_bfp16_f32.peano",
        MATMUL_BT_BFP16,
        (2, 1),
        matmul::check_f32,
        matmul::work_f32,
        bfp16::run_bt_f32,
    ),
    row(
        "matmul_bt_bfp16_f32.direct",
        MATMUL_BT_BFP16,
        (2, 1),
        matmul::check_f32,
        matmul::work_f32,
        bfp16::run_bt_f32,
    ),
    row(
        "matmul_bfp16_bf16.direct",
        "matmul_bf16_bf16 through block floating point; [m, n, k]; A, B bf16 → C bf16 (in and out), blocked",
        (2, 1),
        matmul::check_bf16,
        matmul::work_bf16,
        bfp16::run_bf16,
    ),
    row(
        "cast_f32_bf16",
        "y = bf16(x), to nearest even; [n]; x f32 → y bf16",
        (1, 1),
        elementwise::check_narrow,
        elementwise::work_narrow,
        elementwise::cast_f32_bf16,
    ),
    row(
        "truncate_f32_bf16",
        "y = bf16(x), towards zero (what `direct` stores); [n]; x f32 → y bf16",
        (1, 1),
        elementwise::check_narrow,
        elementwise::work_narrow,
        elementwise::truncate_f32_bf16,
    ),
    row(
        "truncate_f32",
        "x = bf16(x), towards zero, kept as f32; [n]; → x f32 (in and out)",
        (0, 1),
        part::check_truncate,
        part::work_truncate,
        part::truncate_f32,
    ),
    row(
        "cast_part_f32_bf16",
        "y = bf16(x[first ..]), to nearest even; [n, total]; x f32 [total] → y bf16 [n]; scalar first",
        (1, 1),
        part::check_cast,
        part::work_cast,
        part::cast,
    ),
    row(
        "cast_bf16_f32",
        "y = x; [n]; x bf16 → y f32",
        (1, 1),
        elementwise::check_widen,
        elementwise::work_narrow,
        elementwise::cast_bf16_f32,
    ),
    row(
        "add_f32",
        "y = a + b; [n]; a, b f32 → y f32",
        (2, 1),
        elementwise::check_binary_f32,
        elementwise::work_binary_f32,
        elementwise::add_f32,
    ),
    row(
        "matmul_bt_i8_i32",
        "C += A·B of integers, exact, B transposed; [m, n, k]; A, Bᵀ i8 → C i32 (in and out), blocked",
        (2, 1),
        integer::check_matmul,
        integer::work_matmul,
        integer::matmul_bt,
    ),
    row(
        "zero_i32",
        "y = 0; [n]; → y i32",
        (0, 1),
        integer::check_zero,
        elementwise::work_zero_f32,
        elementwise::zero,
    ),
    row(
        "copy_part_i32",
        "y = x[first ..]; [n, total]; x i32 [total] → y i32 [n]; scalar first",
        (1, 1),
        integer::check_copy_part,
        integer::work_copy_part,
        integer::copy_part,
    ),
    row(
        "copy_i8",
        "y = x; [n]; x → y i8",
        (1, 1),
        integer::check_copy,
        integer::work_copy,
        elementwise::copy,
    ),
    row(
        "matvec_part_i8_i32",
        "y[first ..] = W·x of integers, exact; [m, k, total]; W i8 [m, k], x i8 → y i32 [total]; scalar first",
        (2, 1),
        integer::check_matvec,
        integer::work_matvec,
        integer::matvec_part,
    ),
    row(
        "matvec_bf16_f32",
        "y = W·x in 64 partial sums; [m, k]; W bf16 [m, k], x bf16 → y f32",
        (2, 1),
        matmul::check_matvec_f32,
        matmul::work_matvec_f32,
        matmul::run_matvec_f32,
    ),
    row(
        "matvec_bf16_bf16",
        "y = W·x in 64 partial sums; [m, k]; W bf16 [m, k], x bf16 → y bf16",
        (2, 1),
        matmul::check_matvec_bf16,
        matmul::work_matvec_bf16,
        matmul::run_matvec_bf16,
    ),
    row(
        "matvec_part_bf16_bf16",
        "y[first ..] = W·x in 64 partial sums; [m, k, total]; W bf16 [m, k], x bf16 → y bf16 [total]; scalar first",
        (2, 1),
        part::check_matvec,
        part::work_matvec,
        part::matvec,
    ),
    row(
        "q4nx_take_bf16",
        "elements first .. of a vector and the sums of their groups of 32, all else zero at first = 0; [n, total]; x [n] → v [total, then total/32 sums] (in and out); scalar first",
        (1, 1),
        q4nx::check_take,
        q4nx::work_take,
        q4nx::take,
    ),
    row(
        "q4nx_project_bf16",
        "y = sums += W·v of a block of 4-bit weights, from zero at step 0; [total]; W u8 [5120], v as taken → sums f32 [32] (in and out), y bf16 [32]; scalar step",
        (2, 2),
        q4nx::check_project,
        q4nx::work_project,
        q4nx::project,
    ),
    row(
        "q4nx_expand_bf16",
        "columns first .. of a block of 4-bit weights as bf16; [columns]; W u8 [5120] → Bᵀ [columns, 32], blocked; scalar first",
        (1, 1),
        q4nx::check_expand,
        q4nx::work_expand,
        q4nx::expand,
    ),
    row(
        "rmsnorm_bf16",
        "y = x / √(mean(x²) + ε) · γ by row; [rows, cols]; x, γ [cols] → y bf16; constant ε",
        (2, 1),
        norm::check_rms,
        norm::work_rms,
        norm::rms,
    ),
    row(
        "layernorm_bf16",
        "y = (x − mean) / √(variance + ε) · γ + β by row; [rows, cols]; x, γ [cols], β [cols] → y bf16; constant ε",
        (3, 1),
        norm::check_layer,
        norm::work_layer,
        norm::layer,
    ),
    row(
        "rope_halfsplit_bf16",
        "rotates (x[i], x[i + d/2]) by row; [rows, d]; x, table (cos | sin a row) → y bf16",
        (2, 1),
        rope::check,
        rope::work,
        rope::run,
    ),
    row(
        "add_bf16",
        "y = a + b; [n]; a, b → y bf16",
        (2, 1),
        elementwise::check_binary,
        elementwise::work_binary,
        elementwise::add,
    ),
    row(
        "silu_mul_bf16",
        "y = SiLU(gate) · up; [n]; gate, up → y bf16",
        (2, 1),
        elementwise::check_binary,
        elementwise::work_binary,
        elementwise::silu_mul,
    ),
    row(
        "gelu_mul_bf16",
        "y = GELU(gate) · up, tanh form; [n]; gate, up → y bf16",
        (2, 1),
        elementwise::check_binary,
        elementwise::work_binary,
        elementwise::gelu_mul,
    ),
    row(
        "gelu_bf16",
        "y = GELU(x), tanh form; [n]; x → y bf16",
        (1, 1),
        elementwise::check_unary,
        elementwise::work_unary,
        elementwise::gelu,
    ),
    row(
        "fa_take_bf16",
        "queries first .. of a block of more; [tq, total, d]; block [total, d] → Q; scalar first",
        (1, 1),
        attention::check_take,
        attention::work_take,
        attention::take,
    ),
    row(
        "fa_init_bf16",
        "empty state; [tq, dv]; → state",
        (0, 1),
        attention::check_init,
        attention::work_init,
        attention::init,
    ),
    row(
        "fa_scores_bf16",
        "S = Q·Kᵀ, −∞ where k0 + key > q0 + query, or beyond a window; [tq, tk, d]; Q, K → S; scalars q0, k0, a window or none",
        (2, 1),
        attention::check_scores,
        attention::work_scores,
        attention::scores,
    ),
    row(
        "fa_scores_add_bf16",
        "S += Q·Kᵀ for a further part of d, masked alike; [tq, tk, d]; Q, K → S (in and out); scalars q0, k0",
        (2, 1),
        attention::check_scores,
        attention::work_scores,
        attention::scores_add,
    ),
    row(
        "fa_softmax_bf16",
        "P = exp(scale·(S − max)), state's maximum and sum, r = rescaling of the older values; [tq, tk, dv]; → S (in) and P (out), state (in and out), r [tq]; constant scale",
        (0, 3),
        attention::check_softmax,
        attention::work_softmax,
        attention::softmax,
    ),
    row(
        "fa_values_bf16",
        "O = O·r + P·V in the state; [tq, tk, dv]; P, V, r [tq] → state (in and out)",
        (3, 1),
        attention::check_values,
        attention::work_values,
        attention::values,
    ),
    row(
        "fa_scores_bfp16",
        "fa_scores_bf16 with Q·Kᵀ through block floating point; [tq, tk, d]; Q, K → S; scalars q0, k0",
        (2, 1),
        attention::check_scores,
        attention::work_scores,
        bfp16::scores,
    ),
    row(
        "fa_scores_add_bfp16",
        "fa_scores_add_bf16 with Q·Kᵀ through block floating point; [tq, tk, d]; Q, K → S (in and out); scalars q0, k0",
        (2, 1),
        attention::check_scores,
        attention::work_scores,
        bfp16::scores_add,
    ),
    row(
        "fa_values_bfp16",
        "fa_values_bf16 with P·V through block floating point; [tq, tk, dv]; P, V, r [tq] → state (in and out)",
        (3, 1),
        attention::check_values,
        attention::work_values,
        bfp16::values,
    ),
    row(
        "fa_merge_bf16",
        "joins the states of two sets of keys; [tq, dv]; a, b → c; constant scale",
        (2, 1),
        attention::check_merge,
        attention::work_merge,
        attention::merge,
    ),
    row(
        "fa_join_bf16",
        "joins a state into another; [tq, dv]; a → b (in and out); constant scale",
        (1, 1),
        attention::check_join,
        attention::work_merge,
        attention::join,
    ),
    row(
        "fa_finish_bf16",
        "y = O / sum; [tq, dv]; state → y, blocked as C",
        (1, 1),
        attention::check_finish,
        attention::work_finish,
        attention::finish,
    ),
    row(
        "ca_take_bf16",
        "queries first .. and the position out of a block that holds them in the places of keys and of values; [tq, tk, d]; block [2, tk, d] → Q (in and out), at [8]; scalar first",
        (1, 2),
        cached::check_take,
        cached::work_take,
        cached::take,
    ),
    row(
        "ca_init_f32",
        "empty f32 state; [tq, d]; → state",
        (0, 1),
        cached::check_init,
        cached::work_init,
        cached::init,
    ),
    row(
        "ca_attend_bf16.decode",
        ATTEND,
        (3, 2),
        cached::check_attend,
        cached::work_attend,
        cached::attend,
    ),
    row(
        "ca_attend_bf16.chunk",
        ATTEND,
        (3, 2),
        cached::check_attend,
        cached::work_attend_chunk,
        cached::attend,
    ),
    row(
        "ca_send_f32",
        "one slice of a state; [tq, d]; state → slice; scalar slice",
        (1, 1),
        cached::check_send,
        cached::work_slice,
        cached::send,
    ),
    row(
        "ca_join_f32",
        "joins a slice's state into the state; [tq, d]; slice → state (in and out); scalar slice; constant scale",
        (1, 1),
        cached::check_join,
        cached::work_slice,
        cached::join,
    ),
    row(
        "ca_finish_bf16",
        "y = O / sum of rows, row-major; [rows, tq, d]; state → y [rows, d]; scalar, or none for 0: the first row",
        (1, 1),
        cached::check_finish,
        cached::work_finish,
        cached::finish,
    ),
];
