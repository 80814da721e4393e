//! One pass of the engine, and the distribution of its results.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use millrace_runtime::speculate::clock_ns;
use millrace_runtime::{BatchItem, EngineCounters, Error, Finish, LogitsFor};

use super::SchedulerCore;
use crate::scheduler::ModelMetrics;
use crate::scheduler::batch::{BatchPart, compose};
use crate::scheduler::job::{JobEvent, JobFailure, PassRecord};
use crate::scheduler::task::{AnswerTask, Draw, DrawOutcome};

impl SchedulerCore {
    /// Runs a pass; false if there is nothing to run.
    pub(super) fn pass(&mut self) -> bool {
        loop {
            let max_chunk = self.engine.limits().max_chunk;
            let whole = self.engine.model().model().config.encoder.is_some();
            let sizes = (max_chunk, whole);
            let delay = (self.options.max_delay, self.queue.tasks().len());
            let mut parts = compose(&self.running, &self.pace, delay, sizes);
            if parts.is_empty() {
                return false;
            }
            self.draft(&mut parts);
            let lengths: Vec<usize> = parts.iter().map(|part| self.n_held(part)).collect();
            let decodes = self.decodes(&parts);
            let (before, before_ns) = (self.engine.counters(), clock_ns(&*self.engine));
            let start = Instant::now();
            match self.run(&parts) {
                Ok(()) => {
                    let step_ns = clock_ns(&*self.engine) - before_ns;
                    self.account(&parts, before, start.elapsed());
                    let n_drawn = self.hand_out(&parts);
                    self.tell_states(&parts, &lengths);
                    if let Some(speculator) = self.speculator.as_mut().filter(|_| decodes) {
                        let n_drafts = parts.iter().map(|part| part.n_drafts).sum();
                        speculator.took(parts.len(), n_drafts, n_drawn, step_ns);
                    }
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

    fn n_held(&self, part: &BatchPart) -> usize {
        let seq = self.running[part.task].seq;
        seq.and_then(|seq| self.engine.len(seq).ok()).unwrap_or(0)
    }

    fn run(&mut self, parts: &[BatchPart]) -> Result<(), Error> {
        let states = self.wants_states();
        let scored = |part: &BatchPart| self.running[part.task].scored_rows(part.n_tokens);
        self.output.score(parts.iter().map(scored).collect());
        let items = parts
            .iter()
            .zip(&self.drafted)
            .filter_map(|(part, drafted)| {
                let task = &self.running[part.task];
                let feed = task.turn.feed(part.n_tokens)?;
                let (logits, hidden) = match (&task.pooled, &task.scores) {
                    (Some(_), _) => (LogitsFor::None, true),
                    (None, Some(_)) => (LogitsFor::All, false),
                    (None, None) => (feed.logits, false),
                };
                let (tokens, logits) = match part.n_drafts {
                    0 => (feed.tokens, logits),
                    _ => (&drafted[..], LogitsFor::All),
                };
                let item = BatchItem::new(task.seq?, tokens, logits);
                let head_input = states && task.pooled.is_none();
                let item = BatchItem {
                    hidden,
                    head_input,
                    ..item
                };
                Some(item.with_images(task.turn.images()))
            });
        let batch: Vec<BatchItem<'_>> = items.collect();
        debug_assert_eq!(batch.len(), parts.len(), "whatever runs has a sequence");
        self.engine.step(&batch, &mut self.output)
    }

    /// Counts a pass, and divides its time by tokens.
    fn account(&mut self, parts: &[BatchPart], before: EngineCounters, took: Duration) {
        let n_tokens: usize = parts.iter().map(BatchPart::n_rows).sum();
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
                n_tokens: part.n_rows(),
                n_pass_tokens: n_tokens,
                reads: part.reads,
                host: Duration::from_nanos(host_ns),
                device: Duration::from_nanos(device_ns),
            });
        }
    }

    /// Hands the results of a pass to its tasks, and starts the siblings of those that have read their prompt.
    /// Returns the number of tokens drawn.
    fn hand_out(&mut self, parts: &[BatchPart]) -> usize {
        let (mut begun, mut n_drawn) = (Vec::new(), 0);
        let mut items = vec![None; self.running.len()];
        for (i, part) in parts.iter().enumerate() {
            if !self.take_pass(part, i) {
                continue;
            }
            if part.n_drafts > 0 {
                n_drawn += self.check_drafts(part, i);
                continue;
            }
            items[part.task] = Some(i);
            self.begin_siblings(part.task, i, &mut begun);
        }
        n_drawn += self.draw_tokens(&items, &mut begun);
        let begun = begun.into_iter().map(|(sibling, _)| sibling);
        self.running.extend(begun);
        n_drawn
    }

    /// Hands a task its results of the pass, except for the row of logits. Returns whether the task draws from that
    /// row.
    fn take_pass(&mut self, part: &BatchPart, i: usize) -> bool {
        let task = &mut self.running[part.task];
        task.is_suspect = false;
        let feed = task.turn.feed(part.n_tokens);
        let wants_logits = feed.is_some_and(|feed| feed.logits == LogitsFor::Last);
        let read_prompt = task.turn.reads_prompt();
        task.turn.fed(part.n_tokens);
        if read_prompt {
            task.tell_progress();
        }
        if let Some(pooled) = &mut task.pooled {
            pooled.push(self.output.state(i));
            if wants_logits {
                let taken = pooled.finish().map(|vector| {
                    task.job.tell(JobEvent::Embedding(vector));
                    task.turn.end(Finish::Stop);
                });
                let taken = taken.map_err(JobFailure::Engine);
                usable(&self.metrics, task, taken);
            }
            return false;
        }
        if let Some(rows) = self.output.take_scored(i) {
            if let Some(row) = rows.not_finite() {
                let position = task.turn.n_fed() - part.n_tokens + row;
                let failure = JobFailure::Engine(Error::NotFinite { position }.to_string());
                usable(&self.metrics, task, Err::<(), _>(failure));
                return false;
            }
            task.take_scores(rows);
        }
        wants_logits && task.turn.finish().is_none()
    }

    /// Gives separate sequences to the siblings of a task that has read their prompt; they draw from the same item's
    /// row.
    fn begin_siblings(&mut self, index: usize, i: usize, begun: &mut Vec<(AnswerTask, usize)>) {
        let task = &mut self.running[index];
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
                // No sequence is free: it reads the prompt itself, most of it from the cache.
                _ => self.queue.push(sibling),
            }
        }
    }

    /// Draws for running tasks and new siblings, each from the row of an item. Those without a grammar use all
    /// threads of the engine, which are idle now. Returns the number of tokens drawn.
    fn draw_tokens(&mut self, items: &[Option<usize>], begun: &mut [(AnswerTask, usize)]) -> usize {
        let running = self.running.iter_mut().zip(items);
        let running = running.filter_map(|(task, item)| Some((task, (*item)?)));
        let begun = begun.iter_mut().map(|(task, item)| (task, *item));
        let mut tasks: Vec<(&mut AnswerTask, usize)> = running.chain(begun).collect();
        let free = tasks.iter_mut().filter(|(task, _)| !task.is_constrained);
        let draws = free.map(|(task, item)| task.draw(self.output.logits(*item)));
        let mut draws: Vec<Draw<'_>> = draws.collect();
        let pool = self.engine.cpu().pool();
        pool.run_pieces(&mut draws, 1, &|_, draws| {
            draws.iter_mut().for_each(Draw::run);
        });
        let drawn: Vec<DrawOutcome> = draws.into_iter().map(Draw::into_drawn).collect();
        let (mut drawn, mut n_drawn) = (drawn.into_iter(), 0);
        for (task, item) in tasks {
            let taken = match task.is_constrained {
                true => task.take_logits(self.output.logits(item), &mut self.scratch),
                false => task.take_drawn(drawn.next().unwrap_or(Ok(None))),
            };
            n_drawn += usize::from(settle(&self.metrics, task, taken).flatten().is_some());
        }
        n_drawn
    }

    /// Handles a step that failed during its work. A single task is the cause, and ends; several tasks must each run
    /// alone to find it. Sequences return to their earlier lengths.
    fn isolate(&mut self, parts: &[BatchPart], lengths: &[usize], error: &Error) {
        if let Error::Rank(_) = error {
            return self.lose_rank(error);
        }
        if let [only] = parts {
            let task = self.running.remove(only.task);
            self.fail(&task, JobFailure::Engine(error.to_string()));
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
        // From the last to the first, so that earlier indices stay valid.
        lost.sort_unstable();
        for task in lost.into_iter().rev() {
            self.preempt(task);
        }
    }
}

/// Ends the job of a task whose row was unusable; otherwise returns the value.
fn usable<T>(metrics: &ModelMetrics, task: &AnswerTask, taken: Result<T, JobFailure>) -> Option<T> {
    let failure = match taken {
        Ok(taken) => return Some(taken),
        Err(failure) => failure,
    };
    if !task.job.is_dead.replace(true) {
        metrics.failed.fetch_add(1, Relaxed);
        task.job.tell(JobEvent::Failed(failure));
    }
    None
}

/// Follow-up of a token: records times, or ends the job if the row was unusable, and then returns `None`.
pub(super) fn settle(
    metrics: &ModelMetrics,
    task: &mut AnswerTask,
    taken: Result<Option<u32>, JobFailure>,
) -> Option<Option<u32>> {
    let now = Instant::now();
    let drawn = usable(metrics, task, taken)?;
    if drawn.is_none() {
        return Some(None);
    }
    metrics.generated_tokens.fetch_add(1, Relaxed);
    if let Some(usage) = &task.job.usage {
        usage.add_generated();
    }
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
    Some(drawn)
}
