//! Decides the contents of a conversion's result, before anything is written.

use std::borrow::Cow;

use millrace_format::{Checkpoint, Source, TensorSpec, TensorType};
use millrace_quant::DType;

use super::importance::{self, ConversionOptions, TensorImportance};
use super::mapper::{self, Mapper};
use super::merge::Merge;
use super::parts::Assembly;
use super::sentence;
use super::side::{SideFiles, SideOutput};
use super::transform::Transform;
use super::{ConversionTarget, Error, classifier};
use crate::arch::{self, WeightConvention};
use crate::catalog::Catalog;
use crate::importance::ImportanceMatrix;
use crate::names::TensorName;
use crate::{Model, ModelConfig};

/// Where a tensor's numbers come from.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorOrigin {
    /// The tensor of this name.
    Tensor(String),
    /// Numbers from outside the weights: RoPE factors and constants that only the target keeps as a tensor, layers behind the
    /// model.
    Values(Vec<f32>),
    /// Weights of the source, matrix by matrix.
    Assembly(Assembly),
}

/// A format that a tensor's shape does not allow, and the format in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The tensor's name in the result.
    pub tensor: String,
    /// Its shape, slowest dimension first.
    pub shape: Vec<usize>,
    /// The format that the recipe asks for.
    pub wanted: DType,
    /// The format that it gets.
    pub given: DType,
    /// Whether the user asked for it by the tensor's name.
    pub by_name: bool,
}

/// One tensor of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedTensor {
    /// Where the numbers come from.
    pub origin: TensorOrigin,
    /// Name in the result.
    pub name: String,
    /// Slowest dimension first.
    pub shape: Vec<usize>,
    /// Type in the result.
    pub tensor_type: TensorType,
    /// The transformation of the numbers.
    pub transform: Transform,
    /// Bytes in the result.
    pub size_bytes: u64,
}

impl PlannedTensor {
    pub(super) fn spec(&self) -> TensorSpec {
        TensorSpec {
            name: self.name.clone(),
            tensor_type: self.tensor_type,
            shape: self.shape.clone(),
        }
    }
}

/// A conversion, ready to be written.
#[derive(Debug)]
pub struct Conversion<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) target: ConversionTarget,
    pub(super) tensors: Vec<PlannedTensor>,
    pub(super) fallbacks: Vec<Fallback>,
    pub(super) skipped: Vec<String>,
    pub(super) side: SideOutput,
    importance: Option<&'a ImportanceMatrix>,
    unknown: Vec<String>,
    pub(super) merge: Merge<'a>,
}

impl<'a> Conversion<'a> {
    /// Plans the conversion of a checkpoint.
    ///
    /// # Errors
    /// [`Error::Target`] for a recipe that the container cannot hold, [`Error::NeedsImportance`] for one whose formats
    /// are useless without an importance matrix, [`Error::Model`] for a
    /// checkpoint that is not a supported model or whose configuration the target cannot express,
    /// [`Error::Tokenizer`] for a tokenizer that the target cannot express.
    pub fn new(
        checkpoint: &'a Checkpoint,
        target: ConversionTarget,
    ) -> Result<Conversion<'a>, Error> {
        Conversion::with_options(checkpoint, target, &ConversionOptions::default())
    }

    /// As [`new`](Conversion::new), with an importance matrix, formats that the user chose or adapters to merge.
    ///
    /// # Errors
    /// As there; [`Error::Importance`] for a matrix of another model, [`Error::NoImportanceOf`] for a tensor that needs an
    /// entry and has none, [`Error::Model`] for an adapter that was opened for another model or whose rows no tensor has.
    pub fn with_options(
        checkpoint: &'a Checkpoint,
        target: ConversionTarget,
        options: &ConversionOptions<'a>,
    ) -> Result<Conversion<'a>, Error> {
        let target = target.with_options(options)?;
        // The builder of the graph has checked that every weight is there and has its shape.
        let model = Model::from_checkpoint(checkpoint)?;
        let mut merge = Merge::new(&model, options.adapters)?;
        let catalog = Catalog::of(checkpoint);
        let config = crate::read_config(checkpoint, &catalog)?;
        let to = target.container.convention();
        // Between files of one layout everything is kept, known or not.
        let keeps = catalog.layout() == to && to != WeightConvention::Q4nx;
        let family = arch::by_name(config.family);
        let written = match to {
            _ if keeps => config.clone(),
            WeightConvention::Gguf => family.folded(&config),
            WeightConvention::HuggingFace => family.in_folders(&config),
            WeightConvention::Q4nx => config.clone(),
        };
        let configs = (&config, &written);
        let mut mapper = Mapper::new(configs, &catalog, to, (target, options));
        let mut tensors = match keeps {
            true => mapper.kept(checkpoint)?,
            false => mapper.translated()?,
        };
        if !keeps && checkpoint.source() == Source::Gguf {
            let kept = written.tensors(to).into_iter().collect();
            merge.take_factors(checkpoint, &kept)?;
        }
        let fallbacks = mapper.fallbacks;
        let files = SideFiles {
            checkpoint,
            config: &written,
            target,
            same_layout: keeps,
        };
        let side = plan_side(&files, &config, &mut tensors)?;
        let importance = options.importance;
        let unknown = importance::check(checkpoint, target, (importance, &merge), &tensors)?;
        let mut skipped = unused(checkpoint, &tensors, &side.taken);
        let constants = mapper::constants(&config, &catalog);
        skipped.retain(|name| !merge.is_within(name) && !constants.contains(name));
        Ok(Conversion {
            checkpoint,
            target,
            tensors,
            fallbacks,
            skipped,
            side,
            importance,
            unknown,
            merge,
        })
    }

    /// Layout and formats of the result.
    pub fn target(&self) -> ConversionTarget {
        self.target
    }

    /// The tensors of the result, in file order.
    pub fn tensors(&self) -> &[PlannedTensor] {
        &self.tensors
    }

    /// Tensors whose shape does not allow the recipe's format.
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    /// Tensors of the source that have no place in the result: other models beside the language
    /// model, copies of a tied head.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Tensors in block formats for which the importance matrix has no entry.
    pub fn without_importance(&self) -> &[String] {
        &self.unknown
    }

    pub(super) fn importance_of(&self, tensor: &PlannedTensor) -> TensorImportance<'a> {
        TensorImportance::new(self.importance, tensor)
    }

    /// Parts that the result will lack, in sentences for the user.
    pub fn notes(&self) -> &[String] {
        &self.side.notes
    }

    /// Bytes of all tensors of the result.
    pub fn size_bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.size_bytes).sum()
    }

    /// Elements of all tensors: the unit of progress.
    pub fn n_elems(&self) -> u64 {
        self.tensors
            .iter()
            .map(|tensor| tensor.shape.iter().product::<usize>() as u64)
            .sum()
    }
}

/// Plans the files beside the tensors. A classifier's head and the layers behind a sentence encoder are tensors
/// in one layout and files in another.
fn plan_side(
    files: &SideFiles<'_>,
    config: &ModelConfig,
    tensors: &mut Vec<PlannedTensor>,
) -> Result<SideOutput, Error> {
    let SideFiles {
        checkpoint, target, ..
    } = *files;
    let mut side = files.plan()?;
    match target.container.convention() {
        WeightConvention::HuggingFace if checkpoint.gguf().is_some() => {
            let recipe = target.recipe;
            let words = classifier::put_into_folder(checkpoint, files.config, recipe, tensors)?;
            side.config.extend(words.unwrap_or_default());
        }
        WeightConvention::Gguf if !files.same_layout => {
            sentence::put_into_gguf(checkpoint, config, tensors, &mut side)?;
        }
        _ => {}
    }
    side.put_config();
    Ok(side)
}

/// Tensors that the result does not hold in any form.
fn unused(checkpoint: &Checkpoint, tensors: &[PlannedTensor], taken: &[String]) -> Vec<String> {
    let used: std::collections::HashSet<Cow<'_, str>> = tensors
        .iter()
        .flat_map(|tensor| match &tensor.origin {
            TensorOrigin::Tensor(name) => vec![name.as_str().into()],
            TensorOrigin::Values(_) => Vec::new(),
            TensorOrigin::Assembly(assembly) => {
                let parts = assembly.parts.iter();
                parts.flat_map(|part| part.weight.tensors()).collect()
            }
        })
        .collect();
    let names = checkpoint.tensors().iter().map(|info| info.name.as_str());
    // The configuration holds the same values as the factors.
    let is_table =
        |name: &str| TensorName::parse_gguf(name).is_some_and(|name| name.role.is_rope_table());
    names
        .filter(|name| !used.contains(*name) && !is_table(name) && !checkpoint.is_factor(name))
        .filter(|name| !taken.iter().any(|taken| taken == name))
        .map(str::to_owned)
        .collect()
}
