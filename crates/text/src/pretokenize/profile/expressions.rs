//! The expressions of the pre-tokenizers that have no scanner.
//!
//! Sources: the `tokenizer.json` of the models that the names were given for, as llama.cpp's
//! `llama-vocab.cpp` quotes them.

use super::StepRule::{self, DigitGroups, Drop, Regex, Scan};
use crate::pretokenize::scan::GPT2_PATTERN;
use crate::pretokenize::{DigitRun, Scanner};

/// Words and punctuation of DeepSeek V3.
const DEEPSEEK_WORDS: StepRule = Regex(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
);

/// Chinese characters and kana.
const CHINESE_JAPANESE: StepRule = Regex("[一-龥぀-ゟ゠-ヿ]+");

/// At most three digits.
const THREE_DIGITS: StepRule = Regex(r"\p{N}{1,3}");

/// Lines, and runs of line ends.
const LINES_STEP: StepRule = Regex(r"[^\n]+|\n+");

/// llama.cpp's rules when a file names none.
pub(super) const DEFAULT: &[StepRule] = &[
    Regex(r"[\p{P}\$\+<=>\^~\|]+"),
    Regex(GPT2_PATTERN),
    Regex(r"\p{N}+"),
    Regex("[0-9][0-9][0-9]"),
];

/// Single digits, then GPT-2's expression.
pub(super) const DIGITS_THEN_GPT2: &[StepRule] = &[StepRule::Digits, Scan(Scanner::GPT2)];

/// Falcon.
pub(super) const FALCON: &[StepRule] = &[
    Regex(r"[\p{P}\$\+<=>\^~\|`]+"),
    Regex(GPT2_PATTERN),
    Regex("[0-9][0-9][0-9]"),
];

/// DeepSeek Coder.
pub(super) const DEEPSEEK_CODER: &[StepRule] = &[
    Regex("[\r\n]"),
    Regex(r"\s?\p{L}+"),
    Regex(r"\s?\p{P}+"),
    Regex("[一-龥ࠀ-一가-퟿]+"),
    Regex(r"\p{N}"),
];

/// DeepSeek V3.
pub(super) const DEEPSEEK_V3: &[StepRule] = &[THREE_DIGITS, CHINESE_JAPANESE, DEEPSEEK_WORDS];

/// DeepSeek LLM: lines, words in alphabets that have upper and lower case, punctuation, white space at
/// the end, Chinese and Korean, numbers. The letters are those that the model's `tokenizer.json` lists.
pub(super) const DEEPSEEK_LLM: &[StepRule] = &[
    Regex("[\r\n]"),
    Regex(concat!(
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
    )),
    Regex(r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+"),
    Regex(r"\s+$"),
    Regex(r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+"),
    Regex(r"\p{N}+"),
];

/// Seed-Coder: as Qwen 2, but line ends behind punctuation are separate pieces.
pub(super) const SEED_CODER: &[StepRule] = &[Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
)];

/// BLOOM: the texts between white space and the usual punctuation.
pub(super) const BLOOM: &[StepRule] = &[BLOOM_STEP];

const BLOOM_STEP: StepRule = Regex(r" ?[^(\s|.,!?…。，、।۔،)]+");

/// Viking: as BLOOM, with single digits.
pub(super) const VIKING: &[StepRule] = &[BLOOM_STEP, Regex(r"\p{N}")];

/// MiniCPM 5: three digits at a time, then Llama 3's expression on the rest.
pub(super) const MINICPM5: &[StepRule] = &[THREE_DIGITS, Scan(Scanner::LLAMA3)];

/// Laguna: Qwen 2's expression line by line.
pub(super) const LAGUNA: &[StepRule] = &[LINES_STEP, Scan(Scanner::QWEN2)];

/// Vocabularies without a byte alphabet that have line ends as tokens (Gemma 4, Sarvam).
pub(super) const LINES: &[StepRule] = &[LINES_STEP];

/// Words alone: white space is not part of any piece.
pub(super) const WORDS: &[StepRule] = &[Drop(r"\s")];

/// Tiny Aya: o200k's expression, and digits in threes from the right.
pub(super) const TINY_AYA: &[StepRule] = &[DigitGroups(DigitRun::Bounded), Scan(Scanner::O200K)];

/// SuperBPE: numbers apart, their digits in threes from the right; words are not cut.
pub(super) const SUPERBPE: &[StepRule] = &[Regex(r"\p{N}+"), DigitGroups(DigitRun::Inner)];

/// AFMoE: digits in threes from the right, scripts without spaces, DeepSeek V3's words.
pub(super) const AFMOE: &[StepRule] = &[
    DigitGroups(DigitRun::Numbers),
    Regex(concat!(
        r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}",
        r"\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}",
        r"\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+",
    )),
    DEEPSEEK_WORDS,
];

/// Spark 2.5: DeepSeek V3's rules with single line ends and digits.
pub(super) const SPARK: &[StepRule] = &[
    THREE_DIGITS,
    CHINESE_JAPANESE,
    Regex(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##,
    ),
    Regex(r"\p{N}"),
];

/// Youtu: scripts of East Asia and their punctuation apart, else o200k's expression with single digits.
pub(super) const YOUTU: &[StepRule] = &[
    Regex(
        "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，\u{3001}-\u{303F}\u{FE30}-\u{FE4F}]+|[ㄅ-ㄯ]+|[一-龥\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+",
    ),
    Regex(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
];

/// Jais 2: Llama 3's expression, with white space in runs of powers of two.
pub(super) const JAIS2: &[StepRule] = &[Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
)];

/// Ufakzeka: Qwen 2's expression without contractions.
pub(super) const UFAKZEKA: &[StepRule] = &[Regex(
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)];

/// EXAONE MoE: several words of letters and marks with single spaces between them are one piece.
pub(super) const EXAONE_MOE: &[StepRule] = &[Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
)];

/// Chameleon: sentinels, codes of images, indentation, single digits, punctuation, GPT-2's expression.
pub(super) const CHAMELEON: &[StepRule] = &[
    Regex("<sentinel:[0-9]+>"),
    Regex("IMGIMG[A-I]{1,4}Z"),
    Regex(r"[\t\n]|    |  "),
    Regex(r"\p{N}"),
    Regex(r"[\p{P}!-/:-@\[-`{-~]"),
    Scan(Scanner::GPT2),
];

/// Kimi K2: Chinese apart from words, else as o200k (`tokenization_kimi.py` of the model).
pub(super) const KIMI_K2: &[StepRule] = &[Regex(
    r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)];
