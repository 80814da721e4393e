//! The pre-tokenizers that GGUF files name in `tokenizer.ggml.pre`.
//!
//! A GGUF file names its splitting rules instead of carrying them. The rules here are those of the
//! `tokenizer.json` files that the names were given for.

use super::scan::GPT2_PATTERN;
use super::{PreTokenizer, PretokenizeStep, Scanner, Split};
use crate::Error;
use crate::normalize::NormalForm;

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PretokenizerProfile {
    names: &'static [&'static str],
    rules: Rules,
    /// A piece that is a token is not merged from its parts.
    pub(crate) ignore_merges: bool,
    /// Whether a begin-of-sequence token is added where the file does not say.
    pub(crate) add_bos: bool,
    /// Normal form that text is brought into.
    pub(crate) form: Option<NormalForm>,
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

const PLAIN: PretokenizerProfile = PretokenizerProfile {
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

/// DeepSeek LLM: lines, words in alphabets that have upper and lower case, punctuation, white space at
/// the end, Chinese and Korean, numbers. The letters are those that the model's `tokenizer.json` lists.
const DEEPSEEK_LLM: &[&str] = &[
    "[\r\n]",
    concat!(
        r"\s?[",
        r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}",
        r"\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}",
        r"\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}",
        r"\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}",
        r"\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}",
        r"\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}",
        r"\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}",
        r"\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}",
        r"\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}",
        r"\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}",
        r"\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}",
        r"\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}",
        r"\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}",
        r"\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}",
        r"\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}",
        r"]+"
    ),
    r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
    r"\s+$",
    r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+",
    r"\p{N}+",
];

/// Seed-Coder: as Qwen 2, but line ends behind punctuation are pieces of their own.
const SEED_CODER: &[&str] = &[
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
];

/// Viking: what stands between white space and the usual punctuation, as BLOOM's; single digits.
const VIKING: &[&str] = &[r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"];

const TABLE: &[PretokenizerProfile] = &[
    PretokenizerProfile {
        names: &["default"],
        rules: Rules::Regexes(DEFAULT),
        ..PLAIN
    },
    PretokenizerProfile {
        names: &[
            "gpt-2", "phi-2", "olmo", "mpt", "jais", "exaone4", "gigachat", "a.x-4.0", "mellum",
            "trillion",
        ],
        ..PLAIN
    },
    PretokenizerProfile {
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
    PretokenizerProfile {
        names: &["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"],
        rules: Rules::Scan(Scanner::LLAMA3),
        ..PLAIN
    },
    // The tokenizer of Qwen composes its input; the files do not say so.
    PretokenizerProfile {
        names: &["qwen2"],
        rules: Rules::Scan(Scanner::QWEN2),
        form: Some(NormalForm::Nfc),
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["qwen35"],
        rules: Rules::Scan(Scanner::QWEN35),
        form: Some(NormalForm::Nfc),
        ..PLAIN
    },
    PretokenizerProfile {
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
    PretokenizerProfile {
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
    PretokenizerProfile {
        names: &["tekken"],
        rules: Rules::Scan(Scanner::TEKKEN),
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["gpt-4o", "llama4", "kanana2"],
        rules: Rules::Scan(Scanner::O200K),
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["falcon"],
        rules: Rules::Regexes(FALCON),
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["deepseek-coder"],
        rules: Rules::Regexes(DEEPSEEK_CODER),
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["deepseek-v3"],
        rules: Rules::Regexes(DEEPSEEK_V3),
        ..PLAIN
    },
    // These three: `tokenizer.json` of DeepSeek LLM 7B, Seed-Coder 8B and Viking 7B, as llama.cpp's
    // `llama-vocab.cpp` quotes them.
    PretokenizerProfile {
        names: &["deepseek-llm"],
        rules: Rules::Regexes(DEEPSEEK_LLM),
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["seed-coder"],
        rules: Rules::Regexes(SEED_CODER),
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["viking"],
        rules: Rules::Regexes(VIKING),
        ..PLAIN
    },
];

impl PretokenizerProfile {
    /// The profile with a name; a file without one gets `default`.
    ///
    /// # Errors
    /// [`Error::UnknownPreTokenizer`], which lists the known names.
    pub(crate) fn named(name: Option<&str>) -> Result<PretokenizerProfile, Error> {
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
            Rules::Scan(scanner) => vec![PretokenizeStep::Scan(scanner)],
            Rules::DigitsThenGpt2 => {
                vec![
                    PretokenizeStep::Digits { individual: true },
                    PretokenizeStep::Scan(Scanner::GPT2),
                ]
            }
            Rules::Regexes(patterns) => patterns
                .iter()
                .map(|pattern| Split::isolated(pattern).map(PretokenizeStep::Split))
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
