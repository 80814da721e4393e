//! Tokens that `tokenizer_config.json` declares beside those of `tokenizer.json`.
//!
//! transformers adds them when it opens a folder. First come those of `added_tokens_decoder` in the order
//! of its keys, then every special token that has a name (`eos_token` and the like) or is listed. A token
//! that is known keeps its number; a new one gets the next (transformers 5.24,
//! `TokenizersBackend.__init__`).

use super::json::{AddedToken, TokenizerJson};
use super::parts::FILE;
use crate::Error;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;

const CONFIG_FILE: &str = "tokenizer_config.json";

/// The names that every tokenizer may have, in the order in which new ones get numbers.
const NAMES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// All added tokens of a folder: those of `tokenizer.json`, with the changes and additions of `tokenizer_config.json`.
///
/// # Errors
/// [`Error::Json`] for a file of another shape.
pub fn added_tokens(
    tokenizer_json: &[u8],
    tokenizer_config: Option<&Value>,
) -> Result<Vec<AddedToken>, Error> {
    let mut json: TokenizerJson<'_> = serde_json::from_slice(tokenizer_json)
        .map_err(|source| Error::Json { file: FILE, source })?;
    complete(&mut json, tokenizer_config)?;
    Ok(json.added_tokens)
}

/// Completes the list of added tokens. Returns how many are new.
pub(crate) fn complete(
    json: &mut TokenizerJson<'_>,
    config: Option<&Value>,
) -> Result<usize, Error> {
    let Some(config) = config else { return Ok(0) };
    let (declared, named) = (decoder(config)?, named(config));
    if declared.is_empty() && named.is_empty() {
        return Ok(0);
    }
    let n_before = json.added_tokens.len();
    let mut list = List::new(json);
    declared.into_iter().for_each(|token| list.put(token));
    for token in named {
        if !list.places.contains_key(token.content.as_str()) {
            list.put(token);
        }
    }
    json.added_tokens = list.tokens;
    Ok(json.added_tokens.len() - n_before)
}

/// Added tokens, as they are collected.
struct List {
    tokens: Vec<AddedToken>,
    /// Places in the list, by text.
    places: HashMap<String, usize>,
    /// Numbers of the model's own tokens, by text.
    of_model: HashMap<String, u32>,
    next: u32,
}

impl List {
    fn new(json: &mut TokenizerJson<'_>) -> List {
        let entries = json.model.vocab.entries();
        let of_model: HashMap<String, u32> =
            entries.map(|(text, id)| (text.to_owned(), id)).collect();
        let tokens = std::mem::take(&mut json.added_tokens);
        let places = tokens.iter().enumerate();
        let places = places
            .map(|(i, token)| (token.content.clone(), i))
            .collect();
        let ids = of_model.values().copied();
        let ids = ids.chain(tokens.iter().map(|token| token.id));
        List {
            next: ids.max().map_or(0, |id| id.saturating_add(1)),
            tokens,
            places,
            of_model,
        }
    }

    /// Adds a token, or replaces the properties of a known one.
    fn put(&mut self, token: AddedToken) {
        if token.content.is_empty() {
            return;
        }
        if let Some(place) = self.places.get(&token.content) {
            let known = &mut self.tokens[*place];
            let id = known.id;
            *known = AddedToken { id, ..token };
            return;
        }
        let id = self.of_model.get(&token.content).copied();
        let id = id.unwrap_or_else(|| {
            let id = self.next;
            self.next = self.next.saturating_add(1);
            id
        });
        self.places.insert(token.content.clone(), self.tokens.len());
        self.tokens.push(AddedToken { id, ..token });
    }
}

/// `added_tokens_decoder`, in the order of its numbers.
fn decoder(config: &Value) -> Result<Vec<AddedToken>, Error> {
    let entries = config.get("added_tokens_decoder");
    let mut tokens = Vec::new();
    for (id, token) in entries.and_then(Value::as_object).into_iter().flatten() {
        let token = AddedToken::deserialize(token);
        let token = token.map_err(|source| Error::Json {
            file: CONFIG_FILE,
            source,
        })?;
        tokens.push((id.parse::<u64>().unwrap_or(u64::MAX), token));
    }
    tokens.sort_by_key(|(id, _)| *id);
    Ok(tokens.into_iter().map(|(_, token)| token).collect())
}

/// The special tokens that have a name or are listed as special.
fn named(config: &Value) -> Vec<AddedToken> {
    let mut tokens: Vec<AddedToken> = Vec::new();
    tokens.extend(NAMES.iter().filter_map(|name| token(config.get(name)?)));
    let Some(entries) = config.as_object() else {
        return tokens;
    };
    // Models have names besides the usual ones, such as `image_token`.
    let own = entries.iter().filter(|(name, value)| {
        name.ends_with("_token") && !NAMES.contains(&name.as_str()) && value.is_string()
    });
    tokens.extend(own.filter_map(|(_, value)| token(value)));
    let lists = ["extra_special_tokens", "additional_special_tokens"];
    let full = |value: &&Value| match value {
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => false,
    };
    match lists.iter().find_map(|name| config.get(name).filter(full)) {
        Some(Value::Array(list)) => tokens.extend(list.iter().filter_map(token)),
        Some(Value::Object(map)) => tokens.extend(map.values().filter_map(token)),
        _ => {}
    }
    tokens
}

/// A special token as configurations write it: its text, or an object.
fn token(value: &Value) -> Option<AddedToken> {
    let flag = |name: &str| value.get(name).and_then(Value::as_bool).unwrap_or(false);
    Some(AddedToken {
        id: 0,
        content: text(value)?.to_owned(),
        single_word: flag("single_word"),
        lstrip: flag("lstrip"),
        rstrip: flag("rstrip"),
        normalized: Some(flag("normalized")),
        special: true,
    })
}

/// The text of a token that a configuration names: a string, or an object with a `content`.
pub(crate) fn text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

#[cfg(test)]
mod tests;
