//! Speed of a generation and the reason it ended, for people and for programs.

use crate::output::rate;
use millrace_runtime::{Finish, Generation, Timings};
use serde_json::{Value, json};
use std::time::Duration;

/// `prompt 12 tokens 340 tok/s · 200 tokens 85.3 tok/s · first after 41 ms · model ended`.
pub(crate) fn line(generation: &Generation) -> String {
    let timings = &generation.timings;
    let mut parts = Vec::new();
    let cached = match timings.n_cached {
        0 => String::new(),
        n => format!(" ({n} cached)"),
    };
    let n_prompt = timings.n_prefill + timings.n_cached;
    // A prompt without any requested token was not computed.
    if !timings.prefill.is_zero() {
        let rate = rate(timings.prefill_per_s());
        parts.push(format!("prompt {n_prompt} tokens{cached} {rate} tok/s"));
    }
    let n = generation.tokens.len();
    parts.push(match timings.n_decode {
        0 | 1 => format!("{n} token{}", if n == 1 { "" } else { "s" }),
        _ => format!("{n} tokens {} tok/s", rate(timings.decode_per_s())),
    });
    if !timings.prefill.is_zero() {
        parts.push(format!("first after {}", time(timings.prefill)));
    }
    parts.push(reason(generation.finish).to_owned());
    parts.join(" · ")
}

fn time(time: Duration) -> String {
    match time.as_millis() {
        0..10_000 => format!("{} ms", time.as_millis()),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "the model ended",
        Finish::StopText => "stop text",
        Finish::Length => "--max-tokens reached",
        Finish::ContextFull => "context full (--ctx)",
        Finish::Cancelled => "stopped",
    }
}

/// The timings as `--json` prints them.
pub(crate) fn json(timings: &Timings) -> Value {
    json!({
        "n_prompt": timings.n_cached + timings.n_prefill,
        "n_cached": timings.n_cached,
        "prompt_ms": ms(timings.prefill),
        "prompt_tokens_per_s": measured(timings.prefill_per_s()),
        "time_to_first_token_ms": measured(ms(timings.prefill)),
        "n_generated": timings.n_decode,
        "generation_ms": ms(timings.decode),
        "tokens_per_s": measured(timings.decode_per_s()),
    })
}

/// `None` where there was nothing to measure.
fn measured(number: f64) -> Option<f64> {
    (number > 0.0).then_some(number)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_leaves_out_rates_that_mean_nothing() {
        let timings = Timings {
            n_cached: 4,
            n_prefill: 6,
            prefill: Duration::from_millis(20),
            n_decode: 1,
            decode: Duration::ZERO,
        };
        let (tokens, text) = (vec![5], "x".to_owned());
        let generation = Generation {
            tokens,
            text,
            finish: Finish::Length,
            timings,
        };
        assert_eq!(
            line(&generation),
            "prompt 10 tokens (4 cached) 300.0 tok/s · 1 token · first after 20 ms · --max-tokens reached"
        );
        let nothing = Generation {
            tokens: vec![],
            text: String::new(),
            finish: Finish::Length,
            timings: Timings::default(),
        };
        assert_eq!(line(&nothing), "0 tokens · --max-tokens reached");
        assert!(json(&nothing.timings)["tokens_per_s"].is_null());
    }
}
