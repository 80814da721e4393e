//! Gain of each improvement, and published configurations: the same work with other settings.

use super::{PassCost, PredictError, Prediction, PriceError, PromptWorkload, model};
use crate::{SettingError, Settings, Target};
use millrace_graph::Graph;
use serde::Serialize;

/// Totals of a prediction with other settings.
#[derive(Clone, Debug, Serialize)]
pub struct Variant {
    /// `as asked for`, `without alias`, `the published stack`.
    pub name: String,
    /// Description of an improvement.
    #[serde(skip)]
    pub summary: String,
    /// Time to the first token of the prompt.
    pub ttft_ns: f64,
    /// Time of a token.
    pub token_ns: f64,
    /// Bytes that the prompt moves.
    pub moved_bytes: u64,
    /// Dispatches of the prompt.
    pub prompt_dispatches: u64,
    /// Dispatches of a token.
    pub token_dispatches: u64,
    /// Buffers and cache.
    pub memory_bytes: u64,
}

impl Variant {
    /// Totals of a prediction.
    pub fn of(name: &str, summary: &str, p: &Prediction) -> Variant {
        let crossing =
            |pass: &PassCost| pass.totals.crossing.written_bytes + pass.totals.crossing.read_bytes;
        Variant {
            name: name.to_owned(),
            summary: summary.to_owned(),
            ttft_ns: p.ttft_ns,
            token_ns: p.token.totals.total_ns,
            moved_bytes: p.prefill.iter().map(crossing).sum(),
            prompt_dispatches: p.prefill.iter().map(|pass| pass.totals.n_calls).sum(),
            token_dispatches: p.token.totals.n_calls,
            memory_bytes: p.memory.total_bytes,
        }
    }
}

/// Predicts by a target with settings.
///
/// # Errors
/// Invalid settings; errors of [`model`]; a target that predicts nothing.
pub fn with_settings(
    graph: &Graph,
    target: &dyn Target,
    settings: &Settings,
    work: &PromptWorkload,
) -> Result<Prediction, PredictError> {
    let planner = target.planner(settings)?;
    let Some(mut pricer) = planner.pricer() else {
        let text = format!(
            "nothing was ever measured of {}: it has no times",
            target.title()
        );
        return Err(PriceError(text).into());
    };
    model(graph, &*planner, &mut *pricer, work)
}

/// The prediction asked for, then one for each improvement in force without it, then the configurations to compare with
/// ([`Evidence::comparisons`](crate::Evidence::comparisons)). All are on the same machine.
///
/// # Errors
/// As [`with_settings`].
pub fn variants(
    graph: &Graph,
    target: &dyn Target,
    settings: &Settings,
    work: &PromptWorkload,
    all: &Prediction,
    comparisons: &[(&'static str, Settings)],
) -> Result<Vec<Variant>, PredictError> {
    let mut rows = vec![Variant::of("as asked for", "", all)];
    for feature in target.options().features {
        if !all.features.iter().any(|name| *name == feature.name) {
            continue;
        }
        let mut without = settings.clone();
        without.without.push(feature.name.clone());
        // The host must stay the same without the feature, so it is named.
        without.host = without.host.or_else(|| Some(all.host.to_owned()));
        let found = with_settings(graph, target, &without, work)?;
        let name = format!("without {}", feature.name);
        rows.push(Variant::of(&name, &feature.summary, &found));
    }
    for (name, other) in comparisons {
        let other = Settings {
            machine: settings.machine.clone(),
            profile: settings.profile.clone(),
            set: settings.set.clone(),
            numerics: settings.numerics.clone(),
            ..other.clone()
        };
        let found = with_settings(graph, target, &other, work)?;
        rows.push(Variant::of(name, "", &found));
    }
    Ok(rows)
}

impl From<SettingError> for PredictError {
    fn from(error: SettingError) -> PredictError {
        PredictError::Setting(error)
    }
}
