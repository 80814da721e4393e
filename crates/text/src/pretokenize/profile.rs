//! The pre-tokenizers that GGUF files name in `tokenizer.ggml.pre`.
//!
//! A GGUF file names its splitting rules instead of carrying them. The rules here are those of the
//! `tokenizer.json` files that the names were given for.

use super::scan::GPT2_PATTERN;
use super::{PreTokenizer, Scanner, Split, Stage};
use crate::Error;
use crate::normalize::Form;

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    names: &'static [&'static str],
    rules: Rules,
    /// A piece that is a token is not merged from its parts.
    pub(crate) ignore_merges: bool,
    /// Whether a begin-of-sequence token is added where the file does not say.
    pub(crate) add_bos: bool,
    /// Normal form that text is brought into.
    pub(crate) form: Option<Form>,
}

#[derive(Clone, Copy, Debug)]
enum Rules {
    /// One built-in expression.
    Scan(Scanner),
    /// Single digits, then GPT-2's expression.
    DigitsThenGpt2,
    /// Expressions that cut one after the other.
    Regexes(&'static [&'static str]),
}

const PLAIN: Profile = Profile {
    names: &[],
    rules: Rules::Scan(Scanner::GPT2),
    ignore_merges: false,
    add_bos: false,
    form: None,
};

/// What llama.cpp does when a file names nothing.
const DEFAULT: &[&str] = &[
    r"[\p{P}\$\+<=>\^~\|]+",
    GPT2_PATTERN,
    r"\p{N}+",
    "[0-9][0-9][0-9]",
];

const FALCON: &[&str] = &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2_PATTERN, "[0-9][0-9][0-9]"];

const DEEPSEEK_CODER: &[&str] = &[
    "[\r\n]",
    r"\s?\p{L}+",
    r"\s?\p{P}+",
    "[一-龥ࠀ-一가-퟿]+",
    r"\p{N}",
];

const DEEPSEEK_V3: &[&str] = &[
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

const TABLE: &[Profile] = &[
    Profile {
        names: &["default"],
        rules: Rules::Regexes(DEFAULT),
        ..PLAIN
    },
    Profile {
        names: &[
            "gpt-2", "phi-2", "olmo", "mpt", "jais", "exaone4", "gigachat", "a.x-4.0", "mellum",
            "trillion",
        ],
        ..PLAIN
    },
    Profile {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
        ],
        rules: Rules::Scan(Scanner::LLAMA3),
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    Profile {
        names: &["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"],
        rules: Rules::Scan(Scanner::LLAMA3),
        ..PLAIN
    },
    // The tokenizer of Qwen composes its input; the files do not say so.
    Profile {
        names: &["qwen2"],
        rules: Rules::Scan(Scanner::QWEN2),
        form: Some(Form::Nfc),
        ..PLAIN
    },
    Profile {
        names: &["qwen35"],
        rules: Rules::Scan(Scanner::QWEN35),
        form: Some(Form::Nfc),
        ..PLAIN
    },
    Profile {
        names: &[
            "deepseek-r1-qwen",
            "kormo",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        rules: Rules::Scan(Scanner::QWEN2),
        ..PLAIN
    },
    Profile {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        rules: Rules::DigitsThenGpt2,
        ..PLAIN
    },
    Profile {
        names: &["tekken"],
        rules: Rules::Scan(Scanner::TEKKEN),
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    Profile {
        names: &["gpt-4o", "llama4", "kanana2"],
        rules: Rules::Scan(Scanner::O200K),
        ..PLAIN
    },
    Profile {
        names: &["falcon"],
        rules: Rules::Regexes(FALCON),
        ..PLAIN
    },
    Profile {
        names: &["deepseek-coder"],
        rules: Rules::Regexes(DEEPSEEK_CODER),
        ..PLAIN
    },
    Profile {
        names: &["deepseek-v3"],
        rules: Rules::Regexes(DEEPSEEK_V3),
        ..PLAIN
    },
];

impl Profile {
    /// The profile with a name; a file without one gets `default`.
    ///
    /// # Errors
    /// [`Error::UnknownPreTokenizer`], which lists the known names.
    pub(crate) fn named(name: Option<&str>) -> Result<Profile, Error> {
        let name = name.filter(|name| !name.is_empty()).unwrap_or("default");
        TABLE
            .iter()
            .find(|profile| profile.names.contains(&name))
            .copied()
            .ok_or_else(|| Error::UnknownPreTokenizer {
                found: name.to_owned(),
                known: known_names().join(", "),
            })
    }

    /// The steps of the pre-tokenizer.
    pub(crate) fn pre_tokenizer(&self) -> Result<PreTokenizer, Error> {
        let steps = match self.rules {
            Rules::Scan(scanner) => vec![Stage::Scan(scanner)],
            Rules::DigitsThenGpt2 => {
                vec![
                    Stage::Digits { individual: true },
                    Stage::Scan(Scanner::GPT2),
                ]
            }
            Rules::Regexes(patterns) => patterns
                .iter()
                .map(|pattern| Split::isolated(pattern).map(Stage::Split))
                .collect::<Result<_, _>>()?,
        };
        Ok(PreTokenizer { steps })
    }
}

/// Every name in the table, in alphabetical order.
pub(super) fn known_names() -> Vec<&'static str> {
    let mut names: Vec<_> = TABLE
        .iter()
        .flat_map(|profile| profile.names.iter().copied())
        .collect();
    names.sort_unstable();
    names
}
