//! Products of operands that a device quantises or narrows.

use super::Pass;
use crate::Error;
use crate::gate::{narrowed, quantised};
use bytemuck::cast_slice;
use millrace_kernels::matmul::Matrix;
use millrace_model::graph::WeightId;
use millrace_plan::{Narrowed, Quantised};
use millrace_quant::{self as quant, DType};
use std::ops::Range;

impl Pass<'_> {
    /// A product of quantised rows, some rows of the weight at a time.
    pub(super) fn quantised(
        &self,
        weight: WeightId,
        bias: Option<WeightId>,
        rule: &Quantised,
        x: &[f32],
    ) -> Result<Vec<f32>, Error> {
        let convert = |row: &mut [f32]| quantised::convert(row, rule);
        self.converted((weight, bias), x, &convert, &convert)
    }

    /// The same where weight and activations have a rule each.
    pub(super) fn narrowed(
        &self,
        weight: WeightId,
        bias: Option<WeightId>,
        rule: &Narrowed,
        x: &[f32],
    ) -> Result<Vec<f32>, Error> {
        let of_weight = |row: &mut [f32]| narrowed::weight(row, rule);
        let of_x = |row: &mut [f32]| narrowed::activations(row, rule);
        self.converted((weight, bias), x, &of_x, &of_weight)
    }

    fn converted(
        &self,
        (weight, bias): (WeightId, Option<WeightId>),
        x: &[f32],
        of_x: &(dyn Fn(&mut [f32]) + Sync),
        of_weight: &(dyn Fn(&mut [f32]) + Sync),
    ) -> Result<Vec<f32>, Error> {
        const ROWS: usize = 4096;
        let spec = &self.graph.weights[weight.0];
        let (n, k) = (spec.n, spec.k);
        let bias = bias.map(|bias| &self.vectors[bias.0][..]);
        let mut x = x.to_vec();
        (self.cpu.pool()).run_pieces(&mut x, k, &|_, row| of_x(row));
        let mut out = vec![0.0; x.len() / k * n];
        for start in (0..n).step_by(ROWS) {
            let rows = start..n.min(start + ROWS);
            let mut w = self.decoded(weight, rows.clone())?;
            (self.cpu.pool()).run_pieces(&mut w, k, &|_, row| of_weight(row));
            let w = Matrix::new(DType::F32, rows.len(), k, cast_slice(&w))?;
            let mut part = vec![0.0; x.len() / k * rows.len()];
            self.multiply(w, bias.map(|bias| &bias[rows.clone()]), &x, &mut part);
            let parts = part.chunks_exact(rows.len());
            for (out, part) in out.chunks_exact_mut(n).zip(parts) {
                out[rows.clone()].copy_from_slice(part);
            }
        }
        Ok(out)
    }

    /// Rows of a matrix in f32.
    fn decoded(&self, weight: WeightId, rows: Range<usize>) -> Result<Vec<f32>, Error> {
        let spec = &self.graph.weights[weight.0];
        let bytes = self.model.weight_bytes(weight);
        let mut values = vec![0.0; rows.len() * spec.k];
        quant::decode_rows(spec.dtype, bytes, spec.n, spec.k, rows, &mut values)?;
        Ok(values)
    }
}
