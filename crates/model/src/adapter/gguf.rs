//! Adapters in GGUF files.

use std::collections::BTreeMap;

use millrace_format::{Checkpoint, gguf};

use super::{AdapterFile, Halves};
use crate::Error;
use crate::arch::{Family, WeightConvention};

const ALPHA: &str = "adapter.lora.alpha";

/// The halves of a GGUF file, which must be an adapter for this family.
pub(super) fn read<'f>(
    checkpoint: &'f Checkpoint,
    family: &Family,
) -> Result<AdapterFile<'f>, Error> {
    let name = checkpoint.name();
    let nothing = gguf::Metadata::default();
    let metadata = checkpoint.gguf().unwrap_or(&nothing);
    let expect = |key: &str, expected: &str| match metadata.get_str(key)? {
        Some(found) if found == expected => Ok(()),
        found => Err(Error::BadValue {
            file: name.to_owned(),
            key: key.to_owned(),
            found: found.unwrap_or("absent").to_owned(),
            expected: format!("`{expected}`"),
        }),
    };
    expect("general.type", "adapter")?;
    expect("adapter.type", "lora")?;
    expect("general.architecture", family.gguf_arch)?;
    if metadata.get("adapter.alora.invocation_tokens").is_some() {
        return Err(Error::Unsupported {
            file: name.to_owned(),
            feature: "`adapter.alora.invocation_tokens`, an adapter that takes hold amid a text,"
                .to_owned(),
            supported: "adapters for the whole text".to_owned(),
        });
    }
    // As llama.cpp does: without a number, or with 0, the factor is 1.
    let alpha = metadata.get_f32(ALPHA)?.filter(|alpha| *alpha != 0.0);
    let mut file = AdapterFile {
        name,
        convention: WeightConvention::Gguf,
        halves: BTreeMap::new(),
    };
    for a in checkpoint.iter() {
        let stem = match a.info.name.rsplit_once('.') {
            Some((stem, "lora_a")) => stem,
            Some((stem, "lora_b")) if checkpoint.tensor(&format!("{stem}.lora_a")).is_some() => {
                continue;
            }
            _ => {
                return Err(file.error(format!(
                    "`{}` is no part of a LoRA adapter, or lacks its other half",
                    a.info.name
                )));
            }
        };
        let b = checkpoint.require(&format!("{stem}.lora_b"))?;
        let rank = a.info.shape.first().copied().unwrap_or(0);
        let scale = alpha.map_or(1.0, |alpha| alpha / rank.max(1) as f32);
        file.halves.insert(stem.to_owned(), Halves { a, b, scale });
    }
    Ok(file)
}
