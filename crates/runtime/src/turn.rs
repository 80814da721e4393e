//! One turn of a conversation: from a prompt to the text that follows it, without a loop.
//!
//! A [`Turn`] owns everything a generation needs besides an engine: the sampler, stop texts, the
//! streaming detokenizer, and the limits. It never calls an engine. Its driver asks for the tokens
//! to [`feed`](Turn::feed) next, has an engine compute them, reports how many were
//! [`fed`](Turn::fed), and pushes the logits in. So a terminal can drive one turn and a server
//! hundreds in one ragged batch. A driver that drafts tokens pushes a row for each checked draft.
//!
//! ```text
//!            ┌─ feed(most) ─► tokens, which logits ─► Engine::step ─┐
//!  new ─► resume(n_cached)                                          ├─► next_text, finish
//!            └──────────── push_logits(row) ◄── fed(n) ◄────────────┘
//! ```

mod stop;
mod text;
mod thoughts;

use std::sync::Arc;
use std::time::Instant;

use millrace_text::{DecodeOptions, Detokenizer, Tokenizer};

use crate::Error;
use crate::engine::{LogitsFor, check_context};
use crate::generate::{Finish, GenerateParams, Generation, Timings};
use crate::image::{self, Image};
use crate::load::LoadedModel;
use crate::sampling::{Sampler, TokenTexts, all_finite};
use stop::StopScanner;
use text::ThoughtState;
pub use thoughts::{Phase, Thinking, TurnPiece};

/// Next tokens of a turn for an engine to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feed<'a> {
    /// Tokens to append; at least one.
    pub tokens: &'a [u32],
    /// [`LogitsFor::Last`] if these are all the tokens to feed, after which the turn waits for
    /// logits; [`LogitsFor::None`] in the middle of a prompt.
    pub logits: LogitsFor,
}

/// A generation under way.
#[derive(Debug)]
pub struct Turn {
    tokenizer: Arc<Tokenizer>,
    sampler: Sampler,
    detokenizer: Detokenizer,
    scanner: StopScanner,
    /// The stop text that was found.
    stop_text: Option<String>,
    thoughts: Option<ThoughtState>,
    /// Control tokens that print their texts all the same.
    shown: Arc<[u32]>,
    stop_tokens: Vec<u32>,
    ignore_end: bool,
    show_special: bool,
    max_tokens: Option<usize>,
    n_ctx: usize,
    /// The prompt, then the tokens drawn.
    tokens: Vec<u32>,
    n_prompt: usize,
    /// Images that tokens of the prompt are rows of.
    images: Vec<Arc<Image>>,
    /// Scope of the sequences that it runs on.
    scope: u64,
    /// How many of `tokens` the engine holds.
    n_fed: usize,
    text: String,
    /// Bytes of `text` that [`Turn::next_text`] has returned.
    n_given: usize,
    /// For a turn that separates thoughts: the pieces that [`Turn::next_pieces`] has not returned yet.
    pieces: Vec<TurnPiece>,
    /// Used instead of drawn tokens, the next one last.
    forced: Vec<u32>,
    finish: Option<Finish>,
    timings: Timings,
    start: Instant,
    first_token: Option<Instant>,
}

impl Turn {
    /// A turn after `prompt` (the whole context, not only the new part) in a context of `n_ctx` tokens.
    ///
    /// # Errors
    /// An empty prompt, one that leaves no room for a token, tokens outside the vocabulary, bad
    /// sampling options, a model without tokenizer.
    pub fn new(
        model: &LoadedModel,
        prompt: &[u32],
        params: &GenerateParams,
        n_ctx: usize,
    ) -> Result<Turn, Error> {
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        check_context(prompt.len(), params.least_tokens(), n_ctx, model)?;
        let vocab_size = model.model().config.vocab_size;
        let text = prompt.iter().filter(|token| !image::is_row(**token));
        if let Some(&token) = text.clone().find(|token| **token as usize >= vocab_size) {
            return Err(Error::BadToken { token, vocab_size });
        }
        let tokenizer = model.tokenizer()?;
        let texts: Arc<dyn TokenTexts> = tokenizer.clone();
        let mut sampler = Sampler::new(&params.sampling, Some(&texts))?;
        sampler.read(text.copied());
        // The text goes on where the prompt ended.
        let continuation = DecodeOptions {
            skip_special: !params.show_special,
            text_start: false,
        };
        Ok(Turn {
            detokenizer: Detokenizer::new(Arc::clone(&tokenizer), continuation),
            tokenizer,
            sampler,
            scanner: StopScanner::new(&params.stop),
            stop_text: None,
            thoughts: None,
            shown: Arc::default(),
            stop_tokens: params.stop_tokens.clone(),
            ignore_end: params.ignore_end,
            show_special: params.show_special,
            max_tokens: params.max_tokens,
            n_ctx,
            tokens: prompt.to_vec(),
            n_prompt: prompt.len(),
            images: Vec::new(),
            scope: 0,
            n_fed: 0,
            text: String::new(),
            n_given: 0,
            pieces: Vec::new(),
            forced: Vec::new(),
            finish: (params.max_tokens == Some(0)).then_some(Finish::Length),
            timings: Timings::default(),
            start: Instant::now(),
            first_token: None,
        })
    }

    /// The turn with the images that tokens of its prompt are rows of ([`Image::ids`]).
    #[must_use]
    pub fn with_images(self, images: Vec<Arc<Image>>) -> Turn {
        Turn { images, ..self }
    }

    /// The turn in a scope other than 0: it finds only pages that turns of the same scope left in caches. The
    /// caller that creates its sequence must call [`Engine::set_scope`](crate::Engine::set_scope).
    #[must_use]
    pub fn with_scope(self, scope: u64) -> Turn {
        Turn { scope, ..self }
    }

    /// Its scope.
    pub fn scope(&self) -> u64 {
        self.scope
    }

    /// The turn with a text that is already known: these tokens replace the first ones drawn. For
    /// measurements, and to follow a reference.
    #[must_use]
    pub fn forcing(self, tokens: &[u32]) -> Turn {
        let forced = tokens.iter().rev().copied().collect();
        Turn { forced, ..self }
    }

    /// The turn with a prompt that is read even if nothing is to be written after it. With `max_tokens` of 0 it does not end by
    /// itself: its driver [ends](Turn::end) it when the prompt is [read](Turn::reads_prompt).
    #[must_use]
    pub fn reading_all(self) -> Turn {
        Turn {
            finish: None,
            ..self
        }
    }

    /// Images for the engine with every [`feed`](Turn::feed), as
    /// [`BatchItem::images`](crate::BatchItem::images).
    pub fn images(&self) -> &[Arc<Image>] {
        &self.images
    }

    /// The prompt.
    pub fn prompt(&self) -> &[u32] {
        &self.tokens[..self.n_prompt]
    }

    /// The prompt and the tokens drawn.
    pub fn context(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens of the [`context`](Turn::context) that the engine holds, as far as it was reported to the turn.
    pub fn n_fed(&self) -> usize {
        self.n_fed
    }

    /// The sampler, in its state before the next token.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Tokens that may still be drawn before a limit is reached.
    pub fn wanted(&self) -> usize {
        if self.finish.is_some() {
            return 0;
        }
        let n_drawn = self.tokens.len() - self.n_prompt;
        let most = self.max_tokens.unwrap_or(usize::MAX);
        let room = (self.n_ctx + 1).saturating_sub(self.tokens.len());
        most.saturating_sub(n_drawn).min(room)
    }

    /// Whether the turn ends if this token is drawn.
    pub fn ends_with(&self, token: u32) -> bool {
        let model_end = !self.ignore_end && self.tokenizer.is_end_of_generation(token);
        model_end || self.stop_tokens.contains(&token)
    }

    /// Reports that the engine already holds the first `n_cached` tokens of the prompt, as from
    /// [`reuse_prefix`](crate::Engine::reuse_prefix). At least the last token is fed all the same.
    pub fn resume(&mut self, n_cached: usize) {
        self.n_fed = n_cached.min(self.n_prompt - 1);
        self.timings.n_cached = self.n_fed;
    }

    /// Tokens to compute next, at most `most` (but one if that is 0, and a whole image if one comes
    /// next: images are not cut). `None` when the turn has ended, and while it waits for the logits
    /// of the tokens fed.
    pub fn feed(&self, most: usize) -> Option<Feed<'_>> {
        let rest = &self.tokens[self.n_fed..];
        if self.finish.is_some() || rest.is_empty() {
            return None;
        }
        let n = match image::cut_before(rest, most.max(1)) {
            0 => image::unit_len(rest),
            n => n,
        };
        let tokens = &rest[..n];
        let logits = if tokens.len() == rest.len() {
            LogitsFor::Last
        } else {
            LogitsFor::None
        };
        Some(Feed { tokens, logits })
    }

    /// Reports that the engine holds `n` more tokens of those that [`feed`](Turn::feed) returned.
    pub fn fed(&mut self, n: usize) {
        self.n_fed = self.n_fed.saturating_add(n).min(self.tokens.len());
        self.timings.n_prefill = self.n_fed.min(self.n_prompt) - self.timings.n_cached;
    }

    /// Prompt tokens computed so far, and to compute in all; cached tokens are not counted.
    pub fn prefill(&self) -> (usize, usize) {
        let total = self.n_prompt - self.timings.n_cached;
        (self.timings.n_prefill, total)
    }

    /// Whether some of the prompt is still to be fed.
    pub fn reads_prompt(&self) -> bool {
        self.n_fed < self.n_prompt
    }

    /// Draws the next token from a row of logits, adds it, and returns it: `None` if the turn has
    /// already ended.
    ///
    /// # Errors
    /// [`Error::NotFinite`], [`Error::AllEqual`]; then the turn is unchanged.
    pub fn push_logits(&mut self, row: &[f32]) -> Result<Option<u32>, Error> {
        if self.finish.is_some() {
            return Ok(None);
        }
        if !all_finite(row) {
            let position = self.tokens.len() - 1;
            return Err(Error::NotFinite { position });
        }
        if all_equal(row) {
            let position = self.tokens.len() - 1;
            return Err(Error::AllEqual { position });
        }
        let drawn = self.sampler.sample(row);
        let token = self.forced.pop().unwrap_or(drawn);
        self.push_token(token);
        Ok(Some(token))
    }

    /// Adds a token that was chosen elsewhere. Does nothing once the turn has ended.
    pub fn push_token(&mut self, token: u32) {
        if self.finish.is_some() {
            return;
        }
        self.first_token.get_or_insert_with(Instant::now);
        self.timings.n_decode += 1;
        if self.ends_with(token) {
            if self.show_special {
                let piece = self.detokenizer.push(token);
                self.show(&piece);
            }
            return self.end(Finish::Stop);
        }
        self.sampler.accept(token);
        self.tokens.push(token);
        let piece = match self.shown.contains(&token) {
            true => self.detokenizer.push_shown(token),
            false => self.detokenizer.push(token),
        };
        let has_stopped = self.show(&piece);
        self.count_thought();
        if has_stopped {
            return self.end(Finish::StopText);
        }
        let n_drawn = self.tokens.len() - self.n_prompt;
        if self.max_tokens.is_some_and(|max| n_drawn >= max) {
            return self.end(Finish::Length);
        }
        // The next token would need this one in the context.
        if self.tokens.len() > self.n_ctx {
            self.end(Finish::ContextFull);
        }
    }

    /// Ends the turn at the caller's request.
    pub fn cancel(&mut self) {
        self.end(Finish::Cancelled);
    }

    /// Ends the turn for a reason that only the driver knows, such as a full cache of the engine. Does
    /// nothing once it has ended. Text that was held back because it might begin a stop text is shown.
    pub fn end(&mut self, finish: Finish) {
        if self.finish.is_some() {
            return;
        }
        self.finish = Some(finish);
        let now = Instant::now();
        let first_token = self.first_token.unwrap_or(now);
        self.timings.prefill = first_token - self.start;
        self.timings.decode = now - first_token;
        if finish != Finish::StopText {
            let rest = self.detokenizer.finish();
            let mut stopped = self.show(&rest);
            if let Some(thoughts) = self.thoughts.as_mut().filter(|_| !stopped) {
                let mut pieces = Vec::new();
                thoughts.scanner.finish(&mut pieces);
                stopped = self.show_pieces(pieces);
            }
            if stopped {
                self.finish = Some(Finish::StopText);
            } else {
                let rest = self.scanner.finish();
                self.answer(rest);
            }
        }
    }

    /// The text added since the last call: whole characters, none of which may begin a stop text.
    /// Often empty.
    pub fn next_text(&mut self) -> &str {
        let given = std::mem::replace(&mut self.n_given, self.text.len());
        &self.text[given..]
    }

    /// Why the turn ended; `None` while it goes on.
    pub fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// Tokens drawn, the ending one left out.
    pub fn drawn(&self) -> &[u32] {
        &self.tokens[self.n_prompt..]
    }

    /// Counts and times so far. Times are set when the turn ends; they run from its creation.
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// The result. A turn that has not ended counts as cancelled.
    pub fn into_generation(mut self) -> Generation {
        self.cancel();
        Generation {
            tokens: self.tokens.split_off(self.n_prompt),
            text: self.text,
            finish: self.finish.unwrap_or(Finish::Cancelled),
            timings: self.timings,
        }
    }
}

/// Whether a vocabulary of more than one token has one logit: no trained model computes that.
fn all_equal(row: &[f32]) -> bool {
    let (Some(first), true) = (row.first(), row.len() > 1) else {
        return false;
    };
    row.iter().all(|logit| logit == first)
}

#[cfg(test)]
mod tests;
