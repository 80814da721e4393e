//! Results of transformers 5.24 for the same folder, from a script that printed `added_tokens_decoder`.

use super::*;
use crate::{EncodeOptions, TokenKind, Tokenizer};
use serde_json::json;

/// Ids 0 to 7 are characters, 8 is `</s>`, then come the added `<|bos|>` (9) and `<u>` (10).
fn tokenizer_json() -> Vec<u8> {
    let added = |id: u32, content: &str, special: bool| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": special})
    };
    json!({
        "added_tokens": [added(9, "<|bos|>", true), added(10, "<u>", false)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
        "model": {"type": "BPE", "merges": [], "vocab":
            {"x": 0, "Ġ": 1, "<": 2, ">": 3, "/": 4, "s": 5, "n": 6, "q": 7, "</s>": 8}}
    })
    .to_string()
    .into_bytes()
}

/// An added token in short: id, text, flags (`l`strip, `r`strip, `n`ormalized, `s`pecial).
fn short(token: &AddedToken) -> String {
    let flags = [
        (token.lstrip, 'l'),
        (token.rstrip, 'r'),
        (token.is_normalized(), 'n'),
        (token.special, 's'),
    ];
    let flags = flags.iter().filter(|(on, _)| *on).map(|(_, flag)| *flag);
    let flags: String = flags.collect();
    format!("{} {} {flags}", token.id, token.content)
}

#[test]
fn tokens_that_only_the_configuration_declares() {
    let token = |content: &str, special: bool, lstrip: bool, rstrip: bool| {
        json!({"content": content, "special": special, "lstrip": lstrip, "rstrip": rstrip,
               "single_word": false, "normalized": false})
    };
    let plain = ["9 <|bos|> s", "10 <u> "];
    let cases = [
        (json!({}), vec![]),
        // The numbers that the configuration gives decide only the order.
        (
            json!({"added_tokens_decoder": {"300": token("<n1>", true, false, false),
                                            "260": token("<n2>", false, false, true)}}),
            vec!["11 <n2> r", "12 <n1> s"],
        ),
        (json!({"eos_token": "</s>"}), vec!["8 </s> s"]),
        (json!({"eos_token": "<n1>"}), vec!["11 <n1> s"]),
        (
            json!({"eos_token": token("<n1>", false, false, true)}),
            vec!["11 <n1> rs"],
        ),
        (
            json!({"additional_special_tokens": ["<n1>", "<u>"]}),
            vec!["11 <n1> s"],
        ),
        (
            json!({"extra_special_tokens": ["<n2>"], "additional_special_tokens": ["<n1>"]}),
            vec!["11 <n2> s"],
        ),
        (
            json!({"image_token": "<n1>", "eos_token": null, "bos_token": "<|bos|>"}),
            vec!["11 <n1> s"],
        ),
        (
            json!({"pad_token": "<n1>", "bos_token": "<n2>", "a_token": "<n3>"}),
            vec!["11 <n2> s", "12 <n1> s", "13 <n3> s"],
        ),
    ];
    for (config, more) in cases {
        let found = added_tokens(&tokenizer_json(), Some(&config)).unwrap();
        let found: Vec<String> = found.iter().map(short).collect();
        assert_eq!(found, [&plain[..], &more].concat(), "{config}");
    }
    let changed = json!({"added_tokens_decoder": {"9": token("<|bos|>", true, false, true),
                                                  "10": token("<u>", true, true, false)}});
    let found = added_tokens(&tokenizer_json(), Some(&changed)).unwrap();
    let found: Vec<String> = found.iter().map(short).collect();
    assert_eq!(found, ["9 <|bos|> rs", "10 <u> ls"]);
}

#[test]
fn a_declared_token_is_found_ends_texts_and_is_no_text() {
    let config = json!({"eos_token": "<n1>", "added_tokens_decoder": {
        "11": {"content": "<n1>", "special": true}, "12": {"content": "<n>", "rstrip": true}}});
    let tokenizer = Tokenizer::from_hf(&tokenizer_json(), Some(&config)).unwrap();
    let all = EncodeOptions {
        add_special: true,
        parse_special: true,
    };
    assert_eq!(tokenizer.encode("x<n1><n>  q", all), [0, 11, 12, 7]);
    assert_eq!(tokenizer.n_vocab(), 13);
    assert!(tokenizer.is_end_of_generation(11));
    assert_eq!(tokenizer.token_kind(11), TokenKind::Control);
    // A user's text is never a control token.
    let text = EncodeOptions::default();
    assert_eq!(tokenizer.encode("<n1>", text), [2, 6, 3]);
}

#[test]
fn configurations_of_another_shape_are_no_panic() {
    for config in [
        json!([]),
        json!({"added_tokens_decoder": 7, "eos_token": 7, "extra_special_tokens": 7}),
        json!({"added_tokens_decoder": {"x": {"content": ""}}, "bos_token": {"content": 1}}),
    ] {
        let found = added_tokens(&tokenizer_json(), Some(&config)).unwrap();
        assert_eq!(found.len(), 2, "{config}");
    }
    let wrong = json!({"added_tokens_decoder": {"1": "text"}});
    let error = added_tokens(&tokenizer_json(), Some(&wrong)).unwrap_err();
    assert!(
        error.to_string().contains("tokenizer_config.json"),
        "{error}"
    );
}
