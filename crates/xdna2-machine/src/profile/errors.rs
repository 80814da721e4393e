//! Errors of predictions, by scope. There are none for changed constants or machines.

use super::{Origin, Profile};
use crate::Machine;
use millrace_npu::Provenance;

/// Scope of a predicted time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorScope {
    /// A kernel, a launch or a program on the NPU.
    Kernel,
    /// A prompt of a whole model, the host's part included.
    Prompt,
    /// A token of a whole model, the host's part included.
    Token,
}

/// Medians of |error| over the held-out rows of the fidelity report that were measured under a
/// profile, in percent, as `docs/reports/fidelity.md` and `docs/reports/fidelity-models.md` list them (a test computes
/// them anew); 0 where there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// Error of kernels.
    pub kernel_percent: f64,
    /// Error of prompts.
    pub prompt_percent: f64,
    /// Error of tokens.
    pub token_percent: f64,
}

impl Errors {
    /// Error of a scope.
    pub fn of(&self, scope: ErrorScope) -> f64 {
        match scope {
            ErrorScope::Kernel => self.kernel_percent,
            ErrorScope::Prompt => self.prompt_percent,
            ErrorScope::Token => self.token_percent,
        }
    }
}

impl Profile {
    /// The stated error of a prediction, in percent: the median |error| over held-out measurements of that scope.
    /// `None` if no such row was measured under this profile, or if a constant was set by hand: then the error is
    /// unknown.
    pub fn error_of(&self, scope: ErrorScope) -> Option<f64> {
        let percent = self.errors.of(scope);
        (percent > 0.0 && !self.is_changed()).then_some(percent)
    }

    /// Whether a constant was set by hand.
    pub fn is_changed(&self) -> bool {
        self.constants.iter().any(|c| c.is(Origin::Set))
    }

    /// Whether errors found under this profile hold for that machine; they do not for a changed one.
    pub fn is_measured_on(&self, machine: &Machine) -> bool {
        Machine::known(&machine.name).is_some_and(|known| known == machine)
    }

    /// Provenance of a time predicted under this profile on that machine: `modelled(profile, ±error)`. There is no
    /// error for a machine that was not measured either.
    pub fn provenance(&self, scope: ErrorScope, machine: &Machine) -> Provenance {
        let error = self
            .error_of(scope)
            .filter(|_| self.is_measured_on(machine));
        Provenance::Modelled {
            profile: self.name.clone(),
            error: error.map(|percent| percent / 100.0),
        }
    }
}
