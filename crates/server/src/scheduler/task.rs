//! One answer under way, and the job it belongs to.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use millrace_runtime::sampling::{likeliest, log_softmax};
use millrace_runtime::{AdapterSet, Finish, Phase, SeqId, Turn, TurnPiece};
use tokio::sync::mpsc::UnboundedSender;

use super::gate::ThoughtGate;
use super::job::{Delta, JobEvent, JobFailure, MAX_PASSES, PassRecord, Receipt, TokenLogprob};
use super::pooled::EmbeddingTask;
use super::scores::{PromptScores, ScoredRows};
use crate::grammar::{Constraint, Follower};
use crate::keys::KeyUsage;

/// A job that was accepted, shared by its answers.
pub(super) struct AcceptedJob {
    pub(super) sender: UnboundedSender<JobEvent>,
    pub(super) client: Arc<str>,
    pub(super) usage: Option<Arc<KeyUsage>>,
    pub(super) scope: u64,
    pub(super) adapters: AdapterSet,
    pub(super) priority: i32,
    pub(super) deadline: Option<Instant>,
    pub(super) progress: bool,
    pub(super) timeline: bool,
    pub(super) top_logprobs: Option<usize>,
    pub(super) prompt: Vec<u32>,
    /// The rules before the grammar applies, if the model thinks first.
    pub(super) gate: Option<ThoughtGate>,
    /// Its number in the order of submission.
    pub(super) arrival: u64,
    pub(super) submitted: Instant,
    /// Number of answers that are not complete.
    pub(super) n_open: Cell<usize>,
    /// Whether it failed or was given up, so that its other answers end too.
    pub(super) is_dead: Cell<bool>,
    pub(super) receipt: RefCell<Receipt>,
}

impl AcceptedJob {
    /// Whether no client waits for it any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_dead.get() || self.sender.is_closed()
    }

    /// Sends an event; a receiver that is gone is noticed before the next pass.
    pub(super) fn tell(&self, event: JobEvent) {
        let _ = self.sender.send(event);
    }
}

/// Scratch memory for drawing tokens, used by all answers in turn.
#[derive(Default)]
pub(super) struct SamplingScratch {
    /// A row of logits masked by a grammar.
    row: Vec<f32>,
    pub(super) follower: Follower,
}

/// One answer: waiting in the queue, or running on a sequence.
pub(super) struct AnswerTask {
    pub(super) job: Rc<AcceptedJob>,
    pub(super) choice: usize,
    pub(super) turn: Turn,
    /// Whether it has a grammar.
    pub(super) is_constrained: bool,
    /// Its state in the grammar; `None` if a step did not end.
    pub(super) constraint: Option<Constraint>,
    /// Set for an embedding task, which has no answer.
    pub(super) pooled: Option<EmbeddingTask>,
    /// Scores of the prompt, if requested and not reported yet.
    pub(super) scores: Option<PromptScores>,
    pub(super) seq: Option<SeqId>,
    /// Other answers of the job, which start from this one's sequence once the prompt is read.
    pub(super) siblings: Vec<AnswerTask>,
    /// Its number in the order of admission; 0 if it was never admitted.
    pub(super) admission: u64,
    /// A step with it failed: it runs alone until one succeeds.
    pub(super) is_suspect: bool,
    pub(super) last_token: Option<Instant>,
    /// Number of tokens drawn of those that begin a thought.
    pub(super) n_opening: usize,
}

impl AnswerTask {
    /// A waiting answer, without siblings.
    pub(super) fn new(
        job: Rc<AcceptedJob>,
        choice: usize,
        (turn, constraint): (Turn, Option<Constraint>),
    ) -> AnswerTask {
        AnswerTask {
            job,
            choice,
            turn,
            is_constrained: constraint.is_some(),
            constraint,
            pooled: None,
            scores: None,
            seq: None,
            siblings: Vec::new(),
            admission: 0,
            is_suspect: false,
            last_token: None,
            n_opening: 0,
        }
    }

    /// Reports how much of the prompt is read, if requested.
    pub(super) fn tell_progress(&self) {
        if self.job.progress && self.choice == 0 {
            let n_read = self.job.receipt.borrow().n_cached + self.turn.prefill().0;
            let total = self.job.prompt.len();
            self.job.tell(JobEvent::Prefill {
                done: total.min(n_read),
                total,
            });
        }
    }

    pub(super) fn was_admitted(&self) -> bool {
        self.admission > 0
    }

    /// Whether it reads its prompt (possibly again), and does not only await its next token.
    pub(super) fn reads(&self) -> bool {
        self.turn.feed(2).is_some_and(|feed| feed.tokens.len() > 1) || self.turn.reads_prompt()
    }

    /// Whether it needs hidden states or logits of all the prompt's tokens, which the cache does not have.
    pub(super) fn computes_all(&self) -> bool {
        self.pooled.is_some() || self.scores.is_some()
    }

    /// The rows to score in a pass of `n_rows` of its tokens.
    pub(super) fn scored_rows(&self, n_rows: usize) -> Option<ScoredRows> {
        let scores = self.scores.as_ref()?;
        Some(scores.wanted(&self.job.prompt, self.turn.n_fed(), n_rows))
    }

    /// Adds the scores of a pass, and reports them once the prompt is read. An answer of no tokens is complete then.
    pub(super) fn take_scores(&mut self, rows: ScoredRows) {
        let Some(scores) = &mut self.scores else {
            return;
        };
        scores.push(&self.job.prompt, rows);
        if self.turn.reads_prompt() {
            return;
        }
        if let Some(scores) = self.scores.take() {
            self.job.tell(JobEvent::PromptScores(scores.finish()));
        }
        if self.turn.wanted() == 0 {
            self.turn.end(Finish::Length);
        }
    }

    /// The draw of its next token from its last token's row of logits; it can run on any thread. Only for an answer
    /// without a grammar. [`take_drawn`](AnswerTask::take_drawn) takes the result.
    pub(super) fn draw<'a>(&'a mut self, row: &'a [f32]) -> Draw<'a> {
        Draw {
            turn: &mut self.turn,
            masked: row,
            row,
            n_top: self.job.top_logprobs,
            drawn: Ok(None),
        }
    }

    /// Reports the result of a draw. Returns the token; `None` if the answer was complete.
    pub(super) fn take_drawn(&mut self, drawn: DrawOutcome) -> Result<Option<u32>, JobFailure> {
        let Some(drawn) = drawn? else {
            return Ok(None);
        };
        self.tell(drawn.logprob);
        Ok(Some(drawn.token))
    }

    /// Draws from its last token's row of logits, and reports the result. Returns the token; `None` if the answer was
    /// complete.
    pub(super) fn take_logits(
        &mut self,
        row: &[f32],
        scratch: &mut SamplingScratch,
    ) -> Result<Option<u32>, JobFailure> {
        if self.turn.finish().is_some() {
            return Ok(None);
        }
        let before = self.turn.phase();
        if self.is_constrained {
            self.hold(before, row, scratch)?;
        }
        let is_constrained = self.is_constrained;
        let mut draw = self.draw(row);
        if is_constrained {
            draw.masked = &scratch.row;
        }
        draw.run();
        let drawn = draw.drawn;
        if let (true, Ok(Some(drawn))) = (is_constrained, &drawn)
            && drawn.was_kept
        {
            self.follow(before, drawn.token, scratch)?;
        }
        self.take_drawn(drawn)
    }

    /// Masks a copy of a row for the next draw: by the grammar, unless the model thinks.
    fn hold(
        &mut self,
        phase: Phase,
        row: &[f32],
        scratch: &mut SamplingScratch,
    ) -> Result<(), JobFailure> {
        scratch.row.clear();
        scratch.row.extend_from_slice(row);
        let gate = self.job.gate.as_ref();
        if let Some(gate) = gate.filter(|_| phase == Phase::Thought) {
            gate.strike_ends(&mut scratch.row);
            return Ok(());
        }
        let opening = gate.filter(|_| phase == Phase::Begin);
        let opening = opening.and_then(|gate| Some((gate, gate.opening(self.n_opening)?)));
        if let Some((gate, token)) = opening.filter(|_| self.n_opening > 0) {
            gate.only(token, &mut scratch.row);
            return Ok(());
        }
        let masked = scratch
            .follower
            .mask(&mut self.constraint, &mut scratch.row);
        masked.map_err(JobFailure::Grammar)?;
        if let Some((_, token)) = opening
            && let Some(logit) = scratch.row.get_mut(token as usize)
        {
            *logit = row[token as usize];
        }
        Ok(())
    }

    /// Advances the grammar by a token that was drawn in some phase, if the token belongs to the answer.
    fn follow(
        &mut self,
        before: Phase,
        token: u32,
        scratch: &mut SamplingScratch,
    ) -> Result<(), JobFailure> {
        let opening = |gate: &ThoughtGate| gate.opening(self.n_opening) == Some(token);
        let tokens = match &self.job.gate {
            Some(gate) if before == Phase::Thought => gate.tokens(self.turn.begun()),
            Some(gate) if before == Phase::Begin && opening(gate) => {
                self.n_opening += 1;
                Vec::new()
            }
            Some(_) if self.turn.phase() == Phase::Thought => Vec::new(),
            _ => vec![token],
        };
        for token in tokens {
            let accepted = scratch.follower.accept(&mut self.constraint, token);
            if accepted.map_err(JobFailure::Grammar)? {
                self.turn.end(Finish::Stop);
            }
        }
        Ok(())
    }

    /// Reports the text of the last token.
    fn tell(&mut self, token: Option<TokenLogprob>) {
        let choice = self.choice;
        let mut tokens: Vec<TokenLogprob> = token.into_iter().collect();
        for piece in self.turn.next_pieces() {
            let delta = match piece {
                TurnPiece::Thought(text) => Delta {
                    choice,
                    is_thought: true,
                    text,
                    tokens: Vec::new(),
                },
                TurnPiece::Answer(text) => Delta {
                    choice,
                    is_thought: false,
                    text,
                    tokens: std::mem::take(&mut tokens),
                },
            };
            self.job.tell(JobEvent::Delta(delta));
        }
        if !tokens.is_empty() {
            self.job.tell(JobEvent::Delta(Delta {
                choice,
                tokens,
                ..Delta::default()
            }));
        }
    }

    /// Adds this answer's share of a pass, by its tokens, to the job's receipt.
    pub(super) fn charge(&self, pass: PassRecord) {
        let mut receipt = self.job.receipt.borrow_mut();
        let share = pass.n_tokens as f64 / pass.n_pass_tokens.max(1) as f64;
        receipt.host += pass.host.mul_f64(share);
        if let Some((time, _)) = &mut receipt.device_time {
            *time += pass.device.mul_f64(share);
        }
        if self.job.timeline && receipt.timeline.len() < MAX_PASSES {
            let end = self.job.submitted.elapsed();
            receipt.timeline.push(PassRecord { end, ..pass });
        }
    }
}

/// A token to be drawn. It is separate from the job, which only the scheduler's thread may touch.
pub(super) struct Draw<'a> {
    turn: &'a mut Turn,
    /// The row to draw from, masked by a grammar if there is one.
    masked: &'a [f32],
    row: &'a [f32],
    /// If a log-probability is requested, the number of likeliest tokens to report with it.
    n_top: Option<usize>,
    drawn: DrawOutcome,
}

/// Result of a draw; `None` if the answer was complete.
pub(super) type DrawOutcome = Result<Option<DrawnToken>, JobFailure>;

/// A token that was drawn.
pub(super) struct DrawnToken {
    token: u32,
    /// Whether it is part of the answer, and not its end.
    was_kept: bool,
    logprob: Option<TokenLogprob>,
}

impl Draw<'_> {
    /// Draws. Each row takes time in proportion to its vocabulary, so all threads draw.
    pub(super) fn run(&mut self) {
        self.drawn = self.draw();
    }

    /// The result.
    pub(super) fn into_drawn(self) -> DrawOutcome {
        self.drawn
    }

    fn draw(&mut self) -> DrawOutcome {
        let before = self.turn.phase();
        let n_before = self.turn.drawn().len();
        let pushed = self.turn.push_logits(self.masked);
        let Some(token) = pushed.map_err(|error| JobFailure::Engine(error.to_string()))? else {
            return Ok(None);
        };
        let was_kept = self.turn.drawn().len() > n_before;
        let is_thought = [before, self.turn.phase()].contains(&Phase::Thought);
        // Log-probabilities are reported for the answer only.
        let n_top = self.n_top.filter(|_| was_kept && !is_thought);
        Ok(Some(DrawnToken {
            token,
            was_kept,
            logprob: n_top.map(|n_top| token_logprob(self.row, token, n_top)),
        }))
    }
}

fn token_logprob(row: &[f32], token: u32, n_top: usize) -> TokenLogprob {
    let logprob_of = log_softmax(row);
    TokenLogprob {
        token,
        logprob: logprob_of(token),
        top: (likeliest(row, n_top).into_iter())
            .map(|id| (id, logprob_of(id)))
            .collect(),
    }
}
