//! Determines name, format and transformation of each tensor of a conversion.

use std::collections::{HashMap, HashSet};

use millrace_format::{Checkpoint, TensorInfo, TensorType};
use millrace_quant::DType;

use super::importance::ConversionOptions;
use super::parts::{self, Assembly};
use super::plan::{Fallback, PlannedTensor, TensorOrigin};
use super::transform::{HeadOrder, NumberMap, Permutation, RowOrder, Transform};
use super::{ConversionTarget, Error, OutputContainer, classifier};
use crate::ModelConfig;
use crate::arch::{self, Conventions, Family, StoredForm, WeightConvention};
use crate::builder::{self, TensorLayout};
use crate::catalog::Catalog;
use crate::names::{ParameterKind, TensorName, WeightRole};
use crate::recipe::fitting;
use millrace_graph::{RopeStyle, ValueHeadOrder};

/// Determines name, format and transformation of each tensor.
pub(super) struct Mapper<'a> {
    config: &'a ModelConfig,
    /// The configuration as the result has it.
    written: &'a ModelConfig,
    catalog: &'a Catalog<'a>,
    family: &'static Family,
    /// The result's family.
    to_family: &'static Family,
    from: Conventions,
    to: Conventions,
    layout: WeightConvention,
    target: ConversionTarget,
    options: &'a ConversionOptions<'a>,
    pub(super) fallbacks: Vec<Fallback>,
}

impl<'a> Mapper<'a> {
    pub(super) fn new(
        (config, written): (&'a ModelConfig, &'a ModelConfig),
        catalog: &'a Catalog<'a>,
        layout: WeightConvention,
        (target, options): (ConversionTarget, &'a ConversionOptions<'a>),
    ) -> Mapper<'a> {
        let family = arch::by_name(config.family);
        Mapper {
            config,
            written,
            catalog,
            family,
            to_family: arch::by_name(written.family),
            from: family.conventions(catalog.layout()),
            to: family.conventions(layout),
            layout,
            target,
            options,
            fallbacks: Vec::new(),
        }
    }

    /// Every tensor of the source under its own name, except those of unknown size or without a
    /// place in the result's format.
    pub(super) fn kept(&mut self, checkpoint: &Checkpoint) -> Result<Vec<PlannedTensor>, Error> {
        let catalog = self.catalog;
        let plan = |info: &TensorInfo| {
            let parsed = match self.layout {
                WeightConvention::Gguf => TensorName::parse_gguf(&info.name),
                WeightConvention::HuggingFace | WeightConvention::Q4nx => None,
            };
            let tensor_type = match (info.tensor_type, parsed) {
                (TensorType::Plain(_) | TensorType::Opaque(_), _) => info.tensor_type,
                (TensorType::Weights(_), Some(name)) => {
                    TensorType::Weights(self.dtype(name, &info.name, &info.shape))
                }
                // Folders keep vectors and tensors of other models in the same format.
                (TensorType::Weights(_), None) if self.layout == WeightConvention::HuggingFace => {
                    TensorType::Weights(self.target.recipe.base())
                }
                (TensorType::Weights(dtype), None) => TensorType::Weights(dtype),
            };
            let origin = TensorOrigin::Tensor(info.name.clone());
            planned(
                origin,
                info.name.clone(),
                info.shape.clone(),
                tensor_type,
                Transform::NONE,
            )
        };
        let is_copyable = |info: &&TensorInfo| match info.tensor_type {
            TensorType::Opaque(opaque) => opaque.is_sized(),
            TensorType::Weights(_) | TensorType::Plain(_) => true,
        };
        let tensors = checkpoint.tensors().iter().filter(is_copyable);
        let tensors = tensors.filter(|info| {
            // The result has factors folded into matrices.
            !catalog.is_zero_bias(&info.name) && !checkpoint.is_factor(&info.name)
        });
        tensors.map(plan).collect()
    }

    /// The model's tensors, as the target's layout has them.
    pub(super) fn translated(&mut self) -> Result<Vec<PlannedTensor>, Error> {
        let sources = builder::weights_of(self.config, self.catalog)?;
        let layouts = builder::layout(self.written, self.layout, 0..self.written.n_layers);
        let layouts: HashMap<TensorName, TensorLayout> = layouts
            .into_iter()
            .map(|tensor| (tensor.name, tensor))
            .collect();
        let mut tensors = Vec::with_capacity(layouts.len());
        for name in self.written.tensors(self.layout) {
            let Some(layout) = layouts.get(&name) else {
                let shape = self.written.shape_of(name);
                tensors.push(self.translate(name, shape)?);
                continue;
            };
            let spelled = self.spell_result(name);
            let is_whole = parts::is_whole(layout, &sources) && !spelled.contains("{}");
            let transform = |name| self.transform(name);
            let is_table = is_whole && name.role == WeightRole::LayerEmbedding;
            let extended = parts::extended(layout, &sources, &transform).filter(|_| is_table);
            if let Some(assembly) = extended {
                self.assembled((layout, &spelled), assembly, &mut tensors)?;
                continue;
            }
            if is_whole || self.values_of(name).is_some() {
                tensors.push(self.translate(name, layout.shape.clone())?);
                continue;
            }
            let split = spelled.contains("{}");
            let assembly = parts::assembly((layout, split), &sources, &|name| self.transform(name));
            let assembly = assembly.ok_or_else(|| crate::Error::MissingTensor {
                file: self.catalog.file().into(),
                tensor: self.spell_source(name),
                expected: layout.shape.clone(),
            })?;
            self.assembled((layout, &spelled), assembly, &mut tensors)?;
        }
        Ok(tensors)
    }

    /// A tensor of parts, or one for each of its matrices where the name contains their number.
    fn assembled(
        &mut self,
        (layout, spelled): (&TensorLayout, &str),
        assembly: Assembly,
        out: &mut Vec<PlannedTensor>,
    ) -> Result<(), Error> {
        let matrices = match spelled.contains("{}") {
            true => assembly.matrices.clone().map(|m| m..m + 1).collect(),
            false => vec![assembly.matrices.clone()],
        };
        for matrices in matrices {
            let (name, shape) = match spelled.contains("{}") {
                true => (
                    spelled.replacen("{}", &matrices.start.to_string(), 1),
                    layout.shape[1..].to_vec(),
                ),
                false => (spelled.to_owned(), layout.shape.clone()),
            };
            let dtype = self.dtype(layout.name, &name, &shape);
            let assembly = Assembly {
                matrices,
                ..assembly.clone()
            };
            out.push(planned(
                TensorOrigin::Assembly(assembly),
                name,
                shape,
                TensorType::Weights(dtype),
                Transform::NONE,
            )?);
        }
        Ok(())
    }

    fn translate(&mut self, name: TensorName, shape: Vec<usize>) -> Result<PlannedTensor, Error> {
        let target_name = self.spell_result(name);
        let dtype = self.dtype(name, &target_name, &shape);
        let is_scalar = name.role.is_scalar() && self.layout != WeightConvention::Gguf;
        let shape = if is_scalar { Vec::new() } else { shape };
        let source_name = self.spell_source(name);
        let (origin, transform) = if name.role.is_rope_table() {
            let mut tables = self.config.rope_tables().into_iter();
            let table = tables.find(|(role, _)| *role == name.role);
            let values = table.map(|(_, values)| values);
            (
                TensorOrigin::Values(values.unwrap_or_default()),
                Transform::NONE,
            )
        } else if let Some(values) = self.values_of(name) {
            (TensorOrigin::Values(values), Transform::NONE)
        } else if name.role == WeightRole::Output && !self.catalog.has(&source_name) {
            // A tied head that the target keeps apart.
            let table = TensorName::global(WeightRole::TokenEmbedding);
            let table = self.spell_source(table);
            let scale = self.unscaled(self.from) * self.factor(name);
            (
                TensorOrigin::Tensor(table),
                Transform {
                    scale,
                    ..Transform::NONE
                },
            )
        } else if name.role == WeightRole::TokenEmbedding && !self.catalog.has(&source_name) {
            // A head that serves as the table, and is not scaled.
            let head = TensorName::global(WeightRole::Output);
            let head = self.spell_source(head);
            let scale = self.factor(name) / self.unscaled(self.to);
            (
                TensorOrigin::Tensor(head),
                Transform {
                    scale,
                    ..Transform::NONE
                },
            )
        } else {
            (TensorOrigin::Tensor(source_name), self.transform(name))
        };
        planned(
            origin,
            target_name,
            shape,
            TensorType::Weights(dtype),
            transform,
        )
    }

    /// The numbers of a tensor that files of the result's layout have and this source lacks.
    fn values_of(&self, name: TensorName) -> Option<Vec<f32>> {
        let values = (self.to_family.values)(self.written, (name, self.layout));
        let is_gguf = |layout| layout == WeightConvention::Gguf;
        values.filter(|_| is_gguf(self.layout) != is_gguf(self.catalog.layout()))
    }

    /// The name of a tensor in the source.
    fn spell_source(&self, name: TensorName) -> String {
        match self.catalog.layout() {
            WeightConvention::Gguf => name.gguf(),
            // Only the RoPE factors have no Hugging Face name, and they are never looked up.
            _ => self.catalog.hf_name(self.family, name).unwrap_or_default(),
        }
    }

    /// Its name in the result.
    fn spell_result(&self, name: TensorName) -> String {
        let has = |name: &str| self.catalog.has(name);
        let prefix = match self.catalog.layout() {
            WeightConvention::Gguf => classifier::prefix(self.to_family, &has),
            _ => self.to_family.hf_prefix,
        };
        spell(self.layout, (self.to_family, prefix), name)
    }

    /// The factor that takes an embedding table to the plain one.
    fn unscaled(&self, conventions: Conventions) -> f32 {
        if conventions.embed_prescaled {
            1.0 / self.config.embed_scale
        } else {
            1.0
        }
    }

    /// The factor that the result folds into a weight and the source has beside it.
    fn factor(&self, name: TensorName) -> f32 {
        let is_gguf = |layout| layout == WeightConvention::Gguf;
        match is_gguf(self.layout) && !is_gguf(self.catalog.layout()) {
            true => self.stored(name, self.layout).factor,
            false => 1.0,
        }
    }

    /// The form in which the family's files of a layout hold a tensor.
    fn stored(&self, name: TensorName, layout: WeightConvention) -> StoredForm {
        (self.family.stored)(self.config, (name, layout))
    }

    fn transform(&self, name: TensorName) -> Transform {
        let (from, to) = (self.from, self.to);
        let mut transform = Transform::NONE;
        if from.rope_style != to.rope_style
            && self.family.permuted_heads(self.config, name.role).is_some()
        {
            let order = match to.rope_style {
                RopeStyle::Interleaved => RowOrder::Interleave,
                RopeStyle::HalfSplit => RowOrder::SplitHalves,
            };
            transform.permutation = Some(Permutation {
                head_dim: self.config.head_dim,
                n_rot: self.config.n_rot,
                order,
            });
        }
        if name.role.is_norm() && name.part == ParameterKind::Weight {
            let offset = |layout| self.family.norm_offset(self.config, (name, layout));
            transform.offset = offset(self.catalog.layout()) - offset(self.layout);
        }
        if name.role == WeightRole::TokenEmbedding {
            transform.scale = self.unscaled(from) / self.unscaled(to);
        }
        transform.scale *= self.factor(name);
        let is_gguf = |layout| layout == WeightConvention::Gguf;
        let (from_gguf, to_gguf) = (is_gguf(self.catalog.layout()), is_gguf(self.layout));
        if from_gguf != to_gguf {
            transform.heads = self.head_order(name);
            if name.role == WeightRole::SsmRate {
                transform.map = match to_gguf {
                    true => NumberMap::NegatedExp,
                    false => NumberMap::LogOfNegated,
                };
            }
        }
        transform
    }

    /// The change of the order of value heads, where source and result have different ones.
    fn head_order(&self, name: TensorName) -> Option<HeadOrder> {
        let delta = self.config.recurrent.as_ref()?.delta()?;
        let order = |layout| self.stored(name, layout).value_heads;
        if order(self.catalog.layout()) == order(self.layout) {
            return None;
        }
        use WeightRole::{AttnGate, AttnQkv, SsmAlpha, SsmBeta, SsmConv, SsmDt, SsmOut, SsmRate};
        let (by_rows, first, head_dim) = match name.role {
            AttnQkv | SsmConv => (true, 2 * delta.k_width(), delta.v_dim),
            AttnGate => (true, 0, delta.v_dim),
            SsmAlpha | SsmBeta => (true, 0, 1),
            SsmRate | SsmDt => (false, 0, 1),
            SsmOut => (false, 0, delta.v_dim),
            _ => return None,
        };
        Some(HeadOrder {
            by_rows,
            first,
            n_groups: delta.n_k_heads,
            group: delta.group(),
            head_dim,
            to_tiled: order(self.layout) == ValueHeadOrder::Tiled,
        })
    }

    /// The format that the user wants a matrix in.
    fn own_type(&self, name: TensorName, spelled: &str, shape: &[usize]) -> Option<DType> {
        if shape.len() < 2 || name.role.is_never_quantised() || name.part == ParameterKind::Bias {
            return None;
        }
        let options = self.options;
        let is_table = name.role == WeightRole::TokenEmbedding;
        let is_head = name.role == WeightRole::Output || (is_table && self.config.tied_head);
        let table = options.token_embedding.filter(|_| is_table);
        let head = options.output_tensor.filter(|_| is_head);
        table.or(head).or_else(|| {
            let mut rules = options.tensor_types.iter();
            let rule = rules.find(|rule| rule.pattern.is_match(spelled).unwrap_or(false));
            rule.map(|rule| rule.dtype)
        })
    }

    /// The format of a tensor in the target.
    fn dtype(&mut self, name: TensorName, spelled: &str, shape: &[usize]) -> DType {
        let recipe = self.target.recipe;
        let own = self.own_type(name, spelled, shape);
        let wanted = own.unwrap_or_else(|| recipe.choose(name, shape, self.config));
        let given = match (self.target.container, shape) {
            (OutputContainer::Safetensors, _) => return recipe.base(),
            (_, &[n, k]) => fitting(wanted, n, k),
            (OutputContainer::Gguf, &[n_experts, n, k]) => fitting(wanted, n_experts * n, k),
            (OutputContainer::Gguf, _) => return DType::F32,
            // Bundles are made for devices that compute in BF16.
            (OutputContainer::Q4nx, _) => return DType::BF16,
        };
        if given != wanted {
            let (tensor, shape) = (spelled.to_owned(), shape.to_vec());
            self.fallbacks.push(Fallback {
                tensor,
                shape,
                wanted,
                given,
                by_name: own.is_some(),
            });
        }
        given
    }
}

pub(super) fn planned(
    origin: TensorOrigin,
    name: String,
    shape: Vec<usize>,
    tensor_type: TensorType,
    transform: Transform,
) -> Result<PlannedTensor, Error> {
    let Some(size_bytes) = tensor_type.size_bytes(&shape) else {
        return Err(crate::Error::Unwritable {
            tensor: name,
            shape,
            dtype: tensor_type.name().to_owned(),
            reason: "it does not divide into whole blocks".to_owned(),
        }
        .into());
    };
    let size_bytes = size_bytes as u64;
    Ok(PlannedTensor {
        origin,
        name,
        shape,
        tensor_type,
        transform,
        size_bytes,
    })
}

/// Tensors of the source whose numbers the configuration holds.
pub(super) fn constants(config: &ModelConfig, catalog: &Catalog<'_>) -> HashSet<String> {
    let (family, layout) = (arch::by_name(config.family), catalog.layout());
    let names = config.tensors(layout).into_iter();
    let is_held = |name: &TensorName| (family.values)(config, (*name, layout)).is_some();
    let of = (family, catalog.hf_prefix());
    names
        .filter(is_held)
        .map(|name| spell(layout, of, name))
        .collect()
}

fn spell(layout: WeightConvention, (family, prefix): (&Family, &str), name: TensorName) -> String {
    match layout {
        WeightConvention::Gguf => name.gguf(),
        // Only the RoPE factors have no Hugging Face name, and they are never looked up.
        WeightConvention::HuggingFace | WeightConvention::Q4nx => {
            name.hf(prefix, family.hf_names()).unwrap_or_default()
        }
    }
}
