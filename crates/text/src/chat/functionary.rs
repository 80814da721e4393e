//! The messages of Functionary 3.2: each begins with a line that names its recipient.
//!
//! A prompt ends with the mark before that line, which the model writes: `all` means the user, another name a function. Where no function
//! may be called, only one line is possible.

use super::ChatTemplate;
use crate::{EncodeOptions, Tokenizer};

/// Mark at the beginning of a message.
pub const MARK: &str = ">>>";

/// The name of the user in a message.
pub const USER: &str = "all";

/// The line before a message to the user.
pub const TO_USER: &str = "all\n";

/// Strings that identify templates of this kind.
pub const SIGNS: [&str; 2] = [">>>all", ">>>${recipient}"];

/// The tokens to append to a prompt before an answer that is a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextOpening {
    /// As a model would have written it.
    pub text: &'static str,
    /// Its tokens.
    pub tokens: Vec<u32>,
}

impl ChatTemplate {
    /// The text to append to `prompt`, which this template rendered, before an answer that calls no function, so that the answer is its
    /// text and nothing else. Most prompts need nothing.
    pub fn text_opening(&self, tokenizer: &Tokenizer, prompt: &str) -> Option<TextOpening> {
        let has_sign = |sign: &&str| self.sources().any(|source| source.contains(*sign));
        if !prompt.ends_with(MARK) || !SIGNS.iter().all(has_sign) {
            return None;
        }
        let options = EncodeOptions {
            add_special: false,
            parse_special: false,
        };
        Some(TextOpening {
            text: TO_USER,
            tokens: tokenizer.encode(TO_USER, options),
        })
    }
}
