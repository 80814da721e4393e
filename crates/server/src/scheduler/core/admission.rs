//! Which waiting answers get a sequence, and which lose theirs.

use std::sync::atomic::Ordering::Relaxed;

use millrace_runtime::speculate::MAX_DRAFTS;
use millrace_runtime::{Error, PAGE_TOKENS};

use super::SchedulerCore;
use crate::scheduler::batch::unread;
use crate::scheduler::job::{JobEvent, JobFailure};
use crate::scheduler::pooled::EmbeddingTask;
use crate::scheduler::scores::PromptScores;
use crate::scheduler::task::AnswerTask;

impl SchedulerCore {
    /// Admits answers from the queue, in its order, as long as the next fits.
    pub(super) fn admit(&mut self) {
        while let Some(next) = self.next() {
            let has_slot = self.running.len() < self.engine.limits().max_sequences;
            if !has_slot && !self.make_way_for(next) {
                return;
            }
            // A preempted answer is in the queue now.
            let Some(next) = self.next() else {
                return;
            };
            if !self.place(next) {
                return;
            }
        }
    }

    /// The waiting answer to admit next. An answer whose prompt shares a beginning with one that is being read waits for
    /// that, and takes it from the cache. Reading it at the same time would cost both the time.
    fn next(&self) -> Option<usize> {
        self.queue
            .next(&self.running, |task| !self.is_being_read(task))
    }

    /// Whether a running answer, at least as urgent, has yet to read pages that this one's prompt begins with too.
    fn is_being_read(&self, task: &AnswerTask) -> bool {
        let prompt = &task.job.prompt;
        // The cache has neither the hidden states for an embedding nor the logits of a prompt. The last token of a
        // prompt is always computed.
        let most = match task.computes_all() {
            true => 0,
            false => prompt.len().saturating_sub(1) / PAGE_TOKENS * PAGE_TOKENS,
        };
        if most == 0 || !self.engine.limits().keeps_prefixes {
            return false;
        }
        self.running.iter().any(|other| {
            let held = other.seq.and_then(|seq| self.engine.len(seq).ok());
            let of_other = &other.job.prompt;
            // Usually the first unread page already shows whether anything is shared.
            let end = held.unwrap_or(0) / PAGE_TOKENS * PAGE_TOKENS + PAGE_TOKENS;
            // An answer of another scope cannot use the pages, and waiting would reveal them.
            other.job.scope == task.job.scope
                && other.job.adapters == task.job.adapters
                && other.job.priority <= task.job.priority
                && end <= most.min(of_other.len())
                && prompt[..end] == of_other[..end]
        })
    }

    /// Preempts a running answer of a later priority for a waiting one. False if there is none.
    fn make_way_for(&mut self, waiting: usize) -> bool {
        let priority = self.queue.tasks()[waiting].job.priority;
        let Some(victim) = self.last_come() else {
            return false;
        };
        if self.running[victim].job.priority <= priority {
            return false;
        }
        self.preempt(victim);
        true
    }

    /// The running answer that was admitted last among those with the latest priority.
    fn last_come(&self) -> Option<usize> {
        let rank = |i: &usize| (self.running[*i].job.priority, self.running[*i].admission);
        (0..self.running.len()).max_by_key(rank)
    }

    /// Gives a waiting answer a sequence, if its tokens fit beside those that the running ones will soon need. False
    /// if it must wait.
    fn place(&mut self, index: usize) -> bool {
        let task = &self.queue.tasks()[index];
        let (prompt, n_drawn) = (&task.job.prompt, task.turn.drawn().len());
        let seq = match self.engine.create() {
            Ok(seq) => seq,
            Err(error @ Error::Rank(_)) => {
                self.lose_rank(&error);
                return false;
            }
            Err(_) => return false,
        };
        if self.engine.set_scope(seq, task.job.scope).is_err()
            || self.engine.set_adapters(seq, &task.job.adapters).is_err()
        {
            return false;
        }
        let n_cached = match task.computes_all() {
            true => 0,
            false => self.engine.reuse_prefix(seq, prompt).unwrap_or(0),
        };
        let rest = prompt.len() + n_drawn - n_cached;
        // Reserve a page for each of the others, their drafts, and the tokens that they have to read.
        let drafts = match self.speculator {
            Some(_) => MAX_DRAFTS,
            None => 0,
        };
        let others = unread(&self.running) + (PAGE_TOKENS + drafts) * self.running.len();
        let n_ctx = self.engine.limits().n_ctx;
        let needed = (rest + 1 + drafts + others).min(n_ctx - n_cached);
        let room = self.engine.room(&[seq], 0).unwrap_or(0);
        if !self.running.is_empty() && room < needed {
            let _ = self.engine.release(seq);
            return false;
        }
        let mut task = self.queue.take(index);
        task.seq = Some(seq);
        task.turn.resume(n_cached);
        self.n_admissions += 1;
        if !task.was_admitted() && task.choice == 0 {
            self.note_admission(&task, n_cached);
        }
        task.admission = self.n_admissions;
        self.running.push(task);
        true
    }

    fn note_admission(&self, task: &AnswerTask, n_cached: usize) {
        let job = &task.job;
        let queued = job.submitted.elapsed();
        {
            let mut receipt = job.receipt.borrow_mut();
            receipt.n_cached = n_cached;
            receipt.queued = queued;
        }
        self.metrics.queued.observe_time(queued);
        self.metrics.add(&self.metrics.cached_tokens, n_cached);
        if job.progress {
            job.tell(JobEvent::Prefill {
                done: n_cached,
                total: job.prompt.len(),
            });
        }
    }

    /// Takes a running answer's sequence away. The answer is computed again when it is next admitted.
    pub(super) fn preempt(&mut self, index: usize) {
        let mut task = self.running.remove(index);
        self.release(&task);
        task.seq = None;
        task.pooled.iter_mut().for_each(EmbeddingTask::restart);
        task.scores.iter_mut().for_each(PromptScores::restart);
        task.job.receipt.borrow_mut().n_preempted += 1;
        self.metrics.preemptions.fetch_add(1, Relaxed);
        self.queue.push(task);
    }

    /// Handles a full cache although all were admitted: the last one to arrive releases its pages. If it is alone,
    /// waiting does not help.
    pub(super) fn relieve(&mut self, error: &Error) {
        let Some(victim) = self.last_come() else {
            return;
        };
        if self.running.len() > 1 {
            return self.preempt(victim);
        }
        let task = self.running.remove(victim);
        self.fail(&task, JobFailure::Engine(error.to_string()));
        self.release(&task);
    }
}
