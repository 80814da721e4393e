//! An assistant that guesses from the target's own states, keys and values.
//!
//! It has no cache. Its rows stand behind the last token that the target computed, one after the other at the same position
//! (transformers, `SinglePositionMultiTokenCandidateGenerator`). The first has the target's state there, each further one the
//! state that the assistant computed for the guess before.

use std::collections::HashMap;

use super::writing::{Drafting, GuessWriter};
use super::{Drafter, Guess, Speculator, clock_ns};
use crate::Error;
use crate::assistant::Assistant;
use crate::engine::Engine;
use crate::image;
use crate::load::LoadedModel;
use crate::sequences::SeqId;
use crate::turn::Turn;

/// An assistant with what it knows of the target's sequences.
pub(super) struct AssistantDraft {
    assistant: Assistant,
    sequences: HashMap<SeqId, LastState>,
    writer: GuessWriter,
    d_model: usize,
}

/// The target's state at the last token that it computed.
struct LastState {
    /// Tokens up to it.
    n_read: usize,
    /// `[d_model]`.
    state: Vec<f32>,
}

impl Speculator {
    /// Guesses of an assistant, which reads the keys and values of the target's engine and its states. So the caller must
    /// request them ([`wants_states`](Speculator::wants_states)).
    ///
    /// # Errors
    /// As [`Assistant::new`]; [`Error::BadOption`] for an engine that hides its keys ([`Engine::hides_keys`]).
    pub fn assistant(draft: &LoadedModel, engine: &dyn Engine) -> Result<Speculator, Error> {
        let target = engine.model();
        let assistant = Assistant::new(draft, target)?;
        assistant.refuse(engine.hides_keys())?;
        let config = &target.model().config;
        let draft = AssistantDraft {
            assistant,
            sequences: HashMap::new(),
            writer: GuessWriter::new(config.vocab_size),
            d_model: config.d_model,
        };
        Ok(Speculator::new(Drafter::Assistant(Box::new(draft))))
    }
}

impl AssistantDraft {
    pub(super) fn forget(&mut self, seq: SeqId) {
        self.sequences.remove(&seq);
    }

    /// Tells that the target computed the tokens of the turn's context from `first` on: one for each of
    /// `states` `[_, d_model]`, as far as the target still holds them.
    pub(super) fn read(&mut self, seq: SeqId, turn: &Turn, first: usize, states: &[f32]) {
        let rows = states.chunks_exact(self.d_model);
        let n_held = turn.n_fed().saturating_sub(first);
        let Some((index, row)) = rows.take(n_held).enumerate().next_back() else {
            return;
        };
        let last = self.sequences.entry(seq).or_insert_with(|| LastState {
            n_read: 0,
            state: Vec::with_capacity(row.len()),
        });
        last.n_read = first + index + 1;
        last.state.clear();
        last.state.extend_from_slice(row);
    }

    /// Continues the turn's context as long as `goes_on` returns true, with a copy of the turn's sampler. Writes nothing if
    /// the target's last state is not known.
    pub(super) fn draft(
        &mut self,
        (engine, seq): (&mut dyn Engine, SeqId),
        (turn, most): (&Turn, usize),
        out: &mut Vec<Guess>,
        goes_on: &mut dyn FnMut(&[Guess]) -> bool,
    ) -> Result<Drafting, Error> {
        let AssistantDraft {
            assistant,
            sequences,
            writer,
            ..
        } = self;
        let Some(last) = sequences.get(&seq) else {
            return Ok(Drafting::default());
        };
        let token = match turn.context().get(last.n_read..) {
            Some(&[token]) if engine.len(seq)? == last.n_read && !image::is_row(token) => token,
            _ => return Ok(Drafting::default()),
        };
        let before_ns = clock_ns(engine);
        let given = (token, &last.state[..]);
        if most == 0 || !engine.assist(assistant, seq, given, &mut writer.output)? {
            return Ok(Drafting::default());
        }
        let mut chained = Vec::with_capacity(last.state.len());
        writer.write((turn, most), out, goes_on, &mut |token, output| {
            chained.clear();
            chained.extend_from_slice(output.head_input(0));
            engine.assist(assistant, seq, (token, &chained), output)?;
            Ok(())
        })?;
        let total_ns = clock_ns(engine) - before_ns;
        Ok(Drafting::new(total_ns, (0, 0), out.len()))
    }
}
