//! Tokenizers, chat templates and a streaming detokenizer.
//!
//! This crate knows no file format. The contents of a GGUF file enter as a [`GgufVocab`], a Hugging Face folder as the
//! bytes of `tokenizer.json` and the value of `tokenizer_config.json`. It trusts none of it: for any bytes, building a
//! [`Tokenizer`] or a [`ChatTemplate`] ends in a value or in a named [`Error`].
//!
//! To encode a text, special tokens are cut out of it. The rest is normalized and cut into pieces by the pre-tokenizer,
//! and each piece is encoded by the model. That is one of several (byte-level BPE, BPE over characters, SentencePiece's
//! merges by score, Unigram, or WordPiece). Decoding is one lookup a token, and [`Detokenizer`] puts characters together
//! that tokens cut.
//!
//! ```
//! use millrace_text::{EncodeOptions, GgufVocab, Tokenizer};
//!
//! let tokenizer = Tokenizer::from_gguf(GgufVocab {
//!     model: "gpt2",
//!     pre: Some("gpt-2"),
//!     tokens: vec!["a", "b", "Ġ", "ab", "Ġab"],
//!     merges: Some(vec!["a b", "Ġ ab"]),
//!     ..GgufVocab::default()
//! })?;
//! let ids = tokenizer.encode("ab ab a", EncodeOptions::default());
//! assert_eq!(ids, [3, 4, 2, 0]);
//! assert_eq!(tokenizer.decode(&ids, true), "ab ab a");
//! # Ok::<(), millrace_text::Error>(())
//! ```
#![forbid(unsafe_code)]

mod byte_alphabet;
mod chat;
mod detokenize;
mod end_of_generation;
mod error;
mod gguf;
mod hash;
mod hf;
mod model;
mod normalize;
mod pretokenize;
mod special;
mod surroundings;
mod tokenizer;
mod unicode;
mod vocab;
mod warning;

pub use chat::{
    ChatTemplate, DefaultTemplate, IMAGE_TOKEN, MAX_TEMPLATE_BYTES, Message, RenderOptions,
    RenderedPrompt, TemplateJob, TemplateReply, functionary, render_templates_with,
};
pub use detokenize::{DecodeOptions, Detokenizer};
pub use error::Error;
pub use gguf::GgufVocab;
pub use hf::{
    AddedToken, SeparateFiles, SeparateVocabulary, WholeFiles, added_tokens, charsmap_bytes,
    charsmap_text, tokenizer_class_of,
};
pub use tokenizer::{EncodeOptions, Tokenizer};
pub use vocab::TokenKind;
pub use warning::Warning;

/// Both are shared between threads.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Tokenizer>();
    shared::<ChatTemplate>();
};
