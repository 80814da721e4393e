use serde_json::{Value, json};

use super::{GrammarSchema, Patterns};
use crate::api::tools::tests::accepts;
use crate::grammar::{Grammar, compact};

mod cases;

fn relaxed(schema: &Value) -> GrammarSchema {
    super::relaxed(schema, &mut Patterns::default())
}

/// Keywords that the grammar leaves out, each with its position.
fn left_out(schema: &Value) -> Vec<String> {
    let told = relaxed(schema).left_out;
    told.iter()
        .map(|one| format!("{}@{}", one.keyword, one.at))
        .collect()
}

/// Arguments with one property of this schema, as tool authors write them.
fn of_property(schema: &Value) -> Value {
    json!({"type": "object", "properties": {"x": schema}, "required": ["x"], "additionalProperties": false})
}

fn holds(schema: &Value, answer: &str) -> bool {
    accepts(
        &Grammar::JsonSchema(compact(relaxed(schema).schema)),
        answer,
    )
}

#[test]
fn what_a_grammar_cannot_say_is_named_and_everything_else_is_held() {
    for (schema, keywords, allowed, refused) in cases::all() {
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
    // llguidance cannot intersect a schema that it is still reading.
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

/// Schemas of a megabyte that cause as much work as they can.
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

/// Forms are enforced whole, or refused with the keyword and its position.
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
            "`format` at /$defs/x, \"phone\": expected one of date-time, time, date, duration, email, hostname, ipv4, ipv6, uuid, uri",
        ),
        (
            json!({"properties": {"a": {"type": "text"}}}),
            "`type` at /properties/a, \"text\": expected one of null, boolean, integer, number, string, array, object",
        ),
        (
            json!({"type": "string", "enum": [1]}),
            "`type`, \"string\": no value of its `enum` is of this type",
        ),
        (
            json!({"pattern": format!("({}", "é".repeat(100))}),
            &format!(
                "`pattern`, \"({}: expected a regular expression of ECMAScript, not too long",
                "é".repeat(78)
            ),
        ),
        (
            json!({"type": "object", "properties": []}),
            "`properties`, []: expected an object",
        ),
        (
            json!({"$ref": "https://example.org/x.json"}),
            "`$ref`, \"https://example.org/x.json\": expected the place of one schema in this one; nothing is fetched",
        ),
        // Two schemas have this name.
        (
            json!({"$ref": "#x", "$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x", "type": "null"}}}),
            "`$ref`, \"#x\": expected the place of one schema in this one; nothing is fetched",
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
