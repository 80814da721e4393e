//! InternLM 2 and 2.5, of GGUF files: Llama under another name. Its folders have code of their own and no class of
//! transformers.

use super::Family;

pub(super) static FAMILY: Family = Family {
    name: "internlm2",
    golden: Some("llama-llama3"),
    gguf_arch: "internlm2",
    models: "InternLM 2, 2.5 (GGUF)",
    permuted_in_gguf: true,
    ..Family::PLAIN
};
