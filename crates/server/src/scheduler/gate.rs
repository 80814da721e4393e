//! Where an answer's grammar takes hold, if the model thinks first.

use std::sync::Arc;

use millrace_runtime::Thinking;
use millrace_text::{EncodeOptions, Tokenizer};

/// What a grammar cannot have: below every logit, and finite.
const STRUCK_OUT: f32 = f32::MIN;

/// What holds before a grammar does.
pub(super) struct ThoughtGate {
    tokenizer: Arc<Tokenizer>,
    /// The token that begins a thought, if one token does: it may be drawn where the answer may begin.
    pub(super) open: Option<u32>,
}

impl ThoughtGate {
    /// Of a model that thinks in some way.
    pub(super) fn new(tokenizer: Arc<Tokenizer>, thinking: &Thinking) -> ThoughtGate {
        ThoughtGate {
            open: tokenizer.id_of(&thinking.open),
            tokenizer,
        }
    }

    /// An answer does not end within a thought, before its form has begun.
    pub(super) fn strike_ends(&self, row: &mut [f32]) {
        for end in self.tokenizer.end_of_generation() {
            if let Some(logit) = row.get_mut(*end as usize) {
                *logit = STRUCK_OUT;
            }
        }
    }

    /// The tokens of what stands behind a thought in the token that ended it. White space there belongs to the thought.
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
