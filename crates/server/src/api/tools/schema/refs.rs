//! References of schemas.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::SchemaWalk;

impl<'a> SchemaWalk<'a, '_> {
    /// A reference within the schema, by pointer, anchor or identifier, becomes a numbered definition. A reference to
    /// elsewhere is left out: nothing is fetched.
    pub(super) fn reference(&mut self, value: &'a Value, at: &str, out: &mut Map<String, Value>) {
        let target = value.as_str().and_then(|reference| self.find(reference));
        let Some((target, pointer)) = target else {
            return self.leave_out("$ref", at);
        };
        let number = match self.numbers.get(&pointer) {
            Some(number) => *number,
            None => {
                self.targets.push((target, pointer.clone()));
                self.numbers.insert(pointer, self.targets.len() - 1);
                self.targets.len() - 1
            }
        };
        out.insert("$ref".to_owned(), format!("#/$defs/{number}").into());
    }

    /// The target schema, and its pointer.
    fn find(&mut self, reference: &str) -> Option<(&'a Value, String)> {
        let of_root = ["$id", "id"]
            .iter()
            .find_map(|key| self.root.get(*key)?.as_str());
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let is_here =
            document.is_empty() || of_root.is_some_and(|id| id.trim_end_matches('#') == document);
        let (base, start) = match is_here {
            true => (self.root, String::new()),
            false => self.called(document)?,
        };
        if fragment.is_empty() {
            return Some((base, start));
        }
        if !fragment.starts_with('/') {
            return self.called(&format!("#{fragment}"));
        }
        let pointer = decoded(fragment);
        let target = base.pointer(&pointer)?;
        (target.is_object() || target.is_boolean()).then(|| (target, start + &pointer))
    }

    /// The schema with an identifier, or, after `#`, an anchor. If several have the same name, the target is
    /// ambiguous: it depends on the identifiers around them, which are not followed here.
    fn called(&mut self, name: &str) -> Option<(&'a Value, String)> {
        let root = self.root;
        let names = self.names.get_or_insert_with(|| {
            let mut names = HashMap::new();
            collect_names(root, "", &mut names);
            names
        });
        names.get(name).cloned().flatten()
    }

    /// Removes keywords beside a reference that is part of a cycle. They would require llguidance to intersect a
    /// schema with one that it is still reading, which it cannot.
    pub(super) fn break_loops(&mut self, schema: &mut Value) {
        let Some(Value::Object(definitions)) = schema.get_mut("$defs").map(Value::take) else {
            return;
        };
        let mut leads: HashMap<String, HashSet<String>> = HashMap::new();
        for (number, definition) in &definitions {
            let mut found = HashSet::new();
            references(definition, &mut found);
            leads.insert(format!("#/$defs/{number}"), found);
        }
        let circular = leads.keys().filter(|name| is_circular(name, &leads));
        let circular: HashSet<String> = circular.cloned().collect();
        let pointers: Vec<String> = self.targets.iter().map(|(_, at)| at.clone()).collect();
        if let Some(root) = schema.as_object_mut() {
            root.remove("$defs");
        }
        self.stand_alone(schema, "", &circular);
        let mut alone = Map::new();
        for ((number, mut definition), at) in definitions.into_iter().zip(&pointers) {
            self.stand_alone(&mut definition, at, &circular);
            alone.insert(number, definition);
        }
        schema["$defs"] = alone.into();
    }

    fn stand_alone(&mut self, value: &mut Value, at: &str, circular: &HashSet<String>) {
        match value {
            Value::Object(map) => {
                let name = map.get("$ref").and_then(Value::as_str).map(str::to_owned);
                if let Some(name) = name.filter(|name| circular.contains(name)) {
                    for keyword in map.keys().filter(|key| *key != "$ref") {
                        self.leave_out(keyword, at);
                    }
                    *value = json!({"$ref": name});
                    return;
                }
                for (key, value) in map {
                    self.stand_alone(value, &format!("{at}/{}", escaped(key)), circular);
                }
            }
            Value::Array(list) => {
                for (i, value) in list.iter_mut().enumerate() {
                    self.stand_alone(value, &format!("{at}/{i}"), circular);
                }
            }
            _ => {}
        }
    }
}

/// Identifiers and anchors, each with its schema and that schema's pointer; nothing for names that several schemas
/// have.
pub(super) type SchemaNames<'a> = HashMap<String, Option<(&'a Value, String)>>;

fn collect_names<'a>(value: &'a Value, at: &str, names: &mut SchemaNames<'a>) {
    match value {
        Value::Object(map) => {
            for (key, mark) in [
                ("$id", ""),
                ("id", ""),
                ("$anchor", "#"),
                ("$dynamicAnchor", "#"),
            ] {
                if let Some(Value::String(name)) = map.get(key) {
                    let name = format!("{mark}{name}");
                    let once = names.entry(name).and_modify(|found| *found = None);
                    once.or_insert_with(|| Some((value, at.to_owned())));
                }
            }
            for (key, value) in map {
                collect_names(value, &format!("{at}/{}", escaped(key)), names);
            }
        }
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                collect_names(value, &format!("{at}/{i}"), names);
            }
        }
        _ => {}
    }
}

/// Escapes a name as part of a JSON pointer (RFC 6901).
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Decodes a pointer from a URI: bytes as `%41` (RFC 6901, section 6).
fn decoded(fragment: &str) -> String {
    let bytes = fragment.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = bytes
            .get(i + 1..i + 3)
            .and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte.filter(|_| bytes[i] == b'%') {
            Some(byte) => {
                out.push(byte);
                i += 3;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn references(value: &Value, found: &mut HashSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match (key.as_str(), value) {
                    ("$ref", Value::String(name)) => {
                        found.insert(name.clone());
                    }
                    _ => references(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

fn is_circular(name: &str, leads: &HashMap<String, HashSet<String>>) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![name];
    while let Some(from) = open.pop() {
        for to in leads.get(from).into_iter().flatten() {
            if to == name {
                return true;
            }
            if seen.insert(to.as_str()) {
                open.push(to);
            }
        }
    }
    false
}
