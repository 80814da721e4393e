//! Arguments as nested elements, as in MiniMax M3. Members of objects are elements with their names, items of lists
//! are elements named `item`, and all other values are text.
//!
//! The schema decides how a text is read, and whether elements are a list or an object.

use serde_json::{Map, Value};

use super::fit::{exactly, loosely};
use super::grammar::{CallRules, TEXT_KEYWORDS, alone, listed, members, present};
use super::json::{CallFit, value};
use super::json_text::may_become_json;
use super::kinds::{is_text, may_be, resolved, unquoted};
use super::lark::quoted;
use super::reader::Names;
use crate::grammar::compact;

/// Maximum nesting of elements.
const MAX_DEPTH: usize = 64;

/// Maximum nesting of objects and lists whose schemas a grammar follows; deeper ones are written as JSON.
const MAX_HELD_DEPTH: usize = 6;

/// Element name for items of lists.
const ITEM: &str = "item";

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Arguments of a function read so far.
type Members = Vec<(String, Value)>;

/// Reader of one function's elements.
struct ElementReader<'a> {
    mark: &'a str,
    /// Schema of the arguments; `null` allows any.
    root: &'a Value,
}

/// Reads the arguments of a function, followed by `after`.
pub(super) fn arguments(
    mark: &str,
    after: &str,
    (names, name): (&Names, &str),
    text: &str,
) -> CallFit<Value> {
    let mut found = Members::new();
    let reader = ElementReader {
        mark,
        root: names.schema(name),
    };
    let fit = reader.arguments(after, text, &mut found);
    fit.then(|(), n_bytes| CallFit::Full(Value::Object(found.into_iter().collect()), n_bytes))
}

/// The complete arguments of a possibly incomplete call, in their order.
pub(super) fn complete(
    mark: &str,
    after: &str,
    (names, name): (&Names, &str),
    text: &str,
) -> Members {
    let mut found = Members::new();
    let reader = ElementReader {
        mark,
        root: names.schema(name),
    };
    reader.arguments(after, text, &mut found);
    found
}

impl<'a> ElementReader<'a> {
    fn arguments(&self, after: &str, text: &str, found: &mut Members) -> CallFit<()> {
        let mut at = 0;
        loop {
            let rest = text[at..].trim_start();
            at = text.len() - rest.len();
            match (loosely(rest, after), self.element(rest, self.root, 0)) {
                (CallFit::Full((), n_bytes), _) => return CallFit::Full((), at + n_bytes),
                (_, CallFit::Full(member, n_bytes)) => {
                    found.push(member);
                    at += n_bytes;
                }
                (CallFit::Not, CallFit::Not) => return CallFit::Not,
                _ => return CallFit::Partial,
            }
        }
    }

    /// Reads the element at the beginning of a text: its name and its value. `parent` is the schema of the enclosing
    /// value.
    fn element(&self, text: &str, parent: &'a Value, depth: usize) -> CallFit<(String, Value)> {
        let Self { mark, .. } = self;
        exactly(text, &format!("{mark}<")).then(|(), at| {
            let rest = &text[at..];
            let is_no_name = |c: char| c == '<' || c == '\n';
            let n_name = match rest.find('>') {
                _ if rest.starts_with('/') => return CallFit::Not,
                Some(n_name) => n_name,
                None if rest.len() > MAX_NAME_BYTES || rest.contains(is_no_name) => {
                    return CallFit::Not;
                }
                None => return CallFit::Partial,
            };
            let name = &rest[..n_name];
            if name.is_empty() || n_name > MAX_NAME_BYTES || name.contains(is_no_name) {
                return CallFit::Not;
            }
            let at = at + n_name + 1;
            let schema = self.of_member(parent, name);
            let read = self.value(&text[at..], name, schema, depth);
            read.then(|value, n_bytes| CallFit::Full((name.to_owned(), value), at + n_bytes))
        })
    }

    /// The schema of an element within a value of the schema `parent`.
    fn of_member(&self, parent: &'a Value, name: &str) -> &'a Value {
        let parent = resolved(parent, self.root);
        match &parent["properties"][name] {
            Value::Null if name == ITEM && parent["items"].is_object() => &parent["items"],
            Value::Null => &parent["additionalProperties"],
            member => member,
        }
    }

    /// Reads the content between an element's tags, and its closing tag.
    fn value(&self, text: &str, name: &str, schema: &'a Value, depth: usize) -> CallFit<Value> {
        let close = format!("{}</{name}>", self.mark);
        let is_text = is_text(schema, self.root, 0);
        if !is_text {
            // JSON may contain the mark.
            let rest = text.trim_start();
            let n_space = text.len() - rest.len();
            let read = match value(rest) {
                CallFit::Partial if !may_become_json(rest) => CallFit::Not,
                read => read,
            };
            let read = read.then(|value, n_bytes| {
                if !may_be(schema, self.root, &value) {
                    return CallFit::Not;
                }
                let at = n_space + n_bytes;
                exactly(text[at..].trim_start(), &close).then(|(), n_close| {
                    let n_after = text[at..].len() - text[at..].trim_start().len();
                    CallFit::Full(value, at + n_after + n_close)
                })
            });
            if read != CallFit::Not {
                return read;
            }
        }
        let Some(at) = text.find(self.mark) else {
            return CallFit::Partial;
        };
        let leaf = &text[..at];
        match exactly(&text[at..], &close) {
            CallFit::Full((), n_bytes) => {
                CallFit::Full(self.leaf(leaf, schema, is_text), at + n_bytes)
            }
            CallFit::Partial => CallFit::Partial,
            CallFit::Not if depth < MAX_DEPTH && leaf.trim().is_empty() => {
                self.elements(text, &close, schema, depth)
            }
            CallFit::Not => CallFit::Not,
        }
    }

    fn leaf(&self, text: &str, schema: &Value, is_text: bool) -> Value {
        if is_text {
            return text.into();
        }
        let is_empty = text.trim().is_empty();
        let takes = |value: Value| may_be(schema, self.root, &value).then_some(value);
        let empty = || {
            let empties = [
                Value::from(text),
                Value::Array(Vec::new()),
                Value::Object(Map::new()),
                Value::Null,
            ];
            empties.into_iter().find_map(takes)
        };
        let empty = is_empty.then(empty).flatten();
        empty.unwrap_or_else(|| unquoted(text, schema, self.root))
    }

    /// Reads elements up to the closing tag of the enclosing one.
    fn elements(&self, text: &str, close: &str, schema: &'a Value, depth: usize) -> CallFit<Value> {
        let (mut at, mut found) = (0, Members::new());
        loop {
            let rest = text[at..].trim_start();
            at = text.len() - rest.len();
            match exactly(rest, close) {
                CallFit::Full((), n_bytes) => {
                    return CallFit::Full(self.composed(found, schema), at + n_bytes);
                }
                CallFit::Partial => return CallFit::Partial,
                CallFit::Not => {}
            }
            match self.element(rest, schema, depth + 1) {
                CallFit::Full(member, n_bytes) => {
                    found.push(member);
                    at += n_bytes;
                }
                CallFit::Partial => return CallFit::Partial,
                CallFit::Not => return CallFit::Not,
            }
        }
    }

    fn composed(&self, found: Members, schema: &Value) -> Value {
        let are_items = found.iter().all(|(name, _)| name == ITEM);
        let list = || Value::Array(found.iter().map(|(_, value)| value.clone()).collect());
        let object = || Value::Object(found.iter().cloned().collect());
        let takes_list = may_be(schema, self.root, &Value::Array(Vec::new()));
        let takes_object = may_be(schema, self.root, &Value::Object(Map::new()));
        let names_item = !resolved(schema, self.root)["properties"][ITEM].is_null();
        match are_items && takes_list && !(takes_object && names_item) {
            true => list(),
            false => object(),
        }
    }
}

/// The grammar rule for arguments of a schema.
pub(super) fn rule(mark: &str, schema: &Value, rules: &mut CallRules<'_>) -> String {
    elements(mark, schema, schema, 0, rules)
}

fn elements(
    mark: &str,
    schema: &Value,
    root: &Value,
    depth: usize,
    rules: &mut CallRules<'_>,
) -> String {
    let mut out = String::new();
    for (name, member, is_required) in members(schema) {
        let body = element(mark, name, (member, root), depth, rules);
        let rule = rules.define("argument", &body);
        out += &rule;
        out += if is_required { " " } else { "? " };
    }
    out
}

/// The grammar rule of an element with its tags.
fn element(
    mark: &str,
    name: &str,
    (schema, root): (&Value, &Value),
    depth: usize,
    rules: &mut CallRules<'_>,
) -> String {
    // In one lexeme: the grammar's parser does not backtrack after the mark alone.
    let open = rules.marks.rule(&format!("{mark}<{name}>"));
    let end = format!("</{name}>");
    let close = rules.marks.rule(&format!("{mark}{end}"));
    if is_text(schema, root, 0) {
        return match listed(schema, root) {
            Some(texts) => {
                let texts: Vec<String> = texts.into_iter().map(quoted).collect();
                format!("{open} ({}) {close}", texts.join(" | "))
            }
            None => format!("{open} {}", rules.text_up_to_mark(mark, &end)),
        };
    }
    let schema = resolved(schema, root);
    let body = match schema["type"].as_str().filter(|_| depth < MAX_HELD_DEPTH) {
        Some("array") if schema["items"].is_object() => {
            let item = element(mark, ITEM, (&schema["items"], root), depth + 1, rules);
            let item = rules.define("item", &item);
            match schema["minItems"].as_u64().unwrap_or(0) {
                0 => format!("{item}*"),
                _ => format!("{item}+"),
            }
        }
        Some("object")
            if schema["properties"]
                .as_object()
                .is_some_and(|all| !all.is_empty()) =>
        {
            elements(mark, schema, root, depth + 1, rules)
        }
        _ => format!("%json {}", compact(alone(schema, root))),
    };
    format!("{open} {body} {close}")
}

/// Parts of a schema that the grammar does not enforce, as descriptions.
pub(super) fn unheld(schema: &Value, root: &Value, depth: usize) -> Vec<String> {
    const LISTS: [&str; 3] = ["minItems", "maxItems", "prefixItems"];
    if depth >= MAX_HELD_DEPTH {
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
        let member = resolved(member, root);
        match member["type"].as_str() {
            Some("array") if member["items"].is_object() => {
                out.extend(present(name, member, &LISTS));
                let items = resolved(&member["items"], root);
                out.extend(unheld(items, root, depth + 1));
            }
            Some("object") => out.extend(unheld(member, root, depth + 1)),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MARK: &str = "]<]minimax[>[";

    fn written(value: &Value) -> String {
        match value {
            Value::Object(members) => members
                .iter()
                .map(|(name, value)| format!("{MARK}<{name}>{}{MARK}</{name}>", written(value)))
                .collect(),
            Value::Array(items) => items
                .iter()
                .map(|item| format!("{MARK}<item>{}{MARK}</item>", written(item)))
                .collect(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    #[test]
    fn elements_are_of_their_schemas_kind() {
        let schema = json!({"type": "object", "properties": {
            "text": {"type": "string"}, "n": {"type": "number"}, "on": {"type": "boolean"},
            "list": {"type": "array", "items": {"$ref": "#/$defs/part"}}, "none": {"type": "array"},
            "free": {"type": "object"}, "map": {"type": "object", "additionalProperties": {"type": "string"}},
            // Of any kind, with a member that is called as items of lists are.
            "either": {"properties": {"item": {"type": "string"}}},
        }, "$defs": {"part": {"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}}}});
        let names = Names::new([("f".to_owned(), schema)]);
        let value = json!({
            "text": "42 </n> <b>\n", "n": -2.5, "on": true, "list": [{"id": "7", "n": 7}, {"id": ""}], "none": [],
            "free": {"a b": {"c": "d"}, "e": [1, "two"]}, "map": {"item": "1", "x": "2"}, "either": {"item": "3"},
        });
        let after = format!("{MARK}</invoke>\n");
        let text = written(&value) + &after;
        let found = arguments(MARK, &after, (&names, "f"), &text);
        // The line break belongs to the text after it.
        assert_eq!(found, CallFit::Full(value.clone(), text.len() - 1));
        for (end, _) in text.trim_end().char_indices() {
            let found = arguments(MARK, &after, (&names, "f"), &text[..end]);
            assert_eq!(found, CallFit::Partial, "{end}");
        }
        let json = format!("{MARK}<free>{{\"a\": \"{MARK}\"}}{MARK}</free>{after}");
        let CallFit::Full(found, _) = arguments(MARK, &after, (&names, "f"), &json) else {
            panic!("{json}");
        };
        assert_eq!(found, json!({"free": {"a": MARK}}));
        for text in [
            format!("{MARK}<n>1{MARK}</m>"),
            format!("{MARK}<n>1{MARK}<m>2{MARK}</m>"),
            format!("{MARK}<>1"),
            "plain".to_owned(),
        ] {
            let found = arguments(MARK, &after, (&names, "f"), &text);
            assert_eq!(found, CallFit::Not, "{text}");
        }
        let deep = format!("{MARK}<a>").repeat(2000);
        assert_eq!(arguments(MARK, &after, (&names, "f"), &deep), CallFit::Not);
    }
}
