//! Grammars of arguments that are not written as JSON.

use serde_json::{Value, json};

use super::calls::GEMMA_QUOTE;
use super::grammar::{CallRules, TEXT_KEYWORDS, alone, listed, members, present};
use super::kinds::is_text;
use super::lark::quoted;
use crate::grammar::compact;

/// Maximum nesting of objects and lists whose schemas are followed; deeper ones may have any form.
const MAX_DEPTH: usize = 6;

/// A sequence of members with `separator` between the present ones; each part is `(rule, is required)`.
fn sequence(parts: &[(String, bool)], separator: &str, rules: &mut CallRules<'_>) -> String {
    // Rules for the remaining members, built from the last: after another member, and as the first one.
    let (mut behind, mut first) = (String::new(), String::new());
    for (rule, is_required) in parts.iter().rev() {
        let next = rules.define("next", &format!("{} {rule} {behind}", quoted(separator)));
        let begin = rules.define("begin", &format!("{rule} {behind}"));
        match is_required {
            true => (behind, first) = (next, begin),
            false => {
                let either = |one: &str, other: &str| match other.is_empty() {
                    true => format!("{one}?"),
                    false => format!("({one} | {other})"),
                };
                let next = either(&next, &behind);
                let begin = either(&begin, &first);
                behind = rules.define("next", &next);
                first = rules.define("begin", &begin);
            }
        }
    }
    first
}

/// The rule for arguments of a call in Python.
pub(super) fn python(schema: &Value, rules: &mut CallRules<'_>) -> String {
    let mut parts = Vec::new();
    for (name, member, is_required) in members(schema) {
        let value = match member["type"].as_str() {
            Some("boolean") => "(\"True\" | \"False\")".to_owned(),
            _ => format!("%json {}", compact(alone(member, schema))),
        };
        let rule = rules.define(
            "argument",
            &format!("{} {value}", quoted(&format!("{name}="))),
        );
        parts.push((rule, is_required));
    }
    sequence(&parts, ", ", rules)
}

/// The rule for arguments in Gemma 4's form.
pub(super) fn gemma(schema: &Value, rules: &mut CallRules<'_>) -> String {
    if !rules.source.contains("\ngemma_any: ") {
        any(rules);
    }
    gemma_members(schema, schema, 0, rules)
}

/// Rules for values of any form.
fn any(rules: &mut CallRules<'_>) {
    let quote = rules.marks.rule(GEMMA_QUOTE);
    let text = rules.text_up_to(GEMMA_QUOTE, &[]);
    let literal = compact(json!({"type": ["number", "boolean", "null"]}));
    for line in [
        format!("gemma_text: {quote} {text}"),
        "gemma_any: gemma_text | gemma_list | gemma_object | gemma_literal".to_owned(),
        "gemma_list: \"[\" (gemma_any (\",\" gemma_any)*)? \"]\"".to_owned(),
        "gemma_object: \"{\" (gemma_pair (\",\" gemma_pair)*)? \"}\"".to_owned(),
        "gemma_pair: /[A-Za-z0-9_.-]+/ \":\" gemma_any".to_owned(),
        format!("gemma_literal: %json {literal}"),
    ] {
        rules.source.push_str(&line);
        rules.source.push('\n');
    }
}

fn gemma_members(schema: &Value, root: &Value, depth: usize, rules: &mut CallRules<'_>) -> String {
    let mut parts = Vec::new();
    for (name, member, is_required) in members(schema) {
        let value = gemma_value(member, root, depth + 1, rules);
        let rule = rules.define(
            "argument",
            &format!("{} {value}", quoted(&format!("{name}:"))),
        );
        parts.push((rule, is_required));
    }
    sequence(&parts, ",", rules)
}

fn gemma_value(schema: &Value, root: &Value, depth: usize, rules: &mut CallRules<'_>) -> String {
    if depth > MAX_DEPTH {
        return "gemma_any".to_owned();
    }
    if let Some(target) = schema["$ref"]
        .as_str()
        .and_then(|name| root.pointer(name.strip_prefix('#')?))
    {
        return gemma_value(target, root, depth + 1, rules);
    }
    if is_text(schema, root, 0) {
        let quote = rules.marks.rule(GEMMA_QUOTE);
        return match listed(schema, root) {
            Some(texts) => {
                let texts: Vec<String> = texts.into_iter().map(quoted).collect();
                format!("{quote} ({}) {quote}", texts.join(" | "))
            }
            None => "gemma_text".to_owned(),
        };
    }
    match schema["type"].as_str() {
        Some("integer" | "number" | "boolean" | "null") => {
            format!("%json {}", compact(alone(schema, root)))
        }
        Some("array") => {
            let item = gemma_value(&schema["items"], root, depth + 1, rules);
            let item = rules.define("item", &item);
            let items = rules.define("items", &format!("{item} (\",\" {item})*"));
            match schema["minItems"].as_u64().unwrap_or(0) {
                0 => format!("\"[\" {items}? \"]\""),
                _ => format!("\"[\" {items} \"]\""),
            }
        }
        Some("object") if schema["properties"].is_object() => {
            let members = gemma_members(schema, root, depth, rules);
            format!("\"{{\" {members} \"}}\"")
        }
        Some("object") => "gemma_object".to_owned(),
        _ => "gemma_any".to_owned(),
    }
}

/// Parts of a schema that the grammar of Gemma's values does not enforce, as descriptions.
pub(super) fn unheld_by_gemma(schema: &Value, root: &Value, depth: usize) -> Vec<String> {
    const LISTS: [&str; 3] = ["minItems", "maxItems", "prefixItems"];
    if depth > MAX_DEPTH {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (name, member, _) in members(schema) {
        if is_text(member, root, 0) {
            if listed(member, root).is_none() {
                out.extend(present(name, member, &TEXT_KEYWORDS));
            }
            continue;
        }
        match member["type"].as_str() {
            Some("array") => out.extend(present(name, member, &LISTS)),
            Some("object") => out.extend(unheld_by_gemma(member, root, depth + 1)),
            Some(_) => {}
            None => out.extend(present(
                name,
                member,
                &["anyOf", "oneOf", "allOf", "enum", "const"],
            )),
        }
    }
    out
}
