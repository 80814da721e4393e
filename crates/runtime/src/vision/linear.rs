//! Products with a block's matrices: with biases, and with bounds on inputs and outputs.

use millrace_kernels::Cpu;
use millrace_kernels::matmul::{Activations, matmul};
use millrace_model::vision::BiasedLinear;

use super::VisionEncoder;
use crate::Error;

/// Small data of a matrix: its bias, empty without one, and its bounds.
#[derive(Default)]
pub(super) struct LinearVectors {
    pub(super) bias: Vec<f32>,
    pub(super) bounds: Option<Bounds>,
}

/// Bounds of a matrix's inputs and outputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    input: [f32; 2],
    output: [f32; 2],
}

impl Bounds {
    /// Least and most of inputs, least and most of outputs.
    pub(super) fn new([input_min, input_max, output_min, output_max]: [f32; 4]) -> Bounds {
        Bounds {
            input: [input_min, input_max],
            output: [output_min, output_max],
        }
    }
}

/// A number clamped to bounds; if they contradict each other, the upper one wins.
fn within([min, max]: [f32; 2], x: f32) -> f32 {
    x.max(min).min(max)
}

/// A matrix of a block, and where its products go.
pub(super) struct LinearProduct<'a> {
    linear: &'a BiasedLinear,
    vectors: &'a LinearVectors,
    out: &'a mut [f32],
}

impl<'a> LinearProduct<'a> {
    pub(super) fn new(
        linear: &'a BiasedLinear,
        vectors: &'a LinearVectors,
        out: &'a mut [f32],
    ) -> LinearProduct<'a> {
        LinearProduct {
            linear,
            vectors,
            out,
        }
    }
}

/// Further memory of products.
#[derive(Default)]
pub(super) struct LinearScratch {
    pub(super) activations: Activations,
    /// Inputs within bounds.
    bounded: Vec<f32>,
}

impl VisionEncoder {
    /// Products of `m` rows of `x` with matrices of a block.
    pub(super) fn linears(
        &self,
        cpu: &Cpu,
        (x, m): (&[f32], usize),
        scratch: &mut LinearScratch,
        products: &mut [LinearProduct<'_>],
    ) -> Result<(), Error> {
        let LinearScratch {
            activations,
            bounded,
        } = scratch;
        if products.iter().all(|of| of.vectors.bounds.is_none()) {
            let products = products.iter_mut();
            let products =
                products.map(|of| self.product(&of.linear.weight, &of.vectors.bias, of.out));
            let mut products = products.collect::<Result<Vec<_>, _>>()?;
            matmul(cpu, x, m, activations, &mut products);
            return Ok(());
        }
        for of in products {
            let bounds = of.vectors.bounds;
            let x = match bounds {
                Some(bounds) => {
                    bounded.clear();
                    bounded.extend(x.iter().map(|x| within(bounds.input, *x)));
                    &bounded[..]
                }
                None => x,
            };
            let product = self.product(&of.linear.weight, &of.vectors.bias, of.out)?;
            matmul(cpu, x, m, activations, &mut [product]);
            if let Some(bounds) = bounds {
                for x in of.out.iter_mut() {
                    *x = within(bounds.output, *x);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bounds are used as the file states them.
    #[test]
    fn bounds_are_taken_as_they_are() {
        let found = |bounds| [-3.0, 0.5, 3.0].map(|x| within(bounds, x));
        assert_eq!(found([-1.0, 1.0]), [-1.0, 0.5, 1.0]);
        assert_eq!(found([2.0, 1.0]), [1.0; 3]);
        assert_eq!(found([f32::NAN, f32::NAN]), [-3.0, 0.5, 3.0]);
        let infinite = [f32::NEG_INFINITY, f32::INFINITY];
        assert_eq!(found(infinite), [-3.0, 0.5, 3.0]);
    }
}
