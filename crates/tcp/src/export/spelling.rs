//! Mappings as the vendor's macros take them.

use crate::Element;
use crate::axes::{Axes, Mapping};

/// The axis of an interleaved fetch: which of the two tensors.
pub(super) const INTERLEAVED: &str = "I";

/// Element types that the vendor's interface has under our name.
pub(super) fn scalar(element: Element) -> &'static str {
    element.name()
}

/// A name in a form that Rust accepts.
pub(super) fn identifier(name: &str) -> String {
    let known = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let mut out: String = name.chars().map(known).collect();
    if out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert(0, 'p');
    }
    out
}

/// Elements of a mapping in a packet of `n` at least: padding behind the values.
pub(super) fn padded_to(mapping: &Mapping, size: u64, n: u64) -> Mapping {
    match mapping {
        _ if size >= n => mapping.clone(),
        Mapping::Padding(inner, _) => inner.as_ref().clone().pad(n),
        other => other.clone().pad(n),
    }
}

/// Values of a mapping without the padding at its end, and their number.
pub(super) fn values(mapping: &Mapping, axes: &Axes) -> Result<(Mapping, u64), String> {
    let inner = match mapping {
        Mapping::Padding(inner, _) => inner,
        other => other,
    };
    Ok((inner.clone(), size(inner, axes)?))
}

pub(super) fn size(mapping: &Mapping, axes: &Axes) -> Result<u64, String> {
    mapping.size(axes).map_err(|error| error.to_string())
}

/// Axes that a mapping names, each once.
pub(super) fn named(mapping: &Mapping) -> Vec<&str> {
    let mut names = match mapping {
        Mapping::Copies(_) => Vec::new(),
        Mapping::Symbol(name) => vec![name.as_str()],
        Mapping::Stride(inner, _)
        | Mapping::Modulo(inner, _)
        | Mapping::Resize(inner, _)
        | Mapping::Padding(inner, _) => named(inner),
        Mapping::Pair(outer, inner) => [named(outer), named(inner)].concat(),
    };
    names.sort_unstable();
    names.dedup();
    names
}

/// A mapping under other names of axes.
pub(super) fn renamed(mapping: &Mapping, renames: &[(String, String)]) -> Mapping {
    let inner = |m: &Mapping| Box::new(renamed(m, renames));
    match mapping {
        Mapping::Copies(n) => Mapping::Copies(*n),
        Mapping::Symbol(name) => {
            let to = renames.iter().find(|(from, _)| from == name);
            Mapping::Symbol(to.map_or(name, |(_, to)| to).clone())
        }
        Mapping::Stride(m, n) => Mapping::Stride(inner(m), *n),
        Mapping::Modulo(m, n) => Mapping::Modulo(inner(m), *n),
        Mapping::Resize(m, n) => Mapping::Resize(inner(m), *n),
        Mapping::Padding(m, n) => Mapping::Padding(inner(m), *n),
        Mapping::Pair(a, b) => Mapping::Pair(inner(a), inner(b)),
    }
}
