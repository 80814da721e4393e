//! Post-processors of `tokenizer.json`: the tokens put around a text.

use super::parts::{fields, flatten, kind_of, unsupported};
use crate::Error;
use crate::vocab::Vocab;
use serde::Deserialize;
use serde_json::Value;

/// Tokens around a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Around {
    pub(crate) prefix: Vec<u32>,
    pub(crate) suffix: Vec<u32>,
}

const POST_PROCESSORS: &str =
    "TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing, Sequence";

/// One element of a template.
#[derive(Deserialize)]
enum TemplatePiece {
    SpecialToken { id: String },
    Sequence { id: String },
}

#[derive(Deserialize)]
struct Template {
    single: Vec<TemplatePiece>,
    #[serde(default)]
    special_tokens: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
struct Bert {
    sep: (String, u32),
    cls: (String, u32),
}

#[derive(Deserialize)]
struct SpecialToken {
    ids: Vec<u32>,
}

/// The `post_processor` of a file.
pub(crate) fn around(value: &Value, vocab: &Vocab) -> Result<Around, Error> {
    let mut all = Around::default();
    for part in flatten(value, "processors") {
        let this = match kind_of(part) {
            Some("ByteLevel") => continue,
            Some("TemplateProcessing") => template(&fields(part)?, vocab)?,
            Some("BertProcessing" | "RobertaProcessing") => {
                let Bert { sep, cls } = fields(part)?;
                Around {
                    prefix: vec![cls.1],
                    suffix: vec![sep.1],
                }
            }
            _ => return Err(unsupported("post_processor", part, POST_PROCESSORS)),
        };
        // A later processor works on the output of an earlier one.
        all.prefix.splice(0..0, this.prefix);
        all.suffix.extend(this.suffix);
    }
    for id in all.prefix.iter().chain(&all.suffix) {
        if *id as usize >= vocab.len() {
            return Err(Error::TokenId {
                id: u64::from(*id),
                text: String::new(),
                reason: "post_processor adds it, but it lies outside the vocabulary".to_owned(),
            });
        }
    }
    Ok(all)
}

fn template(template: &Template, vocab: &Vocab) -> Result<Around, Error> {
    let mut around = Around::default();
    let mut behind = false;
    for piece in &template.single {
        match piece {
            TemplatePiece::Sequence { id } if id == "A" && !behind => behind = true,
            TemplatePiece::Sequence { id } => {
                return Err(Error::UnsupportedSetting {
                    part: "post_processor",
                    found: format!("sequence \"{id}\" in a template for one text"),
                    hint: "expected the sequence \"A\" once",
                });
            }
            TemplatePiece::SpecialToken { id } => {
                let list = if behind {
                    &mut around.suffix
                } else {
                    &mut around.prefix
                };
                match template.special_tokens.get(id) {
                    Some(token) => list.extend(fields::<SpecialToken>(token)?.ids),
                    None => list.push(vocab.find(id).ok_or_else(|| Error::UnknownToken {
                        by: "post_processor",
                        text: id.clone(),
                    })?),
                }
            }
        }
    }
    Ok(around)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::{Reach, TokenKind};
    use serde_json::json;

    fn vocab() -> Vocab {
        let mut vocab = Vocab::with_capacity(3);
        for text in ["<s>", "</s>", "a"] {
            vocab
                .push(text, TokenKind::Control, text.as_bytes(), Reach::Nowhere)
                .unwrap();
        }
        vocab
    }

    #[test]
    fn templates_in_a_sequence() {
        let value = json!({"type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false},
            {"type": "TemplateProcessing",
             "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                        {"SpecialToken": {"id": "</s>", "type_id": 0}}],
             "pair": [],
             "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}]});
        let want = Around {
            prefix: vec![0],
            suffix: vec![1],
        };
        assert_eq!(around(&value, &vocab()).unwrap(), want);
        assert_eq!(around(&Value::Null, &vocab()).unwrap(), Around::default());
    }

    #[test]
    fn roberta() {
        let value = json!({"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0],
                           "trim_offsets": true, "add_prefix_space": false});
        assert_eq!(
            around(&value, &vocab()).unwrap(),
            Around {
                prefix: vec![0],
                suffix: vec![1]
            }
        );
    }

    #[test]
    fn wrong_ones_are_refused() {
        let special = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
        for (single, ids, word) in [
            (json!([special("<x>")]), json!({}), "<x>"),
            (
                json!([special("<s>")]),
                json!({"<s>": {"id": "<s>", "ids": [9], "tokens": []}}),
                "9",
            ),
            (
                json!([{"Sequence": {"id": "B", "type_id": 0}}]),
                json!({}),
                "\"B\"",
            ),
        ] {
            let value =
                json!({"type": "TemplateProcessing", "single": single, "special_tokens": ids});
            let error = around(&value, &vocab()).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let error = around(&json!({"type": "Magic"}), &vocab())
            .unwrap_err()
            .to_string();
        assert!(error.contains("Magic"), "{error}");
    }
}
