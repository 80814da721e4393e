//! Two operands combined element by element, wherever the first one lies: what graphs that others cut need between matrix products.

use super::{Activation, CHUNK_ELEMS, Norm, Rows, split};
use crate::cpu::Cpu;

/// How two elements make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pair {
    /// `a + b`.
    Sum,
    /// `a · b`.
    Product,
    /// `activation(a) · b`.
    Gated(Activation),
}

/// `out = a ∘ b`. Without an `a`, it is what `out` holds. `b` has an element for each of `out`, or is one row that all rows of `out`
/// are combined with.
///
/// # Panics
/// If `a` and `out` differ in length, or `out` is no whole number of `b`.
pub fn combine(cpu: &Cpu, pair: Pair, a: Option<&[f32]>, b: &[f32], out: &mut [f32]) {
    assert!(
        a.is_none_or(|a| a.len() == out.len()),
        "as many elements in a as in out"
    );
    if out.is_empty() {
        return;
    }
    assert!(
        !b.is_empty() && out.len().is_multiple_of(b.len()),
        "{} elements combined with rows of {}",
        out.len(),
        b.len()
    );
    let rows = Rows::for_level(cpu.level());
    let repeats = b.len() < out.len();
    let (unit, piece) = if repeats {
        (b.len(), b.len())
    } else {
        (1, CHUNK_ELEMS)
    };
    split(cpu, out, unit, &|start, out| {
        for (index, out) in out.chunks_mut(piece).enumerate() {
            let at = start + index * piece;
            // A copy of what is in the nearest cache when it is combined, so that memory is read and written once.
            if let Some(a) = a {
                out.copy_from_slice(&a[at..at + out.len()]);
            }
            let b = if repeats { b } else { &b[at..at + out.len()] };
            match pair {
                Pair::Sum => rows.add(out, b),
                Pair::Product => rows.mul(out, b),
                Pair::Gated(activation) => rows.glu(activation, out, b),
            }
        }
    });
}

/// [`super::rms_norm`] in place, with the same bits.
///
/// # Panics
/// If `x` is no whole number of `weight`.
pub fn rms_norm_in_place(cpu: &Cpu, x: &mut [f32], weight: &[f32], eps: f32, offset: f32) {
    let group = weight.len();
    assert!(
        group > 0 && x.len().is_multiple_of(group),
        "{} elements in groups of {group}",
        x.len()
    );
    let norm = Norm {
        weight,
        eps,
        offset,
    };
    let rows = Rows::for_level(cpu.level());
    split(cpu, x, group, &|_, x| {
        let mut before = vec![0.0; group];
        for x in x.chunks_exact_mut(group) {
            before.copy_from_slice(x);
            rows.norm(&norm, &before, x);
        }
    });
}
