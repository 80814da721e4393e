//! Sections of a head that rotate by time, row and column of an image. They are kept as files give them, for the
//! files that are written.

use crate::Error;
use crate::arch::{SetKey, by_name};
use crate::config::ModelConfig;
use crate::config::gguf::Keys;
use crate::config::hf::ConfigObject;
use millrace_format::gguf::{GgufArray, GgufValue};
use serde_json::{Value, json};

const GGUF: &str = "rope.dimension_sections";
const HF: &str = "mrope_section";

/// Reads four numbers, the last of which is unused.
pub(in crate::arch) fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let sections = keys.u32_array(GGUF)?.unwrap_or_default();
    let mut sections: Vec<usize> = sections.into_iter().map(|n| n as usize).collect();
    while sections.last() == Some(&0) {
        sections.pop();
    }
    config.rope_sections = sections;
    or_default(config);
    Ok(())
}

pub(in crate::arch) fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    let number = |n: &usize| i32::try_from(*n).unwrap_or(i32::MAX);
    let mut sections: Vec<i32> = config.rope_sections.iter().map(number).collect();
    if !sections.is_empty() {
        sections.resize(sections.len().max(4), 0);
        set(GGUF, GgufValue::Array(GgufArray::I32(sections)));
    }
}

pub(in crate::arch) fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    for key in ["rope_parameters", "rope_scaling"] {
        let Some(rope) = text.object(key)? else {
            continue;
        };
        let Some(sections) = rope.array(HF)? else {
            continue;
        };
        let numbers = sections.iter().map(|section| {
            let number = section.as_u64().and_then(|n| usize::try_from(n).ok());
            number.ok_or_else(|| rope.bad(HF, section, "whole numbers"))
        });
        config.rope_sections = numbers.collect::<Result<_, _>>()?;
        break;
    }
    or_default(config);
    Ok(())
}

/// The family's sections where the file gave none.
fn or_default(config: &mut ModelConfig) {
    if config.rope_sections.is_empty() {
        config.rope_sections = by_name(config.family).rope_sections.to_vec();
    }
}

pub(in crate::arch) fn write_hf(config: &ModelConfig, out: &mut Value) {
    if !config.rope_sections.is_empty() {
        // Time, row and column, padded with zeros.
        let mut sections = config.rope_sections.clone();
        sections.resize(sections.len().max(3), 0);
        out["rope_parameters"][HF] = json!(sections);
    }
}
