//! How many tokens to draft.
//!
//! A step over `1 + k` rows takes `c(1 + k)` and each draft takes `d`. If `S_j` is the probability that the first `j`
//! drafts are all drawn, the step gives `1 + S_1 + … + S_k` tokens on average. The best number in the long run
//! maximises `tokens - rate · time`, where `rate` is the tokens a unit of time that the best policy reaches: the
//! stopping rule of renewal theory. `c` need not be smooth for that. On a device that pads passes to 64 rows, the
//! second row is expensive and the next are free.

/// Known quantities when a number is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Outlook<'a> {
    /// Probability of each draft already made to be drawn if those before it are.
    pub made: &'a [f64],
    /// The same for drafts yet to be made.
    pub next: f64,
    /// Time of each draft yet to be made, in nanoseconds.
    pub draft_ns: f64,
    /// Tokens a nanosecond in the long run.
    pub rate: f64,
}

impl Outlook<'_> {
    /// The number of drafts from `least` to `most` that is worth most. Its worth is in tokens beyond those of the
    /// long-run rate in the same time. `step_ns(n)` is the time of a step with `n` drafts. Drafts already made
    /// cost only the time of the step with them.
    pub fn best(
        &self,
        least: usize,
        most: usize,
        step_ns: impl Fn(usize) -> f64,
    ) -> Option<(usize, f64)> {
        let (mut survival, mut tokens) = (1.0, 1.0);
        let mut best: Option<(usize, f64)> = None;
        for n in 0..=most {
            if n > 0 {
                survival *= self.made.get(n - 1).copied().unwrap_or(self.next);
                tokens += survival;
            }
            if n < least {
                continue;
            }
            let drafting = n.saturating_sub(self.made.len()) as f64 * self.draft_ns;
            let worth = tokens - self.rate * (step_ns(n) + drafting);
            // Fewer where it makes no difference.
            if best.is_none_or(|(_, most)| worth > most + 1e-9) {
                best = Some((n, worth));
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(next: f64, draft_ns: f64, rate: f64, step_ns: impl Fn(usize) -> f64) -> usize {
        let outlook = Outlook {
            made: &[],
            next,
            draft_ns,
            rate,
        };
        outlook.best(0, 31, step_ns).unwrap().0
    }

    #[test]
    fn it_drafts_more_the_surer_and_the_cheaper() {
        // Rows cost a tenth of a step, drafts a fifth.
        let linear = |n: usize| 100.0 + 10.0 * n as f64;
        let n = |next| choice(next, 20.0, 0.01, linear);
        assert_eq!(
            n(0.2),
            0,
            "a fifth of a token is worth 20 of time and costs 30"
        );
        assert!(n(0.5) >= 1 && n(0.9) > n(0.5), "{} {}", n(0.5), n(0.9));
        assert_eq!(choice(0.9, 200.0, 0.01, linear), 0);
    }

    #[test]
    fn a_dear_first_row_is_seen_beyond() {
        // A device that pads to 64 rows: the second row costs two steps, the rest nothing.
        let padded = |n: usize| if n == 0 { 100.0 } else { 300.0 };
        assert_eq!(choice(0.9, 0.0, 0.01, padded), 31);
        assert_eq!(
            choice(0.5, 0.0, 0.01, padded),
            0,
            "one token more for two steps more"
        );
    }

    #[test]
    fn doubtful_drafts_are_dropped_though_they_are_made() {
        let outlook = Outlook {
            made: &[0.9, 0.9, 0.1, 0.9],
            next: 0.9,
            draft_ns: 0.0,
            rate: 0.01,
        };
        let linear = |n: usize| 100.0 + 30.0 * n as f64;
        assert_eq!(outlook.best(0, 4, linear).unwrap().0, 2);
    }
}
