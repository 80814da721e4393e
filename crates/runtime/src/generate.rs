//! Prompt in, text out: one turn on one sequence of an engine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::Error;
use crate::engine::{BatchItem, Engine, LogitsFor, StepOutput};
use crate::sampling::SamplingParams;
use crate::sequences::SeqId;
use crate::speculate::{MAX_DRAFTS, Speculator, clock_ns};
use crate::turn::Turn;

/// How a generation ends and how tokens are drawn.
#[derive(Clone, Debug, Default)]
pub struct GenerateParams {
    /// How tokens are drawn.
    pub sampling: SamplingParams,
    /// Tokens to generate at most; `None` goes on until the model ends. Either stops where the context
    /// is full.
    pub max_tokens: Option<usize>,
    /// Texts that end the generation; they are not part of the result.
    pub stop: Vec<String>,
    /// Tokens that end the generation, besides the model's own.
    pub stop_tokens: Vec<u32>,
    /// Go on past the model's end-of-generation tokens.
    pub ignore_end: bool,
    /// Control tokens print their texts, including the ending token.
    pub show_special: bool,
}

impl GenerateParams {
    /// Tokens that the context must have room for besides the prompt: one, if any is requested. It
    /// is no error if fewer than `max_tokens` fit: they are a maximum.
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
    /// From the start to the first token drawn: the prompt's passes and one draw.
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

/// Its text.
impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Events of a running generation.
#[derive(Clone, Copy, Debug)]
pub enum GenerationEvent<'a> {
    /// Prompt tokens computed so far, of how many.
    Prefill {
        /// Computed.
        done: usize,
        /// To compute.
        total: usize,
    },
    /// More text: whole characters, none of which may begin a stop text.
    Text(&'a str),
}

/// Generates after `prompt` (the whole context, not only the new part) in the sequence `seq`. The
/// sequence then holds the prompt and the tokens drawn, except perhaps the last. A part of the prompt
/// that it or an earlier sequence held is not computed again.
///
/// `cancel` is checked between passes; a cancelled generation returns its text so far. The result
/// depends only on model, prompt, parameters and instruction-set level: not on threads, on chunks,
/// or on earlier contents of the cache.
///
/// # Errors
/// An empty prompt, one that leaves no room for a token in the context (before any work), bad sampling
/// options, a model without tokenizer, a full cache, logits that are not finite.
pub fn generate(
    engine: &mut dyn Engine,
    seq: SeqId,
    prompt: &[u32],
    params: &GenerateParams,
    cancel: &AtomicBool,
    on_event: &mut dyn FnMut(GenerationEvent<'_>),
) -> Result<Generation, Error> {
    let turn = Turn::new(engine.model(), prompt, params, engine.limits().n_ctx)?;
    generate_turn(engine, seq, turn, cancel, on_event)
}

/// As [`generate`], for an existing turn, which may have images.
///
/// # Errors
/// A full cache, images if the engine does not support them, logits that are not finite.
pub fn generate_turn(
    engine: &mut dyn Engine,
    seq: SeqId,
    turn: Turn,
    cancel: &AtomicBool,
    on_event: &mut dyn FnMut(GenerationEvent<'_>),
) -> Result<Generation, Error> {
    speculate_turn(engine, seq, turn, None, cancel, on_event)
}

/// As [`generate_turn`], with drafts that each step checks. The tokens are the same.
///
/// # Errors
/// As [`generate_turn`], and those of the draft model's engine.
pub fn speculate_turn(
    engine: &mut dyn Engine,
    seq: SeqId,
    turn: Turn,
    mut speculator: Option<&mut Speculator>,
    cancel: &AtomicBool,
    on_event: &mut dyn FnMut(GenerationEvent<'_>),
) -> Result<Generation, Error> {
    let mut run = GenerationRun::start(engine, seq, turn)?;
    while run.goes_on() {
        if cancel.load(Ordering::Relaxed) {
            run.turn_mut().cancel();
            break;
        }
        let reads_prompt = run.turn().reads_prompt();
        run.step(engine, speculator.as_deref_mut())?;
        if reads_prompt {
            tell_prefill(run.turn(), on_event);
        }
        tell_text(run.turn_mut(), on_event);
    }
    tell_text(run.turn_mut(), on_event);
    Ok(run.into_turn().into_generation())
}

/// A turn on one sequence of an engine, step by step: for callers that do other work between the steps.
#[derive(Debug)]
pub struct GenerationRun {
    seq: SeqId,
    turn: Turn,
    tokens: Vec<u32>,
    output: StepOutput,
}

impl GenerationRun {
    /// Begins a turn in a sequence, which keeps the part of the prompt that it or an earlier one held.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn start(
        engine: &mut dyn Engine,
        seq: SeqId,
        mut turn: Turn,
    ) -> Result<GenerationRun, Error> {
        turn.resume(engine.reuse_prefix(seq, turn.prompt())?);
        Ok(GenerationRun {
            seq,
            turn,
            tokens: Vec::new(),
            output: StepOutput::default(),
        })
    }

    /// The sequence.
    pub fn seq(&self) -> SeqId {
        self.seq
    }

    /// The turn.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }

    /// The turn, mutably: to cancel it and to take its text.
    pub fn turn_mut(&mut self) -> &mut Turn {
        &mut self.turn
    }

    /// Unwraps the turn.
    pub fn into_turn(self) -> Turn {
        self.turn
    }

    /// Whether there is a step to do, because the turn has not ended.
    pub fn goes_on(&self) -> bool {
        self.turn.feed(1).is_some()
    }

    /// One step of the engine: a chunk of the prompt, or a token, with a speculator perhaps several. Nothing
    /// happens once the turn has ended.
    ///
    /// # Errors
    /// As [`speculate_turn`].
    pub fn step(
        &mut self,
        engine: &mut dyn Engine,
        speculator: Option<&mut Speculator>,
    ) -> Result<(), Error> {
        let GenerationRun {
            seq,
            turn,
            tokens,
            output,
        } = self;
        let seq = *seq;
        let Some(feed) = turn.feed(engine.limits().max_chunk) else {
            return Ok(());
        };
        let (n_tokens, logits) = (feed.tokens.len(), feed.logits);
        tokens.clear();
        tokens.extend_from_slice(feed.tokens);
        let first = turn.n_fed();
        let head_input = speculator.as_deref().is_some_and(Speculator::wants_states);
        let speculator = match speculator {
            Some(speculator) if !turn.reads_prompt() => speculator,
            beside => {
                let item = BatchItem::new(seq, tokens, logits).with_images(turn.images());
                engine.step(&[BatchItem { head_input, ..item }], output)?;
                turn.fed(n_tokens);
                if logits == LogitsFor::Last {
                    turn.push_logits(output.logits(0))?;
                }
                return match beside {
                    Some(speculator) => speculator.read(seq, turn, first, output.head_input(0)),
                    None => Ok(()),
                };
            }
        };
        tokens.extend_from_slice(speculator.draft(
            (&mut *engine, seq),
            turn,
            n_tokens,
            MAX_DRAFTS,
        )?);
        let n_drafts = tokens.len() - n_tokens;
        let logits = match n_drafts > 0 {
            true => LogitsFor::All,
            false => logits,
        };
        let (before_ns, n_drawn) = (clock_ns(engine), turn.drawn().len());
        let item = BatchItem {
            head_input,
            ..BatchItem::new(seq, tokens, logits)
        };
        engine.step(&[item], output)?;
        let step_ns = clock_ns(engine) - before_ns;
        turn.fed(n_tokens);
        speculator.check(engine, seq, turn, output.logits(0))?;
        speculator.read(seq, turn, first, output.head_input(0))?;
        speculator.took(n_tokens, n_drafts, turn.drawn().len() - n_drawn, step_ns);
        Ok(())
    }
}

/// Tells how much of the prompt is read.
pub(crate) fn tell_prefill(turn: &Turn, on_event: &mut dyn FnMut(GenerationEvent<'_>)) {
    let (done, total) = turn.prefill();
    on_event(GenerationEvent::Prefill { done, total });
}

/// Sends the text that a turn has added.
pub(crate) fn tell_text(turn: &mut Turn, on_event: &mut dyn FnMut(GenerationEvent<'_>)) {
    let text = turn.next_text();
    if !text.is_empty() {
        on_event(GenerationEvent::Text(text));
    }
}
