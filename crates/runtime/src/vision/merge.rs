//! Projectors that merge squares of patches.

use millrace_kernels::matmul::matmul;
use millrace_kernels::{self as kernels, Activation};
use millrace_model::vision::Merger;

use super::MergerVectors;
use super::block::norm;
use super::encode::{CHUNK_ROWS, EncodePass};
use crate::Error;

impl EncodePass<'_> {
    /// Squares of the patches that the residual stream has, normalised and through their network: `[n_squares, d_text]`, from left to
    /// right and from top to bottom.
    pub(super) fn merged(
        &mut self,
        merger: &Merger,
        vectors: &MergerVectors,
    ) -> Result<Vec<f32>, Error> {
        let (encoder, cpu) = (self.encoder, self.cpu);
        let (k, d_text) = (merger.up.weight.k, merger.down.weight.n);
        let squares = std::mem::take(&mut self.order.squares);
        let mut out = vec![0.0; squares.len() * d_text];
        let n_chunk = CHUNK_ROWS.min(squares.len());
        let mut normed = vec![0.0; n_chunk * k];
        let mut wide = vec![0.0; n_chunk * k];
        let mut projected = vec![0.0; n_chunk * d_text];
        for (places, x) in squares.chunks(n_chunk).zip(self.x.chunks(n_chunk * k)) {
            let m = places.len();
            let (normed, wide) = (&mut normed[..m * k], &mut wide[..m * k]);
            norm(cpu, x, &vectors.norm, encoder.config().norm_eps, normed);
            let product = encoder.product(&merger.up.weight, &vectors.up_bias, wide)?;
            matmul(
                cpu,
                normed,
                m,
                &mut self.scratch.linear.activations,
                &mut [product],
            );
            kernels::activate(cpu, Activation::Gelu, wide);
            let projected = &mut projected[..m * d_text];
            let product = encoder.product(&merger.down.weight, &vectors.down_bias, projected)?;
            matmul(
                cpu,
                wide,
                m,
                &mut self.scratch.linear.activations,
                &mut [product],
            );
            for (place, row) in places.iter().zip(projected.chunks_exact(d_text)) {
                out[place * d_text..(place + 1) * d_text].copy_from_slice(row);
            }
        }
        self.order.squares = squares;
        Ok(out)
    }
}
