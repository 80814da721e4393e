//! Errors of whole models, which are printed next to the total of a pass.

use millrace_plan::predict::ModelError;
use millrace_xdna2_machine::profile::ErrorScope;
use millrace_xdna2_machine::{Machine, Profile};

/// The error of whole models under a profile ([`Profile::error_of`]); `None` where none was measured,
/// and where the profile or the machine was changed.
pub fn model_error(profile: &Profile, machine: &Machine) -> Option<ModelError> {
    if !profile.is_measured_on(machine) {
        return None;
    }
    Some(ModelError {
        prompt_percent: profile.error_of(ErrorScope::Prompt)?,
        token_percent: profile.error_of(ErrorScope::Token)?,
    })
}

/// The error of single kernels likewise.
pub fn kernel_error_percent(profile: &Profile, machine: &Machine) -> Option<f64> {
    let error = profile.error_of(ErrorScope::Kernel);
    error.filter(|_| profile.is_measured_on(machine))
}
