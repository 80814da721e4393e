//! Hidden states of the device, and their distance from a reference.

use super::reference::States;
use crate::exit::{CommandFailure, CommandResult, Exit};
use millrace_npu::CacheError;
use millrace_plan::Step;
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{NpuModel, Observation, Observer};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Collects hidden states from the device's memory, also between launches of a program.
pub(super) struct Capture {
    n_states: usize,
    seen: Arc<Mutex<LayerStates>>,
}

#[derive(Default)]
struct LayerStates {
    /// By hidden state, then by position of the chunk's first token.
    states: BTreeMap<usize, BTreeMap<usize, Vec<f32>>>,
    failed: Option<CacheError>,
}

fn lock(seen: &Mutex<LayerStates>) -> MutexGuard<'_, LayerStates> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Capture {
    /// Makes a collection, and the observer that fills it from a session.
    pub(super) fn new(npu: &Arc<NpuModel>) -> (Capture, Observer) {
        let seen = Arc::new(Mutex::new(LayerStates::default()));
        let shared = seen.clone();
        let model = npu.model().clone();
        let n_states = model.model().graph.hidden.len();
        let observer = Box::new(move |observation: &Observation<'_>| {
            let mut seen = lock(&shared);
            if let Err(error) = seen.look(&model, observation) {
                seen.failed = Some(error);
            }
        });
        (Capture { n_states, seen }, observer)
    }

    /// Takes the collected states, each with all its rows.
    pub(super) fn take(&self) -> CommandResult<Vec<Option<Vec<f32>>>> {
        let mut seen = lock(&self.seen);
        if let Some(error) = seen.failed.take() {
            return Err(CommandFailure::new(Exit::Failed, error.to_string()));
        }
        let state = |index| {
            let chunks = seen.states.get(&index)?;
            Some(chunks.values().flatten().copied().collect())
        };
        Ok((0..self.n_states).map(state).collect())
    }
}

impl LayerStates {
    fn look(&mut self, model: &LoadedModel, seen: &Observation<'_>) -> Result<(), CacheError> {
        let graph = &model.model().graph;
        let is_this = |step: &Step| matches!(step, Step::Call(call) if call.set == seen.call.set);
        let Some(step) = seen.plan.steps.iter().position(is_this) else {
            return Ok(());
        };
        for (slot, value) in seen.plan.slot_values(step, graph).into_iter().enumerate() {
            let Some(value) = value else { continue };
            let Some(index) = graph.hidden.iter().position(|hidden| *hidden == value) else {
                continue;
            };
            let chunks = self.states.entry(index).or_default();
            if chunks.contains_key(&seen.first) {
                continue;
            }
            let n_elems = graph.values[value.0].width * seen.n_real;
            let bytes = seen.cache.peek(seen.key, slot)?;
            let pairs = bytes.chunks_exact(2).take(n_elems);
            let value = |pair: &[u8]| f32::from_bits(u32::from_le_bytes([0, 0, pair[0], pair[1]]));
            chunks.insert(seen.first, pairs.map(value).collect());
        }
        Ok(())
    }
}

/// Comparison of one state of the device with its reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct LayerRow {
    /// `embeddings`, `block 0`, …, `logits`.
    pub(super) state: String,
    /// Cosines over positions; none where the device does not have the state.
    pub(super) cosine: Option<Cosines>,
    /// Largest difference of an element.
    pub(super) max_abs: Option<f64>,
    /// Largest element of the reference.
    pub(super) largest: f64,
}

/// Cosines of rows with their references.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Cosines {
    /// 5th percentile: one row in twenty is below it.
    pub(super) p5: f64,
    pub(super) min: f64,
    pub(super) median: f64,
}

/// Compares every state, and the logits if both sides have them.
pub(super) fn compare(
    model: &LoadedModel,
    expected: &States,
    found: &States,
) -> CommandResult<Vec<LayerRow>> {
    let config = &model.model().config;
    let name = |index: usize| match index.checked_sub(1) {
        None => "embeddings".to_owned(),
        Some(block) => format!("block {block}"),
    };
    let mut rows = Vec::new();
    for (index, (expected, found)) in expected.hidden.iter().zip(&found.hidden).enumerate() {
        let Some(expected) = expected else { continue };
        rows.push(row(
            name(index),
            expected,
            found.as_deref(),
            config.d_model,
        )?);
    }
    if let (Some(expected), Some(found)) = (&expected.logits, &found.logits) {
        let name = "logits".to_owned();
        rows.push(row(name, expected, Some(found), config.vocab_size)?);
    }
    Ok(rows)
}

fn row(
    state: String,
    expected: &[f32],
    found: Option<&[f32]>,
    width: usize,
) -> CommandResult<LayerRow> {
    let largest = expected
        .iter()
        .map(|x| f64::from(x.abs()))
        .fold(0.0, f64::max);
    let Some(found) = found else {
        return Ok(LayerRow {
            state,
            cosine: None,
            max_abs: None,
            largest,
        });
    };
    if found.len() != expected.len() {
        return Err(CommandFailure::bad_input(format!(
            "{state}: {} numbers of the device, {} of the reference",
            found.len(),
            expected.len()
        )));
    }
    let rows = expected.chunks_exact(width).zip(found.chunks_exact(width));
    let mut cosines: Vec<f64> = rows.map(|(a, b)| cosine(a, b)).collect();
    cosines.sort_by(f64::total_cmp);
    let differences = expected.iter().zip(found);
    let differences = differences.map(|(a, b)| f64::from(a - b).abs());
    Ok(LayerRow {
        state,
        cosine: Some(Cosines {
            p5: at_share(&cosines, 0.05),
            min: at_share(&cosines, 0.0),
            median: at_share(&cosines, 0.5),
        }),
        max_abs: Some(differences.fold(0.0, worst)),
        largest,
    })
}

/// The larger number; NaN counts as larger than all.
fn worst(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.max(b)
    }
}

/// The number below which this share of the sorted ones lies.
fn at_share(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = (share * last as f64).floor() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let (mut dot, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (f64::from(*a), f64::from(*b));
        dot += a * b;
        aa += a * a;
        bb += b * b;
    }
    dot / (aa * bb).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines_and_shares() {
        assert_eq!(cosine(&[1.0, 0.0], &[2.0, 0.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 2.0]), 0.0);
        let sorted: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(at_share(&sorted, 0.05), 5.0);
        assert_eq!(at_share(&sorted, 0.5), 50.0);
        let found = row(
            "x".to_owned(),
            &[3.0, 4.0, 1.0, 0.0],
            Some(&[3.0, 4.0, 0.0, 1.0]),
            2,
        );
        let found = found.expect("a row");
        assert_eq!(found.max_abs, Some(1.0));
        assert_eq!(found.cosine.map(|c| c.min), Some(0.0));
        assert_eq!(found.largest, 4.0);
        assert!(row("x".to_owned(), &[1.0], Some(&[1.0, 2.0]), 1).is_err());
    }
}
