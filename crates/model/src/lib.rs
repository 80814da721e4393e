//! From a checkpoint to an op graph with shapes: configuration, weight names, one file a family.
//!
//! [`Model::from_checkpoint`] reads the [`config`]uration in either spelling, finds the family in
//! the table of [`arch`], and builds its [graph](millrace_graph), checking every weight's presence, shape and
//! format. Weights stay in the checkpoint: nothing here reads them, but for GGUF's table of RoPE
//! divisors.
#![forbid(unsafe_code)]

pub mod adapter;
pub mod arch;
mod assistant;
mod builder;
mod catalog;
pub mod config;
pub mod convert;
pub mod derive;
mod error;
mod head;
pub mod importance;
mod kind;
mod memory;
pub mod names;
pub mod ranking;
pub mod recipe;
pub mod sentence;
mod shapes;
pub mod synth;
mod tail;
mod tokenizer_files;
pub mod vision;
mod warnings;

use millrace_format::{Checkpoint, Source, TensorType};
use millrace_quant::DType;

use builder::{DraftPlace, GraphBuilder};
use catalog::Catalog;
pub use config::{ImageSight, ModelConfig};
pub use error::{Error, TargetDifference};
pub use kind::check_kind;
pub use memory::{MemoryPlan, WeightGroup};
use millrace_graph::Graph;
use names::{TensorName, WeightRole};
pub use tokenizer_files::with_tokenizer_json;
pub use vision::{VisionConfig, VisionModel};
pub use warnings::warnings;

/// A model: its hyperparameters and its forward pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Hyperparameters.
    pub config: ModelConfig,
    /// The forward pass, with weights named as the checkpoint names them.
    pub graph: Graph,
}

impl Model {
    /// Reads a checkpoint's configuration and builds its graph.
    ///
    /// # Errors
    /// An architecture or feature that is not supported, by name; a hyperparameter that is missing
    /// or makes no sense; a weight that is missing, of another shape, or in an unusable format.
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<Model, Error> {
        Model::from_checkpoint_for(checkpoint, None)
    }

    /// As [`from_checkpoint`](Model::from_checkpoint), for sequences of up to `n_tokens`. It matters to models whose
    /// RoPE has one list of divisors for short sequences and one for long ones ([`config::LongScaling`]). The list is
    /// chosen here, once, so that a token's bits depend on no later one. Without a number it is the list for short ones.
    ///
    /// # Errors
    /// As there.
    pub fn from_checkpoint_for(
        checkpoint: &Checkpoint,
        n_tokens: Option<usize>,
    ) -> Result<Model, Error> {
        let catalog = Catalog::of(checkpoint);
        let mut config = read_config(checkpoint, &catalog)?;
        if let Some(n_tokens) = n_tokens {
            config.choose_rope(n_tokens);
        }
        let model = Model::build(config, &catalog)?;
        tail::check(checkpoint, &model.graph)?;
        Ok(model)
    }

    /// The layer of a checkpoint that predicts the token after the next, as a model of one block. With each token it takes
    /// the output of the whole model's last norm for the token before ([`TargetState`](millrace_graph::TargetState)).
    ///
    /// # Errors
    /// [`Error::NoDraftLayer`] for a checkpoint without one; of one that has some of its tensors, as
    /// [`from_checkpoint`](Model::from_checkpoint); a family that has none.
    pub fn draft_layer(checkpoint: &Checkpoint) -> Result<Model, Error> {
        let catalog = Catalog::of(checkpoint);
        let whole = read_config(checkpoint, &catalog)?;
        let family = arch::by_name(whole.family);
        let layer = family.draft.ok_or_else(|| Error::Unsupported {
            file: checkpoint.name().into(),
            feature: format!("an MTP layer of a {} model", family.name),
            supported: arch::with_draft_layers(),
        })?;
        let place = DraftPlace::find(&catalog, (family, layer), whole.n_layers);
        let place = place.ok_or_else(|| Error::NoDraftLayer {
            file: checkpoint.name().into(),
            tensor: DraftPlace::first_tensor(&catalog, (family, layer), whole.n_layers),
        })?;
        let config = arch::draft::config_of(&whole);
        let mut builder = GraphBuilder::new(&config, family, &catalog).of_draft(place);
        layer.build(&mut builder)?;
        let graph = builder.finish()?;
        tail::check(checkpoint, &graph)?;
        Ok(Model { config, graph })
    }

    /// The model for sequences of up to `n_tokens`, where that takes other RoPE frequencies than these; else `None`.
    /// See [`from_checkpoint_for`](Model::from_checkpoint_for).
    pub fn for_context(&self, n_tokens: usize) -> Option<Model> {
        let mut config = self.config.clone();
        config.choose_rope(n_tokens);
        if config == self.config {
            return None;
        }
        let mut graph = self.graph.clone();
        let n_rot = config.n_rot;
        let before = std::iter::once(&self.config.rope).chain(&self.config.rope_local);
        let after: Vec<_> = std::iter::once(&config.rope)
            .chain(&config.rope_local)
            .collect();
        for (before, after) in before.zip(after) {
            let old = before.inv_freq(n_rot);
            for table in graph.ropes.iter_mut().filter(|rope| rope.inv_freq == old) {
                table.inv_freq = after.inv_freq(n_rot);
            }
        }
        Some(Model { config, graph })
    }

    /// The model of a geometry with nothing but its graph, for plans and predictions: named as a
    /// checkpoint of that kind would name its weights, in the recipe's formats.
    ///
    /// # Errors
    /// A number of layers that no model has.
    pub fn without_weights(
        geometry: synth::ModelGeometry,
        n_layers: Option<usize>,
        recipe: recipe::Recipe,
        source: Source,
    ) -> Result<Model, Error> {
        let config = geometry.config(n_layers);
        config.validate(geometry.name())?;
        let tensors = synth::tensors(&config, recipe, source);
        Model::build(config, &Catalog::new(geometry.name(), source, &tensors))
    }

    fn build(mut config: ModelConfig, catalog: &Catalog<'_>) -> Result<Model, Error> {
        let family = arch::by_name(config.family);
        // A scaled table cannot serve as the head.
        if family.conventions(catalog.layout()).embed_prescaled {
            config.tied_head = false;
        }
        let mut builder = GraphBuilder::new(&config, family, catalog);
        (family.build)(&mut builder)?;
        let graph = builder.finish()?;
        Ok(Model { config, graph })
    }
}

fn read_config(checkpoint: &Checkpoint, catalog: &Catalog<'_>) -> Result<ModelConfig, Error> {
    let missing = |key: &str| Error::MissingKey {
        file: checkpoint.name().into(),
        key: key.into(),
    };
    check_kind(checkpoint)?;
    match checkpoint.source() {
        Source::Gguf => {
            let metadata = checkpoint
                .gguf()
                .ok_or_else(|| missing("general.architecture"))?;
            let table = |role| rope_table(checkpoint, role);
            let tables = config::gguf::RopeTables {
                factors: table(WeightRole::RopeFactors)?,
                short: table(WeightRole::RopeFactorsShort)?,
                long: table(WeightRole::RopeFactorsLong)?,
            };
            let mut config = config::gguf::read(metadata, catalog, tables)?;
            config.layers.head_bias = head::has_bias(&config, catalog);
            (arch::by_name(config.family).tensors)(checkpoint, catalog, &mut config)?;
            Ok(config)
        }
        Source::HuggingFace => {
            let config = checkpoint.hf().and_then(|files| files.config.as_ref());
            let mut config = config::hf::read(
                checkpoint.name(),
                config.ok_or_else(|| missing("config.json"))?,
            )?;
            head::settle(&mut config, catalog, checkpoint);
            config.layers.head_bias = head::has_bias(&config, catalog);
            (arch::by_name(config.family).tensors)(checkpoint, catalog, &mut config)?;
            if let (Some(encoder), Some(files)) = (&mut config.encoder, checkpoint.hf()) {
                encoder.separator = files.separator_id();
                let pooling = files
                    .pooling
                    .as_ref()
                    .map(config::EncoderPooling::of_folder);
                // Some families give it in `config.json` too.
                let pooling = pooling.and_then(Result::ok);
                encoder.pooling = pooling.or(encoder.pooling);
            }
            Ok(config)
        }
    }
}

/// The contents of a tensor of RoPE divisors, if there is one.
fn rope_table(checkpoint: &Checkpoint, role: WeightRole) -> Result<Option<Vec<f32>>, Error> {
    let name = TensorName::global(role).gguf();
    let Some(tensor) = checkpoint.tensor(&name) else {
        return Ok(None);
    };
    if tensor.info.tensor_type != TensorType::Weights(DType::F32) {
        return Err(Error::TensorType {
            file: checkpoint.name().into(),
            tensor: name,
            found: tensor.info.tensor_type.name().into(),
            expected: DType::F32.name().into(),
        });
    }
    let (numbers, _) = tensor.bytes.as_chunks::<4>();
    Ok(Some(
        numbers
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect(),
    ))
}

#[cfg(test)]
mod tests;
