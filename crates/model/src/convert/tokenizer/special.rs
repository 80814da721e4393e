//! Special tokens: which are put around a text, and which end one.

use millrace_text::{AddedToken, Tokenizer};
use serde_json::Value;

use super::SPACE_MARK;
use super::from_hf::{TokenizerFolder, Tokens};
use crate::convert::Error;
use crate::convert::metadata::MetadataEntries;

impl TokenizerFolder<'_> {
    /// Numbers of special tokens, which of them are put around every text, and all that end one.
    ///
    /// The tokenizer that reads the folder decides, so that both give the same answer.
    pub(super) fn put_special(
        &self,
        tokens: &Tokens,
        out: &mut MetadataEntries,
        notes: &mut Vec<String>,
    ) -> Result<(), Error> {
        let config = self.files.tokenizer_config.as_ref();
        let tokenizer = Tokenizer::from_hf(self.json, config);
        let tokenizer = tokenizer.map_err(|error| self.error(error.to_string()))?;
        let n = tokens.texts.len();
        let within = |id: &u32| (*id as usize) < n;
        let ends: Vec<u32> = self.files.end_token_ids();
        let ends: Vec<u32> = ends.into_iter().filter(within).collect();
        let bos = tokenizer.bos().filter(within);
        // Where no token is named, readers of GGUF take a default.
        let eos = tokenizer.eos().filter(within).or(ends.first().copied());
        let padding = config.and_then(|config| config.get("pad_token"));
        let padding = padding.and_then(|token| token.as_str().or(token["content"].as_str()));
        let padding = padding.and_then(|text| tokens.ids.get(text).copied());
        let unknown = tokenizer.unknown().filter(within);
        for (key, id) in [
            ("tokenizer.ggml.bos_token_id", bos),
            ("tokenizer.ggml.eos_token_id", eos),
            ("tokenizer.ggml.unknown_token_id", unknown),
            ("tokenizer.ggml.padding_token_id", padding),
        ] {
            out.extend(id.map(|id| (key, id.into())));
        }
        let known = |id: &u32| Some(*id) == eos || tokenizer.is_end_of_generation(*id);
        let more: Vec<u32> = ends.into_iter().filter(|id| !known(id)).collect();
        put_ends(more, out);
        let (begins, ends) = (tokenizer.prefix(), tokenizer.suffix());
        let is_one = |around: &[u32], id: Option<u32>| matches!(around, [one] if Some(*one) == id);
        out.push(("tokenizer.ggml.add_bos_token", is_one(begins, bos).into()));
        out.push(("tokenizer.ggml.add_eos_token", is_one(ends, eos).into()));
        for (around, id, place, name) in [
            (begins, bos, "in front of", "begin"),
            (ends, eos, "behind", "end"),
        ] {
            if !around.is_empty() && !is_one(around, id) {
                let texts = around.iter().map(|id| tokenizer.token_text(*id));
                notes.push(format!(
                    "tokenizer.json puts {} {place} a text, but GGUF knows the {name} token alone there: the \
                     result puts nothing",
                    quoted(texts)
                ));
            }
        }
        Ok(())
    }
}

/// Tokens that end a text, besides the named one and those that are known by their texts. Other
/// programs read two keys, this one a list as well.
fn put_ends(ends: Vec<u32>, out: &mut MetadataEntries) {
    let keys = ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];
    for (key, id) in keys.into_iter().zip(&ends) {
        out.push((key, (*id).into()));
    }
    if ends.len() > keys.len() {
        out.push(("tokenizer.ggml.eog_token_ids", ends.into()));
    }
}

/// Properties of added tokens that GGUF cannot express.
pub(super) fn flags_lost(added: &[AddedToken], n_vocab: usize) -> Option<String> {
    let has_flags = |token: &&AddedToken| {
        (token.id as usize) < n_vocab && (token.lstrip || token.rstrip || token.single_word)
    };
    let texts: Vec<&str> = added
        .iter()
        .filter(has_flags)
        .map(|token| &*token.content)
        .collect();
    (!texts.is_empty()).then(|| {
        format!(
            "GGUF cannot say that {} take white space around them or match whole words alone (lstrip, \
             rstrip, single_word): texts with them may become other tokens than the folder's",
            quoted(texts)
        )
    })
}

/// Added tokens with SentencePiece's mark that its model does not know: a folder finds them in texts that
/// spell the mark, GGUF in texts with spaces.
pub(super) fn marks_lost(added: &[AddedToken], json: &Value, n_vocab: usize) -> Option<String> {
    let is_lost = |token: &&AddedToken| {
        (token.id as usize) < n_vocab
            && !token.special
            && token.content.contains(SPACE_MARK)
            && json["model"]["vocab"].get(&token.content).is_none()
    };
    let texts: Vec<&str> = added
        .iter()
        .filter(is_lost)
        .map(|token| &*token.content)
        .collect();
    (!texts.is_empty()).then(|| {
        format!(
            "GGUF takes {} for the spaces that `{SPACE_MARK}` stands for, which the folder does not: texts \
             with several spaces may become other tokens",
            quoted(texts)
        )
    })
}

/// A few texts in backquotes.
fn quoted<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    const MOST: usize = 8;
    let mut texts = texts.into_iter().map(|text| format!("`{text}`"));
    let mut out: Vec<String> = texts.by_ref().take(MOST).collect();
    let n_more = texts.count();
    if n_more > 0 {
        out.push(format!("{n_more} more"));
    }
    out.join(", ")
}
