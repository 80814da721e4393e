//! OpenAI's API: chat completions, completions, responses, embeddings, models.

pub(crate) mod batches;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod input_tokens;
pub(crate) mod logprobs;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod responses;
mod responses_items;
mod responses_stream;
pub(crate) mod stored;
pub(crate) mod tools;

use serde_json::{Value, json};

use super::calls::{CallHead, CallPlace};
use super::generation::Reason;
use super::placement::placement;
use super::tools::CallKind;
use crate::scheduler::Receipt;

/// The reason in OpenAI's words.
fn finish_reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Stop | Reason::StopText => "stop",
        Reason::Length => "length",
        Reason::Calls => "tool_calls",
    }
}

fn usage(receipt: &Receipt, with_placement: bool) -> Value {
    let mut usage = json!({
        "prompt_tokens": receipt.n_prompt,
        "completion_tokens": receipt.n_generated,
        "total_tokens": receipt.n_prompt + receipt.n_generated,
        "prompt_tokens_details": {"cached_tokens": receipt.n_cached},
        "completion_tokens_details": {"reasoning_tokens": receipt.n_thought},
    });
    if with_placement {
        usage["placement"] = placement(receipt);
    }
    usage
}

/// Sum over several jobs, with the placement of the first, which all share.
fn total(receipts: &[Receipt]) -> Option<Receipt> {
    let (first, others) = receipts.split_first()?;
    let mut sum = first.clone();
    for other in others {
        sum.n_prompt += other.n_prompt;
        sum.n_cached += other.n_cached;
        sum.n_generated += other.n_generated;
        sum.n_thought += other.n_thought;
        sum.host += other.host;
        sum.total = sum.total.max(other.total);
        sum.n_preempted += other.n_preempted;
        if let (Some(sum), Some(other)) = (&mut sum.drafts, &other.drafts) {
            sum.n_drafted += other.n_drafted;
            sum.n_accepted += other.n_accepted;
        }
        if let (Some((sum, _)), Some((other, _))) = (&mut sum.device_time, &other.device_time) {
            *sum += *other;
        }
    }
    Some(sum)
}

/// A call as part of a message, with the given input.
fn tool_call(head: &CallHead, input: &str) -> Value {
    let CallHead { id, name, kind } = head;
    match kind {
        CallKind::Function => json!({"id": id, "type": "function", "function": {
            "name": name, "arguments": input,
        }}),
        CallKind::Custom => json!({"id": id, "type": "custom", "custom": {
            "name": name, "input": input,
        }}),
        CallKind::InNamespace { namespace, name } => json!({
            "id": id, "type": "function", "namespace": namespace,
            "function": {"name": name, "arguments": input},
        }),
    }
}

/// More of a call's input, in a delta.
fn tool_call_delta(place: CallPlace, text: &str) -> Value {
    match place.is_custom {
        true => json!({"index": place.index, "custom": {"input": text}}),
        false => json!({"index": place.index, "function": {"arguments": text}}),
    }
}
