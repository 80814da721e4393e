//! Parts of a checkpoint that the model leaves aside or overrules, in sentences for the user.

use std::borrow::Cow;
use std::collections::HashSet;

use millrace_format::{Checkpoint, Source};
use millrace_graph::Weight;

use crate::arch::{self, WeightConvention};
use crate::builder::DraftPlace;
use crate::catalog::Catalog;
use crate::names::TensorName;
use crate::ranking::ClassifierNames;
use crate::vision::HfSpelling;
use crate::{Model, config, head};

/// Most names that are written out; of further ones only the number is.
const MAX_NAMES: usize = 3;

/// Parts of the files that the model does not follow; empty for most.
///
/// Tensors of a vision encoder and of a draft layer, RoPE tables that follow from the configuration, and copies of a tied
/// head are no loss. They are not named.
pub fn warnings(checkpoint: &Checkpoint, model: &Model) -> Vec<String> {
    let catalog = Catalog::of(checkpoint);
    let mut warnings = Vec::new();
    warnings.extend(overruled_flag(checkpoint, model, &catalog));
    warnings.extend(unused(checkpoint, model, &catalog));
    warnings
}

/// A separate head that the configuration denies.
fn overruled_flag(checkpoint: &Checkpoint, model: &Model, catalog: &Catalog<'_>) -> Option<String> {
    // Bundles of scaled families keep a separate head beside a tied configuration.
    if checkpoint.source() != Source::HuggingFace || catalog.layout() == WeightConvention::Q4nx {
        return None;
    }
    let files = checkpoint.hf()?;
    let said = config::hf::read(checkpoint.name(), files.config.as_ref()?).ok()?;
    if !said.tied_head || model.config.tied_head {
        return None;
    }
    let [table, head] = head::names(&model.config, catalog);
    Some(format!(
        "{}: config.json ties the head to the embeddings, but `{head}` is there and differs from \
         `{table}`: the file's head is used (set tie_word_embeddings to false)",
        checkpoint.name()
    ))
}

fn unused(checkpoint: &Checkpoint, model: &Model, catalog: &Catalog<'_>) -> Option<String> {
    let used: HashSet<Cow<'_, str>> = model
        .graph
        .weights
        .iter()
        .flat_map(Weight::tensors)
        .collect();
    let [_, head] = head::names(&model.config, catalog);
    let family = arch::by_name(model.config.family);
    let draft = family
        .draft
        .and_then(|layer| DraftPlace::find(catalog, (family, layer), model.config.n_layers));
    // A draft layer serves only users who ask for drafts.
    let is_of_draft = |name: &str| draft.is_some_and(|draft| draft.holds(catalog, name, family));
    // Ranking reads the classifier by itself.
    let classifier = ClassifierNames::find(checkpoint);
    let is_of_classifier = |name: &str| {
        let layer = name.trim_end_matches(".weight").trim_end_matches(".bias");
        classifier.as_ref().is_some_and(|c| {
            c.out == layer || c.dense.as_deref() == Some(layer) || c.norm.as_deref() == Some(layer)
        })
    };
    let is_needless = |name: &str| {
        (model.config.tied_head && name == head)
            || is_derived(name)
            || is_of_a_vision_encoder(name, catalog)
            || is_of_draft(name)
            || is_of_classifier(name)
    };
    let names: Vec<&str> = checkpoint
        .tensors()
        .iter()
        .map(|info| info.name.as_str())
        .filter(|name| !used.contains(*name) && !is_needless(name))
        .collect();
    if names.is_empty() {
        return None;
    }
    let shown: Vec<String> = names
        .iter()
        .take(MAX_NAMES)
        .map(|name| format!("`{name}`"))
        .collect();
    let rest = match names.len() - shown.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let family = family.name;
    Some(format!(
        "{}: a {family} model has no use for {}{rest}: left aside",
        checkpoint.name(),
        shown.join(", ")
    ))
}

/// RoPE tables, which follow from the configuration too.
pub(crate) fn is_derived(name: &str) -> bool {
    // Old transformers saved the RoPE frequencies, and llama.cpp repeats its frequency divisors in
    // some files.
    [
        "rotary_emb.inv_freq",
        "rope_freqs.weight",
        "attn_rot_embd.weight",
        // Factors on activations, for devices that multiply in the format itself.
        ".input_scale",
        // Files made for several versions of llama.cpp have it beside its parts.
        "attn_kv_b.weight",
        // Masks that old transformers saved.
        ".attention.bias",
        ".attention.masked_bias",
        ".attn.bias",
        ".attn.masked_bias",
    ]
    .iter()
    .any(|suffix| name.ends_with(suffix))
        || TensorName::parse_gguf(name).is_some_and(|name| name.role.is_rope_table())
}

fn is_of_a_vision_encoder(name: &str, catalog: &Catalog<'_>) -> bool {
    match catalog.layout() {
        WeightConvention::Gguf => name.starts_with("v.") || name.starts_with("mm."),
        WeightConvention::HuggingFace | WeightConvention::Q4nx => {
            HfSpelling::all().any(|spelling| {
                name.starts_with(spelling.encoder) || name.starts_with(spelling.projector)
            })
        }
    }
}
