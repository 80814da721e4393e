//! The state of a grammar within an answer, and the thread that advances it.

use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use llguidance::{CancellationHandle, Matcher};
use serde_json::json;

use super::compiler::{GrammarFault, STACK_BYTES};

/// Logit of a masked token. It is finite, since a row with infinities counts as damaged, and so low that no
/// temperature or bias brings the token back.
const STRUCK_OUT: f32 = f32::MIN;

/// Longest time that everyone's next pass waits for one grammar's step. llguidance's own limits end most steps after
/// some tens of milliseconds; this ends the ones that they miss.
const STEP_TIME: Duration = Duration::from_secs(2);

/// Time from asking a step to end until its thread is abandoned.
const STOP_TIME: Duration = Duration::from_millis(250);

/// Time of a step that is free of charge for every grammar.
const USUAL_TIME: Duration = Duration::from_millis(50);

/// Total time beyond the usual for all steps of an answer.
const UNUSUAL_TIME: Duration = Duration::from_secs(4);

/// Expressions that the lexer of an answer may derive in addition to those of the compiled grammar. The unit is
/// llguidance's fuel, each unit some tens of bytes.
const MAX_LEXER_COST: u64 = 8_000_000;

/// The state of a grammar within an answer. A clone continues independently, and shares the lexer's results.
#[derive(Clone)]
pub struct Constraint {
    matcher: Matcher,
    /// Cost of the lexer when the answer began.
    first_cost: u64,
    /// Time beyond the usual, in all steps so far.
    unusual_time: Duration,
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constraint").finish_non_exhaustive()
    }
}

impl Constraint {
    pub(super) fn new(matcher: Matcher) -> Constraint {
        Constraint {
            first_cost: cost(&matcher),
            matcher,
            unusual_time: Duration::ZERO,
        }
    }

    /// A copy from the beginning, which shares nothing with this one. This one must be unused.
    pub(super) fn fresh(&self) -> Constraint {
        Constraint::new(self.matcher.deep_clone().into_cancellable())
    }

    /// Masks the logits of tokens that may not follow.
    ///
    /// # Errors
    /// The grammar became too hard to follow.
    pub fn mask(&mut self, logits: &mut [f32]) -> Result<(), String> {
        let mask = self.matcher.compute_mask_or_eos().map_err(too_hard)?;
        if cost(&self.matcher).saturating_sub(self.first_cost) > MAX_LEXER_COST {
            return Err(too_hard("its lexer has too many states"));
        }
        for (id, logit) in logits.iter_mut().enumerate() {
            if id >= mask.len() || !mask.get(id) {
                *logit = STRUCK_OUT;
            }
        }
        Ok(())
    }

    /// Advances by a token that was drawn.
    ///
    /// # Errors
    /// The token may not follow, or the grammar became too hard to follow.
    pub fn accept(&mut self, token: u32) -> Result<(), String> {
        self.matcher.consume_token(token).map_err(too_hard)
    }

    /// Whether only the end may follow.
    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }

    /// Counts a step's time, and fails if the total is too much.
    fn charge(&mut self, took: Duration) -> Result<(), String> {
        self.unusual_time += took.saturating_sub(USUAL_TIME);
        if self.unusual_time > UNUSUAL_TIME {
            return Err(too_hard("its steps take too long"));
        }
        Ok(())
    }
}

fn cost(matcher: &Matcher) -> u64 {
    matcher
        .last_step_stats()
        .map_or(0, |stats| stats.lexer_cost)
}

fn too_hard(error: impl ToString) -> String {
    format!(
        "the grammar became too hard to follow: {}",
        GrammarFault::of(&error)
    )
}

type ConstraintStep = Box<dyn FnOnce() + Send>;

/// The thread that advances grammars for a scheduler, with a large stack. If a step does not end, a new thread takes
/// over: the old one is abandoned, and only that answer fails.
pub(crate) struct Follower {
    steps: Option<mpsc::Sender<ConstraintStep>>,
    step_time: Duration,
}

impl Default for Follower {
    fn default() -> Self {
        Follower {
            steps: None,
            step_time: STEP_TIME,
        }
    }
}

impl Follower {
    /// Masks the logits of tokens that may not follow. The row is returned; after an error, the row and the
    /// constraint may be lost.
    ///
    /// # Errors
    /// As [`Constraint::mask`]; or it took too long.
    pub(crate) fn mask(
        &mut self,
        constraint: &mut Option<Constraint>,
        row: &mut Vec<f32>,
    ) -> Result<(), String> {
        let mut taken = std::mem::take(row);
        *row = self.step(constraint, move |constraint| {
            constraint.mask(&mut taken)?;
            Ok(taken)
        })?;
        Ok(())
    }

    /// Advances by a token that was drawn. Returns whether only the end may follow.
    ///
    /// # Errors
    /// As [`Constraint::accept`]; or it took too long.
    pub(crate) fn accept(
        &mut self,
        constraint: &mut Option<Constraint>,
        token: u32,
    ) -> Result<bool, String> {
        self.step(constraint, move |constraint| {
            constraint.accept(token)?;
            Ok(constraint.is_complete())
        })
    }

    fn step<R: Send + 'static>(
        &mut self,
        constraint: &mut Option<Constraint>,
        step: impl FnOnce(&mut Constraint) -> Result<R, String> + Send + 'static,
    ) -> Result<R, String> {
        let Some(mut taken) = constraint.take() else {
            return Err(too_hard("a step before did not end"));
        };
        let stop = taken.matcher.cancellation_handle();
        let (sender, results) = mpsc::sync_channel(1);
        let work = move || {
            let start = Instant::now();
            let result = step(&mut taken);
            let result = result.and_then(|result| taken.charge(start.elapsed()).map(|()| result));
            let _ = sender.send((result, taken));
        };
        self.send(Box::new(work))?;
        let (result, taken) = self.result(&results, stop.as_ref())?;
        *constraint = Some(taken);
        result
    }

    /// The result of a step, if it ends in time.
    fn result<T>(
        &mut self,
        results: &mpsc::Receiver<T>,
        stop: Option<&CancellationHandle>,
    ) -> Result<T, String> {
        let mut late = results.recv_timeout(self.step_time);
        if late.is_ok() {
            return late.map_err(too_hard);
        }
        if let Some(stop) = stop {
            stop.cancel();
        }
        if late.as_ref().err() == Some(&RecvTimeoutError::Timeout) {
            late = results.recv_timeout(STOP_TIME);
        }
        match late {
            Ok(_) => return Err(too_hard(format!("a step took {:?}", self.step_time))),
            // A panic in the step ended the thread.
            Err(RecvTimeoutError::Disconnected) => {
                self.steps = None;
                return Err(too_hard("a step failed"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        // The thread may never return.
        self.steps = None;
        let error = too_hard("a step does not end");
        crate::app::log(&json!({"warning": format!(
            "{error}; its thread goes on and may take ever more memory: start the server anew soon"
        )}));
        Err(error)
    }

    fn send(&mut self, step: ConstraintStep) -> Result<(), String> {
        let mut step = step;
        if let Some(steps) = &self.steps {
            match steps.send(step) {
                Ok(()) => return Ok(()),
                // The thread is gone: a panic in a step ends it.
                Err(unsent) => step = unsent.0,
            }
        }
        let (sender, inbox) = mpsc::channel::<ConstraintStep>();
        std::thread::Builder::new()
            .name("grammar follower".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || inbox.into_iter().for_each(|step| step()))
            .map_err(|error| format!("no thread to follow the grammar: {error}"))?;
        let sent = sender.send(step);
        self.steps = Some(sender);
        sent.map_err(|error| format!("no thread to follow the grammar: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llguidance::ParserFactory;
    use llguidance::api::TopLevelGrammar;
    use llguidance::toktrie::ApproximateTokEnv;

    fn constraint(regex: &str) -> Option<Constraint> {
        let env = ApproximateTokEnv::single_byte_env();
        let parsers = ParserFactory::new_simple(&env).unwrap();
        let parser = parsers.create_parser(TopLevelGrammar::from_regex(regex));
        Some(Constraint::new(Matcher::new(parser).into_cancellable()))
    }

    fn follower() -> Follower {
        Follower {
            step_time: Duration::from_millis(100),
            ..Follower::default()
        }
    }

    #[test]
    fn a_step_that_does_not_end_costs_its_answer_and_no_other() {
        let mut follower = follower();
        let (mut stuck, mut other) = (constraint("[ab]{9}"), constraint("[ab]{9}"));
        let start = Instant::now();
        let endless = follower.step(&mut stuck, |_| -> Result<(), String> {
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        assert!(endless.unwrap_err().contains("does not end"));
        assert!(start.elapsed() < Duration::from_secs(2));
        assert!(stuck.is_none());
        let mut row = vec![1.0; 257];
        let again = follower.mask(&mut stuck, &mut row);
        assert!(again.unwrap_err().contains("too hard to follow"));
        let mut row = vec![1.0; 257];
        follower.mask(&mut other, &mut row).unwrap();
        let allowed: Vec<usize> = (0..257).filter(|id| row[*id] == 1.0).collect();
        assert_eq!(allowed, [97, 98]);
        assert_eq!(follower.accept(&mut other, 97), Ok(false));
    }

    #[test]
    fn a_step_that_panics_costs_its_answer_and_no_other() {
        let mut follower = Follower::default();
        let (mut broken, mut other) = (constraint("a"), constraint("a"));
        let failed = follower.step(&mut broken, |_| -> Result<(), String> { panic!("a fault") });
        assert!(failed.unwrap_err().contains("failed"));
        assert_eq!(follower.accept(&mut other, 97), Ok(true));
    }

    #[test]
    fn slow_steps_are_counted_together() {
        let mut follower = follower();
        let mut slow = constraint("a{99}");
        slow.as_mut().unwrap().unusual_time = UNUSUAL_TIME - Duration::from_millis(10);
        let step = |time| {
            move |_: &mut Constraint| {
                std::thread::sleep(time);
                Ok(())
            }
        };
        follower.step(&mut slow, step(Duration::ZERO)).unwrap();
        let error = follower.step(&mut slow, step(USUAL_TIME + Duration::from_millis(20)));
        assert!(error.unwrap_err().contains("take too long"));
    }
}
