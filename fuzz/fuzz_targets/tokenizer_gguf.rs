//! Vocabularies as GGUF files state them, with odd lists, kinds and ids: an error, or a tokenizer that ends.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use millrace_text::{EncodeOptions, GgufVocab, Tokenizer};

const PIECES: [&str; 15] = [
    "a",
    "b",
    "ab",
    "▁",
    "▁a",
    "Ġ",
    "Ġa",
    "<s>",
    "</s>",
    "<0x61>",
    "<|im_end|>",
    "é",
    "##b",
    "[UNK]",
    "▁é",
];
const PRE: [&str; 11] = [
    "default",
    "gpt-2",
    "llama-bpe",
    "qwen2",
    "tekken",
    "none",
    "gemma4",
    "whitespace",
    "tiny_aya",
    "superbpe",
    "kimi-k2",
];
const MODELS: [&str; 7] = [
    "gpt2",
    "llama",
    "bert",
    "t5",
    "gemma4",
    "whitespace",
    "rwkv",
];

fn pieces<'a>(input: &mut Unstructured<'a>) -> Result<Vec<&'a str>> {
    let n = input.int_in_range(0..=40)?;
    (0..n)
        .map(|_| match input.ratio(3, 4)? {
            true => input.choose(&PIECES).copied(),
            false => input.arbitrary(),
        })
        .collect()
}

/// None, or a map with a length that fits and any units.
fn charsmap(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    if input.ratio(1, 2)? {
        return Ok(Vec::new());
    }
    let n_units = input.int_in_range(0..=300u32)?;
    let mut bytes = (n_units * 4).to_le_bytes().to_vec();
    for _ in 0..n_units {
        bytes.extend(input.arbitrary::<u32>()?.to_le_bytes());
    }
    let replacements: &str = input.arbitrary()?;
    bytes.extend(replacements.bytes());
    Ok(bytes)
}

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let mut tokens = pieces(input)?;
    if input.ratio(1, 2)? {
        // Each byte has a token, so that any text can be encoded.
        tokens.extend(["<s>", "</s>", "a", "b", " ", "Ġ", "▁"]);
    }
    let n = tokens.len();
    let n_merges = input.int_in_range(0..=20)?;
    let merge = |input: &mut Unstructured<'_>| -> Result<String> {
        Ok(format!(
            "{} {}",
            input.choose(&PIECES)?,
            input.choose(&PIECES)?
        ))
    };
    let merges = (0..n_merges)
        .map(|_| merge(input))
        .collect::<Result<Vec<String>>>()?;
    let id = |input: &mut Unstructured<'_>| -> Result<Option<u32>> {
        Ok(match input.ratio(1, 2)? {
            true => Some(input.int_in_range(0..=n as u32 + 2)?),
            false => None,
        })
    };
    let vocab = GgufVocab {
        model: input.choose(&MODELS)?,
        pre: Some(input.choose(&PRE)?),
        scores: (0..n).map(|_| input.arbitrary()).collect::<Result<_>>()?,
        token_types: (0..n)
            .map(|_| input.int_in_range(0..=7))
            .collect::<Result<_>>()?,
        merges: Some(merges.iter().map(String::as_str).collect()),
        bos: id(input)?,
        eos: id(input)?,
        eot: id(input)?,
        eom: id(input)?,
        unk: id(input)?,
        cls: id(input)?,
        sep: id(input)?,
        add_bos: input.arbitrary()?,
        add_eos: input.arbitrary()?,
        add_space_prefix: input.arbitrary()?,
        remove_extra_whitespaces: input.arbitrary()?,
        precompiled_charsmap: charsmap(input)?,
        lowercase: input.arbitrary()?,
        strip_accents: input.arbitrary()?,
        tokens,
        ..GgufVocab::default()
    };
    let Ok(tokenizer) = Tokenizer::from_gguf(vocab) else {
        return Ok(());
    };
    let text: String = input.arbitrary()?;
    let ids = tokenizer.encode(&text, EncodeOptions::default());
    assert!(ids.iter().all(|id| (*id as usize) < tokenizer.n_vocab()));
    let _ = tokenizer.decode(&ids, false);
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = run(&mut Unstructured::new(bytes));
});
