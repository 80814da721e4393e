//! Tokenizers and templates against what others computed.
//!
//! One program of modules: each would link the crates below anew.

mod chat_goldens;
mod llama_cpp_vocabularies;
mod reference_tokenizers;
mod support;
mod template_constructs;
