//! Functions a model may call, as requests offer them.
//!
//! The model determines how calls are written ([`crate::syntax`]). Models whose template shows functions get them
//! through the template; for all others the system message explains the functions. In both cases a grammar enforces
//! the names and schemas.

mod plain;
mod schema;
mod simple;

pub(crate) use plain::as_plain_messages;
use schema::Patterns;
pub use schema::whole;
pub(crate) use simple::simple_functions;

use serde_json::{Value, json};

use super::error::ApiError;
use super::fields::{Fields, wrong};
use crate::grammar::{Grammar, GrammarError, MAX_GRAMMAR_BYTES};
use crate::syntax::{CallGrammar, CallSyntax, Callable, Marks, Names};

/// Maximum length of a name in bytes, as in Anthropic's API; OpenAI's limit is 64.
const MAX_NAME_BYTES: usize = 128;

/// Maximum number of functions of a request.
pub(crate) const MAX_TOOLS: usize = 128;

/// The error for too many functions.
pub(crate) fn too_many() -> ApiError {
    ApiError::field(
        "tools",
        format!("at most {MAX_TOOLS} functions are accepted"),
    )
}

/// Maximum size of a function's schema in bytes, prose included.
const MAX_SCHEMA_BYTES: usize = 1 << 20;

/// How calls of a function are reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// As a function with arguments.
    #[default]
    Function,
    /// As one of OpenAI's custom tools, with one text.
    Custom,
    /// As the function of this name in a namespace.
    InNamespace {
        /// The namespace.
        namespace: String,
        /// The function's name in it.
        name: String,
    },
}

/// A function the model may call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    /// The name as the model writes it.
    pub(crate) name: String,
    pub(crate) description: String,
    /// The JSON schema of the arguments, an object, unchanged.
    pub(crate) parameters: Value,
    pub(crate) kind: CallKind,
    /// Whether the whole schema must be enforced.
    pub(crate) is_strict: bool,
    /// The schema's path in the request.
    pub(crate) path: String,
    /// The schema that the grammar enforces, after [`Tools::prepare`].
    pub(crate) held: Value,
}

impl Tool {
    /// Reads `name`, `description`, `strict`, and the schema in the field `schema`. Checks the name, which becomes part of a
    /// grammar.
    pub(crate) fn new(fields: &Fields<'_>, schema: &str) -> Result<Tool, ApiError> {
        let name = name_of(fields)?;
        let path = fields.path(schema);
        let parameters = match fields.get(schema) {
            None => json!({"type": "object", "properties": {}, "additionalProperties": false}),
            Some(given @ (Value::Object(_) | Value::Bool(_))) => given.clone(),
            Some(other) => return Err(wrong(&path, "a JSON schema", other)),
        };
        Ok(Tool {
            name: name.to_owned(),
            description: fields.text("description")?.unwrap_or_default().to_owned(),
            held: parameters.clone(),
            parameters,
            kind: CallKind::Function,
            is_strict: fields.bool("strict")?.unwrap_or(false),
            path,
        })
    }

    /// As chat templates expect it.
    pub(crate) fn for_template(&self) -> Value {
        json!({"type": "function", "function": {
            "name": self.name, "description": self.description, "parameters": self.parameters,
        }})
    }

    /// Reduces the schema to a form that a grammar can enforce. Returns the parts left out.
    fn relax(&mut self, patterns: &mut Patterns) -> Result<Vec<String>, ApiError> {
        let (name, path) = (&self.name, &self.path);
        if self.parameters.to_string().len() > MAX_SCHEMA_BYTES {
            let message = format!(
                "the schema of `{name}` is longer than the {MAX_SCHEMA_BYTES} bytes that are accepted"
            );
            return Err(ApiError::field(path, message));
        }
        let relaxed = schema::relaxed(&self.parameters, patterns);
        if let Some(first) = relaxed.left_out.first().filter(|_| self.is_strict) {
            let first = first.told(&self.parameters);
            let message = format!(
                "`{name}` is strict, and the grammar cannot hold {first}; leave that out, or set strict to false"
            );
            return Err(ApiError::field(path, message));
        }
        let found = relaxed.schema.to_string().len();
        if found > MAX_GRAMMAR_BYTES {
            let message = format!(
                "the schema of `{name}` has {found} bytes without its descriptions; at most {MAX_GRAMMAR_BYTES} are \
                 accepted"
            );
            return Err(ApiError::field(path, message));
        }
        self.held = relaxed.schema;
        let told = relaxed.left_out.iter();
        Ok(told.map(|one| format!("{path} ({name}): {one}")).collect())
    }
}

impl Tool {
    /// Allows any object as arguments, since the schema has no grammar. Returns a description of this.
    ///
    /// # Errors
    /// The schema is strict, or the failure is due to limits on work, not to the schema.
    pub(crate) fn give_up(&mut self, error: &GrammarError) -> Result<String, ApiError> {
        let (name, path) = (&self.name, &self.path);
        if self.is_strict {
            let message = format!("`{name}` is strict, and {error}");
            return Err(ApiError::field(path, message));
        }
        if !matches!(error, GrammarError::Bad { .. }) {
            return Err(ApiError::field(path, format!("of `{name}`, {error}")));
        }
        self.held = json!({"type": "object"});
        Ok(format!("{path} ({name}): all of it, since {error}"))
    }
}

/// The field `name`, if it is a valid function name.
pub(crate) fn name_of<'a>(fields: &Fields<'a>) -> Result<&'a str, ApiError> {
    let name = fields.need("name", fields.text("name")?)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_plain) {
        let message = format!("a name has 1 to {MAX_NAME_BYTES} letters, digits, `_`, `-` or `.`");
        return Err(ApiError::field(&fields.path("name"), message));
    }
    Ok(name)
}

/// Whether functions are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// As the model decides.
    #[default]
    Auto,
    /// Never.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// The functions of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools {
    pub(crate) list: Vec<Tool>,
    pub(crate) choice: ToolChoice,
    /// Names of the functions that may be called, if not all: the model is shown the others too.
    pub(crate) allowed: Option<Vec<String>>,
    /// Whether one answer may have several calls.
    pub(crate) parallel: bool,
    /// Parts of the request that this server ignores, as phrases.
    pub(crate) left_out: Vec<String>,
}

impl Tools {
    /// Adds a function, described by `fields`.
    ///
    /// # Errors
    /// There are too many, or one of the same name exists: calls could not be distinguished.
    pub(crate) fn offer(&mut self, tool: Tool, fields: &Fields<'_>) -> Result<(), ApiError> {
        if self.list.len() >= MAX_TOOLS {
            return Err(too_many());
        }
        if self.list.iter().any(|other| other.name == tool.name) {
            let name = &tool.name;
            let message = format!(
                "another function is named `{name}` too; give each a name of its own, or leave one out"
            );
            return Err(ApiError::field(&fields.path("name"), message));
        }
        self.list.push(tool);
        Ok(())
    }

    /// Whether the model is shown the functions and may call them.
    pub(crate) fn are_offered(&self) -> bool {
        !self.list.is_empty() && self.choice != ToolChoice::None
    }

    /// Whether a call must be made.
    pub(crate) fn must_call(&self) -> bool {
        matches!(self.choice, ToolChoice::Required | ToolChoice::Named(_))
    }

    fn may_call(&self, name: &str) -> bool {
        let is_allowed = |names: &Vec<String>| names.iter().any(|one| one == name);
        match &self.choice {
            ToolChoice::Named(chosen) => chosen == name,
            _ => self.allowed.as_ref().is_none_or(is_allowed),
        }
    }

    /// The functions that may be called.
    pub(crate) fn callable_mut(&mut self) -> impl Iterator<Item = &mut Tool> {
        let may: Vec<bool> = self
            .list
            .iter()
            .map(|tool| self.may_call(&tool.name))
            .collect();
        let tools = self.list.iter_mut().zip(may);
        tools.filter_map(|(tool, may)| may.then_some(tool))
    }

    /// The grammar of answers with these tools, in a call syntax: calls, or else text, or JSON of the form. `around`
    /// may enclose the text.
    pub(crate) fn grammar(
        &self,
        syntax: &CallSyntax,
        marks: &Marks,
        form: Option<&Value>,
        around: Option<(&str, &str)>,
    ) -> Grammar {
        let callable = self.list.iter().filter(|tool| self.may_call(&tool.name));
        let functions = callable.map(|tool| Callable {
            name: &tool.name,
            schema: &tool.held,
        });
        let calls = CallGrammar {
            functions: functions.collect(),
            must_call: self.must_call(),
            is_parallel: self.parallel,
            form,
            around,
        };
        Grammar::Calls(syntax.grammar(&calls, marks))
    }

    /// Refuses strict functions if the syntax cannot enforce their whole schemas. For other functions, reports the
    /// parts that it cannot enforce.
    pub(crate) fn check_held(&mut self, syntax: &CallSyntax) -> Result<(), ApiError> {
        let mut left_out = Vec::new();
        for tool in self.callable_mut() {
            let (name, path) = (&tool.name, &tool.path);
            if syntax.is_taken(name) {
                let message = format!(
                    "this model's messages to the user are named `{name}`, so no function can be; give it another name"
                );
                return Err(ApiError::field(path, message));
            }
            let unheld = syntax.unheld(&tool.held);
            if let Some(first) = unheld.first().filter(|_| tool.is_strict) {
                let message = format!("`{name}` is strict, and the grammar cannot hold {first}");
                return Err(ApiError::field(path, message));
            }
            left_out.extend(unheld.iter().map(|one| format!("{path} ({name}): {one}")));
        }
        self.left_out.extend(left_out);
        Ok(())
    }

    /// The names of the functions that may be called, with the schemas for reading their arguments.
    pub(crate) fn names(&self) -> Names {
        let functions = self.list.iter().filter(|tool| self.may_call(&tool.name));
        Names::new(functions.map(|tool| (tool.name.clone(), tool.held.clone())))
    }

    /// Refuses a choice of an unknown function, and reduces the schemas to forms that a grammar can enforce.
    pub(crate) fn prepare(&mut self) -> Result<(), ApiError> {
        match &self.choice {
            ToolChoice::Named(name) if !self.list.iter().any(|tool| tool.name == *name) => {
                let message = format!("there is no function `{name}` in tools");
                return Err(ApiError::field("tool_choice", message));
            }
            ToolChoice::Required if !self.list.iter().any(|tool| self.may_call(&tool.name)) => {
                let message = "a call is required, but tools is empty, or none of them is allowed";
                return Err(ApiError::field("tool_choice", message));
            }
            _ => {}
        }
        if self.are_offered() {
            let (mut left_out, mut patterns) = (Vec::new(), Patterns::default());
            for tool in self.callable_mut() {
                left_out.extend(tool.relax(&mut patterns)?);
            }
            self.left_out.extend(left_out);
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
