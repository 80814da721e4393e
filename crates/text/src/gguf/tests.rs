//! Tokenizers built from small GGUF vocabularies.

use super::*;
use crate::EncodeOptions;
use proptest::prelude::*;

const PLAIN: EncodeOptions = EncodeOptions {
    add_special: false,
    parse_special: false,
};
const SPECIAL: EncodeOptions = EncodeOptions {
    add_special: true,
    parse_special: true,
};

fn bpe() -> GgufVocab<'static> {
    GgufVocab {
        model: "gpt2",
        pre: Some("llama-bpe"),
        tokens: vec![
            "a",
            "b",
            "Ġ",
            "ab",
            "<|eot_id|>",
            "<|begin|>",
            "<think>",
            "Ċ",
        ],
        token_types: vec![1, 1, 1, 1, 3, 3, 4, 1],
        merges: Some(vec!["a b"]),
        bos: Some(5),
        eos: Some(4),
        ..GgufVocab::default()
    }
}

fn spm() -> GgufVocab<'static> {
    GgufVocab {
        model: "llama",
        tokens: vec![
            "<unk>", "<s>", "</s>", "<0x0A>", "▁", "a", "b", "▁a", "<tool>", "▁b",
        ],
        scores: vec![0.0, 0.0, 0.0, 0.0, -9.0, -9.0, -9.0, -1.0, 0.0, -2.0],
        token_types: vec![2, 3, 3, 6, 1, 1, 1, 1, 4, 1],
        ..GgufVocab::default()
    }
}

#[test]
fn byte_level_with_special_tokens() {
    let t = Tokenizer::from_gguf(bpe()).unwrap();
    assert_eq!(t.encode("ab<|eot_id|>\n", SPECIAL), [5, 3, 4, 7]);
    assert_eq!(t.encode("ab<think>", PLAIN), [3, 6]);
    assert_eq!(t.decode(&[5, 3, 2, 0, 6, 4], true), "ab a<think>");
    assert_eq!(t.decode(&[5, 3, 4], false), "<|begin|>ab<|eot_id|>");
    assert!(t.add_bos() && !t.add_eos());
    assert_eq!(t.end_of_generation(), [4]);
    assert!(t.is_special(4) && !t.is_special(6) && !t.is_special(0));
    assert_eq!(
        (t.n_vocab(), t.id_of("Ġ"), t.token_text(2)),
        (8, Some(2), "Ġ")
    );
    assert_eq!(t.token_bytes(2).as_ref(), b" ");
}

#[test]
fn control_tokens_in_plain_text_stay_text() {
    let t = Tokenizer::from_gguf(bpe()).unwrap();
    // Only `a`, `b`, space and newline have tokens; the rest has none and is left out.
    assert_eq!(t.encode("a<|eot_id|>b", PLAIN), [0, 1]);
}

#[test]
fn sentencepiece_prefixes_a_space_after_special_tokens() {
    let t = Tokenizer::from_gguf(spm()).unwrap();
    assert_eq!(t.encode("a b", SPECIAL), [1, 7, 9]);
    assert_eq!(t.encode("a</s>a\n", SPECIAL), [1, 7, 2, 7, 3]);
    assert_eq!(t.encode("<tool>a", PLAIN), [8, 7]);
    assert_eq!(t.encode("", SPECIAL), [1]);
    assert_eq!((t.bos(), t.eos(), t.unknown()), (Some(1), Some(2), Some(0)));
    let t = Tokenizer::from_gguf(GgufVocab {
        add_space_prefix: Some(false),
        ..spm()
    })
    .unwrap();
    assert_eq!(t.encode("a b", PLAIN), [5, 9]);
    assert_eq!(t.decode(&[7, 9], true), " a b");
}

#[test]
fn what_is_wrong_is_named() {
    type Edit = fn(&mut GgufVocab<'_>);
    let cases: [(GgufVocab<'_>, Edit, &str); 13] = [
        (bpe(), |v| v.model = "plamo2", "\"plamo2\""),
        (bpe(), |v| (v.model, v.merges) = ("gemma4", None), "merges"),
        (
            spm(),
            |v| {
                v.model = "t5";
                v.scores.clear();
            },
            "scores",
        ),
        (
            spm(),
            |v| (v.model, v.precompiled_charsmap) = ("t5", vec![9, 0, 0, 0]),
            "precompiled_charsmap",
        ),
        (
            spm(),
            |v| (v.model, v.unk, v.add_bos) = ("t5", Some(0), Some(true)),
            "bos_token_id",
        ),
        (bpe(), |v| v.tokens.clear(), "tokenizer.ggml.tokens"),
        (bpe(), |v| v.pre = Some("gpt-99"), "gpt-99"),
        (bpe(), |v| v.merges = None, "merges"),
        (bpe(), |v| v.merges = Some(vec!["ab"]), "merge 0 (\"ab\")"),
        (
            bpe(),
            |v| v.token_types.truncate(1),
            "has 1 entries, expected 8",
        ),
        (spm(), |v| v.scores.clear(), "scores"),
        (
            bpe(),
            |v| (v.bos, v.add_bos) = (None, Some(true)),
            "bos_token_id",
        ),
        (
            bpe(),
            |v| (v.eos, v.add_eos) = (Some(99), Some(true)),
            "eos_token_id",
        ),
    ];
    for (mut vocab, edit, word) in cases {
        edit(&mut vocab);
        let error = Tokenizer::from_gguf(vocab).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn odd_vocabularies_do_no_harm() {
    let odd = GgufVocab {
        model: "llama",
        tokens: vec!["", "a", "a", "▁", "\u{0}", "<0xGG>", "<0x41>"],
        scores: vec![
            f32::NAN,
            f32::INFINITY,
            -0.0,
            f32::NEG_INFINITY,
            1e38,
            0.0,
            0.0,
        ],
        token_types: vec![1, 99, -1, 0, 3, 6, 6],
        bos: Some(u32::MAX),
        add_bos: Some(false),
        ..GgufVocab::default()
    };
    let t = Tokenizer::from_gguf(odd).unwrap();
    assert_eq!(t.encode("aA\u{0}", PLAIN), [3, 1, 6, 0]);
    assert_eq!(t.bos(), Some(1));
}

#[test]
fn merges_of_missing_tokens_are_left_out() {
    let t = Tokenizer::from_gguf(GgufVocab {
        merges: Some(vec!["x y", "a b"]),
        ..bpe()
    })
    .unwrap();
    assert_eq!(t.encode("ab", PLAIN), [3]);
}

#[test]
fn the_profile_decides_whether_merges_count_for_whole_words() {
    let vocab = |pre| GgufVocab {
        pre: Some(pre),
        tokens: vec!["a", "b", "c", "ab", "bc", "abc"],
        token_types: vec![],
        merges: Some(vec!["b c", "a b", "b c"]),
        bos: None,
        eos: None,
        ..bpe()
    };
    let encode = |pre| {
        Tokenizer::from_gguf(vocab(pre))
            .unwrap()
            .encode("abc", PLAIN)
    };
    assert_eq!(encode("llama-bpe"), [5]);
    // Of two equal merges the first counts.
    assert_eq!(encode("gpt-2"), [0, 4]);
}

#[test]
fn qwen_composes_its_input() {
    let vocab = GgufVocab {
        pre: Some("qwen2"),
        tokens: vec!["Ã", "©", "e", "Ì", "ģ", "Ã©"],
        token_types: vec![],
        merges: Some(vec!["Ã ©"]),
        bos: None,
        eos: None,
        ..bpe()
    };
    let t = Tokenizer::from_gguf(vocab).unwrap();
    assert_eq!(t.encode("e\u{301}", PLAIN), [5]);
}

#[test]
fn no_vocabulary_makes_it_panic() {
    let text = prop::collection::vec(
        prop::sample::select(vec![
            "a",
            "b",
            "▁",
            "Ġ",
            "<0x41>",
            "<|im_end|>",
            "é",
            " ",
            "\n",
        ]),
        0..4,
    );
    let text = text.prop_map(|parts| parts.concat());
    let tokens = prop::collection::vec((text.clone(), any::<f32>(), -1i32..8), 1..40);
    let merges = prop::collection::vec(prop_oneof![text.clone(), Just("a b".to_owned())], 0..10);
    let ids = (any::<Option<u32>>(), 0u32..50, any::<Option<bool>>());
    let models = prop::sample::select(KNOWN_MODELS.split(", ").collect::<Vec<_>>());
    let pres = prop::sample::select(vec!["llama-bpe", "sarvam-moe", "tiny_aya"]);
    let strategy = (tokens, merges, ids, (models, pres), text, any::<bool>());
    proptest!(ProptestConfig::with_cases(3000), |((tokens, merges, ids, (model, pre), text, special) in strategy)| {
        let vocab = GgufVocab {
            model,
            pre: Some(pre),
            precompiled_charsmap: match ids.2 {
                Some(true) => crate::normalize::charsmap_of(&[("a", "é "), ("é", ""), ("b▁", "x")]),
                _ => Vec::new(),
            },
            add_space_prefix: ids.2,
            remove_extra_whitespaces: Some(special),
            cls: ids.0,
            sep: Some(ids.1),
            unk: Some(ids.1),
            tokens: tokens.iter().map(|t| t.0.as_str()).collect(),
            scores: tokens.iter().map(|t| t.1).collect(),
            token_types: tokens.iter().map(|t| t.2).collect(),
            merges: Some(merges.iter().map(String::as_str).collect()),
            bos: ids.0,
            eos: Some(ids.1),
            add_bos: ids.2,
            add_eos: ids.2,
            ..GgufVocab::default()
        };
        if let Ok(tokenizer) = Tokenizer::from_gguf(vocab) {
            let options = EncodeOptions { add_special: special, parse_special: special };
            let encoded = tokenizer.encode(&text.repeat(12), options);
            prop_assert!(encoded.iter().all(|id| (*id as usize) < tokenizer.n_vocab()));
            tokenizer.decode(&encoded, special);
        }
    });
}

/// Control tokens of one character, made by a merge, spelled as a byte, and used for unknown text.
#[test]
fn no_lookup_gives_a_control_token_of_plain_text() {
    let tokens = || vec!["a", "b", "!", "ab", "<0x21>", "<0x63>", "<|x|>", "★"];
    let bpe = GgufVocab {
        pre: Some("llama-bpe"),
        tokens: tokens(),
        token_types: vec![1, 1, 3, 3, 6, 3, 3, 3],
        merges: Some(vec!["a b"]),
        bos: None,
        eos: None,
        unk: Some(6),
        ..bpe()
    };
    let spm = GgufVocab {
        model: "llama",
        scores: vec![0.0; 8],
        add_bos: Some(false),
        add_space_prefix: Some(false),
        ..bpe.clone()
    };
    let (bpe, spm) = (
        Tokenizer::from_gguf(bpe).unwrap(),
        Tokenizer::from_gguf(spm).unwrap(),
    );
    let parse = EncodeOptions {
        add_special: false,
        parse_special: true,
    };
    for (text, of_bpe, of_spm, parsed) in [
        ("ab", &[0, 1][..], &[0, 1][..], &[3][..]),
        ("a!", &[0], &[0, 4], &[0, 2]),
        ("c★", &[], &[], &[7]),
    ] {
        assert_eq!(bpe.encode(text, PLAIN), of_bpe, "{text}");
        assert_eq!(spm.encode(text, PLAIN), of_spm, "{text}");
        for tokenizer in [&bpe, &spm] {
            assert_eq!(tokenizer.encode(text, parse), parsed, "{text}");
        }
    }
}

#[test]
fn every_way_to_name_an_end_token() {
    type Edit = fn(&mut GgufVocab<'_>);
    let cases: [(Edit, &[u32]); 7] = [
        (|_| {}, &[3]),
        (|v| v.eot = Some(0), &[0, 3]),
        (|v| v.eom = Some(1), &[1, 3]),
        (|v| v.fill = [Some(0), Some(1), Some(2)], &[0, 1, 2, 3]),
        (|v| v.ends = vec![2, 1, 99], &[1, 2, 3]),
        (|v| (v.eos, v.eot) = (None, Some(99)), &[]),
        // By its text, for any type.
        (|v| v.tokens[1] = "[EOT]", &[1, 3]),
    ];
    for (edit, want) in cases {
        let mut vocab = GgufVocab {
            tokens: vec!["a", "b", "c", "<|stop|>"],
            token_types: vec![1, 1, 1, 3],
            merges: Some(Vec::new()),
            bos: None,
            eos: Some(3),
            ..bpe()
        };
        edit(&mut vocab);
        let tokenizer = Tokenizer::from_gguf(vocab).unwrap();
        assert_eq!(tokenizer.end_of_generation(), want);
    }
}

/// A Unigram vocabulary whose numbers of special tokens are T5's.
fn t5() -> GgufVocab<'static> {
    GgufVocab {
        model: "t5",
        tokens: vec![
            "<pad>", "</s>", "<unk>", "▁", "a", "b", "▁a", "ab", "<x>", "▁ab", "<unused>",
        ],
        scores: vec![
            0.0, 0.0, 0.0, -3.0, -3.0, -3.0, -2.0, -5.5, -9.0, -9.0, -1.0,
        ],
        token_types: vec![3, 3, 2, 1, 1, 1, 1, 1, 4, 1, 5],
        add_space_prefix: Some(true),
        remove_extra_whitespaces: Some(true),
        ..GgufVocab::default()
    }
}

#[test]
fn unigram_takes_the_best_way_and_ends_texts() {
    let t = Tokenizer::from_gguf(t5()).unwrap();
    assert_eq!(t.encode(" ab  a", SPECIAL), [6, 5, 6, 1]);
    assert_eq!(t.encode("bab", PLAIN), [3, 5, 7]);
    assert_eq!(t.encode("a<x>a", PLAIN), [6, 8, 6]);
    // A run of unknown characters is one token; a control token is text, and an unused one is not.
    assert_eq!(t.encode("xyza", PLAIN), [3, 2, 4]);
    assert_eq!(t.encode("</s>", PLAIN), [3, 2]);
    assert_eq!(t.encode("<unused>a", PLAIN), [3, 2, 4]);
    assert_eq!(t.decode(&[6, 5, 6, 1], true), "ab a");
    assert!(!t.add_bos() && t.add_eos());
    let mut map = t5();
    let entries = [("ａ", "a"), ("\t", " "), ("é", "")];
    map.precompiled_charsmap = crate::normalize::charsmap_of(&entries);
    let t = Tokenizer::from_gguf(map).unwrap();
    assert_eq!(t.encode("\tａé\té a", PLAIN), [6, 6]);
}

#[test]
fn word_pieces_stand_between_their_tokens() {
    let vocab = || GgufVocab {
        model: "bert",
        tokens: vec![
            "[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁mill", "er", "▁.", "▁e", "▁水",
        ],
        token_types: vec![3, 3, 3, 3, 1, 1, 1, 1, 1],
        unk: Some(1),
        bos: Some(2),
        sep: Some(3),
        // Both are there all the same.
        add_bos: Some(false),
        add_eos: Some(false),
        ..GgufVocab::default()
    };
    let t = Tokenizer::from_gguf(vocab()).unwrap();
    let ids = t.encode("Miller. É水xyz [SEP]", SPECIAL);
    assert_eq!(ids, [2, 4, 5, 6, 7, 8, 1, 3, 3]);
    assert_eq!(t.decode(&ids, true), "miller. e 水");
    assert_eq!(t.decode(&ids[..5], false), "[CLS] miller. e");
    // A token that continues a word has nothing to drop.
    assert_eq!(t.decode(&[5, 4], true), "er mill");
    assert_eq!(t.encode("[SEP]", PLAIN), [1, 1, 1]);
    let cased = GgufVocab {
        lowercase: Some(false),
        ..vocab()
    };
    let t = Tokenizer::from_gguf(cased).unwrap();
    assert_eq!(t.encode("Mill mill é", PLAIN), [1, 4, 1]);
}

#[test]
fn characters_with_marks_have_no_byte_alphabet() {
    let vocab = |model, pre| GgufVocab {
        model,
        pre,
        tokens: vec![
            "<unk>", "<bos>", "<0xC3>", "<0xA9>", "▁", "a", "▁a", "\n", "\n\n", "Ġ", "b", "\n\n\n",
        ],
        token_types: vec![2, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1],
        merges: Some(vec!["▁ a"]),
        bos: Some(1),
        ..GgufVocab::default()
    };
    for (model, pre) in [("gemma4", None), ("gpt2", Some("granite-embed-multi-311m"))] {
        let t = Tokenizer::from_gguf(vocab(model, pre)).unwrap();
        assert_eq!(
            t.encode("a aé\n\nĠ", SPECIAL),
            [1, 5, 6, 2, 3, 8, 9],
            "{model}"
        );
        assert_eq!(t.decode(&[6, 2, 3, 9], true), " aéĠ");
    }
    // Line ends are separate tokens, or merged as merges say.
    let sarvam = Tokenizer::from_gguf(vocab("gpt2", Some("sarvam-moe"))).unwrap();
    assert_eq!(sarvam.encode("\n\n", PLAIN), [7, 7]);
    let words = GgufVocab {
        lowercase: Some(true),
        ..vocab("whitespace", None)
    };
    let t = Tokenizer::from_gguf(words).unwrap();
    assert_eq!(t.encode("A \n Bé", PLAIN), [5, 10, 2, 3]);
}
