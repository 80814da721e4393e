//! The models built into the binary.

use crate::exit::Outcome;
use millrace_format::Checkpoint;

/// Bytes at an address that suits every tensor alignment GGUF files use.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

static DEMO: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../models/demo.gguf"));
static DEMO_DRAFT: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../models/demo-draft.gguf"));

/// A model that needs no file.
#[derive(Clone, Copy)]
pub(crate) struct Embedded {
    /// What the command line calls it.
    pub(crate) name: &'static str,
    bytes: &'static [u8],
}

/// The built-in models.
pub(crate) static MODELS: [Embedded; 2] = [
    Embedded {
        name: "demo",
        bytes: &DEMO.0,
    },
    Embedded {
        name: "demo-draft",
        bytes: &DEMO_DRAFT.0,
    },
];

/// The built-in model of that name.
pub(crate) fn find(name: &str) -> Option<Embedded> {
    MODELS.iter().copied().find(|model| model.name == name)
}

impl Embedded {
    /// Of the whole file.
    pub(crate) fn size_bytes(self) -> u64 {
        self.bytes.len() as u64
    }

    /// The model's tensors and metadata; nothing is copied.
    pub(crate) fn open(self) -> Outcome<Checkpoint> {
        Ok(Checkpoint::from_static(self.name, self.bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_model_opens() {
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
