//! The models built into the library.

use crate::Result;
use millrace_format::Checkpoint;

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
        bytes: millrace_demo::DEMO,
    },
    #[cfg(feature = "demo")]
    EmbeddedModel {
        name: "demo-draft",
        bytes: millrace_demo_draft::DEMO_DRAFT,
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

    /// The name to pass to [`Model::open`](crate::Model::open).
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Size of the whole file.
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
