//! JSON schemas, grammars and patterns that no one should write.

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use serde_json::{Map, Value, json};

const PATTERNS: [&str; 12] = [
    "(.*[a-b]){20}",
    "((a{1,1000}){1,1000}){1,1000}",
    "(a|aa)+$",
    "^(?!x).*",
    "(?<=a)b",
    "[",
    "\\p{L}{1,400}",
    "(x+x+)+y",
    "[^\\x00]{0,9999}",
    "(?i)straße",
    "a{99999}",
    "\\1(a)",
];

const TYPES: [&str; 9] = [
    "string", "integer", "number", "object", "array", "boolean", "null", "any", "",
];

const KEYWORDS: [&str; 37] = [
    "enum",
    "const",
    "pattern",
    "format",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "multipleOf",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "properties",
    "patternProperties",
    "additionalProperties",
    "required",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "$ref",
    "$defs",
    "$dynamicRef",
    "unevaluatedProperties",
    "nullable",
    "description",
    "default",
    "x-guidance",
];

/// A pattern that is known to be hard, or any text.
pub fn pattern(input: &mut Unstructured<'_>) -> Result<String> {
    Ok(match input.ratio(1, 2)? {
        true => (*input.choose(&PATTERNS)?).to_owned(),
        false => input.arbitrary()?,
    })
}

/// A schema: a chain of references, a product of patterns, or a tree of keywords.
pub fn schema(input: &mut Unstructured<'_>) -> Result<Value> {
    match input.int_in_range(0..=7u8)? {
        0 => chain(input),
        1 => product(input),
        _ => tree(input, 0),
    }
}

fn chain(input: &mut Unstructured<'_>) -> Result<Value> {
    let n = input.int_in_range(0..=1000)?;
    let through: &str = input.choose(&[
        "properties",
        "items",
        "anyOf",
        "allOf",
        "$ref",
        "prefixItems",
    ])?;
    let link = |i: usize| {
        let next = json!({"$ref": format!("#/$defs/a{}", i + 1)});
        match through {
            "properties" => json!({"type": "object", "properties": {"x": next}}),
            "items" => json!({"type": "array", "items": next}),
            "$ref" => next,
            other => json!({other: [next, {"type": "null"}]}),
        }
    };
    let mut defs: Map<String, Value> = (0..n).map(|i| (format!("a{i}"), link(i))).collect();
    let end = match input.ratio(1, 4)? {
        true => json!({"$ref": "#/$defs/a0"}),
        false => json!({"type": "string"}),
    };
    defs.insert(format!("a{n}"), end);
    Ok(json!({"$ref": "#/$defs/a0", "$defs": defs}))
}

fn product(input: &mut Unstructured<'_>) -> Result<Value> {
    let key: &str = input.choose(&["allOf", "anyOf", "oneOf"])?;
    let n = input.int_in_range(0..=20u8)?;
    let mut parts = Vec::new();
    for i in 0..n {
        let letter = char::from(b'a' + i);
        let times = input.int_in_range(0..=40)?;
        parts.push(json!({"pattern": format!("(.*[a-{letter}]){{{times}}}")}));
    }
    Ok(json!({"type": "string", key: parts}))
}

fn tree(input: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    if depth > 6 || input.is_empty() {
        return Ok(json!({"type": "string"}));
    }
    let mut out = Map::new();
    if input.ratio(4, 5)? {
        out.insert("type".to_owned(), (*input.choose(&TYPES)?).into());
    }
    for _ in 0..input.int_in_range(0..=4)? {
        let key = *input.choose(&KEYWORDS)?;
        out.insert(key.to_owned(), keyword(key, input, depth)?);
    }
    Ok(out.into())
}

fn keyword(key: &str, input: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    let list = |input: &mut Unstructured<'_>| {
        let n = input.int_in_range(0..=4)?;
        let parts: Result<Vec<Value>> = (0..n).map(|_| tree(input, depth + 1)).collect();
        Ok(Value::from(parts?))
    };
    Ok(match key {
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => list(input)?,
        "properties" | "patternProperties" | "dependentSchemas" | "$defs" => {
            let mut map = Map::new();
            for i in 0..input.int_in_range(0..=3)? {
                map.insert(format!("a{i}"), tree(input, depth + 1)?);
            }
            map.into()
        }
        "pattern" => pattern(input)?.into(),
        "required" | "enum" => json!(["a0", input.arbitrary::<&str>()?, null]),
        "minLength" | "maxLength" | "minItems" | "maxItems" => input.arbitrary::<u64>()?.into(),
        "minimum" | "maximum" | "exclusiveMinimum" | "multipleOf" => {
            json!(input.arbitrary::<f64>()?)
        }
        "format" | "description" | "default" => input.arbitrary::<&str>()?.into(),
        "$ref" | "$dynamicRef" => {
            (*input.choose(&["#", "#/$defs/a0", "#/properties/a0", "other.json", "#x"])?).into()
        }
        "uniqueItems" | "nullable" => true.into(),
        _ => tree(input, depth + 1)?,
    })
}

/// A Lark grammar: a chain of rules or terminals, one around a schema or pattern, or any text.
pub fn lark(input: &mut Unstructured<'_>) -> Result<String> {
    let n = input.int_in_range(0..=1000)?;
    Ok(match input.int_in_range(0..=5u8)? {
        0 => {
            let rules: String = (0..n).map(|i| format!("a{i}: a{}\n", i + 1)).collect();
            format!("start: a0\n{rules}a{n}: \"x\"")
        }
        1 => {
            let rules: String = (0..n)
                .map(|i| format!("A{i}: A{} | \"y\"\n", i + 1))
                .collect();
            format!("start: A0\n{rules}A{n}: \"x\"")
        }
        2 => format!("start: {}\"x\"{}", "(".repeat(n), ")".repeat(n)),
        3 => format!("start: %json {}", schema(input)?),
        4 => format!("start: /{}/", pattern(input)?),
        _ => input.arbitrary()?,
    })
}
