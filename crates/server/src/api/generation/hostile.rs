//! Malformed answers, for tests of streams.

use std::time::Duration;

use axum::body::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, unbounded_channel};

use super::{CallsOfAnswer, Generation, Thoughts};
use crate::http::stream::{ClientGone, StreamWriter};
use crate::scheduler::{Delta, JobEvent, Receipt};
use crate::syntax::{AnswerReader, GENERIC, Names, by_template};
use millrace_runtime::Finish;

/// Part of an answer: a thought or not, and its text.
pub(crate) type Part = (bool, String);

/// Whole calls, parts of calls, marks and texts, cut anywhere, among thoughts.
pub(crate) fn answers() -> impl Strategy<Value = Vec<Part>> {
    const GOOD: &str =
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"é\\n\"}}\n</tool_call>";
    const CHANNEL: &str =
        "<|channel|>commentary to=functions.weather<|message|>{\"city\": \"x\"}<|end|>";
    const TWICE: &str = "<tool_call>{\"name\": \"weather\", \"arguments\": {\"a\": 1}, \"name\": \"time\"}</tool_call>";
    let text = prop_oneof![
        Just(GOOD.to_owned()),
        Just(CHANNEL.to_owned()),
        Just(TWICE.to_owned()),
        (0..GOOD.len() - 2).prop_map(|n| GOOD.chars().take(n).collect()),
        (0..GOOD.len() - 2).prop_map(|n| GOOD.chars().skip(n).collect()),
        (0..CHANNEL.len()).prop_map(|n| CHANNEL[..n].to_owned()),
        Just("<|channel|>analysis<|message|>hm<|end|><|start|>assistant".to_owned()),
        Just("<|channel|>final<|message|>".to_owned()),
        Just(" \n".to_owned()),
        Just(String::new()),
        Just("a < b { \"é\" ".to_owned()),
    ];
    prop::collection::vec((prop::bool::weighted(0.2), text), 0..7)
}

/// A generation of these parts. The arguments say whether calls are written in channels, and how the answer ends.
pub(crate) fn generation(
    is_harmony: bool,
    parts: &[Part],
    cuts: &[usize],
    finish: Finish,
) -> Generation {
    let template = "<|channel|><|message|><|start|>";
    let syntax = match is_harmony {
        true => by_template(template, |_| false).copied(),
        false => Some(GENERIC),
    };
    let names = ["weather", "time"].map(|name| (name.to_owned(), json!({"type": "object"})));
    let (sender, events) = unbounded_channel();
    let mut cuts = cuts.iter().cycle();
    for (is_thought, text) in parts {
        let mut chars = text.chars().peekable();
        while chars.peek().is_some() {
            let n = *cuts.next().unwrap_or(&1);
            let delta = Delta {
                is_thought: *is_thought,
                text: chars.by_ref().take(n).collect(),
                ..Delta::default()
            };
            sender.send(JobEvent::Delta(delta)).unwrap();
        }
    }
    let finished = JobEvent::Finished {
        choice: 0,
        finish,
        stop_text: None,
    };
    sender.send(finished).unwrap();
    sender.send(JobEvent::Ended(receipt())).unwrap();
    Generation {
        events,
        readers: vec![AnswerReader::new(syntax, None, Names::new(names))],
        thoughts: vec![Thoughts::None],
        held_thoughts: vec![String::new()],
        calls: vec![CallsOfAnswer::default()],
        kinds: Vec::new(),
        left_out: Vec::new(),
        ready: Default::default(),
        has_ended: false,
        embedding: None,
        log: None,
    }
}

fn receipt() -> Receipt {
    Receipt {
        n_prompt: 3,
        n_cached: 0,
        n_generated: 5,
        n_thought: 0,
        drafts: None,
        device: "a test's".to_owned(),
        host: Duration::ZERO,
        device_time: None,
        shares: None,
        queued: Duration::ZERO,
        first_token: Duration::ZERO,
        total: Duration::ZERO,
        n_preempted: 0,
        timeline: Vec::new(),
    }
}

/// The events that a stream writes, as names and data.
pub(crate) fn events<F>(stream: impl FnOnce(StreamWriter) -> F) -> Vec<(String, Value)>
where
    F: Future<Output = Result<(), ClientGone>>,
{
    let (writer, mut reader) = StreamWriter::with_reader();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.build().unwrap();
    runtime.block_on(stream(writer)).unwrap();
    std::iter::from_fn(|| next(&mut reader)).collect()
}

fn next(reader: &mut Receiver<Bytes>) -> Option<(String, Value)> {
    let bytes = reader.try_recv().ok()?;
    let text = std::str::from_utf8(&bytes).unwrap();
    let (name, data) = text.trim_end().split_once('\n').unwrap();
    let data = data.strip_prefix("data: ").unwrap();
    let name = name.strip_prefix("event: ").unwrap();
    Some((name.to_owned(), serde_json::from_str(data).unwrap()))
}

/// Configuration of property tests: the number of cases.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(256)
    }
}
