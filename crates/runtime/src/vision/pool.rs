//! The projector that averages squares of patches.

use millrace_kernels::matmul::{Multiplication, WeightMatrix, matmul};
use millrace_kernels::rms_norm;
use millrace_model::VisionConfig;
use millrace_model::vision::{PooledProjector, Projector};

use super::ProjectorVectors;
use super::encode::EncodePass;
use crate::Error;

impl EncodePass<'_> {
    /// Squares of patches pooled and normalised: `[n_tokens, d_model]`.
    pub(super) fn pooled(&self, projector: &PooledProjector, patches: &[f32]) -> Vec<f32> {
        let (encoder, config) = (self.encoder, self.config());
        let pooled = pooled(config, patches);
        let mut normed = vec![0.0; pooled.len()];
        let ProjectorVectors::Pooled(weight) = &encoder.vectors.projector else {
            return normed;
        };
        let offset = projector.norm_offset;
        let (d_model, eps) = (config.d_model, config.norm_eps);
        rms_norm(self.cpu, &pooled, d_model, weight, eps, offset, &mut normed);
        normed
    }

    /// Their projection, `[n_tokens, d_text]`.
    pub(super) fn project(&mut self, pooled: &[f32]) -> Result<Vec<f32>, Error> {
        let (encoder, config) = (self.encoder, self.config());
        let Projector::Pooled(projector) = &encoder.model.projector else {
            return Ok(Vec::new());
        };
        let projection = &projector.projection;
        let mut rows = vec![0.0; config.n_tokens * config.d_text];
        // Stored by input; transposed when the vision encoder was opened.
        let (dtype, k) = (projection.dtype, config.d_model);
        let weight = WeightMatrix::new(dtype, config.d_text, k, &encoder.own.projection)?;
        let product = Multiplication {
            weight,
            bias: None,
            out: &mut rows,
        };
        let m = config.n_tokens;
        matmul(
            self.cpu,
            pooled,
            m,
            &mut self.scratch.linear.activations,
            &mut [product],
        );
        Ok(rows)
    }
}

/// The mean of each square of `pool` × `pool` patches, row-major.
fn pooled(config: &VisionConfig, encoder: &[f32]) -> Vec<f32> {
    let (d_model, pool) = (config.d_model, config.pool());
    let (side, out_side) = (config.patches_per_side(), config.tokens_per_side());
    let mut out = vec![0.0f32; out_side * out_side * d_model];
    for (i, row) in encoder.chunks_exact(d_model).enumerate() {
        let token = i / side / pool * out_side + i % side / pool;
        for (sum, x) in out[token * d_model..][..d_model].iter_mut().zip(row) {
            *sum += x;
        }
    }
    let n = (pool * pool) as f32;
    out.iter_mut().for_each(|sum| *sum /= n);
    out
}
