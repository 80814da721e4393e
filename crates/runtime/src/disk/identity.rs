//! Identity of cached keys and values: everything but the tokens that their bits depend on.

use super::DiskError;
use crate::kv::PAGE_TOKENS;
use crate::load::LoadedModel;
use crate::lora::AdapterSet;
use millrace_kernels::{KvType, Level};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::Path;

/// The model, the build and the settings that computed keys, values and states. Only where all agree has a file the bits that
/// would be computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheIdentity {
    /// SHA-256 of the graph, and of names, shapes and checksums of all tensors, in hexadecimal digits.
    pub model: String,
    /// Version and hash of the sources that compute.
    pub build: String,
    /// Name of the instruction-set level.
    pub level: String,
    /// Name of the format of keys and values.
    pub kv_type: String,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// SHA-256 of the shapes of the layers' memory.
    pub layers: String,
    /// SHA-256 of a sequence's LoRA adapters. Empty if there are none, and for a folder, whose pages have a scope.
    pub adapters: String,
}

impl CacheIdentity {
    /// Reads every weight once. `layers` describes the memory of the layers, by group.
    pub(crate) fn of(
        model: &LoadedModel,
        level: Level,
        kv_type: KvType,
        layers: &str,
    ) -> CacheIdentity {
        CacheIdentity {
            model: model_digest(model),
            build: env!("MILLRACE_ENGINE").to_owned(),
            level: level.name().to_owned(),
            kv_type: kv_type.name().to_owned(),
            page_tokens: PAGE_TOKENS,
            layers: hex(&Sha256::digest(layers)),
            adapters: String::new(),
        }
    }

    /// The same for a sequence with these adapters.
    pub(crate) fn with_adapters(&self, adapters: &AdapterSet) -> CacheIdentity {
        let adapters = match adapters.is_empty() {
            true => String::new(),
            false => hex(&adapters.digest()),
        };
        CacheIdentity {
            adapters,
            ..self.clone()
        }
    }

    /// A name for a folder of files with this identity.
    pub(crate) fn folder_name(&self) -> String {
        let text = format!("{self:?}");
        hex(&Sha256::digest(text)[..12])
    }

    /// Refuses data of another identity, by the first property that differs.
    pub(crate) fn check(&self, found: &CacheIdentity, path: &Path) -> Result<(), DiskError> {
        let begin = "remove it to begin anew, or name another file";
        let rows = [
            (
                "model",
                [&found.model, &self.model],
                "open the model that wrote it, or name another file",
            ),
            ("build", [&found.build, &self.build], begin),
            (
                "level",
                [&found.level, &self.level],
                "take that --cpu-level, or name another file",
            ),
            (
                "kv-type",
                [&found.kv_type, &self.kv_type],
                "take that --kv-type, or name another file",
            ),
            ("layers", [&found.layers, &self.layers], begin),
            (
                "LoRA adapters",
                [&found.adapters, &self.adapters],
                "take the same --lora, or name another file",
            ),
        ];
        let [found_tokens, tokens] = [found.page_tokens, self.page_tokens].map(|n| n.to_string());
        let pages = ("tokens a page of", [&found_tokens, &tokens], begin);
        let mut rows = rows.into_iter().chain([pages]);
        let Some((what, both, advice)) = rows.find(|(_, [found, expected], _)| found != expected)
        else {
            return Ok(());
        };
        let [found, expected] = both.map(|text| short(text));
        Err(DiskError::Other {
            path: path.to_owned(),
            what,
            found,
            expected,
            advice,
        })
    }
}

/// The part of a digest that people need; any other text unchanged.
fn short(text: &str) -> String {
    match text.len() {
        0 => "none".to_owned(),
        64 => text.chars().take(12).collect(),
        _ => text.to_owned(),
    }
}

/// A digest of all that a model computes with. Weights enter by a checksum each, which is as fast as memory is read: models that
/// differ, differ in many tensors.
fn model_digest(model: &LoadedModel) -> String {
    let mut hasher = Sha256::new();
    hasher.update(format!("{:?}", model.model().graph));
    for tensor in model.checkpoint().iter() {
        let info = tensor.info;
        let sum = crc32fast::hash(tensor.bytes);
        hasher.update(format!(
            "{} {:?} {:?} {sum:08x}\n",
            info.name, info.tensor_type, info.shape
        ));
    }
    hex(&hasher.finalize())
}

/// Hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
