//! The shape of answers: a form that the request asks for, function calls, or either.

use millrace_runtime::Thinking;
use millrace_text::Tokenizer;
use serde_json::{Value, json};

use super::error::ApiError;
use super::thinking::ThinkingRequest;
use super::tools::{CallKind, Tools, whole};
use crate::grammar::{Grammar, GrammarError, compact};
use crate::syntax::{AnswerReader, CallSyntax, Marks, Names, ThoughtSyntax};

/// A form, and the field of the request that specifies it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OutputForm {
    pub(crate) grammar: Grammar,
    pub(crate) path: String,
}

impl OutputForm {
    /// JSON that matches the whole schema.
    ///
    /// # Errors
    /// The keyword that no grammar supports, and its position.
    pub(crate) fn of_schema(schema: &Value, path: String) -> Result<OutputForm, ApiError> {
        let held = whole(schema).map_err(|reason| ApiError::field(&path, reason))?;
        Ok(OutputForm {
            grammar: Grammar::JsonSchema(held),
            path,
        })
    }

    /// The schema, if the form is JSON: other forms cannot be combined with calls.
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

impl OutputForm {
    /// The form as a grammar rule within a message, if possible.
    fn in_channel(&self) -> Option<String> {
        match &self.grammar {
            Grammar::Regex(regex) => Some(format!("/{}/", regex.replace('/', "\\/"))),
            // A choice of texts.
            Grammar::Lark(source) => {
                let choice = source.strip_prefix("start: ")?;
                let is_choice = !choice.contains('\n') && choice.starts_with('"');
                is_choice.then(|| format!("({choice})"))
            }
            _ => self
                .schema()
                .map(|schema| format!("%json {}", compact(schema))),
        }
    }
}

/// The shape of the answers to a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerShape {
    pub(crate) form: Option<OutputForm>,
    /// The call syntax and the functions, if functions are offered.
    pub(crate) calls: Option<(CallSyntax, Tools)>,
    /// The thought syntax of the model, if it writes thoughts.
    pub(crate) thoughts: Option<ThoughtSyntax>,
    /// The state of thinking after the prompt, with its limit.
    pub(crate) thinking: Option<Thinking>,
    /// The control tokens that readers must get.
    pub(crate) marks: Marks,
    /// Parts of the request that this server ignores, as phrases.
    pub(crate) left_out: Vec<String>,
}

impl AnswerShape {
    /// The shape of answers without calls.
    pub(crate) fn of_form(form: Option<OutputForm>) -> AnswerShape {
        AnswerShape {
            form,
            ..AnswerShape::default()
        }
    }

    /// # Errors
    /// A form other than JSON together with functions that may be called.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        match (&self.form, &self.calls) {
            (Some(form), Some(_)) if form.schema().is_none() => {
                let message = "beside functions an answer's form can be JSON only; set tool_choice to \"none\", or \
                               leave one of them out";
                Err(ApiError::field(&form.path, message))
            }
            (Some(form), None) if self.is_in_channels() && form.in_channel().is_none() => {
                let message = "this model's answers come in channels, for which a form can be JSON, a regular \
                               expression or a choice";
                Err(ApiError::field(&form.path, message))
            }
            _ => Ok(()),
        }
    }

    /// The grammar that answers must follow, if any.
    pub(crate) fn grammar(&self) -> Option<Grammar> {
        let form = self.form.as_ref();
        match &self.calls {
            Some((syntax, tools)) => {
                let schema = form.and_then(OutputForm::schema);
                let around = self.thoughts.and_then(|thoughts| thoughts.answer);
                Some(tools.grammar(syntax, &self.marks, schema.as_ref(), around))
            }
            None if self.is_in_channels() => {
                let rule = form.and_then(OutputForm::in_channel)?;
                let source = self.thoughts?.form_in_messages(&rule, &self.marks);
                Some(Grammar::Calls(source))
            }
            None => form.map(|form| form.grammar.clone()),
        }
    }

    /// Reads from the prompt how the answer begins, and sets how far the model may think.
    pub(crate) fn listen(&mut self, tokenizer: &Tokenizer, prompt: &str, asked: &ThinkingRequest) {
        let mut texts: Vec<&str> = Vec::new();
        if let Some((syntax, _)) = &self.calls {
            texts.extend(syntax.texts());
        }
        if let Some(thoughts) = &self.thoughts {
            texts.extend(thoughts.marks());
        }
        self.marks = Marks::of(texts, tokenizer);
        let is_followed = self.form.is_some() || self.calls.is_some();
        self.thinking = self.thoughts.map(|thoughts| {
            let start = thoughts.phase_after(prompt);
            thoughts.thinking(tokenizer, start, asked.most_tokens(), is_followed)
        });
    }

    /// Whether thoughts, answers and calls are separate messages. A grammar then covers all of them.
    pub(crate) fn is_in_channels(&self) -> bool {
        self.thoughts
            .is_some_and(|thoughts| thoughts.is_in_messages())
    }

    /// Answer readers, one for each of `n`; empty if an answer is plain text.
    pub(crate) fn readers(&self, n: usize) -> Vec<AnswerReader> {
        let wrapper = self.thoughts.and_then(|thoughts| thoughts.answer);
        let messages = self.thoughts.filter(|thoughts| thoughts.is_in_messages());
        let reader = match (&self.calls, messages) {
            (Some((syntax, tools)), _) => AnswerReader::new(Some(*syntax), wrapper, tools.names()),
            (None, Some(messages)) => messages.reader_of_messages(),
            (None, None) if wrapper.is_some() => AnswerReader::new(None, wrapper, Names::default()),
            (None, None) => return Vec::new(),
        };
        let reader = match &self.form {
            Some(_) => reader.beside_form(),
            None => reader,
        };
        vec![reader; n]
    }

    /// How calls of each function are reported.
    pub(crate) fn kinds(&self) -> Vec<(String, CallKind)> {
        let tools = self.calls.iter().flat_map(|(_, tools)| &tools.list);
        tools
            .map(|tool| (tool.name.clone(), tool.kind.clone()))
            .collect()
    }

    /// The grammars of its parts, used to find which one made the whole fail: the form's, then the functions'.
    pub(crate) fn parts(&mut self) -> Vec<Grammar> {
        let form = self.form.iter().map(|form| form.grammar.clone());
        let mut parts: Vec<Grammar> = form.collect();
        if let Some((_, tools)) = &mut self.calls {
            let held = tools.callable_mut().map(|tool| tool.held.clone());
            parts.extend(held.map(Grammar::JsonSchema));
        }
        parts
    }

    /// The shape without the [parts](AnswerShape::parts) that made its grammar fail. The author of a function's
    /// schema is usually not the client that sends it. The arguments of a self-contradictory one may therefore be any
    /// object, unless the request says that it is strict.
    ///
    /// # Errors
    /// The fault, with the field that it is in; `error` is the error of the whole.
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
