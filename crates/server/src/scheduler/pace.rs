//! How many prompt tokens a pass may take while answers are being written.

use std::time::Duration;

/// The fewest prompt tokens of a pass: fewer would waste the reading of the weights.
const LEAST: usize = 16;

/// The fewest while more answers await their first token than are being written. A pass costs about as much as five
/// tokens before its first (Llama-3.2-1B, Q4_K_M, two cores of a Zen 4). Small passes waste a machine that many wait
/// for.
const LEAST_URGENT: usize = 48;

/// How many times longer a pass may take with prompt tokens than without, if they are not urgent. Readers of answers
/// then see a delay in proportion to their usual pace.
const STRETCH: f64 = 2.5;

/// Weight of the newest pass in the averages.
const NEWEST: f64 = 0.25;

/// Estimates the duration of passes from earlier ones.
///
/// The model of a pass is `fixed + n · per_token`. `fixed` is updated by passes that only write, `per_token` by those
/// with enough prompt tokens to be informative.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    fixed_ns: Option<f64>,
    per_token_ns: Option<f64>,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace {
            fixed_ns: None,
            per_token_ns: None,
        }
    }

    /// Records that a pass of `n_prompt` prompt tokens and `n_answers` answer tokens took this long.
    pub(super) fn observe(&mut self, n_prompt: usize, n_answers: usize, took: Duration) {
        let took_ns = took.as_nanos() as f64;
        if n_prompt == 0 {
            follow(&mut self.fixed_ns, took_ns);
        } else if n_prompt >= LEAST {
            // Without answers, the whole pass belongs to the prompt.
            let fixed_ns = if n_answers > 0 {
                self.fixed_ns.unwrap_or(0.0)
            } else {
                0.0
            };
            let rest_ns = (took_ns - fixed_ns).max(took_ns * 0.1);
            follow(&mut self.per_token_ns, rest_ns / n_prompt as f64);
        }
    }

    /// Number of prompt tokens for a pass beside answers, so that it lasts about `max_delay`, or [`STRETCH`] times a
    /// pass without prompts if that is less. It is at least [`LEAST`] and at most `most`. For `urgent` prompts only
    /// `max_delay` counts, and the least is [`LEAST_URGENT`]. Before the first measured pass it is [`LEAST`].
    pub(super) fn prompt_tokens(&self, max_delay: Duration, urgent: bool, most: usize) -> usize {
        let Some(per_token_ns) = self.per_token_ns else {
            return LEAST.min(most);
        };
        let max_ns = max_delay.as_nanos() as f64;
        let left_ns = match self.fixed_ns {
            Some(fixed_ns) if urgent => max_ns - fixed_ns,
            Some(fixed_ns) => max_ns.min(STRETCH * fixed_ns) - fixed_ns,
            None => max_ns,
        };
        let n_tokens = (left_ns / per_token_ns.max(1.0)).max(0.0) as usize;
        let least = if urgent { LEAST_URGENT } else { LEAST };
        n_tokens.max(least).min(most)
    }
}

fn follow(average: &mut Option<f64>, value: f64) {
    *average = Some(average.map_or(value, |old| old + NEWEST * (value - old)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn prompt_tokens_fill_the_delay_that_is_left() {
        let mut pace = Pace::new();
        assert_eq!(pace.prompt_tokens(100 * MS, false, 512), LEAST);
        pace.observe(100, 0, 200 * MS); // 2 ms a token
        assert_eq!(pace.prompt_tokens(100 * MS, false, 512), 50);
        pace.observe(0, 4, 40 * MS);
        assert_eq!(pace.prompt_tokens(100 * MS, false, 512), 30);
        assert_eq!(pace.prompt_tokens(10 * MS, false, 512), LEAST);
        assert_eq!(pace.prompt_tokens(100 * MS, false, 8), 8);
    }

    #[test]
    fn a_pass_stays_in_proportion_to_those_without_prompts() {
        let mut pace = Pace::new();
        pace.observe(100, 0, 100 * MS); // 1 ms a token
        assert_eq!(pace.prompt_tokens(100_000 * MS, false, 512), 512);
        pace.observe(0, 1, 20 * MS);
        assert_eq!(pace.prompt_tokens(100_000 * MS, false, 512), 30);
        assert_eq!(pace.prompt_tokens(40 * MS, false, 512), 20);
    }

    #[test]
    fn prompts_that_many_wait_for_are_read_in_larger_parts() {
        let mut pace = Pace::new();
        assert_eq!(pace.prompt_tokens(100 * MS, true, 512), LEAST);
        pace.observe(100, 0, 100 * MS); // 1 ms a token
        pace.observe(0, 1, 20 * MS);
        assert_eq!(pace.prompt_tokens(100 * MS, false, 512), 30);
        assert_eq!(pace.prompt_tokens(100 * MS, true, 512), 80);
        assert_eq!(pace.prompt_tokens(20 * MS, true, 512), LEAST_URGENT);
        assert_eq!(pace.prompt_tokens(20 * MS, true, 8), 8);
    }

    #[test]
    fn it_follows_a_machine_that_becomes_slower() {
        let mut pace = Pace::new();
        pace.observe(100, 0, 100 * MS);
        let before = pace.prompt_tokens(100 * MS, false, 512);
        for _ in 0..20 {
            pace.observe(100, 0, 400 * MS);
        }
        assert!(pace.prompt_tokens(100 * MS, false, 512) * 3 < before);
    }
}
