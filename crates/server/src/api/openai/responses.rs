//! `POST /v1/responses`: the newer form of chat. Nothing is stored; a conversation is sent whole.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use millrace_runtime::GenerateParams;
use millrace_text::Message;
use serde_json::{Value, json};

use super::messages::{MAX_MESSAGES, tools};
use super::responses_stream::stream;
use crate::api::error::ApiError;
use crate::api::fields::{Fields, wrong};
use crate::api::generation::{Answer, Call, Generation, Reason, placement};
use crate::api::params::{response_format, sampling};
use crate::api::prompt::Conversation;
use crate::api::{unique, unix_s};
use crate::app::{App, Dialect, Incoming, json as json_response};
use crate::http::stream::events;
use crate::scheduler::{Job, Receipt};

const REFUSED: &[(&str, &str)] = &[
    (
        "previous_response_id",
        "send the whole conversation as input: what was computed of it is kept",
    ),
    ("conversation", "send the whole conversation as input"),
    ("background", "keep the request open"),
    ("prompt", "send its text as instructions"),
];

pub(crate) async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::OpenAi.answer(answer(app, request).await)
}

/// How a response is told.
pub(super) struct Told {
    id: String,
    pub(super) item: String,
    created: u64,
    model: String,
    /// What the request said and the response repeats.
    echo: Value,
    with_placement: bool,
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    fields.refuse(REFUSED)?;
    let served = app.served(&fields).await?;
    let mut prompted = conversation(&fields)?.prompt(&served).await?;
    let params = GenerateParams {
        sampling: sampling(&fields, &served.loaded)?,
        max_tokens: fields.usize("max_output_tokens")?,
        ..GenerateParams::default()
    };
    let told = Told {
        id: unique("resp_"),
        item: unique("msg_"),
        created: unix_s(),
        model: served.entry.spec.id.clone(),
        echo: json!({
            "instructions": body["instructions"], "max_output_tokens": body["max_output_tokens"],
            "temperature": params.sampling.temperature, "top_p": params.sampling.top_p,
            "tools": body.get("tools").cloned().unwrap_or_else(|| json!([])),
            "tool_choice": body.get("tool_choice").cloned().unwrap_or_else(|| "auto".into()),
            "parallel_tool_calls": body.get("parallel_tool_calls").cloned().unwrap_or_else(|| true.into()),
            "metadata": body.get("metadata").cloned().unwrap_or_else(|| json!({})),
            "text": body.get("text").cloned().unwrap_or_else(|| json!({"format": {"type": "text"}})),
        }),
        with_placement: fields.bool("placement")?.unwrap_or(false),
    };
    let images = prompted.see(&served).await?;
    let job = Job {
        images,
        grammar: prompted.grammar,
        ..caller.job(prompted.tokens, params)
    };
    let is_stream = fields.bool("stream")?.unwrap_or(false);
    let generation = Generation::start(&served, job, prompted.syntax, caller.log).await?;
    if is_stream {
        let work = move |writer| stream(writer, generation, told);
        return Ok(events(app.options.keep_alive, work));
    }
    let (mut answers, receipt) = generation.complete().await?;
    let answer = answers.pop().unwrap_or_default();
    Ok(json_response(
        StatusCode::OK,
        &told.complete(&answer, &receipt),
    ))
}

fn conversation(fields: &Fields<'_>) -> Result<Conversation, ApiError> {
    let mut messages = Vec::new();
    if let Some(text) = fields.text("instructions")? {
        messages.push(Message::system(text));
    }
    match fields.need("input", fields.get("input"))? {
        Value::String(text) => messages.push(Message::user(text.as_str())),
        Value::Array(items) if items.len() <= MAX_MESSAGES => {
            for (i, value) in items.iter().enumerate() {
                item(value, &format!("input[{i}]"), &mut messages)?;
            }
        }
        other => return Err(wrong("input", "a string or a list of items", other)),
    }
    if messages.is_empty() {
        return Err(ApiError::field("input", "at least one item is needed"));
    }
    let form = match fields.object("text")? {
        Some(text) => response_format(text.object("format")?)?,
        None => None,
    };
    Ok(Conversation {
        messages,
        tools: tools(fields)?,
        form,
        ..Conversation::default()
    })
}

fn item(value: &Value, path: &str, messages: &mut Vec<Message>) -> Result<(), ApiError> {
    let item = Fields::at(value, path.to_owned())?;
    match item.text("type")?.unwrap_or("message") {
        "message" => {
            // The same as a message of chat completions, whose reader names its place by itself.
            let one = Value::Object(
                [("messages".to_owned(), json!([value]))]
                    .into_iter()
                    .collect(),
            );
            let read = super::messages::messages(&Fields::of(&one)?);
            let read = read.map_err(|error| ApiError {
                param: error
                    .param
                    .map(|param| param.replacen("messages[0]", path, 1)),
                message: error.message.replacen("messages[0]", path, 1),
                ..error
            })?;
            messages.extend(read);
        }
        "function_call" => earlier_call(&item, messages)?,
        "function_call_output" => {
            let output = item.need("output", item.text("output")?)?;
            let mut message = Message::new("tool", output);
            if let Some(id) = item.text("call_id")? {
                message.fields.insert("tool_call_id".to_owned(), id.into());
            }
            messages.push(message);
        }
        // What a model thought before is not told to it again.
        "reasoning" => {}
        other => {
            let message = format!("this server does not know items of type \"{other}\"");
            return Err(ApiError::field(&item.path("type"), message));
        }
    }
    Ok(())
}

/// A call the model made before: part of its message, or one of its own.
fn earlier_call(item: &Fields<'_>, messages: &mut Vec<Message>) -> Result<(), ApiError> {
    let text = item.need("arguments", item.text("arguments")?)?;
    let arguments: Value = serde_json::from_str(text).map_err(|error| {
        let message = format!("expected the text of a JSON object: {error}");
        ApiError::field(&item.path("arguments"), message)
    })?;
    let call = json!({
        "id": item.text("call_id")?.unwrap_or_default(), "type": "function",
        "function": {"name": item.need("name", item.text("name")?)?, "arguments": arguments},
    });
    match messages.last_mut().filter(|last| last.role == "assistant") {
        Some(last) => match last
            .fields
            .get_mut("tool_calls")
            .and_then(Value::as_array_mut)
        {
            Some(calls) => calls.push(call),
            None => {
                last.fields.insert("tool_calls".to_owned(), json!([call]));
            }
        },
        None => {
            let mut message = Message::assistant("");
            message
                .fields
                .insert("tool_calls".to_owned(), json!([call]));
            messages.push(message);
        }
    }
    Ok(())
}

impl Told {
    /// The response as a whole.
    pub(super) fn response(&self, status: &str, output: Vec<Value>, usage: Value) -> Value {
        let mut response = json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status,
            "background": false, "error": null, "incomplete_details": null, "model": self.model,
            "output": output, "previous_response_id": null, "store": false, "usage": usage,
        });
        if let (Some(response), Some(echo)) = (response.as_object_mut(), self.echo.as_object()) {
            response.extend(echo.clone());
        }
        response
    }

    pub(super) fn complete(&self, answer: &Answer, receipt: &Receipt) -> Value {
        let mut output = Vec::new();
        if !answer.text.is_empty() || answer.calls.is_empty() {
            output.push(self.message(&answer.text, status(answer)));
        }
        output.extend(
            answer
                .calls
                .iter()
                .map(|call| function_call(call, "completed")),
        );
        let usage = self.usage(receipt);
        let mut response = self.response(status(answer), output, usage);
        if answer.reason == Some(Reason::Length) {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        response
    }

    pub(super) fn message(&self, text: &str, status: &str) -> Value {
        json!({
            "id": self.item, "type": "message", "role": "assistant", "status": status,
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        })
    }

    fn usage(&self, receipt: &Receipt) -> Value {
        let mut usage = json!({
            "input_tokens": receipt.n_prompt,
            "input_tokens_details": {"cached_tokens": receipt.n_cached},
            "output_tokens": receipt.n_generated,
            "output_tokens_details": {"reasoning_tokens": 0},
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

pub(super) fn function_call(call: &Call, status: &str) -> Value {
    json!({
        "id": format!("fc_{}", call.id), "type": "function_call", "status": status, "call_id": call.id,
        "name": call.name, "arguments": call.arguments.to_string(),
    })
}
