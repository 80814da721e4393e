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
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::{Feature, Features, Mode};
use millrace_xdna2::Numerics;
use millrace_xdna2::lower::{self, AttentionOn, Options, Phase};
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

/// A plan to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Prefill or decode.
    pub(crate) phase: Phase,
    /// For what.
    pub(crate) options: Options,
}

impl Request {
    /// `prefill of 128 tokens`, `prefill of 128 tokens, later chunk`, `decode`.
    pub(crate) fn name(&self) -> String {
        let n = self.options.n_tokens;
        match (self.phase, self.options.attention) {
            (Phase::Decode, _) => "decode".to_owned(),
            (Phase::Prefill, AttentionOn::Device) => format!("prefill of {n} tokens"),
            (Phase::Prefill, _) => format!("prefill of {n} tokens, a later chunk"),
        }
    }
}

/// Tokens that a prefill has without [`Feature::Buckets`].
const REFERENCE_TOKENS: u64 = 2048;

/// The plans that prompts of those lengths run, chunk by chunk as a session cuts them, and that of a
/// token; without lengths, a plan for every bucket.
pub(crate) fn requests(features: Features, prompts: &[u64]) -> Vec<Request> {
    let buckets = features.has(Feature::Buckets);
    let padded = |n: u64| {
        if buckets {
            lower::bucket(n)
        } else {
            REFERENCE_TOKENS
        }
    };
    let mut found = Vec::new();
    let mut add = |phase, n_tokens, attention| {
        let options = Options {
            features,
            n_tokens,
            attention,
        };
        let request = Request { phase, options };
        if !found.contains(&request) {
            found.push(request);
        }
    };
    match prompts {
        [] if buckets => {
            let each = lower::BUCKETS.into_iter();
            each.for_each(|n| add(Phase::Prefill, n, AttentionOn::Device));
        }
        [] => add(Phase::Prefill, REFERENCE_TOKENS, AttentionOn::Device),
        prompts => {
            for &n in prompts {
                let (mut rest, mut attention) = (n, AttentionOn::Device);
                while rest > 0 {
                    add(Phase::Prefill, padded(rest), attention);
                    rest = rest.saturating_sub(padded(rest));
                    attention = AttentionOn::Host;
                }
            }
        }
    }
    add(Phase::Decode, 1, AttentionOn::Device);
    found
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

    fn lengths(features: Features, prompts: &[u64]) -> Vec<(u64, AttentionOn)> {
        let requests = requests(features, prompts).into_iter();
        let of = |r: Request| (r.options.n_tokens, r.options.attention);
        requests
            .filter(|r| r.phase == Phase::Prefill)
            .map(of)
            .collect()
    }

    #[test]
    fn prompts_are_cut_as_a_session_cuts_them() {
        use AttentionOn::{Device, Host};
        let best = Features::of(Mode::Best);
        assert_eq!(lengths(best, &[30, 60]), [(64, Device)]);
        let long = [(2048, Device), (2048, Host), (128, Host)];
        assert_eq!(lengths(best, &[2 * 2048 + 100]), long);
        assert_eq!(lengths(best, &[]).len(), lower::BUCKETS.len());
        assert_eq!(lengths(Features::NONE, &[]), [(2048, Device)]);
        assert_eq!(lengths(Features::NONE, &[7]), [(2048, Device)]);
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
