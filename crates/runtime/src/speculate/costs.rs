//! Recent costs of steps and drafts, and the gain of drafting.

use super::acceptance::Acceptance;
use super::plan::Outlook;
use super::writing::Drafting;
use super::{Guess, MAX_DRAFTS};

/// Weight of the newest sample.
const NEWEST: f64 = 1.0 / 8.0;

/// Assumed cost of each row beyond those measured, as a share of the step, until it is tried.
const UNSEEN_ROW: f64 = 0.03;

/// Number of steps after which an older step counts a third in the rate of tokens.
const RATE_MEMORY: f64 = 64.0;

/// Share of the time that may go into trying drafts that do not seem to pay.
const PROBING: f64 = 0.015;

/// Drafts of the first step that has some.
const FIRST_DRAFTS: usize = 2;

/// Steps of a width after which their time is known: the first may allocate memory and take several times as long.
const FIRST_SEEN: u32 = 2;

/// Plain steps before the first drafts: all else is judged by their time, and the first of them may be slow.
const FIRST_PLAIN: u32 = 3;

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
            // The first pass over a shape allocates its memory: it may be too slow, and is never too fast.
            1 => self.ns = ns,
            2..5 => self.ns = self.ns.min(ns),
            _ => self.ns += NEWEST * (ns.clamp(self.ns / 2.0, self.ns * 2.0) - self.ns),
        }
    }
}

/// Tokens that were drawn recently, and their time; both fade.
#[derive(Clone, Copy, Debug, Default)]
struct RecentDraws {
    tokens: f64,
    ns: f64,
}

/// Costs and rates of an engine and of its drafter.
///
/// Steps identified by a number of rows without drafts have that many sequences that decode, with a row and a
/// token each.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Time of a step, by the number of its rows; 0 is never used.
    steps: Vec<Mean>,
    /// Time of one drafted token.
    draft: Mean,
    /// By rows without drafts: many sequences together reach more tokens than one alone.
    reached: Vec<RecentDraws>,
    /// Drafts that the present step already has, for other sequences.
    n_drafted: usize,
    /// Time that may be spent on a probe; negative after one that took more.
    credit_ns: f64,
    /// Time of the drafts of the present step.
    drafting_ns: f64,
    /// Whether the drafts under way are a probe.
    probing: bool,
}

impl Pace {
    /// The time of a step over that many rows: linear interpolation between the nearest measured ones, and no more than a
    /// wider step takes. Otherwise a plain step that was slow when last measured would make drafts seem to pay. While
    /// there are drafts, no plain step is measured again.
    fn step_ns(&self, n_rows: usize) -> Option<f64> {
        let seen = |(n, mean): (usize, &Mean)| (mean.n >= FIRST_SEEN).then_some((n, mean.ns));
        let known = self.steps.iter().enumerate().filter_map(seen);
        let below = known.clone().rfind(|(n, _)| *n <= n_rows);
        let above = known.clone().find(|(n, _)| *n >= n_rows);
        let wider = known.filter(|(n, _)| *n >= n_rows).map(|(_, ns)| ns);
        let most = wider.fold(f64::INFINITY, f64::min);
        let nearest = match (below, above) {
            (Some((low, a)), Some((high, b))) if high > low => {
                let share = (n_rows - low) as f64 / (high - low) as f64;
                Some(a + (b - a) * share)
            }
            (Some((low, a)), None) => Some(a * (1.0 + UNSEEN_ROW * (n_rows - low) as f64)),
            (Some((_, a)), Some(_)) => Some(a),
            (None, above) => above.map(|(_, b)| b),
        };
        nearest.map(|ns| ns.min(most))
    }

    /// Tokens a nanosecond: the recent rate, or that of plain decoding if it is higher.
    fn rate(&self, n_rows: usize) -> f64 {
        let step_ns = self.step_ns(n_rows);
        let plain = step_ns.map_or(0.0, |ns| n_rows as f64 / ns.max(1.0));
        let reached = self.reached.get(n_rows).filter(|lately| lately.ns > 0.0);
        plain.max(reached.map_or(0.0, |lately| lately.tokens / lately.ns))
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
        let n_before = n_rows + self.n_drafted;
        let step_ns = |n: usize| self.step_ns(n_before + n).unwrap_or(0.0);
        outlook.best(range.0, range.1, step_ns)
    }

    /// How many drafts to make, at most `most`; `guesses` cost nothing.
    pub(super) fn choose(
        &mut self,
        acceptance: &Acceptance,
        guesses: &[Guess],
        most: usize,
        n_rows: usize,
    ) -> usize {
        // A step's plain time comes first: all others are judged by it.
        let plain_known = self
            .steps
            .get(n_rows)
            .is_some_and(|mean| mean.n >= FIRST_PLAIN);
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
        // The expected loss of a probe, as time.
        let loss_ns = (worth - probe) / self.rate(n_rows).max(f64::MIN_POSITIVE);
        if self.credit_ns < loss_ns {
            return 0;
        }
        self.credit_ns -= loss_ns;
        self.probing = true;
        least
    }

    /// Whether to draft another token after these.
    pub(super) fn goes_on(
        &self,
        acceptance: &Acceptance,
        guesses: &[Guess],
        most: usize,
        n_rows: usize,
    ) -> bool {
        // The cost of a draft is learnt on a few.
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

    /// Adds that many drafts to the present step.
    pub(super) fn added(&mut self, n_drafts: usize) {
        self.n_drafted += n_drafts;
    }

    /// Records drafts made for the present step.
    pub(super) fn drafted(&mut self, drafting: &Drafting) {
        self.drafting_ns += drafting.total_ns as f64;
        // Reading the text since the last drafts is no part of a draft's time. A probe pays for it here, so that the
        // next probe waits until there is time for it.
        if self.probing {
            self.credit_ns -= drafting.total_ns.saturating_sub(drafting.drafts_ns) as f64;
        }
        if drafting.n_drafts > 0 {
            self.draft
                .add(drafting.drafts_ns as f64 / drafting.n_drafts as f64);
        }
    }

    /// Records that a step over `n_rows` and `n_drafts` drew that many tokens.
    pub(super) fn stepped(&mut self, n_rows: usize, n_drafts: usize, n_drawn: usize, ns: u64) {
        let (ns, n_all) = (ns as f64, n_rows + n_drafts);
        if self.steps.len() <= n_all {
            self.steps.resize(n_all + 1, Mean::default());
        }
        self.steps[n_all].add(ns);
        self.n_drafted = 0;
        let all_ns = ns + std::mem::take(&mut self.drafting_ns);
        if self.reached.len() <= n_rows {
            self.reached.resize(n_rows + 1, RecentDraws::default());
        }
        let lately = &mut self.reached[n_rows];
        let fade = 1.0 - 1.0 / RATE_MEMORY;
        lately.tokens = lately.tokens * fade + n_drawn as f64;
        lately.ns = lately.ns * fade + all_ns;
        // A long plain stretch must not pay for many probes at once.
        let most = (MAX_DRAFTS as f64) * ns;
        self.credit_ns = (self.credit_ns + PROBING * all_ns).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::Rng;

    /// Decodes for `n_steps` where a step takes 100 µs and 5 more for each row, a draft takes `draft_us`, and every
    /// draft is drawn with that probability. Returns the time of plain decoding divided by the time taken.
    fn speed_up(draft_us: u64, acceptance: f64, n_steps: usize) -> f64 {
        speed_up_after(1, draft_us, acceptance, n_steps)
    }

    /// The same, with the first plain steps slower by that factor.
    fn speed_up_after(slow: u64, draft_us: u64, acceptance: f64, n_steps: usize) -> f64 {
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
            let slow = if n_tokens < u64::from(FIRST_PLAIN) {
                slow
            } else {
                1
            };
            pace.stepped(1, guesses.len(), drawn + 1, 1000 * slow * step_us(n_rows));
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

    /// Holds however sure the guesses are: the first step may be slow, and one sample would represent all.
    #[test]
    fn the_first_three_steps_are_plain() {
        let (mut pace, learned) = (Pace::default(), Acceptance::default());
        let guesses = [Guess { token: 0, class: 7 }; 4];
        for _ in 0..3 {
            assert_eq!(pace.choose(&learned, &guesses, 4, 1), 0);
            pace.stepped(1, 0, 1, 100_000);
        }
        assert_eq!(pace.choose(&learned, &guesses, 4, 1), 4);
    }

    #[test]
    fn plain_steps_that_were_slow_do_not_keep_drafts_alive() {
        let found = speed_up_after(10, 20, 0.02, 1000);
        assert!(found > 0.96, "{found}");
    }

    /// A probe of a draft model first reads the text since the last one.
    #[test]
    fn probes_pay_for_what_they_read() {
        let (mut pace, mut learned) = (Pace::default(), Acceptance::default());
        (0..50).for_each(|_| learned.learn(4, false));
        let (mut n_probes, mut reading_ns) = (0, 0);
        for _ in 0..4000 {
            if pace.choose(&learned, &[], MAX_DRAFTS, 1) > 0 {
                n_probes += 1;
                reading_ns += 1_000_000;
                pace.drafted(&Drafting {
                    total_ns: 1_020_000,
                    drafts_ns: 20_000,
                    n_drafts: 1,
                });
                pace.keep(&learned, &[Guess { token: 0, class: 4 }], 1);
            }
            pace.stepped(1, 0, 1, 100_000);
        }
        let share = reading_ns as f64 / (4000.0 * 100_000.0);
        assert!(n_probes > 1 && share < 0.02, "{n_probes} probes, {share}");
    }

    /// A device that pads passes: the second row costs as much as three steps, the next rows nothing.
    #[test]
    fn times_between_those_seen_lie_between() {
        let mut pace = Pace::default();
        for _ in 0..FIRST_SEEN {
            pace.stepped(1, 0, 1, 100);
            pace.stepped(1, 8, 4, 300);
        }
        assert_eq!(pace.step_ns(5), Some(200.0));
        assert_eq!(pace.step_ns(9), Some(300.0));
        assert!(pace.step_ns(12) > Some(300.0));
        assert_eq!(Pace::default().step_ns(1), None);
    }

    #[test]
    fn a_slow_first_check_is_no_reason_to_stop() {
        let mut pace = Pace::default();
        (0..FIRST_PLAIN).for_each(|_| pace.stepped(1, 0, 1, 100));
        pace.stepped(1, 2, 1, 500);
        assert!(pace.step_ns(3) < Some(110.0));
        pace.stepped(1, 2, 3, 140);
        assert_eq!(pace.step_ns(3), Some(140.0));
    }

    /// A step over one row reads as much as a step over many; if it is wide already, a row costs its own work.
    #[test]
    fn among_many_sequences_drafts_are_worth_less() {
        let step_ns =
            |n_rows: usize| 1000 * (100 + 5 * n_rows + 80 * n_rows.saturating_sub(8)) as u64;
        let mut pace = Pace::default();
        for n_rows in [1, 2, 4, 8, 12, 16] {
            (0..5).for_each(|_| pace.stepped(n_rows, 0, n_rows, step_ns(n_rows)));
        }
        pace.credit_ns = 0.0;
        let mut learned = Acceptance::default();
        (0..90).for_each(|i| learned.learn(4, i % 3 > 0));
        let guesses = [Guess { token: 0, class: 4 }; 6];
        assert!(pace.choose(&learned, &guesses, 6, 1) > 1);
        assert_eq!(pace.choose(&learned, &guesses, 6, 12), 0);
        // Drafts of other sequences in the same step count as well.
        pace.added(12);
        assert_eq!(pace.choose(&learned, &guesses, 6, 1), 0);
        pace.stepped(1, 12, 1, step_ns(13));
        assert!(pace.choose(&learned, &guesses, 6, 1) > 0);
    }
}
