//! The prompts: two kinds of text at once in the quick set, more topics and lengths in the full one.

use millrace_text::{EncodeOptions, Tokenizer};

/// Which prompts to run.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromptSet {
    /// Two prompts
    Quick,
    /// Eight prompts
    Full,
}

/// The quick set comes first.
const PROMPTS: [&str; 8] = [
    "The capital of France is",
    "Once upon a time, there was a little girl who lived near the woods. One day she",
    "The quick brown fox jumps over the lazy dog. The dog",
    "2 + 2 = 4. 3 + 5 =",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Water boils when it gets hot, and it freezes when it gets",
    "Monday, Tuesday, Wednesday, Thursday,",
    "Ann had a red ball and Ben had a blue kite. They met at the river, where the wind was strong. \
     Ben let go of the string by mistake, and the kite flew over the trees. Ann ran after it, looked \
     behind every bush and under every bench, and at last she found",
];

impl PromptSet {
    /// Its prompts.
    pub(super) fn texts(self) -> &'static [&'static str] {
        match self {
            PromptSet::Quick => &PROMPTS[..2],
            PromptSet::Full => &PROMPTS,
        }
    }
}

/// A prompt as `run` gives it to a model.
pub(super) fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let options = EncodeOptions {
        add_special: true,
        parse_special: true,
    };
    tokenizer.encode(text, options)
}
