//! Prompt in, text out, on an NPU.

use super::{NpuError, NpuSession};
use crate::generate::{Event, Finish, GenerateParams, Generation, Run};
use crate::{Error, Sampler};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Generates after `prompt` (the whole context), as [`crate::generate`] does on an engine. The
/// session then holds the prompt and the tokens drawn, except perhaps the last. Of what it held,
/// nothing is kept.
///
/// [`Generation::timings`] are this computer's, which with a virtual device simulates; the device's
/// times are in [`NpuSession::counters`].
///
/// # Errors
/// As [`crate::generate`], and failed dispatches.
pub fn generate(
    session: &mut NpuSession,
    prompt: &[u32],
    params: &GenerateParams,
    cancel: &AtomicBool,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<Generation, NpuError> {
    let start = Instant::now();
    if prompt.is_empty() {
        return Err(Error::EmptyPrompt.into());
    }
    session.truncate(0);
    session.check_context(prompt.len(), params.least_tokens())?;
    let mut sampler = Sampler::new(&params.sampling)?;
    prompt.iter().for_each(|token| sampler.accept(*token));
    let tokenizer = session.model().model().tokenizer()?;
    let mut run = Run::new(&tokenizer, &params.stop, on_event);
    if params.max_tokens == Some(0) {
        return Ok(run.finish(Finish::Length));
    }
    run.on_prefill(0, prompt.len());
    let mut token = sampler.sample(session.prefill(prompt)?);
    run.on_prefill(prompt.len(), prompt.len());
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
        let n_drawn = run.generation.tokens.len();
        if params.max_tokens.is_some_and(|max| n_drawn >= max) {
            break Finish::Length;
        }
        if session.check_context(1, 0).is_err() {
            break Finish::ContextFull;
        }
        if cancel.load(Ordering::Relaxed) {
            break Finish::Cancelled;
        }
        token = sampler.sample(session.decode(token)?);
    };
    run.generation.timings.prefill = first_token;
    run.generation.timings.decode = start.elapsed() - first_token;
    Ok(run.finish(finish))
}
