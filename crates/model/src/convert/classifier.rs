//! The classifier behind an encoder, in a folder that is written for a GGUF file.

use millrace_format::{Checkpoint, TensorType};
use serde_json::{Map, Value, json};

use super::mapper::planned;
use super::plan::{PlannedTensor, TensorOrigin};
use super::{Error, Recipe, Transform};
use crate::ModelConfig;
use crate::arch::Family;
use crate::ranking::{GGUF_DENSE, GGUF_NORM, GGUF_OUT, OUTPUT_LABELS};

/// How transformers' class of a family with a classifier names its modules.
struct FolderClassifier {
    family: &'static str,
    class: &'static str,
    /// Prefix of names of the encoder's weights there.
    prefix: &'static str,
    /// Whether every model of it has a layer before the scores.
    needs_dense: bool,
    dense: &'static str,
    norm: Option<&'static str>,
    out: &'static str,
}

/// Classifiers of RoBERTa's kind included: their files have no further marks, and the two compute the same.
const CLASSIFIERS: [FolderClassifier; 3] = [
    FolderClassifier {
        family: "bert",
        class: "BertForSequenceClassification",
        prefix: "bert.",
        needs_dense: true,
        dense: "bert.pooler.dense",
        norm: None,
        out: "classifier",
    },
    FolderClassifier {
        family: "modern-bert",
        class: "ModernBertForSequenceClassification",
        prefix: "model.",
        needs_dense: true,
        dense: "head.dense",
        norm: Some("head.norm"),
        out: "classifier",
    },
    FolderClassifier {
        family: "eurobert",
        class: "EuroBertForSequenceClassification",
        prefix: "model.",
        needs_dense: true,
        dense: "dense",
        norm: None,
        out: "classifier",
    },
];

/// The classifier of the file, if a folder can hold it; `has` says whether the file has a tensor.
fn find(family: &str, has: &dyn Fn(&str) -> bool) -> Option<&'static FolderClassifier> {
    let known = CLASSIFIERS.iter().find(|row| row.family == family)?;
    let weight = |name: &str| has(&format!("{name}.weight"));
    let is_whole = weight(GGUF_OUT) && (weight(GGUF_DENSE) || !known.needs_dense);
    is_whole.then_some(known)
}

/// Prefix of names in the folder: a class with a classifier has the encoder within it.
pub(super) fn prefix(family: &Family, has: &dyn Fn(&str) -> bool) -> &'static str {
    find(family.name, has).map_or(family.hf_prefix, |known| known.prefix)
}

/// Puts the classifier's tensors into the folder, and returns the classifier's keys for `config.json`.
pub(super) fn put_into_folder(
    checkpoint: &Checkpoint,
    config: &ModelConfig,
    recipe: Recipe,
    tensors: &mut Vec<PlannedTensor>,
) -> Result<Option<Map<String, Value>>, Error> {
    let has = |name: &str| checkpoint.info(name).is_some();
    let Some(known) = find(config.family, &has) else {
        return Ok(None);
    };
    let parts = [
        (GGUF_DENSE, Some(known.dense)),
        (GGUF_NORM, known.norm),
        (GGUF_OUT, Some(known.out)),
    ];
    for (source, name) in parts {
        let Some(name) = name else { continue };
        for part in ["weight", "bias"] {
            let source = format!("{source}.{part}");
            let Some(info) = checkpoint.info(&source) else {
                continue;
            };
            let (shape, name) = (info.shape.clone(), format!("{name}.{part}"));
            let origin = TensorOrigin::Tensor(source);
            let stored = TensorType::Weights(recipe.base());
            tensors.push(planned(origin, name, shape, stored, Transform::NONE)?);
        }
    }
    let mut words = Map::new();
    words.insert("architectures".into(), json!([known.class]));
    let labels = labels(checkpoint)?;
    let numbered = labels.iter().enumerate();
    let names: Map<String, Value> = numbered
        .clone()
        .map(|(index, label)| (index.to_string(), json!(label)))
        .collect();
    let numbers: Map<String, Value> = numbered
        .map(|(index, label)| (label.clone(), json!(index)))
        .collect();
    words.insert("id2label".into(), Value::Object(names));
    words.insert("label2id".into(), Value::Object(numbers));
    if known.norm.is_some() {
        let biased = has(&format!("{GGUF_DENSE}.bias"));
        words.insert("classifier_bias".into(), json!(biased));
    }
    Ok(Some(words))
}

/// Names of the scores, one for each row of the last layer.
fn labels(checkpoint: &Checkpoint) -> Result<Vec<String>, Error> {
    let info = checkpoint.info(&format!("{GGUF_OUT}.weight"));
    let n_labels = match info.map(|info| &info.shape[..]) {
        Some(&[n_labels, _]) => n_labels,
        _ => 1,
    };
    if let Some(metadata) = checkpoint.gguf() {
        let architecture = metadata.get_str("general.architecture")?;
        let key = format!("{}.{OUTPUT_LABELS}", architecture.unwrap_or_default());
        let named = metadata.get_str_array(&key)?.unwrap_or_default();
        if named.len() == n_labels {
            return Ok(named.to_vec());
        }
    }
    Ok((0..n_labels)
        .map(|index| format!("LABEL_{index}"))
        .collect())
}
