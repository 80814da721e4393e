//! Prompt in, text out: prefill, the decode loop, stop conditions and timings.

mod stop;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millrace_text::{DecodeOptions, Detokenizer, Tokenizer};

use crate::sampling::{Sampler, SamplingParams};
use crate::{BatchItem, Engine, Error, LogitsFor, SeqId};
use stop::StopScanner;

/// A sequence of an engine together with the tokens it holds, so that a prompt which begins with
/// them need not compute them again.
#[derive(Debug)]
pub struct Session {
    seq: SeqId,
    tokens: Vec<u32>,
}

impl Session {
    /// An empty session.
    ///
    /// # Errors
    /// [`Error::TooManySequences`].
    pub fn new(engine: &mut Engine) -> Result<Session, Error> {
        Ok(Session {
            seq: engine.create()?,
            tokens: Vec::new(),
        })
    }

    /// The sequence.
    pub fn seq(&self) -> SeqId {
        self.seq
    }

    /// Tokens whose keys and values are cached.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Forgets everything.
    ///
    /// # Errors
    /// [`Error::NoSequence`] if the engine does not know the sequence.
    pub fn clear(&mut self, engine: &mut Engine) -> Result<(), Error> {
        engine.truncate(self.seq, 0)?;
        self.tokens.clear();
        Ok(())
    }

    /// Gives the sequence back to the engine.
    ///
    /// # Errors
    /// [`Error::NoSequence`] if the engine does not know the sequence.
    pub fn close(self, engine: &mut Engine) -> Result<(), Error> {
        engine.release(self.seq)
    }

    /// Keeps the longest cached prefix of `prompt` that leaves at least its last token to compute.
    /// Returns its length.
    fn keep_prefix(&mut self, engine: &mut Engine, prompt: &[u32]) -> Result<usize, Error> {
        let same = self
            .tokens
            .iter()
            .zip(prompt)
            .take_while(|(a, b)| a == b)
            .count();
        let mut keep = same.min(prompt.len().saturating_sub(1));
        match engine.truncate(self.seq, keep) {
            Ok(()) => {}
            Err(Error::WindowGone { .. }) => {
                keep = 0;
                engine.truncate(self.seq, 0)?;
            }
            Err(error) => return Err(error),
        }
        self.tokens.truncate(keep);
        Ok(keep)
    }
}

/// What ends a generation and how tokens are drawn.
#[derive(Clone, Debug, Default)]
pub struct GenerateParams {
    /// How tokens are drawn.
    pub sampling: SamplingParams,
    /// Tokens to generate at most; `None` goes on until the model ends. A full context ends it in
    /// any case.
    pub max_tokens: Option<usize>,
    /// Texts that end the generation; they are not part of the result.
    pub stop: Vec<String>,
    /// Tokens that end the generation, besides the model's own.
    pub stop_tokens: Vec<u32>,
    /// Go on past the model's end-of-generation tokens.
    pub ignore_end: bool,
}

impl GenerateParams {
    /// Tokens that the context must have room for beside the prompt: one, if any is wanted. That
    /// fewer than `max_tokens` fit is no error: they are a maximum.
    pub fn least_tokens(&self) -> usize {
        self.max_tokens.unwrap_or(1).min(1)
    }
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model drew an end-of-generation token, or one of `stop_tokens`.
    Stop,
    /// One of the stop texts appeared.
    StopText,
    /// `max_tokens` were drawn.
    Length,
    /// The context is full.
    ContextFull,
    /// The caller cancelled.
    Cancelled,
}

/// Times of one generation, measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    /// Prompt tokens taken from the cache.
    pub n_cached: usize,
    /// Prompt tokens computed.
    pub n_prefill: usize,
    /// From the call to the first token drawn: the prompt's passes and one draw.
    pub prefill: Duration,
    /// Tokens drawn.
    pub n_decode: usize,
    /// Time of the passes after the first token.
    pub decode: Duration,
}

impl Timings {
    /// Prompt tokens a second.
    pub fn prefill_per_s(&self) -> f64 {
        rate(self.n_prefill, self.prefill)
    }

    /// Generated tokens a second; the first comes from the prefill and does not count.
    pub fn decode_per_s(&self) -> f64 {
        rate(self.n_decode.saturating_sub(1), self.decode)
    }
}

fn rate(n: usize, time: Duration) -> f64 {
    if time.is_zero() {
        0.0
    } else {
        n as f64 / time.as_secs_f64()
    }
}

/// A finished generation.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Tokens drawn, the ending one left out.
    pub tokens: Vec<u32>,
    /// Their text, up to a stop text.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// Times.
    pub timings: Timings,
}

/// What a generation tells its caller while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Prompt tokens computed so far, of how many.
    Prefill {
        /// Computed.
        done: usize,
        /// To compute.
        total: usize,
    },
    /// More text: whole characters, none of which can be the start of a stop text.
    Text(&'a str),
}

/// Generates after `prompt` (the whole context, not only what is new). The session then holds
/// the prompt and the tokens drawn, except perhaps the last.
///
/// `cancel` is looked at between passes; a cancelled generation returns what it has. The result
/// depends on model, prompt, parameters and instruction-set level only: not on threads, on chunks,
/// or on what the cache already held.
///
/// # Errors
/// An empty prompt, a prompt that leaves no room in the context (before any work), bad sampling
/// options, a model without tokenizer, logits that are not numbers.
pub fn generate(
    engine: &mut Engine,
    session: &mut Session,
    prompt: &[u32],
    params: &GenerateParams,
    cancel: &AtomicBool,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<Generation, Error> {
    let start = Instant::now();
    if prompt.is_empty() {
        return Err(Error::EmptyPrompt);
    }
    engine.check_context(prompt.len(), params.least_tokens())?;
    let mut sampler = Sampler::new(&params.sampling)?;
    prompt.iter().for_each(|token| sampler.accept(*token));
    let tokenizer = engine.model().tokenizer()?.clone();
    let mut run = Run::new(&tokenizer, &params.stop, on_event);
    let n_cached = session.keep_prefix(engine, prompt)?;
    run.generation.timings.n_cached = n_cached;
    if params.max_tokens == Some(0) {
        run.generation.finish = Finish::Length;
        return Ok(run.generation);
    }
    let Some(mut token) =
        run.prefill(engine, session, &prompt[n_cached..], &mut sampler, cancel)?
    else {
        return Ok(run.generation);
    };
    let first_token = start.elapsed();
    let is_end = |token: u32| {
        let model_end = !params.ignore_end && tokenizer.is_end_of_generation(token);
        model_end || params.stop_tokens.contains(&token)
    };
    let finish = loop {
        run.generation.timings.n_decode += 1;
        if is_end(token) {
            break Finish::Stop;
        }
        sampler.accept(token);
        if run.take_token(token) {
            break Finish::StopText;
        }
        if params
            .max_tokens
            .is_some_and(|max| run.generation.tokens.len() >= max)
        {
            break Finish::Length;
        }
        if session.tokens.len() >= engine.n_ctx() {
            break Finish::ContextFull;
        }
        if cancel.load(Ordering::Relaxed) {
            break Finish::Cancelled;
        }
        token = session.append(engine, &[token], LogitsFor::Last, &mut sampler)?;
    };
    run.generation.timings.prefill = first_token;
    run.generation.timings.decode = start.elapsed() - first_token;
    Ok(run.finish(finish))
}

impl Session {
    /// Computes `tokens` on top of what is cached; with logits, draws the token that follows.
    fn append(
        &mut self,
        engine: &mut Engine,
        tokens: &[u32],
        logits: LogitsFor,
        sampler: &mut Sampler,
    ) -> Result<u32, Error> {
        let output = engine.step(&[BatchItem {
            seq: self.seq,
            tokens,
            logits,
            hidden: false,
        }])?;
        self.tokens.extend_from_slice(tokens);
        if logits == LogitsFor::None {
            return Ok(0);
        }
        let row = output.logits(0);
        // One pass over the row finds NaN and infinities alike: 0 · x is 0 only for finite x.
        if row.iter().map(|logit| logit * 0.0).sum::<f32>() != 0.0 {
            return Err(Error::NotFinite {
                position: self.tokens.len() - 1,
            });
        }
        Ok(sampler.sample(row))
    }
}

/// A generation under way: from tokens to text without stop texts.
pub(crate) struct Run<'a> {
    detokenizer: Detokenizer,
    scanner: StopScanner,
    pub(crate) generation: Generation,
    on_event: &'a mut dyn FnMut(Event<'_>),
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        tokenizer: &Arc<Tokenizer>,
        stop: &[String],
        on_event: &'a mut dyn FnMut(Event<'_>),
    ) -> Run<'a> {
        // The text goes on where the prompt ended.
        let continuation = DecodeOptions {
            skip_special: true,
            text_start: false,
        };
        Run {
            detokenizer: Detokenizer::new(Arc::clone(tokenizer), continuation),
            scanner: StopScanner::new(stop),
            generation: Generation {
                tokens: Vec::new(),
                text: String::new(),
                finish: Finish::Cancelled,
                timings: Timings::default(),
            },
            on_event,
        }
    }

    /// Computes `new`, a chunk at a time, and draws the first token; `None` if cancelled.
    fn prefill(
        &mut self,
        engine: &mut Engine,
        session: &mut Session,
        new: &[u32],
        sampler: &mut Sampler,
        cancel: &AtomicBool,
    ) -> Result<Option<u32>, Error> {
        let total = new.len();
        let mut first = None;
        for tokens in new.chunks(engine.max_chunk()) {
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let done = self.generation.timings.n_prefill + tokens.len();
            let logits = if done == total {
                LogitsFor::Last
            } else {
                LogitsFor::None
            };
            first = Some(session.append(engine, tokens, logits, sampler)?);
            self.on_prefill(done, total);
        }
        Ok(first)
    }

    /// Counts prompt tokens computed so far, and tells.
    pub(crate) fn on_prefill(&mut self, done: usize, total: usize) {
        self.generation.timings.n_prefill = done;
        (self.on_event)(Event::Prefill { done, total });
    }

    /// Adds a token to the result; true if a stop text is complete.
    pub(crate) fn take_token(&mut self, token: u32) -> bool {
        self.generation.tokens.push(token);
        let piece = self.detokenizer.push(token);
        self.emit(&piece)
    }

    fn emit(&mut self, piece: &str) -> bool {
        let (text, stopped) = self.scanner.push(piece);
        if !text.is_empty() {
            (self.on_event)(Event::Text(&text));
            self.generation.text.push_str(&text);
        }
        stopped
    }

    pub(crate) fn finish(mut self, finish: Finish) -> Generation {
        self.generation.finish = finish;
        if finish != Finish::StopText {
            let rest = self.detokenizer.finish();
            if self.emit(&rest) {
                self.generation.finish = Finish::StopText;
                return self.generation;
            }
            let held = self.scanner.finish();
            if !held.is_empty() {
                (self.on_event)(Event::Text(&held));
                self.generation.text.push_str(&held);
            }
        }
        self.generation
    }
}
