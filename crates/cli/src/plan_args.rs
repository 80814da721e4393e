//! Subject of a plan: a model's files, or a geometry without files; and the prompts.

use crate::commands::quantize::parse_recipe;
use crate::exit::{CommandFailure, CommandResult};
use crate::model_arg::ModelArgs;
use crate::output::Ui;
use crate::target_args::TargetArgs;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use millrace_format::Source;
use millrace_graph::Graph;
use millrace_model::Model;
use millrace_model::recipe::Recipe;
use millrace_model::synth::ModelGeometry;
use millrace_plan::{Lowering, PassKind, Sequences};
use millrace_runtime::{EngineOptions, LoadedModel};
use std::sync::Arc;

/// Graph, machine and mode to plan
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct PlanArgs {
    #[arg(help = crate::model_arg::MODEL_HELP, value_name = "MODEL", required_unless_present = "geometry", value_hint = clap::ValueHint::AnyPath)]
    model: Option<String>,
    /// Use the shape of a real model instead: needs no files
    #[arg(long, value_name = "NAME", conflicts_with = "model", value_parser = geometry_parser())]
    geometry: Option<ModelGeometry>,
    /// Number of layers [default: the geometry's]
    #[arg(long, value_name = "N", requires = "geometry")]
    layers: Option<usize>,
    /// Never use the network: hf: models must be in the cache
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// A model, wherever it may run: files, or the shape of a real one
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SubjectArgs {
    #[arg(help = crate::model_arg::MODEL_HELP, value_name = "MODEL", required_unless_present = "geometry", value_hint = clap::ValueHint::AnyPath)]
    model: Option<String>,
    /// Use the shape of a real model instead: needs no files
    #[arg(long, value_name = "NAME", conflicts_with = "model", value_parser = geometry_parser())]
    geometry: Option<ModelGeometry>,
    /// Number of layers [default: the geometry's]
    #[arg(long, value_name = "N", requires = "geometry")]
    layers: Option<usize>,
    /// Type of the geometry's weights [default: BF16]
    #[arg(long = "type", value_name = "TYPE", requires = "geometry", value_parser = parse_recipe)]
    recipe: Option<Recipe>,
    /// Never use the network: hf: models must be in the cache
    #[arg(long)]
    offline: bool,
}

impl SubjectArgs {
    /// Reads the model; no weights are read.
    pub(crate) fn read(&self, ui: Ui) -> CommandResult<PlanSubject> {
        if let Some((name, model)) = self.geometry()? {
            return Ok(PlanSubject {
                name: name.to_owned(),
                of: Of::Geometry(Box::new(model)),
            });
        }
        let model = self.files().load(ui)?;
        Ok(PlanSubject {
            name: model.name().to_owned(),
            of: Of::Files(model),
        })
    }

    /// The named files; none where there is a geometry.
    pub(crate) fn files(&self) -> ModelArgs {
        ModelArgs {
            model: self.model.clone().unwrap_or_default(),
            offline: self.offline,
        }
    }

    /// The shape named in place of files, and its display name.
    pub(crate) fn geometry(&self) -> CommandResult<Option<(&'static str, Model)>> {
        let Some(geometry) = self.geometry else {
            return Ok(None);
        };
        let recipe = match self.recipe {
            Some(recipe) => recipe,
            None => Recipe::parse("BF16").expect("a recipe of the table"),
        };
        let source = match self.recipe {
            Some(_) => Source::Gguf,
            None => Source::HuggingFace,
        };
        let model = Model::without_weights(geometry, self.layers, recipe, source)
            .map_err(|error| CommandFailure::usage(error.to_string()))?;
        Ok(Some((geometry.name(), model)))
    }
}

fn geometry_parser() -> impl TypedValueParser<Value = ModelGeometry> {
    PossibleValuesParser::new(ModelGeometry::all().map(ModelGeometry::name))
        .map(|name| ModelGeometry::named(&name).expect("one of the possible values"))
}

/// Subject of a plan.
pub(crate) struct PlanSubject {
    name: String,
    of: Of,
}

enum Of {
    Files(Arc<LoadedModel>),
    Geometry(Box<Model>),
}

impl PlanSubject {
    /// Display name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its files, if it has some.
    pub(crate) fn files(&self) -> Option<&Arc<LoadedModel>> {
        match &self.of {
            Of::Files(model) => Some(model),
            Of::Geometry(_) => None,
        }
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
    /// Reads the graph; no weights are read.
    pub(crate) fn read(&self, ui: Ui) -> CommandResult<PlanSubject> {
        if let Some(geometry) = self.geometry {
            let recipe = Recipe::parse("BF16").expect("a recipe of the table");
            let source = Source::HuggingFace;
            let model = Model::without_weights(geometry, self.layers, recipe, source)
                .map_err(|error| CommandFailure::usage(error.to_string()))?;
            return Ok(PlanSubject {
                name: geometry.name().to_owned(),
                of: Of::Geometry(Box::new(model)),
            });
        }
        let args = ModelArgs {
            model: self.model.clone().unwrap_or_default(),
            offline: self.offline,
        };
        let model = args.load(ui)?;
        Ok(PlanSubject {
            name: model.name().to_owned(),
            of: Of::Files(model),
        })
    }
}

/// Kinds of plans for prompts of these lengths, in the chunks that a session makes (without lengths,
/// for every existing length), and those of all tokens.
pub(crate) fn kinds(sequences: &Sequences<'_>, prompts: &[u64]) -> Vec<PassKind> {
    let mut kinds = sequences.prefills(prompts);
    kinds.extend(sequences.decodes());
    kinds
}

impl PlanSubject {
    /// Its sequences, in the default context of a session, or in one that holds the longest of the
    /// prompts and one more token.
    pub(crate) fn sequences<'a>(
        &'a self,
        planner: &'a dyn Lowering,
        prompts: &[u64],
    ) -> Sequences<'a> {
        let trained = self.model().config.usual_context();
        let n_ctx = trained.clamp(1, EngineOptions::DEFAULT_MAX_CTX) as u64;
        let longest = prompts.iter().max().map_or(0, |n| n + 1);
        Sequences {
            graph: self.graph(),
            planner,
            n_ctx: n_ctx.max(longest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_plan::{AttentionOn, Settings};

    /// Sessions, predictions and ahead-of-time compilation follow one rule. This test compares it
    /// with the attention that each pass takes.
    #[test]
    fn prompts_and_tokens_have_the_plans_that_sessions_take() {
        let geometry = ModelGeometry::named("llama-3.2-1b").expect("a geometry");
        let recipe = Recipe::parse("BF16").expect("a recipe");
        let model = Model::without_weights(geometry, Some(1), recipe, Source::HuggingFace);
        let planned = PlanSubject {
            name: "1b".to_owned(),
            of: Of::Geometry(Box::new(model.expect("a model"))),
        };
        for target in millrace_targets::ALL {
            let planner = target.planner(&Settings::default()).expect("a planner");
            let lengths = planner.lengths();
            let longest = *lengths.all().last().expect("a length");
            let sequences = planned.sequences(&*planner, &[3 * longest]);
            let plans = sequences.prefills(&[2 * longest + 1]);
            assert!(plans.len() >= 2, "{plans:?}");
            // The first chunk sees itself alone, or has a cache for it on the device.
            assert_ne!(plans[0].attention, AttentionOn::Host);
            assert!(
                plans[1..]
                    .iter()
                    .all(|k| k.attention != AttentionOn::Device)
            );
            assert_eq!(sequences.prefills(&[1, 1]).len(), 1);
            assert_eq!(sequences.prefills(&[]).len(), lengths.all().len());
            // Every token's plan is among those of all tokens, and none is there twice or unused.
            let all = sequences.decodes();
            let mut met = Vec::new();
            for first in (0..sequences.n_ctx).step_by(64) {
                let one = sequences.decode(first);
                assert!(all.contains(&one), "{first}");
                if !met.contains(&one) {
                    met.push(one);
                }
            }
            assert_eq!(met, all);
        }
    }
}
