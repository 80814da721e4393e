//! Drafts for the answers of a pass.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use millrace_runtime::speculate::{DraftOutcome, follow};
use millrace_runtime::{Error, SeqId, Speculator};

use super::SchedulerCore;
use super::pass::settle;
use crate::scheduler::batch::BatchPart;
use crate::scheduler::job::{DraftCounts, JobFailure};

/// Maximum number of drafts checked in a pass, for all its answers together. Each takes a row of logits, and a pass
/// that wide is bound by compute and not by reading the weights.
pub const MAX_PASS_DRAFTS: usize = 64;

impl SchedulerCore {
    /// Adds drafts after the tokens of a pass. A pass with prompts has none: its rows make it wide anyway, and its
    /// time would reveal nothing about drafts. A suspect has none either. Drafts take only room that no answer needs,
    /// so no answer is preempted for a draft.
    pub(super) fn draft(&mut self, parts: &mut [BatchPart]) {
        self.drafted.clear();
        self.drafted.resize(parts.len(), Vec::new());
        if self.speculator.is_none() || self.drafts_failed || !self.decodes(parts) {
            return;
        }
        let seqs: Vec<SeqId> = parts
            .iter()
            .filter_map(|part| self.running[part.task].seq)
            .collect();
        let room = self.engine.room(&seqs, 0).unwrap_or(0).saturating_sub(1);
        let chunk = self.engine.limits().max_chunk.saturating_sub(parts.len());
        let mut left = MAX_PASS_DRAFTS.min(chunk);
        for i in 0..parts.len() {
            let share = left.div_ceil(parts.len() - i).min(room);
            if let Err(error) = self.draft_for(parts, i, share) {
                return self.give_drafts_up(parts, &error);
            }
            left -= parts[i].n_drafts;
        }
    }

    /// Whether a pass only writes.
    pub(super) fn decodes(&self, parts: &[BatchPart]) -> bool {
        let writes = |part: &BatchPart| !part.reads && !self.running[part.task].is_suspect;
        parts.iter().all(writes)
    }

    fn draft_for(&mut self, parts: &mut [BatchPart], i: usize, most: usize) -> Result<(), Error> {
        let before = self.engines_ns();
        let task = &self.running[parts[i].task];
        let (Some(speculator), Some(seq)) = (&mut self.speculator, task.seq) else {
            return Ok(());
        };
        let Some(feed) = task.turn.feed(1) else {
            return Ok(());
        };
        let n_rows = parts.len();
        let drafts = speculator.draft((&mut *self.engine, seq), &task.turn, n_rows, most)?;
        if !drafts.is_empty() {
            self.drafted[i].extend_from_slice(feed.tokens);
            self.drafted[i].extend_from_slice(drafts);
            parts[i].n_drafts = drafts.len();
        }
        let after = self.engines_ns();
        let mut receipt = self.running[parts[i].task].job.receipt.borrow_mut();
        receipt.host += Duration::from_nanos(after.0 - before.0);
        if let Some((time, _)) = &mut receipt.device_time {
            *time += Duration::from_nanos(after.1 - before.1);
        }
        Ok(())
    }

    /// Gives up drafting. A draft model that fails must not fail the answers that it should speed up: they continue
    /// without, and a warning is logged.
    fn give_drafts_up(&mut self, parts: &mut [BatchPart], error: &Error) {
        self.drafts_failed = true;
        self.metrics.draft_failures.fetch_add(1, Relaxed);
        let model = self.engine.model().name();
        let line = serde_json::json!({
            "model": model,
            "warning": format!("the draft model failed, so nothing is drafted until {model} is loaded again: {error}"),
        });
        crate::app::log(&line);
        for part in parts {
            part.n_drafts = 0;
        }
        self.drafted.iter_mut().for_each(Vec::clear);
    }

    /// Draws an answer's tokens from the rows of its token and its drafts, item `i` of the pass, as long as the draws
    /// match the drafts. Returns the number of tokens drawn.
    pub(super) fn check_drafts(&mut self, part: &BatchPart, i: usize) -> usize {
        let task = &mut self.running[part.task];
        let (Some(speculator), Some(seq)) = (&mut self.speculator, task.seq) else {
            return 0;
        };
        let (n_before, mut n_drawn) = (task.turn.context().len(), 0);
        let rows = self.output.logits(i);
        let followed = follow(speculator.drafts(seq), rows, |row| {
            let taken = task.take_logits(row, &mut self.scratch);
            let drawn = settle(&self.metrics, task, taken).ok_or(())?;
            n_drawn += usize::from(drawn.is_some());
            Ok::<_, ()>(drawn)
        });
        // If a row was unusable, the answer has failed and is dropped before the next pass.
        let n_accepted = followed.unwrap_or(0);
        let walk = DraftOutcome {
            n_before,
            n_drawn,
            n_accepted,
        };
        let cut = speculator.settle(&mut *self.engine, seq, &mut task.turn, walk);
        if let Err(error) = cut {
            let _ = settle(
                &self.metrics,
                task,
                Err(JobFailure::Engine(error.to_string())),
            );
        }
        let counted = DraftCounts {
            n_drafted: part.n_drafts,
            n_accepted,
        };
        self.metrics.checks.fetch_add(1, Relaxed);
        self.metrics
            .add(&self.metrics.drafted_tokens, counted.n_drafted);
        self.metrics
            .add(&self.metrics.accepted_tokens, counted.n_accepted);
        if let Some(drafts) = &mut task.job.receipt.borrow_mut().drafts {
            drafts.n_drafted += counted.n_drafted;
            drafts.n_accepted += counted.n_accepted;
        }
        n_drawn
    }

    /// Whether the drafter needs the head's input.
    pub(super) fn wants_states(&self) -> bool {
        let speculator = self.speculator.as_ref().filter(|_| !self.drafts_failed);
        speculator.is_some_and(Speculator::wants_states)
    }

    /// Passes the head's input for the tokens of a pass on to the drafter. The tokens began at `lengths` of their
    /// sequences.
    pub(super) fn tell_states(&mut self, parts: &[BatchPart], lengths: &[usize]) {
        if !self.wants_states() {
            return;
        }
        for (i, (part, first)) in parts.iter().zip(lengths).enumerate() {
            let task = &self.running[part.task];
            let (Some(speculator), Some(seq), None) =
                (&mut self.speculator, task.seq, &task.pooled)
            else {
                continue;
            };
            let states = self.output.head_input(i);
            if let Err(error) = speculator.read(seq, &task.turn, *first, states) {
                return self.give_drafts_up(&mut [], &error);
            }
        }
    }

    /// Drops the drafter's state of a released sequence.
    pub(super) fn forget_drafts(&mut self, seq: SeqId) {
        if let Some(speculator) = &mut self.speculator
            && let Err(error) = speculator.forget(seq)
            && !self.drafts_failed
        {
            self.give_drafts_up(&mut [], &error);
        }
    }
}
