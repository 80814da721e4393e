//! One pass of the engine, and what it gives to whom.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use millrace_runtime::{BatchItem, Counters, Error, Finish, LogitsFor};

use super::Core;
use crate::scheduler::ModelMetrics;
use crate::scheduler::batch::{Part, compose};
use crate::scheduler::job::{Event, Failure, PassRecord};
use crate::scheduler::task::Task;

impl Core {
    /// Runs a pass; false if there is nothing to run.
    pub(super) fn pass(&mut self) -> bool {
        loop {
            let max_chunk = self.engine.limits().max_chunk;
            let parts = compose(&self.running, &self.pace, self.options.max_delay, max_chunk);
            if parts.is_empty() {
                return false;
            }
            let lengths: Vec<usize> = parts.iter().map(|part| self.n_held(part)).collect();
            let before = self.engine.counters();
            let start = Instant::now();
            match self.run(&parts) {
                Ok(()) => {
                    self.account(&parts, before, start.elapsed());
                    self.hand_out(&parts);
                    return true;
                }
                Err(error @ Error::CacheFull { .. }) => self.relieve(&error),
                Err(error) => {
                    self.isolate(&parts, &lengths, &error);
                    return true;
                }
            }
        }
    }

    fn n_held(&self, part: &Part) -> usize {
        let seq = self.running[part.task].seq;
        seq.and_then(|seq| self.engine.len(seq).ok()).unwrap_or(0)
    }

    fn run(&mut self, parts: &[Part]) -> Result<(), Error> {
        let items = parts.iter().filter_map(|part| {
            let task = &self.running[part.task];
            let feed = task.turn.feed(part.n_tokens)?;
            let (logits, hidden) = match task.pooled {
                Some(_) => (LogitsFor::None, true),
                None => (feed.logits, false),
            };
            let item = BatchItem::new(task.seq?, feed.tokens, logits);
            let item = BatchItem { hidden, ..item };
            Some(item.with_images(task.turn.images()))
        });
        let batch: Vec<BatchItem<'_>> = items.collect();
        debug_assert_eq!(batch.len(), parts.len(), "whatever runs has a sequence");
        self.engine.step(&batch, &mut self.output)
    }

    /// Counts a pass, and shares its time out by tokens.
    fn account(&mut self, parts: &[Part], before: Counters, took: Duration) {
        let n_tokens: usize = parts.iter().map(|part| part.n_tokens).sum();
        let n_read: usize = parts
            .iter()
            .filter(|part| part.reads)
            .map(|part| part.n_tokens)
            .sum();
        self.pace.observe(n_read, n_tokens - n_read, took);
        self.metrics.passes.fetch_add(1, Relaxed);
        self.metrics.pass_tokens.observe(n_tokens as f64);
        let after = self.engine.counters();
        let host_ns = after.host_ns.saturating_sub(before.host_ns);
        let device_ns = after.device_ns.saturating_sub(before.device_ns);
        for part in parts {
            self.running[part.task].charge(PassRecord {
                end: Duration::ZERO, // by the job's own clock
                n_tokens: part.n_tokens,
                n_pass_tokens: n_tokens,
                reads: part.reads,
                host: Duration::from_nanos(host_ns),
                device: Duration::from_nanos(device_ns),
            });
        }
    }

    /// Gives every task its row of logits, and begins the siblings of those that have read their prompt.
    fn hand_out(&mut self, parts: &[Part]) {
        let mut begun = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            let task = &mut self.running[part.task];
            task.is_suspect = false;
            let feed = task.turn.feed(part.n_tokens);
            let wants_logits = feed.is_some_and(|feed| feed.logits == LogitsFor::Last);
            let read_prompt = task.turn.reads_prompt();
            task.turn.fed(part.n_tokens);
            if read_prompt && task.job.progress && task.choice == 0 {
                task.job.tell(Event::Prefill {
                    done: task
                        .job
                        .prompt
                        .len()
                        .min(task.job.receipt.borrow().n_cached + task.turn.prefill().0),
                    total: task.job.prompt.len(),
                });
            }
            if let Some(pooled) = &mut task.pooled {
                pooled.push(self.output.state(i));
                if wants_logits {
                    let taken = pooled.finish().map(|vector| {
                        task.job.tell(Event::Embedding(vector));
                        task.turn.end(Finish::Stop);
                    });
                    is_usable(&self.metrics, task, taken);
                }
                continue;
            }
            if !wants_logits {
                continue;
            }
            let row = self.output.logits(i);
            for mut sibling in std::mem::take(&mut task.siblings) {
                match task.seq.map(|seq| self.engine.fork(seq)) {
                    Some(Ok(seq)) => {
                        sibling.seq = Some(seq);
                        sibling.turn.resume(task.job.prompt.len());
                        sibling.turn.fed(1);
                        self.n_admissions += 1;
                        sibling.admission = self.n_admissions;
                        begun.push((sibling, i));
                    }
                    // No sequence is free: it reads the prompt by itself, most of it from the cache.
                    _ => self.queue.push(sibling),
                }
            }
            let taken = task.take_logits(row, &mut self.scratch);
            settle(&self.metrics, task, taken);
        }
        for (mut sibling, i) in begun {
            let taken = sibling.take_logits(self.output.logits(i), &mut self.scratch);
            settle(&self.metrics, &mut sibling, taken);
            self.running.push(sibling);
        }
    }

    /// A step failed amid its work. One task alone is its cause, and ends; of several, each must show by
    /// itself that it is not. Sequences go back to where they were.
    fn isolate(&mut self, parts: &[Part], lengths: &[usize], error: &Error) {
        if let [only] = parts {
            let task = self.running.remove(only.task);
            self.fail(&task, Failure::Engine(error.to_string()));
            return self.release(&task);
        }
        let mut lost = Vec::new();
        for (part, len) in parts.iter().zip(lengths) {
            let task = &mut self.running[part.task];
            task.is_suspect = true;
            let cut = task.seq.map(|seq| self.engine.truncate(seq, *len));
            if !matches!(cut, Some(Ok(()))) {
                lost.push(part.task);
            }
        }
        // From the last, so that the indices before stay.
        lost.sort_unstable();
        for task in lost.into_iter().rev() {
            self.preempt(task);
        }
    }
}

/// Ends the job of a task whose row could not be used; true if it could.
fn is_usable(metrics: &ModelMetrics, task: &Task, taken: Result<(), String>) -> bool {
    let Err(error) = taken else {
        return true;
    };
    if !task.job.is_dead.replace(true) {
        metrics.failed.fetch_add(1, Relaxed);
        task.job.tell(Event::Failed(Failure::Engine(error)));
    }
    false
}

/// What follows a token: times, or the end of the job if the row could not be used.
fn settle(metrics: &ModelMetrics, task: &mut Task, taken: Result<(), String>) {
    let now = Instant::now();
    if !is_usable(metrics, task, taken) {
        return;
    }
    metrics.generated_tokens.fetch_add(1, Relaxed);
    match task.last_token.replace(now) {
        Some(last) => metrics.inter_token.observe_time(now - last),
        None => {
            let first_token = now - task.job.submitted;
            let mut receipt = task.job.receipt.borrow_mut();
            if receipt.first_token.is_zero() {
                receipt.first_token = first_token;
                metrics.first_token.observe_time(first_token);
            }
        }
    }
}
