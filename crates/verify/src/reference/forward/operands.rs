//! Products of operands that a device quantises or narrows.

use super::ForwardPass;
use crate::reference::{narrow, rotation};
use bytemuck::cast_slice;
use millrace_graph::WeightId;
use millrace_kernels::matmul::WeightMatrix;
use millrace_plan::{NarrowOperands, PackedWeight, QuantisedRows};
use millrace_quant::{self as quant, DType};
use millrace_runtime::Error;
use std::ops::Range;

impl ForwardPass<'_> {
    /// A product of quantised rows with one of a weight's matrices, some rows of it at a time.
    pub(super) fn quantised(
        &self,
        matrix: (WeightId, usize),
        bias: Option<WeightId>,
        rule: &QuantisedRows,
        x: &[f32],
    ) -> Result<Vec<f32>, Error> {
        let convert = |row: &mut [f32]| rotation::convert(row, rule);
        self.converted((matrix, bias), x, &convert, &convert)
    }

    /// The same where weight and activations have a rule each.
    pub(super) fn narrowed(
        &self,
        matrix: (WeightId, usize),
        bias: Option<WeightId>,
        rule: &NarrowOperands,
        x: &[f32],
    ) -> Result<Vec<f32>, Error> {
        let of_weight = |row: &mut [f32]| narrow::weight(row, rule);
        let of_x = |row: &mut [f32]| narrow::activations(row, rule);
        self.converted((matrix, bias), x, &of_x, &of_weight)
    }

    /// A token's products where the device rounds to bf16. For each group of columns it rounds the sum of products with
    /// w less the group's offset, and the sum of x, which the offset multiplies. All rows of the head are tokens'.
    pub(super) fn in_groups(
        &self,
        weight: WeightId,
        bias: Option<&[f32]>,
        x: &[f32],
        out: &mut [f32],
    ) {
        let spec = &self.graph.weights[weight.0];
        let (n, k) = (spec.n, spec.k);
        let weights = self.products.weights.as_ref();
        let Some(PackedWeight {
            values,
            offsets: Some((group, offsets)),
        }) = weights.and_then(|weights| weights.grouped(weight, [n, k]))
        else {
            return;
        };
        let first = match self.is_behind_norm {
            true => 0,
            false => self.products.n_tokens.min(x.len() / k),
        };
        let x = &x[first * k..];
        let one = |x: f32| self.numerics.one(x);
        let n_groups = k.div_ceil(group);
        self.cpu
            .pool()
            .run_pieces(&mut out[first * n..], n, &|token, out| {
                let x = &x[token * k..][..k];
                let sums: Vec<f32> = x.chunks(group).map(|x| one(x.iter().sum())).collect();
                let rows = values.chunks_exact(k).zip(offsets.chunks_exact(n_groups));
                for (row, (out, (w, offsets))) in out.iter_mut().zip(rows).enumerate() {
                    let groups = w.chunks(group).zip(x.chunks(group));
                    *out = bias.map_or(0.0, |bias| bias[row]);
                    for ((w, x), (offset, sum)) in groups.zip(offsets.iter().zip(&sums)) {
                        let products = w.iter().zip(x).map(|(w, x)| (w - offset) * x);
                        *out += one(products.sum()) + offset * sum;
                    }
                }
            });
    }

    fn converted(
        &self,
        (matrix, bias): ((WeightId, usize), Option<WeightId>),
        x: &[f32],
        of_x: &(dyn Fn(&mut [f32]) + Sync),
        of_weight: &(dyn Fn(&mut [f32]) + Sync),
    ) -> Result<Vec<f32>, Error> {
        const ROWS: usize = 4096;
        let spec = &self.graph.weights[matrix.0.0];
        let (n, k) = (spec.n, spec.k);
        let bias = bias.map(|bias| &self.vectors[bias.0][..]);
        let mut x = x.to_vec();
        (self.cpu.pool()).run_pieces(&mut x, k, &|_, row| of_x(row));
        let mut out = vec![0.0; x.len() / k * n];
        for start in (0..n).step_by(ROWS) {
            let rows = start..n.min(start + ROWS);
            let mut w = self.decoded(matrix, rows.clone())?;
            (self.cpu.pool()).run_pieces(&mut w, k, &|_, row| of_weight(row));
            let w = WeightMatrix::new(DType::F32, rows.len(), k, cast_slice(&w))?;
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
    fn decoded(
        &self,
        (weight, matrix): (WeightId, usize),
        rows: Range<usize>,
    ) -> Result<Vec<f32>, Error> {
        let spec = &self.graph.weights[weight.0];
        let bytes = self.model.matrix_bytes(weight, matrix);
        let mut values = vec![0.0; rows.len() * spec.k];
        quant::decode_rows(spec.dtype, bytes, spec.n, spec.k, rows, &mut values)?;
        Ok(values)
    }
}
