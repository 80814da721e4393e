//! Grammars of calls without an opening mark: the whole answer is calls, or it is something else.

use serde_json::{Value, json};

use super::calls::{Arguments, CallSyntax};
use super::grammar::{CallGrammar, CallRules, Callable};
use super::lark::escaped;

impl CallSyntax {
    /// The rules above those of the calls. The grammar applies once the name of a function is written in a call's
    /// place. Up to there the answer may still be JSON, a list or a link.
    pub(super) fn bare_start(
        &self,
        calls: &CallGrammar<'_>,
        others: &str,
        rules: &mut CallRules<'_>,
    ) {
        let mut options = Vec::new();
        for (i, function) in calls.functions.iter().enumerate() {
            let (end, middle) = self.middle_parted();
            let heads = [self.before, self.also_before]
                .into_iter()
                .filter(|before| *before == self.before || !before.is_empty())
                .map(|before| loosened(&format!("{}{before}", self.open)));
            let heads: Vec<String> = heads.collect();
            // Readers skip white space before the answer, and within all text around a name.
            let (name, end) = (escaped(function.name), loosened(end));
            let head = rules.lazy(&format!("\\s*({})\\s*{name}{end}", heads.join("|")));
            let middle = rules.marks.rule(middle);
            let after = rules.marks.rule(self.after);
            options.push(rules.define("first", &format!("{head} {middle} arguments_{i} {after}")));
        }
        let close = rules.marks.rule(self.close);
        rules.line(&format!("first: {}", options.join(" | ")));
        let other = rules.text_without(&[]);
        rules.line(&format!("start: first {others} {close} | {other}?"));
    }

    /// The form without values that a reader would read as a call: objects with both members of one.
    pub(super) fn form_beside(&self, form: &Value, functions: &[Callable<'_>]) -> Value {
        let Arguments::Json(Some((name, arguments))) = self.arguments else {
            return form.clone();
        };
        if !self.is_bare || !may_be_call(form, [name, arguments], functions) {
            return form.clone();
        }
        let mut form = form.clone();
        let definitions = form.as_object_mut().and_then(|form| form.remove("$defs"));
        let no_object = json!(["null", "boolean", "number", "string", "array"]);
        let mut schema = json!({"allOf": [form, {"anyOf": [
            {"type": "object", "properties": {name: false}},
            {"type": "object", "properties": {arguments: {"type": no_object}}},
            {"type": no_object},
        ]}]});
        if let Some(definitions) = definitions {
            schema["$defs"] = definitions;
        }
        schema
    }

    /// The text after a name, split into the character that ends the name, and the rest.
    fn middle_parted(&self) -> (&'static str, &'static str) {
        let n_bytes = self.middle.chars().next().map_or(0, char::len_utf8);
        self.middle.split_at(n_bytes)
    }
}

/// Whether a schema allows an object with both members of a call of one of these functions.
fn may_be_call(form: &Value, [name, arguments]: [&str; 2], functions: &[Callable<'_>]) -> bool {
    let Some(schema) = form.as_object() else {
        return form == true;
    };
    let is_object = match schema.get("type") {
        None => true,
        Some(Value::Array(types)) => types.iter().any(|one| one == "object"),
        Some(one) => one == "object",
    };
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let has = |member: &str| match form["properties"].get(member) {
        Some(of) => *of != false,
        None => !is_closed,
    };
    let named = &form["properties"][name];
    let values = match named.get("const") {
        Some(only) => Some(std::slice::from_ref(only)),
        None => named["enum"].as_array().map(Vec::as_slice),
    };
    let is_function = |value: &Value| functions.iter().any(|function| value == function.name);
    is_object
        && has(name)
        && has(arguments)
        && values.is_none_or(|values| values.iter().any(is_function))
}

/// An expression that matches a text as [the reader](super::fit::loosely) does: white space may precede each of its
/// characters.
fn loosened(text: &str) -> String {
    let characters = text.chars().filter(|c| !c.is_whitespace());
    characters
        .map(|c| format!("\\s*{}", escaped(&c.to_string())))
        .collect()
}
