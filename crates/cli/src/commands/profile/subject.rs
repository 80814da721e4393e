//! Whose cost it is: a model of a file, or only the shape of one.

use super::Args;
use crate::exit::{Failure, Outcome};
use crate::model_arg::ModelArgs;
use crate::output::Ui;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use millrace_format::Source;
use millrace_model::Model;
use millrace_model::graph::Graph;
use millrace_model::recipe::Recipe;
use millrace_model::synth::Geometry;
use millrace_runtime::LoadedModel;
use std::sync::Arc;

pub(super) fn geometry_parser() -> impl TypedValueParser<Value = Geometry> {
    PossibleValuesParser::new(Geometry::all().map(Geometry::name))
        .map(|name| Geometry::named(&name).expect("one of the possible values"))
}

/// A model, with its weights or without.
pub(super) enum Subject {
    /// A published shape.
    Shape(&'static str, Box<Model>),
    /// Files. They stay mapped; nothing of their weights is read before they are run.
    Files(Arc<LoadedModel>),
}

impl Subject {
    pub(super) fn open(args: &Args, ui: Ui) -> Outcome<Subject> {
        match (&args.geometry, &args.model) {
            (Some(geometry), _) => Subject::shape(*geometry, args.layers),
            (None, Some(_)) if args.layers.is_some() => Err(Failure::usage(
                "--layers is for a --geometry: a file has the layers that it has",
            )),
            (None, Some(model)) => {
                let model = ModelArgs {
                    model: model.clone(),
                    offline: args.offline,
                };
                Ok(Subject::Files(model.load(ui)?))
            }
            (None, None) => Err(Failure::usage("a model or --geometry is needed")),
        }
    }

    /// A published shape in bf16, with another number of layers if one is given.
    pub(super) fn shape(geometry: Geometry, n_layers: Option<usize>) -> Outcome<Subject> {
        let recipe = Recipe::parse("bf16").expect("it exists");
        let model = Model::without_weights(geometry, n_layers, recipe, Source::HuggingFace)
            .map_err(|error| Failure::usage(error.to_string()))?;
        Ok(Subject::Shape(geometry.name(), Box::new(model)))
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Subject::Shape(name, _) => name,
            Subject::Files(model) => model.name(),
        }
    }

    pub(super) fn model(&self) -> &Model {
        match self {
            Subject::Shape(_, model) => model,
            Subject::Files(model) => model.model(),
        }
    }

    pub(super) fn graph(&self) -> &Graph {
        &self.model().graph
    }

    /// The tokens of a prompt.
    pub(super) fn encode(&self, text: &str) -> Outcome<Vec<u32>> {
        let Subject::Files(model) = self else {
            return Err(Failure::usage("a shape has no tokenizer for a prompt")
                .hint("say how long it is: --prompt-tokens N"));
        };
        Ok(model.tokenizer()?.encode_continued(text, true).0)
    }

    /// Whether nothing is run.
    pub(super) fn only_predicted(&self, args: &Args) -> bool {
        args.timing_only || args.markdown || matches!(self, Subject::Shape(..))
    }
}
