//! Decides when an answer's grammar applies, if the model thinks first.

use std::sync::Arc;

use millrace_runtime::Thinking;
use millrace_text::{EncodeOptions, Tokenizer};

/// Logit of a masked token: below every other logit, and finite.
const STRUCK_OUT: f32 = f32::MIN;

/// The rules that apply before a grammar does.
pub(super) struct ThoughtGate {
    tokenizer: Arc<Tokenizer>,
    /// The tokens that begin a thought, if the first of them has no other meaning. They may be drawn where the answer
    /// may begin.
    open: Vec<u32>,
}

impl ThoughtGate {
    /// The gate for a model that thinks in this way.
    pub(super) fn new(tokenizer: Arc<Tokenizer>, thinking: &Thinking) -> ThoughtGate {
        let options = EncodeOptions {
            add_special: false,
            parse_special: true,
        };
        let open = tokenizer.encode(&thinking.open, options);
        let is_plain = match open[..] {
            [_] => true,
            [first, ..] => tokenizer.is_special(first),
            [] => false,
        };
        ThoughtGate {
            open: if is_plain { open } else { Vec::new() },
            tokenizer,
        }
    }

    /// The next of the tokens that begin a thought, after `n_drawn` of them.
    pub(super) fn opening(&self, n_drawn: usize) -> Option<u32> {
        self.open.get(n_drawn).copied()
    }

    /// Masks all but one token of a row.
    pub(super) fn only(&self, token: u32, row: &mut [f32]) {
        for (id, logit) in row.iter_mut().enumerate() {
            if id != token as usize {
                *logit = STRUCK_OUT;
            }
        }
    }

    /// Masks the end tokens: an answer does not end within a thought, before its form has begun.
    pub(super) fn strike_ends(&self, row: &mut [f32]) {
        for end in self.tokenizer.end_of_generation() {
            if let Some(logit) = row.get_mut(*end as usize) {
                *logit = STRUCK_OUT;
            }
        }
    }

    /// The tokens of the text that follows a thought within its last token. White space there belongs to the thought.
    pub(super) fn tokens(&self, begun: &str) -> Vec<u32> {
        let options = EncodeOptions {
            add_special: false,
            parse_special: false,
        };
        match begun.trim() {
            "" => Vec::new(),
            text => self.tokenizer.encode(text, options),
        }
    }
}
