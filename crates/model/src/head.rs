//! Which matrix turns the last hidden state into logits: a separate head, or the embeddings.
//!
//! The tensors decide where they contradict the configuration's flag, as in transformers
//! (`PreTrainedModel.tie_weights`). Two different matrices are two, whichever way the flag is set;
//! one alone serves as both where the flag ties them.

use millrace_format::Checkpoint;

use crate::arch::{self, WeightConvention};
use crate::catalog::Catalog;
use crate::config::ModelConfig;
use crate::names::{TensorName, WeightRole};

/// The names of the embeddings and of the head, as the catalog's layout spells them.
pub(crate) fn names(config: &ModelConfig, catalog: &Catalog<'_>) -> [String; 2] {
    let names = arch::by_name(config.family).hf_names();
    [WeightRole::TokenEmbedding, WeightRole::Output].map(|role| {
        let name = TensorName::global(role);
        match catalog.layout() {
            WeightConvention::Gguf => name.gguf(),
            // Both roles have Hugging Face names in every family.
            WeightConvention::HuggingFace | WeightConvention::Q4nx => {
                name.hf(catalog.hf_prefix(), names).unwrap_or_default()
            }
        }
    })
}

/// Whether the checkpoint has a bias for the head, be that the table or not.
pub(crate) fn has_bias(config: &ModelConfig, catalog: &Catalog<'_>) -> bool {
    let [_, head] = names(config, catalog);
    let bias = head
        .strip_suffix("weight")
        .map(|module| format!("{module}bias"));
    bias.is_some_and(|bias| catalog.has(&bias))
}

/// Sets [`ModelConfig::tied_head`] by the tensors.
pub(crate) fn settle(config: &mut ModelConfig, catalog: &Catalog<'_>, checkpoint: &Checkpoint) {
    if !config.tied_head || catalog.layout() == WeightConvention::Gguf {
        return;
    }
    let [table, head] = names(config, catalog);
    let (Some(table), Some(head)) = (checkpoint.tensor(&table), checkpoint.tensor(&head)) else {
        return;
    };
    let is_copy = table.info.tensor_type == head.info.tensor_type
        && table.info.shape == head.info.shape
        && table.bytes == head.bytes;
    config.tied_head = is_copy;
}
