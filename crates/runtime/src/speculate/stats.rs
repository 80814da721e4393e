//! Counters of speculative decoding.

/// Counters of a speculator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpeculationStats {
    /// Steps that checked drafts.
    pub n_checks: u64,
    /// Steps of decoding without drafts.
    pub n_plain: u64,
    /// Tokens that were checked.
    pub n_drafted: u64,
    /// Checked tokens that were drawn.
    pub n_accepted: u64,
    /// Time of drafting, including the tokens that a draft layer read along: on the device of the draft model if it has one,
    /// otherwise here.
    pub draft_ns: u64,
}

impl SpeculationStats {
    /// The share of drafts that were drawn; `None` without drafts.
    pub fn acceptance(&self) -> Option<f64> {
        (self.n_drafted > 0).then(|| self.n_accepted as f64 / self.n_drafted as f64)
    }
}
