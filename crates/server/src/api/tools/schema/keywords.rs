//! Translates single keywords into a form that a grammar can enforce.

use serde_json::{Map, Value, json};

use super::SchemaWalk;
use super::options::are_disjoint;

/// Formats for which llguidance has expressions.
const FORMATS: [&str; 11] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
    "unknown",
];

pub(super) const TYPES: [&str; 7] = [
    "null", "boolean", "integer", "number", "string", "array", "object",
];

/// Keywords that narrow a schema and that no grammar supports. All other unknown keywords are annotations or
/// extensions.
const NARROWING: [&str; 17] = [
    "not",
    "if",
    "propertyNames",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
    "disallow",
    "extends",
    "divisibleBy",
];

/// The formats as shown to users: llguidance's `unknown` accepts anything, so it is not listed.
pub(super) fn formats() -> Vec<&'static str> {
    let known = FORMATS.into_iter();
    known.filter(|name| *name != "unknown").collect()
}

impl<'a> SchemaWalk<'a, '_> {
    /// Translates `key` of the schema `of` at `at` into `out`.
    pub(super) fn keyword(
        &mut self,
        key: &str,
        value: &'a Value,
        of: &'a Map<String, Value>,
        at: &str,
        out: &mut Map<String, Value>,
    ) {
        let kept = match key {
            "type" => types(value, of),
            "enum" => listed(value),
            "const" => Some(value.clone()),
            "minLength" | "maxLength" | "minItems" | "maxItems" => count(value),
            "minProperties" | "maxProperties" => {
                count(value).filter(|_| holds_numbers_of_properties(of))
            }
            "minimum" | "maximum" => number(value),
            "exclusiveMinimum" => return self.bound((key, "minimum"), value, of, at, out),
            "exclusiveMaximum" => return self.bound((key, "maximum"), value, of, at, out),
            "multipleOf" => number(value).filter(|n| n.as_f64().is_some_and(|n| n > 0.0)),
            "pattern" => self.pattern(value),
            "format" => match value.as_str() {
                // Formats of numbers, and formats for schemas without strings, have no effect.
                _ if !may_be_text(of) => return,
                Some(name) if FORMATS.contains(&name) => Some(value.clone()),
                _ => None,
            },
            "properties" => self.properties(value, at),
            "required" => return self.required(value, of, at, out),
            "patternProperties" => self.pattern_properties(value, at),
            // If patterns are left out, it would forbid values that they allow.
            "additionalProperties" if !self.holds_patterns(of) => match value {
                Value::Bool(true) => return,
                _ => None,
            },
            "additionalProperties" => Some(self.schema(value, &format!("{at}/{key}"))),
            "items" | "prefixItems" | "additionalItems" => {
                return self.items(key, value, of, at, out);
            }
            "allOf" | "anyOf" => self.options(key, value, at),
            "oneOf" => return self.one_of(value, at, out),
            "$ref" => return self.reference(value, at, out),
            "not" | "if" | "propertyNames" | "dependentRequired" | "dependentSchemas"
            | "dependencies"
                if narrows(key, value, of) =>
            {
                match self.rewritten(key, value, of, at) {
                    Some(more) => return add(out, "allOf", more.into()),
                    None => None,
                }
            }
            _ if NARROWING.contains(&key) && narrows(key, value, of) => None,
            _ => return,
        };
        match kept {
            Some(kept) => add(out, key, kept),
            None => self.leave_out(key, at),
        }
    }

    fn pattern(&mut self, value: &Value) -> Option<Value> {
        let text = value.as_str().filter(|text| self.patterns.is_regex(text));
        text.map(Into::into)
    }

    fn properties(&mut self, value: &'a Value, at: &str) -> Option<Value> {
        let map = value.as_object()?;
        Some(self.map(map, &format!("{at}/properties")))
    }

    fn pattern_properties(&mut self, value: &'a Value, at: &str) -> Option<Value> {
        let map = value
            .as_object()
            .filter(|map| self.patterns.are_apart(map))?;
        Some(self.map(map, &format!("{at}/patternProperties")))
    }

    fn options(&mut self, key: &str, value: &'a Value, at: &str) -> Option<Value> {
        let list = value.as_array().filter(|list| !list.is_empty())?;
        Some(self.list(list, &format!("{at}/{key}")))
    }

    /// `oneOf` becomes "at least one". Alternatives that differ in type, or in a constant that all require, exclude
    /// each other, so that is exact.
    fn one_of(&mut self, value: &'a Value, at: &str, out: &mut Map<String, Value>) {
        let Some(options) = self.options("oneOf", value, at) else {
            return self.leave_out("oneOf", at);
        };
        match value.as_array().is_some_and(|list| are_disjoint(list)) {
            true => {}
            false if self.is_whole => return add(out, "oneOf", options),
            false => self.leave_out("oneOf", at),
        }
        add(out, "anyOf", options);
    }

    /// Up to draft 4, an exclusive bound was a boolean that modified the bound beside it.
    fn bound(
        &mut self,
        (key, inclusive): (&str, &str),
        value: &Value,
        of: &Map<String, Value>,
        at: &str,
        out: &mut Map<String, Value>,
    ) {
        let kept = match value {
            Value::Bool(false) => return,
            Value::Bool(true) => match of.get(inclusive) {
                None => return,
                Some(bound) => number(bound),
            },
            other => number(other),
        };
        match kept {
            Some(kept) => {
                out.insert(key.to_owned(), kept);
            }
            None => self.leave_out(key, at),
        }
    }

    /// Names of required properties. One whose schema allows nothing would leave no object at all.
    fn required(
        &mut self,
        value: &Value,
        of: &Map<String, Value>,
        at: &str,
        out: &mut Map<String, Value>,
    ) {
        let Some(list) = value.as_array() else {
            // In draft 3 it was a boolean within the property.
            if *value != Value::Bool(false) {
                self.leave_out("required", at);
            }
            return;
        };
        let is_closed = of.get("additionalProperties") == Some(&Value::Bool(false))
            && !of.contains_key("patternProperties");
        let properties = of.get("properties").and_then(Value::as_object);
        let can_be = |name: &str| match properties.and_then(|map| map.get(name)) {
            Some(schema) => *schema != Value::Bool(false),
            None => !is_closed,
        };
        let names: Vec<Value> = list
            .iter()
            .filter(|name| name.as_str().is_some_and(can_be))
            .cloned()
            .collect();
        if names.len() < list.len() {
            self.leave_out("required", at);
        }
        out.insert("required".to_owned(), names.into());
    }

    fn holds_patterns(&mut self, of: &Map<String, Value>) -> bool {
        match of.get("patternProperties") {
            None => true,
            Some(Value::Object(map)) => self.patterns.are_apart(map),
            Some(_) => false,
        }
    }

    /// Items by position, and the rest: `prefixItems` and `items`, up to draft 2019-09 `items` and
    /// `additionalItems`.
    fn items(
        &mut self,
        key: &str,
        value: &'a Value,
        of: &'a Map<String, Value>,
        at: &str,
        out: &mut Map<String, Value>,
    ) {
        let place = format!("{at}/{key}");
        let is_older = of.get("items").is_some_and(Value::is_array);
        match (key, value) {
            ("items", Value::Array(list)) if !list.is_empty() => {
                out.insert("prefixItems".to_owned(), self.list(list, &place));
            }
            ("items", Value::Array(_)) => {}
            ("prefixItems", Value::Array(list)) if !is_older => {
                if !list.is_empty() {
                    out.insert("prefixItems".to_owned(), self.list(list, &place));
                }
            }
            ("additionalItems", schema) if is_older => {
                out.insert("items".to_owned(), self.schema(schema, &place));
            }
            // Without a list beside it, it has no effect.
            ("additionalItems", _) => {}
            ("items", schema) => {
                out.insert("items".to_owned(), self.schema(schema, &place));
            }
            _ => self.leave_out(key, at),
        }
    }
}

/// Adds a keyword. A second constraint of the same name, since `oneOf` becomes `anyOf`, goes into `allOf`.
fn add(out: &mut Map<String, Value>, key: &str, value: Value) {
    match (key, value) {
        ("anyOf", value) if out.contains_key(key) => {
            add(out, "allOf", json!([{"anyOf": value}]));
        }
        ("allOf", Value::Array(more)) => match out.get_mut(key) {
            Some(Value::Array(list)) => list.extend(more),
            _ => {
                out.insert(key.to_owned(), more.into());
            }
        },
        (_, value) => {
            out.insert(key.to_owned(), value);
        }
    }
}

/// Enumerated values, if there are any.
fn listed(value: &Value) -> Option<Value> {
    let list = value.as_array()?;
    (!list.is_empty()).then(|| value.clone())
}

/// Whether a `type` consists of known type names only.
pub(super) fn are_types(value: &Value) -> bool {
    names_of_types(value).is_some()
}

fn names_of_types(value: &Value) -> Option<Vec<String>> {
    let name = |value: &Value| {
        let name = value.as_str()?.to_ascii_lowercase();
        TYPES.contains(&name.as_str()).then_some(name)
    };
    match value {
        Value::Array(list) if list.is_empty() => None,
        Value::Array(list) => list.iter().map(name).collect(),
        one => Some(vec![name(one)?]),
    }
}

/// The names of types, in lower case. `None` for a type that JSON Schema does not have, such as `any`, and if no
/// value of an `enum` beside it has the type.
fn types(value: &Value, of: &Map<String, Value>) -> Option<Value> {
    let names = names_of_types(value)?;
    if let Some(Value::Array(values)) = of.get("enum").filter(|values| *values != &json!([])) {
        let fits = |value: &Value| names.iter().any(|name| is_of_type(value, name));
        if !values.iter().any(fits) {
            return None;
        }
    }
    match (value, &names[..]) {
        (Value::Array(_), _) => Some(names.into()),
        (_, [one]) => Some(one.as_str().into()),
        _ => None,
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match value {
        Value::Null => name == "null",
        Value::Bool(_) => name == "boolean",
        Value::Number(_) => name == "number" || name == "integer",
        Value::String(_) => name == "string",
        Value::Array(_) => name == "array",
        Value::Object(_) => name == "object",
    }
}

fn may_be_text(of: &Map<String, Value>) -> bool {
    let is_text = |value: &Value| {
        value
            .as_str()
            .is_some_and(|name| name.eq_ignore_ascii_case("string"))
    };
    match of.get("type") {
        None => true,
        Some(Value::Array(list)) => list.iter().any(is_text),
        Some(one) => is_text(one),
    }
}

/// A count, possibly written as `3.0`.
fn count(value: &Value) -> Option<Value> {
    let whole = |n: &f64| *n >= 0.0 && n.fract() == 0.0 && *n <= 9e15;
    match value.as_u64() {
        Some(n) => Some(n.into()),
        None => value.as_f64().filter(whole).map(|n| (n as u64).into()),
    }
}

fn number(value: &Value) -> Option<Value> {
    value
        .as_f64()
        .filter(|n| n.is_finite())
        .map(|_| value.clone())
}

/// A grammar can count properties only if each is required, or if one of them is.
fn holds_numbers_of_properties(of: &Map<String, Value>) -> bool {
    let empty = Map::new();
    let properties = of
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let required = of.get("required").and_then(Value::as_array);
    let is_required =
        |name: &String| required.is_some_and(|list| list.iter().any(|one| one == name.as_str()));
    if properties.keys().all(is_required) {
        return true;
    }
    let least = of.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
    let most = of.get("maxProperties").and_then(Value::as_u64);
    let is_closed = of.get("additionalProperties") == Some(&Value::Bool(false));
    let none_required = required.is_none_or(Vec::is_empty);
    least <= 1
        && most.unwrap_or(1) == 1
        && is_closed
        && none_required
        && !of.contains_key("patternProperties")
}

/// Whether a keyword restricts anything here.
fn narrows(key: &str, value: &Value, of: &Map<String, Value>) -> bool {
    let is_empty = match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    match key {
        "uniqueItems" => *value != Value::Bool(false),
        "unevaluatedItems" | "unevaluatedProperties" | "propertyNames" => {
            *value != Value::Bool(true) && !is_empty
        }
        "if" => of.contains_key("then") || of.contains_key("else"),
        // Alone it has no effect.
        "maxContains" => of.contains_key("contains"),
        // 0 lifts the requirement of `contains`.
        "minContains" => of.contains_key("contains") && value.as_u64() != Some(0),
        "dependentRequired" | "dependentSchemas" | "dependencies" => !is_empty,
        "contains" => {
            of.get("minContains").and_then(Value::as_u64) != Some(0)
                || of.contains_key("maxContains")
        }
        _ => true,
    }
}
