//! Projections, with a device's numerics for those of a prompt.

use super::{ForwardPass, PassArithmetic};
use crate::reference::blocks;
use bytemuck::cast_slice;
use half::bf16;
use half::slice::HalfFloatSliceExt;
use millrace_graph::WeightId;
use millrace_kernels::matmul::WeightMatrix;
use millrace_quant::DType;
use millrace_runtime::Error;

/// A device's numerics of a prompt's product beyond rounding its operands to bf16.
#[derive(Clone, Copy)]
struct PromptProduct {
    /// Elements of k after which sums are truncated.
    truncated_every: Option<usize>,
    /// Whether both operands are converted to blocks with one exponent.
    in_blocks: bool,
}

impl PromptProduct {
    fn is_plain(self) -> bool {
        self.truncated_every.is_none() && !self.in_blocks
    }
}

impl ForwardPass<'_> {
    /// Rows times one of a weight's matrices; the first `n_prompt` are a prompt's.
    pub(super) fn product(
        &self,
        node: usize,
        ((weight, number), bias): ((WeightId, usize), Option<WeightId>),
        x: &[f32],
        n_prompt: usize,
    ) -> Result<Vec<f32>, Error> {
        let quantised = self.products.quantised.get(node).copied().flatten();
        if let (PassArithmetic::Bf16, Some(rule)) = (self.numerics, quantised) {
            return self.quantised((weight, number), bias, &rule, x);
        }
        let narrowed = self.products.narrowed.get(node).copied().flatten();
        if let (PassArithmetic::Bf16, Some(rule)) = (self.numerics, narrowed) {
            return self.narrowed((weight, number), bias, &rule, x);
        }
        let spec = &self.graph.weights[weight.0];
        let (n, k, bytes) = (spec.n, spec.k, self.model.matrix_bytes(weight, number));
        let prompt = self.prompt_product(node);
        let own = self.products.weights.as_ref();
        let own = own.and_then(|weights| weights.matrix(weight, [n, k]));
        let is_as_it_is = spec.dtype == DType::BF16 && own.is_none();
        let rounded = match (self.numerics, &own) {
            (PassArithmetic::F32, _) => None,
            (PassArithmetic::Bf16, _) if is_as_it_is && prompt.is_plain() => None,
            (PassArithmetic::Bf16, Some(own)) => {
                Some(own.iter().map(|w| bf16::from_f32(*w)).collect())
            }
            (PassArithmetic::Bf16, None) => Some(self.rounded(weight, number)?),
        };
        let matrix = match (&rounded, &own) {
            (Some(rows), _) => WeightMatrix::new(DType::BF16, n, k, cast_slice(rows))?,
            (None, Some(own)) => WeightMatrix::new(DType::F32, n, k, cast_slice(own))?,
            (None, None) => WeightMatrix::new(spec.dtype, n, k, bytes)?,
        };
        let bias = bias.map(|bias| &self.vectors[bias.0][..]);
        let mut out = vec![0.0; x.len() / k * n];
        self.multiply(matrix, bias, x, &mut out);
        if let (false, Some(w)) = (prompt.is_plain(), rounded) {
            let rows = n_prompt.min(x.len() / k);
            self.prompt_rows(prompt, (w, [n, k]), bias, (x, rows), &mut out)?;
        }
        if self.numerics == PassArithmetic::Bf16 {
            self.in_groups(weight, bias, x, &mut out);
        }
        Ok(out)
    }

    pub(super) fn in_blocks(&self, node: usize) -> bool {
        self.products.in_blocks.get(node).copied().unwrap_or(false)
    }

    /// The device's numerics of a node's product, if the pass is a prompt's in bf16.
    fn prompt_product(&self, node: usize) -> PromptProduct {
        let is_prompts = self.numerics == PassArithmetic::Bf16 && !self.is_behind_norm;
        let every = self.products.truncated_every.get(node).copied().flatten();
        PromptProduct {
            truncated_every: every.filter(|_| is_prompts),
            in_blocks: is_prompts && self.in_blocks(node),
        }
    }

    /// Computes the prompt's `m` rows of `x · wᵀ` again as the device does; `w` is `[n, k]`.
    fn prompt_rows(
        &self,
        product: PromptProduct,
        (mut w, [n, k]): (Vec<bf16>, [usize; 2]),
        bias: Option<&[f32]>,
        (x, m): (&[f32], usize),
        out: &mut [f32],
    ) -> Result<(), Error> {
        let mut x = x[..m * k].to_vec();
        if product.in_blocks {
            x.chunks_mut(k).for_each(blocks::convert);
            self.cpu.pool().run_pieces(&mut w, k, &|_, row| {
                let mut values: Vec<f32> = row.iter().map(|x| x.to_f32()).collect();
                blocks::convert(&mut values);
                row.convert_from_f32_slice(&values);
            });
        }
        let out = &mut out[..m * n];
        match product.truncated_every {
            Some(every) => self.truncated((&w, k), &x, every.max(1), out),
            None => {
                let w = WeightMatrix::new(DType::BF16, n, k, cast_slice(&w))?;
                self.multiply(w, bias, &x, out);
                Ok(())
            }
        }
    }

    /// Products whose sums are truncated after every so many elements.
    fn truncated(
        &self,
        (w, k): (&[bf16], usize),
        x: &[f32],
        every: usize,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let n = w.len() / k;
        let mut part = vec![0.0; out.len()];
        out.fill(0.0);
        for start in (0..k).step_by(every) {
            let end = (start + every).min(k);
            let x: Vec<f32> = x.chunks(k).flat_map(|x| &x[start..end]).copied().collect();
            let w: Vec<bf16> = w.chunks(k).flat_map(|w| &w[start..end]).copied().collect();
            let w = WeightMatrix::new(DType::BF16, n, end - start, cast_slice(&w))?;
            self.multiply(w, None, &x, &mut part);
            for (sum, part) in out.iter_mut().zip(&part) {
                *sum = f32::from_bits((*sum + part).to_bits() & 0xffff_0000);
            }
        }
        Ok(())
    }
}
