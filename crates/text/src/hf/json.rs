//! The shape of `tokenizer.json`.
//!
//! The vocabulary and the merges, nearly all of a file, are read straight into lists of borrowed
//! strings. The small parts stay JSON values, which `parts` reads kind by kind.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// A `tokenizer.json`.
#[derive(Deserialize)]
pub(crate) struct TokenizerJson<'a> {
    #[serde(default)]
    pub(crate) added_tokens: Vec<AddedToken>,
    #[serde(default)]
    pub(crate) normalizer: Value,
    #[serde(default)]
    pub(crate) pre_tokenizer: Value,
    #[serde(default)]
    pub(crate) post_processor: Value,
    #[serde(default)]
    pub(crate) decoder: Value,
    #[serde(borrow)]
    pub(crate) model: JsonModel<'a>,
}

/// A token that is searched for in a text before the model sees it, as `added_tokens` has them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AddedToken {
    /// Its number. In `added_tokens_decoder` it is the key.
    #[serde(default)]
    pub id: u32,
    /// Its text.
    pub content: String,
    /// Matches only between characters that are not part of words.
    #[serde(default)]
    pub single_word: bool,
    /// Takes white space in front of it.
    #[serde(default)]
    pub lstrip: bool,
    /// Takes white space behind it.
    #[serde(default)]
    pub rstrip: bool,
    /// Looked for in normalized text. Absent in old files, where it is the opposite of `special`.
    pub normalized: Option<bool>,
    /// A control token, not text.
    #[serde(default)]
    pub special: bool,
}

impl AddedToken {
    /// Whether the token is looked for in normalized text.
    pub fn is_normalized(&self) -> bool {
        self.normalized.unwrap_or(!self.special)
    }
}

/// The `model` of a file.
#[derive(Deserialize)]
pub(crate) struct JsonModel<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) dropout: Option<f32>,
    pub(crate) unk_token: Option<String>,
    pub(crate) continuing_subword_prefix: Option<String>,
    pub(crate) end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub(crate) fuse_unk: bool,
    #[serde(default)]
    pub(crate) byte_fallback: bool,
    #[serde(default)]
    pub(crate) ignore_merges: bool,
    /// Unigram: the place of the unknown token in the list.
    pub(crate) unk_id: Option<u32>,
    /// WordPiece: a longer word is unknown.
    pub(crate) max_input_chars_per_word: Option<usize>,
    #[serde(borrow, default)]
    pub(crate) vocab: JsonVocab<'a>,
    #[serde(borrow, default)]
    pub(crate) merges: Merges<'a>,
}

/// A vocabulary: a map from texts to ids, or Unigram's list of texts and scores.
#[derive(Default)]
pub(crate) enum JsonVocab<'a> {
    /// Nothing.
    #[default]
    Absent,
    /// Texts with their ids.
    Map(Vec<(Cow<'a, str>, u32)>),
    /// Texts with their scores; the place in the list is the id.
    List(Vec<(Cow<'a, str>, f64)>),
}

impl JsonVocab<'_> {
    /// Texts with their ids.
    pub(crate) fn entries(&self) -> Box<dyn Iterator<Item = (&str, u32)> + '_> {
        match self {
            JsonVocab::Absent => Box::new(std::iter::empty()),
            JsonVocab::Map(map) => Box::new(map.iter().map(|(text, id)| (text.as_ref(), *id))),
            JsonVocab::List(list) => Box::new(
                list.iter()
                    .zip(0u32..)
                    .map(|((text, _), id)| (text.as_ref(), id)),
            ),
        }
    }
}

/// Merges, written as pairs or as `left right`.
#[derive(Default)]
pub(crate) struct Merges<'a>(pub(crate) Vec<JsonMerge<'a>>);

/// One merge.
pub(crate) enum JsonMerge<'a> {
    /// `"left right"`
    Joined(Cow<'a, str>),
    /// `["left", "right"]`
    Pair(Cow<'a, str>, Cow<'a, str>),
}

/// A string that is borrowed where the file spells it without escapes.
struct JsonText<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for JsonText<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = JsonText<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<JsonText<'de>, E> {
                Ok(JsonText(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<JsonText<'de>, E> {
                Ok(JsonText(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// A token with its score.
struct JsonScored<'a>(Cow<'a, str>, f64);

impl<'de> Deserialize<'de> for JsonScored<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScoredVisitor;
        impl<'de> Visitor<'de> for ScoredVisitor {
            type Value = JsonScored<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a token with its score, as [\"token\", -1.5]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<JsonScored<'de>, A::Error> {
                let missing = |n| serde::de::Error::invalid_length(n, &"a token with its score");
                let JsonText(text) = seq.next_element()?.ok_or_else(|| missing(0))?;
                let score = seq.next_element()?.ok_or_else(|| missing(1))?;
                if seq.next_element::<serde::de::IgnoredAny>()?.is_some() {
                    return Err(missing(3));
                }
                Ok(JsonScored(text, score))
            }
        }
        deserializer.deserialize_any(ScoredVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonVocab<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VocabVisitor;
        impl<'de> Visitor<'de> for VocabVisitor {
            type Value = JsonVocab<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from tokens to ids, or a list of tokens and scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonVocab<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some((JsonText(text), id)) = map.next_entry()? {
                    entries.push((text, id));
                }
                Ok(JsonVocab::Map(entries))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<JsonVocab<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some(JsonScored(text, score)) = seq.next_element()? {
                    entries.push((text, score));
                }
                Ok(JsonVocab::List(entries))
            }
        }
        deserializer.deserialize_any(VocabVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Merges<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Merges)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonMerge<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MergeVisitor;
        impl<'de> Visitor<'de> for MergeVisitor {
            type Value = JsonMerge<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge, as \"left right\" or [\"left\", \"right\"]")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<JsonMerge<'de>, E> {
                Ok(JsonMerge::Joined(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<JsonMerge<'de>, E> {
                Ok(JsonMerge::Joined(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<JsonMerge<'de>, A::Error> {
                let missing = |n| serde::de::Error::invalid_length(n, &"two tokens");
                let JsonText(left) = seq.next_element()?.ok_or_else(|| missing(0))?;
                let JsonText(right) = seq.next_element()?.ok_or_else(|| missing(1))?;
                if seq.next_element::<serde::de::IgnoredAny>()?.is_some() {
                    return Err(missing(3));
                }
                Ok(JsonMerge::Pair(left, right))
            }
        }
        deserializer.deserialize_any(MergeVisitor)
    }
}
