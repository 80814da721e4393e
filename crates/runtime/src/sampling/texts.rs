//! Stages that read the texts of tokens.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_text::Tokenizer;

use super::stages::{RULED_OUT, StageContext, TokenCandidate};

/// The texts of a vocabulary's tokens.
pub trait TokenTexts: fmt::Debug + Send + Sync {
    /// The number of tokens.
    fn n_tokens(&self) -> usize;
    /// Text of a token; empty outside the vocabulary.
    fn bytes(&self, token: u32) -> Cow<'_, [u8]>;
}

impl TokenTexts for Tokenizer {
    fn n_tokens(&self) -> usize {
        self.n_vocab()
    }

    /// Control tokens print nothing in an answer.
    fn bytes(&self, token: u32) -> Cow<'_, [u8]> {
        match self.is_special(token) {
            true => Cow::default(),
            false => self.token_bytes(token),
        }
    }
}

/// Texts across which no repetition reaches.
#[derive(Clone, Debug)]
pub struct Breakers {
    breakers: Vec<String>,
    texts: Option<Arc<dyn TokenTexts>>,
}

impl PartialEq for Breakers {
    fn eq(&self, other: &Breakers) -> bool {
        self.breakers == other.breakers
    }
}

impl Breakers {
    /// Breakers with those texts; none without the texts of tokens.
    pub fn new(breakers: &[String], texts: Option<Arc<dyn TokenTexts>>) -> Breakers {
        Breakers {
            breakers: breakers.to_vec(),
            texts,
        }
    }

    /// The number of tokens after the last one in which a breaker ends.
    pub(super) fn reach(&self, tokens: &[u32]) -> usize {
        let Some(texts) = &self.texts else {
            return tokens.len();
        };
        let most = self.breakers.iter().map(String::len).max().unwrap_or(0);
        // The text of a token with as much before it as a breaker may need, from the last token back.
        for n_behind in 0..tokens.len() {
            let end = tokens.len() - n_behind;
            let n_own = texts.bytes(tokens[end - 1]).len();
            if n_own == 0 {
                continue;
            }
            let text = tail(&tokens[..end], n_own + most.saturating_sub(1), &**texts);
            let n_before = text.len().saturating_sub(n_own);
            if self
                .breakers
                .iter()
                .any(|breaker| ends_behind(&text, breaker, n_before))
            {
                return n_behind;
            }
        }
        tokens.len()
    }

    /// Whether a token's text contains a breaker.
    pub(super) fn is_in(&self, token: u32) -> bool {
        let Some(texts) = &self.texts else {
            return false;
        };
        let bytes = texts.bytes(token);
        self.breakers
            .iter()
            .any(|breaker| contains(&bytes, breaker.as_bytes()))
    }
}

/// Whether `part` occurs in `text` and ends after `from`.
fn ends_behind(text: &[u8], part: &str, from: usize) -> bool {
    let start = (from + 1).saturating_sub(part.len());
    contains(&text[start..], part.as_bytes())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The last `most` bytes of the tokens' text, or fewer if the text is shorter.
fn tail(tokens: &[u32], most: usize, texts: &dyn TokenTexts) -> Vec<u8> {
    let mut first = tokens.len();
    let mut n_bytes = 0;
    while first > 0 && n_bytes < most {
        first -= 1;
        n_bytes += texts.bytes(tokens[first]).len();
    }
    let mut text = Vec::with_capacity(n_bytes);
    tokens[first..]
        .iter()
        .for_each(|token| text.extend_from_slice(&texts.bytes(*token)));
    text.drain(..n_bytes.saturating_sub(most));
    text
}

/// The tokens that complete a text, by the text and the length already written.
type Completions = HashMap<(usize, usize), Arc<[u32]>>;

/// Texts that an answer must not contain. A token that would complete one is ruled out, whatever the tokens before
/// it. If a grammar allows nothing else, the text is let through.
#[derive(Clone)]
pub struct BannedTexts {
    banned: Arc<[Box<[u8]>]>,
    texts: Arc<dyn TokenTexts>,
    /// The tokens that complete a text, by the text and the length already written.
    completions: Arc<Mutex<Completions>>,
}

impl fmt::Debug for BannedTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BannedTexts").finish_non_exhaustive()
    }
}

impl PartialEq for BannedTexts {
    fn eq(&self, other: &BannedTexts) -> bool {
        self.banned == other.banned
    }
}

impl BannedTexts {
    /// Bans those texts, none of which may be empty.
    pub fn new(banned: &[String], texts: Arc<dyn TokenTexts>) -> BannedTexts {
        BannedTexts {
            banned: banned.iter().map(|text| text.as_bytes().into()).collect(),
            texts,
            completions: Arc::default(),
        }
    }

    pub(super) fn apply(&self, candidates: &mut Vec<TokenCandidate>, context: &StageContext<'_>) {
        let answer = &context.history[context.n_prompt.min(context.history.len())..];
        let most = self.banned.iter().map(|text| text.len()).max().unwrap_or(0);
        let written = tail(answer, most.saturating_sub(1), &*self.texts);
        let mut banned = vec![false; self.texts.n_tokens()];
        for (i, text) in self.banned.iter().enumerate() {
            for n_written in (0..text.len()).filter(|n| written.ends_with(&text[..*n])) {
                for token in &*self.completions(i, n_written) {
                    banned[*token as usize] = true;
                }
            }
        }
        let is_free = |c: &TokenCandidate| !banned.get(c.token as usize).is_some_and(|is| *is);
        if candidates.iter().any(|c| is_free(c) && c.logit > RULED_OUT) {
            candidates.retain(is_free);
        }
    }

    fn completions(&self, text: usize, n_written: usize) -> Arc<[u32]> {
        let mut known = self
            .completions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let entry = known.entry((text, n_written)).or_insert_with(|| {
            let (text, rest) = (&self.banned[text], &self.banned[text][n_written..]);
            let completes = |token: &u32| match (self.texts.bytes(*token), n_written) {
                (bytes, 0) => contains(&bytes, text),
                (bytes, _) => bytes.starts_with(rest),
            };
            let n_tokens = u32::try_from(self.texts.n_tokens()).unwrap_or(u32::MAX);
            (0..n_tokens).filter(completes).collect()
        });
        Arc::clone(entry)
    }
}
