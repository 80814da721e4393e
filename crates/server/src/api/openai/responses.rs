//! `POST /v1/responses`: the newer form of chat. A request sends the conversation whole, or continues from a response
//! that is [kept](super::stored).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use millrace_runtime::GenerateParams;
use millrace_text::{Message, Tokenizer};
use serde_json::{Value, json};

use super::logprobs::{MAX_TOP_LOGPROBS, token_logprobs};
use super::messages::MAX_MESSAGES;
use super::responses_items::{Items, call_item};
use super::responses_stream::stream;
use super::stored::{self, ResponseStore, StoredResponse};
use super::tools::tools;
use crate::api::error::ApiError;
use crate::api::fields::{Fields, wrong};
use crate::api::generation::{Answer, Generation, Reason};
use crate::api::params::{Caller, response_format};
use crate::api::placement::placement;
use crate::api::prompt::{Conversation, variables};
use crate::api::sampling::sampling;
use crate::api::thinking::ThinkingRequest;
use crate::api::time::unix_s;
use crate::api::unique;
use crate::app::{App, Dialect, Incoming, json as json_response, with_left_out};
use crate::http::stream::events;
use crate::models::ServedModel;
use crate::scheduler::{Job, Receipt, TokenLogprob};

const REFUSED: &[(&str, &str)] = &[
    ("conversation", "send the whole conversation as input"),
    ("background", "keep the request open"),
    ("prompt", "send its text as instructions"),
];

pub(crate) async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::OpenAi.answer(answer(app, request).await)
}

/// How a response is reported.
pub(super) struct ResponseContext {
    id: String,
    pub(super) item: String,
    pub(super) reasoning: String,
    created: u64,
    model: String,
    /// Fields of the request that the response repeats.
    echo: Value,
    /// Where the response is kept, if at all.
    keeping: Option<Keeping>,
    with_logprobs: bool,
    tokenizer: Arc<Tokenizer>,
    with_placement: bool,
}

/// Data that is kept with a response.
struct Keeping {
    store: Arc<ResponseStore>,
    owner: String,
    input: Vec<Value>,
}

/// Whether a response is kept: yes if the server keeps any, unless the request says otherwise.
fn keeping(
    app: &App,
    fields: &Fields<'_>,
    owner: String,
    previous: Option<&StoredResponse>,
) -> Result<Option<Keeping>, ApiError> {
    let is_wanted = fields.bool("store")?.unwrap_or(true);
    let store = app.responses.as_ref().filter(|_| is_wanted);
    Ok(store.map(|store| {
        let before = previous
            .into_iter()
            .flat_map(StoredResponse::items)
            .cloned();
        let own = fields.get("input").map(stored::named_items);
        Keeping {
            store: Arc::clone(store),
            owner,
            input: before.chain(own.unwrap_or_default()).collect(),
        }
    }))
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    fields.refuse(REFUSED)?;
    let served = caller.within(app.served(&fields)).await?;
    let owner = app.owner(&caller.client);
    let previous = previous(&app, &fields, &owner)?;
    let mut conversation = conversation(&fields, previous.as_deref())?;
    if app.responses.is_none() && fields.bool("store")? == Some(true) {
        let words = "store: no response is kept; start the server with --store-responses MIB";
        conversation.left_out.push(words.to_owned());
    }
    let keeping = keeping(&app, &fields, owner, previous.as_deref())?;
    let prompt = conversation.prompt(&served);
    let mut prompted = caller.within(prompt).await?;
    let params = GenerateParams {
        sampling: sampling(&fields, &served.loaded)?,
        max_tokens: fields.limit("max_output_tokens")?,
        ..GenerateParams::default()
    };
    let n_top = logprobs(&fields)?;
    let temperature = (params.sampling.temperature, params.sampling.top_p);
    let context = context(&fields, &body, &served, temperature, (n_top, keeping))?;
    let images = prompted.see(&served, &caller).await?;
    let job = Job {
        images,
        top_logprobs: n_top,
        ..caller.job(prompted.tokens, params)
    };
    let is_stream = fields.bool("stream")?.unwrap_or(false);
    let generation = Generation::start(&served, job, prompted.shape, caller.log).await?;
    let left_out = generation.left_out();
    if is_stream {
        let work = move |writer| stream(writer, generation, context);
        return Ok(with_left_out(
            events(app.options.keep_alive, work),
            &left_out,
        ));
    }
    let (mut answers, receipt) = generation.complete().await?;
    let answer = answers.pop().unwrap_or_default();
    let mut response = context.complete(&answer, &receipt);
    context.keep(&mut response);
    let response = json_response(StatusCode::OK, &response);
    Ok(with_left_out(response, &left_out))
}

/// The context for reporting the response to a request.
fn context(
    fields: &Fields<'_>,
    body: &Value,
    served: &ServedModel,
    (temperature, top_p): (f32, f32),
    (n_top, keeping): (Option<usize>, Option<Keeping>),
) -> Result<ResponseContext, ApiError> {
    let said = |name: &str, otherwise: Value| fields.get(name).cloned().unwrap_or(otherwise);
    Ok(ResponseContext {
        id: unique("resp_"),
        item: unique("msg_"),
        reasoning: unique("rs_"),
        created: unix_s(),
        model: served.name.clone(),
        echo: json!({
            "instructions": body["instructions"], "max_output_tokens": body["max_output_tokens"],
            "temperature": temperature, "top_p": top_p,
            "tools": said("tools", json!([])), "tool_choice": said("tool_choice", "auto".into()),
            "parallel_tool_calls": said("parallel_tool_calls", true.into()),
            "metadata": said("metadata", json!({})), "reasoning": said("reasoning", json!({"effort": null, "summary": null})),
            "text": said("text", json!({"format": {"type": "text"}})),
            "top_logprobs": n_top.unwrap_or(0), "previous_response_id": body["previous_response_id"],
        }),
        keeping,
        with_logprobs: n_top.is_some(),
        tokenizer: Arc::clone(&served.loaded.tokenizer),
        with_placement: fields.bool("placement")?.unwrap_or(false),
    })
}

/// The response that a request continues from, if it names one.
fn previous(
    app: &App,
    fields: &Fields<'_>,
    owner: &str,
) -> Result<Option<Arc<StoredResponse>>, ApiError> {
    let id = fields
        .text("previous_response_id")?
        .filter(|id| !id.is_empty());
    id.map(|id| stored::previous(app, id, owner)).transpose()
}

/// The conversation of a request, including the one that it continues.
pub(super) fn conversation_of(
    fields: &Fields<'_>,
    app: &App,
    caller: &Caller,
) -> Result<Conversation, ApiError> {
    let previous = previous(app, fields, &app.owner(&caller.client))?;
    conversation(fields, previous.as_deref())
}

/// Allowed values of `include`. All but the first concern tools that other services run, or data that is included
/// anyway.
const INCLUDES: [&str; 8] = [
    LOGPROBS,
    "reasoning.encrypted_content",
    "message.input_image.image_url",
    "web_search_call.results",
    "web_search_call.action.sources",
    "file_search_call.results",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
];

const LOGPROBS: &str = "message.output_text.logprobs";

/// Whether log-probabilities are reported, and for how many of the likeliest tokens.
fn logprobs(fields: &Fields<'_>) -> Result<Option<usize>, ApiError> {
    let mut is_included = false;
    for (i, value) in fields
        .list("include")?
        .unwrap_or_default()
        .iter()
        .enumerate()
    {
        let path = format!("include[{i}]");
        match value.as_str() {
            Some(name) if INCLUDES.contains(&name) => is_included |= name == LOGPROBS,
            _ => {
                return Err(wrong(
                    &path,
                    &format!("one of {}", INCLUDES.join(", ")),
                    value,
                ));
            }
        }
    }
    let n_top = fields.usize_in("top_logprobs", 0, MAX_TOP_LOGPROBS)?;
    if n_top.is_some_and(|n| n > 0) && !is_included {
        let message = format!("include must have \"{LOGPROBS}\" for it");
        return Err(ApiError::field("top_logprobs", message));
    }
    Ok(is_included.then_some(n_top.unwrap_or(0)))
}

fn conversation(
    fields: &Fields<'_>,
    previous: Option<&StoredResponse>,
) -> Result<Conversation, ApiError> {
    let mut items = Items::default();
    // Instructions of an earlier request apply to that request only.
    if let Some(text) = fields.text("instructions")? {
        items.messages.push(Message::system(text));
    }
    let earlier = previous.into_iter().flat_map(StoredResponse::items);
    for item in earlier {
        items.add(item, "previous_response_id")?;
    }
    if items.messages.len() > MAX_MESSAGES {
        let message = format!("its conversation has more than {MAX_MESSAGES} messages");
        return Err(ApiError::field("previous_response_id", message));
    }
    match fields.need("input", fields.get("input"))? {
        Value::String(text) => items.messages.push(Message::user(text.as_str())),
        Value::Array(list) if list.len() <= MAX_MESSAGES => {
            for (i, value) in list.iter().enumerate() {
                items.add(value, &format!("input[{i}]"))?;
            }
        }
        other => return Err(wrong("input", "a string or a list of items", other)),
    }
    if items.messages.is_empty() {
        return Err(ApiError::field("input", "at least one item is needed"));
    }
    let form = match fields.object("text")? {
        Some(text) => response_format(text.object("format")?)?,
        None => None,
    };
    Ok(Conversation {
        messages: items.messages,
        tools: tools(fields)?,
        form,
        variables: variables(fields)?,
        thinking: ThinkingRequest::of_openai(fields)?,
        left_out: items.left_out,
    })
}

impl ResponseContext {
    /// A context without a request.
    #[cfg(test)]
    pub(super) fn for_tests() -> ResponseContext {
        ResponseContext {
            id: "resp_1".to_owned(),
            item: "msg_1".to_owned(),
            reasoning: "rs_1".to_owned(),
            created: 0,
            model: "m".to_owned(),
            echo: Value::Null,
            keeping: None,
            with_logprobs: false,
            tokenizer: Arc::clone(&crate::api::tools::tests::demo().0),
            with_placement: false,
        }
    }

    /// The response as a whole.
    pub(super) fn response(&self, status: &str, output: Vec<Value>, usage: Value) -> Value {
        let mut response = json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status,
            "background": false, "error": null, "incomplete_details": null, "model": self.model,
            "output": output, "store": self.keeping.is_some(), "usage": usage,
        });
        if let (Some(response), Some(echo)) = (response.as_object_mut(), self.echo.as_object()) {
            response.extend(echo.clone());
        }
        response
    }

    /// Keeps a complete response, if it shall be kept.
    pub(super) fn keep(&self, response: &mut Value) {
        if let Some(Keeping {
            store,
            owner,
            input,
        }) = &self.keeping
            && !store.put(owner, response, input)
        {
            response["store"] = false.into();
        }
    }

    pub(super) fn complete(&self, answer: &Answer, receipt: &Receipt) -> Value {
        let mut output = Vec::new();
        if !answer.thought.is_empty() {
            output.push(self.reasoning(&answer.thought, "completed"));
        }
        if !answer.text.is_empty() || answer.calls.is_empty() {
            output.push(self.message(&answer.text, &answer.tokens, status(answer)));
        }
        let calls = answer.calls.iter();
        output.extend(calls.map(|call| call_item(&call.head, &call.input(), "completed")));
        let usage = self.usage(receipt);
        let mut response = self.response(status(answer), output, usage);
        if answer.reason == Some(Reason::Length) {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        response
    }

    pub(super) fn reasoning(&self, text: &str, status: &str) -> Value {
        let content = match text.is_empty() {
            true => json!([]),
            false => json!([{"type": "reasoning_text", "text": text}]),
        };
        json!({
            "id": self.reasoning, "type": "reasoning", "status": status, "summary": [], "content": content,
            "encrypted_content": null,
        })
    }

    pub(super) fn message(&self, text: &str, tokens: &[TokenLogprob], status: &str) -> Value {
        json!({
            "id": self.item, "type": "message", "role": "assistant", "status": status,
            "content": [self.output_text(text, tokens)],
        })
    }

    /// The text part of a message.
    pub(super) fn output_text(&self, text: &str, tokens: &[TokenLogprob]) -> Value {
        let mut part = json!({"type": "output_text", "text": text, "annotations": []});
        if self.with_logprobs {
            part["logprobs"] = self.logprobs(tokens);
        }
        part
    }

    /// Tokens with their log-probabilities; empty if not requested.
    pub(super) fn logprobs(&self, tokens: &[TokenLogprob]) -> Value {
        token_logprobs(&self.tokenizer, tokens).into()
    }

    fn usage(&self, receipt: &Receipt) -> Value {
        let mut usage = json!({
            "input_tokens": receipt.n_prompt,
            "input_tokens_details": {"cached_tokens": receipt.n_cached},
            "output_tokens": receipt.n_generated,
            "output_tokens_details": {"reasoning_tokens": receipt.n_thought},
            "total_tokens": receipt.n_prompt + receipt.n_generated,
        });
        if self.with_placement {
            usage["placement"] = placement(receipt);
        }
        usage
    }
}

fn status(answer: &Answer) -> &'static str {
    match answer.reason {
        Some(Reason::Length) => "incomplete",
        _ => "completed",
    }
}
