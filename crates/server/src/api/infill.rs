//! Texts filled in between two others.

use millrace_text::{EncodeOptions, TokenKind, Tokenizer};

use super::error::ApiError;
use crate::models::ServedModel;

/// Part of an infill prompt.
#[derive(Clone, Copy)]
enum FillPart {
    /// A control token.
    Mark(&'static str),
    /// The text before the gap.
    Before,
    /// The text after the gap.
    Behind,
}

use FillPart::{Before, Behind, Mark};

/// The forms of model families, as each documents it.
const FORMS: [&[FillPart]; 7] = [
    // Qwen Coder, CodeGemma, StableCode.
    &psm(["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]),
    // StarCoder, Granite.
    &psm(["<fim_prefix>", "<fim_suffix>", "<fim_middle>"]),
    &psm(["<fim-prefix>", "<fim-suffix>", "<fim-middle>"]),
    // DeepSeek Coder.
    &psm(["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"]),
    // Code Llama.
    &psm(["▁<PRE>", "▁<SUF>", "▁<MID>"]),
    // Seed Coder: the text after the gap comes first.
    &[
        Mark("<[fim-suffix]>"),
        Behind,
        Mark("<[fim-prefix]>"),
        Before,
        Mark("<[fim-middle]>"),
    ],
    // Codestral: the answer continues the text before the gap.
    &[Mark("[SUFFIX]"), Behind, Mark("[PREFIX]"), Before],
];

/// Prefix, suffix, middle, each after its mark.
const fn psm([before, behind, between]: [&'static str; 3]) -> [FillPart; 5] {
    [Mark(before), Before, Mark(behind), Behind, Mark(between)]
}

/// A part of a prompt for one vocabulary.
enum Piece {
    Token(u32),
    Before,
    Behind,
}

/// The family's form, if the vocabulary has its marks as single tokens.
fn form(tokenizer: &Tokenizer) -> Option<Vec<Piece>> {
    let piece = |part: &FillPart| match part {
        Mark(name) => {
            let id = tokenizer.id_of(name);
            let id = id.filter(|id| tokenizer.token_kind(*id) != TokenKind::Normal);
            id.map(Piece::Token)
        }
        Before => Some(Piece::Before),
        Behind => Some(Piece::Behind),
    };
    FORMS
        .iter()
        .find_map(|parts| parts.iter().map(piece).collect())
}

/// The prompt after which a model writes the text between two others.
///
/// # Errors
/// About the field `name`: the model was not trained for infill.
pub(crate) async fn infill(
    served: &ServedModel,
    before: String,
    behind: String,
    name: &str,
) -> Result<Vec<u32>, ApiError> {
    let tokenizer = std::sync::Arc::clone(&served.loaded.tokenizer);
    let Some(form) = form(&tokenizer) else {
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
        for piece in form {
            match piece {
                Piece::Token(id) => tokens.push(id),
                Piece::Before => tokens.extend(text(&before)),
                Piece::Behind => tokens.extend(text(&behind)),
            }
        }
        tokens
    };
    let encoded = tokio::task::spawn_blocking(work).await;
    encoded.map_err(|error| {
        let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
        ApiError::new(status, error.to_string())
    })
}
