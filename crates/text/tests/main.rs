//! Tokenizers and templates against the results of other programs.
//!
//! All modules are one program: separate ones would each link the crates below again.

mod chat_goldens;
mod llama_cpp_vocabularies;
mod reference_tokenizers;
mod separate_tokenizers;
mod support;
mod template_constructs;
