//! Common part of drafters that compute: drawing guesses, one after the other.

use super::Guess;
use super::acceptance::of_probability;
use crate::Error;
use crate::engine::StepOutput;
use crate::sampling::Sampler;
use crate::turn::Turn;

/// Time of a drafting.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drafting {
    /// In all.
    pub(super) total_ns: u64,
    /// Without the time of first reading the text, if that was much: the time of `n_drafts` drafts.
    pub(super) drafts_ns: u64,
    pub(super) n_drafts: usize,
}

/// Tokens beyond which catching up with the text is not part of a draft's time.
const MUCH: usize = 8;

impl Drafting {
    /// The time of `n_drafts` after `n_read` tokens that were read first, which took `read_ns` of the whole.
    pub(super) fn new(total_ns: u64, (n_read, read_ns): (usize, u64), n_drafts: usize) -> Drafting {
        // Another draft will not cost that reading; the first draft came with it.
        let (drafts_ns, n_drafts) = match n_read > MUCH {
            true => (total_ns - read_ns, n_drafts.saturating_sub(1)),
            false => (total_ns, n_drafts),
        };
        Drafting {
            total_ns,
            drafts_ns,
            n_drafts,
        }
    }
}

/// Draws guesses as the turn's sampler will draw.
pub(super) struct GuessWriter {
    /// Logits after the last token that was fed, and the other results of its step.
    pub(super) output: StepOutput,
    sampler: Sampler,
    /// Rows of the target's head: no other token can be checked.
    n_vocab: usize,
}

impl GuessWriter {
    pub(super) fn new(n_vocab: usize) -> GuessWriter {
        GuessWriter {
            output: StepOutput::default(),
            sampler: Sampler::with_stages(Vec::new(), 0),
            n_vocab,
        }
    }

    /// Continues the turn's context by at most `most` tokens and as long as `goes_on` returns true. `feed` takes a token
    /// and leaves the logits after it in the output.
    pub(super) fn write(
        &mut self,
        (turn, most): (&Turn, usize),
        out: &mut Vec<Guess>,
        goes_on: &mut dyn FnMut(&[Guess]) -> bool,
        feed: &mut dyn FnMut(u32, &mut StepOutput) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.sampler.copy_from(turn.sampler());
        loop {
            let row = self.output.logits(0);
            let token = self.sampler.sample(row);
            if token as usize >= self.n_vocab {
                return Ok(());
            }
            let class = of_probability(probability(row, token));
            out.push(Guess { token, class });
            // Nothing is drawn after an end.
            if out.len() >= most || turn.ends_with(token) || !goes_on(out) {
                return Ok(());
            }
            self.sampler.accept(token);
            feed(token, &mut self.output)?;
        }
    }
}

/// Logits below the token's by more than this add less than one part in 10⁸ each, and are not worth an exponential.
const NEGLIGIBLE: f32 = 18.0;

/// The probability of a token, by the model's logits alone.
fn probability(row: &[f32], token: u32) -> f64 {
    let Some(of_token) = row.get(token as usize) else {
        return 0.0;
    };
    let above = row.iter().map(|logit| logit - of_token);
    let sum: f32 = above.filter(|x| *x > -NEGLIGIBLE).map(f32::exp).sum();
    1.0 / f64::from(sum)
}
