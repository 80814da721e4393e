//! One answer on its way, and the job it belongs to.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use millrace_runtime::sampling::{likeliest, log_softmax};
use millrace_runtime::{Finish, SeqId, Turn};
use millrace_text::{DecodeOptions, Detokenizer, Tokenizer};
use tokio::sync::mpsc::UnboundedSender;

use super::job::{Delta, JobEvent, JobFailure, MAX_PASSES, PassRecord, Receipt, TokenLogprob};
use super::pooled::EmbeddingTask;
use crate::grammar::{Constraint, Follower};

/// A job that was accepted, shared by its answers.
pub(super) struct AcceptedJob {
    pub(super) sender: UnboundedSender<JobEvent>,
    pub(super) client: Arc<str>,
    pub(super) scope: u64,
    pub(super) priority: i32,
    pub(super) deadline: Option<Instant>,
    pub(super) progress: bool,
    pub(super) timeline: bool,
    pub(super) top_logprobs: Option<usize>,
    pub(super) prompt: Vec<u32>,
    pub(super) stop: Vec<String>,
    /// Its place in the order of submission.
    pub(super) arrival: u64,
    pub(super) submitted: Instant,
    /// Answers that are not complete.
    pub(super) n_open: Cell<usize>,
    /// Whether it was failed or given up, so that its other answers go too.
    pub(super) is_dead: Cell<bool>,
    pub(super) receipt: RefCell<Receipt>,
}

impl AcceptedJob {
    /// Nobody waits for it any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_dead.get() || self.sender.is_closed()
    }

    /// Tells the receiver; that it may be gone is seen before the next pass.
    pub(super) fn tell(&self, event: JobEvent) {
        let _ = self.sender.send(event);
    }
}

/// What drawing tokens needs, for all answers in turn.
#[derive(Default)]
pub(super) struct SamplingScratch {
    /// A row of logits under a grammar.
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
    /// Where it is in its grammar; nothing if a step there did not end.
    pub(super) constraint: Option<Constraint>,
    /// It makes an embedding, and no answer.
    pub(super) pooled: Option<EmbeddingTask>,
    pub(super) seq: Option<SeqId>,
    /// Other answers of the job, which begin from this one's sequence once the prompt is read.
    pub(super) siblings: Vec<AnswerTask>,
    /// In what order it was admitted; 0 if it never was.
    pub(super) admission: u64,
    /// A step with it failed: it runs alone until one succeeds.
    pub(super) is_suspect: bool,
    pub(super) last_token: Option<Instant>,
    /// Bytes of text that were told.
    pub(super) n_told: usize,
}

impl AnswerTask {
    pub(super) fn was_admitted(&self) -> bool {
        self.admission > 0
    }

    /// Whether it reads its prompt (again, perhaps), and does not only await its next token.
    pub(super) fn reads(&self) -> bool {
        self.turn.feed(2).is_some_and(|feed| feed.tokens.len() > 1) || self.turn.reads_prompt()
    }

    /// Takes the row of logits that its last token gave. The token that was drawn; `None` if the answer was complete.
    pub(super) fn take_logits(
        &mut self,
        row: &[f32],
        scratch: &mut SamplingScratch,
    ) -> Result<Option<u32>, JobFailure> {
        if self.turn.finish().is_some() {
            return Ok(None);
        }
        let masked = match self.is_constrained {
            true => {
                scratch.row.clear();
                scratch.row.extend_from_slice(row);
                let masked = scratch
                    .follower
                    .mask(&mut self.constraint, &mut scratch.row);
                masked.map_err(JobFailure::Grammar)?;
                &scratch.row[..]
            }
            false => row,
        };
        let n_before = self.turn.drawn().len();
        let token = match self.turn.push_logits(masked) {
            Ok(Some(token)) => token,
            Ok(None) => return Ok(None),
            Err(error) => return Err(JobFailure::Engine(error.to_string())),
        };
        let was_kept = self.turn.drawn().len() > n_before;
        let logprob = self.job.top_logprobs.filter(|_| was_kept);
        let tokens = logprob.map(|n| token_logprob(row, token, n));
        if self.is_constrained && was_kept {
            let accepted = scratch.follower.accept(&mut self.constraint, token);
            if accepted.map_err(JobFailure::Grammar)? {
                self.turn.end(Finish::Stop);
            }
        }
        let delta = Delta {
            choice: self.choice,
            text: self.turn.next_text().to_owned(),
            tokens: tokens.into_iter().collect(),
        };
        self.n_told += delta.text.len();
        if !delta.text.is_empty() || !delta.tokens.is_empty() {
            self.job.tell(JobEvent::Delta(delta));
        }
        Ok(Some(token))
    }

    /// The stop text that ended the answer: the one that stands behind what was told.
    pub(super) fn stop_text(&self, tokenizer: &Arc<Tokenizer>) -> Option<String> {
        if self.turn.finish() != Some(Finish::StopText) {
            return None;
        }
        let continuation = DecodeOptions {
            skip_special: true,
            text_start: false,
        };
        let mut detokenizer = Detokenizer::new(Arc::clone(tokenizer), continuation);
        let drawn = self.turn.drawn().iter();
        let mut text: String = drawn.map(|token| detokenizer.push(*token)).collect();
        text += &detokenizer.finish();
        let behind = text.get(self.n_told..)?;
        let stops = self.job.stop.iter().filter(|stop| !stop.is_empty());
        stops
            .filter(|stop| behind.starts_with(stop.as_str()))
            .max_by_key(|stop| stop.len())
            .cloned()
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
