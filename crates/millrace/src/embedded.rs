//! The models built into the library.

use crate::Result;
use millrace_format::Checkpoint;

/// Bytes at an address that suits every tensor alignment GGUF files use.
#[cfg(feature = "demo")]
#[repr(C, align(64))]
struct EmbeddedBytes<T: ?Sized>(T);

#[cfg(feature = "demo")]
static DEMO: &EmbeddedBytes<[u8]> = &EmbeddedBytes(*include_bytes!("../../../models/demo.gguf"));
#[cfg(feature = "demo")]
static DEMO_DRAFT: &EmbeddedBytes<[u8]> =
    &EmbeddedBytes(*include_bytes!("../../../models/demo-draft.gguf"));

/// A model that needs no file.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedModel {
    name: &'static str,
    bytes: &'static [u8],
}

static MODELS: &[EmbeddedModel] = &[
    #[cfg(feature = "demo")]
    EmbeddedModel {
        name: "demo",
        bytes: &DEMO.0,
    },
    #[cfg(feature = "demo")]
    EmbeddedModel {
        name: "demo-draft",
        bytes: &DEMO_DRAFT.0,
    },
];

impl EmbeddedModel {
    /// The built-in models; none without the feature `demo`.
    pub fn all() -> &'static [EmbeddedModel] {
        MODELS
    }

    /// The built-in model of that name.
    pub fn find(name: &str) -> Option<EmbeddedModel> {
        MODELS.iter().copied().find(|model| model.name == name)
    }

    /// What [`Model::open`](crate::Model::open) takes for it.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Of the whole file.
    pub fn size_bytes(self) -> u64 {
        self.bytes.len() as u64
    }

    /// The model's tensors and metadata; nothing is copied.
    pub(crate) fn open(self) -> Result<Checkpoint> {
        Ok(Checkpoint::from_static(self.name, self.bytes)?)
    }
}

#[cfg(all(test, feature = "demo"))]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_model_opens() {
        assert!(!MODELS.is_empty());
        for model in MODELS {
            let checkpoint = model.open().expect(model.name);
            assert!(
                !checkpoint.tensors().is_empty(),
                "{} has no tensors",
                model.name
            );
        }
    }
}
