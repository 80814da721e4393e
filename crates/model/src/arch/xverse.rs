//! XVERSE: Llama under another name.

use super::Family;

pub(super) static FAMILY: Family = Family {
    name: "xverse",
    gguf_arch: "xverse",
    hf_model_types: &["xverse"],
    hf_classes: &["XverseForCausalLM"],
    models: "XVERSE 7B, 13B, 65B",
    permuted_in_gguf: true,
    ..Family::PLAIN
};
