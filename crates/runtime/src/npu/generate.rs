//! Prompt in, text out, on an NPU.

use super::{NpuError, NpuSession};
use crate::generate::{Event, GenerateParams, Generation, tell_prefill, tell_text};
use crate::turn::Turn;
use std::sync::atomic::{AtomicBool, Ordering};

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
    let npu = session.model().clone();
    let mut turn = Turn::new(npu.model(), prompt, params, npu.n_ctx())?;
    session.truncate(0);
    while let Some(feed) = turn.feed(usize::MAX) {
        if cancel.load(Ordering::Relaxed) {
            turn.cancel();
            break;
        }
        let (n_tokens, reads_prompt) = (feed.tokens.len(), turn.reads_prompt());
        if reads_prompt {
            tell_prefill(&turn, on_event);
        }
        // The session cuts a prompt into passes itself.
        let logits = match feed.tokens {
            [token] if !reads_prompt => session.decode(*token)?,
            tokens => session.prefill(tokens)?,
        };
        turn.fed(n_tokens);
        turn.push_logits(logits)?;
        if reads_prompt {
            tell_prefill(&turn, on_event);
        }
        tell_text(&mut turn, on_event);
    }
    tell_text(&mut turn, on_event);
    Ok(turn.into_generation())
}
