//! What answers must look like: a form that the request asks for, calls of functions, or either.

use std::sync::Arc;

use serde_json::{Value, json};

use super::error::ApiError;
use super::tools::{CallKind, CallParser, Syntax, Tools, whole};
use crate::grammar::{Grammar, GrammarError};

/// A form, and the field of the request that asks for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OutputForm {
    pub(crate) grammar: Grammar,
    pub(crate) path: String,
}

impl OutputForm {
    /// JSON of a schema, all of it.
    ///
    /// # Errors
    /// The keyword that no grammar holds, and where it stands.
    pub(crate) fn of_schema(schema: &Value, path: String) -> Result<OutputForm, ApiError> {
        let held = whole(schema).map_err(|reason| ApiError::field(&path, reason))?;
        Ok(OutputForm {
            grammar: Grammar::JsonSchema(held),
            path,
        })
    }

    /// The schema, if it is JSON's: other forms cannot stand beside calls.
    fn schema(&self) -> Option<Value> {
        match &self.grammar {
            Grammar::JsonObject => Some(json!({"type": "object"})),
            Grammar::JsonSchema(Value::Bool(true)) => Some(json!({})),
            Grammar::JsonSchema(Value::Bool(false)) => Some(json!({"enum": []})),
            Grammar::JsonSchema(schema) => Some(schema.clone()),
            _ => None,
        }
    }
}

/// What the answers to a request look like.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerShape {
    pub(crate) form: Option<OutputForm>,
    /// How calls are written, if functions are offered, and which.
    pub(crate) calls: Option<(Syntax, Tools)>,
    /// What of the request this server goes without, in words.
    pub(crate) left_out: Vec<String>,
}

impl AnswerShape {
    /// Of answers without calls.
    pub(crate) fn of_form(form: Option<OutputForm>) -> AnswerShape {
        AnswerShape {
            form,
            ..AnswerShape::default()
        }
    }

    /// # Errors
    /// A form that is no JSON beside functions that may be called.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        match (&self.form, &self.calls) {
            (Some(form), Some(_)) if form.schema().is_none() => {
                let message = "beside functions an answer's form can be JSON only; set tool_choice to \"none\", or \
                               leave one of them out";
                Err(ApiError::field(&form.path, message))
            }
            _ => Ok(()),
        }
    }

    /// Its grammar, if answers are held to any.
    pub(crate) fn grammar(&self) -> Option<Grammar> {
        let form = self.form.as_ref();
        match &self.calls {
            Some((syntax, tools)) => {
                let schema = form.and_then(OutputForm::schema);
                Some(syntax.grammar(tools, schema.as_ref()))
            }
            None => form.map(|form| form.grammar.clone()),
        }
    }

    /// Readers of calls, one for each of `n` answers.
    pub(crate) fn parsers(&self, n: usize) -> Vec<CallParser> {
        let Some((syntax, tools)) = &self.calls else {
            return Vec::new();
        };
        let names: Arc<[String]> = tools.list.iter().map(|tool| tool.name.clone()).collect();
        vec![CallParser::new(*syntax, names); n]
    }

    /// How calls of each function are told.
    pub(crate) fn kinds(&self) -> Vec<(String, CallKind)> {
        let tools = self.calls.iter().flat_map(|(_, tools)| &tools.list);
        tools
            .map(|tool| (tool.name.clone(), tool.kind.clone()))
            .collect()
    }

    /// The grammars of its parts, to find out which made that of the whole fail: the form's, then the functions'.
    pub(crate) fn parts(&mut self) -> Vec<Grammar> {
        let form = self.form.iter().map(|form| form.grammar.clone());
        let mut parts: Vec<Grammar> = form.collect();
        if let Some((_, tools)) = &mut self.calls {
            let held = tools.callable_mut().map(|tool| tool.held.clone());
            parts.extend(held.map(Grammar::JsonSchema));
        }
        parts
    }

    /// The shape without the [parts](AnswerShape::parts) that made its grammar fail. The author of a function's schema is not
    /// whoever sends it, so the arguments of one that contradicts itself are any object, unless the request says that it
    /// is strict.
    ///
    /// # Errors
    /// What is at fault, by the field it came in: `error` is of the whole.
    pub(crate) fn without(
        mut self,
        error: &GrammarError,
        failed: Vec<(usize, GrammarError)>,
    ) -> Result<AnswerShape, ApiError> {
        let n_forms = usize::from(self.form.is_some());
        let n_before = self.left_out.len();
        for (part, error) in failed {
            if let Some(form) = self.form.as_ref().filter(|_| part < n_forms) {
                return Err(ApiError::field(&form.path, error));
            }
            let tools = self.calls.as_mut().map(|(_, tools)| tools);
            let tool = tools.and_then(|tools| tools.callable_mut().nth(part - n_forms));
            if let Some(tool) = tool {
                self.left_out.push(tool.give_up(&error)?);
            }
        }
        if self.left_out.len() > n_before {
            return Ok(self);
        }
        if let (Some(form), None) = (&self.form, &self.calls) {
            return Err(ApiError::field(&form.path, error));
        }
        let message = match error {
            GrammarError::Bad { .. } => {
                "the functions' schemas cannot be held together; offer fewer, or simpler ones"
                    .to_owned()
            }
            other => other.to_string(),
        };
        Err(ApiError::field("tools", message))
    }
}
