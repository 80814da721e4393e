//! Chat templates: conversations to prompts.
//!
//! Models carry their prompt format as a Jinja template. It is rendered with the environment that
//! Hugging Face's `apply_chat_template` gives it. A template from a file is a guest there: it
//! reaches nothing but its variables, and it is stopped where it exceeds its bounds ([`job`]).

mod adapt;
mod builtin;
mod clock;
pub mod functionary;
mod jinja;
mod job;
mod prompt;
mod render;
mod strftime;
mod tags;

pub use adapt::IMAGE_TOKEN;
pub use builtin::DefaultTemplate;
pub use job::{MAX_TEMPLATE_BYTES, TemplateJob, TemplateReply, render_templates_with};
pub use prompt::RenderedPrompt;

use crate::{Error, Tokenizer};
use adapt::{Adapt, Habits};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// One message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Text of the message.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub content: String,
    /// Names of the images that come before the text. A template gets a part for each and one for the
    /// text in place of a plain string, and writes their placeholders.
    #[serde(skip)]
    pub images: Vec<String>,
    /// Other fields that a template may read: `tool_calls`, `name`, `reasoning_content`.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// Messages that call tools have `null` for a content.
fn null_is_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl Message {
    /// A message of some role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message {
            role: role.into(),
            content: content.into(),
            images: Vec::new(),
            fields: Map::new(),
        }
    }

    /// The message with images before its text.
    #[must_use]
    pub fn with_images(self, names: impl IntoIterator<Item = String>) -> Message {
        let images = names.into_iter().collect();
        Message { images, ..self }
    }

    /// The content as templates take it: a string, or a list of parts where there are images.
    fn content_json(&self) -> Value {
        if self.images.is_empty() {
            return self.content.as_str().into();
        }
        let images = self.images.iter().map(|_| json!({"type": "image"}));
        let text = json!({"type": "text", "text": self.content});
        images.chain([text]).collect()
    }

    /// Instructions to the model before the conversation.
    pub fn system(content: impl Into<String>) -> Message {
        Message::new("system", content)
    }

    /// A message of the user.
    pub fn user(content: impl Into<String>) -> Message {
        Message::new("user", content)
    }

    /// A message of the model.
    pub fn assistant(content: impl Into<String>) -> Message {
        Message::new("assistant", content)
    }
}

/// Options of a rendering besides the messages.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// Ends the prompt where the model's answer begins.
    pub add_generation_prompt: bool,
    /// Descriptions of the tools the model may call: a list of JSON schemas.
    pub tools: Option<Value>,
    /// Texts that the model may use as sources.
    pub documents: Option<Value>,
    /// Further variables, such as `enable_thinking` or `date_string`. They take precedence over
    /// all others.
    pub variables: Map<String, Value>,
    /// Which of several named templates to use. By default `tool_use` if there are tools and such
    /// a template, else `default`.
    pub template: Option<String>,
    /// The time of `strftime_now`, in UTC; if `None` the present, in the local time zone.
    pub now: Option<SystemTime>,
}

/// A chat template, ready to render.
#[derive(Debug)]
pub struct ChatTemplate {
    /// Where it comes from, for messages.
    origin: String,
    /// Names and sources.
    templates: Vec<(String, String)>,
    /// Whether the source is one of this program's.
    trusted: bool,
    /// Variables of every rendering: `bos_token`, `eos_token`.
    variables: Map<String, Value>,
    /// Results of probes, by the name of the template.
    habits: Mutex<Vec<(String, Habits)>>,
}

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

impl ChatTemplate {
    /// Compiles a template. `origin` says where it comes from (a file and the place in it).
    /// `bos_text` and `eos_text` are the texts of the begin- and end-of-sequence tokens, which most
    /// templates write out; without them the variables are undefined.
    ///
    /// # Errors
    /// [`Error::Template`] if it does not parse, [`Error::TemplateLimit`] if it is too long.
    pub fn new(
        origin: &str,
        source: &str,
        bos_text: Option<&str>,
        eos_text: Option<&str>,
    ) -> Result<ChatTemplate, Error> {
        let mut template = ChatTemplate::empty(origin, false);
        template.set_text("bos_token", bos_text);
        template.set_text("eos_token", eos_text);
        template.add_named(DEFAULT, source)?;
        Ok(template)
    }

    /// The template of a Hugging Face folder: `source` is its `chat_template.jinja`, which takes
    /// precedence over the `chat_template` of its `tokenizer_config.json`, a source or a list of
    /// named ones. The configuration also names the special tokens. `None` if there is no
    /// template.
    ///
    /// # Errors
    /// A `chat_template` of another shape, or a template that does not parse or is too long.
    pub fn from_hf(
        origin: &str,
        config: Option<&Value>,
        source: Option<&str>,
    ) -> Result<Option<ChatTemplate>, Error> {
        let mut template = ChatTemplate::empty(origin, false);
        for token in ["bos_token", "eos_token", "unk_token", "pad_token"] {
            let value = config.and_then(|config| config.get(token));
            let text = value.and_then(|v| v.as_str().or_else(|| v.get("content")?.as_str()));
            template.set_text(token, text);
        }
        match (
            source,
            config.and_then(|config| config.get("chat_template")),
        ) {
            (Some(source), _) => template.add_named(DEFAULT, source)?,
            (None, None | Some(Value::Null)) => return Ok(None),
            (None, Some(Value::String(source))) => template.add_named(DEFAULT, source)?,
            (None, Some(Value::Array(list))) => {
                for entry in list {
                    let field = |key| entry.get(key).and_then(Value::as_str);
                    let (Some(name), Some(source)) = (field("name"), field("template")) else {
                        return Err(wrong_shape("entries with \"name\" and \"template\"", entry));
                    };
                    template.add_named(name, source)?;
                }
            }
            (None, Some(other)) => return Err(wrong_shape("a string or a list", other)),
        }
        Ok(Some(template))
    }

    /// The template for a model whose file carries none. It is chosen by the control tokens of its
    /// vocabulary, else by the name of its family (see [`DefaultTemplate`]).
    pub fn default_for(tokenizer: &Tokenizer, family: Option<&str>) -> Option<ChatTemplate> {
        let kind = DefaultTemplate::for_vocabulary(tokenizer)
            .or_else(|| family.and_then(DefaultTemplate::for_family))?;
        let (bos, eos) = (tokenizer.bos_text(), tokenizer.eos_text());
        let mut template = ChatTemplate::empty("built in", true);
        template.set_text("bos_token", bos);
        template.set_text("eos_token", eos);
        let added = template.add_named(DEFAULT, kind.source());
        added.expect("the default templates parse");
        Some(template)
    }

    fn empty(origin: &str, trusted: bool) -> ChatTemplate {
        ChatTemplate {
            origin: origin.to_owned(),
            templates: Vec::new(),
            trusted,
            variables: Map::new(),
            habits: Mutex::default(),
        }
    }

    fn set_text(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.variables.insert(name.to_owned(), text.into());
        }
    }

    /// Adds or replaces a named template. GGUF files name them in keys
    /// `tokenizer.chat_template.NAME`.
    ///
    /// # Errors
    /// [`Error::Template`] if it does not parse, [`Error::TemplateLimit`] if it is too long.
    pub fn add_named(&mut self, name: &str, source: &str) -> Result<(), Error> {
        // Before it is copied and sent anywhere.
        job::check(source).map_err(|reason| Error::TemplateLimit {
            name: self.origin.clone(),
            reason,
        })?;
        let entry = (name.to_owned(), source.to_owned());
        self.run(TemplateJob::reading(vec![entry.clone()]))?;
        self.known_habits().retain(|(other, _)| other != name);
        self.templates.retain(|(other, _)| other != name);
        self.templates.push(entry);
        Ok(())
    }

    fn run(&self, job: TemplateJob) -> Result<String, Error> {
        let reply = if self.trusted {
            job.run()
        } else {
            job::run_guest(&job)
        };
        let (reply, habits) = reply.without_habits();
        if let (Some(name), Some(habits)) = (job.render, habits) {
            let mut known = self.known_habits();
            known.retain(|(other, _)| *other != name);
            known.push((name, habits));
        }
        reply.into_result(&self.origin)
    }

    /// Results of probes. A thread that panicked while it held the lock has left them whole.
    fn known_habits(&self) -> std::sync::MutexGuard<'_, Vec<(String, Habits)>> {
        self.habits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The known form in which a template takes messages, or a request to probe it.
    fn adapt(&self, name: &str) -> Adapt {
        let known = self.known_habits();
        let found = known.iter().find(|(known, _)| known == name);
        found.map_or(Adapt::Probe, |(_, habits)| Adapt::Known(*habits))
    }

    /// The names of the templates, `default` among them as a rule.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self
            .templates
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        names.sort_unstable();
        names
    }

    /// The source of the template of this name.
    pub fn source(&self, name: &str) -> Option<&str> {
        let found = self.templates.iter().find(|(known, _)| known == name);
        found.map(|(_, source)| source.as_str())
    }

    /// The sources of the templates, one behind the other.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.templates.iter().map(|(_, source)| source.as_str())
    }

    /// The prompt for a conversation, as text.
    ///
    /// It contains the begin-of-sequence text if the template writes it, as most do: encode it with
    /// `parse_special` and without `add_special`. In this text, control tokens of the conversation look
    /// like the template's; [`ChatTemplate::render_prompt`] keeps them apart.
    ///
    /// Messages come out in whichever form the template takes them: contents as strings or as lists of
    /// parts. A system message that it refuses or drops is put before the text of the user's next
    /// message.
    ///
    /// # Errors
    /// [`Error::Refused`] if the template rejects the conversation, [`Error::TemplateLimit`] if it
    /// meets one of its bounds, [`Error::Render`] for any other failure.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, Error> {
        self.render_as(&to_json(messages), options, true)
    }

    /// The prompt for a conversation whose messages are JSON objects, which the template gets unchanged.
    ///
    /// # Errors
    /// As for [`ChatTemplate::render`].
    pub fn render_json(&self, messages: &Value, options: &RenderOptions) -> Result<String, Error> {
        self.render_as(messages, options, false)
    }

    fn render_as(
        &self,
        messages: &Value,
        options: &RenderOptions,
        is_adapting: bool,
    ) -> Result<String, Error> {
        let name = self.choose(options)?;
        let mut variables = self.variables.clone();
        variables.insert("messages".to_owned(), with_reasoning(messages));
        variables.insert(
            "tools".to_owned(),
            options.tools.clone().unwrap_or_default(),
        );
        variables.insert(
            "documents".to_owned(),
            options.documents.clone().unwrap_or_default(),
        );
        variables.insert(
            "add_generation_prompt".to_owned(),
            options.add_generation_prompt.into(),
        );
        variables.extend(options.variables.clone());
        let now = options.now.map_or_else(clock::here_and_now, clock::in_utc);
        self.run(TemplateJob {
            render: Some(name.to_owned()),
            variables,
            now_seconds: now.local_seconds,
            now_microseconds: now.microseconds,
            utc_offset_seconds: now.utc_offset_seconds,
            adapt: is_adapting.then(|| self.adapt(name)),
            ..TemplateJob::reading(self.templates.clone())
        })
    }

    /// The prompt for a conversation, with a record of the control tokens that came from the
    /// conversation, so that [`Tokenizer::encode_prompt`] encodes them as text.
    ///
    /// # Errors
    /// As for [`ChatTemplate::render`].
    pub fn render_prompt(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<RenderedPrompt, Error> {
        let mark = |value: &Value| prompt::marked(value, tokenizer);
        let options = RenderOptions {
            tools: options.tools.as_ref().map(mark),
            documents: options.documents.as_ref().map(mark),
            variables: match mark(&Value::Object(options.variables.clone())) {
                Value::Object(variables) => variables,
                _ => Map::new(),
            },
            ..options.clone()
        };
        let text = self.render_as(&mark(&to_json(messages)), &options, true)?;
        Ok(RenderedPrompt::from_marked(&text))
    }

    fn choose<'o>(&self, options: &'o RenderOptions) -> Result<&'o str, Error> {
        let has = |name: &str| self.templates.iter().any(|(known, _)| known == name);
        let has_tools = options.tools.as_ref().is_some_and(|tools| !tools.is_null());
        let name = match options.template.as_deref() {
            Some(name) => name,
            None if has_tools && has(TOOL_USE) => TOOL_USE,
            None => DEFAULT,
        };
        if has(name) {
            return Ok(name);
        }
        Err(Error::TemplateShape {
            expected: "a template of the requested name",
            found: format!("no \"{name}\" among: {}", self.names().join(", ")),
        })
    }
}

fn to_json(messages: &[Message]) -> Value {
    let list = messages.iter().map(|message| {
        let mut object = Map::new();
        object.insert("role".to_owned(), message.role.as_str().into());
        object.insert("content".to_owned(), message.content_json());
        object.extend(message.fields.clone());
        Value::Object(object)
    });
    Value::Array(list.collect())
}

fn wrong_shape(expected: &'static str, found: &Value) -> Error {
    Error::TemplateShape {
        expected,
        found: found.to_string().chars().take(80).collect(),
    }
}

/// The messages, with a reasoning under each of the names that templates read it by.
fn with_reasoning(messages: &Value) -> Value {
    let mut messages = messages.clone();
    for message in messages.as_array_mut().into_iter().flatten() {
        let Some(object) = message.as_object_mut() else {
            continue;
        };
        let names = ["reasoning_content", "thinking", "reasoning"];
        let given = names
            .iter()
            .find_map(|name| object.get(*name).filter(|v| !v.is_null()));
        if let Some(reasoning) = given.cloned() {
            object
                .entry("thinking")
                .or_insert_with(|| reasoning.clone());
            object.insert("reasoning_content".to_owned(), reasoning);
        }
    }
    messages
}

/// Renders a template with some variables and nothing else; for tests of single constructs.
#[cfg(test)]
fn render_source(source: &str, variables: Value) -> Result<String, Error> {
    let template = ChatTemplate::new("test", source, Some("<s>"), Some("</s>"))?;
    let variables = variables.as_object().cloned().unwrap_or_default();
    let now = Some(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000));
    template.render_json(
        &Value::Array(Vec::new()),
        &RenderOptions {
            variables,
            now,
            ..Default::default()
        },
    )
}

#[cfg(test)]
mod tests;
