//! Prompts and tokens of lowered plans, and the parts of their time.

use super::rows::{MODE, PaperMetric, Series};
use millrace_format::Source;
use millrace_graph::{Graph, Node, Op};
use millrace_model::Model;
use millrace_model::recipe::Recipe;
use millrace_model::synth::ModelGeometry;
use millrace_plan::predict::{self, ModelPart, PassCost, PredictError, PriceError, PromptWorkload};
use millrace_plan::{FactSource, Planner, Pricer, Settings, VisionCost};
use millrace_xdna2::target::{Xdna2, planner};
use millrace_xdna2_machine::profile::Stack;
use serde::Serialize;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// A time and its parts.
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
    /// Extra time of the published stack: not part of `ns`, and zero for a mode that is not the paper's.
    pub(super) stack_ns: f64,
    pub(super) n_dispatches: u64,
}

impl Cost {
    /// The time with the stack's extra time.
    pub(super) fn whole_ns(&self) -> f64 {
        self.ns + self.stack_ns
    }

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

/// Predicts, and caches graphs, planners and predictions.
#[derive(Default)]
pub(super) struct PaperPredictor {
    graphs: HashMap<&'static str, Graph>,
    planners: HashMap<(&'static str, &'static str), Xdna2>,
    known: HashMap<(Key, PaperMetric, u64), Cost>,
}

impl PaperPredictor {
    /// Cost of a prompt of so many tokens, or of a token after as many.
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
            PaperMetric::Prompt => tokens,
            PaperMetric::Token => 1,
        };
        let work = PromptWorkload {
            prompt_tokens,
            context: tokens,
        };
        let prediction = self.predict(key, &work)?;
        let (stack, n_layers) = self.stack(key)?;
        let token = Cost::of(std::slice::from_ref(&prediction.token));
        self.known.insert((key, PaperMetric::Token, tokens), token);
        if series.what == PaperMetric::Token {
            return Ok(token);
        }
        let prompt = Cost {
            stack_ns: stack.prompt_ns(n_layers, tokens),
            ..Cost::of(&prediction.prefill)
        };
        self.known
            .insert((key, PaperMetric::Prompt, tokens), prompt);
        Ok(prompt)
    }

    fn predict(
        &mut self,
        key: Key,
        work: &PromptWorkload,
    ) -> Result<predict::Prediction, PredictError> {
        let (graph, planner) = self.of(key)?;
        let mut pricer = pricer(planner)?;
        predict::model(graph, planner, &mut *pricer, work)
    }

    /// Extra time of the published stack beyond its launches, zero if the mode is not its own; and the number of the model's layers.
    fn stack(&mut self, key: Key) -> Result<(Stack, usize), PredictError> {
        let (graph, planner) = self.of(key)?;
        let is_attention = |node: &&Node| matches!(node.op, Op::Attention(_));
        let n_layers = graph.nodes.iter().filter(is_attention).count();
        let stack = match key.2 == MODE {
            true => planner.profile().stack,
            false => Stack::default(),
        };
        Ok((stack, n_layers))
    }

    fn of(&mut self, key: Key) -> Result<(&Graph, &Xdna2), PredictError> {
        let (geometry, profile, mode) = key;
        let graph = match self.graphs.entry(geometry) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(shape(geometry)?),
        };
        let planner = match self.planners.entry((profile, mode)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(planner(&Settings {
                profile: Some(FactSource::Named(profile.to_owned())),
                mode: Some(mode.to_owned()),
                ..Settings::default()
            })?),
        };
        Ok((graph, planner))
    }

    /// An image and a prompt of so many tokens, its rows among them, to the first token. It runs the vision encoder's
    /// programs and a pass that includes the image, as the engine does.
    pub(super) fn image(
        &mut self,
        (geometry, profile, mode): Key,
        tokens: u64,
    ) -> Result<ImageCost, PredictError> {
        let failed = |problem: String| PriceError(format!("{geometry}: {problem}"));
        let vision = ModelGeometry::named(geometry).and_then(ModelGeometry::vision);
        let vision = vision.ok_or_else(|| failed("no vision encoder".to_owned()))?;
        let (stack, n_layers) = self.stack((geometry, profile, mode))?;
        let (graph, planner) = self.of((geometry, profile, mode))?;
        let mut pricer = pricer(planner)?;
        let predict::ImagePass { encoder, pass } =
            predict::image(graph, &vision, planner, &mut *pricer, tokens)?;
        let n_patches = vision.n_patches() as u64;
        let prompt = Cost {
            stack_ns: stack.prompt_ns(n_layers, tokens),
            ..Cost::of(std::slice::from_ref(&pass))
        };
        Ok(ImageCost {
            encoder,
            vision_stack_ns: stack.prompt_ns(vision.n_layers, n_patches),
            prompt,
        })
    }
}

/// Cost of an image, to the first token.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ImageCost {
    pub(super) encoder: VisionCost,
    /// The published stack's own, of the vision encoder's layers and patches as of a prompt's layers and tokens.
    pub(super) vision_stack_ns: f64,
    pub(super) prompt: Cost,
}

impl ImageCost {
    /// Launches and the host.
    pub(super) fn launches_ns(&self) -> f64 {
        self.encoder.total_ns() + self.prompt.ns
    }

    pub(super) fn stack_ns(&self) -> f64 {
        self.vision_stack_ns + self.prompt.stack_ns
    }
}

fn pricer(planner: &Xdna2) -> Result<Box<dyn Pricer + '_>, PriceError> {
    let pricer = planner.pricer();
    pricer.ok_or_else(|| PriceError("no prices".to_owned()))
}

/// A published shape; its weights are none that are read.
fn shape(name: &str) -> Result<Graph, PredictError> {
    let failed = |problem: String| PriceError(format!("{name}: {problem}"));
    let geometry =
        ModelGeometry::named(name).ok_or_else(|| failed("no such geometry".to_owned()))?;
    let recipe = Recipe::parse("bf16").ok_or_else(|| failed("no recipe `bf16`".to_owned()))?;
    let model = Model::without_weights(geometry, None, recipe, Source::HuggingFace);
    Ok(model.map_err(|error| failed(error.to_string()))?.graph)
}
