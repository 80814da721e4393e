//! Ops between matrix products: norms, rotary embedding, gated activations, sums, embedding rows.
//!
//! Every op is a loop over independent rows or elements, so splitting it over threads changes no
//! bit. The loops are written once, in plain Rust, and compiled for each level; a level
//! is allowed to round differently from another, never from itself.

mod body;
mod embed;
mod layer_norm;
mod rope;
mod rows;
#[cfg(test)]
mod tests;

pub use embed::embed;
pub use layer_norm::layer_norm;
pub use rope::{RopeTable, rope, rope_from};

#[cfg(target_arch = "x86_64")]
pub(crate) use body::Rotation;
pub(crate) use body::{EXP2_POLY, Norm, exp};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use body::{
    add_body, glu_body, glu_clamped_body, norm_body, rotate_halves_body, rotate_pairs_body,
    scale_body, softcap_body, sum_exp_body, xielu_body,
};
pub(crate) use rows::ElementwiseKernels;
#[cfg(target_arch = "x86_64")]
pub(crate) use rows::elementwise_rows;

use crate::cpu::Cpu;
use crate::level::Level;
use crate::pool::DisjointMut;
use std::ops::Range;
use std::sync::OnceLock;

/// Elements below which a parallel region costs more than it saves.
pub(crate) const SERIAL_ELEMS: usize = 1 << 15;

/// Elements a thread processes at a time.
const CHUNK_ELEMS: usize = 1 << 13;

/// Function of the gate in a gated linear unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x / (1 + e^-x)`.
    Silu,
    /// The tanh form of GELU: `x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
    GeluTanh,
    /// GELU by the error function: `x / 2 · (1 + erf(x / √2))`, within 2e-7 of `max(1, |x|)`.
    Gelu,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²`.
    ReluSquared,
}

/// Root-mean-square norm of each `group` of neighbouring elements:
/// `out = x / sqrt(mean(x²) + eps) · (weight + offset)`.
///
/// `x` and `out` are whole groups: rows of `d_model`, or heads of `head_dim` for the norms of queries and keys.
/// `weight` is one group, or several that groups use in turn. `offset` is 1 for models that store `weight - 1`,
/// otherwise 0.
///
/// # Panics
/// If `weight` is not whole groups, or `x` and `out` differ in length or are not whole multiples of it.
pub fn rms_norm(
    cpu: &Cpu,
    x: &[f32],
    group: usize,
    weight: &[f32],
    eps: f32,
    offset: f32,
    out: &mut [f32],
) {
    assert!(
        group > 0 && x.len().is_multiple_of(group),
        "{} elements in groups of {group}",
        x.len()
    );
    assert_eq!(x.len(), out.len(), "as many elements of x as of out");
    assert!(
        !weight.is_empty() && weight.len().is_multiple_of(group),
        "one weight for each element of some groups"
    );
    assert!(x.len().is_multiple_of(weight.len()), "whole turns");
    let norm = |weight| Norm {
        weight,
        eps,
        offset,
    };
    let rows = ElementwiseKernels::for_level(cpu.level());
    if weight.len() == group {
        return split(cpu, out, group, &|start, out| {
            rows.norm(&norm(weight), &x[start..start + out.len()], out)
        });
    }
    split(cpu, out, weight.len(), &|start, out| {
        let groups = x[start..].chunks_exact(group);
        let weights = weight.chunks_exact(group).cycle();
        for ((x, weight), out) in groups.zip(weights).zip(out.chunks_exact_mut(group)) {
            rows.norm(&norm(weight), x, out);
        }
    });
}

/// Gated activation in place: `gate = activation(gate) · up`.
///
/// # Panics
/// If the lengths differ.
pub fn glu(cpu: &Cpu, activation: Activation, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "as many gates as ups");
    let rows = ElementwiseKernels::for_level(cpu.level());
    split(cpu, gate, 1, &|start, gate| {
        rows.glu(activation, gate, &up[start..start + gate.len()])
    });
}

/// Bounded gated activation in place: `gate = g · sigmoid(alpha · g) · (u + 1)` with `g = min(gate, limit)` and `u` as
/// `up` within `-limit..=limit`.
///
/// # Panics
/// If the lengths differ.
pub fn glu_clamped(cpu: &Cpu, (alpha, limit): (f32, f32), gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "as many gates as ups");
    let rows = ElementwiseKernels::for_level(cpu.level());
    split(cpu, gate, 1, &|start, gate| {
        rows.glu_clamped((alpha, limit), gate, &up[start..start + gate.len()])
    });
}

/// As [`glu`], to `out`.
///
/// # Panics
/// If the lengths differ.
pub fn glu_to(cpu: &Cpu, activation: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert_eq!(gate.len(), up.len(), "as many gates as ups");
    assert_eq!(gate.len(), out.len(), "as many results as gates");
    let rows = ElementwiseKernels::for_level(cpu.level());
    split(cpu, out, 1, &|start, out| {
        for (index, out) in out.chunks_mut(CHUNK_ELEMS).enumerate() {
            let at = start + index * CHUNK_ELEMS;
            let part = at..at + out.len();
            // The copy is in the nearest cache when it is computed with: memory is read and written once.
            out.copy_from_slice(&gate[part.clone()]);
            rows.glu(activation, out, &up[part]);
        }
    });
}

/// Activation in place, without a gate: `x = activation(x)`.
pub fn activate(cpu: &Cpu, activation: Activation, x: &mut [f32]) {
    // A product with 1 is exact, so the gated loops serve.
    static ONES: [f32; CHUNK_ELEMS] = [1.0; CHUNK_ELEMS];
    let rows = ElementwiseKernels::for_level(cpu.level());
    split(cpu, x, 1, &|_, x| {
        for x in x.chunks_mut(CHUNK_ELEMS) {
            rows.glu(activation, x, &ONES[..x.len()]);
        }
    });
}

/// xIELU in place, with factors `[square, exponential, linear, bound]`: `square · x² + linear · x` above zero,
/// otherwise `exponential · (e^min(x, bound) - 1 - x) + linear · x`. Rounding is that of numbers of size 1 or more.
pub fn xielu(cpu: &Cpu, factors: [f32; 4], x: &mut [f32]) {
    let rows = ElementwiseKernels::for_level(cpu.level());
    split(cpu, x, 1, &|_, x| rows.xielu(factors, x));
}

/// `acc += x`.
///
/// # Panics
/// If the lengths differ.
pub fn add(cpu: &Cpu, acc: &mut [f32], x: &[f32]) {
    assert_eq!(acc.len(), x.len(), "as many elements in acc as in x");
    let rows = ElementwiseKernels::for_level(cpu.level());
    split(cpu, acc, 1, &|start, acc| {
        rows.add(acc, &x[start..start + acc.len()])
    });
}

/// `acc *= x`, element by element.
///
/// # Panics
/// If the lengths differ.
pub fn multiply(cpu: &Cpu, acc: &mut [f32], x: &[f32]) {
    assert_eq!(acc.len(), x.len(), "as many elements in acc as in x");
    split(cpu, acc, 1, &|start, acc| {
        // Bound by memory at any level.
        for (acc, x) in acc.iter_mut().zip(&x[start..]) {
            *acc *= x;
        }
    });
}

/// A part of each head: `out[head] = x[head][range]`, of heads of `head_dim` elements.
///
/// # Panics
/// If the range leaves a head, `x` does not have whole heads, or `out` and `x` have different numbers of heads.
pub fn slice_heads(cpu: &Cpu, x: &[f32], head_dim: usize, range: Range<usize>, out: &mut [f32]) {
    assert!(
        range.end <= head_dim && !range.is_empty(),
        "{range:?} of {head_dim}"
    );
    assert!(x.len().is_multiple_of(head_dim), "whole heads");
    assert_eq!(x.len() / head_dim * range.len(), out.len(), "as many heads");
    split(cpu, out, range.len(), &|start, out| {
        let heads = x.chunks_exact(head_dim).skip(start / range.len());
        for (out, head) in out.chunks_exact_mut(range.len()).zip(heads) {
            out.copy_from_slice(&head[range.clone()]);
        }
    });
}

/// `x *= factor`.
pub fn scale(cpu: &Cpu, x: &mut [f32], factor: f32) {
    let rows = ElementwiseKernels::for_level(cpu.level());
    split(cpu, x, 1, &|_, x| rows.scale(x, factor));
}

/// Soft bound: `x = cap · tanh(x / cap)`.
pub fn softcap(cpu: &Cpu, x: &mut [f32], cap: f32) {
    let rows = ElementwiseKernels::for_level(cpu.level());
    split(cpu, x, 1, &|_, x| rows.softcap(x, cap));
}

/// The sum of `e^(x - max)`, in f64, on the calling thread; within 3e-14 of exact. It is NaN if an element is.
///
/// Without a [`Cpu`]: the level is the best that this processor has.
///
/// # Panics
/// In debug builds, if an element is above `max`.
pub fn sum_exp(x: &[f32], max: f32) -> f64 {
    debug_assert!(!x.iter().any(|x| *x > max), "max is the largest");
    static BEST: OnceLock<Level> = OnceLock::new();
    ElementwiseKernels::for_level(*BEST.get_or_init(Level::detect)).sum_exp(x, max)
}

/// Calls `f(first element, part)` for parts of `out` that are multiples of `unit` elements: all of
/// it at once when it is small, pieces on all threads otherwise.
fn split(cpu: &Cpu, out: &mut [f32], unit: usize, f: &(dyn Fn(usize, &mut [f32]) + Sync)) {
    if out.len() < SERIAL_ELEMS {
        return f(0, out);
    }
    let part = unit * (CHUNK_ELEMS / unit).max(1);
    let n_elems = out.len();
    let out = DisjointMut::new(out);
    cpu.pool().run(n_elems.div_ceil(part), &|chunk| {
        let start = chunk * part;
        // SAFETY: parts of different chunks do not overlap, and each chunk runs once.
        f(start, unsafe {
            out.slice(start..n_elems.min(start + part))
        });
    });
}
