//! Operands of streamed products: element types, and the tile kernels that go with them.

use millrace_npu::Element;

/// Types and tile kernels of a product.
#[derive(Debug)]
pub(super) struct Operands {
    /// Type of A and B, of weights and vectors.
    pub(super) element: Element,
    /// Type of results as they leave the cores.
    pub(super) result: Element,
    /// Type of sums in a core.
    pub(super) sums: Element,
    /// `C += A · B`.
    pub(super) matmul: &'static str,
    /// The same with Bᵀ given.
    pub(super) matmul_bt: &'static str,
    /// Sums from zero.
    pub(super) zero: &'static str,
    /// Results of a whole tile of sums; none where those of a part serve.
    pub(super) drain: Option<&'static str>,
    /// Results of a part of the sums, the scalar being its first.
    pub(super) drain_part: &'static str,
    /// A vector kept.
    pub(super) copy: &'static str,
    /// Rows of a matrix times a vector, into a part of the results.
    pub(super) matvec_part: &'static str,
    /// Heights of tiles that are tried, and pieces in which sums leave.
    pub(super) tall: &'static [u64],
    pub(super) pieces: &'static [u64],
}

/// bf16 in and out, sums in f32.
pub(super) const BF16: Operands = Operands {
    element: Element::Bf16,
    result: Element::Bf16,
    sums: Element::F32,
    matmul: "matmul_bf16_f32.peano",
    matmul_bt: "matmul_bt_bf16_f32.peano",
    zero: "zero_f32",
    drain: Some("cast_f32_bf16"),
    drain_part: "cast_part_f32_bf16",
    copy: "copy_bf16",
    matvec_part: "matvec_part_bf16_bf16",
    tall: &[128, 64, 56, 48, 40, 32, 24, 16, 8],
    pieces: &[1, 2, 4, 8],
};

/// 8-bit integers, sums and results of 32 bits: exact.
pub(super) const I8: Operands = Operands {
    element: Element::I8,
    result: Element::I32,
    sums: Element::I32,
    // B has the layout of checkpoints.
    matmul: "matmul_bt_i8_i32",
    matmul_bt: "matmul_bt_i8_i32",
    zero: "zero_i32",
    drain: None,
    drain_part: "copy_part_i32",
    copy: "copy_i8",
    matvec_part: "matvec_part_i8_i32",
    tall: &[128, 112, 96, 80, 64, 56, 48, 40, 32, 24, 16, 8],
    pieces: &[1, 2, 3, 4, 6, 8, 12, 16],
};

impl Operands {
    /// Bytes of an element of A, B, a weight or a vector.
    pub(super) const fn size(&self) -> u64 {
        self.element.size_bytes()
    }

    /// Bytes of a result.
    pub(super) const fn result_size(&self) -> u64 {
        self.result.size_bytes()
    }
}

/// `C[m, n] = A[m, k] · B[n, k]ᵀ` of integers, sums wrapping in 32 bits, from bytes to bytes.
pub(super) fn integer_product(a: &[u8], b: &[u8], k: usize) -> Vec<u8> {
    let rows: Vec<&[u8]> = a.chunks_exact(k).collect();
    let row = |at: usize| -> Vec<u8> {
        let sum = |b: &[u8]| {
            let products = rows[at].iter().zip(b).map(|(a, b)| {
                let (a, b) = (a.cast_signed(), b.cast_signed());
                i32::from(a) * i32::from(b)
            });
            products.fold(0_i32, i32::wrapping_add).to_le_bytes()
        };
        b.chunks_exact(k).flat_map(sum).collect()
    };
    super::data::in_parallel(rows.len(), row).concat()
}
