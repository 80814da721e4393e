//! Tokenizers between `tokenizer.json` and GGUF's `tokenizer.ggml.*`.
//!
//! Four kinds are converted both ways: byte-level BPE (GGUF `gpt2`), SentencePiece's BPE (GGUF `llama`), BERT's WordPiece
//! and XLM-R's Unigram ([`pieces`], [`word_piece`], [`unigram`]).
//! They keep different things. `tokenizer.json` spells out how text is split before merging, GGUF
//! names it ([`pre`]). `tokenizer.json` lists merges, GGUF's `llama` kind has scores: the higher a
//! token's score, the earlier it is merged, from any two parts.

pub(super) mod from_hf;
mod pieces;
mod pre;
mod special;
pub(super) mod to_hf;
mod unigram;
mod word_piece;

/// `tokenizer.ggml.model` of byte-level BPE.
const BYTE_LEVEL: &str = "gpt2";
/// `tokenizer.ggml.model` of SentencePiece's BPE.
const SENTENCE_PIECE: &str = "llama";

/// SentencePiece's character for a space.
const SPACE_MARK: char = '\u{2581}';

/// `tokenizer.ggml.token_type`.
mod kind {
    pub(super) const NORMAL: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const CONTROL: i32 = 3;
    pub(super) const USER_DEFINED: i32 = 4;
    pub(super) const UNUSED: i32 = 5;
    pub(super) const BYTE: i32 = 6;
}

/// Whether a token is SentencePiece's spelling of a byte: `<0x0A>`.
fn is_byte_token(token: &str) -> bool {
    let digits = token
        .strip_prefix("<0x")
        .and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
}

#[cfg(test)]
mod tests;
