//! Mappings and stages in few words.

use crate::Element;
use crate::axes::Mapping;
use crate::program::{Stage, TensorSharding, VectorOp, VectorOperand, View};

/// An axis.
pub(in crate::lower) fn ax(name: &str) -> Mapping {
    Mapping::axis(name)
}

/// Copies over `n` positions.
pub(in crate::lower) fn copies(n: u64) -> Mapping {
    Mapping::Copies(n)
}

/// A product of mappings, the first outermost.
pub(in crate::lower) fn list<const N: usize>(parts: [Mapping; N]) -> Mapping {
    Mapping::product(parts)
}

/// The first `n` of a mapping of `size`, nothing where that is all of it.
pub(in crate::lower) fn inner(mapping: &Mapping, size: u64, n: u64) -> Mapping {
    match n {
        1 => Mapping::one(),
        n if n == size => mapping.clone(),
        n => mapping.clone().modulo(n),
    }
}

/// Blocks of `n` of a mapping of `size`.
pub(in crate::lower) fn outer(mapping: &Mapping, size: u64, n: u64) -> Mapping {
    match size == n {
        true => Mapping::one(),
        false => mapping.clone().over(n),
    }
}

/// Padded to `n` positions, where it has fewer.
pub(in crate::lower) fn padded(mapping: Mapping, size: u64, n: u64) -> Mapping {
    match size == n {
        true => mapping,
        false => mapping.pad(n),
    }
}

/// Fills `n` slices: padding is outside where that divides, so that the inner part stays unchanged.
pub(in crate::lower) fn filled(mapping: Mapping, size: u64, n: u64) -> Mapping {
    match n.is_multiple_of(size) {
        true => list([filler(n / size), mapping]),
        false => padded(mapping, size, n),
    }
}

/// Padding behind a value, to `n` positions.
pub(in crate::lower) fn filler(n: u64) -> Mapping {
    match n {
        1 => Mapping::one(),
        n => Mapping::one().pad(n),
    }
}

/// The digit of a mapping of `size` that counts blocks of `low`, `count` of them.
pub(in crate::lower) fn digit(mapping: &Mapping, size: u64, low: u64, count: u64) -> Mapping {
    if count == 1 {
        return Mapping::one();
    }
    let over = mapping.clone().over(low);
    match low * count == size {
        true => over,
        false => over.modulo(count),
    }
}

/// Fetch and collect in one order.
pub(in crate::lower) fn fetch(
    view: View,
    cast: Option<Element>,
    time: Mapping,
    packet: Mapping,
) -> [Stage; 2] {
    [
        Stage::Fetch {
            view,
            with: None,
            cast,
            time: time.clone(),
            packet: packet.clone(),
        },
        Stage::Collect { time, packet },
    ]
}

/// A vector operation.
pub(in crate::lower) fn vector(op: VectorOp, operand: VectorOperand) -> Stage {
    Stage::Vector { op, operand }
}

/// A spread from its two mappings.
pub(in crate::lower) fn spread(cluster: Mapping, slice: Mapping) -> TensorSharding {
    TensorSharding { cluster, slice }
}
