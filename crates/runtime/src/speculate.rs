//! Speculative decoding: a cheap drafter guesses tokens, one step of the engine checks them all.
//!
//! A step over `1 + k` tokens reads the weights once. If reading them takes most of the time, it costs little more than a step
//! over one. A [`Speculator`] drafts after the tokens that a [`Turn`] feeds: from a small model of the same vocabulary, from the
//! model's own draft layer, from its assistant, or from repetitions in the text. [`follow`] then takes the rows of logits that the engine computed.
//! Row by row the turn draws as it always does; while the draw equals the draft, the next row is that of the next token. The
//! first draw that differs is the turn's token, and the drafts after it are cut off the sequence ([`Engine::truncate`]).
//!
//! # Drafts do not change the result Only the turn's own sampler draws tokens, from the logits after the tokens
//! before. Drafts only decide how many rows a step computes. So with the same seed the tokens are those of
//! plain decoding, greedy or not, with penalties, stop texts and grammars. Leviathan et al. (2023) accept a
//! draft `x` with probability `min(1, p(x)/q(x))` and draw from the rest otherwise. That keeps the distribution
//! too, but consumes random numbers depending on where the drafts begin. Their number follows the clock, so a
//! seed would no longer determine a text. Here a draft model draws with a copy of the turn's sampler, and so
//! with the random number that the turn will draw with. If the two models agree on the order and the weight of
//! tokens, they draw the same one. For a drafter that is sure of its guess both rules accept with probability
//! `p(x)`.
//!
//! Engines that add in another order in passes of another length ([`crate::npu`]) may distinguish two tokens
//! that are within a rounding of each other. There, as with prompts cut elsewhere, a near tie may go the other
//! way.
//!
//! # Number of drafts
//! The number of drafts is chosen by their expected gain ([`plan`]). If there is none, no drafts are made except for a probe now and then.

mod acceptance;
mod assistant;
mod costs;
mod draft_layer;
mod draft_model;
mod ngram;
pub mod plan;
mod short_head;
mod stats;
mod vocabulary;
mod writing;

use std::collections::HashMap;

use crate::Error;
use crate::engine::Engine;
use crate::image;
use crate::load::LoadedModel;
use crate::sequences::SeqId;
use crate::turn::Turn;
use acceptance::Acceptance;
use assistant::AssistantDraft;
use costs::Pace;
use draft_layer::DraftLayer;
use draft_model::DraftModel;
use millrace_graph::{Node, Op};
use millrace_model::ModelConfig;
use ngram::Repeats;
pub use short_head::ShortHeadSize;
pub use stats::SpeculationStats;
pub use vocabulary::check_draft;
use writing::Drafting;

/// Maximum number of tokens drafted for a step. It is below [`ROLLBACK_TOKENS`](crate::ROLLBACK_TOKENS), so that a
/// sequence can always be cut back, with sliding windows too.
pub const MAX_DRAFTS: usize = 31;

/// A token that was guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Guess {
    token: u32,
    /// How sure the drafter is, as an index of [`acceptance`]'s classes.
    class: usize,
}

/// Result of [`follow`] for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftOutcome {
    /// Tokens of the turn's [`context`](Turn::context) before it.
    pub n_before: usize,
    /// Tokens drawn, the ending one among them.
    pub n_drawn: usize,
    /// Drafts that were drawn; 0 where drawing failed.
    pub n_accepted: usize,
}

/// Where guesses come from.
enum Drafter {
    Model(Box<DraftModel>),
    Layer(Box<DraftLayer>),
    Assistant(Box<AssistantDraft>),
    Repeats,
}

impl Drafter {
    /// Computes guesses, as long as `goes_on` returns true.
    fn compute(
        &mut self,
        (engine, seq): (&mut dyn Engine, SeqId),
        (turn, most): (&Turn, usize),
        out: &mut Vec<Guess>,
        goes_on: &mut dyn FnMut(&[Guess]) -> bool,
    ) -> Result<Drafting, Error> {
        match self {
            Drafter::Model(model) => model.draft(seq, turn, most, out, goes_on),
            Drafter::Layer(layer) => layer.draft(seq, turn, most, out, goes_on),
            Drafter::Assistant(own) => own.draft((engine, seq), (turn, most), out, goes_on),
            Drafter::Repeats => Ok(Drafting::default()),
        }
    }
}

/// Data kept for a sequence.
#[derive(Debug, Default)]
struct DraftSequence {
    repeats: Repeats,
    acceptance: Acceptance,
    guesses: Vec<Guess>,
    tokens: Vec<u32>,
}

/// Drafts for the sequences of one engine, and learns the gain.
///
/// For each step of sequences that decode, call [`draft`](Speculator::draft) for each of them, and run a step over the
/// turns' tokens and the drafts with [`LogitsFor::All`](crate::LogitsFor::All). Then call [`check`](Speculator::check)
/// with the logits of each that has drafts, and [`took`](Speculator::took) with the step's time. Callers whose draws
/// involve more than a turn's sampler call [`follow`] and [`settle`](Speculator::settle) instead of `check`.
pub struct Speculator {
    drafter: Drafter,
    sequences: HashMap<SeqId, DraftSequence>,
    /// Over all sequences: the initial value for a new one.
    acceptance: Acceptance,
    pace: Pace,
    /// Number of drafts for every step, whatever they cost.
    always: Option<usize>,
    stats: SpeculationStats,
}

impl Speculator {
    /// Guesses the tokens that followed the same tokens earlier in the text. It needs no model and no time,
    /// and helps if a text repeats itself.
    pub fn ngram() -> Speculator {
        Speculator::new(Drafter::Repeats)
    }

    /// Guesses a smaller model's continuation, run by `engine`: on the same kind of device as the target, so
    /// that times can be compared.
    ///
    /// # Errors
    /// As [`check_draft`].
    pub fn model(engine: Box<dyn Engine>, target: &LoadedModel) -> Result<Speculator, Error> {
        check_draft(target, engine.model())?;
        let n_vocab = target.model().config.vocab_size;
        let model = DraftModel::new(engine, n_vocab);
        Ok(Speculator::new(Drafter::Model(Box::new(model))))
    }

    /// Guesses the predictions of the model's own draft layer ([`LoadedModel::draft_layer`]), run by `engine`. The layer
    /// reads states of the model, so the caller must request them ([`wants_states`](Speculator::wants_states)).
    ///
    /// # Errors
    /// [`Error::BadOption`] for another model's layer, and for an engine whose model is not a draft layer.
    pub fn layer(engine: Box<dyn Engine>, target: &LoadedModel) -> Result<Speculator, Error> {
        let (own, whole) = (&engine.model().model(), target.model());
        let takes_states = |node: &Node| matches!(node.op, Op::TargetState(_));
        let sizes = |config: &ModelConfig| (config.vocab_size, config.d_model);
        let fits = sizes(&own.config) == sizes(&whole.config);
        if !fits || !own.graph.nodes.iter().any(takes_states) {
            return Err(Error::BadOption {
                option: "draft layer",
                found: engine.model().name().to_owned(),
                expected: "the draft layer of the model itself",
            });
        }
        let (n_vocab, d_model) = sizes(&whole.config);
        let layer = DraftLayer::new(engine, n_vocab, d_model);
        Ok(Speculator::new(Drafter::Layer(Box::new(layer))))
    }

    fn new(drafter: Drafter) -> Speculator {
        Speculator {
            drafter,
            sequences: HashMap::new(),
            acceptance: Acceptance::default(),
            pace: Pace::default(),
            always: None,
            stats: SpeculationStats::default(),
        }
    }

    /// The same with `n` drafts for every step, whether or not they pay: its behaviour then depends on no clock.
    #[must_use]
    pub fn always(self, n: usize) -> Speculator {
        Speculator {
            always: Some(n),
            ..self
        }
    }

    /// The same with guesses of a draft layer from other rows of the head. The whole head is read where the short one would
    /// not be less than half of it. Other drafters always read all of theirs.
    #[must_use]
    pub fn short_head(mut self, size: ShortHeadSize) -> Speculator {
        if let Drafter::Layer(layer) = self.drafter {
            self.drafter = Drafter::Layer(Box::new(layer.with_short_head(size)));
        }
        self
    }

    /// Counters so far.
    pub fn stats(&self) -> SpeculationStats {
        self.stats
    }

    /// The engine of the draft model or layer.
    pub fn draft_engine(&self) -> Option<&dyn Engine> {
        match &self.drafter {
            Drafter::Model(model) => Some(model.engine()),
            Drafter::Layer(layer) => Some(layer.engine()),
            Drafter::Assistant(_) | Drafter::Repeats => None,
        }
    }

    /// Tokens to compute after the tokens that the turn feeds next, at most `most`. There are none while the turn
    /// reads its prompt, if they would not fit or not be drawn, or if they do not pay. `n_rows` are the rows that the
    /// step computes without drafts, one of each sequence that decodes in it; 1 for one that decodes alone. `engine` is the
    /// target's.
    ///
    /// # Errors
    /// The errors of the draft model's engine, or of the target's with an assistant.
    pub fn draft(
        &mut self,
        (engine, seq): (&mut dyn Engine, SeqId),
        turn: &Turn,
        n_rows: usize,
        most: usize,
    ) -> Result<&[u32], Error> {
        let state = self.sequences.entry(seq).or_insert_with(|| DraftSequence {
            acceptance: self.acceptance.carried(),
            ..DraftSequence::default()
        });
        state.guesses.clear();
        state.tokens.clear();
        let decodes = turn.feed(2).is_some_and(|feed| feed.tokens.len() == 1);
        let limit = self.always.unwrap_or(MAX_DRAFTS).min(MAX_DRAFTS).min(most);
        let most = turn.wanted().saturating_sub(1).min(limit);
        let context = turn.context();
        if turn.reads_prompt() || !decodes || most == 0 {
            return Ok(&state.tokens);
        }
        match &mut self.drafter {
            Drafter::Repeats => {
                state.repeats.read(context);
                state.repeats.guess(context, most, &mut state.guesses);
                let text = state.guesses.iter().position(|g| image::is_row(g.token));
                state.guesses.truncate(text.unwrap_or(usize::MAX));
                let (n, always) = (state.guesses.len(), self.always.is_some());
                let guesses = &state.guesses;
                if !always && self.pace.choose(&state.acceptance, guesses, n, n_rows) == 0 {
                    state.guesses.clear();
                }
            }
            drafter => {
                let (pace, always) = (&mut self.pace, self.always.is_some());
                if always || pace.choose(&state.acceptance, &[], most, n_rows) > 0 {
                    let mut goes_on = |made: &[Guess]| {
                        always || pace.goes_on(&state.acceptance, made, most, n_rows)
                    };
                    let guesses = &mut state.guesses;
                    let drafting =
                        drafter.compute((engine, seq), (turn, most), guesses, &mut goes_on)?;
                    pace.drafted(&drafting);
                    self.stats.draft_ns += drafting.total_ns;
                }
            }
        }
        if self.always.is_none() {
            let n = self.pace.keep(&state.acceptance, &state.guesses, n_rows);
            state.guesses.truncate(n);
        }
        self.pace.added(state.guesses.len());
        state.tokens.extend(state.guesses.iter().map(|g| g.token));
        Ok(&state.tokens)
    }

    /// Makes the turn draw from the rows of a step: `[1 + k, vocab]` for the turn's token and the `k` drafts. The
    /// turn's token must have been reported [`fed`](Turn::fed). Cuts drafts that were not drawn off the engine's
    /// sequence. Returns the number of drafts drawn.
    ///
    /// # Errors
    /// [`Error::NotFinite`] where plain decoding would have found it.
    pub fn check(
        &mut self,
        engine: &mut dyn Engine,
        seq: SeqId,
        turn: &mut Turn,
        logits: &[f32],
    ) -> Result<usize, Error> {
        let drafts = self.drafts(seq);
        let (n_before, mut n_drawn) = (turn.context().len(), 0);
        let followed: Result<usize, Error> = follow(drafts, logits, |row| {
            let token = turn.push_logits(row)?;
            n_drawn += usize::from(token.is_some());
            Ok(token)
        });
        let walk = DraftOutcome {
            n_before,
            n_drawn,
            n_accepted: *followed.as_ref().unwrap_or(&0),
        };
        self.settle(engine, seq, turn, walk)?;
        followed
    }

    /// The drafts of a sequence in the present step.
    pub fn drafts(&self, seq: SeqId) -> &[u32] {
        self.sequences.get(&seq).map_or(&[], |state| &state.tokens)
    }

    /// Cuts undrawn drafts off the engine's sequence, tells the turn which tokens are held, and learns from the outcome.
    ///
    /// # Errors
    /// Only errors of the engine itself.
    pub fn settle(
        &mut self,
        engine: &mut dyn Engine,
        seq: SeqId,
        turn: &mut Turn,
        walk: DraftOutcome,
    ) -> Result<(), Error> {
        let n_accepted = walk.n_accepted;
        // The token that ended the turn is held only if another followed it, as in plain decoding.
        let n_taken = turn.context().len() - walk.n_before;
        let ended_with_one = turn.finish().is_some() && n_taken == walk.n_drawn;
        turn.fed(n_accepted.min(n_taken.saturating_sub(usize::from(ended_with_one))));
        engine.truncate(seq, turn.n_fed())?;
        let Some(state) = self.sequences.get_mut(&seq) else {
            return Ok(());
        };
        for (i, guess) in state.guesses.iter().take(n_accepted + 1).enumerate() {
            state.acceptance.learn(guess.class, i < n_accepted);
            self.acceptance.learn(guess.class, i < n_accepted);
        }
        match state.guesses.len() {
            0 => self.stats.n_plain += 1,
            n => {
                self.stats.n_checks += 1;
                self.stats.n_drafted += n as u64;
                self.stats.n_accepted += n_accepted as u64;
            }
        }
        Ok(())
    }

    /// Whether [`read`](Speculator::read) must follow each step of the engine, prompts' too, with the head's input
    /// ([`BatchItem::head_input`](crate::BatchItem)).
    pub fn wants_states(&self) -> bool {
        matches!(self.drafter, Drafter::Layer(_) | Drafter::Assistant(_))
    }

    /// Tells that the engine computed the tokens of the turn's context from `first` on. `states` are the head's inputs for each
    /// of them, `[_, d_model]`; those of undrawn drafts are ignored. To be called when the turn knows which tokens are held.
    ///
    /// # Errors
    /// The errors of the draft layer's engine.
    pub fn read(
        &mut self,
        seq: SeqId,
        turn: &Turn,
        first: usize,
        states: &[f32],
    ) -> Result<(), Error> {
        match &mut self.drafter {
            Drafter::Layer(layer) => {
                let before_ns = layer.clock_ns();
                layer.read(seq, turn, first, states)?;
                self.stats.draft_ns += layer.clock_ns() - before_ns;
                Ok(())
            }
            Drafter::Assistant(assistant) => {
                assistant.read(seq, turn, first, states);
                Ok(())
            }
            Drafter::Model(_) | Drafter::Repeats => Ok(()),
        }
    }

    /// Records that a step over `n_rows` tokens, one of each sequence, and `n_drafts` more took this long and drew
    /// `n_drawn`, without the time of drafting.
    pub fn took(&mut self, n_rows: usize, n_drafts: usize, n_drawn: usize, step_ns: u64) {
        self.pace.stepped(n_rows, n_drafts, n_drawn, step_ns);
    }

    /// Forgets a sequence that ended, or that begins another text.
    ///
    /// # Errors
    /// Only errors of the draft model's engine itself.
    pub fn forget(&mut self, seq: SeqId) -> Result<(), Error> {
        self.sequences.remove(&seq);
        match &mut self.drafter {
            Drafter::Model(model) => model.forget(seq),
            Drafter::Layer(layer) => layer.forget(seq),
            Drafter::Assistant(assistant) => {
                assistant.forget(seq);
                Ok(())
            }
            Drafter::Repeats => Ok(()),
        }
    }
}

/// Draws row by row, as long as the draws equal the drafts; returns the number of drafts drawn. `logits` is
/// `[1 + drafts.len(), vocab]`. `draw` is called at least once; its token from the row that ends the walk is a
/// token like any other. It returns `None` when no more tokens are to be drawn.
///
/// # Errors
/// The errors of `draw`.
pub fn follow<E>(
    drafts: &[u32],
    logits: &[f32],
    mut draw: impl FnMut(&[f32]) -> Result<Option<u32>, E>,
) -> Result<usize, E> {
    let width = logits.len() / (drafts.len() + 1);
    for (i, row) in logits.chunks_exact(width.max(1)).enumerate() {
        match (draw(row)?, drafts.get(i)) {
            (Some(token), Some(draft)) if token == *draft => {}
            _ => return Ok(i),
        }
    }
    Ok(drafts.len())
}

/// Time of an engine's steps, from its device if it has one.
pub fn clock_ns(engine: &dyn Engine) -> u64 {
    let counters = engine.counters();
    match engine.device_time() {
        Some(_) => counters.device_ns,
        None => counters.host_ns,
    }
}

#[cfg(test)]
mod tests;
