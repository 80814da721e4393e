//! Layer norm, made of the levels' own loops: a row less its mean has the root mean square that is the
//! row's deviation, so the norm of [`super::rms_norm`] does the rest.

use super::{ElementwiseKernels, Norm, split};
use crate::cpu::Cpu;

/// Partial sums of a mean; the same at every level.
const LANES: usize = 16;

/// Layer norm of each row of `weight.len()` elements:
/// `out = (x - mean(x)) / sqrt(var(x) + eps) · weight + bias`, with the variance over all elements, and no bias where `bias` is empty.
///
/// # Panics
/// If `bias` is not as long as `weight`, or `x` and `out` differ in length or are not whole rows.
pub fn layer_norm(cpu: &Cpu, x: &[f32], weight: &[f32], bias: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len();
    assert!(
        width > 0 && x.len().is_multiple_of(width),
        "{} elements in rows of {width}",
        x.len()
    );
    assert_eq!(x.len(), out.len(), "as many elements of x as of out");
    assert!(
        bias.is_empty() || bias.len() == width,
        "one bias for each element of a row"
    );
    let norm = Norm {
        weight,
        eps,
        offset: 0.0,
    };
    let rows = ElementwiseKernels::for_level(cpu.level());
    split(cpu, out, width, &|start, out| {
        let mut centred = vec![0.0; width];
        let x = &x[start..start + out.len()];
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            let mean = mean(x);
            for (centred, x) in centred.iter_mut().zip(x) {
                *centred = x - mean;
            }
            rows.norm(&norm, &centred, out);
            if !bias.is_empty() {
                rows.add(out, bias);
            }
        }
    });
}

fn mean(x: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (vectors, rest) = x.as_chunks::<LANES>();
    for vector in vectors {
        for (sum, x) in sums.iter_mut().zip(vector) {
            *sum += x;
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum += x;
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
        width /= 2;
    }
    sums[0] / x.len() as f32
}
