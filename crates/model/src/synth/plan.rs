//! Which tensors a synthetic checkpoint has, in which formats.

use std::collections::HashMap;

use millrace_format::{Source, TensorInfo, TensorSpec, TensorType};

use super::{PlannedName, SynthTensor, vision};
use crate::arch::{self, WeightConvention};
use crate::builder;
use crate::config::ModelConfig;
use crate::names::{HF_PREFIXES, TensorName};
use crate::recipe::Recipe;

/// The tensors that a checkpoint of random weights would have; their places in files have no meaning.
pub(crate) fn tensors(config: &ModelConfig, recipe: Recipe, source: Source) -> Vec<TensorInfo> {
    let layout = match source {
        Source::Gguf => WeightConvention::Gguf,
        Source::HuggingFace if recipe.is_q4nx() => WeightConvention::Q4nx,
        Source::HuggingFace => WeightConvention::HuggingFace,
    };
    let planned = plan(config, layout, recipe, false).into_iter();
    planned.map(info_of).collect()
}

pub(super) fn info_of(planned: SynthTensor) -> TensorInfo {
    TensorInfo {
        name: planned.spec.name,
        tensor_type: planned.spec.tensor_type,
        shape: planned.spec.shape,
        nominal_shape: false,
        file: 0,
        offset: 0,
        size_bytes: 0,
    }
}

/// The tensors of a model, in the order in which they are written.
pub(super) fn plan(
    config: &ModelConfig,
    layout: WeightConvention,
    recipe: Recipe,
    vision: bool,
) -> Vec<SynthTensor> {
    let prefix = match vision {
        true => vision::TEXT_PREFIX,
        false => HF_PREFIXES[0],
    };
    let names = arch::by_name(config.family).hf_names();
    let shapes: HashMap<TensorName, Vec<usize>> =
        builder::layout(config, layout, 0..config.n_layers)
            .into_iter()
            .map(|tensor| (tensor.name, tensor.shape))
            .collect();
    let mut out = Vec::with_capacity(shapes.len());
    for name in config.tensors(layout) {
        let shape = shapes.get(&name).cloned();
        let shape = shape.unwrap_or_else(|| config.shape_of(name));
        let spelled = match layout {
            WeightConvention::Gguf => name.gguf(),
            WeightConvention::HuggingFace | WeightConvention::Q4nx => name
                .hf(prefix, names)
                .expect("the list for this layout has only names it can spell"),
        };
        push_tensor(&mut out, (name, spelled), &shape, (config, layout, recipe));
    }
    out
}

/// Plans a tensor; where each expert has one, plans all of them.
pub(super) fn push_tensor(
    out: &mut Vec<SynthTensor>,
    (name, spelled): (TensorName, String),
    shape: &[usize],
    (config, layout, recipe): (&ModelConfig, WeightConvention, Recipe),
) {
    let mut push = |spelled: String, shape: &[usize]| {
        let dtype = match layout {
            // Hugging Face files have one type throughout.
            WeightConvention::HuggingFace => recipe.base(),
            WeightConvention::Gguf | WeightConvention::Q4nx => {
                recipe.dtype_for(name, shape, config)
            }
        };
        out.push(SynthTensor {
            name: PlannedName::Text(name),
            dtype,
            spec: TensorSpec {
                name: spelled,
                tensor_type: TensorType::Weights(dtype),
                shape: shape.to_vec(),
            },
        });
    };
    match (spelled.contains("{}"), shape) {
        (true, [n_experts, matrix @ ..]) => {
            (0..*n_experts).for_each(|e| push(spelled.replacen("{}", &e.to_string(), 1), matrix))
        }
        _ => push(spelled, shape),
    }
}
