//! Properties of objects, and their names.

use serde_json::json;

use super::ArgumentCase;

/// Properties.
pub(super) fn objects() -> Vec<ArgumentCase> {
    vec![
        (
            json!({"type": "object", "properties": {}, "unevaluatedProperties": false}),
            &["unevaluatedProperties"],
            "{}",
            "1",
        ),
        (
            json!({"type": "object", "properties": {"a": true}, "required": true}),
            &["required"],
            "{}",
            "1",
        ),
        (
            json!({"type": "object", "properties": {}, "required": ["a"], "additionalProperties": false}),
            &["required"],
            "{}",
            "1",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "minProperties": 2}),
            &["minProperties"],
            "{}",
            "1",
        ),
        // One of them is there: held where no others may be.
        (
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "minProperties": 1}),
            &["minProperties"],
            "{}",
            "1",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "minProperties": 1, "additionalProperties": false}),
            &[],
            r#"{"a": 1}"#,
            "{}",
        ),
        (
            json!({"type": "object", "properties": {"title": {"type": "integer"}, "description": {"type": "integer"},
                                                 "default": {"type": "integer"}}}),
            &[],
            r#"{"title": 1, "description": 2, "default": 3}"#,
            r#"{"title": "a"}"#,
        ),
    ]
}

/// Names of properties.
pub(super) fn names() -> Vec<ArgumentCase> {
    vec![
        (
            json!({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "integer"}}),
            &[],
            r#"{"k": 1}"#,
            r#"{"k": "v"}"#,
        ),
        (
            json!({"type": "object", "propertyNames": {"pattern": "^x"}}),
            &[],
            r#"{"xa": 1}"#,
            r#"{"a": 1}"#,
        ),
        (
            json!({"type": "object", "propertyNames": {"enum": ["a"]}}),
            &[],
            r#"{"a": 1}"#,
            r#"{"b": 1}"#,
        ),
        (
            json!({"type": "object", "propertyNames": {"maxLength": 1}}),
            &["propertyNames"],
            r#"{"b": 1}"#,
            "1",
        ),
        (
            json!({"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": false}),
            &[],
            r#"{"a1": 1}"#,
            r#"{"b": 1}"#,
        ),
        // A pattern allows what is required.
        (
            json!({"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "required": ["ab"], "additionalProperties": false}),
            &[],
            r#"{"ab": 1}"#,
            r#"{"b": 1}"#,
        ),
        (
            json!({"type": "object", "patternProperties": {"^(?!a)": {}}, "additionalProperties": false}),
            &["patternProperties", "additionalProperties"],
            r#"{"b": 1}"#,
            "1",
        ),
        (
            json!({"type": "object", "patternProperties": {"a": {}, "b": {}}, "additionalProperties": false}),
            &["patternProperties", "additionalProperties"],
            r#"{"ab": 1}"#,
            "1",
        ),
    ]
}
