//! Products on the small blocked tiles of NPU programs, for functional simulation.
//!
//! Unlike the engine's kernels, these give the same bits at every level, because the results of a
//! simulated device must not depend on the host. The rules:
//!
//! - [`matmul_bf16`]: each element of C is a chain of fused multiply-adds in f32, begun with the
//!   given C, over `k` in pairs, the odd one first: `k` = 1, 0, 3, 2, 5, 4, … Subnormal inputs
//!   count as zero, subnormal results (as rounded with unbounded exponent) become zero, both with
//!   their sign. Intel documents this for `VDPBF16PS` (Software Developer's Manual, volume 2), so
//!   AVX512-BF16 can do it with one instruction. A processor found to differ takes another path. So
//!   does one whose f32 units are faster, on data where that changes no bit.
//! - [`matvec_bf16`]: 64 partial sums in f32. Sum `l` takes the products `k ≡ l (mod 64)` in order,
//!   with product and sum rounded each. Then halves are added, 32 apart, 16, … 1.
//!
//! NaN results are the canonical NaN (`0x7fc00000`).
//!
//! - [`matmul_bt_bf16`]: [`matmul_bf16`] of B given by its transpose, the same bits.
//! - [`products_i16`]: exact sums of integers, which wrap.
//! - [`q4nx_matvec`], [`q4nx_expand`]: blocks of 4-bit weights, multiplied or expanded.
//!
//! Layouts of a product `C[m, n] += A[m, k] · B[k, n]` in 8 × 8 blocks: A `[k/8][m/8][8 m][8 k]`,
//! B `[n/8][k/8][8 k][8 n]` or, transposed, `[k/8][n/8][8 n][8 k]`, C `[n/8][m/8][8 m][8 n]`.

mod integer;
mod portable;
mod q4nx;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use integer::products_i16;
pub use q4nx::{
    Q4NX_BYTES, Q4NX_COLS, Q4NX_GROUP, Q4NX_ROWS, Q4nxBlock, q4nx_expand, q4nx_matvec, q4nx_sums,
};

use crate::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::level::Level;
use half::bf16;

/// Side of a block.
pub(crate) const BLOCK: usize = 8;

/// Elements of a block.
pub(crate) const BLOCK_ELEMENTS: usize = BLOCK * BLOCK;

/// Partial sums of [`matvec_bf16`].
pub(crate) const LANES: usize = 64;

/// Dimensions of a blocked product, each a multiple of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulShape {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
}

impl MatmulShape {
    /// # Panics
    /// If the dimensions are not multiples of 8 or contradict the lengths.
    fn check(self, a: &[bf16], b: &[bf16], c: &[f32]) {
        let MatmulShape { m, n, k } = self;
        assert!(
            [m, n, k].iter().all(|d| d.is_multiple_of(BLOCK)),
            "{self:?} is not in blocks of 8 × 8"
        );
        let expected = (m * k, k * n, m * n);
        let found = (a.len(), b.len(), c.len());
        assert_eq!(found, expected, "lengths of A, B and C for {self:?}");
    }
}

/// `C += A · B` on the calling thread; see the [module](self) for layouts and rounding.
///
/// # Panics
/// If the dimensions are not multiples of 8 or contradict the lengths.
pub fn matmul_bf16(cpu: &Cpu, shape: MatmulShape, a: &[bf16], b: &[bf16], c: &mut [f32]) {
    multiply::<false>(cpu, shape, a, b, c);
}

/// [`matmul_bf16`] with the transpose of B.
///
/// # Panics
/// As [`matmul_bf16`].
pub fn matmul_bt_bf16(cpu: &Cpu, shape: MatmulShape, a: &[bf16], bt: &[bf16], c: &mut [f32]) {
    multiply::<true>(cpu, shape, a, bt, c);
}

/// `C += A · B`; `BT` where `b` is the transpose.
fn multiply<const BT: bool>(cpu: &Cpu, shape: MatmulShape, a: &[bf16], b: &[bf16], c: &mut [f32]) {
    shape.check(a, b, c);
    match cpu.level() {
        // SAFETY: a `Cpu` proves its level; the lengths were checked.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx512Bf16 | Level::Amx => unsafe {
            x86::matmul_avx512::<BT>(cpu.level() >= Level::Avx512Bf16, shape, a, b, c);
        },
        _ if BT => multiply::<false>(cpu, shape, a, &transposed(shape, b), c),
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni if portable::is_tame(a, b, c) => unsafe {
            x86::matmul_tame_avx2(shape, a, b, c);
            portable::canonical(c);
        },
        _ if portable::is_tame(a, b, c) => {
            portable::matmul_tame::<false>(shape, a, b, c);
            portable::canonical(c);
        }
        _ => matmul_bf16_reference(shape, a, b, c),
    }
}

/// B from its transpose, block by block.
fn transposed(shape: MatmulShape, bt: &[bf16]) -> Vec<bf16> {
    let (k_blocks, col_blocks) = (shape.k / BLOCK, shape.n / BLOCK);
    let mut b = Vec::with_capacity(bt.len());
    for col_block in 0..col_blocks {
        for k_block in 0..k_blocks {
            let block =
                &bt[(k_block * col_blocks + col_block) * BLOCK_ELEMENTS..][..BLOCK_ELEMENTS];
            b.extend((0..BLOCK_ELEMENTS).map(|at| block[at % BLOCK * BLOCK + at / BLOCK]));
        }
    }
    b
}

/// `y = W · x` on the calling thread, W row-major `[y.len(), x.len()]`; see the [module](self) for
/// the order of additions.
///
/// # Panics
/// If the lengths contradict each other.
pub fn matvec_bf16(cpu: &Cpu, w: &[bf16], x: &[bf16], y: &mut [f32]) {
    assert_eq!(w.len(), x.len() * y.len(), "elements of W");
    match cpu.level() {
        // SAFETY: a `Cpu` proves its level.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx512Bf16 | Level::Amx => unsafe { x86::matvec_avx512(w, x, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { x86::matvec_avx2(w, x, y) },
        _ => portable::matvec(w, x, y),
    }
    portable::canonical(y);
}

/// Definition of [`matmul_bf16`], one element at a time. Slow.
///
/// # Panics
/// As [`matmul_bf16`].
pub fn matmul_bf16_reference(shape: MatmulShape, a: &[bf16], b: &[bf16], c: &mut [f32]) {
    shape.check(a, b, c);
    let MatmulShape { m, n, k } = shape;
    let at = |outer: usize, inner: usize, n_inner: usize, row: usize, col: usize| {
        (outer * (n_inner / BLOCK) + inner) * BLOCK_ELEMENTS + row * BLOCK + col
    };
    for row in 0..m {
        for col in 0..n {
            let c = &mut c[at(col / BLOCK, row / BLOCK, m, row % BLOCK, col % BLOCK)];
            for step in 0..k {
                let i = step ^ 1;
                let a = a[at(i / BLOCK, row / BLOCK, m, row % BLOCK, i % BLOCK)];
                let b = b[at(col / BLOCK, i / BLOCK, k, i % BLOCK, col % BLOCK)];
                *c = fused(*c, a.to_f32(), b.to_f32());
            }
            if c.is_nan() {
                *c = f32::NAN;
            }
        }
    }
}

/// `sum + a · b`, rounded once, subnormal inputs and results as zero.
fn fused(sum: f32, a: f32, b: f32) -> f32 {
    let flushed = |x: f32| {
        if x.is_subnormal() {
            0.0_f32.copysign(x)
        } else {
            x
        }
    };
    let (sum, a, b) = (flushed(sum), flushed(a), flushed(b));
    let result = a.mul_add(b, sum);
    // A result that reaches the least normal number only by rounding on the subnormal grid is tiny.
    // A power of two brings the sum to where that grid is fine enough to tell.
    const UP: f32 = (1_u64 << 63) as f32;
    let is_tiny = result.abs() == f32::MIN_POSITIVE
        && (a * UP).mul_add(b, sum * UP).abs() < f32::MIN_POSITIVE * UP;
    if is_tiny {
        return 0.0_f32.copysign(result);
    }
    flushed(result)
}

/// Definition of [`matmul_bt_bf16`]. Slow.
///
/// # Panics
/// As [`matmul_bf16`].
pub fn matmul_bt_bf16_reference(shape: MatmulShape, a: &[bf16], bt: &[bf16], c: &mut [f32]) {
    shape.check(a, bt, c);
    matmul_bf16_reference(shape, a, &transposed(shape, bt), c);
}

/// Definition of [`matvec_bf16`]. Slow.
///
/// # Panics
/// As [`matvec_bf16`].
pub fn matvec_bf16_reference(w: &[bf16], x: &[bf16], y: &mut [f32]) {
    assert_eq!(w.len(), x.len() * y.len(), "elements of W");
    let k = x.len();
    for (row, y) in y.iter_mut().enumerate() {
        let mut sums = [0.0_f32; LANES];
        for i in 0..k {
            sums[i % LANES] += w[row * k + i].to_f32() * x[i].to_f32();
        }
        let mut width = LANES;
        while width > 1 {
            width /= 2;
            for l in 0..width {
                sums[l] += sums[l + width];
            }
        }
        *y = if sums[0].is_nan() { f32::NAN } else { sums[0] };
    }
}
