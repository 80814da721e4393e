//! Suggestions for a key that does not exist.

use crate::{Record, unit};

/// Longest unknown key that is compared, in characters.
const MOST_CHARS: usize = 64;

/// Advice for a key that does not exist: the key that was probably meant, or all keys there are.
pub(crate) fn hint<S: Record>(key: &str) -> String {
    let known = || S::keys().iter().map(|known| known.path);
    let other_unit = known().find(|known| is_in_another_unit(key, known));
    if let Some((known, unit)) = other_unit.and_then(|k| Some((k, unit::unit_of(k)?))) {
        return format!("did you mean `{known}`? It is in {unit}");
    }
    if let Some(nearest) = nearest(key, known()) {
        return format!("did you mean `{nearest}`?");
    }
    let mut list = known().collect::<Vec<_>>().join(", ");
    if let Some(family) = S::family() {
        list.push_str(&format!(", and {}", family.pattern()));
    }
    format!("known are {list}")
}

/// Whether both keys measure the same quantity in different units.
fn is_in_another_unit(key: &str, known: &str) -> bool {
    let (a, b) = (unit::split(key), unit::split(known));
    a.zip(b).is_some_and(|(a, b)| a.0 == b.0 && a.1 != b.1)
}

/// The key with the least edit distance, if it is close: at most half of the characters differ.
fn nearest(key: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let key: String = key.chars().take(MOST_CHARS).collect();
    let of = |candidate: &'static str| {
        let distance = match candidate.strip_prefix(&*key) {
            // A key that starts with the text is closer than one a few edits away.
            Some(rest) if key.len() >= 3 && rest.starts_with(['_', '.']) => 1,
            _ => strsim::damerau_levenshtein(&key, candidate),
        };
        (distance, candidate)
    };
    let (distance, nearest) = known.map(of).min_by_key(|found| found.0)?;
    (2 * distance <= key.chars().count().max(2)).then_some(nearest)
}
