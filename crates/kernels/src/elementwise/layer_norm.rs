//! Layer norm from the levels' own loops. A row minus its mean has a root mean square equal to the
//! row's standard deviation, so the norm of [`super::rms_norm`] does the rest.

use super::{ElementwiseKernels, Norm, split};
use crate::cpu::Cpu;
use std::cell::Cell;

/// Partial sums of a mean; the same at every level.
const LANES: usize = 16;

thread_local! {
    /// A group minus its mean; the allocation is kept so that a step allocates nothing.
    static CENTRED: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Layer norm of each group of `group` elements:
/// `out = (x - mean(x)) / sqrt(var(x) + eps) · weight + bias`, with the variance over the group, and no bias if `bias` is empty.
/// `weight` is that of one group, or of several that groups use in turn.
///
/// # Panics
/// If `weight` is not whole groups, `bias` is not as long as a group, or `x` and `out` differ in length or are not whole rows
/// of `weight`'s length.
pub fn layer_norm(
    cpu: &Cpu,
    x: &[f32],
    group: usize,
    (weight, bias): (&[f32], &[f32]),
    eps: f32,
    out: &mut [f32],
) {
    let width = weight.len();
    assert!(
        width > 0 && x.len().is_multiple_of(width),
        "{} elements in rows of {width}",
        x.len()
    );
    assert!(
        group > 0 && width.is_multiple_of(group),
        "weights of whole groups of {group}, not {width}"
    );
    assert_eq!(x.len(), out.len(), "as many elements of x as of out");
    assert!(
        bias.is_empty() || bias.len() == group,
        "one bias for each element of a group"
    );
    let rows = ElementwiseKernels::for_level(cpu.level());
    split(cpu, out, width, &|start, out| {
        let mut centred = CENTRED.take();
        centred.resize(group, 0.0);
        let x = &x[start..start + out.len()];
        let weights = weight.chunks_exact(group).cycle();
        let groups = x.chunks_exact(group).zip(out.chunks_exact_mut(group));
        for ((x, out), weight) in groups.zip(weights) {
            let norm = Norm {
                weight,
                eps,
                offset: 0.0,
            };
            let mean = mean(x);
            for (centred, x) in centred.iter_mut().zip(x) {
                *centred = x - mean;
            }
            rows.norm(&norm, &centred, out);
            if !bias.is_empty() {
                rows.add(out, bias);
            }
        }
        CENTRED.set(centred);
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
