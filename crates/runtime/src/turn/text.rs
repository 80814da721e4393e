//! From tokens to text: thoughts, and the text of the answer up to a stop text.

use std::sync::Arc;

use super::Turn;
use super::thoughts::{Phase, Thinking, ThoughtScanner, TurnPiece};

/// Progress of a turn's thoughts.
#[derive(Debug)]
pub(super) struct ThoughtState {
    pub(super) scanner: ThoughtScanner,
    budget: Option<usize>,
    closing: Vec<u32>,
    n_tokens: usize,
    /// Where the model was before its last token.
    before: Phase,
    /// Text of the answer in its last token, after a thought that the token ended.
    begun: String,
}

impl Turn {
    /// The turn of a model that thinks: its text and its stop texts are the answer's, and thoughts are returned
    /// separately, by [`next_pieces`](Turn::next_pieces).
    #[must_use]
    pub fn with_thinking(mut self, thinking: &Thinking) -> Turn {
        let scanner = ThoughtScanner::new(thinking);
        self.thoughts = Some(ThoughtState {
            before: scanner.phase(),
            scanner,
            budget: thinking.budget,
            closing: thinking.closing.clone(),
            n_tokens: 0,
            begun: String::new(),
        });
        self.bound_thoughts();
        self
    }

    /// The turn with some control tokens printing their texts.
    #[must_use]
    pub fn showing(self, shown: Arc<[u32]>) -> Turn {
        Turn { shown, ..self }
    }

    /// Where the model is; always the answer if thoughts are not separated.
    pub fn phase(&self) -> Phase {
        let thoughts = self.thoughts.as_ref();
        thoughts.map_or(Phase::Answer, |thoughts| thoughts.scanner.phase())
    }

    /// Text of the answer in the last token, if that token also ended a thought.
    pub fn begun(&self) -> &str {
        let thoughts = self.thoughts.as_ref();
        thoughts.map_or("", |thoughts| &thoughts.begun)
    }

    /// Tokens drawn for thoughts, the texts around them among them.
    pub fn n_thought_tokens(&self) -> usize {
        self.thoughts
            .as_ref()
            .map_or(0, |thoughts| thoughts.n_tokens)
    }

    /// Thoughts and text added since the last call, in order. The text is that of [`next_text`](Turn::next_text), which
    /// then returns none of it.
    pub fn next_pieces(&mut self) -> Vec<TurnPiece> {
        if self.thoughts.is_some() {
            self.n_given = self.text.len();
            return std::mem::take(&mut self.pieces);
        }
        match self.next_text() {
            "" => Vec::new(),
            text => vec![TurnPiece::Answer(text.to_owned())],
        }
    }

    /// The stop text that ended the turn.
    pub fn stop_text(&self) -> Option<&str> {
        self.stop_text.as_deref()
    }

    /// Adds a piece to the text, except for a possible beginning of a stop text; true if a stop text is complete.
    pub(super) fn show(&mut self, piece: &str) -> bool {
        let Some(thoughts) = &mut self.thoughts else {
            return self.scan(piece);
        };
        let mut pieces = Vec::new();
        thoughts.scanner.push(piece, &mut pieces);
        thoughts.begun.clear();
        if let (Phase::Thought, Some(TurnPiece::Answer(text))) = (thoughts.before, pieces.last()) {
            thoughts.begun.push_str(text);
        }
        self.show_pieces(pieces)
    }

    pub(super) fn show_pieces(&mut self, pieces: Vec<TurnPiece>) -> bool {
        pieces.into_iter().any(|piece| match piece {
            TurnPiece::Answer(text) => self.scan(&text),
            thought @ TurnPiece::Thought(_) => {
                self.pieces.push(thought);
                false
            }
        })
    }

    /// Looks for stop texts, which are the answer's.
    fn scan(&mut self, text: &str) -> bool {
        let (text, stop) = self.scanner.push(text);
        self.answer(text);
        self.stop_text = stop;
        self.stop_text.is_some()
    }

    pub(super) fn answer(&mut self, text: String) {
        self.text.push_str(&text);
        if self.thoughts.is_some() && !text.is_empty() {
            self.pieces.push(TurnPiece::Answer(text));
        }
    }

    /// Counts the token that was shown last, if it is of a thought.
    pub(super) fn count_thought(&mut self) {
        if let Some(thoughts) = &mut self.thoughts {
            let phase = thoughts.scanner.phase();
            if [thoughts.before, phase].contains(&Phase::Thought) {
                thoughts.n_tokens += 1;
            }
            thoughts.before = phase;
            self.bound_thoughts();
        }
    }

    /// Ends a thought that has no more tokens, but not within a character.
    fn bound_thoughts(&mut self) {
        let Some(thoughts) = &self.thoughts else {
            return;
        };
        let is_spent = thoughts
            .budget
            .is_some_and(|most| thoughts.n_tokens >= most);
        if is_spent
            && thoughts.scanner.phase() == Phase::Thought
            && self.forced.is_empty()
            && !self.detokenizer.is_mid_character()
        {
            self.forced = thoughts.closing.iter().rev().copied().collect();
        }
    }
}
