//! The model's own draft layer: one block that guesses from the hidden states of the model itself.
//!
//! The layer has a separate cache, with a sequence for each of the target's. Its row at a token is computed from that token
//! and from the head's input at the previous token. A step of the target thus gives the states of the next rows, for prompts
//! and for drawn drafts. Rows of drafts are computed from the layer's own states. They are cut off when their guesses are
//! made, and rows of drawn drafts are computed again from the target's states.

use std::collections::HashMap;

use super::short_head::{ShortHead, ShortHeadSize};
use super::writing::{Drafting, GuessWriter};
use super::{Guess, clock_ns};
use crate::Error;
use crate::engine::{BatchItem, Engine, LogitsFor, StepOutput};
use crate::image;
use crate::kv::PAGE_TOKENS;
use crate::sequences::SeqId;
use crate::turn::Turn;

/// Maximum number of tokens without states that are computed from zeros, so that earlier cached rows stay useful.
const MAX_GAP: usize = PAGE_TOKENS;

/// The first scope of sequences that begin within a text. Callers' scopes are key numbers or hashes, and a collision
/// would only mislead a guess.
const FIRST_OWN_SCOPE: u64 = 1 << 63;

/// The engine of a draft layer, which may compute a part of the head for guesses.
struct LayerEngine {
    engine: Box<dyn Engine>,
    short_head: Option<ShortHead>,
}

impl LayerEngine {
    /// Computes rows of the layer: of tokens, and of the states before them. Leaves logits after the last one.
    fn step(
        &mut self,
        own: SeqId,
        (tokens, given): (&[u32], &[f32]),
        output: &mut StepOutput,
    ) -> Result<(), Error> {
        let short = self.short_head.as_mut().filter(|head| head.is_useful());
        let logits = match short {
            Some(_) => LogitsFor::None,
            None => LogitsFor::Last,
        };
        let item = BatchItem {
            given,
            head_input: true,
            ..BatchItem::new(own, tokens, logits)
        };
        self.engine.step(&[item], output)?;
        if let Some(head) = short {
            head.complete(self.engine.cpu(), self.engine.model(), output);
        }
        Ok(())
    }

    /// Tells that a text has these tokens.
    fn read(&mut self, tokens: &[u32]) {
        if let Some(head) = &mut self.short_head {
            let model = self.engine.model();
            tokens.iter().for_each(|token| head.read(model, *token));
        }
    }

    fn clock_ns(&self) -> u64 {
        let head_ns = self.short_head.as_ref().map_or(0, ShortHead::elapsed_ns);
        clock_ns(&*self.engine) + head_ns
    }
}

/// A draft layer on its engine.
pub(super) struct DraftLayer {
    layer: LayerEngine,
    sequences: HashMap<SeqId, LayerSequence>,
    writer: GuessWriter,
    d_model: usize,
    next_scope: u64,
}

/// The layer's data of a sequence.
struct LayerSequence {
    own: SeqId,
    /// The position in the text of its own first token.
    first: usize,
    /// Tokens to be computed after its own, and the states before them, `[tokens, d_model]`.
    tokens: Vec<u32>,
    states: Vec<f32>,
    /// Tokens of the text that the target computed.
    n_read: usize,
    /// The state at the last of them; zeros if it is not known.
    last_state: Vec<f32>,
}

impl DraftLayer {
    /// `n_vocab` is the number of rows of the target's head, `d_model` the width of the head's input.
    pub(super) fn new(engine: Box<dyn Engine>, n_vocab: usize, d_model: usize) -> DraftLayer {
        let short_head = ShortHead::new(engine.model(), ShortHeadSize::default());
        DraftLayer {
            layer: LayerEngine { engine, short_head },
            sequences: HashMap::new(),
            writer: GuessWriter::new(n_vocab),
            d_model,
            next_scope: FIRST_OWN_SCOPE,
        }
    }

    /// The same with a short head of another size, if the head is large enough for it.
    pub(super) fn with_short_head(mut self, size: ShortHeadSize) -> DraftLayer {
        self.layer.short_head = ShortHead::new(self.layer.engine.model(), size);
        self
    }

    pub(super) fn engine(&self) -> &dyn Engine {
        &*self.layer.engine
    }

    /// Time of its steps and guesses so far.
    pub(super) fn clock_ns(&self) -> u64 {
        self.layer.clock_ns()
    }

    pub(super) fn forget(&mut self, seq: SeqId) -> Result<(), Error> {
        match self.sequences.remove(&seq) {
            Some(state) => self.layer.engine.release(state.own),
            None => Ok(()),
        }
    }

    /// Tells that the target computed the tokens of the turn's context from `first` on: one for each of
    /// `states` `[_, d_model]`, as far as the target still holds them.
    pub(super) fn read(
        &mut self,
        seq: SeqId,
        turn: &Turn,
        first: usize,
        states: &[f32],
    ) -> Result<(), Error> {
        let d_model = self.d_model;
        let n_rows = (states.len() / d_model).min(turn.n_fed().saturating_sub(first));
        if n_rows == 0 {
            return Ok(());
        }
        let mut state = match self.sequences.remove(&seq) {
            Some(state) => state,
            None => self.sequence(turn.scope())?,
        };
        let read = self.read_into(&mut state, turn, first, &states[..n_rows * d_model]);
        self.sequences.insert(seq, state);
        read
    }

    /// An empty sequence.
    fn sequence(&mut self, scope: u64) -> Result<LayerSequence, Error> {
        let own = self.layer.engine.create()?;
        self.layer.engine.set_scope(own, scope)?;
        Ok(LayerSequence {
            own,
            first: 0,
            tokens: Vec::new(),
            states: Vec::new(),
            n_read: 0,
            last_state: vec![0.0; self.d_model],
        })
    }

    fn read_into(
        &mut self,
        state: &mut LayerSequence,
        turn: &Turn,
        first: usize,
        states: &[f32],
    ) -> Result<(), Error> {
        match state.n_read == first {
            true => self.drop_other(state, turn.context()[first])?,
            false => self.go_to(state, turn.context(), first)?,
        }
        let rows = states.chunks_exact(self.d_model);
        for (position, row) in (first..).zip(rows) {
            let token = turn.context()[position];
            if image::is_row(token) {
                self.begin(state, position + 1)?;
            } else if position
                >= state.first + self.layer.engine.len(state.own)? + state.tokens.len()
            {
                state.tokens.push(token);
                state.states.extend_from_slice(&state.last_state);
            }
            self.layer.read(&[token]);
            state.last_state.copy_from_slice(row);
            state.n_read = position + 1;
        }
        match state.tokens.len() >= PAGE_TOKENS {
            true => self.compute_pending(state),
            false => Ok(()),
        }
    }

    /// Brings a sequence to the place in its text from which on the target computes, wherever it was before.
    fn go_to(
        &mut self,
        state: &mut LayerSequence,
        context: &[u32],
        first: usize,
    ) -> Result<(), Error> {
        self.compute_pending(state)?;
        state.last_state.fill(0.0);
        // The target found these tokens in its cache. Guesses need rows for them all the same.
        let before = state.n_read.min(first)..first;
        self.layer.read(&context[before]);
        state.n_read = first;
        let between = (state.first <= first).then(|| &context[state.first..=first]);
        let n_held = match between {
            Some(text) if !text.iter().any(|token| image::is_row(*token)) => {
                state.first + self.layer.engine.reuse_prefix(state.own, text)?
            }
            _ => return self.begin(state, first),
        };
        if n_held + MAX_GAP < first {
            return self.begin(state, first);
        }
        state.tokens.extend_from_slice(&context[n_held..first]);
        state.states.resize((first - n_held) * self.d_model, 0.0);
        Ok(())
    }

    /// Gives up the row after the target's computed tokens, if it is that of another token than `token`.
    fn drop_other(&mut self, state: &LayerSequence, token: u32) -> Result<(), Error> {
        let n_true = state.n_read - state.first;
        match self.layer.engine.tokens(state.own)?.get(n_true) {
            Some(guessed) if *guessed != token => self.layer.engine.truncate(state.own, n_true),
            _ => Ok(()),
        }
    }

    /// Begins again at a position within the text. The rows from there on are useless to texts that begin with those tokens.
    fn begin(&mut self, state: &mut LayerSequence, first: usize) -> Result<(), Error> {
        self.layer.engine.set_scope(state.own, self.next_scope)?;
        self.next_scope = self.next_scope.wrapping_add(1) | FIRST_OWN_SCOPE;
        state.first = first;
        state.tokens.clear();
        state.states.clear();
        Ok(())
    }

    /// Computes the waiting tokens; if there is no room, begins again after them.
    fn compute_pending(&mut self, state: &mut LayerSequence) -> Result<(), Error> {
        let n_tokens = state.tokens.len();
        if n_tokens > self.layer.engine.room(&[state.own], 0)? {
            let first = state.first + self.layer.engine.len(state.own)? + n_tokens;
            return self.begin(state, first);
        }
        let n_rows = self.layer.engine.limits().max_chunk;
        let given = state.states.chunks(n_rows * self.d_model);
        for (tokens, given) in state.tokens.chunks(n_rows).zip(given) {
            let item = BatchItem {
                given,
                ..BatchItem::new(state.own, tokens, LogitsFor::None)
            };
            self.layer.engine.step(&[item], &mut self.writer.output)?;
        }
        state.tokens.clear();
        state.states.clear();
        Ok(())
    }

    /// Continues the turn's context as long as `goes_on` returns true, with a copy of the turn's sampler. Writes
    /// nothing if the target's last state is not known, or there is no room in the cache.
    pub(super) fn draft(
        &mut self,
        seq: SeqId,
        turn: &Turn,
        most: usize,
        out: &mut Vec<Guess>,
        goes_on: &mut dyn FnMut(&[Guess]) -> bool,
    ) -> Result<Drafting, Error> {
        let context = turn.context();
        let Some(mut state) = self.sequences.remove(&seq) else {
            return Ok(Drafting::default());
        };
        let before_ns = self.clock_ns();
        let drafted = match context.get(state.n_read..) {
            Some(&[token]) => self.draft_behind(&mut state, token, (turn, most), out, goes_on),
            _ => Ok((0, 0)),
        };
        self.sequences.insert(seq, state);
        let (n_read, read_ns) = drafted?;
        let total_ns = self.clock_ns() - before_ns;
        Ok(Drafting::new(total_ns, (n_read, read_ns), out.len()))
    }

    /// Continues after `token`, the only one that the target has not computed. Returns how many tokens were read first,
    /// and the time of that.
    fn draft_behind(
        &mut self,
        state: &mut LayerSequence,
        token: u32,
        (turn, most): (&Turn, usize),
        out: &mut Vec<Guess>,
        goes_on: &mut dyn FnMut(&[Guess]) -> bool,
    ) -> Result<(usize, u64), Error> {
        let before_ns = self.clock_ns();
        let (own, n_true) = (state.own, state.n_read - state.first);
        // The row of this token may be there already if nothing was checked since.
        self.layer.engine.truncate(own, n_true)?;
        let limits = self.layer.engine.limits();
        let n_new = state.tokens.len() + 1;
        // The last draft is not fed.
        let room = self.layer.engine.room(&[own], 0)?;
        let most = most.min((room + 1).saturating_sub(n_new));
        let most = most.min(limits.n_ctx.saturating_sub(n_true));
        if most == 0 {
            return Ok((0, 0));
        }
        if n_new > limits.max_chunk {
            self.compute_pending(state)?;
        }
        state.tokens.push(token);
        state.states.extend_from_slice(&state.last_state);
        let DraftLayer { layer, writer, .. } = self;
        let given = (&state.tokens[..], &state.states[..]);
        layer.step(own, given, &mut writer.output)?;
        state.tokens.clear();
        state.states.clear();
        let read_ns = layer.clock_ns() - before_ns;
        let (width, mut chained) = (self.d_model, Vec::new());
        let wrote = writer.write((turn, most), out, goes_on, &mut |token, output| {
            let rows = output.head_input(0);
            chained.clear();
            chained.extend_from_slice(&rows[rows.len() - width..]);
            layer.step(own, (&[token], &chained), output)
        });
        layer.engine.truncate(own, n_true + 1)?;
        wrote?;
        Ok((n_new, read_ns))
    }
}
