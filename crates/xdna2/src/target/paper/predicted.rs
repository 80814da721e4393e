//! Prompts and tokens of lowered plans, and where their time goes.

use super::rows::{Series, What};
use crate::target::{Xdna2, planner};
use millrace_format::Source;
use millrace_model::Model;
use millrace_model::graph::Graph;
use millrace_model::recipe::Recipe;
use millrace_model::synth::Geometry;
use millrace_plan::predict::{self, ModelPart, PassCost, PredictError, PriceError, Work};
use millrace_plan::{Facts, Planner, Settings};
use serde::Serialize;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// A time and what it is made of.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Cost {
    pub(super) ns: f64,
    /// Launches at work: products with weights.
    pub(super) products_ns: f64,
    /// Launches at work: attention on the array.
    pub(super) attention_ns: f64,
    /// Launches at work: norms, rotation, activation, sums.
    pub(super) elementwise_ns: f64,
    /// Loading cores.
    pub(super) loading_ns: f64,
    /// Dispatches, calls on the host, buffers written and read.
    pub(super) calls_ns: f64,
    /// Attention on the host.
    pub(super) host_attention_ns: f64,
    /// Its other steps.
    pub(super) host_ns: f64,
    pub(super) n_dispatches: u64,
}

impl Cost {
    fn of(passes: &[PassCost]) -> Cost {
        let mut cost = Cost::default();
        for pass in passes {
            let t = &pass.totals;
            cost.ns += t.total_ns;
            cost.loading_ns += t.load_ns;
            cost.calls_ns += t.dispatch_ns + t.call_ns + t.write_ns + t.read_ns;
            cost.n_dispatches += t.n_calls;
            for program in &pass.programs {
                for launch in &program.launches {
                    let part = match launch.part {
                        ModelPart::Attention => &mut cost.attention_ns,
                        ModelPart::Elementwise => &mut cost.elementwise_ns,
                        ModelPart::Projections | ModelPart::FeedForward | ModelPart::Head => {
                            &mut cost.products_ns
                        }
                    };
                    *part += program.calls as f64 * launch.ns;
                }
            }
            for step in pass.host_steps() {
                let part = match step.name {
                    "attention" => &mut cost.host_attention_ns,
                    _ => &mut cost.host_ns,
                };
                *part += step.ns;
            }
        }
        cost
    }
}

/// Geometry, profile, mode.
type Key = (&'static str, &'static str, &'static str);

/// Predicts, and keeps graphs, planners and what was predicted.
#[derive(Default)]
pub(super) struct Predictor {
    graphs: HashMap<&'static str, Graph>,
    planners: HashMap<(&'static str, &'static str), Xdna2>,
    known: HashMap<(Key, What, u64), Cost>,
}

impl Predictor {
    /// A prompt of so many tokens, or a token behind as many.
    pub(super) fn cost(
        &mut self,
        series: &Series,
        mode: &'static str,
        tokens: u64,
    ) -> Result<Cost, PredictError> {
        let key = (series.geometry, series.profile, mode);
        if let Some(known) = self.known.get(&(key, series.what, tokens)) {
            return Ok(*known);
        }
        let prompt_tokens = match series.what {
            What::Prompt => tokens,
            What::Token => 1,
        };
        let work = Work {
            prompt_tokens,
            context: tokens,
        };
        let prediction = self.predict(key, &work)?;
        let token = Cost::of(std::slice::from_ref(&prediction.token));
        self.known.insert((key, What::Token, tokens), token);
        if series.what == What::Token {
            return Ok(token);
        }
        let prompt = Cost::of(&prediction.prefill);
        self.known.insert((key, What::Prompt, tokens), prompt);
        Ok(prompt)
    }

    fn predict(&mut self, key: Key, work: &Work) -> Result<predict::Prediction, PredictError> {
        let (geometry, profile, mode) = key;
        let graph = match self.graphs.entry(geometry) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(shape(geometry)?),
        };
        let planner = match self.planners.entry((profile, mode)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(planner(&Settings {
                profile: Some(Facts::Named(profile.to_owned())),
                mode: Some(mode.to_owned()),
                ..Settings::default()
            })?),
        };
        let pricer = planner.pricer();
        let mut pricer = pricer.ok_or_else(|| PriceError("no prices".to_owned()))?;
        predict::model(graph, planner, &mut *pricer, work)
    }
}

/// A published shape; its weights are none that are read.
fn shape(name: &str) -> Result<Graph, PredictError> {
    let failed = |problem: String| PriceError(format!("{name}: {problem}"));
    let geometry = Geometry::named(name).ok_or_else(|| failed("no such geometry".to_owned()))?;
    let recipe = Recipe::parse("bf16").ok_or_else(|| failed("no recipe `bf16`".to_owned()))?;
    let model = Model::without_weights(geometry, None, recipe, Source::HuggingFace);
    Ok(model.map_err(|error| failed(error.to_string()))?.graph)
}
