//! What to plan for: a model's files, or a geometry with no files at all; and for which prompts.

use crate::exit::{Failure, Outcome};
use crate::model_arg::ModelArgs;
use crate::npu_args::NpuModelArgs;
use crate::output::Ui;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use millrace_format::Source;
use millrace_model::Model;
use millrace_model::graph::Graph;
use millrace_model::recipe::Recipe;
use millrace_model::synth::Geometry;
use millrace_runtime::npu::{Feature, Features, Mode};
use millrace_runtime::{EngineOptions, LoadedModel};
use millrace_xdna2::Machine;
use millrace_xdna2::Numerics;
pub(crate) use millrace_xdna2::lower::Request;
use millrace_xdna2::lower::{Phase, Sequences};
use std::sync::Arc;

/// A graph to plan, on which machine, and how
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct PlanArgs {
    #[arg(help = crate::model_arg::MODEL_HELP, value_name = "MODEL", required_unless_present = "geometry", value_hint = clap::ValueHint::AnyPath)]
    model: Option<String>,
    /// The shape of a real model instead: needs no files
    #[arg(long, value_name = "NAME", conflicts_with = "model", value_parser = geometry_parser())]
    geometry: Option<Geometry>,
    /// Number of layers [default: the geometry's]
    #[arg(long, value_name = "N", requires = "geometry")]
    layers: Option<usize>,
    /// Never use the network: hf: models must be in the cache
    #[arg(long)]
    offline: bool,
    /// The device
    #[arg(long, value_name = "NAME", default_value = "xdna2", value_parser = ["xdna2"])]
    device: String,
    #[command(flatten)]
    pub(crate) npu: NpuModelArgs,
}

fn geometry_parser() -> impl TypedValueParser<Value = Geometry> {
    PossibleValuesParser::new(Geometry::all().map(Geometry::name))
        .map(|name| Geometry::named(&name).expect("one of the possible values"))
}

/// What is planned.
pub(crate) struct Planned {
    name: String,
    of: Of,
}

enum Of {
    Files(Arc<LoadedModel>),
    Geometry(Box<Model>),
}

impl Planned {
    /// What to call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its configuration and graph.
    pub(crate) fn model(&self) -> &Model {
        match &self.of {
            Of::Files(model) => model.model(),
            Of::Geometry(model) => model,
        }
    }

    /// Its forward pass.
    pub(crate) fn graph(&self) -> &Graph {
        &self.model().graph
    }
}

impl PlanArgs {
    /// The graph. Of a model's files no weight is read.
    pub(crate) fn read(&self, ui: Ui) -> Outcome<Planned> {
        if let Some(geometry) = self.geometry {
            let recipe = Recipe::parse("BF16").expect("a recipe of the table");
            let source = Source::HuggingFace;
            let model = Model::without_weights(geometry, self.layers, recipe, source)
                .map_err(|error| Failure::usage(error.to_string()))?;
            return Ok(Planned {
                name: geometry.name().to_owned(),
                of: Of::Geometry(Box::new(model)),
            });
        }
        let args = ModelArgs {
            model: self.model.clone().unwrap_or_default(),
            offline: self.offline,
        };
        let model = args.load(ui)?;
        Ok(Planned {
            name: model.name().to_owned(),
            of: Of::Files(model),
        })
    }
}

/// The plans that prompts of those lengths run, chunk by chunk as a session cuts them; without lengths,
/// a plan for every length that there is.
pub(crate) fn of_prompts(sequences: &Sequences<'_>, prompts: &[u64]) -> Vec<Request> {
    let of = |options| Request {
        phase: Phase::Prefill,
        options,
    };
    sequences.prefills(prompts).into_iter().map(of).collect()
}

/// The plan of the token behind so many others.
pub(crate) fn of_token(sequences: &Sequences<'_>, first: u64) -> Request {
    Request {
        phase: Phase::Decode,
        options: sequences.decode(first),
    }
}

/// The plans of all tokens.
pub(crate) fn of_tokens(sequences: &Sequences<'_>) -> Vec<Request> {
    let of = |options| Request {
        phase: Phase::Decode,
        options,
    };
    sequences.decodes().into_iter().map(of).collect()
}

impl Planned {
    /// Its sequences on a machine, in the context that a session has if none is asked for, or in one that
    /// holds the longest of the prompts and a token.
    pub(crate) fn sequences<'a>(
        &'a self,
        machine: &'a Machine,
        features: Features,
        prompts: &[u64],
    ) -> Sequences<'a> {
        let trained = self.model().config.context_length;
        let n_ctx = trained.clamp(1, EngineOptions::DEFAULT_MAX_CTX) as u64;
        let longest = prompts.iter().max().map_or(0, |n| n + 1);
        Sequences {
            graph: self.graph(),
            machine,
            features,
            n_ctx: n_ctx.max(longest),
        }
    }
}

/// `best`, `reference`, `best without alias`.
pub(crate) fn mode_name(features: Features) -> String {
    let missing: Vec<&str> = Feature::ALL
        .into_iter()
        .filter(|feature| !features.has(*feature))
        .map(Feature::name)
        .collect();
    let name = match features.with_numerics(Numerics::Bf16) {
        all if all == Features::of(Mode::Best) => "best".to_owned(),
        published if published == Features::PUBLISHED => "reference".to_owned(),
        none if none == Features::NONE => "reference without single-row-head".to_owned(),
        _ => format!("best without {}", missing.join(", ")),
    };
    match features.numerics() {
        Numerics::Bf16 => name,
        other => format!("{name}, products in {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_xdna2::lower::{self, AttentionOn};

    /// Sessions, predictions and what is compiled ahead of time ask one rule; here it is held to the
    /// attention that each pass takes.
    #[test]
    fn prompts_and_tokens_have_the_plans_that_sessions_take() {
        let geometry = Geometry::named("llama-3.2-1b").expect("a geometry");
        let recipe = Recipe::parse("BF16").expect("a recipe");
        let model = Model::without_weights(geometry, Some(1), recipe, Source::HuggingFace);
        let planned = Planned {
            name: "1b".to_owned(),
            of: Of::Geometry(Box::new(model.expect("a model"))),
        };
        let machine = Machine::npu2();
        let best = Features::of(Mode::Best);
        let lengths = |features, prompts: &[u64]| -> Vec<(u64, bool)> {
            let sequences = planned.sequences(&machine, features, prompts);
            let requests = of_prompts(&sequences, prompts).into_iter();
            let first = |r: Request| r.options.attention == AttentionOn::Device;
            requests.map(|r| (r.options.n_tokens, first(r))).collect()
        };
        assert_eq!(lengths(best, &[30, 60]), [(64, true)]);
        let long = [(2048, true), (2048, false), (128, false)];
        assert_eq!(lengths(best, &[2 * 2048 + 100]), long);
        assert_eq!(lengths(best, &[]).len(), lower::BUCKETS.len());
        assert_eq!(lengths(Features::NONE, &[]), [(2048, true)]);
        assert_eq!(lengths(Features::NONE, &[7]), [(2048, true)]);
        // Every token's plan is among those of all tokens, and none is there twice or for nothing.
        let sequences = planned.sequences(&machine, best, &[8192]);
        let all = of_tokens(&sequences);
        let mut met = Vec::new();
        for first in (0..sequences.n_ctx).step_by(64) {
            let one = of_token(&sequences, first);
            assert!(all.contains(&one), "{first}");
            if !met.contains(&one) {
                met.push(one);
            }
        }
        assert_eq!(met, all);
        assert!(all.len() > 1, "{all:?}");
    }

    #[test]
    fn modes_have_names() {
        let best = Features::of(Mode::Best);
        assert_eq!(mode_name(best), "best");
        assert_eq!(mode_name(Features::PUBLISHED), "reference");
        assert_eq!(
            mode_name(Features::NONE),
            "reference without single-row-head"
        );
        assert_eq!(
            mode_name(best.without(Feature::Alias)),
            "best without alias"
        );
        let emulated = best.with_numerics(Numerics::Bfp16);
        assert_eq!(mode_name(emulated), "best, products in bfp16");
    }
}
