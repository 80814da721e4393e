//! A small model that guesses.

use std::collections::HashMap;

use super::acceptance::of_probability;
use super::{Guess, clock_ns};
use crate::Error;
use crate::engine::{BatchItem, Engine, LogitsFor, StepOutput};
use crate::image;
use crate::sampling::Sampler;
use crate::sequences::SeqId;
use crate::turn::Turn;

/// A draft model on its engine, with a sequence for each of the target's.
pub(super) struct DraftModel {
    engine: Box<dyn Engine>,
    sequences: HashMap<SeqId, SeqId>,
    output: StepOutput,
    /// Draws as the target's will.
    sampler: Sampler,
    /// Rows of the target's head: no other token can be checked.
    n_vocab: usize,
}

/// What a drafting took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drafting {
    /// In all.
    pub(super) total_ns: u64,
    /// Without what had to be read first, if that was much: the time of so many drafts.
    pub(super) drafts_ns: u64,
    pub(super) n_drafts: usize,
}

/// Tokens beyond which catching up with the text is not part of a draft's time.
const MUCH: usize = 8;

impl DraftModel {
    pub(super) fn new(engine: Box<dyn Engine>, n_vocab: usize) -> DraftModel {
        DraftModel {
            engine,
            sequences: HashMap::new(),
            output: StepOutput::default(),
            sampler: Sampler::with_stages(Vec::new(), 0),
            n_vocab,
        }
    }

    pub(super) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    pub(super) fn forget(&mut self, seq: SeqId) -> Result<(), Error> {
        match self.sequences.remove(&seq) {
            Some(own) => self.engine.release(own),
            None => Ok(()),
        }
    }

    /// Writes behind the turn's context as long as `goes_on` says so, with a copy of the turn's sampler. Nothing
    /// where the context has images, is longer than the draft model's, or has no room in its cache.
    pub(super) fn draft(
        &mut self,
        seq: SeqId,
        turn: &Turn,
        most: usize,
        out: &mut Vec<Guess>,
        goes_on: &mut dyn FnMut(&[Guess]) -> bool,
    ) -> Result<Drafting, Error> {
        let context = turn.context();
        let n_ctx = self.engine.limits().n_ctx;
        let most = most.min((n_ctx + 1).saturating_sub(context.len()));
        if most == 0 || context.iter().any(|token| image::is_row(*token)) {
            return Ok(Drafting::default());
        }
        let own = match self.sequences.get(&seq) {
            Some(own) => *own,
            None => {
                let own = self.engine.create()?;
                self.engine.set_scope(own, turn.scope())?;
                self.sequences.insert(seq, own);
                own
            }
        };
        let before_ns = clock_ns(&*self.engine);
        let n_held = self.engine.reuse_prefix(own, context)?;
        let n_new = context.len() - n_held;
        // The last draft is not fed.
        let room = self.engine.room(&[own], 0)?;
        let most = most.min((room + 1).saturating_sub(n_new));
        if most == 0 {
            return Ok(Drafting::default());
        }
        for tokens in context[n_held..].chunks(self.engine.limits().max_chunk) {
            self.step(own, tokens)?;
        }
        let read_ns = clock_ns(&*self.engine) - before_ns;
        self.sampler.copy_from(turn.sampler());
        loop {
            let row = self.output.logits(0);
            let token = self.sampler.sample(row);
            if token as usize >= self.n_vocab {
                break;
            }
            let class = of_probability(probability(row, token));
            out.push(Guess { token, class });
            // Nothing is drawn behind an end.
            if out.len() >= most || turn.ends_with(token) || !goes_on(out) {
                break;
            }
            self.sampler.accept(token);
            self.step(own, &[token])?;
        }
        let total_ns = clock_ns(&*self.engine) - before_ns;
        // What had to be read is not what another draft will cost; the first of these came with it.
        let (drafts_ns, n_drafts) = match n_new > MUCH {
            true => (total_ns - read_ns, out.len().saturating_sub(1)),
            false => (total_ns, out.len()),
        };
        Ok(Drafting {
            total_ns,
            drafts_ns,
            n_drafts,
        })
    }

    fn step(&mut self, own: SeqId, tokens: &[u32]) -> Result<(), Error> {
        let item = BatchItem::new(own, tokens, LogitsFor::Last);
        self.engine.step(&[item], &mut self.output)
    }
}

/// The probability of a token, by the model's logits alone.
fn probability(row: &[f32], token: u32) -> f64 {
    let Some(of_token) = row.get(token as usize) else {
        return 0.0;
    };
    let sum: f32 = row.iter().map(|logit| (logit - of_token).exp()).sum();
    1.0 / f64::from(sum)
}
