//! The gate of seed 000 C: top-5 inclusion at the first divergence, as vLLM's `check_logprobs_close`.

use super::check_interrupt;
use super::runner::Runner;
use crate::exit::Outcome;
use millrace_runtime::sampling::argmax;
use serde::{Deserialize, Serialize};

/// A token must be among so many of the other side's likeliest.
pub(super) const K: usize = 5;

/// Likeliest tokens that are recorded at a step: more than [`K`], so that a report can tell how far
/// off a token is.
pub(super) const RECORDED: usize = 10;

/// What a side chose, and what else it might have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Choice {
    /// The likeliest token.
    pub(super) token: u32,
    /// The likeliest tokens, best first: [`RECORDED`], or the whole vocabulary where it is smaller.
    pub(super) top: Vec<u32>,
}

impl Choice {
    fn of(logits: &[f32]) -> Choice {
        let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
        let by_logit = |a: &u32, b: &u32| {
            let (x, y) = (logits[*a as usize], logits[*b as usize]);
            y.total_cmp(&x).then(a.cmp(b))
        };
        let n = RECORDED.min(ids.len());
        if n < ids.len() {
            ids.select_nth_unstable_by(n, by_logit);
            ids.truncate(n);
        }
        ids.sort_unstable_by(by_logit);
        Choice {
            token: argmax(logits),
            top: ids,
        }
    }

    /// Place of a token, 1 for the likeliest; `None` beyond what was recorded.
    fn rank(&self, token: u32) -> Option<usize> {
        self.top.iter().position(|t| *t == token).map(|i| i + 1)
    }
}

/// Where two sides part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Divergence {
    /// Step, 0 for the token after the prompt.
    pub(super) step: usize,
    /// The reference's token.
    pub(super) reference_token: u32,
    /// Its rank on the device.
    pub(super) reference_rank: Option<usize>,
    /// The device's token.
    pub(super) device_token: u32,
    /// Its rank in the reference.
    pub(super) device_rank: Option<usize>,
}

/// What came of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    /// Tokens on which both agree, from the first on.
    pub(super) n_equal: usize,
    /// Where they part, if they do.
    pub(super) divergence: Option<Divergence>,
}

impl Verdict {
    /// Whether each side's token is near enough to the other's.
    pub(super) fn passes(&self) -> bool {
        let near = |rank: Option<usize>| rank.is_some_and(|rank| rank <= K);
        (self.divergence).is_none_or(|d| near(d.reference_rank) && near(d.device_rank))
    }
}

/// What a side writes greedily: up to `n` tokens, or until it ends.
pub(super) fn record(
    runner: &mut dyn Runner,
    prompt: &[u32],
    n: usize,
    is_end: &dyn Fn(u32) -> bool,
) -> Outcome<Vec<Choice>> {
    let mut choices = vec![Choice::of(runner.start(prompt)?)];
    while let Some(Choice { token, .. }) = choices.last()
        && choices.len() < n
        && !is_end(*token)
    {
        check_interrupt()?;
        let choice = Choice::of(runner.next(*token)?);
        choices.push(choice);
    }
    Ok(choices)
}

/// Writes as far as the device agrees with what was recorded.
pub(super) fn compare(
    device: &mut dyn Runner,
    prompt: &[u32],
    steps: &[Choice],
) -> Outcome<Verdict> {
    let mut previous = None;
    for (step, expected) in steps.iter().enumerate() {
        check_interrupt()?;
        let found = Choice::of(match previous {
            None => device.start(prompt)?,
            Some(token) => device.next(token)?,
        });
        if found.token != expected.token {
            return Ok(Verdict {
                n_equal: step,
                divergence: Some(Divergence {
                    step,
                    reference_token: expected.token,
                    reference_rank: found.rank(expected.token),
                    device_token: found.token,
                    device_rank: expected.rank(found.token),
                }),
            });
        }
        previous = Some(expected.token);
    }
    Ok(Verdict {
        n_equal: steps.len(),
        divergence: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives rows of logits in order, whatever it is told.
    struct Script(Vec<Vec<f32>>, usize);

    impl Runner for Script {
        fn name(&self) -> String {
            "script".to_owned()
        }

        fn start(&mut self, _: &[u32]) -> Outcome<&[f32]> {
            self.1 = 0;
            self.next(0)
        }

        fn next(&mut self, _: u32) -> Outcome<&[f32]> {
            self.1 += 1;
            Ok(&self.0[self.1 - 1])
        }
    }

    /// A vocabulary of 20 whose likeliest tokens are those, best first.
    fn row(best: &[usize]) -> Vec<f32> {
        let mut logits: Vec<f32> = (0..20).map(|i| -10.0 - i as f32).collect();
        for (i, token) in best.iter().enumerate() {
            logits[*token] = 10.0 - i as f32;
        }
        logits
    }

    fn verdict(reference: &[&[usize]], device: &[&[usize]]) -> Verdict {
        let script = |rows: &[&[usize]]| Script(rows.iter().map(|r| row(r)).collect(), 0);
        let n = reference.len();
        let steps = record(&mut script(reference), &[1], n, &|_| false).expect("steps");
        compare(&mut script(device), &[1], &steps).expect("a verdict")
    }

    #[test]
    fn the_same_tokens_pass() {
        let found = verdict(&[&[3], &[4]], &[&[3], &[4]]);
        assert!(found.passes() && found.n_equal == 2 && found.divergence.is_none());
    }

    #[test]
    fn a_swap_within_the_first_five_passes_and_ends_the_comparison() {
        // What comes after the divergence is nonsense, and nobody looks.
        let found = verdict(
            &[&[3], &[4, 5, 6, 7, 8], &[1]],
            &[&[3], &[8, 5, 6, 7, 4], &[19]],
        );
        let divergence = found.divergence.expect("one");
        assert!(found.passes());
        assert_eq!((found.n_equal, divergence.step), (1, 1));
        assert_eq!(
            (divergence.reference_token, divergence.device_token),
            (4, 8)
        );
        assert_eq!(divergence.reference_rank, Some(5));
        assert_eq!(divergence.device_rank, Some(5));
    }

    #[test]
    fn a_token_that_is_sixth_on_either_side_fails() {
        let near: &[usize] = &[4, 9, 5, 6, 7, 8];
        let far: &[usize] = &[9, 5, 6, 7, 8, 4];
        for (reference, device) in [(near, far), (far, near)] {
            let found = verdict(&[reference], &[device]);
            assert!(!found.passes(), "{found:?}");
        }
        assert!(!verdict(&[&[3]], &[&[19]]).passes());
    }

    #[test]
    fn a_recording_ends_with_the_models_end() {
        let mut script = Script(vec![row(&[3]), row(&[7]), row(&[4])], 0);
        let steps = record(&mut script, &[1], 3, &|token| token == 7).expect("steps");
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[1].top[0], 7);
    }
}
