//! Turns a job's events into an answer: text, function calls, and the reason of its end.

mod complete;
#[cfg(test)]
pub(crate) mod hostile;

use std::collections::VecDeque;
use std::task::{Context, Poll};

use millrace_runtime::Finish;
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;

use super::calls::{CallHead, CallPlace, CallsOfAnswer, FunctionCall};
use super::error::ApiError;
use super::placement::placement;
use super::shape::AnswerShape;
use super::submit::submit_shaped;
use super::tools::CallKind;
use crate::audit::RequestLog;
use crate::models::ServedModel;
use crate::scheduler::{Job, JobEvent, PromptToken, Receipt, TokenLogprob};
use crate::syntax::{AnswerPart, AnswerReader};
pub(crate) use complete::Answer;

/// Separator between two thoughts of an answer.
pub(crate) const BETWEEN_THOUGHTS: &str = "\n\n";

/// Reason why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The model ended it.
    Stop,
    /// A stop text appeared.
    StopText,
    /// The limit of tokens or the context was reached.
    Length,
    /// The model calls functions.
    Calls,
}

/// A piece of a job's result.
#[derive(Clone, Debug)]
pub(crate) enum AnswerPiece {
    Progress {
        done: usize,
        total: usize,
    },
    /// Log-probabilities of the prompt, before any text.
    PromptScores(Vec<PromptToken>),
    Delta {
        choice: usize,
        text: String,
        tokens: Vec<TokenLogprob>,
    },
    /// Text of a thought. A thought that is not the first begins with an empty line.
    Thought {
        choice: usize,
        text: String,
    },
    /// A call begins.
    CallBegin {
        choice: usize,
        /// Its index among the calls of the answer.
        index: usize,
        head: CallHead,
    },
    /// More of the input of the call that began.
    CallDelta {
        choice: usize,
        place: CallPlace,
        text: String,
    },
    /// The call that began is complete.
    Call {
        choice: usize,
        call: FunctionCall,
    },
    /// The call that began will not be completed.
    CallCut {
        choice: usize,
        /// The text as the model wrote it, if the answer ended within the call. Otherwise the text follows.
        text: String,
    },
    Finish {
        choice: usize,
        reason: Reason,
        stop_text: Option<String>,
    },
    End(Box<Receipt>),
}

/// The answers of a job under way. Dropping it cancels the job.
pub(crate) struct Generation {
    events: UnboundedReceiver<JobEvent>,
    /// One for each answer, unless answers are plain text.
    readers: Vec<AnswerReader>,
    /// State of thoughts, for each answer.
    thoughts: Vec<Thoughts>,
    /// Thoughts within a call, which are reported after it; one for each answer.
    held_thoughts: Vec<String>,
    /// For each answer.
    calls: Vec<CallsOfAnswer>,
    /// How calls of each function are reported.
    kinds: Vec<(String, CallKind)>,
    /// Parts of the request that this server ignores, as phrases.
    left_out: Vec<String>,
    ready: VecDeque<AnswerPiece>,
    has_ended: bool,
    /// Result of an embedding job.
    embedding: Option<Vec<f32>>,
    log: Option<Log>,
}

/// Whether an answer's thoughts have begun, and whether one is open.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Thoughts {
    #[default]
    None,
    /// The last piece was part of a thought.
    Open,
    /// Other pieces came after the last thought.
    Closed,
}

/// Logs the outcome of a request, once.
struct Log {
    to: RequestLog,
    model: String,
    left_out: Vec<String>,
}

impl Log {
    fn write(self, end: &str, receipt: Option<&Receipt>) {
        let mut line = json!({"request": &*self.to.request, "model": self.model, "end": end});
        if let Some(receipt) = receipt {
            line["prompt_tokens"] = receipt.n_prompt.into();
            line["cached_tokens"] = receipt.n_cached.into();
            line["completion_tokens"] = receipt.n_generated.into();
            line["placement"] = placement(receipt);
        }
        if !self.left_out.is_empty() {
            line["left_out"] = self.left_out.into();
        }
        self.to.write(&line);
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if let Some(log) = self.log.take() {
            log.write("client gone", None);
        }
    }
}

impl Generation {
    /// Submits a job whose answers have the given shape.
    pub(crate) async fn start(
        served: &ServedModel,
        job: Job,
        shape: AnswerShape,
        log: Option<RequestLog>,
    ) -> Result<Generation, ApiError> {
        let n = job.n;
        let (events, shape) = submit_shaped(served, job, shape).await?;
        Ok(Generation {
            events,
            readers: shape.readers(n),
            thoughts: vec![Thoughts::None; n],
            held_thoughts: vec![String::new(); n],
            calls: vec![CallsOfAnswer::default(); n],
            kinds: shape.kinds(),
            ready: VecDeque::new(),
            has_ended: false,
            embedding: None,
            log: log.map(|to| Log {
                to,
                model: served.name.clone(),
                left_out: shape.left_out.clone(),
            }),
            left_out: shape.left_out,
        })
    }

    /// Parts of the request that this server ignores, as phrases.
    pub(crate) fn left_out(&self) -> Vec<String> {
        self.left_out.clone()
    }

    /// The next piece; `None` after [`AnswerPiece::End`].
    pub(crate) async fn next(&mut self) -> Result<Option<AnswerPiece>, ApiError> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<AnswerPiece>, ApiError>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                self.has_ended |= matches!(piece, AnswerPiece::End(_));
                return Poll::Ready(Ok(Some(piece)));
            }
            if self.has_ended {
                return Poll::Ready(Ok(None));
            }
            match self.events.poll_recv(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    let message = "the model's thread has ended";
                    return Poll::Ready(Err(crate::scheduler::JobFailure::Engine(
                        message.to_owned(),
                    )
                    .into()));
                }
                Poll::Ready(Some(JobEvent::Failed(failure))) => {
                    if let Some(log) = self.log.take() {
                        log.write(&failure.to_string(), None);
                    }
                    return Poll::Ready(Err(failure.into()));
                }
                Poll::Ready(Some(event)) => self.take(event),
            }
        }
    }

    fn take(&mut self, event: JobEvent) {
        match event {
            JobEvent::Prefill { done, total } => {
                self.ready.push_back(AnswerPiece::Progress { done, total })
            }
            JobEvent::Delta(delta) if delta.is_thought => self.thought(delta.choice, delta.text),
            JobEvent::Delta(delta) => {
                let choice = delta.choice;
                let tokens = delta.tokens;
                match self.readers.get_mut(choice) {
                    None => self.text(choice, delta.text, tokens),
                    Some(reader) => {
                        let parts = reader.push(&delta.text);
                        if !tokens.is_empty() {
                            self.text(choice, String::new(), tokens);
                        }
                        self.parts(choice, parts);
                    }
                }
            }
            JobEvent::Finished {
                choice,
                finish,
                stop_text,
            } => {
                self.finished(choice, finish, stop_text);
            }
            JobEvent::Ended(receipt) => {
                if let Some(log) = self.log.take() {
                    log.write("complete", Some(&receipt));
                }
                self.ready.push_back(AnswerPiece::End(Box::new(receipt)));
            }
            JobEvent::PromptScores(tokens) => {
                self.ready.push_back(AnswerPiece::PromptScores(tokens));
            }
            JobEvent::Embedding(vector) => self.embedding = Some(vector),
            // Handled above.
            JobEvent::Failed(_) => {}
        }
    }

    fn finished(&mut self, choice: usize, finish: Finish, stop_text: Option<String>) {
        let mut reason = match finish {
            Finish::Stop => Reason::Stop,
            Finish::StopText => Reason::StopText,
            Finish::Length | Finish::ContextFull | Finish::Cancelled => Reason::Length,
        };
        if let Some(reader) = self.readers.get_mut(choice) {
            let parts = reader.finish();
            if reason == Reason::Stop && reader.n_calls() > 0 {
                reason = Reason::Calls;
            }
            self.parts(choice, parts);
        }
        self.ready.push_back(AnswerPiece::Finish {
            choice,
            reason,
            stop_text,
        });
    }

    fn text(&mut self, choice: usize, text: String, tokens: Vec<TokenLogprob>) {
        if !text.is_empty() {
            self.close_thought(choice);
        }
        self.ready.push_back(AnswerPiece::Delta {
            choice,
            text,
            tokens,
        });
    }

    fn close_thought(&mut self, choice: usize) {
        if let Some(thoughts @ Thoughts::Open) = self.thoughts.get_mut(choice) {
            *thoughts = Thoughts::Closed;
        }
    }

    fn thought(&mut self, choice: usize, mut text: String) {
        if self.calls.get(choice).is_some_and(CallsOfAnswer::is_open)
            && let Some(held) = self.held_thoughts.get_mut(choice)
        {
            held.push_str(&text);
            return;
        }
        if let Some(thoughts) = self.thoughts.get_mut(choice)
            && std::mem::replace(thoughts, Thoughts::Open) == Thoughts::Closed
        {
            text.insert_str(0, BETWEEN_THOUGHTS);
        }
        self.ready.push_back(AnswerPiece::Thought { choice, text });
    }

    fn parts(&mut self, choice: usize, parts: Vec<AnswerPart>) {
        for part in parts {
            match part {
                AnswerPart::Text(text) => self.text(choice, text, Vec::new()),
                AnswerPart::Thought(text) => self.thought(choice, text),
                part => {
                    self.close_thought(choice);
                    self.call(choice, part);
                    self.tell_held(choice);
                }
            }
        }
    }

    /// Reports thoughts from within a call, once the call has ended.
    fn tell_held(&mut self, choice: usize) {
        let is_open = self.calls.get(choice).is_some_and(CallsOfAnswer::is_open);
        if let Some(held) = self.held_thoughts.get_mut(choice)
            && !is_open
            && !held.is_empty()
        {
            let text = std::mem::take(held);
            self.thought(choice, text);
        }
    }

    /// Handles a part of a call.
    fn call(&mut self, choice: usize, part: AnswerPart) {
        let Some(calls) = self.calls.get_mut(choice) else {
            return;
        };
        let ready = &mut self.ready;
        match part {
            AnswerPart::CallBegin { name } => {
                let head = calls.begin(name, &self.kinds);
                let index = calls.place.index;
                ready.push_back(AnswerPiece::CallBegin {
                    choice,
                    index,
                    head,
                });
            }
            AnswerPart::CallArguments(json) => {
                let text = calls.more(&json);
                push_call_delta(ready, choice, calls.place, text);
            }
            AnswerPart::Call { arguments, .. } => {
                if let Some((rest, call)) = calls.complete(arguments) {
                    push_call_delta(ready, choice, calls.place, rest);
                    ready.push_back(AnswerPiece::Call { choice, call });
                }
            }
            AnswerPart::CallBroken | AnswerPart::CallCut(_) => {
                calls.give_up();
                let text = match part {
                    AnswerPart::CallCut(text) => text,
                    _ => String::new(),
                };
                ready.push_back(AnswerPiece::CallCut { choice, text });
            }
            AnswerPart::Text(_) | AnswerPart::Thought(_) => {}
        }
    }

    /// Waits for the result of an embedding job.
    pub(crate) async fn embedding(mut self) -> Result<(Vec<f32>, Receipt), ApiError> {
        while let Some(piece) = self.next().await? {
            if let AnswerPiece::End(receipt) = piece
                && let Some(vector) = self.embedding.take()
            {
                return Ok((vector, *receipt));
            }
        }
        Err(crate::scheduler::JobFailure::Engine("there is no embedding".to_owned()).into())
    }
}

fn push_call_delta(
    ready: &mut VecDeque<AnswerPiece>,
    choice: usize,
    place: CallPlace,
    text: String,
) {
    if !text.is_empty() {
        ready.push_back(AnswerPiece::CallDelta {
            choice,
            place,
            text,
        });
    }
}
