//! Every name, with its rules: one row for all names of the same rules.

use super::StepRule::{self, Scan};
use super::{PretokenizerProfile, Spelling, expressions as by};
use crate::normalize::NormalForm;
use crate::pretokenize::Scanner;

const PLAIN: PretokenizerProfile = PretokenizerProfile {
    names: &[],
    rules: GPT2,
    ignore_merges: false,
    add_bos: false,
    form: None,
    spelling: Spelling::Bytes,
    whole_line_ends: false,
};

const GPT2: &[StepRule] = &[Scan(Scanner::GPT2)];
const LLAMA3: &[StepRule] = &[Scan(Scanner::LLAMA3)];
const QWEN2: &[StepRule] = &[Scan(Scanner::QWEN2)];
const O200K: &[StepRule] = &[Scan(Scanner::O200K)];

pub(super) const TABLE: &[PretokenizerProfile] = &[
    PretokenizerProfile {
        names: &["default"],
        rules: by::DEFAULT,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &[
            "gpt-2",
            "phi-2",
            "olmo",
            "mpt",
            "jais",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "trillion",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "modern-bert",
            "granite-docling",
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
            "jina-v5-nano",
        ],
        rules: LLAMA3,
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["dbrx", "smaug-bpe", "chatglm-bpe"],
        rules: LLAMA3,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["glm4", "glm5"],
        rules: LLAMA3,
        ignore_merges: true,
        ..PLAIN
    },
    // The tokenizer of Qwen composes its input; the files do not record it.
    PretokenizerProfile {
        names: &["qwen2"],
        rules: QWEN2,
        form: Some(NormalForm::Nfc),
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["qwen35"],
        rules: &[Scan(Scanner::QWEN35)],
        form: Some(NormalForm::Nfc),
        ..PLAIN
    },
    // Ling (`bailingmoe`) writes the same expression with possessive quantifiers.
    PretokenizerProfile {
        names: &[
            "deepseek-r1-qwen",
            "kormo",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
            "f2llmv2",
            "bailingmoe",
            "bailingmoe2",
            "llada-moe",
        ],
        rules: QWEN2,
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
        rules: by::DIGITS_THEN_GPT2,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["tekken"],
        rules: &[Scan(Scanner::TEKKEN)],
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        rules: O200K,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["granite-embed-multi-97m"],
        rules: O200K,
        ignore_merges: true,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["falcon"],
        rules: by::FALCON,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["deepseek-coder"],
        rules: by::DEEPSEEK_CODER,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        rules: by::DEEPSEEK_V3,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["deepseek-llm"],
        rules: by::DEEPSEEK_LLM,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["seed-coder"],
        rules: by::SEED_CODER,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["viking"],
        rules: by::VIKING,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["poro-chat", "bloom", "gpt3-finnish"],
        rules: by::BLOOM,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["minicpm5"],
        rules: by::MINICPM5,
        ignore_merges: true,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["kimi-k2"],
        rules: by::KIMI_K2,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["exaone-moe"],
        rules: by::EXAONE_MOE,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["tiny_aya", "cohere2moe"],
        rules: by::TINY_AYA,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["laguna"],
        rules: by::LAGUNA,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["afmoe"],
        rules: by::AFMOE,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["youtu"],
        rules: by::YOUTU,
        ignore_merges: true,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["spark2_5"],
        rules: by::SPARK,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["superbpe"],
        rules: by::SUPERBPE,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["jais-2"],
        rules: by::JAIS2,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["ufakzeka"],
        rules: by::UFAKZEKA,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["chameleon"],
        rules: by::CHAMELEON,
        add_bos: true,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["gemma4", "granite-embed-multi-311m"],
        rules: by::LINES,
        add_bos: true,
        spelling: Spelling::Marked,
        whole_line_ends: true,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["sarvam-moe"],
        rules: by::LINES,
        spelling: Spelling::Marked,
        ..PLAIN
    },
    PretokenizerProfile {
        names: &["whitespace"],
        rules: by::WORDS,
        spelling: Spelling::Plain,
        ..PLAIN
    },
];
