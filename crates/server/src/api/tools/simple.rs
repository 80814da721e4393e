//! Schemas in a form that every template with functions accepts.
//!
//! Some templates read more of a schema than it must contain: a type that is one word, a description, properties of
//! every object. They fail if it is missing, and users of other authors' functions cannot fix that.

use std::cell::Cell;

use serde_json::{Map, Value, json};

use crate::syntax::resolved;

/// Maximum depth of nested schemas.
const MAX_DEPTH: usize = 12;

/// Limit on the schemas of all functions together. Recursive references never end, and each may lead to several.
const MAX_SCHEMAS: usize = 20_000;

/// Functions as shown to templates; their schemas have every field that templates read.
pub(crate) fn simple_functions(functions: &Value) -> Value {
    let n_left = Cell::new(MAX_SCHEMAS);
    let of_one = |function: &Value| {
        let mut function = function.clone();
        let parameters = &mut function["function"]["parameters"];
        *parameters = simple(parameters, parameters, 0, &n_left);
        function
    };
    functions
        .as_array()
        .into_iter()
        .flatten()
        .map(of_one)
        .collect()
}

/// A subschema: its type in one word, its prose, and its contents.
fn simple(schema: &Value, root: &Value, depth: usize, n_left: &Cell<usize>) -> Value {
    let given = resolved(schema, root);
    let several = ["anyOf", "oneOf"]
        .iter()
        .find_map(|keyword| given[*keyword].as_array());
    let is_something = |one: &&Value| resolved(one, root)["type"] != "null";
    let first = several.and_then(|several| several.iter().find(is_something));
    let of = first.map_or(given, |first| resolved(first, root));
    let kind = kind(of);
    let texts = [schema, given, of];
    let description = texts.iter().find_map(|one| one["description"].as_str());
    let mut out = json!({"type": kind, "description": description.unwrap_or_default()});
    if let Some(values) = of["enum"].as_array() {
        out["enum"] = values.clone().into();
    }
    let within = |member: &Value| {
        n_left.set(n_left.get().saturating_sub(1));
        match depth < MAX_DEPTH && n_left.get() > 0 {
            true => simple(member, root, depth + 1, n_left),
            false => json!({"type": "string", "description": ""}),
        }
    };
    match kind {
        "object" => {
            let members = of["properties"].as_object().into_iter().flatten();
            let members = members.map(|(name, member)| (name.clone(), within(member)));
            out["properties"] = members.collect::<Map<_, _>>().into();
            let required = of["required"].as_array().cloned().unwrap_or_default();
            out["required"] = required.into();
            out["additionalProperties"] = within(&of["additionalProperties"]);
        }
        "array" => out["items"] = within(&of["items"]),
        _ => {}
    }
    out
}

/// The type that a schema describes, in one word.
fn kind(schema: &Value) -> &str {
    let listed = schema["type"].as_array().into_iter().flatten();
    let mut words = listed.chain([&schema["type"]]).filter_map(Value::as_str);
    let word = words.find(|word| *word != "null");
    word.unwrap_or_else(|| match (&schema["properties"], &schema["items"]) {
        (Value::Object(_), _) => "object",
        (_, Value::Object(_)) => "array",
        _ => "string",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_has_what_templates_read() {
        let functions = json!([{"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "required": ["a"], "$defs": {"part": {"properties": {"id": {}}}},
            "properties": {
                "a": {"type": ["null", "integer"], "description": "A."}, "b": {"$ref": "#/$defs/part", "description": "B."},
                "c": {"anyOf": [{"type": "null"}, {"type": "array"}]}, "d": {"enum": ["x", "y"]},
            },
        }}}]);
        let text = json!({"type": "string", "description": ""});
        let expected = json!({
            "type": "object", "description": "", "required": ["a"], "additionalProperties": text,
            "properties": {
                "a": {"type": "integer", "description": "A."},
                "b": {"type": "object", "description": "B.", "required": [], "properties": {"id": text}, "additionalProperties": text},
                "c": {"type": "array", "description": "", "items": text},
                "d": {"type": "string", "description": "", "enum": ["x", "y"]},
            },
        });
        let found = simple_functions(&functions);
        assert_eq!(found[0]["function"]["parameters"], expected);
        // Recursive ones without end.
        let wide: Map<String, Value> = (0..50)
            .map(|i| (format!("p{i}"), json!({"$ref": "#"})))
            .collect();
        let wide = json!([{"function": {"parameters": {"type": "object", "properties": wide}}}]);
        assert!(simple_functions(&wide).to_string().len() < 200 * MAX_SCHEMAS);
        let recursive = json!([{"function": {"parameters": {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}}}]);
        assert_eq!(
            simple_functions(&recursive)[0]["function"]["parameters"]["type"],
            "array"
        );
    }
}
