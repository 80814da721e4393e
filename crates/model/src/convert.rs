//! Conversion of checkpoints: between number formats, and between GGUF, Hugging Face folders and
//! Q4NX bundles.
//!
//! [`Conversion::new`] decides everything that can fail by itself: which tensors the result has, under
//! which names, in which formats, and the contents of its metadata or side files.
//! [`Conversion::write`] then streams tensor by tensor: memory stays bounded by a few megabytes a
//! thread, and the result appears whole or not at all.
//!
//! The three layouts disagree in these points, which a conversion therefore changes besides names:
//!
//! - rows of Q and K: GGUF files of the Llama family pair the rows that RoPE rotates;
//! - norms of Gemma: Hugging Face files hold `w`, the others `1 + w`;
//! - embeddings of Gemma: Q4NX bundles hold them multiplied by `sqrt(d_model)`, with a separate head
//!   beside them;
//! - experts: a tensor each in Hugging Face folders, stacked in GGUF; gates and up projections joined, apart or
//!   interleaved, as the family's files have them;
//! - Llama 3's RoPE scaling: a tensor in GGUF, parameters in `config.json`.
//!
//! LoRA adapters can be merged on the way ([`ConversionOptions::adapters`]).

mod assemble;
mod classifier;
mod encode;
mod error;
mod folder;
mod importance;
mod mapper;
mod merge;
mod metadata;
mod parts;
mod plan;
mod sentence;
mod side;
mod tokenizer;
mod transform;
mod write;

pub use error::Error;
pub use importance::{ConversionOptions, TensorTypeRule};
pub use parts::{Assembly, PartPlace, TensorPart};
pub use plan::{Conversion, Fallback, PlannedTensor, TensorOrigin};
pub use transform::{Permutation, RowOrder, Transform};
pub use write::{ConversionProgress, ConversionSummary};

use crate::arch::WeightConvention;
use std::path::Path;

pub use crate::recipe::Recipe;

/// The kind of the written files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputContainer {
    /// One GGUF file.
    Gguf,
    /// A Hugging Face folder: `model.safetensors` (or shards), `config.json`, tokenizer.
    Safetensors,
    /// A folder with a Q4NX bundle, `model.q4nx`, and the same side files.
    Q4nx,
}

impl OutputContainer {
    /// The kind of files that an output path and a recipe together ask for. A name in `.gguf` gives
    /// a GGUF file; any other name gives a folder, whose weights are Q4NX if the recipe is.
    pub fn of(out: &Path, recipe: Recipe) -> OutputContainer {
        if out
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
        {
            OutputContainer::Gguf
        } else if recipe.is_q4nx() {
            OutputContainer::Q4nx
        } else {
            OutputContainer::Safetensors
        }
    }

    /// Names and layout of its weights.
    fn convention(self) -> WeightConvention {
        match self {
            OutputContainer::Gguf => WeightConvention::Gguf,
            OutputContainer::Safetensors => WeightConvention::HuggingFace,
            OutputContainer::Q4nx => WeightConvention::Q4nx,
        }
    }

    fn name(self) -> &'static str {
        match self {
            OutputContainer::Gguf => "a GGUF file",
            OutputContainer::Safetensors => "a safetensors folder",
            OutputContainer::Q4nx => "a Q4NX bundle",
        }
    }
}

/// Layout and formats of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversionTarget {
    /// The kind of files.
    pub container: OutputContainer,
    /// Which number format each tensor gets.
    pub recipe: Recipe,
}

impl ConversionTarget {
    /// With the recipe that an importance matrix asks for.
    ///
    /// # Errors
    /// As `check`; types of single tensors in another container than GGUF.
    fn with_options(self, options: &ConversionOptions<'_>) -> Result<ConversionTarget, Error> {
        let target = ConversionTarget {
            recipe: self.recipe.weighted(options.importance.is_some()),
            ..self
        };
        target.check()?;
        if options.has_types() && target.container != OutputContainer::Gguf {
            return Err(Error::Target {
                recipe: "types of single tensors".to_owned(),
                container: target.container.name(),
                possible: "one type for all; write a .gguf file",
            });
        }
        Ok(target)
    }

    /// Refuses recipes that the container has no types for.
    fn check(self) -> Result<(), Error> {
        let fits = match self.container {
            OutputContainer::Gguf => !self.recipe.is_q4nx(),
            OutputContainer::Safetensors => self.recipe.is_float(),
            OutputContainer::Q4nx => self.recipe.is_q4nx(),
        };
        if fits {
            return Ok(());
        }
        Err(Error::Target {
            recipe: self.recipe.to_string(),
            container: self.container.name(),
            possible: match self.container {
                OutputContainer::Gguf => "every type but Q4NX and Q4NX_SUB",
                OutputContainer::Safetensors => "F32, F16, BF16",
                OutputContainer::Q4nx => "Q4NX, Q4NX_SUB",
            },
        })
    }
}

#[cfg(test)]
mod tests;
