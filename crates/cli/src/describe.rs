//! Summary of a checkpoint, for `info` and `bench`.

use millrace_format::{Checkpoint, Source, TensorType};
use millrace_model::recipe::Recipe;
use serde::Serialize;

/// Summary of a checkpoint.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CheckpointSummary {
    /// Path or built-in name.
    pub(crate) name: String,
    /// Title given by its authors.
    pub(crate) title: Option<String>,
    /// `GGUF` or `Hugging Face`.
    pub(crate) format: &'static str,
    /// Architecture as the file names it: `llama`, `gemma3`, `Qwen3ForCausalLM`.
    pub(crate) architecture: Option<String>,
    /// Common name of its quantisation: `Q4_K_M`, `BF16`.
    pub(crate) quantization: String,
    pub(crate) n_tensors: usize,
    /// Number of elements of all weights.
    pub(crate) n_params: u64,
    /// Size of all tensors.
    pub(crate) size_bytes: u64,
    /// Tensors by format, largest first.
    pub(crate) types: Vec<TypeShare>,
}

/// The tensors of one format.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TypeShare {
    pub(crate) name: &'static str,
    pub(crate) n_tensors: usize,
    pub(crate) n_elems: u64,
    /// Size of the tensors; where the format does not define it, the room that the file leaves.
    pub(crate) size_bytes: u64,
    #[serde(skip)]
    pub(crate) is_sized: bool,
}

/// llama.cpp's name for a `general.file_type`.
fn file_type_name(number: u32) -> Option<&'static str> {
    let of_number = Recipe::all().find(|recipe| recipe.file_type() == Some(number));
    of_number.map(Recipe::name)
}

impl CheckpointSummary {
    pub(crate) fn of(checkpoint: &Checkpoint) -> CheckpointSummary {
        let types = type_shares(checkpoint);
        let plain = [
            "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f64", "bool",
        ];
        let is_weight = |share: &&TypeShare| !plain.contains(&share.name);
        CheckpointSummary {
            name: checkpoint.name().to_owned(),
            title: gguf_text(checkpoint, "general.name"),
            format: match checkpoint.source() {
                Source::Gguf => "GGUF",
                Source::HuggingFace => "Hugging Face",
            },
            architecture: architecture(checkpoint),
            quantization: quantization(checkpoint, &types),
            n_tensors: checkpoint.tensors().len(),
            n_params: types
                .iter()
                .filter(is_weight)
                .map(|share| share.n_elems)
                .sum(),
            size_bytes: checkpoint.size_bytes(),
            types,
        }
    }
}

fn gguf_text(checkpoint: &Checkpoint, key: &str) -> Option<String> {
    checkpoint.gguf()?.get_str(key).ok()?.map(str::to_owned)
}

fn architecture(checkpoint: &Checkpoint) -> Option<String> {
    gguf_text(checkpoint, "general.architecture").or_else(|| {
        let config = checkpoint.hf()?.config.as_ref()?;
        let class = config["architectures"][0]
            .as_str()
            .or(config["model_type"].as_str())?;
        Some(class.to_owned())
    })
}

/// The file's own statement, else the format with the most bytes.
fn quantization(checkpoint: &Checkpoint, types: &[TypeShare]) -> String {
    let file_type = checkpoint
        .gguf()
        .and_then(|keys| keys.get_u32("general.file_type").ok()?);
    match (file_type.and_then(file_type_name), types.first()) {
        (Some(name), _) => name.to_owned(),
        (None, Some(largest)) => largest.name.to_uppercase(),
        (None, None) => "none".to_owned(),
    }
}

/// Whether the format defines how many bytes a tensor of this type takes.
pub(crate) fn is_sized(tensor_type: TensorType) -> bool {
    match tensor_type {
        TensorType::Opaque(opaque) => opaque.is_sized(),
        TensorType::Weights(_) | TensorType::Plain(_) => true,
    }
}

fn type_shares(checkpoint: &Checkpoint) -> Vec<TypeShare> {
    let mut shares: Vec<TypeShare> = Vec::new();
    for tensor in checkpoint.tensors() {
        let name = tensor.tensor_type.name();
        let share = match shares.iter_mut().find(|share| share.name == name) {
            Some(share) => share,
            None => {
                shares.push(TypeShare {
                    name,
                    n_tensors: 0,
                    n_elems: 0,
                    size_bytes: 0,
                    is_sized: is_sized(tensor.tensor_type),
                });
                shares.last_mut().expect("just pushed")
            }
        };
        share.n_tensors += 1;
        share.n_elems += tensor.n_elems() as u64;
        share.size_bytes += tensor.size_bytes as u64;
    }
    shares.sort_by_key(|share| std::cmp::Reverse(share.size_bytes));
    shares
}
