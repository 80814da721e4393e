//! Reduces schemas of functions to forms that a grammar can enforce.
//!
//! The author of a function's schema is seldom the client that sends it, and a schema may say more than a grammar
//! can. Keywords that only narrow the arguments are left out, and reported: every value that the schema allows stays
//! allowed. Prose is dropped silently, since the template shows the schema unchanged. The result has only keywords of
//! [`llguidance`], so its compiler gets untrusted schemas in one form.

mod keywords;
mod opposite;
mod options;
mod patterns;
mod refs;

use std::collections::HashMap;
use std::fmt;

use serde_json::{Map, Value, json};

pub(crate) use patterns::Patterns;

use crate::grammar::MAX_GRAMMAR_BYTES;

/// Maximum number of subschemas read: about five times as many as in a grammar of the largest size.
const MAX_SCHEMAS: usize = 65_536;

/// Maximum number of omissions reported.
const MAX_LEFT_OUT: usize = 64;

/// Number of characters shown of a value.
const MAX_SHOWN: usize = 80;

/// A keyword that the grammar leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// The keyword.
    pub(crate) keyword: String,
    /// The JSON pointer of the schema that contains it.
    pub(crate) at: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at.as_str() {
            "" => write!(f, "`{}`", self.keyword),
            at => write!(f, "`{}` at {at}", self.keyword),
        }
    }
}

impl LeftOut {
    /// The keyword and its position. If its value in `root` is the problem, not the keyword, also a description of
    /// that.
    pub(crate) fn told(&self, root: &Value) -> String {
        let value = root
            .pointer(&self.at)
            .and_then(|schema| schema.get(&self.keyword));
        let hint = value.and_then(|value| self.hint(value));
        let value = value.map(Value::to_string).unwrap_or_default();
        let shown: String = value.chars().take(MAX_SHOWN).collect();
        hint.map_or_else(
            || self.to_string(),
            |hint| format!("{self}, {shown}: {hint}"),
        )
    }

    fn hint(&self, value: &Value) -> Option<String> {
        match self.keyword.as_str() {
            "type" if keywords::are_types(value) => {
                Some("no value of its `enum` is of this type".to_owned())
            }
            "type" => Some(format!("expected one of {}", keywords::TYPES.join(", "))),
            "format" => Some(format!(
                "expected one of {}",
                keywords::formats().join(", ")
            )),
            "pattern" => {
                Some("expected a regular expression of ECMAScript, not too long".to_owned())
            }
            "$ref" => {
                Some("expected the place of one schema in this one; nothing is fetched".to_owned())
            }
            "properties" | "patternProperties" if !value.is_object() => {
                Some("expected an object".to_owned())
            }
            _ => None,
        }
    }
}

/// A schema that a grammar can enforce.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GrammarSchema {
    /// Allows every value that the given one allows.
    pub(crate) schema: Value,
    /// In the order of the given schema.
    pub(crate) left_out: Vec<LeftOut>,
}

/// The schema of a function's arguments without the parts that a grammar cannot express. Arguments are an object,
/// whether the schema says so or not.
pub(crate) fn relaxed(schema: &Value, patterns: &mut Patterns) -> GrammarSchema {
    let mut walk = SchemaWalk::new(schema, patterns);
    let root = match walk.schema(schema, "") {
        Value::Object(root) => root,
        Value::Bool(false) => {
            walk.leave_out("false", "");
            Map::new()
        }
        _ => Map::new(),
    };
    walk.finish(with_type(root))
}

/// The whole schema in a form for a grammar: it allows exactly the same values.
///
/// # Errors
/// The first keyword that no grammar supports, and the pointer of the schema that contains it.
pub fn whole(schema: &Value) -> Result<Value, String> {
    let mut patterns = Patterns::default();
    let mut walk = SchemaWalk {
        is_whole: true,
        ..SchemaWalk::new(schema, &mut patterns)
    };
    let held = match walk.schema(schema, "") {
        Value::Object(root) => walk.finish(root),
        other => GrammarSchema {
            schema: other,
            left_out: walk.left_out,
        },
    };
    match held.left_out.first() {
        None => Ok(held.schema),
        Some(first) => Err(format!("the grammar cannot hold {}", first.told(schema))),
    }
}

/// Adds the object type, unless a reference determines the type.
fn with_type(mut root: Map<String, Value>) -> Map<String, Value> {
    let of_objects = match root.get("type") {
        None => !root.contains_key("$ref"),
        Some(Value::String(_)) => false,
        Some(_) => true,
    };
    if of_objects {
        root.insert("type".to_owned(), "object".into());
    }
    root
}

/// A traversal of a schema.
struct SchemaWalk<'a, 'p> {
    root: &'a Value,
    left_out: Vec<LeftOut>,
    /// Targets of references: each with its pointer, in the order of their numbers.
    targets: Vec<(&'a Value, String)>,
    numbers: HashMap<String, usize>,
    /// Number of schemas read.
    n_schemas: usize,
    /// Nothing may be left out, so checks that only llguidance can make are left to it.
    is_whole: bool,
    patterns: &'p mut Patterns,
    /// Schemas with an identifier or an anchor, once they were needed.
    names: Option<refs::SchemaNames<'a>>,
}

impl<'a, 'p> SchemaWalk<'a, 'p> {
    fn new(root: &'a Value, patterns: &'p mut Patterns) -> SchemaWalk<'a, 'p> {
        SchemaWalk {
            root,
            left_out: Vec::new(),
            targets: Vec::new(),
            numbers: HashMap::new(),
            n_schemas: 0,
            is_whole: false,
            patterns,
            names: None,
        }
    }

    /// The schema with the definitions that it refers to.
    fn finish(mut self, mut root: Map<String, Value>) -> GrammarSchema {
        let definitions = self.definitions();
        if !definitions.is_empty() {
            root.insert("$defs".to_owned(), definitions.into());
        }
        let mut schema = Value::Object(root);
        // A schema too large for a grammar is refused anyway.
        if schema.to_string().len() <= MAX_GRAMMAR_BYTES {
            self.break_loops(&mut schema);
        }
        GrammarSchema {
            schema,
            left_out: self.left_out,
        }
    }

    fn leave_out(&mut self, keyword: &str, at: &str) {
        let one = LeftOut {
            keyword: keyword.to_owned(),
            at: at.to_owned(),
        };
        if self.left_out.len() < MAX_LEFT_OUT && !self.left_out.contains(&one) {
            self.left_out.push(one);
        }
    }

    /// Any subschema. `serde_json` limits documents to a depth of 128; references are followed by
    /// [`SchemaWalk::definitions`], not from here.
    fn schema(&mut self, value: &'a Value, at: &str) -> Value {
        self.n_schemas += 1;
        let object = match value {
            _ if self.n_schemas > MAX_SCHEMAS => {
                self.leave_out("schema", at);
                return Value::Bool(true);
            }
            Value::Bool(_) => return value.clone(),
            Value::Object(object) => object,
            _ => {
                self.leave_out("schema", at);
                return Value::Bool(true);
            }
        };
        let mut out = Map::new();
        for (key, value) in object {
            self.keyword(key, value, object, at, &mut out);
        }
        // OpenAPI 3.0: null is allowed in addition.
        let is_nullable = object.get("nullable") == Some(&Value::Bool(true));
        match is_nullable && !out.is_empty() {
            true => json!({"anyOf": [out, {"type": "null"}]}),
            false => Value::Object(out),
        }
    }

    /// A list of schemas.
    fn list(&mut self, list: &'a [Value], at: &str) -> Value {
        let schemas = list.iter().enumerate();
        schemas
            .map(|(i, value)| self.schema(value, &format!("{at}/{i}")))
            .collect()
    }

    /// Schemas by name.
    fn map(&mut self, map: &'a Map<String, Value>, at: &str) -> Value {
        let mut out = Map::new();
        for (name, value) in map {
            let at = format!("{at}/{}", refs::escaped(name));
            out.insert(name.clone(), self.schema(value, &at));
        }
        Value::Object(out)
    }

    /// The targets of references, and the targets reachable from them.
    fn definitions(&mut self) -> Map<String, Value> {
        let mut definitions = Map::new();
        let mut number = 0;
        while let Some((target, at)) = self.targets.get(number).cloned() {
            let schema = self.schema(target, &at);
            definitions.insert(number.to_string(), schema);
            number += 1;
        }
        definitions
    }
}

#[cfg(test)]
mod tests;
