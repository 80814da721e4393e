//! Schemas of an argument, and the parts that a grammar enforces.

use serde_json::{Value, json};

mod properties;

/// A schema, its keywords that are left out, a value that it allows, and a value that it does not allow, if the
/// grammar still distinguishes them.
type ArgumentCase = (Value, &'static [&'static str], &'static str, &'static str);

pub(super) fn all() -> Vec<ArgumentCase> {
    [
        types(),
        numbers(),
        texts(),
        patterns(),
        arrays(),
        properties::objects(),
        properties::names(),
        negations(),
        conditions(),
        choices(),
        references(),
    ]
    .concat()
}

/// Types and enumerations.
fn types() -> Vec<ArgumentCase> {
    vec![
        (json!({"type": "any"}), &["type"], "1", ""),
        (json!({"type": ["string", "file"]}), &["type"], "1", ""),
        (json!({"type": "STRING"}), &[], r#""a""#, "1"),
        (json!({"type": ["string", "null"]}), &[], "null", "1"),
        (
            json!({"type": "string", "nullable": true}),
            &[],
            "null",
            "1",
        ),
        (
            json!({"type": "string", "enum": ["a"], "nullable": true}),
            &[],
            "null",
            r#""b""#,
        ),
        (
            json!({"type": "integer", "enum": ["1", "2"]}),
            &["type"],
            r#""1""#,
            r#""3""#,
        ),
        (
            json!({"type": "string", "enum": []}),
            &["enum"],
            r#""a""#,
            "1",
        ),
    ]
}

/// Numbers.
fn numbers() -> Vec<ArgumentCase> {
    vec![
        (
            json!({"type": "integer", "format": "int64"}),
            &[],
            "1",
            r#""a""#,
        ),
        (
            json!({"type": "integer", "minimum": -9_007_199_254_740_991_i64, "maximum": 9_007_199_254_740_991_i64}),
            &[],
            "7",
            "0.5",
        ),
        (
            json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
            &[],
            "2",
            "1",
        ),
        (
            json!({"type": "integer", "minimum": 1, "exclusiveMinimum": false}),
            &[],
            "1",
            "0",
        ),
        (
            json!({"type": "integer", "exclusiveMaximum": 3}),
            &[],
            "2",
            "3",
        ),
        (
            json!({"type": "integer", "minimum": "1"}),
            &["minimum"],
            "0",
            r#""a""#,
        ),
        (
            json!({"type": "integer", "multipleOf": 0}),
            &["multipleOf"],
            "1",
            r#""a""#,
        ),
    ]
}

/// Strings, apart from patterns.
fn texts() -> Vec<ArgumentCase> {
    vec![
        (
            json!({"type": "string", "format": "phone"}),
            &["format"],
            r#""a""#,
            "1",
        ),
        (
            json!({"type": "string", "format": "date"}),
            &[],
            r#""2026-11-25""#,
            r#""a""#,
        ),
        (
            json!({"type": "string", "maxLength": 2.0}),
            &[],
            r#""ab""#,
            r#""abc""#,
        ),
        (
            json!({"type": "string", "minLength": -1}),
            &["minLength"],
            r#""""#,
            "1",
        ),
        (
            json!({"type": "string", "contentEncoding": "base64", "x-order": 1, "example": "a", "deprecated": true,
                "title": "T", "description": "D", "default": "d", "$comment": "c", "examples": ["e"]}),
            &[],
            r#""a""#,
            "1",
        ),
    ]
}

/// Patterns of strings.
fn patterns() -> Vec<ArgumentCase> {
    let zod = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$";
    vec![
        (
            json!({"type": "string", "pattern": zod}),
            &["pattern"],
            r#""a@b.org""#,
            "5",
        ),
        (
            json!({"type": "string", "pattern": "(a)\\1"}),
            &["pattern"],
            r#""aa""#,
            "5",
        ),
        (
            json!({"type": "string", "pattern": "["}),
            &["pattern"],
            r#""a""#,
            "5",
        ),
        (
            json!({"type": "string", "pattern": 5}),
            &["pattern"],
            r#""a""#,
            "5",
        ),
        (
            json!({"type": "string", "pattern": "^\\d{2}\\/\\w$"}),
            &[],
            r#""12/a""#,
            r#""1a""#,
        ),
    ]
}

/// Arrays.
fn arrays() -> Vec<ArgumentCase> {
    vec![
        (
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            &["uniqueItems"],
            r#"["a"]"#,
            "[1]",
        ),
        (
            json!({"type": "array", "uniqueItems": false}),
            &[],
            "[1]",
            "1",
        ),
        (
            json!({"type": "array", "contains": {"type": "string"}, "minContains": 2}),
            &["contains", "minContains"],
            "[]",
            "1",
        ),
        (
            json!({"type": "array", "contains": {"type": "string"}, "minContains": 0}),
            &[],
            "[1]",
            "1",
        ),
        (
            json!({"type": "array", "contains": {"type": "string"}, "minContains": 0, "maxContains": 1}),
            &["contains", "maxContains"],
            "[]",
            "1",
        ),
        (
            json!({"type": "array", "unevaluatedItems": false}),
            &["unevaluatedItems"],
            "[]",
            "1",
        ),
        (
            json!({"type": "array", "items": [{"type": "integer"}], "additionalItems": false}),
            &[],
            "[1]",
            "[1, 2]",
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "integer"}], "items": false}),
            &[],
            "[1]",
            r#"["a"]"#,
        ),
    ]
}

/// `not`.
fn negations() -> Vec<ArgumentCase> {
    vec![
        (json!({"not": {}}), &["not"], "1", ""),
        (json!({"not": {"minLength": 2}}), &["not"], "1", ""),
        (
            json!({"not": {"type": ["string", "null"]}}),
            &[],
            "1",
            r#""a""#,
        ),
        (
            json!({"enum": [1, 2, 3], "not": {"enum": [1, 2]}}),
            &[],
            "3",
            "1",
        ),
        (
            json!({"type": "object", "not": {"required": ["a"]}}),
            &[],
            r#"{"b": 1}"#,
            r#"{"a": 1}"#,
        ),
    ]
}

/// `if`, and dependencies between properties.
fn conditions() -> Vec<ArgumentCase> {
    vec![
        (
            json!({"type": "object", "properties": {"k": {"enum": ["a", "b"]}, "n": {}}, "required": ["k"],
                   "if": {"properties": {"k": {"const": "a"}}}, "then": {"required": ["n"]}}),
            &[],
            r#"{"k": "b"}"#,
            r#"{"k": "a"}"#,
        ),
        (
            json!({"if": {"minLength": 2}, "then": {}}),
            &["if"],
            "1",
            "",
        ),
        (
            json!({"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {}}),
            &[],
            "{}",
            r#"{"a": 1}"#,
        ),
        (
            json!({"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}}),
            &[],
            r#"{"a": 1, "b": 2}"#,
            r#"{"a": 1}"#,
        ),
        (
            json!({"type": "object", "properties": {"a": {}, "b": {}},
                   "dependentSchemas": {"a": {"properties": {"b": {"type": "string"}}}}}),
            &[],
            r#"{"b": 1}"#,
            r#"{"a": 1, "b": 1}"#,
        ),
        (
            json!({"type": "object", "dependencies": {"a": ["b"]}}),
            &[],
            "{}",
            r#"{"a": 1}"#,
        ),
    ]
}

/// Combinations of schemas.
fn choices() -> Vec<ArgumentCase> {
    vec![
        (
            json!({"oneOf": [{"type": "object", "properties": {"a": {"type": "string"}}},
                          {"type": "object", "properties": {"b": {"type": "string"}}}]}),
            &["oneOf"],
            r#"{"a": "v"}"#,
            "1",
        ),
        (
            json!({"oneOf": [{"type": "string"}, {"type": "integer"}]}),
            &[],
            "1",
            "true",
        ),
        (
            json!({"oneOf": [
            {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
            {"type": "object", "properties": {"k": {"enum": ["b"]}}, "required": ["k"]}]}),
            &[],
            r#"{"k": "b"}"#,
            r#"{"k": "c"}"#,
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}], "oneOf": [{"type": "string"}, {"type": "boolean"}]}),
            &[],
            r#""a""#,
            "1",
        ),
        (json!({"allOf": []}), &["allOf"], "1", ""),
        (json!({"disallow": "string"}), &["disallow"], "1", ""),
    ]
}

/// References, and values that are not schemas.
fn references() -> Vec<ArgumentCase> {
    vec![
        (json!({"$dynamicRef": "#node"}), &["$dynamicRef"], "1", ""),
        (
            json!({"$ref": "https://example.org/schema.json"}),
            &["$ref"],
            "1",
            "",
        ),
        (json!({"$ref": "#/nowhere"}), &["$ref"], "1", ""),
        (json!("string"), &["schema"], "1", ""),
    ]
}
