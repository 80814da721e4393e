use serde_json::{Value, json};

use super::{GrammarSchema, Patterns};
use crate::api::tools::tests::accepts;
use crate::grammar::{Grammar, compact};

fn relaxed(schema: &Value) -> GrammarSchema {
    super::relaxed(schema, &mut Patterns::default())
}

/// Keywords that the grammar goes without, each with its place.
fn left_out(schema: &Value) -> Vec<String> {
    let told = relaxed(schema).left_out;
    told.iter()
        .map(|one| format!("{}@{}", one.keyword, one.at))
        .collect()
}

/// Arguments with one of some schema, as authors of tools write them.
fn of_property(schema: &Value) -> Value {
    json!({"type": "object", "properties": {"x": schema}, "required": ["x"], "additionalProperties": false})
}

fn holds(schema: &Value, answer: &str) -> bool {
    accepts(
        &Grammar::JsonSchema(compact(relaxed(schema).schema)),
        answer,
    )
}

/// Each schema of an argument, what is left out of it, a value that it allows, and one that it does not, if the grammar
/// still tells.
fn cases() -> Vec<(Value, &'static [&'static str], &'static str, &'static str)> {
    let zod = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$";
    vec![
        (
            json!({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "integer"}}),
            &[],
            r#"{"k": 1}"#,
            r#"{"k": "v"}"#,
        ),
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
            json!({"type": "array", "contains": {"type": "string"}, "minContains": 2}),
            &["contains", "minContains"],
            "[]",
            "1",
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
        (
            json!({"type": "object", "properties": {}, "unevaluatedProperties": false}),
            &["unevaluatedProperties"],
            "{}",
            "1",
        ),
        (
            json!({"type": "array", "unevaluatedItems": false}),
            &["unevaluatedItems"],
            "[]",
            "1",
        ),
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
        (json!({"$dynamicRef": "#node"}), &["$dynamicRef"], "1", ""),
        (
            json!({"$ref": "https://example.org/schema.json"}),
            &["$ref"],
            "1",
            "",
        ),
        (json!({"$ref": "#/nowhere"}), &["$ref"], "1", ""),
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
        (
            json!({"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": false}),
            &[],
            r#"{"a1": 1}"#,
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
        (
            json!({"type": "string", "contentEncoding": "base64", "x-order": 1, "example": "a", "deprecated": true,
                "title": "T", "description": "D", "default": "d", "$comment": "c", "examples": ["e"]}),
            &[],
            r#""a""#,
            "1",
        ),
        (
            json!({"type": "object", "properties": {"title": {"type": "integer"}, "description": {"type": "integer"},
                                                 "default": {"type": "integer"}}}),
            &[],
            r#"{"title": 1, "description": 2, "default": 3}"#,
            r#"{"title": "a"}"#,
        ),
        (json!("string"), &["schema"], "1", ""),
        (json!({"allOf": []}), &["allOf"], "1", ""),
        (json!({"disallow": "string"}), &["disallow"], "1", ""),
    ]
}

#[test]
fn what_a_grammar_cannot_say_is_named_and_everything_else_is_held() {
    for (schema, keywords, allowed, refused) in cases() {
        let whole = of_property(&schema);
        let expected: Vec<String> = keywords
            .iter()
            .map(|keyword| format!("{keyword}@/properties/x"))
            .collect();
        assert_eq!(left_out(&whole), expected, "{schema}");
        assert!(
            holds(&whole, &format!("{{\"x\": {allowed}}}")),
            "{schema} refuses {allowed}"
        );
        if !refused.is_empty() {
            assert!(
                !holds(&whole, &format!("{{\"x\": {refused}}}")),
                "{schema} takes {refused}"
            );
        }
    }
}

#[test]
fn references_within_a_schema_are_followed() {
    let point = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
                       "additionalProperties": false});
    let with = |container: &str, reference: &str, point: &Value| {
        let mut schema = of_property(&json!({"$ref": reference}));
        let place = container.split('/').fold(&mut schema, |at, name| {
            at.as_object_mut()
                .unwrap()
                .entry(name)
                .or_insert_with(|| json!({}))
        });
        *place = point.clone();
        schema
    };
    let named = |key: &str, name: &str| {
        let mut point = point.clone();
        point[key] = name.into();
        point
    };
    for schema in [
        with("$defs/point", "#/$defs/point", &point),
        with("definitions/point", "#/definitions/point", &point),
        with("components/point", "#/components/point", &point),
        with("$defs/a b~", "#/$defs/a%20b~0", &point),
        with("$defs/p", "#point", &named("$anchor", "point")),
        with("definitions/p", "#point", &named("$id", "#point")),
        with(
            "$defs/p",
            "https://example.org/point",
            &named("$id", "https://example.org/point"),
        ),
    ] {
        assert_eq!(left_out(&schema), [""; 0], "{schema}");
        assert!(holds(&schema, r#"{"x": {"n": 1}}"#), "{schema}");
        assert!(!holds(&schema, r#"{"x": {"n": "a"}}"#), "{schema}");
    }
}

#[test]
fn circles_of_references_end() {
    let list = json!({"$ref": "#/$defs/list", "$defs": {"list": {
        "type": "object", "properties": {"next": {"$ref": "#/$defs/list", "description": "The rest."}},
        "additionalProperties": false}}});
    assert_eq!(left_out(&list), [""; 0]);
    assert!(holds(&list, r#"{"next": {"next": {}}}"#));
    assert!(!holds(&list, r#"{"next": {"text": {}}}"#));
    // llguidance cannot intersect what it still reads.
    let beside = json!({"type": "object", "properties": {"next": {"$ref": "#", "minProperties": 1, "type": "object"}},
                        "additionalProperties": false});
    assert_eq!(
        left_out(&beside),
        ["minProperties@/properties/next", "type@/properties/next"]
    );
    assert!(holds(&beside, r#"{"next": {"next": {}}}"#));
    let two = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {
        "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b", "nullable": true}}},
        "b": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}}});
    assert_eq!(left_out(&two), [""; 0]);
    assert!(holds(&two, r#"{"a": {"b": {"a": {"b": null}}}}"#));
}

#[test]
fn arguments_are_an_object_and_prose_is_not_counted() {
    for schema in [
        json!({}),
        json!(true),
        json!(false),
        json!({"properties": {"a": {}}}),
        json!({"type": ["object", "null"]}),
    ] {
        assert!(holds(&schema, "{}"), "{schema}");
        assert!(!holds(&schema, "5"), "{schema}");
    }
    let described =
        of_property(&json!({"type": "string", "description": "x".repeat(100_000), "default": "y"}));
    assert!(relaxed(&described).schema.to_string().len() < 200);
}

/// Schemas of a megabyte that ask for as much work as they can.
#[test]
fn hostile_schemas_are_soon_done() {
    let many = |n: usize, one: &dyn Fn(usize) -> Value| -> Value {
        let properties = (0..n).map(|i| (i.to_string(), one(i)));
        let properties: serde_json::Map<String, Value> = properties.collect();
        json!({"type": "object", "properties": properties})
    };
    let nested = (0..100).fold(json!({}), |inner, _| json!({"properties": {"x": inner}}));
    let within = |depth: usize| "/properties/x".repeat(depth);
    let pairs = |i: usize| {
        let patterns = (0..8).map(|k| (format!("(a|b{i}{k}){{9}}"), json!({})));
        json!({"patternProperties": patterns.collect::<serde_json::Map<_, _>>()})
    };
    let mut references = many(
        20_000,
        &|i| json!({"$ref": format!("#/properties/{}", (i + 1) % 20_000)}),
    );
    references["$ref"] = "#/properties/0".into();
    for schema in [
        many(20_000, &|_| json!({"pattern": "\\pL\\pL\\pL\\pL\\pL\\pL"})),
        many(20_000, &|i| json!({"$ref": format!("#nowhere{i}")})),
        many(3_000, &pairs),
        many(
            1_500,
            &|i| json!({"x": {}, "$ref": format!("#/x{}", within(i % 100))}),
        ),
        references,
        {
            let mut schema = many(
                5_000,
                &|i| json!({"$ref": format!("#/nested{}", within(i % 100))}),
            );
            schema["nested"] = nested;
            schema
        },
    ] {
        let start = std::time::Instant::now();
        let told = relaxed(&schema).left_out;
        assert!(told.len() <= super::MAX_LEFT_OUT);
        assert!(
            start.elapsed() < std::time::Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }
}

/// Forms are held whole, or refused by the keyword and its place.
#[test]
fn a_whole_schema_is_held_or_named() {
    for (schema, named) in [
        (
            json!({"type": "array", "uniqueItems": true}),
            "`uniqueItems`",
        ),
        (
            json!({"properties": {"a": {"items": {"not": {"minLength": 2}}}}}),
            "`not` at /properties/a/items",
        ),
        (
            json!({"$ref": "#/$defs/x", "$defs": {"x": {"format": "phone"}}}),
            "`format` at /$defs/x",
        ),
        (json!({"$ref": "https://example.org/x.json"}), "`$ref`"),
        // Two schemas have this name.
        (
            json!({"$ref": "#x", "$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x", "type": "null"}}}),
            "`$ref`",
        ),
    ] {
        let error = super::whole(&schema).unwrap_err();
        assert_eq!(error, format!("the grammar cannot hold {named}"));
    }
    let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {
        "type": "object", "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["value"], "additionalProperties": false}}});
    let held = Grammar::JsonSchema(super::whole(&tree).unwrap());
    assert!(accepts(
        &held,
        r#"{"value": 1, "children": [{"value": 2, "children": []}]}"#
    ));
    assert!(!accepts(&held, r#"{"children": []}"#));
    assert_eq!(super::whole(&json!(true)), Ok(json!(true)));
}
