//! The subject of a profile: a model of a file, or only the shape of one.

use super::ProfileArgs;
use crate::exit::{CommandFailure, CommandResult};
use crate::model_arg::ModelArgs;
use crate::output::Ui;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use millrace_format::Source;
use millrace_graph::Graph;
use millrace_model::Model;
use millrace_model::recipe::Recipe;
use millrace_model::synth::ModelGeometry;
use millrace_runtime::LoadedModel;
use std::sync::Arc;

pub(super) fn geometry_parser() -> impl TypedValueParser<Value = ModelGeometry> {
    PossibleValuesParser::new(ModelGeometry::all().map(ModelGeometry::name))
        .map(|name| ModelGeometry::named(&name).expect("one of the possible values"))
}

/// A model, with its weights or without.
pub(super) enum ProfileSubject {
    /// A published shape.
    Shape(&'static str, Box<Model>),
    /// Files. They stay mapped; no weight is read before they are run.
    Files(Arc<LoadedModel>),
}

impl ProfileSubject {
    pub(super) fn open(args: &ProfileArgs, ui: Ui) -> CommandResult<ProfileSubject> {
        match (&args.geometry, &args.model) {
            (Some(geometry), _) => ProfileSubject::shape(*geometry, args.layers),
            (None, Some(_)) if args.layers.is_some() => Err(CommandFailure::usage(
                "--layers is for a --geometry: a file has the layers that it has",
            )),
            (None, Some(model)) => {
                let model = ModelArgs {
                    model: model.clone(),
                    offline: args.offline,
                };
                Ok(ProfileSubject::Files(model.load(ui)?))
            }
            (None, None) => Err(CommandFailure::usage("a model or --geometry is needed")),
        }
    }

    /// Makes a published shape in bf16, with another number of layers if one is given.
    pub(super) fn shape(
        geometry: ModelGeometry,
        n_layers: Option<usize>,
    ) -> CommandResult<ProfileSubject> {
        let recipe = Recipe::parse("bf16").expect("it exists");
        let model = Model::without_weights(geometry, n_layers, recipe, Source::HuggingFace)
            .map_err(|error| CommandFailure::usage(error.to_string()))?;
        Ok(ProfileSubject::Shape(geometry.name(), Box::new(model)))
    }

    pub(super) fn name(&self) -> &str {
        match self {
            ProfileSubject::Shape(name, _) => name,
            ProfileSubject::Files(model) => model.name(),
        }
    }

    pub(super) fn model(&self) -> &Model {
        match self {
            ProfileSubject::Shape(_, model) => model,
            ProfileSubject::Files(model) => model.model(),
        }
    }

    pub(super) fn graph(&self) -> &Graph {
        &self.model().graph
    }

    /// Tokenizes a prompt.
    pub(super) fn encode(&self, text: &str) -> CommandResult<Vec<u32>> {
        let ProfileSubject::Files(model) = self else {
            return Err(
                CommandFailure::usage("a shape has no tokenizer for a prompt")
                    .hint("say how long it is: --prompt-tokens N"),
            );
        };
        Ok(model.tokenizer()?.encode_continued(text, true).0)
    }

    /// Whether nothing is run.
    pub(super) fn only_predicted(&self, args: &ProfileArgs) -> bool {
        args.timing_only || args.markdown || matches!(self, ProfileSubject::Shape(..))
    }
}
