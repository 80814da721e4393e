//! Normalizers, pre-tokenizers, post-processors and decoders of `tokenizer.json`, kind by kind.

use crate::Error;
use crate::normalize::{BertRules, Charsmap, NormalForm, NormalizeRule, Normalizer};
use crate::pretokenize::{
    Behavior, Pattern, PreTokenizer, Prepend, PretokenizeStep, SPACE_MARK, Scanner, Split,
};
use base64::Engine as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) const FILE: &str = "tokenizer.json";

/// The `type` of a part, or nothing for `null`.
pub(crate) fn kind_of(value: &Value) -> Option<&str> {
    value.get("type").and_then(Value::as_str)
}

/// A part as its fields.
pub(crate) fn fields<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    T::deserialize(value).map_err(|source| Error::Json { file: FILE, source })
}

/// The refusal of a part by name.
pub(crate) fn unsupported(part: &'static str, value: &Value, known: &'static str) -> Error {
    let found = match kind_of(value) {
        Some(kind) => kind.to_owned(),
        None => value.to_string().chars().take(80).collect(),
    };
    Error::UnsupportedPart { part, found, known }
}

/// The parts of a part: those of a `Sequence` in order, none for `null`, else the part itself.
pub(crate) fn flatten<'v>(value: &'v Value, list: &str) -> Vec<&'v Value> {
    let mut flat = Vec::new();
    // An explicit stack: the parser bounds the depth, but not as low as the stack of every caller.
    let mut stack = vec![value];
    while let Some(value) = stack.pop() {
        match (kind_of(value), value.get(list).and_then(Value::as_array)) {
            (Some("Sequence"), Some(parts)) => stack.extend(parts.iter().rev()),
            _ if value.is_null() => {}
            _ => flat.push(value),
        }
    }
    flat
}

/// How files write a pattern.
#[derive(Deserialize)]
enum PatternJson {
    String(String),
    Regex(String),
}

impl PatternJson {
    fn compile(self) -> Result<Pattern, Error> {
        match self {
            PatternJson::String(text) if text.is_empty() => Err(Error::UnsupportedSetting {
                part: "pattern",
                found: "an empty string".to_owned(),
                hint: "expected a string or an expression that matches something",
            }),
            PatternJson::String(text) => Ok(Pattern::Literal(text)),
            PatternJson::Regex(pattern) => Pattern::regex(&pattern),
        }
    }
}

const NORMALIZERS: &str = "NFC, NFD, NFKC, NFKD, Replace, Prepend, Lowercase, Strip, StripAccents, Nmt, BertNormalizer, Precompiled, Sequence";

/// The fields of `BertNormalizer`.
#[derive(Deserialize)]
struct Bert {
    clean_text: bool,
    handle_chinese_chars: bool,
    /// As `lowercase` if absent.
    strip_accents: Option<bool>,
    lowercase: bool,
}

impl Bert {
    fn rules(&self) -> BertRules {
        BertRules {
            clean_text: self.clean_text,
            space_ideographs: self.handle_chinese_chars,
            strip_accents: self.strip_accents.unwrap_or(self.lowercase),
            lowercase: self.lowercase,
        }
    }
}

/// The map of `Precompiled`, which is written in base 64.
fn charsmap(value: &Value) -> Result<Charsmap, Error> {
    #[derive(Deserialize)]
    struct PrecompiledMap {
        precompiled_charsmap: String,
    }
    let PrecompiledMap {
        precompiled_charsmap: text,
    } = fields(value)?;
    Charsmap::new(&charsmap_bytes(&text)?)
}

/// The bytes of a `precompiled_charsmap` of `tokenizer.json`, as a GGUF file holds them.
///
/// # Errors
/// [`Error::Charsmap`] for a text that is not base 64.
pub fn charsmap_bytes(text: &str) -> Result<Vec<u8>, Error> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text);
    bytes.map_err(|error| Error::Charsmap {
        reason: format!("it is not base 64: {error}"),
    })
}

/// The bytes of a GGUF file's `precompiled_charsmap` as `tokenizer.json` writes them: base 64.
pub fn charsmap_text(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// The `normalizer` of a file.
pub(crate) fn normalizer(value: &Value) -> Result<Normalizer, Error> {
    #[derive(Deserialize)]
    struct Replace {
        pattern: PatternJson,
        content: String,
    }
    #[derive(Deserialize)]
    struct Prefix {
        prepend: String,
    }
    #[derive(Deserialize)]
    struct Strip {
        strip_left: bool,
        strip_right: bool,
    }
    let rule = |value: &&Value| {
        Ok(match kind_of(value) {
            Some("NFC") => NormalizeRule::Form(NormalForm::Nfc),
            Some("NFD") => NormalizeRule::Form(NormalForm::Nfd),
            Some("NFKC") => NormalizeRule::Form(NormalForm::Nfkc),
            Some("NFKD") => NormalizeRule::Form(NormalForm::Nfkd),
            Some("Lowercase") => NormalizeRule::Lowercase,
            Some("Prepend") => NormalizeRule::Prepend(fields::<Prefix>(value)?.prepend),
            Some("Strip") => {
                let Strip {
                    strip_left: left,
                    strip_right: right,
                } = fields(value)?;
                NormalizeRule::Strip { left, right }
            }
            Some("Replace") => {
                let Replace { pattern, content } = fields(value)?;
                NormalizeRule::Replace {
                    pattern: pattern.compile()?,
                    content,
                }
            }
            Some("StripAccents") => NormalizeRule::StripAccents,
            Some("Nmt") => NormalizeRule::Nmt,
            Some("BertNormalizer") => NormalizeRule::Bert(fields::<Bert>(value)?.rules()),
            Some("Precompiled") => NormalizeRule::Charsmap(Box::new(charsmap(value)?)),
            _ => return Err(unsupported("normalizer", value, NORMALIZERS)),
        })
    };
    let rules: Result<_, Error> = flatten(value, "normalizers").iter().map(rule).collect();
    Normalizer::new(rules?)
}

/// A pre-tokenizer, and other settings that its parts decide.
pub(crate) struct PreTokenizerParts {
    pub(crate) pre_tokenizer: PreTokenizer,
    /// Pieces are encoded as bytes (`ByteLevel`).
    pub(crate) byte_level: bool,
}

const PRE_TOKENIZERS: &str = "ByteLevel (last), Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, Sequence";

/// The `pre_tokenizer` of a file.
pub(crate) fn pre_tokenizer(value: &Value) -> Result<PreTokenizerParts, Error> {
    let parts = flatten(value, "pretokenizers");
    let mut steps = Vec::new();
    let mut byte_level = false;
    for part in parts {
        if byte_level {
            // Later steps would see the byte alphabet instead of the text.
            return Err(Error::UnsupportedSetting {
                part: "pre_tokenizer",
                found: format!("{} after ByteLevel", kind_of(part).unwrap_or("a step")),
                hint: "ByteLevel must come last",
            });
        }
        if kind_of(part) == Some("ByteLevel") {
            byte_level = true;
            steps.extend(byte_level_steps(part)?);
        } else {
            steps.push(pre_tokenizer_step(part)?);
        }
    }
    Ok(PreTokenizerParts {
        pre_tokenizer: PreTokenizer { steps },
        byte_level,
    })
}

fn byte_level_steps(value: &Value) -> Result<impl Iterator<Item = PretokenizeStep>, Error> {
    #[derive(Deserialize)]
    struct ByteLevel {
        add_prefix_space: bool,
        #[serde(default = "yes")]
        use_regex: bool,
    }
    let ByteLevel {
        add_prefix_space,
        use_regex,
    } = fields(value)?;
    let prefix = add_prefix_space.then_some(PretokenizeStep::SpacePrefix);
    Ok(prefix
        .into_iter()
        .chain(use_regex.then_some(PretokenizeStep::Scan(Scanner::GPT2))))
}

fn yes() -> bool {
    true
}

/// The five behaviours, as files name them.
#[derive(Clone, Copy, Deserialize)]
enum BehaviorJson {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

impl From<BehaviorJson> for Behavior {
    fn from(behavior: BehaviorJson) -> Behavior {
        match behavior {
            BehaviorJson::Removed => Behavior::Removed,
            BehaviorJson::Isolated => Behavior::Isolated,
            BehaviorJson::MergedWithPrevious => Behavior::MergedWithPrevious,
            BehaviorJson::MergedWithNext => Behavior::MergedWithNext,
            BehaviorJson::Contiguous => Behavior::Contiguous,
        }
    }
}

fn pre_tokenizer_step(value: &Value) -> Result<PretokenizeStep, Error> {
    #[derive(Deserialize)]
    struct SplitJson {
        pattern: PatternJson,
        behavior: BehaviorJson,
        #[serde(default)]
        invert: bool,
    }
    #[derive(Deserialize)]
    struct Digits {
        individual_digits: bool,
    }
    #[derive(Deserialize)]
    struct Punctuation {
        #[serde(default = "isolated")]
        behavior: BehaviorJson,
    }
    fn isolated() -> BehaviorJson {
        BehaviorJson::Isolated
    }
    let removed = |pattern: &str, invert| {
        let pattern = Pattern::regex(pattern)?;
        Ok::<_, Error>(PretokenizeStep::Split(Split {
            pattern,
            behavior: Behavior::Removed,
            invert,
        }))
    };
    match kind_of(value) {
        Some("Split") => {
            let SplitJson {
                pattern,
                behavior,
                invert,
            } = fields(value)?;
            Ok(split_step(pattern.compile()?, behavior.into(), invert))
        }
        Some("Digits") => Ok(PretokenizeStep::Digits {
            individual: fields::<Digits>(value)?.individual_digits,
        }),
        Some("Punctuation") => {
            let behavior = fields::<Punctuation>(value)?.behavior.into();
            let pattern = Pattern::regex(r"[!-/:-@\[-`{-~\p{P}]")?;
            Ok(PretokenizeStep::Split(Split {
                pattern,
                behavior,
                invert: false,
            }))
        }
        Some("Whitespace") => removed(r"\w+|[^\w\s]+", true),
        Some("WhitespaceSplit") => removed(r"\s", false),
        Some("BertPreTokenizer") => Ok(PretokenizeStep::Bert),
        Some("Metaspace") => metaspace(value),
        _ => Err(unsupported("pre_tokenizer", value, PRE_TOKENIZERS)),
    }
}

/// A scanner's matches are the whole text, so that most behaviours are the same: each match is a
/// piece.
fn split_step(pattern: Pattern, behavior: Behavior, invert: bool) -> PretokenizeStep {
    match (&pattern, behavior, invert) {
        (Pattern::Scanner(scanner), Behavior::Isolated, _)
        | (Pattern::Scanner(scanner), Behavior::Removed, true) => PretokenizeStep::Scan(*scanner),
        _ => PretokenizeStep::Split(Split {
            pattern,
            behavior,
            invert,
        }),
    }
}

/// The fields of `Metaspace`, as a pre-tokenizer and as a decoder.
#[derive(Deserialize)]
struct MetaspaceJson {
    #[serde(default = "space_mark")]
    replacement: char,
    prepend_scheme: Option<String>,
    add_prefix_space: Option<bool>,
    #[serde(default = "yes")]
    split: bool,
}

fn space_mark() -> char {
    SPACE_MARK
}

impl MetaspaceJson {
    fn prepend(&self) -> Result<Prepend, Error> {
        match (self.prepend_scheme.as_deref(), self.add_prefix_space) {
            (Some("first"), _) => Ok(Prepend::First),
            (Some("never"), _) | (None, Some(false)) => Ok(Prepend::Never),
            (Some("always") | None, _) => Ok(Prepend::Always),
            (Some(other), _) => Err(Error::UnsupportedSetting {
                part: "Metaspace",
                found: format!("prepend_scheme \"{other}\""),
                hint: "supported: always, first, never",
            }),
        }
    }
}

fn metaspace(value: &Value) -> Result<PretokenizeStep, Error> {
    let json: MetaspaceJson = fields(value)?;
    let prepend = json.prepend()?;
    Ok(PretokenizeStep::Metaspace {
        mark: json.replacement,
        prepend,
        cut: json.split,
    })
}

/// The mark of a `Metaspace` decoder, and whether spaces of the first token are dropped.
pub(crate) fn metaspace_decoder(value: &Value) -> Result<(char, bool), Error> {
    let json: MetaspaceJson = fields(value)?;
    Ok((json.replacement, json.prepend()? != Prepend::Never))
}

/// The pattern of a `Replace` decoder, and its replacement.
pub(crate) fn replace_decoder(value: &Value) -> Result<(Pattern, String), Error> {
    #[derive(Deserialize)]
    struct Replace {
        pattern: PatternJson,
        content: String,
    }
    let Replace { pattern, content } = fields(value)?;
    Ok((pattern.compile()?, content))
}
