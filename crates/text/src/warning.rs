//! Properties of a working vocabulary that a user should know.

use std::fmt;

/// A probable error in a vocabulary or a prompt that does not stop the work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A GGUF file does not name the rules by which its vocabulary splits texts.
    PreTokenizerMissing,
    /// The file asks for tokens behind every text, which would end a prompt before it is continued.
    SuffixLeftOut {
        /// The texts of those tokens.
        tokens: Vec<String>,
    },
    /// A prompt began with the token that is put in front of every text.
    BeginsTwice {
        /// The text of that token.
        token: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::PreTokenizerMissing => f.write_str(
                "the file names no pre-tokenizer (tokenizer.ggml.pre), so texts are split by the rules of \
                 `default`; other tokens than the model was trained on make its answers worse; convert the \
                 model again, or take a newer file",
            ),
            Warning::SuffixLeftOut { tokens } => write!(
                f,
                "the model's files ask for {} behind every text; prompts are to be continued, so it is left \
                 out of them; if the model is for generation, set add_eos_token to false in its files",
                tokens.join(" ")
            ),
            Warning::BeginsTwice { token } => write!(
                f,
                "the prompt begins with {token}, which the model's files put in front of every text; the \
                 model gets one of them; leave it out of the prompt"
            ),
        }
    }
}
