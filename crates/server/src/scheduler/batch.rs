//! Composes the next pass.

use std::time::Duration;

use super::pace::Pace;
use super::task::AnswerTask;

/// A task's part of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchPart {
    /// Index among the running tasks.
    pub(super) task: usize,
    /// Tokens to feed.
    pub(super) n_tokens: usize,
    /// Whether these are prompt tokens. For an answer that is computed again, its own earlier tokens count as well.
    pub(super) reads: bool,
    /// Drafted tokens after those, to be checked.
    pub(super) n_drafts: usize,
}

impl BatchPart {
    /// Number of tokens that the engine computes.
    pub(super) fn n_rows(&self) -> usize {
        self.n_tokens + self.n_drafts
    }
}

/// Composes a pass: one token of every answer that is being written, and prompt tokens. Beside answers, `pace` limits
/// the prompt tokens; without answers, `max_chunk` does. Prompts are urgent if more answers await their first token
/// than are being written; those include the `n_queued` without a sequence. The prompt admitted first gets at least
/// half of the prompt tokens, so that none starves. The rest goes to prompts with the least left to read, so that
/// short ones need not wait for long ones.
///
/// While a task is suspected of a fault, it runs alone. An encoder reads all waiting texts `whole`: its engine
/// distributes them over passes.
pub(super) fn compose(
    tasks: &[AnswerTask],
    pace: &Pace,
    (max_delay, n_queued): (Duration, usize),
    (max_chunk, whole): (usize, bool),
) -> Vec<BatchPart> {
    if whole && !tasks.iter().any(|task| task.is_suspect) {
        let all = (0..tasks.len()).filter_map(|i| part(tasks, i, usize::MAX));
        return all.collect();
    }
    if let Some(suspect) = tasks.iter().position(|task| task.is_suspect) {
        return part(tasks, suspect, max_chunk).into_iter().collect();
    }
    let (mut readers, writers): (Vec<usize>, Vec<usize>) =
        (0..tasks.len()).partition(|i| tasks[*i].reads());
    let mut parts: Vec<BatchPart> = writers.iter().filter_map(|i| part(tasks, *i, 1)).collect();
    let mut left = match parts.len() {
        0 => max_chunk,
        n => {
            let urgent = readers.len() + n_queued > n;
            pace.prompt_tokens(max_delay, urgent, max_chunk.saturating_sub(n).max(1))
        }
    };
    readers.sort_by_key(|i| (tasks[*i].job.priority, tasks[*i].admission));
    if let Some((first, others)) = readers.split_first_mut() {
        let wanted = rest(&tasks[*first]);
        let others_want: usize = others.iter().map(|i| rest(&tasks[*i])).sum();
        let share = wanted.min(left.div_ceil(2).max(left.saturating_sub(others_want)));
        // An image is not cut, so a part may be longer than its share.
        left = left.saturating_sub(share);
        parts.extend(part(tasks, *first, share));
        others.sort_by_key(|i| (tasks[*i].job.priority, rest(&tasks[*i])));
        for i in others {
            if left == 0 {
                break;
            }
            let share = rest(&tasks[*i]).min(left);
            left -= share;
            parts.extend(part(tasks, *i, share));
        }
    }
    parts
}

/// Number of tokens that a task has to feed.
fn rest(task: &AnswerTask) -> usize {
    task.turn
        .feed(usize::MAX)
        .map_or(0, |feed| feed.tokens.len())
}

fn part(tasks: &[AnswerTask], i: usize, most: usize) -> Option<BatchPart> {
    let task = &tasks[i];
    let feed = task.turn.feed(most)?;
    Some(BatchPart {
        task: i,
        n_tokens: feed.tokens.len(),
        reads: task.reads(),
        n_drafts: 0,
    })
}

/// Number of tokens that all running tasks have to read before they write.
pub(super) fn unread(tasks: &[AnswerTask]) -> usize {
    tasks.iter().filter(|task| task.reads()).map(rest).sum()
}
