//! A streamed answer: reads server-sent events as text, on a thread that may block.

use crate::exit::{CommandFailure, CommandResult, Exit};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Maximum length of a line: an event is a token or a few.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Message of the reading thread.
pub(super) enum StreamPiece {
    Event(Value),
    End,
    Failed(CommandFailure),
}

pub(super) type Sender = std::sync::mpsc::Sender<StreamPiece>;

/// Stream of pieces as they arrive.
pub(super) struct Pieces(Receiver<StreamPiece>);

impl Pieces {
    /// Reads on a separate thread, which ends with its work or with the process.
    pub(super) fn start(
        work: impl FnOnce(&Sender) -> CommandResult + Send + 'static,
    ) -> CommandResult<Pieces> {
        let (sender, receiver) = channel();
        let run = move || {
            let last = match work(&sender) {
                Ok(()) => StreamPiece::End,
                Err(failure) => StreamPiece::Failed(failure),
            };
            // The receiver may be gone.
            let _ = sender.send(last);
        };
        let thread = std::thread::Builder::new().name("server".to_owned());
        let started = thread.spawn(run);
        started.map_err(|error| CommandFailure::io("cannot start a thread", &error))?;
        Ok(Pieces(receiver))
    }

    /// The next piece, if it arrives within the time.
    pub(super) fn next(&self, time: Duration) -> Option<StreamPiece> {
        match self.0.recv_timeout(time) {
            Ok(piece) => Some(piece),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(StreamPiece::End),
        }
    }
}

/// Forwards the events of a stream until `[DONE]`.
pub(super) fn events(body: impl Read, sender: &Sender) -> CommandResult {
    let mut reader = BufReader::new(body);
    loop {
        let mut line = Vec::new();
        let read = reader
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line);
        let n = read.map_err(|error| {
            CommandFailure::new(
                Exit::NotFound,
                format!("the server's answer broke off: {error}"),
            )
        })?;
        if n == 0 {
            return Err(CommandFailure::new(
                Exit::NotFound,
                "the server's answer ended before its end",
            ));
        }
        let Some(data) = line.strip_prefix(b"data:") else {
            // Skips comments, and the lines between events.
            continue;
        };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            return Ok(());
        }
        let event: Value = serde_json::from_slice(data).map_err(|error| {
            CommandFailure::bad_input(format!(
                "the server's answer is not what its API promises: {error}"
            ))
        })?;
        if let Some(message) = event["error"]["message"].as_str() {
            return Err(CommandFailure::new(
                Exit::Failed,
                format!("the server gave up: {message}"),
            ));
        }
        if sender.send(StreamPiece::Event(event)).is_err() {
            return Ok(());
        }
    }
}

/// A server's answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) finish: Option<String>,
    /// Token usage as counted by the server.
    pub(crate) usage: Value,
    pub(crate) first_token: Option<Duration>,
    pub(crate) total: Duration,
    pub(crate) was_stopped: bool,
}

impl Answer {
    pub(super) fn take(
        &mut self,
        event: &Value,
        start: Instant,
        on_text: &mut dyn FnMut(&str),
    ) -> CommandResult {
        if event["usage"].is_object() {
            self.usage = event["usage"].clone();
        }
        let choice = &event["choices"][0];
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish = Some(reason.to_owned());
        }
        let text = choice["delta"]["content"]
            .as_str()
            .or(choice["text"].as_str());
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.first_token.get_or_insert_with(|| start.elapsed());
            self.text += text;
            on_text(text);
        }
        Ok(())
    }

    /// Tokens and times in one line. Times are measured here, so they include the network.
    pub(crate) fn line(&self) -> String {
        let count = |name: &str| self.usage[name].as_u64().unwrap_or(0);
        let n_cached = self.usage["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap_or(0);
        let first = self.first_token.unwrap_or(self.total).as_secs_f64();
        let rest = self.total.as_secs_f64() - first;
        let (n_prompt, n_written) = (count("prompt_tokens"), count("completion_tokens"));
        let speed = match rest > 0.0 && n_written > 1 {
            true => format!(", {:.1} tokens/s", (n_written - 1) as f64 / rest),
            false => String::new(),
        };
        format!(
            "prompt {n_prompt} tokens, {n_cached} of them cached; first token after {first:.2} s; {n_written} \
             written{speed}"
        )
    }

    /// The same as JSON.
    pub(crate) fn json(&self) -> Value {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        json!({
            "text": self.text, "finish_reason": self.finish, "usage": self.usage,
            "timings": {"first_token_ms": self.first_token.map(ms), "total_ms": ms(self.total)},
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (CommandResult, Vec<Value>) {
        let (sender, receiver) = channel();
        let outcome = events(text.as_bytes(), &sender);
        drop(sender);
        let events = receiver.into_iter().filter_map(|piece| match piece {
            StreamPiece::Event(event) => Some(event),
            _ => None,
        });
        (outcome, events.collect())
    }

    #[test]
    fn comments_are_passed_over_and_an_end_is_needed() {
        let (outcome, events) =
            read(": accepted\n\ndata: {\"a\": 1}\n\ndata:{\"a\":2}\r\n\ndata: [DONE]\n\n");
        assert!(outcome.is_ok());
        assert_eq!(events, [json!({"a": 1}), json!({"a": 2})]);
        let (outcome, events) = read("data: {\"a\": 1}\n\n");
        assert!(outcome.expect_err("cut").message.contains("before its end"));
        assert_eq!(events.len(), 1);
        let (outcome, _) = read("data: {\"error\": {\"message\": \"no\"}}\n\n");
        assert!(
            outcome
                .expect_err("an error")
                .message
                .contains("gave up: no")
        );
        let (outcome, _) = read("data: {\n\n");
        assert!(outcome.is_err());
    }
}
