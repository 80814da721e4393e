//! Share of drafts that are drawn, by the drafter's confidence in them.

/// Classes of sureness.
pub(super) const N_CLASSES: usize = 8;

/// Number of drafts after which an older draft counts a third: texts change.
const MEMORY: f64 = 100.0;

/// Number of drafts that the experience of other texts is worth to a new one.
const CARRIED: f64 = 12.0;

/// Drafts that the first guess of a rate is worth.
const PRIOR_WEIGHT: f64 = 3.0;

/// Upper ends of the classes of a probability, and the rate that each begins with.
const BY_PROBABILITY: [(f64, f64); N_CLASSES] = [
    (0.3, 0.2),
    (0.5, 0.4),
    (0.7, 0.6),
    (0.85, 0.75),
    (0.95, 0.9),
    (0.99, 0.95),
    (0.999, 0.98),
    (f64::INFINITY, 0.99),
];

/// Most tokens of repeated text in each class.
const BY_LENGTH: [usize; N_CLASSES] = [2, 3, 4, 6, 9, 15, 31, usize::MAX];

/// The class of a token to which the draft model assigns that probability.
pub(super) fn of_probability(probability: f64) -> usize {
    let class = BY_PROBABILITY
        .iter()
        .position(|(end, _)| probability < *end);
    class.unwrap_or(N_CLASSES - 1)
}

/// The class of a token that followed that many of the last tokens when they occurred before.
pub(super) fn of_length(length: usize) -> usize {
    let class = BY_LENGTH.iter().position(|end| length <= *end);
    class.unwrap_or(N_CLASSES - 1)
}

#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    tried: f64,
    accepted: f64,
}

impl Rate {
    fn learn(&mut self, accepted: bool) {
        let fade = 1.0 - 1.0 / MEMORY;
        self.tried = self.tried * fade + 1.0;
        self.accepted = self.accepted * fade + f64::from(u8::from(accepted));
    }

    /// The same rate, with the weight of at most that many drafts.
    fn at_most(self, tried: f64) -> Rate {
        let share = tried / self.tried.max(tried);
        Rate {
            tried: self.tried * share,
            accepted: self.accepted * share,
        }
    }

    fn estimate(&self, prior: f64) -> f64 {
        (self.accepted + prior * PRIOR_WEIGHT) / (self.tried + PRIOR_WEIGHT)
    }
}

/// Running rates, of each class and of all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acceptance {
    classes: [Rate; N_CLASSES],
    all: Rate,
}

impl Acceptance {
    /// A draft of that class was drawn, or not.
    pub(super) fn learn(&mut self, class: usize, accepted: bool) {
        self.classes[class.min(N_CLASSES - 1)].learn(accepted);
        self.all.learn(accepted);
    }

    /// The initial value for a text after these.
    pub(super) fn carried(&self) -> Acceptance {
        Acceptance {
            classes: self.classes.map(|rate| rate.at_most(CARRIED)),
            all: self.all.at_most(CARRIED),
        }
    }

    /// Probability that a draft of that class is drawn.
    pub(super) fn of(&self, class: usize) -> f64 {
        let class = class.min(N_CLASSES - 1);
        self.classes[class].estimate(BY_PROBABILITY[class].1)
    }

    /// The same for a draft that is yet to be made.
    pub(super) fn of_next(&self) -> f64 {
        self.all.estimate(0.7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_sure_is_in_a_higher_class() {
        let classes = [0.0, 0.31, 0.5, 0.7, 0.9, 0.97, 0.995, 1.0].map(of_probability);
        assert_eq!(classes, [0, 1, 2, 3, 4, 5, 6, 7]);
        let classes = [2, 3, 4, 5, 9, 10, 31, 32].map(of_length);
        assert_eq!(classes, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn rates_follow_what_happens_and_forget() {
        let mut acceptance = Acceptance::default();
        let before = acceptance.of(0);
        (0..300).for_each(|_| acceptance.learn(7, false));
        assert!(acceptance.of(7) < 0.05 && acceptance.of_next() < 0.05);
        assert_eq!(acceptance.of(0), before);
        (0..300).for_each(|_| acceptance.learn(7, true));
        assert!(acceptance.of(7) > 0.9);
    }
}
