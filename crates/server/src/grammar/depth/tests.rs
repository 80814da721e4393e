use serde_json::json;

use super::*;

/// `n` definitions, each with a reference to the next, made by `link`.
fn chain(n: usize, link: impl Fn(Value) -> Value) -> Value {
    let mut definitions = serde_json::Map::new();
    for i in 0..n {
        let next = json!({"$ref": format!("#/$defs/a{}", i + 1)});
        definitions.insert(format!("a{i}"), link(next));
    }
    definitions.insert(format!("a{n}"), json!({"type": "string"}));
    json!({"$ref": "#/$defs/a0", "$defs": definitions})
}

#[test]
fn references_are_counted_through_every_keyword() {
    let links: [fn(Value) -> Value; 9] = [
        |next| next,
        |next| json!({"type": "object", "properties": {"x": next}}),
        |next| json!({"type": "array", "items": next}),
        |next| json!({"type": "array", "prefixItems": [next]}),
        |next| json!({"anyOf": [{"type": "null"}, next]}),
        |next| json!({"oneOf": [next]}),
        |next| json!({"allOf": [{"type": "object"}, next]}),
        |next| json!({"type": "object", "additionalProperties": next}),
        |next| json!({"type": "object", "patternProperties": {"^a": next}}),
    ];
    for link in links {
        let shown = link(json!("next"));
        assert_eq!(
            check_schema(&chain(MAX_REFERENCE_DEPTH - 1, link)),
            Ok(()),
            "{shown}"
        );
        let error = check_schema(&chain(MAX_REFERENCE_DEPTH, link)).expect_err("too deep");
        assert!(
            error.contains("lead 513 levels deep; at most 512"),
            "{shown}: {error}"
        );
    }
}

#[test]
fn other_names_of_places_are_followed_too() {
    for reference in ["a", "#b", "a#", "#/%24defs/%61", "a#/properties/self"] {
        let schema = json!({
            "$defs": {"a": {"$id": "a", "$anchor": "b", "properties": {"self": {"$ref": reference}}}},
            "anyOf": [{"$ref": reference}],
        });
        let places = places(&schema).expect("few values");
        let found = targets(&json!({"$ref": reference}), &schema, &places);
        assert_eq!(found.len(), 1, "{reference}");
    }
}

#[test]
fn what_refers_to_itself_is_as_deep_as_it_is_long() {
    let tree = json!({"type": "object", "properties": {
        "left": {"$ref": "#"}, "right": {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
    }});
    assert_eq!(check_schema(&tree), Ok(()));
    let ring = |n: usize| {
        let mut ring = chain(n, |next| json!({"type": "array", "items": next}));
        ring["$defs"][format!("a{n}")] = json!({"$ref": "#/$defs/a0"});
        ring
    };
    assert_eq!(check_schema(&ring(100)), Ok(()));
    assert!(check_schema(&ring(600)).is_err());
    // Wide, not deep.
    let wide = chain(0, |next| next);
    let many: Vec<Value> = (0..2000).map(|_| wide["$defs"]["a0"].clone()).collect();
    assert_eq!(check_schema(&json!({"anyOf": many})), Ok(()));
}

#[test]
fn parts_that_overlap_cost_no_time() {
    // Each level may be referred to from the innermost.
    let mut nested = json!({"type": "string"});
    for _ in 0..60 {
        nested = json!({"properties": {"x": nested}});
    }
    let references =
        (0..1500).map(|i| json!({"$ref": format!("#{}", "/properties/x".repeat(i % 60))}));
    let schema =
        json!({"anyOf": references.collect::<Vec<_>>(), "properties": nested["properties"]});
    let start = std::time::Instant::now();
    let _ = check_schema(&schema);
    assert!(start.elapsed().as_secs() < 5);
}

/// Lark in which `n` names each refer to the next, written by `name` and `line`.
fn lark(n: usize, name: impl Fn(usize) -> String, line: impl Fn(&str, &str) -> String) -> String {
    let mut source = format!("start: {}\n", name(0));
    for i in 0..n {
        source += &line(&name(i), &name(i + 1));
    }
    source + &format!("{}: \"x\"\n", name(n))
}

#[test]
fn rules_and_terminals_are_counted_alone_and_mixed() {
    let plain = |name: &str, next: &str| format!("{name}: {next}\n");
    let rule = |i: usize| format!("a{i}");
    let terminal = |i: usize| format!("A{i}");
    let mixed = |i: usize| {
        if i < 700 {
            format!("a{i}")
        } else {
            format!("A{i}")
        }
    };
    let others: [fn(&str, &str) -> String; 8] = [
        |name, next| format!("{name} : \"y\" | ({next} \"z\")*\n"),
        |name, next| format!("{name}: // \"\n  | {next} # a comment: \"\n"),
        |name, next| format!("{name}: /a\\/b\"/ {next}\n"),
        |name, next| format!("{name}: \"a\\\"/\" {next}~1..2\n"),
        |name, next| format!("{name}[lazy]: {next}\n"),
        |name, next| format!("{name}.2: {next}\n"),
        |name, next| format!("{name}: %json {{\"const\": \"x: y\\n z:\"}} {next}\n"),
        |name, next| format!("?{name}: \"ü\"\n\n\t| {next}\n"),
    ];
    // `n` names, and `start`.
    let n = MAX_RULE_DEPTH - 2;
    for (what, short, long) in [
        ("rules", lark(n, rule, plain), lark(n + 1, rule, plain)),
        (
            "terminals",
            lark(n, terminal, plain),
            lark(n + 1, terminal, plain),
        ),
        ("both", lark(n, mixed, plain), lark(n + 1, mixed, plain)),
    ] {
        assert_eq!(check_lark(&short), Ok(()), "{what}");
        let error = check_lark(&long).expect_err(what);
        assert!(
            error.contains("lead 1025 levels deep; at most 1024"),
            "{what}: {error}"
        );
    }
    for line in others {
        let shown = line("a", "b");
        assert_eq!(check_lark(&lark(n, rule, line)), Ok(()), "{shown}");
        assert!(check_lark(&lark(n + 1, rule, line)).is_err(), "{shown}");
    }
}

#[test]
fn schemas_in_lark_are_looked_at() {
    let deep = chain(600, |next| json!({"items": next}));
    for source in [
        format!("start: \"a\" %json {deep}\n"),
        format!("start: %json{deep}"),
        format!("start: call\ncall: \"{{\" %json {deep} \"}}\"\n"),
    ] {
        assert!(check_lark(&source).is_err());
    }
    assert_eq!(
        check_lark("start: \"%json\" %json {\"type\": \"null\"} %json"),
        Ok(())
    );
}

#[test]
fn what_is_no_lark_is_passed_over() {
    for source in [
        "",
        "\"",
        "/",
        "%",
        "%json",
        "%json {",
        "a:",
        ":",
        "<",
        "ü",
        "\\",
        "a: \"ü\\",
        "[",
        "a[",
        "a{",
        "::",
    ] {
        assert_eq!(check_lark(source), Ok(()), "{source}");
    }
}

#[test]
fn what_stands_in_each_other_is_counted() {
    let nested = |n: usize| {
        (0..n).fold(
            json!({"type": "null"}),
            |schema, _| json!({"items": schema}),
        )
    };
    assert_eq!(check_schema(&nested(MAX_NESTING - 1)), Ok(()));
    let error = check_schema(&nested(MAX_NESTING)).expect_err("too deep");
    assert!(error.contains("nest more than 100 levels"), "{error}");
}
