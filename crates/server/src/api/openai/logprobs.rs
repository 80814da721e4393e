//! Log-probabilities of answers and of prompts, in the forms of both kinds of completions, which other routes use
//! too.

use millrace_text::Tokenizer;
use serde_json::{Map, Value, json};

use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::scheduler::{PromptToken, TokenLogprob};

/// Maximum number of likeliest tokens reported beside a token.
pub(crate) const MAX_TOP_LOGPROBS: usize = 20;

/// A finite log-probability: JSON has no infinity. OpenAI's documentation gives -9999 for very unlikely tokens.
fn finite(logprob: f64) -> f64 {
    logprob.max(-9999.0)
}

fn text_of(tokenizer: &Tokenizer, token: u32) -> String {
    String::from_utf8_lossy(&tokenizer.token_bytes(token)).into_owned()
}

/// Tokens of an answer, in the form of chat completions.
pub(super) fn chat_logprobs(tokenizer: &Tokenizer, tokens: &[TokenLogprob]) -> Value {
    json!({"content": token_logprobs(tokenizer, tokens), "refusal": null})
}

/// Tokens of an answer, each with `token`, `logprob`, `bytes`, and `top_logprobs` of the same form.
pub(crate) fn token_logprobs(tokenizer: &Tokenizer, tokens: &[TokenLogprob]) -> Vec<Value> {
    let one = |token: &TokenLogprob| {
        let mut value = token_logprob(tokenizer, token.token, token.logprob);
        let top = token.top.iter();
        let top = top.map(|(id, logprob)| token_logprob(tokenizer, *id, *logprob));
        value["top_logprobs"] = top.collect();
        value
    };
    tokens.iter().map(one).collect()
}

/// A token with its log-probability.
pub(crate) fn token_logprob(tokenizer: &Tokenizer, token: u32, logprob: f64) -> Value {
    let bytes = tokenizer.token_bytes(token);
    json!({
        "token": String::from_utf8_lossy(&bytes), "logprob": finite(logprob), "bytes": bytes.as_ref(),
    })
}

/// The form of the older API: parallel lists, for a repeated prompt and for the text after it.
#[derive(Default)]
pub(super) struct TextLogprobs {
    tokens: Vec<String>,
    logprobs: Vec<Value>,
    top: Vec<Value>,
    offsets: Vec<usize>,
    /// Number of characters in the texts of all tokens so far.
    next_offset: usize,
}

impl TextLogprobs {
    /// Lists whose first token starts at this character offset.
    pub(super) fn from_offset(next_offset: usize) -> TextLogprobs {
        TextLogprobs {
            next_offset,
            ..TextLogprobs::default()
        }
    }

    /// Number of characters in the texts of all tokens so far.
    pub(super) fn next_offset(&self) -> usize {
        self.next_offset
    }

    fn push(&mut self, tokenizer: &Tokenizer, token: u32, score: Option<(f64, &[(u32, f64)])>) {
        let text = text_of(tokenizer, token);
        let n_chars = text.chars().count();
        self.offsets.push(self.next_offset);
        self.next_offset += n_chars;
        self.tokens.push(text);
        let (logprob, top) = match score {
            None => (Value::Null, Value::Null),
            Some((logprob, top)) => {
                let top = top.iter();
                let top = top.map(|(id, x)| (text_of(tokenizer, *id), finite(*x).into()));
                (finite(logprob).into(), Value::Object(top.collect()))
            }
        };
        self.logprobs.push(logprob);
        self.top.push(top);
    }

    /// Adds the tokens of a prompt, with up to `n_top` of the likeliest tokens at each position.
    pub(super) fn push_prompt(
        &mut self,
        tokenizer: &Tokenizer,
        tokens: &[PromptToken],
        n_top: usize,
    ) {
        for PromptToken { token, score } in tokens {
            let score = score.as_ref();
            let score = score.map(|score| {
                let n_top = n_top.min(score.top.len());
                (score.logprob, &score.top[..n_top])
            });
            self.push(tokenizer, *token, score);
        }
    }

    /// Adds the tokens of an answer.
    pub(super) fn push_answer(&mut self, tokenizer: &Tokenizer, tokens: &[TokenLogprob]) {
        for token in tokens {
            self.push(tokenizer, token.token, Some((token.logprob, &token.top)));
        }
    }

    pub(super) fn json(self) -> Value {
        json!({
            "tokens": self.tokens, "token_logprobs": self.logprobs, "top_logprobs": self.top,
            "text_offset": self.offsets,
        })
    }
}

/// `prompt_logprobs` of a request, vLLM's addition to OpenAI's fields. They are reported with the whole answer.
pub(super) fn prompt_logprobs_field(fields: &Fields<'_>) -> Result<Option<usize>, ApiError> {
    let wanted = fields.usize_in("prompt_logprobs", 0, MAX_TOP_LOGPROBS)?;
    match wanted.is_some() && fields.bool("stream")?.unwrap_or(false) {
        true => Err(ApiError::field(
            "prompt_logprobs",
            "they are not streamed; set stream to false",
        )),
        false => Ok(wanted),
    }
}

/// vLLM's form: an object for each token, keyed by token id, and `null` for tokens without. It has the prompt's own
/// token and up to `n_top` of the likeliest.
pub(super) fn prompt_logprobs(
    tokenizer: &Tokenizer,
    tokens: &[PromptToken],
    n_top: usize,
) -> Value {
    let entry = |token: u32, logprob: f64, rank: usize| {
        let text = text_of(tokenizer, token);
        let entry = json!({"logprob": finite(logprob), "rank": rank, "decoded_token": text});
        (token.to_string(), entry)
    };
    let tokens = tokens.iter().map(|PromptToken { token, score }| {
        let Some(score) = score else {
            return Value::Null;
        };
        let own = entry(*token, score.logprob, score.rank);
        let top = score.top.iter().enumerate().take(n_top);
        let top = top.filter(|(_, (id, _))| id != token);
        let top = top.map(|(i, (id, logprob))| entry(*id, *logprob, i + 1));
        Value::Object(std::iter::once(own).chain(top).collect::<Map<_, _>>())
    });
    tokens.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_has_a_number_all_the_same() {
        let tokenizer = &crate::api::tools::tests::demo().0;
        let impossible = token_logprob(tokenizer, 0, f64::NEG_INFINITY);
        assert_eq!(impossible["logprob"], -9999.0);
        let mut lists = TextLogprobs::default();
        let token = TokenLogprob {
            token: 0,
            logprob: f64::NEG_INFINITY,
            top: vec![(1, f64::NEG_INFINITY)],
        };
        lists.push_answer(tokenizer, &[token]);
        let lists = lists.json();
        assert_eq!(lists["token_logprobs"][0], -9999.0);
        let top = lists["top_logprobs"][0].as_object().unwrap();
        assert!(top.values().all(|logprob| *logprob == -9999.0), "{lists}");
    }
}
