//! The pre-tokenizers that GGUF names, as `tokenizer.json` spells them out.

use serde_json::{Value, json};

/// How a byte-level tokenizer cuts text before it merges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rules<'a> {
    /// The expression of a `Split` step.
    split: Option<&'a str>,
    /// A `Digits` step that cuts every digit off.
    digits: bool,
    /// The `ByteLevel` step applies GPT-2's expression.
    gpt2: bool,
    /// A piece that is a token is not merged from its parts.
    ignore_merges: bool,
    /// Text is brought to normal form C first.
    nfc: bool,
}

const NONE: Rules<'static> = Rules {
    split: None,
    digits: false,
    gpt2: false,
    ignore_merges: false,
    nfc: false,
};

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SEED_CODER: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Values of `tokenizer.ggml.pre` and their rules. Of two names for the same rules the first is written.
const TABLE: [(&str, Rules<'static>); 11] = [
    ("gpt-2", Rules { gpt2: true, ..NONE }),
    (
        "smollm",
        Rules {
            digits: true,
            gpt2: true,
            ..NONE
        },
    ),
    (
        "llama-bpe",
        Rules {
            split: Some(LLAMA3),
            ignore_merges: true,
            ..NONE
        },
    ),
    (
        "smaug-bpe",
        Rules {
            split: Some(LLAMA3),
            ..NONE
        },
    ),
    (
        "qwen2",
        Rules {
            split: Some(QWEN2),
            nfc: true,
            ..NONE
        },
    ),
    (
        "deepseek-r1-qwen",
        Rules {
            split: Some(QWEN2),
            ..NONE
        },
    ),
    (
        "tekken",
        Rules {
            split: Some(TEKKEN),
            ignore_merges: true,
            ..NONE
        },
    ),
    (
        "seed-coder",
        Rules {
            split: Some(SEED_CODER),
            ..NONE
        },
    ),
    // Other spellings.
    (
        "llama3",
        Rules {
            split: Some(LLAMA3),
            ignore_merges: true,
            ..NONE
        },
    ),
    (
        "dbrx",
        Rules {
            split: Some(LLAMA3),
            ..NONE
        },
    ),
    (
        "starcoder",
        Rules {
            digits: true,
            gpt2: true,
            ..NONE
        },
    ),
];

/// The GGUF name of the rules in a parsed `tokenizer.json`.
///
/// # Errors
/// A description of rules that have no name here.
pub(super) fn name_of(tokenizer: &Value) -> Result<&'static str, String> {
    let rules = read(tokenizer)?;
    let row = TABLE.iter().find(|(_, known)| *known == rules);
    row.map(|(name, _)| *name).ok_or_else(|| {
        let names: Vec<&str> = TABLE.iter().map(|(name, _)| *name).collect();
        format!(
            "its pre-tokenizer ({rules:?}) has no name in GGUF that this program knows; known \
             are those of {}",
            names.join(", ")
        )
    })
}

/// How SentencePiece's dummy space is put before a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpacePrefix {
    /// Not at all.
    None,
    /// Before every part between special tokens (a `Prepend` normalizer), as GGUF has it.
    Every,
    /// The same, but not before a part that begins with a space (`Metaspace`).
    Metaspace,
    /// Before the part that begins the text alone (`Metaspace` with the scheme `first`).
    First,
}

impl SpacePrefix {
    /// `tokenizer.ggml.metaspace_prepend_scheme`, a key of this program's; other readers put a space
    /// before every part.
    pub(super) fn scheme(self) -> Option<&'static str> {
        match self {
            SpacePrefix::None | SpacePrefix::Every => None,
            SpacePrefix::Metaspace => Some("always"),
            SpacePrefix::First => Some("first"),
        }
    }
}

/// How a SentencePiece tokenizer puts its dummy space.
///
/// # Errors
/// A description of a normalizer or a pre-tokenizer that GGUF cannot hold.
pub(super) fn space_prefix(tokenizer: &Value) -> Result<SpacePrefix, String> {
    let mark = super::SPACE_MARK.to_string();
    let mut prefix = SpacePrefix::None;
    for step in steps(&tokenizer["normalizer"], "normalizers") {
        match step["type"].as_str() {
            Some("Prepend") if step["prepend"] == mark => prefix = SpacePrefix::Every,
            Some("Replace") if step["pattern"]["String"] == " " && step["content"] == mark => {}
            other => return Err(no_name("normalizer", other)),
        }
    }
    for step in steps(&tokenizer["pre_tokenizer"], "pretokenizers") {
        match step["type"].as_str() {
            Some("Metaspace") => {
                let scheme = step.get("prepend_scheme").and_then(Value::as_str);
                let adds = step.get("add_prefix_space").and_then(Value::as_bool);
                prefix = match (scheme, adds) {
                    (Some("first"), _) => SpacePrefix::First,
                    (Some("never"), _) | (None, Some(false)) => SpacePrefix::None,
                    _ => SpacePrefix::Metaspace,
                };
            }
            // The normalizer has left no space to split at.
            Some("Split") if step["pattern"]["String"] == " " => {}
            other => return Err(no_name("pre-tokenizer", other)),
        }
    }
    Ok(prefix)
}

fn no_name(part: &str, step: Option<&str>) -> String {
    let step = step.unwrap_or("without a type");
    format!("its {part} step {step} has no name in GGUF")
}

fn read(tokenizer: &Value) -> Result<Rules<'_>, String> {
    let flag = |value: &Value, key: &str, default: bool| {
        value.get(key).and_then(Value::as_bool).unwrap_or(default)
    };
    let mut rules = Rules {
        ignore_merges: flag(&tokenizer["model"], "ignore_merges", false),
        ..NONE
    };
    for step in steps(&tokenizer["normalizer"], "normalizers") {
        match step["type"].as_str() {
            Some("NFC") => rules.nfc = true,
            other => return Err(no_name("normalizer", other)),
        }
    }
    for step in steps(&tokenizer["pre_tokenizer"], "pretokenizers") {
        match step["type"].as_str() {
            Some("ByteLevel") => {
                if flag(step, "add_prefix_space", true) {
                    return Err(
                        "its ByteLevel step adds a space before the text, which GGUF \
                                cannot say"
                            .to_owned(),
                    );
                }
                rules.gpt2 |= flag(step, "use_regex", true);
            }
            Some("Split") if rules.split.is_none() && !flag(step, "invert", false) => {
                rules.split = step["pattern"]["Regex"].as_str();
            }
            Some("Digits") if flag(step, "individual_digits", false) => rules.digits = true,
            other => return Err(no_name("pre-tokenizer", other)),
        }
    }
    // Some files spell GPT-2's expression out.
    if rules.split == Some(GPT2) && !rules.gpt2 {
        (rules.split, rules.gpt2) = (None, true);
    }
    Ok(rules)
}

/// The steps of a `Sequence`, or the single step.
fn steps<'a>(value: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    let (one, many) = match value.get(list).and_then(Value::as_array) {
        Some(many) => (None, many.as_slice()),
        None => (Some(value).filter(|value| value.is_object()), [].as_slice()),
    };
    one.into_iter().chain(many)
}

/// `normalizer`, `pre_tokenizer` and `ignore_merges` for a GGUF name; `None` for an unknown one.
pub(super) fn spelled_out(name: &str) -> Option<(Value, Value, bool)> {
    let (_, rules) = TABLE.iter().find(|(known, _)| *known == name)?;
    let mut steps = Vec::new();
    if rules.digits {
        steps.push(json!({ "type": "Digits", "individual_digits": true }));
    }
    if let Some(split) = rules.split {
        let pattern = json!({ "Regex": split });
        let step = json!({ "type": "Split", "pattern": pattern, "behavior": "Isolated",
            "invert": false });
        steps.push(step);
    }
    steps.push(
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": rules.gpt2 }),
    );
    let normalizer = if rules.nfc {
        json!({ "type": "NFC" })
    } else {
        Value::Null
    };
    let pre_tokenizer = json!({ "type": "Sequence", "pretokenizers": steps });
    Some((normalizer, pre_tokenizer, rules.ignore_merges))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_spells_out_to_rules_of_that_name() {
        for (name, rules) in TABLE {
            let (normalizer, pre_tokenizer, ignore_merges) = spelled_out(name).unwrap();
            let tokenizer = json!({ "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
                "model": { "ignore_merges": ignore_merges } });
            let first = TABLE.iter().position(|(_, other)| *other == rules).unwrap();
            assert_eq!(name_of(&tokenizer), Ok(TABLE[first].0));
        }
        assert_eq!(spelled_out("no such"), None);
    }

    #[test]
    fn unknown_rules_are_described() {
        let tokenizer = |pre: Value| json!({ "pre_tokenizer": pre, "model": {} });
        let split = json!({ "type": "Split", "pattern": { "Regex": "x+" },
            "behavior": "Isolated", "invert": false });
        let error = name_of(&tokenizer(split)).unwrap_err();
        assert!(
            error.contains("x+") && error.contains("llama-bpe"),
            "{error}"
        );
        let error = name_of(&tokenizer(json!({ "type": "Whitespace" }))).unwrap_err();
        assert!(error.contains("Whitespace"), "{error}");
        let prefixed = json!({ "type": "ByteLevel", "add_prefix_space": true });
        assert!(name_of(&tokenizer(prefixed)).unwrap_err().contains("space"));
    }
}
