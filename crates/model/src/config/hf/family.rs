//! Which family a `config.json` is of.

use super::ConfigObject;
use crate::Error;
use crate::arch::{self, Family};
use serde_json::Value;

/// The family of a configuration, whose text model's object is `text` where that is within it.
///
/// # Errors
/// [`Error::Architecture`] and [`Error::MissingKey`], as [`read`](super::read).
pub(super) fn of(
    config: &ConfigObject<'_>,
    text: Option<&ConfigObject<'_>>,
) -> Result<&'static Family, Error> {
    let unknown = |found: &str| Error::Architecture {
        file: config.file.into(),
        found: found.chars().take(80).collect(),
        supported: arch::supported_hf(),
    };
    let names: Vec<&str> = match config.array("architectures")? {
        Some(names) => names.iter().filter_map(Value::as_str).collect(),
        None => Vec::new(),
    };
    match config.str("model_type")? {
        Some(model_type) => {
            let mut family =
                arch::by_hf_model_type(model_type).ok_or_else(|| unknown(model_type))?;
            // One wrapper may hold text models of several families.
            if let Some(text) = text
                && let Some(inner) = text.str("model_type")?
            {
                let of_both = |family: &&Family| {
                    let types = family.hf_model_types;
                    types.contains(&model_type) && types.contains(&inner)
                };
                family = arch::all().find(of_both).ok_or_else(|| unknown(inner))?;
            }
            // Attention both ways makes the encoder of it that shares its types, if there is one.
            let object = text.unwrap_or(config);
            if object.get("use_bidirectional_attention") == Some(&Value::Bool(true)) {
                family = arch::encoder_of(family).unwrap_or(family);
            }
            // The same model type also serves classifiers and embedding models.
            if names.is_empty() || names.iter().any(|name| family.hf_classes.contains(name)) {
                return Ok(family);
            }
            if text.is_none() && names.iter().any(|name| is_base_class(family, name)) {
                return Ok(family);
            }
            let by_both = |name: &&str| arch::by_hf_type_and_class(model_type, name);
            let other = names.iter().find_map(by_both);
            other.ok_or_else(|| unknown(names[0]))
        }
        None => {
            let by_class = |name: &&str| arch::by_hf_class(name);
            let family = names.iter().find_map(by_class);
            family.ok_or_else(|| match names.first() {
                Some(name) => unknown(name),
                None => Error::MissingKey {
                    file: config.file.into(),
                    key: "model_type".into(),
                },
            })
        }
    }
}

/// Whether a configuration is of the class without a head: of models that make vectors of texts, as E5 Mistral.
pub(super) fn is_headless(family: &Family, config: &ConfigObject<'_>) -> Result<bool, Error> {
    let names = config.array("architectures")?;
    let mut names = names.into_iter().flatten().filter_map(Value::as_str);
    Ok(names.any(|name| !family.hf_classes.contains(&name) && is_base_class(family, name)))
}

/// Whether it is the class without a head of one of the family's: `MistralModel` of `MistralForCausalLM`.
fn is_base_class(family: &Family, name: &str) -> bool {
    let stem = |class: &&'static str| class.strip_suffix("ForCausalLM");
    let stems = family.hf_classes.iter().filter_map(stem);
    let Some(own) = name.strip_suffix("Model") else {
        return false;
    };
    !family.is_encoder() && stems.into_iter().any(|stem| stem == own)
}
