//! What steps and drafts take, as they took it lately, and what is won by them.

use super::acceptance::Acceptance;
use super::draft_model::Drafting;
use super::plan::Outlook;
use super::{Guess, MAX_DRAFTS};

/// The newest sample counts an eighth.
const NEWEST: f64 = 1.0 / 8.0;

/// Each row of a step beyond those seen is supposed to cost this share of it, until it is tried.
const UNSEEN_ROW: f64 = 0.03;

/// Steps back after which a step counts a third in the rate of tokens.
const RATE_MEMORY: f64 = 64.0;

/// The share of the time that may go into trying what does not seem to pay.
const PROBING: f64 = 0.015;

/// Drafts of the first step that has some.
const FIRST_DRAFTS: usize = 2;

/// A running mean that one strange sample moves little.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    ns: f64,
    n: u32,
}

impl Mean {
    fn add(&mut self, ns: f64) {
        self.n = self.n.saturating_add(1);
        match self.n {
            // The first pass over a shape lays out its memory: it may be slow, and never tells too little.
            1 => self.ns = ns,
            2..5 => self.ns = self.ns.min(ns),
            _ => self.ns += NEWEST * (ns.clamp(self.ns / 2.0, self.ns * 2.0) - self.ns),
        }
    }
}

/// Costs and rates of an engine and of who drafts for it.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Of steps, by the number of their rows; 0 is never used.
    steps: Vec<Mean>,
    /// Of one drafted token.
    draft: Mean,
    /// Tokens that were drawn lately, and the time of it; both fade.
    tokens: f64,
    ns: f64,
    /// Time that may be spent on a probe.
    credit_ns: f64,
    /// Time of the drafts of the step under way.
    drafting_ns: f64,
    /// Whether the drafts under way are a probe.
    probing: bool,
}

impl Pace {
    /// The time of a step over so many rows: that of the nearest that were seen, with a straight line between.
    fn step_ns(&self, n_rows: usize) -> Option<f64> {
        let seen = |(n, mean): (usize, &Mean)| (mean.n > 0).then_some((n, mean.ns));
        let known = self.steps.iter().enumerate().filter_map(seen);
        let below = known.clone().rfind(|(n, _)| *n <= n_rows);
        let above = known.clone().find(|(n, _)| *n >= n_rows);
        match (below, above) {
            (Some((low, a)), Some((high, b))) if high > low => {
                let share = (n_rows - low) as f64 / (high - low) as f64;
                Some(a + (b - a) * share)
            }
            (Some((low, a)), None) => Some(a * (1.0 + UNSEEN_ROW * (n_rows - low) as f64)),
            (Some((_, a)), Some(_)) => Some(a),
            (None, above) => above.map(|(_, b)| b),
        }
    }

    /// Tokens a nanosecond: what was reached lately, or plain decoding if that is more.
    fn rate(&self, n_rows: usize) -> f64 {
        let plain = self.step_ns(n_rows).map_or(0.0, |ns| 1.0 / ns.max(1.0));
        let reached = if self.ns > 0.0 {
            self.tokens / self.ns
        } else {
            0.0
        };
        plain.max(reached)
    }

    fn best(
        &self,
        acceptance: &Acceptance,
        guesses: &[Guess],
        range: (usize, usize),
        n_rows: usize,
    ) -> Option<(usize, f64)> {
        let made: Vec<f64> = guesses.iter().map(|g| acceptance.of(g.class)).collect();
        let outlook = Outlook {
            made: &made,
            next: acceptance.of_next(),
            draft_ns: self.draft.ns,
            rate: self.rate(n_rows),
        };
        let step_ns = |n: usize| self.step_ns(n_rows + n).unwrap_or(0.0);
        outlook.best(range.0, range.1, step_ns)
    }

    /// How many drafts to make, at most `most`; `guesses` were had for nothing.
    pub(super) fn choose(
        &mut self,
        acceptance: &Acceptance,
        guesses: &[Guess],
        most: usize,
        n_rows: usize,
    ) -> usize {
        // A step's plain time first: all others are judged by it.
        let plain_known = self.steps.get(n_rows).is_some_and(|mean| mean.n > 0);
        if most == 0 || !plain_known {
            return 0;
        }
        let all = self.best(acceptance, guesses, (0, most), n_rows);
        let some = self.best(acceptance, guesses, (1, most), n_rows);
        let (Some((n, worth)), Some((least, probe))) = (all, some) else {
            return 0;
        };
        if n > 0 {
            return n;
        }
        // What a probe is expected to lose, in time.
        let loss_ns = (worth - probe) / self.rate(n_rows).max(f64::MIN_POSITIVE);
        if self.credit_ns < loss_ns {
            return 0;
        }
        self.credit_ns -= loss_ns;
        self.probing = true;
        least
    }

    /// Whether to draft another token behind these.
    pub(super) fn goes_on(
        &self,
        acceptance: &Acceptance,
        guesses: &[Guess],
        most: usize,
        n_rows: usize,
    ) -> bool {
        // What a draft takes is learnt on a few.
        if self.draft.n == 0 && guesses.len() >= FIRST_DRAFTS {
            return false;
        }
        let range = (guesses.len(), most);
        let best = self.best(acceptance, guesses, range, n_rows);
        best.is_some_and(|(n, _)| n > guesses.len())
    }

    /// How many of the drafts to have checked.
    pub(super) fn keep(
        &mut self,
        acceptance: &Acceptance,
        guesses: &[Guess],
        n_rows: usize,
    ) -> usize {
        let least = usize::from(std::mem::take(&mut self.probing) && !guesses.is_empty());
        let range = (least, guesses.len());
        let best = self.best(acceptance, guesses, range, n_rows);
        best.map_or(0, |(n, _)| n)
    }

    /// Drafts were made for the step under way.
    pub(super) fn drafted(&mut self, drafting: &Drafting) {
        self.drafting_ns += drafting.total_ns as f64;
        if drafting.n_drafts > 0 {
            self.draft
                .add(drafting.drafts_ns as f64 / drafting.n_drafts as f64);
        }
    }

    /// A step gave so many tokens.
    pub(super) fn stepped(&mut self, n_rows: usize, n_drawn: usize, ns: u64) {
        let ns = ns as f64;
        if self.steps.len() <= n_rows {
            self.steps.resize(n_rows + 1, Mean::default());
        }
        self.steps[n_rows].add(ns);
        let all_ns = ns + std::mem::take(&mut self.drafting_ns);
        let fade = 1.0 - 1.0 / RATE_MEMORY;
        self.tokens = self.tokens * fade + n_drawn as f64;
        self.ns = self.ns * fade + all_ns;
        // A long plain stretch must not pay for many probes at once.
        let most = (MAX_DRAFTS as f64) * ns;
        self.credit_ns = (self.credit_ns + PROBING * all_ns).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::Rng;

    /// Decodes for `n_steps` where a step takes 100 µs and 5 more for each row, a draft `draft_us`, and every draft
    /// is drawn with that probability. Returns the time of plain decoding over the time it took.
    fn speed_up(draft_us: u64, acceptance: f64, n_steps: usize) -> f64 {
        let (mut pace, mut learned, mut rng) =
            (Pace::default(), Acceptance::default(), Rng::new(3));
        let step_us = |n_rows: usize| 95 + 5 * n_rows as u64;
        let (mut n_tokens, mut us) = (0, 0);
        for _ in 0..n_steps {
            let mut guesses: Vec<Guess> = Vec::new();
            if pace.choose(&learned, &guesses, MAX_DRAFTS, 1) > 0 {
                loop {
                    guesses.push(Guess { token: 0, class: 4 });
                    if guesses.len() == MAX_DRAFTS
                        || !pace.goes_on(&learned, &guesses, MAX_DRAFTS, 1)
                    {
                        break;
                    }
                }
                let n_drafts = guesses.len();
                let drafts_ns = 1000 * draft_us * n_drafts as u64;
                us += draft_us * n_drafts as u64;
                pace.drafted(&Drafting {
                    total_ns: drafts_ns,
                    drafts_ns,
                    n_drafts,
                });
            }
            guesses.truncate(pace.keep(&learned, &guesses, 1));
            let drawn = guesses
                .iter()
                .take_while(|_| rng.unit() < acceptance)
                .count();
            for (i, guess) in guesses.iter().take(drawn + 1).enumerate() {
                learned.learn(guess.class, i < drawn);
            }
            let n_rows = 1 + guesses.len();
            pace.stepped(n_rows, drawn + 1, 1000 * step_us(n_rows));
            us += step_us(n_rows);
            n_tokens += drawn as u64 + 1;
        }
        (n_tokens * step_us(1)) as f64 / us as f64
    }

    #[test]
    fn drafts_are_made_where_they_pay() {
        assert!(speed_up(20, 0.9, 500) > 2.0, "{}", speed_up(20, 0.9, 500));
        assert!(speed_up(20, 0.6, 500) > 1.2, "{}", speed_up(20, 0.6, 500));
    }

    #[test]
    fn where_they_do_not_they_cost_little() {
        for (draft_us, acceptance) in [(20, 0.0), (20, 0.15), (90, 0.5), (300, 0.9)] {
            let found = speed_up(draft_us, acceptance, 1000);
            assert!(found > 0.96, "{draft_us} µs, {acceptance}: {found}");
        }
    }

    /// A device that pads passes: the second row costs as much as three steps, the next nothing.
    #[test]
    fn times_between_those_seen_lie_between() {
        let mut pace = Pace::default();
        pace.stepped(1, 1, 100);
        pace.stepped(9, 4, 300);
        assert_eq!(pace.step_ns(5), Some(200.0));
        assert_eq!(pace.step_ns(9), Some(300.0));
        assert!(pace.step_ns(12) > Some(300.0));
        assert_eq!(Pace::default().step_ns(1), None);
    }
}
