//! EXAONE 3 and 3.5, of GGUF files: Llama whose rows of queries and keys keep their order. Its folders have code of their own
//! and no class of transformers.

use super::Family;

pub(super) static FAMILY: Family = Family {
    name: "exaone",
    golden: Some("qwen2"),
    gguf_arch: "exaone",
    models: "EXAONE 3, 3.5 (GGUF)",
    ..Family::PLAIN
};
