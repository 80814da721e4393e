//! Differences between two runs.

use super::shown;
use crate::design::Design;
use crate::syntax::MemRefType;

/// Describes the difference between the outputs of two runs: the number of elements, and the first of them with both
/// values.
pub(super) fn told(
    design: &Design,
    (before, order): (&[Vec<u8>], &str),
    (after, is_unset): (&[Vec<u8>], bool),
) -> String {
    let cause = match is_unset {
        true => "what is written depends on memory that nothing has set",
        false => "what is written depends on the order of actors",
    };
    for (i, argument) in design.arguments.iter().enumerate() {
        let (Some(old), Some(new)) = (before.get(i), after.get(i)) else {
            continue;
        };
        let of = &argument.of;
        let size = of.element_bytes().max(1) as usize;
        let differing: Vec<usize> = (old.chunks(size).zip(new.chunks(size)).enumerate())
            .filter(|(_, (old, new))| old != new)
            .map(|row| row.0)
            .collect();
        let Some(&first) = differing.first() else {
            continue;
        };
        let at = first * size..(first + 1) * size;
        let value = |bytes: &[u8]| {
            let bytes = bytes.get(at.clone()).unwrap_or_default();
            shown::first(&of.element, bytes)
        };
        let (n, all, name) = (differing.len(), old.len() / size, &argument.name);
        let hint = match (is_unset, sorted(old, size) == sorted(new, size)) {
            (true, _) => {
                "; no text says whether the host looks at it, or what a load leaves there: `--zero-memory` runs it with zeros"
            }
            (false, true) => {
                "; the elements are the same in another order, as streams that merge bring them, and `--any-order` allows that"
            }
            (false, false) => "",
        };
        return format!(
            "{cause}: {n} of {all} elements of argument {i} (%{name}) differ, the first is {name}{}, which was {} in the order {order} and is {} here{hint}",
            indices(of, first as u64),
            value(old),
            value(new)
        );
    }
    cause.to_owned()
}

/// Whether two runs have left the same bytes; in any order, the same elements in each argument.
pub(super) fn is_same(
    design: &Design,
    (before, after): (&[Vec<u8>], &[Vec<u8>]),
    any_order: bool,
) -> bool {
    if !any_order {
        return before == after;
    }
    let mut rows = design.arguments.iter().zip(before.iter().zip(after));
    rows.all(|(argument, (old, new))| {
        let size = argument.of.element_bytes().max(1) as usize;
        sorted(old, size) == sorted(new, size)
    })
}

fn sorted(bytes: &[u8], size: usize) -> Vec<&[u8]> {
    let mut all: Vec<&[u8]> = bytes.chunks(size).collect();
    all.sort_unstable();
    all
}

/// `[row, column]` of an element by its number.
pub(super) fn indices(of: &MemRefType, mut number: u64) -> String {
    let sizes: Option<Vec<u64>> = of.shape.iter().copied().collect();
    let sizes = sizes.unwrap_or_default();
    let mut all = Vec::new();
    for (i, &size) in sizes.iter().enumerate().rev() {
        // An argument may be longer than its type.
        let is_outermost = i == 0;
        let index = if is_outermost {
            number
        } else {
            number % size.max(1)
        };
        all.push(index.to_string());
        number /= size.max(1);
    }
    all.reverse();
    format!("[{}]", all.join(", "))
}
