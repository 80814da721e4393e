//! The projector that averages squares of patches of any image.

use millrace_kernels::matmul::matmul;
use millrace_kernels::rms_norm;
use millrace_model::vision::AverageProjector;

use super::ProjectorVectors;
use super::encode::EncodePass;
use crate::Error;

impl EncodePass<'_> {
    /// Squares of the patches that the residual stream has, averaged, normalised and projected: `[n_squares, d_text]`, from left to right
    /// and from top to bottom.
    pub(super) fn averaged(&mut self, projector: &AverageProjector) -> Result<Vec<f32>, Error> {
        let (encoder, config) = (self.encoder, self.config());
        let (d_model, n) = (config.d_model, self.order.squares.len());
        let mut averages = self.averages();
        if let ProjectorVectors::Averaged(Some([bias, scale])) = &encoder.vectors.projector {
            for average in averages.chunks_exact_mut(d_model) {
                for ((x, bias), scale) in average.iter_mut().zip(bias).zip(scale) {
                    *x = (*x - bias) * scale;
                }
            }
        }
        let (ones, eps) = (vec![1.0; d_model], config.norm_eps);
        let mut normed = vec![0.0; averages.len()];
        rms_norm(self.cpu, &averages, d_model, &ones, eps, 0.0, &mut normed);
        let mut rows = vec![0.0; n * config.d_text];
        let product = encoder.product(&projector.projection.weight, &[], &mut rows)?;
        let activations = &mut self.scratch.linear.activations;
        matmul(self.cpu, &normed, n, activations, &mut [product]);
        Ok(rows)
    }

    /// Means of squares of patches, times `sqrt(d_model)`. The norm that follows is insensitive to the factor except for its epsilon; the
    /// offset subtracted before it is not.
    fn averages(&self) -> Vec<f32> {
        let config = self.config();
        let (d_model, square) = (config.d_model, self.x.len() / self.order.squares.len());
        let n_patches = square / d_model;
        let factor = (d_model as f32).sqrt() / n_patches as f32;
        let mut averages = vec![0.0f32; self.order.squares.len() * d_model];
        let squares = self.x.chunks_exact(square);
        for (average, patches) in averages.chunks_exact_mut(d_model).zip(squares) {
            for patch in patches.chunks_exact(d_model) {
                average.iter_mut().zip(patch).for_each(|(sum, x)| *sum += x);
            }
            average.iter_mut().for_each(|sum| *sum *= factor);
        }
        averages
    }
}
