//! How far whole models are off: what stands beside the total of a pass.

use crate::Profile;

/// Errors of whole models that were measured, in percent.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct ModelError {
    /// Median over prompts.
    pub prompt_percent: f64,
    /// Median over tokens.
    pub token_percent: f64,
    /// Published prompts that it is over.
    pub n_prompts: usize,
    /// Published tokens.
    pub n_tokens: usize,
}

/// The model that the constants of the default profile were fitted with: it says nothing of others.
pub const FITTED_MODEL: &str = "Llama-3.2-1B";

/// By profile. From the rows of the bf16 stack in `docs/fidelity-models.md` but those of
/// [`FITTED_MODEL`], which is the only one that constants were fitted on; a test computes them anew.
const KNOWN: [(&str, ModelError); 1] = [(
    "air-strix-2026",
    ModelError {
        prompt_percent: 9.0,
        token_percent: 2.8,
        n_prompts: 13,
        n_tokens: 8,
    },
)];

/// The error of whole models under a profile; `None` where none was measured, and where the profile or
/// the machine was changed.
pub fn model_error(profile: &Profile) -> Option<ModelError> {
    profile.error()?;
    let known = KNOWN.iter().find(|(name, _)| *name == profile.name);
    known.map(|(_, error)| *error)
}
