//! Weights for measurements: valid blocks of random numbers, more than the caches hold.

use super::shape::MatrixCase;
use crate::exit::{CommandFailure, CommandResult};
use millrace_kernels::Cpu;
use millrace_kernels::matmul::WeightMatrix;
use millrace_quant::{DType, encode_matrix};

/// Number of encoded rows: a whole tile of every format. All other rows repeat them.
const ENCODED_ROWS: usize = 32;

/// Alignment of the weights to a cache line, like those of a mapped file.
const LINE_BYTES: usize = 64;

/// Copies of a matrix, one after the other.
#[derive(Default)]
pub(super) struct MatrixCopies {
    /// Reused for all formats, so that its pages stay mapped.
    buffer: Vec<u8>,
    start: usize,
    case: Option<MatrixCase>,
    n_copies: usize,
}

impl MatrixCopies {
    /// Writes as many copies of a case's matrix as `stream_bytes` hold, and at least one.
    ///
    /// Each thread writes its part first, so that all memories of a machine with several are used.
    pub(super) fn fill(
        &mut self,
        cpu: &Cpu,
        case: &MatrixCase,
        stream_bytes: usize,
    ) -> CommandResult {
        let strip = strip(case.dtype, case.k)?;
        self.n_copies = (stream_bytes / case.size_bytes).max(1);
        let len = self.n_copies * case.size_bytes;
        if self.buffer.len() < len + LINE_BYTES {
            // Not grown: growing would copy.
            self.buffer = Vec::new();
            self.buffer = vec![0; len + LINE_BYTES];
        }
        let aligned = self.buffer.as_ptr().align_offset(LINE_BYTES);
        self.start = aligned.min(LINE_BYTES);
        self.case = Some(*case);
        let bytes = &mut self.buffer[self.start..self.start + len];
        let copy = |_, piece: &mut [u8]| piece.copy_from_slice(&strip[..piece.len()]);
        cpu.pool().run_pieces(bytes, strip.len(), &copy);
        Ok(())
    }

    /// The matrix that is copied.
    pub(super) fn case(&self) -> &MatrixCase {
        self.case.as_ref().expect("weights are filled before use")
    }

    /// Number of matrices of `n` rows in the copies.
    pub(super) fn n_matrices(&self, n: usize) -> usize {
        self.case().n * self.n_copies / n
    }

    /// The `index`-th of these matrices.
    pub(super) fn matrix(&self, n: usize, index: usize) -> WeightMatrix<'_> {
        let MatrixCase { dtype, k, .. } = *self.case();
        let bytes = dtype
            .size_bytes(n, k)
            .expect("whole tiles of the case's columns");
        let start = self.start + index * bytes;
        WeightMatrix::new(dtype, n, k, &self.buffer[start..start + bytes]).expect("that many bytes")
    }
}

/// [`ENCODED_ROWS`] random rows.
fn strip(dtype: DType, k: usize) -> CommandResult<Vec<u8>> {
    let misfit = || CommandFailure::usage(format!("rows of {k} columns do not fit {dtype}"));
    let n_bytes = dtype.size_bytes(ENCODED_ROWS, k).ok_or_else(misfit)?;
    let rows = random(ENCODED_ROWS * k);
    let mut strip = vec![0; n_bytes];
    encode_matrix(dtype, &rows, ENCODED_ROWS, k, &mut strip)
        .map_err(|error| CommandFailure::usage(error.to_string()))?;
    Ok(strip)
}

/// Random numbers like weights and activations: around zero, mostly below one. Each is the mean of
/// four uniform ones, scaled to a variance of one third.
pub(super) fn random(len: usize) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut uniform = || {
        // Knuth's multiplicative generator; only its high bits are used.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    };
    (0..len)
        .map(|_| (uniform() + uniform() + uniform() + uniform()) / 2.0)
        .collect()
}
