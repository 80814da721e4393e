//! Tokenizers, chat templates and a streaming detokenizer.
#![forbid(unsafe_code)]
