//! `POST /v1/completions`: text goes on, without a template.

use std::sync::Arc;
use std::task::Poll;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use millrace_runtime::GenerateParams;
use serde_json::{Value, json};

use super::chat::priority;
use super::{finish_reason, finite, total, usage};
use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::api::generation::{Answer, AnswerPiece, Generation};
use crate::api::params::{
    Caller, MAX_ANSWERS, response_format, stop_texts, stop_tokens, structured_outputs, token_ids,
};
use crate::api::sampling::sampling;
use crate::api::shape::AnswerShape;
use crate::api::time::unix_s;
use crate::api::{prompt, unique};
use crate::app::{App, Dialect, Incoming, json as json_response};
use crate::http::stream::{ClientGone, StreamWriter, events};
use crate::models::ServedModel;
use crate::scheduler::{Job, Receipt, TokenLogprob};

/// Prompts of a request at most.
const MAX_PROMPTS: usize = 64;

/// Tokens written where a request does not say, as in OpenAI's API.
const DEFAULT_MAX_TOKENS: usize = 16;

const REFUSED: &[(&str, &str)] = &[
    ("echo", "put the prompt before the answer yourself"),
    ("suffix", "the model only goes on"),
];

pub(crate) async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::OpenAi.answer(answer(app, request).await)
}

struct CompletionContext {
    id: String,
    created: u64,
    served: ServedModel,
    /// Answers to each prompt.
    n: usize,
    top_logprobs: Option<usize>,
    with_usage: bool,
    with_placement: bool,
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    fields.refuse(REFUSED)?;
    let served = caller.within(app.served(&fields)).await?;
    let prompts = texts_or_tokens(&fields, &served, "prompt", MAX_PROMPTS, TextUse::Prompt).await?;
    let jobs = jobs(&fields, &served, &caller, prompts)?;
    let form = response_format(fields.object("response_format")?)?;
    let shape = AnswerShape::of_form(form.or(structured_outputs(&fields)?));
    let include_usage = match fields.object("stream_options")? {
        Some(options) => options.bool("include_usage")?.unwrap_or(false),
        None => false,
    };
    let context = CompletionContext {
        id: unique("cmpl-"),
        created: unix_s(),
        n: jobs.first().map_or(1, |job| job.n),
        top_logprobs: jobs.first().and_then(|job| job.top_logprobs),
        with_usage: include_usage,
        with_placement: fields.bool("placement")?.unwrap_or(false),
        served,
    };
    let is_stream = fields.bool("stream")?.unwrap_or(false);
    let mut generations = Vec::with_capacity(jobs.len());
    for job in jobs {
        let shape = shape.clone();
        generations.push(Generation::start(&context.served, job, shape, caller.log.clone()).await?);
    }
    if is_stream {
        let work = move |writer| stream(writer, generations, context);
        return Ok(events(app.options.keep_alive, work));
    }
    let mut choices = Vec::new();
    let mut receipts = Vec::new();
    for generation in generations {
        // All run; this only waits for one after the other.
        let (answers, receipt) = generation.complete().await?;
        for answer in answers {
            choices.push(context.choice(choices.len(), &answer));
        }
        receipts.push(receipt);
    }
    let mut body = context.head();
    body["choices"] = choices.into();
    body["usage"] = context.usage(&receipts);
    Ok(json_response(StatusCode::OK, &body))
}

/// What becomes of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextUse {
    /// The model goes on with it.
    Prompt,
    /// It is whole.
    Whole,
}

/// A text, tokens, or a list of either, of which there may be `most`.
pub(super) async fn texts_or_tokens(
    fields: &Fields<'_>,
    served: &ServedModel,
    name: &str,
    most: usize,
    kind: TextUse,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let value = fields.need(name, fields.get(name))?;
    let one = std::slice::from_ref(value);
    let list: &[Value] = match value.as_array() {
        Some(list) if list.iter().all(|item| item.is_string() || item.is_array()) => list,
        _ => one,
    };
    if list.is_empty() || list.len() > most {
        let found = list.len();
        return Err(ApiError::field(
            name,
            format!("expected 1 to {most} of them, found {found}"),
        ));
    }
    let mut inputs = Vec::with_capacity(list.len());
    for value in list {
        let tokens = match value {
            Value::String(text) if kind == TextUse::Whole => {
                prompt::encode_whole(&served.loaded, text.clone()).await?
            }
            Value::String(text) => prompt::encode(&served.loaded, text.clone()).await?,
            other => {
                let expected = "a string, token ids, or a list of either";
                token_ids(other, name, expected, &served.loaded)?
            }
        };
        inputs.push(tokens);
    }
    Ok(inputs)
}

fn jobs(
    fields: &Fields<'_>,
    served: &ServedModel,
    caller: &Caller,
    prompts: Vec<Vec<u32>>,
) -> Result<Vec<Job>, ApiError> {
    let n = fields.usize_in("n", 1, MAX_ANSWERS)?.unwrap_or(1);
    let best_of = fields.usize("best_of")?.unwrap_or(n);
    if best_of != n {
        return Err(ApiError::field("best_of", "only as many as n are written"));
    }
    let params = GenerateParams {
        sampling: sampling(fields, &served.loaded)?,
        max_tokens: match fields.get("max_tokens") {
            None => Some(DEFAULT_MAX_TOKENS),
            Some(_) => fields.limit("max_tokens")?,
        },
        stop: stop_texts(fields, "stop")?,
        stop_tokens: stop_tokens(fields, &served.loaded)?,
        ignore_end: fields.bool("ignore_eos")?.unwrap_or(false),
        show_special: false,
    };
    let top_logprobs = fields.usize_in("logprobs", 0, 20)?;
    let priority = priority(fields)?;
    let job = |prompt| Job {
        n,
        top_logprobs,
        priority,
        ..caller.job(prompt, params.clone())
    };
    Ok(prompts.into_iter().map(job).collect())
}

impl CompletionContext {
    fn head(&self) -> Value {
        json!({
            "id": self.id, "object": "text_completion", "created": self.created,
            "model": self.served.entry.spec.id,
        })
    }

    fn choice(&self, index: usize, answer: &Answer) -> Value {
        json!({
            "index": index, "text": answer.text, "logprobs": self.logprobs(&answer.tokens),
            "finish_reason": answer.reason.map(finish_reason),
        })
    }

    /// As this older API has them: lists side by side, offsets in characters of the tokens' texts.
    fn logprobs(&self, tokens: &[TokenLogprob]) -> Value {
        if self.top_logprobs.is_none() {
            return Value::Null;
        }
        let tokenizer = &self.served.loaded.tokenizer;
        let text = |id: u32| String::from_utf8_lossy(&tokenizer.token_bytes(id)).into_owned();
        let texts: Vec<String> = tokens.iter().map(|token| text(token.token)).collect();
        let logprobs: Vec<f64> = tokens.iter().map(|token| finite(token.logprob)).collect();
        let top = tokens.iter().map(|token| {
            let entries = token.top.iter();
            let entries = entries.map(|(id, logprob)| (text(*id), finite(*logprob).into()));
            Value::Object(entries.collect())
        });
        let offsets = texts.iter().scan(0, |offset, text| {
            let here = *offset;
            *offset += text.chars().count();
            Some(here)
        });
        let offsets: Vec<usize> = offsets.collect();
        json!({
            "tokens": texts, "token_logprobs": logprobs, "top_logprobs": top.collect::<Vec<_>>(),
            "text_offset": offsets,
        })
    }

    /// All prompts together.
    fn usage(&self, receipts: &[Receipt]) -> Value {
        match total(receipts) {
            Some(total) => usage(&total, self.with_placement),
            None => Value::Null,
        }
    }
}

/// The next piece of any of them, with its place.
async fn next_of(
    generations: &mut [(Generation, bool)],
) -> Result<Option<(usize, AnswerPiece)>, ApiError> {
    std::future::poll_fn(|context| {
        for (i, (generation, is_done)) in generations.iter_mut().enumerate() {
            if *is_done {
                continue;
            }
            match generation.poll_next(context) {
                Poll::Ready(Ok(Some(piece))) => return Poll::Ready(Ok(Some((i, piece)))),
                Poll::Ready(Ok(None)) => *is_done = true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {}
            }
        }
        match generations.iter().all(|(_, is_done)| *is_done) {
            true => Poll::Ready(Ok(None)),
            false => Poll::Pending,
        }
    })
    .await
}

async fn stream(
    writer: StreamWriter,
    generations: Vec<Generation>,
    context: CompletionContext,
) -> Result<(), ClientGone> {
    let mut generations: Vec<_> = generations.into_iter().map(|one| (one, false)).collect();
    let mut receipts = Vec::new();
    loop {
        let (prompt, piece) = match next_of(&mut generations).await {
            Ok(Some(next)) => next,
            Ok(None) => break,
            Err(error) => return writer.data(&error.openai()).await,
        };
        let (choice, text, tokens, reason) = match piece {
            AnswerPiece::Delta {
                choice,
                text,
                tokens,
            } => (choice, text, tokens, None),
            AnswerPiece::Finish { choice, reason, .. } => (
                choice,
                String::new(),
                Vec::new(),
                Some(finish_reason(reason)),
            ),
            AnswerPiece::End(receipt) => {
                receipts.push(*receipt);
                continue;
            }
            // Prompts of texts have no thoughts.
            AnswerPiece::Thought { .. } => continue,
            AnswerPiece::Progress { .. } | AnswerPiece::Call { .. } => continue,
        };
        let mut chunk = context.head();
        let logprobs = match tokens.is_empty() {
            true => Value::Null,
            false => context.logprobs(&tokens),
        };
        chunk["choices"] = json!([{
            "index": prompt * context.n + choice, "text": text, "logprobs": logprobs, "finish_reason": reason,
        }]);
        writer.data(&chunk).await?;
    }
    if context.with_usage {
        let mut chunk = context.head();
        chunk["choices"] = json!([]);
        chunk["usage"] = context.usage(&receipts);
        writer.data(&chunk).await?;
    }
    writer.done().await
}
