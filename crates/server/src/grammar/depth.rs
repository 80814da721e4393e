//! Depth of a grammar's references, in schemas and in Lark, computed before any recursion over it.
//!
//! The grammar compiler recurses for every reference that it meets for the first time. The depth computed here bounds
//! the recursion, and the compiler's [stack](super::compiler::STACK_BYTES) is many times larger than that needs. JSON
//! itself is limited to 128 levels; parentheses and regular expressions have separate limits.

use std::collections::HashMap;

use serde_json::Value;

use super::lark;

/// Maximum length of a chain of references in a schema.
pub const MAX_REFERENCE_DEPTH: usize = 512;

/// Maximum length of a chain of rules and terminals.
pub const MAX_RULE_DEPTH: usize = 1024;

/// Maximum nesting of arrays and objects in a schema. JSON of 128 levels is not parsed at all, so this leaves room to
/// pass the schema on inside other JSON.
const MAX_NESTING: usize = 100;

/// Maximum number of values visited to find a schema's references. A part with many references to it counts each
/// time.
const MAX_LOOKS: usize = 4_000_000;

/// Refuses a schema whose references go too deep. A recursive reference counts the parts on its way.
///
/// # Errors
/// A description.
pub(super) fn check_schema(schema: &Value) -> Result<(), String> {
    if nesting(schema) > MAX_NESTING {
        return Err(format!(
            "its arrays and objects nest more than {MAX_NESTING} levels deep"
        ));
    }
    let places = places(schema)?;
    let mut index_of: HashMap<*const Value, usize> =
        HashMap::from([(std::ptr::from_ref(schema), 0)]);
    let mut parts = vec![schema];
    let mut edges: Vec<Vec<usize>> = Vec::new();
    let mut n_looks = 0;
    while let Some(part) = parts.get(edges.len()) {
        let mut leads_to = Vec::new();
        for value in values(part) {
            n_looks += 1;
            if n_looks > MAX_LOOKS {
                return Err("its references overlap too much".to_owned());
            }
            for target in targets(value, schema, &places) {
                let n = index_of.len();
                let index = *index_of.entry(std::ptr::from_ref(target)).or_insert(n);
                if index == n {
                    parts.push(target);
                }
                leads_to.push(index);
            }
        }
        edges.push(leads_to);
    }
    // The root is not a reference.
    let depth = longest_way(&edges).saturating_sub(1);
    if depth > MAX_REFERENCE_DEPTH {
        return Err(format!(
            "its references ($ref) lead {depth} levels deep; at most {MAX_REFERENCE_DEPTH} are accepted"
        ));
    }
    Ok(())
}

/// Refuses Lark whose rules and terminals go too deep, alone or through each other, or that contains such a schema.
///
/// # Errors
/// A description.
pub(super) fn check_lark(source: &str) -> Result<(), String> {
    let found = lark::scan(source);
    for schema in &found.schemas {
        check_schema(schema)?;
    }
    let depth = longest_way(&found.edges);
    if depth > MAX_RULE_DEPTH {
        return Err(format!(
            "its rules and terminals lead {depth} levels deep; at most {MAX_RULE_DEPTH} are accepted"
        ));
    }
    Ok(())
}

/// Nesting depth of arrays and objects.
fn nesting(root: &Value) -> usize {
    let (mut left, mut deepest) = (vec![(root, 0)], 0);
    while let Some((value, depth)) = left.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Array(list) => left.extend(list.iter().map(|value| (value, depth + 1))),
            Value::Object(object) => left.extend(object.values().map(|value| (value, depth + 1))),
            _ => {}
        }
    }
    deepest
}

/// A value and all values in it.
fn values(root: &Value) -> impl Iterator<Item = &Value> {
    let mut left = vec![root];
    std::iter::from_fn(move || {
        let value = left.pop()?;
        match value {
            Value::Array(list) => left.extend(list),
            Value::Object(object) => left.extend(object.values()),
            _ => {}
        }
        Some(value)
    })
}

/// Parts of a schema by their own identifiers and anchors.
fn places(schema: &Value) -> Result<HashMap<&str, &Value>, String> {
    let mut places = HashMap::new();
    for (n, value) in values(schema).enumerate() {
        if n > MAX_LOOKS {
            return Err("it has too many values".to_owned());
        }
        for name in ["$id", "id", "$anchor", "$dynamicAnchor"] {
            if let Some(name) = value.get(name).and_then(Value::as_str) {
                places.insert(name.trim_end_matches('#'), value);
            }
        }
    }
    Ok(places)
}

/// The targets of a value's references, if it is a schema with references.
fn targets<'a>(
    value: &Value,
    root: &'a Value,
    places: &HashMap<&str, &'a Value>,
) -> Vec<&'a Value> {
    let names = ["$ref", "$dynamicRef", "$recursiveRef"];
    let references = names.iter().filter_map(|name| value.get(name)?.as_str());
    let target = |reference: &str| {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let base = match base {
            "" => Some(root),
            base => places.get(base).copied(),
        };
        match fragment {
            "" => base,
            // A pointer may be relative to another part; usually it is relative to the root.
            pointer if pointer.starts_with('/') => {
                let pointer = percent_decoded(pointer);
                base.and_then(|base| base.pointer(&pointer))
                    .or_else(|| root.pointer(&pointer))
            }
            anchor => places.get(anchor).copied(),
        }
    };
    references.filter_map(target).collect()
}

/// Decodes percent encoding: `%41` is `A`.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind
            .get(..2)
            .and_then(|two| std::str::from_utf8(two).ok());
        let coded = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match coded.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Maximum number of nodes on a path through a graph without meeting one twice. A cycle's nodes are all counted, so
/// this is an upper bound.
fn longest_way(edges: &[Vec<usize>]) -> usize {
    let groups = groups(edges);
    let n_groups = groups.iter().map(|group| group + 1).max().unwrap_or(0);
    let mut size = vec![0; n_groups];
    groups.iter().for_each(|group| size[*group] += 1);
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); n_groups];
    (0..edges.len()).for_each(|node| members[groups[node]].push(node));
    // For each group, the longest path that ends before it.
    let mut before = vec![0; n_groups];
    let mut longest = 0;
    for group in 0..n_groups {
        let so_far = before[group] + size[group];
        longest = longest.max(so_far);
        for target in members[group].iter().flat_map(|node| &edges[*node]) {
            let target = groups[*target];
            if target != group {
                before[target] = so_far.max(before[target]);
            }
        }
    }
    longest
}

/// For each node, the number of its strongly connected component. Components are numbered so that edges lead only to
/// later ones. Uses Kosaraju's algorithm with explicit stacks, since the graph may be as deep as the ones to refuse.
fn groups(edges: &[Vec<usize>]) -> Vec<usize> {
    let n = edges.len();
    let mut finished = Vec::with_capacity(n);
    let mut is_seen = vec![false; n];
    for start in 0..n {
        let mut stack = vec![(start, 0)];
        if std::mem::replace(&mut is_seen[start], true) {
            continue;
        }
        while let Some((node, next)) = stack.pop() {
            match edges[node].get(next) {
                Some(&target) => {
                    stack.push((node, next + 1));
                    if !std::mem::replace(&mut is_seen[target], true) {
                        stack.push((target, 0));
                    }
                }
                None => finished.push(node),
            }
        }
    }
    let mut backwards = vec![Vec::new(); n];
    for (node, targets) in edges.iter().enumerate() {
        targets
            .iter()
            .for_each(|target| backwards[*target].push(node));
    }
    let mut groups = vec![usize::MAX; n];
    let mut n_groups = 0;
    for start in finished.into_iter().rev() {
        if groups[start] != usize::MAX {
            continue;
        }
        let mut stack = vec![start];
        while let Some(node) = stack.pop() {
            if groups[node] == usize::MAX {
                groups[node] = n_groups;
                stack.extend(&backwards[node]);
            }
        }
        n_groups += 1;
    }
    groups
}

#[cfg(test)]
mod tests;
