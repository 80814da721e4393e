//! Texts that are filled in between two others.

use millrace_text::{EncodeOptions, TokenKind, Tokenizer};

use super::error::ApiError;
use crate::models::ServedModel;

/// Control tokens before the text in front of the gap, before the text behind it, and before what fills it; each family
/// documents its own.
const MARKS: [[&str; 3]; 5] = [
    // Qwen Coder, CodeGemma, StableCode.
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    // StarCoder, Granite.
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    // DeepSeek Coder.
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    // Code Llama.
    ["▁<PRE>", "▁<SUF>", "▁<MID>"],
];

/// The family's marks, if the vocabulary has them as tokens of their own.
fn marks(tokenizer: &Tokenizer) -> Option<[u32; 3]> {
    MARKS.iter().find_map(|names| {
        let ids = names.map(|name| {
            let id = tokenizer.id_of(name);
            id.filter(|id| tokenizer.token_kind(*id) != TokenKind::Normal)
        });
        let [Some(before), Some(behind), Some(between)] = ids else {
            return None;
        };
        Some([before, behind, between])
    })
}

/// The prompt behind which a model writes what belongs between two texts.
///
/// # Errors
/// By the field `name`: the model was not trained to.
pub(crate) async fn infill(
    served: &ServedModel,
    before: String,
    behind: String,
    name: &str,
) -> Result<Vec<u32>, ApiError> {
    let tokenizer = std::sync::Arc::clone(&served.loaded.tokenizer);
    let Some([prefix, suffix, middle]) = marks(&tokenizer) else {
        let message = "this model's vocabulary has no tokens for filling in; ask a model of code that does, or leave it out";
        return Err(ApiError::field(name, message));
    };
    let work = move || {
        let text = |text: &str| tokenizer.encode(text, EncodeOptions::default());
        let mut tokens: Vec<u32> = tokenizer
            .bos()
            .filter(|_| tokenizer.add_bos())
            .into_iter()
            .collect();
        tokens.push(prefix);
        tokens.extend(text(&before));
        tokens.push(suffix);
        tokens.extend(text(&behind));
        tokens.push(middle);
        tokens
    };
    let encoded = tokio::task::spawn_blocking(work).await;
    encoded.map_err(|error| {
        let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
        ApiError::new(status, error.to_string())
    })
}
