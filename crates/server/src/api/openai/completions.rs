//! `POST /v1/completions`: continues a text, without a template.

use std::sync::Arc;
use std::task::Poll;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use millrace_runtime::GenerateParams;
use serde_json::{Value, json};

use super::chat::priority;
use super::logprobs::{MAX_TOP_LOGPROBS, TextLogprobs, prompt_logprobs, prompt_logprobs_field};
use super::{finish_reason, total, usage};
use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::api::forms::structured_outputs;
use crate::api::generation::{Answer, AnswerPiece, Generation};
use crate::api::infill::infill;
use crate::api::params::{
    Caller, MAX_ANSWERS, response_format, stop_texts, stop_tokens, token_ids,
};
use crate::api::sampling::sampling;
use crate::api::shape::AnswerShape;
use crate::api::time::unix_s;
use crate::api::{prompt, unique};
use crate::app::{App, Dialect, Incoming, json as json_response};
use crate::http::stream::{ClientGone, StreamWriter, events};
use crate::models::ServedModel;
use crate::scheduler::{Job, PromptToken, Receipt, TokenLogprob};

/// Maximum number of prompts of a request.
pub(crate) const MAX_PROMPTS: usize = 64;

/// Tokens to generate if the request does not say, as in OpenAI's API.
const DEFAULT_MAX_TOKENS: usize = 16;

pub(crate) async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::OpenAi.answer(answer(app, request).await)
}

struct CompletionContext {
    id: String,
    created: u64,
    served: ServedModel,
    /// Number of answers to each prompt.
    n: usize,
    top_logprobs: Option<usize>,
    /// For each prompt, the beginning of its answers, if they repeat it.
    echo: Vec<String>,
    /// Number of likeliest tokens to report beside each prompt token, if prompts have log-probabilities.
    n_prompt_logprobs: Option<usize>,
    with_usage: bool,
    with_placement: bool,
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    let served = caller.within(app.served(&fields)).await?;
    let prompts = prompts(&fields, &served).await?;
    let is_stream = fields.bool("stream")?.unwrap_or(false);
    let (n, best_of) = (
        fields.usize_in("n", 1, MAX_ANSWERS)?.unwrap_or(1),
        best_of(&fields, is_stream)?,
    );
    let echo = echo(&fields, &served, &prompts)?;
    let jobs = jobs(&fields, &served, &caller, prompts, (n, best_of))?;
    let form = response_format(fields.object("response_format")?)?;
    let shape = AnswerShape::of_form(form.or(structured_outputs(&fields)?));
    let include_usage = match fields.object("stream_options")? {
        Some(options) => options.bool("include_usage")?.unwrap_or(false),
        None => false,
    };
    let context = CompletionContext {
        id: unique("cmpl-"),
        created: unix_s(),
        n,
        top_logprobs: fields.usize_in("logprobs", 0, MAX_TOP_LOGPROBS)?,
        echo,
        n_prompt_logprobs: prompt_logprobs_field(&fields)?,
        with_usage: include_usage,
        with_placement: fields.bool("placement")?.unwrap_or(false),
        served,
    };
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
    for (prompt, generation) in generations.into_iter().enumerate() {
        // All of them run; this only waits for them one after the other.
        let mut complete = generation.complete_scored().await?;
        let answers = &mut complete.answers;
        if best_of.is_some() {
            answers.sort_by(|a, b| mean_logprob(b).total_cmp(&mean_logprob(a)));
            answers.truncate(n);
        }
        for answer in &complete.answers {
            let place = (prompt, choices.len());
            choices.push(context.choice(place, &complete.prompt, answer));
        }
        receipts.push(complete.receipt);
    }
    let mut body = context.head();
    body["choices"] = choices.into();
    body["usage"] = context.usage(&receipts);
    Ok(json_response(StatusCode::OK, &body))
}

/// The prompts; with a `suffix`, the infill prompt instead.
async fn prompts(fields: &Fields<'_>, served: &ServedModel) -> Result<Vec<Vec<u32>>, ApiError> {
    match fields.text("suffix")?.filter(|suffix| !suffix.is_empty()) {
        None => texts_or_tokens(fields, served, "prompt", MAX_PROMPTS, TextUse::Prompt).await,
        Some(suffix) => {
            let text = fields.need("prompt", fields.text("prompt")?)?;
            let prompt = infill(served, text.to_owned(), suffix.to_owned(), "suffix");
            Ok(vec![prompt.await?])
        }
    }
}

/// Number of answers to generate and choose from, if more than are requested.
fn best_of(fields: &Fields<'_>, is_stream: bool) -> Result<Option<usize>, ApiError> {
    let n = fields.usize_in("n", 1, MAX_ANSWERS)?.unwrap_or(1);
    let best_of = fields
        .usize_in("best_of", n, MAX_ANSWERS)?
        .filter(|best| *best > n);
    match best_of.is_some() && is_stream {
        true => Err(ApiError::field(
            "best_of",
            "the best are known at the end; set stream to false",
        )),
        false => Ok(best_of),
    }
}

/// The texts of the prompts, if answers shall begin with them.
fn echo(
    fields: &Fields<'_>,
    served: &ServedModel,
    prompts: &[Vec<u32>],
) -> Result<Vec<String>, ApiError> {
    if !fields.bool("echo")?.unwrap_or(false) {
        return Ok(Vec::new());
    }
    let given = match fields.get("prompt") {
        Some(Value::String(text)) => vec![Some(text.clone())],
        Some(Value::Array(list)) => list
            .iter()
            .map(|one| one.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    };
    let text = |(i, tokens): (usize, &Vec<u32>)| match given.get(i).cloned().flatten() {
        Some(text) => text,
        None => served.loaded.tokenizer.decode(tokens, true),
    };
    Ok(prompts.iter().enumerate().map(text).collect())
}

/// Mean log-probability of an answer's tokens; an empty answer ranks worst.
fn mean_logprob(answer: &Answer) -> f64 {
    let sum: f64 = answer.tokens.iter().map(|token| token.logprob).sum();
    match answer.tokens.len() {
        0 => f64::NEG_INFINITY,
        n => sum / n as f64,
    }
}

/// Purpose of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextUse<'a> {
    /// The model continues it.
    Prompt,
    /// A complete text, after this prefix.
    Whole(&'a str),
}

/// A text, tokens, or a list of either, with at most `most` items.
pub(crate) async fn texts_or_tokens(
    fields: &Fields<'_>,
    served: &ServedModel,
    name: &str,
    most: usize,
    kind: TextUse<'_>,
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
            Value::String(text) => match kind {
                TextUse::Prompt => prompt::encode(&served.loaded, text.clone()).await?,
                TextUse::Whole(before) => {
                    prompt::encode_whole(&served.loaded, format!("{before}{text}")).await?
                }
            },
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
    (n, best_of): (usize, Option<usize>),
) -> Result<Vec<Job>, ApiError> {
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
    let top_logprobs = fields.usize_in("logprobs", 0, MAX_TOP_LOGPROBS)?;
    // A repeated prompt gets the same log-probabilities as the answer.
    let echoed = match fields.bool("echo")?.unwrap_or(false) {
        true => top_logprobs,
        false => None,
    };
    let prompt_logprobs = prompt_logprobs_field(fields)?.max(echoed);
    let priority = priority(fields)?.unwrap_or(caller.priority);
    let job = |prompt| Job {
        n: best_of.unwrap_or(n),
        // They rank the answers.
        top_logprobs: top_logprobs.or(best_of.map(|_| 0)),
        prompt_logprobs,
        priority,
        ..caller.job(prompt, params.clone())
    };
    Ok(prompts.into_iter().map(job).collect())
}

impl CompletionContext {
    fn head(&self) -> Value {
        json!({
            "id": self.id, "object": "text_completion", "created": self.created,
            "model": self.served.name,
        })
    }

    /// JSON of one of a prompt's answers.
    fn choice(
        &self,
        (prompt, index): (usize, usize),
        scores: &[PromptToken],
        answer: &Answer,
    ) -> Value {
        let (mut text, mut logprobs) = (String::new(), TextLogprobs::default());
        let tokenizer = &self.served.loaded.tokenizer;
        if let Some(before) = self.echo.get(prompt) {
            text += before;
            logprobs.push_prompt(tokenizer, scores, self.top_logprobs.unwrap_or(0));
        }
        text += &answer.text;
        logprobs.push_answer(tokenizer, &answer.tokens);
        let logprobs = self.top_logprobs.map(|_| logprobs.json());
        let mut choice = json!({
            "index": index, "text": text, "logprobs": logprobs,
            "finish_reason": answer.reason.map(finish_reason),
        });
        if let Some(n_top) = self.n_prompt_logprobs {
            choice["prompt_logprobs"] = prompt_logprobs(tokenizer, scores, n_top);
        }
        choice
    }

    /// More of an answer, as a chunk of a stream.
    fn chunk(&self, index: usize, text: &str, logprobs: Value, reason: Option<&str>) -> Value {
        let mut chunk = self.head();
        chunk["choices"] = json!([{
            "index": index, "text": text, "logprobs": logprobs, "finish_reason": reason,
        }]);
        chunk
    }

    /// Log-probabilities of further tokens of an answer; the texts of its tokens so far have `offset` characters.
    fn more_logprobs(&self, tokens: &[TokenLogprob], offset: &mut usize) -> Value {
        if self.top_logprobs.is_none() || tokens.is_empty() {
            return Value::Null;
        }
        let mut logprobs = TextLogprobs::from_offset(*offset);
        logprobs.push_answer(&self.served.loaded.tokenizer, tokens);
        *offset = logprobs.next_offset();
        logprobs.json()
    }

    /// Begins the answers to a prompt with the prompt, and with its log-probabilities if requested.
    async fn echo(
        &self,
        writer: &StreamWriter,
        prompt: usize,
        scores: &[PromptToken],
        offsets: &mut [usize],
    ) -> Result<(), ClientGone> {
        let Some(text) = self.echo.get(prompt) else {
            return Ok(());
        };
        let first = prompt * self.n;
        let own = &mut offsets[first..first + self.n];
        for (index, offset) in (first..).zip(own) {
            let mut logprobs = TextLogprobs::default();
            let n_top = self.top_logprobs.unwrap_or(0);
            logprobs.push_prompt(&self.served.loaded.tokenizer, scores, n_top);
            *offset = logprobs.next_offset();
            let logprobs = self.top_logprobs.map(|_| logprobs.json());
            let chunk = self.chunk(index, text, logprobs.into(), None);
            writer.data(&chunk).await?;
        }
        Ok(())
    }

    /// Usage of all prompts together.
    fn usage(&self, receipts: &[Receipt]) -> Value {
        match total(receipts) {
            Some(total) => usage(&total, self.with_placement),
            None => Value::Null,
        }
    }
}

/// The next piece of any of the generations, with its index.
pub(crate) async fn next_of(
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
    let n = context.n;
    let mut offsets = vec![0; generations.len() * n];
    let mut receipts = Vec::new();
    if context.top_logprobs.is_none() {
        for prompt in 0..context.echo.len() {
            context.echo(&writer, prompt, &[], &mut offsets).await?;
        }
    }
    loop {
        let (prompt, piece) = match next_of(&mut generations).await {
            Ok(Some(next)) => next,
            Ok(None) => break,
            Err(error) => return writer.data(&error.openai()).await,
        };
        let chunk = match piece {
            AnswerPiece::PromptScores(scores) => {
                context.echo(&writer, prompt, &scores, &mut offsets).await?;
                continue;
            }
            AnswerPiece::Delta {
                choice,
                text,
                tokens,
            } => {
                let index = prompt * n + choice;
                let logprobs = context.more_logprobs(&tokens, &mut offsets[index]);
                context.chunk(index, &text, logprobs, None)
            }
            AnswerPiece::Finish { choice, reason, .. } => {
                let reason = Some(finish_reason(reason));
                context.chunk(prompt * n + choice, "", Value::Null, reason)
            }
            AnswerPiece::End(receipt) => {
                receipts.push(*receipt);
                continue;
            }
            // Plain prompts lead to no thoughts.
            AnswerPiece::Thought { .. } => continue,
            AnswerPiece::Progress { .. }
            | AnswerPiece::CallBegin { .. }
            | AnswerPiece::CallDelta { .. }
            | AnswerPiece::Call { .. }
            | AnswerPiece::CallCut { .. } => continue,
        };
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
