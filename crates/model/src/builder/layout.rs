//! The tensors that a configuration calls for, and the weights of a checkpoint, without a graph.

use std::collections::HashMap;
use std::ops::Range;

use super::{DraftPlace, GraphBuilder, Tensors};
use crate::Error;
use crate::arch::{self, WeightConvention};
use crate::catalog::Catalog;
use crate::config::ModelConfig;
use crate::derive;
use crate::names::{HF_PREFIXES, TensorName};
use millrace_graph::{Weight, WeightId, WeightSource};

/// A tensor of a layout, and the weights that graphs read from it.
#[derive(Clone, Debug)]
pub(crate) struct TensorLayout {
    pub(crate) name: TensorName,
    /// Slowest dimension first; where each expert has a tensor, the shape of all of them together.
    pub(crate) shape: Vec<usize>,
    pub(crate) uses: Vec<TensorUse>,
}

/// A weight that is read from a tensor.
#[derive(Clone, Debug)]
pub(crate) struct TensorUse {
    pub(crate) weight: TensorName,
    /// The weight's own shape.
    pub(crate) shape: Vec<usize>,
    pub(crate) source: WeightSource,
}

/// The tensors that a configuration calls for in some blocks, in the order in which they are read.
pub(crate) fn layout(
    config: &ModelConfig,
    layout: WeightConvention,
    layers: Range<usize>,
) -> Vec<TensorLayout> {
    let family = arch::by_name(config.family);
    let tensors = Tensors::Any(Vec::new());
    let mut builder = GraphBuilder::of(config, family, (tensors, layout));
    builder.layers = layers;
    // This builder accepts every request, so nothing is missing.
    let _ = (family.build)(&mut builder);
    match builder.tensors {
        Tensors::Any(tensors) => tensors,
        Tensors::Checkpoint(_) => Vec::new(),
    }
}

/// The tensors of a model's draft layer with their names in files, in the order in which they are read; `None` for a family
/// without one.
pub(crate) fn draft_layout(
    config: &ModelConfig,
    layout: WeightConvention,
) -> Option<Vec<(String, TensorLayout)>> {
    let family = arch::by_name(config.family);
    let layer = family.draft?;
    let place = DraftPlace::usual((layer, layout), config.n_layers);
    let own = arch::draft::config_of(config);
    let tensors = Tensors::Any(Vec::new());
    let mut builder = GraphBuilder::of(&own, family, (tensors, layout)).of_draft(place);
    // This builder accepts every request, so nothing is missing.
    let _ = layer.build(&mut builder);
    let Tensors::Any(tensors) = builder.tensors else {
        return None;
    };
    let own = tensors
        .into_iter()
        .filter(|tensor| tensor.name.layer.is_some());
    let spelled = own.map(|tensor| {
        let hf = place.hf(tensor.name, family);
        let hf = hf.or_else(|| tensor.name.hf(HF_PREFIXES[0], family.hf_names()));
        let spelled = match layout {
            WeightConvention::Gguf => None,
            WeightConvention::HuggingFace | WeightConvention::Q4nx => hf,
        };
        (spelled.unwrap_or_else(|| tensor.name.gguf()), tensor)
    });
    Some(spelled.collect())
}

/// The weights that the tensors of a checkpoint hold, by name.
pub(crate) fn weights_of(
    config: &ModelConfig,
    catalog: &Catalog<'_>,
) -> Result<HashMap<TensorName, Weight>, Error> {
    let family = arch::by_name(config.family);
    let mut builder = GraphBuilder::new(config, family, catalog);
    (family.build)(&mut builder)?;
    let weight = |id: WeightId| builder.graph.weights[id.0].clone();
    let weights = builder.weights.iter();
    Ok(weights.map(|(name, id)| (*name, weight(*id))).collect())
}

/// Shape of the whole tensor that a weight of this shape is read from.
pub(super) fn stored_shape(shape: &[usize], source: &WeightSource) -> Vec<usize> {
    let mut stored = shape.to_vec();
    match (source, shape) {
        // All rows of each matrix: the matrices lie below each other in one.
        (WeightSource::Rows { first: 0, n_rows }, &[n_matrices, n, k]) if *n_rows == n => {
            vec![n_matrices * n, k]
        }
        (WeightSource::Rows { n_rows, .. }, _) => {
            // Rows of vectors may have dimensions of one between them.
            let rows = match stored.len() {
                4 => 0,
                n => n.saturating_sub(2),
            };
            stored[rows] = *n_rows;
            stored
        }
        (WeightSource::Derived(derivation), _) => derive::stored_shape(derivation, shape),
        (WeightSource::Whole | WeightSource::Experts(_), _) => stored,
    }
}

pub(super) fn ask(
    asked: &mut Vec<TensorLayout>,
    (weight, name): (TensorName, TensorName),
    shape: &[usize],
    source: &WeightSource,
) {
    let known = asked.iter().position(|tensor| tensor.name == name);
    let known = known.unwrap_or_else(|| {
        asked.push(TensorLayout {
            name,
            shape: stored_shape(shape, source),
            uses: Vec::new(),
        });
        asked.len() - 1
    });
    asked[known].uses.push(TensorUse {
        weight,
        shape: shape.to_vec(),
        source: source.clone(),
    });
}
