//! The tokenizer of a folder in one file, whichever files the folder has.

use std::borrow::Cow;

use millrace_format::hf::Files;
use millrace_text::{Error, SeparateFiles, SeparateVocabulary, tokenizer_class_of};
use serde_json::Value;

/// The files of a folder, with a `tokenizer.json` where the folder has a vocabulary and merges, or a SentencePiece model, in
/// its place. Those of a tokenizer's class that is not known stay as they are.
///
/// # Errors
/// [`Error::Json`] for a `vocab.json` that is not JSON, and declared tokens of another shape; [`Error::Pieces`].
pub fn with_tokenizer_json(files: &Files) -> Result<Cow<'_, Files>, Error> {
    let as_it_is = Ok(Cow::Borrowed(files));
    if files.tokenizer_json.is_some() {
        return as_it_is;
    }
    let Some(class) = class_of(files) else {
        return as_it_is;
    };
    let merges = files.vocab_and_merges.as_ref();
    let merges = merges.map(|[vocab, merges]| SeparateVocabulary::Merges { vocab, merges });
    let pieces = files.tokenizer_model.as_deref();
    let pieces = pieces.map(SeparateVocabulary::Pieces);
    for vocabulary in merges.into_iter().chain(pieces) {
        let separate = SeparateFiles {
            vocabulary,
            config: files.tokenizer_config.as_ref(),
        };
        if let Some(whole) = separate.whole(class)? {
            return Ok(Cow::Owned(Files {
                tokenizer_json: Some(whole.tokenizer_json),
                tokenizer_config: Some(whole.tokenizer_config),
                vocab_and_merges: None,
                tokenizer_model: None,
                ..files.clone()
            }));
        }
    }
    as_it_is
}

/// The class that `tokenizer_config.json` or `config.json` names, else that of the model.
fn class_of(files: &Files) -> Option<&str> {
    fn text<'a>(file: Option<&'a Value>, key: &str) -> Option<&'a str> {
        file?.get(key)?.as_str()
    }
    let config = files.config.as_ref();
    text(files.tokenizer_config.as_ref(), "tokenizer_class")
        .or_else(|| text(config, "tokenizer_class"))
        .or_else(|| tokenizer_class_of(text(config, "model_type")?))
}
