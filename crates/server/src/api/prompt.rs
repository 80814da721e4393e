//! Conversations to prompts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::StatusCode;
use millrace_runtime::Image;
use millrace_runtime::image::PLACEHOLDER;
use millrace_text::{
    ChatTemplate, EncodeOptions, Message, RenderOptions, RenderedPrompt, Tokenizer,
};
use serde_json::{Map, Value};

use super::earlier::{StandIns, calls_as_texts, calls_by_themselves};
use super::error::ApiError;
use super::fields::Fields;
use super::params::Caller;
use super::shape::{AnswerShape, OutputForm};
use super::thinking::ThinkingRequest;
use super::tools::{Tools, as_plain_messages, simple_functions};
use super::turns::{ARRANGEMENTS, ids_with_names, images_after_results, later_systems};
use crate::models::ServedModel;
use crate::scheduler::ModelInfo;
use crate::syntax::{
    EarlierCalls, GENERIC, Marks, ShownCalls, ThoughtSyntax, shown_calls, thought_syntax,
};
use crate::vision::{ImageError, MAX_IMAGES, UnreadImage, Vision};

/// A conversation, independent of an API.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: Tools,
    /// The form that the answer must have.
    pub(crate) form: Option<OutputForm>,
    /// Additional variables of the template.
    pub(crate) variables: Map<String, Value>,
    /// Whether and how long the model shall think.
    pub(crate) thinking: ThinkingRequest,
    /// Parts of the messages that this server ignores, as phrases.
    pub(crate) left_out: Vec<String>,
}

/// A conversation as tokens for the model.
pub(crate) struct EncodedPrompt {
    pub(crate) text: String,
    /// With placeholders for the rows of images, until they are [encoded](EncodedPrompt::see).
    pub(crate) tokens: Vec<u32>,
    /// The images, in order.
    pending: Vec<UnreadImage>,
    /// The shape of answers.
    pub(crate) shape: AnswerShape,
}

impl Conversation {
    /// Renders and encodes. Templates are untrusted programs that may take long, so this does not run on a thread
    /// that serves others.
    pub(crate) async fn prompt(self, served: &ServedModel) -> Result<EncodedPrompt, ApiError> {
        let served = served.clone();
        let work = move || self.prompt_now(&served);
        match tokio::task::spawn_blocking(work).await {
            Ok(prompted) => prompted,
            Err(error) => Err(ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("rendering the conversation failed: {error}"),
            )),
        }
    }

    fn prompt_now(mut self, served: &ServedModel) -> Result<EncodedPrompt, ApiError> {
        if self.messages.is_empty() {
            return Err(ApiError::field(
                "messages",
                "at least one message is needed",
            ));
        }
        self.tools.prepare()?;
        let loaded = &served.loaded;
        let is_offered = self.tools.are_offered();
        let messages = images_after_results(self.messages);
        let has_calls = messages.iter().any(is_about_calls);
        let native = match is_offered || has_calls {
            true => native_calls(served)?,
            false => None,
        };
        let thoughts = native_thoughts(served);
        let mut variables = self.thinking.variables(thoughts.as_ref());
        variables.extend(self.variables);
        let mut options = RenderOptions {
            add_generation_prompt: true,
            variables,
            ..RenderOptions::default()
        };
        if native.is_some() && is_offered {
            let list = self.tools.list.iter().map(|tool| tool.for_template());
            options.tools = Some(Value::Array(list.collect()));
        }
        let (messages, stand_ins) = match native {
            Some(shown) => native_messages(loaded, messages, shown, &options),
            None if is_offered || has_calls => {
                let plain = as_plain_messages(&messages, &self.tools);
                (plain, StandIns::default())
            }
            None => (messages, StandIns::default()),
        };
        let syntax = native.map_or(GENERIC, |shown| shown.syntax);
        if is_offered {
            self.tools.check_held(&syntax)?;
        }
        let mut shape = AnswerShape {
            form: self.form,
            left_out: [self.left_out, std::mem::take(&mut self.tools.left_out)].concat(),
            calls: is_offered.then_some((syntax, self.tools)),
            thoughts,
            ..AnswerShape::default()
        };
        shape.check()?;
        let (messages, prompt) = arranged_with_tools(loaded, messages, options)?;
        let prompt = stand_ins.resolved(prompt);
        shape.listen(&loaded.tokenizer, prompt.text(), &self.thinking);
        let (tokens, pending) = with_images(loaded, &messages, &prompt)?;
        let encoded = EncodedPrompt {
            tokens,
            pending,
            text: prompt.text().to_owned(),
            shape,
        };
        Ok(encoded.begun_as_text(loaded, !is_offered))
    }
}

/// A conversation for a template that shows functions, with earlier calls rearranged so that it writes all of them.
fn native_messages(
    loaded: &ModelInfo,
    messages: Vec<Message>,
    shown: ShownCalls,
    options: &RenderOptions,
) -> (Vec<Message>, StandIns) {
    let syntax = &shown.syntax;
    let messages = match syntax.has_named_ids() {
        true => ids_with_names(messages),
        false => messages,
    };
    match shown.earlier {
        EarlierCalls::All => (messages, StandIns::default()),
        EarlierCalls::One => (calls_by_themselves(messages), StandIns::default()),
        EarlierCalls::None => {
            let marks = Marks::of(syntax.texts(), &loaded.tokenizer);
            let variables = Value::Object(options.variables.clone());
            let others = [Some(&variables), options.tools.as_ref()];
            let others: Vec<&Value> = others.into_iter().flatten().collect();
            calls_as_texts(messages, syntax, &marks, &others)
        }
    }
}

/// The same as [`arranged`], with simpler schemas of functions if the template fails with the given ones.
fn arranged_with_tools(
    loaded: &ModelInfo,
    messages: Vec<Message>,
    mut options: RenderOptions,
) -> Result<(Vec<Message>, RenderedPrompt), ApiError> {
    if options.tools.is_none() {
        return arranged(loaded, messages, &options);
    }
    arranged(loaded, messages.clone(), &options).or_else(|error| {
        options.tools = options.tools.as_ref().map(simple_functions);
        arranged(loaded, messages, &options).map_err(|_| error)
    })
}

/// The conversation unchanged, if the template accepts it, else in the first arrangement that it accepts. Leaving out
/// a system message does not count as accepting it.
fn arranged(
    loaded: &ModelInfo,
    messages: Vec<Message>,
    options: &RenderOptions,
) -> Result<(Vec<Message>, RenderedPrompt), ApiError> {
    let systems = later_systems(&messages);
    let shows = |prompt: &RenderedPrompt| systems.iter().all(|text| prompt.text().contains(text));
    let first = render(loaded, &messages, options);
    if !first.as_ref().is_ok_and(shows) {
        let mut tried = messages.clone();
        for arrange in ARRANGEMENTS {
            let next = arrange(tried.clone());
            if next == tried {
                continue;
            }
            if let Ok(prompt) = render(loaded, &next, options)
                && shows(&prompt)
            {
                return Ok((next, prompt));
            }
            tried = next;
        }
    }
    Ok((messages, first?))
}

impl EncodedPrompt {
    /// Appends the tokens with which this model family begins a text, if the answer `is_text` and cannot be a call.
    fn begun_as_text(mut self, loaded: &ModelInfo, is_text: bool) -> EncodedPrompt {
        let template = loaded.template.as_ref().ok().filter(|_| is_text);
        let opening = template.and_then(|of| of.text_opening(&loaded.tokenizer, &self.text));
        if let Some(opening) = opening {
            self.tokens.extend(opening.tokens);
            self.text.push_str(opening.text);
        }
        self
    }

    /// The tokens before images are encoded, as users write them: with the vocabulary's own placeholder.
    pub(crate) fn shown_tokens(&self, served: &ServedModel) -> Vec<u32> {
        let own = served.loaded.vision().map(Vision::placeholder);
        let shown = |token: &u32| match &own {
            Ok(own) if *token == PLACEHOLDER => *own,
            _ => *token,
        };
        self.tokens.iter().map(shown).collect()
    }

    /// Runs the vision encoder over the images, if there are any, and puts their rows into the prompt. A client that
    /// disconnects stops it, and so does the deadline.
    pub(crate) async fn see(
        &mut self,
        served: &ServedModel,
        caller: &Caller,
    ) -> Result<Vec<Arc<Image>>, ApiError> {
        caller.within(self.see_for(served, caller.scope)).await
    }

    async fn see_for(
        &mut self,
        served: &ServedModel,
        scope: u64,
    ) -> Result<Vec<Arc<Image>>, ApiError> {
        if self.pending.is_empty() {
            return Ok(Vec::new());
        }
        // Checked before the work: a prompt that is too long would be refused after it.
        let (n_prompt, n_ctx) = (self.tokens.len(), served.loaded.limits.n_ctx);
        if n_prompt >= n_ctx.min(served.loaded.capacity_tokens) {
            let most = n_ctx.min(served.loaded.capacity_tokens);
            let error = ApiError::overflow(n_prompt, 1, most);
            return Err(error.advice("or send fewer images"));
        }
        let gone = CancelGuard(Arc::default());
        let vision = served.loaded.vision();
        let vision = vision.map_err(|reason| ApiError::field("messages", reason))?;
        let turn = vision.turn().await;
        let (stop, loaded) = (Arc::clone(&gone.0), Arc::clone(&served.loaded));
        let (pending, mut tokens) = (std::mem::take(&mut self.pending), self.tokens.clone());
        let work = move || {
            // Held until the work ends, which is later than the wait for it if the client disconnects.
            let _turn = turn;
            let vision = loaded.vision().map_err(ImageError::VisionEncoder)?;
            let images = vision.see(scope, &pending, &mut tokens, &stop)?;
            Ok((tokens, images))
        };
        let seen = tokio::task::spawn_blocking(work).await;
        let seen = seen.unwrap_or_else(|error| Err(ImageError::VisionEncoder(error.to_string())));
        let (tokens, images) = seen.map_err(unseen)?;
        self.tokens = tokens;
        Ok(images)
    }
}

fn unseen(reason: ImageError) -> ApiError {
    match reason {
        ImageError::Unreadable(reason) => ApiError::field("messages", reason),
        ImageError::VisionEncoder(reason) => {
            let message = format!("reading the images failed: {reason}");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
        // No client is left to read it.
        ImageError::Gone => ApiError::bad("the request was given up"),
    }
}

/// Signals the vision encoder's thread that no client waits any longer.
struct CancelGuard(Arc<AtomicBool>);

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The tokens of a prompt, and the images of its messages, as they came.
fn with_images(
    loaded: &ModelInfo,
    messages: &[Message],
    prompt: &RenderedPrompt,
) -> Result<(Vec<u32>, Vec<UnreadImage>), ApiError> {
    let images: Vec<&String> = messages
        .iter()
        .flat_map(|message| &message.images)
        .collect();
    if images.is_empty() {
        return Ok((loaded.tokenizer.encode_prompt(prompt), Vec::new()));
    }
    let wrong = |reason: String| ApiError::field("messages", reason);
    if images.len() > MAX_IMAGES {
        let found = images.len();
        return Err(wrong(format!(
            "expected {MAX_IMAGES} images at most, found {found}"
        )));
    }
    let vision = loaded.vision().map_err(wrong)?;
    let pending = images.into_iter().map(|data| UnreadImage::new(data));
    let pending: Vec<UnreadImage> = pending.collect::<Result<_, _>>().map_err(wrong)?;
    let tokens = vision.tokens(&loaded.tokenizer, prompt, &pending);
    Ok((tokens.map_err(wrong)?, pending))
}

fn is_about_calls(message: &Message) -> bool {
    message.role == "tool" || message.fields.contains_key("tool_calls")
}

fn sources(template: &ChatTemplate) -> String {
    let sources: Vec<&str> = template.sources().collect();
    sources.join("\n")
}

/// The thought syntax of the model's template, if it has one.
fn native_thoughts(served: &ServedModel) -> Option<ThoughtSyntax> {
    let loaded = &served.loaded;
    *served.entry.thoughts.get_or_init(|| {
        let template = loaded.template.as_ref().ok()?;
        thought_syntax(&sources(template), &loaded.tokenizer)
    })
}

/// The call syntax of the model, if its template shows functions in a known syntax, or in one that it shows itself.
fn native_calls(served: &ServedModel) -> Result<Option<ShownCalls>, ApiError> {
    if let Some(known) = served.entry.native_calls.get() {
        return Ok(*known);
    }
    let loaded = &served.loaded;
    let template = loaded.template.as_ref().map(sources).unwrap_or_default();
    let has_token = |text: &str| loaded.tokenizer.id_of(text).is_some();
    let syntax = shown_calls(&template, has_token, |messages, options| {
        render(loaded, messages, options).map(|prompt| prompt.text().to_owned())
    })?;
    Ok(*served.entry.native_calls.get_or_init(|| syntax))
}

fn render(
    loaded: &ModelInfo,
    messages: &[Message],
    options: &RenderOptions,
) -> Result<RenderedPrompt, ApiError> {
    let template = loaded.template.as_ref();
    let template = template.map_err(|reason| ApiError::bad(reason.clone()))?;
    template
        .render_prompt(&loaded.tokenizer, messages, options)
        .map_err(|error| ApiError::field("messages", error))
}

/// Template variables that callers may not set: with them, text of a request could become a turn or a control token.
const RESERVED: [&str; 7] = [
    "messages",
    "tools",
    "add_generation_prompt",
    "bos_token",
    "eos_token",
    "unk_token",
    "pad_token",
];

/// `chat_template_kwargs`.
pub(crate) fn variables(fields: &Fields<'_>) -> Result<Map<String, Value>, ApiError> {
    let Some(given) = fields.object("chat_template_kwargs")? else {
        return Ok(Map::new());
    };
    let mut variables = Map::new();
    for (name, value) in given.entries() {
        if RESERVED.contains(&name.as_str()) {
            let message = "the server sets this variable of the template itself; leave it out";
            return Err(ApiError::field(&given.path(name), message));
        }
        variables.insert(name.clone(), value.clone());
    }
    Ok(variables)
}

/// The tokens of a plain prompt. Spelled-out control tokens are text, and the tokens that the model expects before a
/// text are added. Those expected after a text are not, since the text continues.
pub(crate) async fn encode(loaded: &Arc<ModelInfo>, text: String) -> Result<Vec<u32>, ApiError> {
    encode_with(loaded, move |tokenizer| {
        tokenizer.encode_continued(&text, false).0
    })
    .await
}

/// The tokens of a complete text, such as one to embed, with the tokens that the model expects around it.
pub(crate) async fn encode_whole(
    loaded: &Arc<ModelInfo>,
    text: String,
) -> Result<Vec<u32>, ApiError> {
    let options = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    encode_with(loaded, move |tokenizer| tokenizer.encode(&text, options)).await
}

/// Runs a tokenizer outside the serving threads.
pub(crate) async fn encode_with(
    loaded: &Arc<ModelInfo>,
    encode: impl FnOnce(&Tokenizer) -> Vec<u32> + Send + 'static,
) -> Result<Vec<u32>, ApiError> {
    let tokenizer = Arc::clone(&loaded.tokenizer);
    let work = move || encode(&tokenizer);
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        let message = format!("encoding the prompt failed: {error}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    })
}
