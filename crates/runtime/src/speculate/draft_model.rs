//! A small model that guesses.

use std::collections::HashMap;

use super::writing::{Drafting, GuessWriter};
use super::{Guess, clock_ns};
use crate::Error;
use crate::engine::{BatchItem, Engine};
use crate::image;
use crate::sequences::SeqId;
use crate::turn::Turn;

/// A draft model on its engine, with a sequence for each of the target's.
pub(super) struct DraftModel {
    engine: Box<dyn Engine>,
    sequences: HashMap<SeqId, SeqId>,
    writer: GuessWriter,
}

impl DraftModel {
    pub(super) fn new(engine: Box<dyn Engine>, n_vocab: usize) -> DraftModel {
        DraftModel {
            engine,
            sequences: HashMap::new(),
            writer: GuessWriter::new(n_vocab),
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

    /// Continues the turn's context as long as `goes_on` returns true, with a copy of the turn's sampler. Writes
    /// nothing if the context has images, is longer than the draft model's, or does not fit its cache.
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
        let DraftModel { engine, writer, .. } = self;
        for tokens in context[n_held..].chunks(engine.limits().max_chunk) {
            engine.step(&[BatchItem::last(own, tokens)], &mut writer.output)?;
        }
        let read_ns = clock_ns(&**engine) - before_ns;
        writer.write((turn, most), out, goes_on, &mut |token, output| {
            engine.step(&[BatchItem::last(own, &[token])], output)
        })?;
        let total_ns = clock_ns(&**engine) - before_ns;
        Ok(Drafting::new(total_ns, (n_new, read_ns), out.len()))
    }
}
