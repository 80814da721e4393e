//! Uses schemas to determine the type of values that are written without quotes.

use serde_json::Value;

use super::python;

/// Maximum number of references followed in a row.
const MAX_REFERENCES: usize = 8;

/// A schema, or the target of its reference in `root`.
pub(crate) fn resolved<'s>(schema: &'s Value, root: &'s Value) -> &'s Value {
    let mut schema = schema;
    for _ in 0..MAX_REFERENCES {
        let Some(pointer) = schema["$ref"]
            .as_str()
            .and_then(|name| name.strip_prefix('#'))
        else {
            break;
        };
        schema = root.pointer(pointer).unwrap_or(&Value::Null);
    }
    schema
}

/// Whether a subschema describes only strings.
pub(super) fn is_text(schema: &Value, root: &Value, depth: usize) -> bool {
    if let Some(name) = schema["$ref"].as_str().filter(|_| depth < MAX_REFERENCES) {
        let target = name
            .strip_prefix('#')
            .and_then(|pointer| root.pointer(pointer));
        return target.is_some_and(|target| is_text(target, root, depth + 1));
    }
    let all_texts = |list: &Value| {
        let list = list.as_array();
        list.is_some_and(|list| !list.is_empty() && list.iter().all(Value::is_string))
    };
    match &schema["type"] {
        Value::String(kind) => kind == "string",
        Value::Array(kinds) => kinds.len() == 1 && kinds[0] == "string",
        _ => all_texts(&schema["enum"]) || schema["const"].is_string(),
    }
}

/// Whether a value has a type that a subschema allows. A schema allows anything that it does not restrict.
pub(super) fn may_be(schema: &Value, root: &Value, value: &Value) -> bool {
    let schema = resolved(schema, root);
    let is_of = |kind: &Value| match kind.as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    let is_of_kind = match &schema["type"] {
        Value::Null => true,
        Value::Array(kinds) => kinds.iter().any(is_of),
        kind => is_of(kind),
    };
    let is_listed = match (&schema["const"], &schema["enum"]) {
        (Value::Null, Value::Array(values)) => values.contains(value),
        (Value::Null, _) => true,
        (only, _) => only == value,
    };
    let of_several = ["anyOf", "oneOf"].iter().all(|keyword| {
        let several = schema[*keyword].as_array();
        several.is_none_or(|several| several.iter().any(|one| may_be(one, root, value)))
    });
    is_of_kind && is_listed && of_several
}

/// The value of an unquoted text. If its schema allows it, the text is parsed as JSON or as Python prints it, else it
/// is a string.
pub(super) fn unquoted(text: &str, schema: &Value, root: &Value) -> Value {
    let trimmed = text.trim();
    let read = serde_json::from_str(trimmed)
        .ok()
        .or_else(|| python::literal(trimmed));
    let text = Value::from(text);
    match read {
        Some(read) if may_be(schema, root, &read) || !may_be(schema, root, &text) => read,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_without_quotes_are_of_their_schemas_kind() {
        let root = json!({"$defs": {"n": {"type": ["number", "null"]}}});
        for (text, schema, value) in [
            ("42", json!({"type": "integer"}), json!(42)),
            ("42", json!({"type": ["string", "null"]}), json!("42")),
            ("None", json!({"type": ["string", "null"]}), json!(null)),
            ("null", json!({"$ref": "#/$defs/n"}), json!(null)),
            ("True", json!({"type": "boolean"}), json!(true)),
            ("False", json!({}), json!(false)),
            (
                "[1, 'two', {'k': [True, None]}]",
                json!({"type": "array"}),
                json!([1, "two", {"k": [true, null]}]),
            ),
            (
                "{'a b': \"d'e\"}",
                json!({"type": "object"}),
                json!({"a b": "d'e"}),
            ),
            (
                "[1]",
                json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
                json!("[1]"),
            ),
            ("high", json!({"enum": ["high", 1]}), json!("high")),
            ("1", json!({"enum": ["high", 1]}), json!(1)),
            ("2", json!({"enum": ["2", 1]}), json!("2")),
            (" plain ", json!({}), json!(" plain ")),
            ("", json!({"type": "object"}), json!("")),
            ("3", json!({"type": "boolean"}), json!(3)),
        ] {
            assert_eq!(unquoted(text, &schema, &root), value, "{text} {schema}");
        }
    }
}
