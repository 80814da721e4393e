//! Sets of prompts: two kinds of text at once in the quick set; more topics, lengths and shapes in the full one.

use crate::exit::CommandResult;
use millrace_runtime::LoadedModel;
use millrace_text::{EncodeOptions, Message, RenderOptions, Tokenizer};

/// Set of prompts to run.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromptSet {
    /// Two prompts
    Quick,
    /// Eight prompts, two chats where the model has a template, an end token within a prompt, and
    /// prompts of 700 and 2,500 tokens, or as many as the context holds
    Full,
}

/// A prompt for a model.
pub(super) struct VerifyPrompt {
    /// Text for people.
    pub(super) text: String,
    pub(super) tokens: Vec<u32>,
}

/// Prompts; those of the quick set come first.
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

/// Chats of a user: without a system prompt and with one.
const CHATS: [(Option<&str>, &str); 2] = [
    (None, "Who found the red ball, and where was it?"),
    (
        Some("Answer in one short sentence."),
        "Why does water freeze when it gets cold?",
    ),
];

/// Lengths of long prompts: several tiles of keys in one chunk, and more than the longest chunk.
const LONG: [usize; 2] = [700, 2500];

/// Prompts of a set, tokenized for a model; each leaves room for `n_tokens` more in its context.
pub(super) fn of(
    set: PromptSet,
    model: &LoadedModel,
    n_tokens: usize,
) -> CommandResult<Vec<VerifyPrompt>> {
    let tokenizer = model.tokenizer()?;
    let text = |text: &&str| VerifyPrompt {
        text: (*text).to_owned(),
        tokens: encode(&tokenizer, text, true),
    };
    let mut prompts: Vec<VerifyPrompt> = match set {
        PromptSet::Quick => return Ok(PROMPTS[..2].iter().map(text).collect()),
        PromptSet::Full => PROMPTS.iter().map(text).collect(),
    };
    prompts.extend(chats(model, &tokenizer)?);
    prompts.extend(with_end(&tokenizer));
    let room = model.model().config.context_length.saturating_sub(n_tokens);
    let mut lengths = LONG.map(|n| n.min(room)).to_vec();
    lengths.dedup();
    prompts.extend(
        lengths
            .into_iter()
            .filter(|n| *n > 0)
            .map(|n| long(&tokenizer, n)),
    );
    prompts.retain(|prompt| prompt.tokens.len() <= room.max(1));
    Ok(prompts)
}

/// A prompt of `n` tokens, where the context holds it.
pub(super) fn long_prompt(
    model: &LoadedModel,
    n: usize,
    n_tokens: usize,
) -> CommandResult<Option<VerifyPrompt>> {
    let tokenizer = model.tokenizer()?;
    let room = model.model().config.context_length.saturating_sub(n_tokens);
    Ok((n <= room).then(|| long(&tokenizer, n)))
}

/// Tokens of a text. Where it `begins` a prompt, they include the tokens that belong before it.
fn encode(tokenizer: &Tokenizer, text: &str, begins: bool) -> Vec<u32> {
    let options = EncodeOptions {
        add_special: false,
        parse_special: true,
    };
    match begins {
        true => tokenizer.encode_continued(text, true).0,
        false => tokenizer.encode(text, options),
    }
}

/// Chats in the model's own template; none where it has none.
fn chats(model: &LoadedModel, tokenizer: &Tokenizer) -> CommandResult<Vec<VerifyPrompt>> {
    let template = match model.chat_template() {
        Ok(template) => template,
        Err(millrace_runtime::Error::NoTemplate { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let options = RenderOptions {
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    let mut chats = Vec::new();
    for (system, user) in CHATS {
        let mut messages: Vec<Message> = system.map(Message::system).into_iter().collect();
        messages.push(Message::user(user));
        // A template may refuse a system prompt.
        let rendered = template.render_prompt(tokenizer, &messages, &options);
        let rendered = match rendered {
            Err(_) if system.is_some() => continue,
            rendered => rendered?,
        };
        chats.push(VerifyPrompt {
            text: format!("chat: {user}"),
            tokens: tokenizer.encode_prompt(&rendered),
        });
    }
    Ok(chats)
}

/// Two texts with an end token between them, which must not stop anything.
fn with_end(tokenizer: &Tokenizer) -> Option<VerifyPrompt> {
    let ends = tokenizer.end_of_generation();
    let end = tokenizer.eos().or_else(|| ends.first().copied())?;
    let mut tokens = encode(tokenizer, PROMPTS[3], true);
    tokens.push(end);
    tokens.extend(encode(tokenizer, PROMPTS[1], false));
    Some(VerifyPrompt {
        text: format!("{} (end token) {}", PROMPTS[3], PROMPTS[1]),
        tokens,
    })
}

/// `n` tokens of all texts over and over, each time from another position.
fn long(tokenizer: &Tokenizer, n: usize) -> VerifyPrompt {
    let mut tokens = encode(tokenizer, PROMPTS[7], true);
    let rest: Vec<Vec<u32>> = PROMPTS
        .iter()
        .map(|text| encode(tokenizer, text, false))
        .collect();
    let mut round = 0;
    while tokens.len() < n {
        let text = &rest[round * 3 % rest.len()];
        let skipped = round % text.len().max(1);
        tokens.extend(text.iter().skip(skipped));
        round += 1;
    }
    tokens.truncate(n);
    VerifyPrompt {
        text: format!("{n} tokens of stories"),
        tokens,
    }
}
