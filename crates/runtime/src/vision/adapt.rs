//! The projector of two matrices over patches, with an optional matrix before them that merges squares.

use millrace_kernels::matmul::matmul;
use millrace_kernels::{self as kernels, Activation};
use millrace_model::vision::{BiasedLinear, LayerNorm, PatchAdapter};

use super::ProjectorVectors;
use super::block::norm;
use super::encode::{CHUNK_ROWS, EncodePass};
use crate::Error;

impl EncodePass<'_> {
    /// Passes patches, or squares of them, through the network and adds the rows between lines: `[n_rows, d_text]`, from left to right
    /// and from top to bottom.
    pub(super) fn adapted(&mut self, adapter: &PatchAdapter) -> Result<Vec<f32>, Error> {
        let (encoder, config) = (self.encoder, self.config());
        let ProjectorVectors::Adapted {
            up_bias, down_bias, ..
        } = &encoder.vectors.projector
        else {
            return Ok(Vec::new());
        };
        let (d_text, n) = (config.d_text, self.order.squares.len());
        let merged = match &adapter.merger {
            Some(merger) => self.merged_patches(merger)?,
            None => self.x.clone(),
        };
        let mut rows = vec![0.0; n * d_text];
        let mut wide = vec![0.0; CHUNK_ROWS.min(n) * d_text];
        let chunks = merged.chunks(CHUNK_ROWS * config.d_model);
        for (x, rows) in chunks.zip(rows.chunks_mut(CHUNK_ROWS * d_text)) {
            let m = x.len() / config.d_model;
            let wide = &mut wide[..m * d_text];
            let activations = &mut self.scratch.linear.activations;
            let product = encoder.product(&adapter.up.weight, up_bias, wide)?;
            matmul(self.cpu, x, m, activations, &mut [product]);
            kernels::activate(self.cpu, Activation::Gelu, wide);
            let product = encoder.product(&adapter.down.weight, down_bias, rows)?;
            matmul(self.cpu, wide, m, activations, &mut [product]);
        }
        let merge = config.grid.map_or(1, |grid| grid.merge);
        let line = self.order.width / merge * d_text;
        Ok(with_breaks(&rows, line, &encoder.line_break))
    }

    /// Squares of patches as one patch each, `[n_squares, d_model]`.
    fn merged_patches(
        &mut self,
        (_, matrix): &(LayerNorm, BiasedLinear),
    ) -> Result<Vec<f32>, Error> {
        let (encoder, config) = (self.encoder, self.config());
        let ProjectorVectors::Adapted { norm: vectors, .. } = &encoder.vectors.projector else {
            return Ok(Vec::new());
        };
        let (d_model, k) = (config.d_model, matrix.weight.k);
        let eps = config.merger_eps.unwrap_or(config.norm_eps);
        let n = self.order.squares.len();
        let mut out = vec![0.0; n * d_model];
        let n_chunk = CHUNK_ROWS.min(n);
        let (mut normed, mut columns) = (vec![0.0; n_chunk * k], vec![0.0; n_chunk * k]);
        let chunks = self.x.chunks(n_chunk * k);
        for (x, out) in chunks.zip(out.chunks_mut(n_chunk * d_model)) {
            let (normed, columns) = (&mut normed[..x.len()], &mut columns[..x.len()]);
            norm(self.cpu, x, vectors, eps, normed);
            for (square, columns) in normed.chunks_exact(k).zip(columns.chunks_exact_mut(k)) {
                transpose(square, d_model, columns);
            }
            let product = encoder.product(&matrix.weight, &[], out)?;
            let activations = &mut self.scratch.linear.activations;
            matmul(self.cpu, columns, x.len() / k, activations, &mut [product]);
        }
        Ok(out)
    }
}

/// Rows of `width` elements as columns.
fn transpose(rows: &[f32], width: usize, out: &mut [f32]) {
    let n = rows.len() / width;
    for (i, row) in rows.chunks_exact(width).enumerate() {
        for (j, x) in row.iter().enumerate() {
            out[j * n + i] = *x;
        }
    }
}

/// Lines of `line` elements with `between` in between.
fn with_breaks(rows: &[f32], line: usize, between: &[f32]) -> Vec<f32> {
    let lines: Vec<&[f32]> = rows.chunks_exact(line).collect();
    lines.join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaks_stand_between_lines_alone() {
        let rows = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(with_breaks(&rows, 6, &[9.0]), rows);
        assert_eq!(
            with_breaks(&rows, 2, &[9.0]),
            [1.0, 2.0, 9.0, 3.0, 4.0, 9.0, 5.0, 6.0]
        );
        let mut columns = [0.0; 6];
        transpose(&rows, 3, &mut columns);
        assert_eq!(columns, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
