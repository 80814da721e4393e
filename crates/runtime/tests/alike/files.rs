//! Files of tiny folders.

use serde_json::{Value, json};

pub(crate) const TEMPLATE: &str = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}";

/// Twenty tokens: words of `h` and `e`, control tokens, a declared one and an added word.
pub(crate) fn small_tokenizer(prefix: bool, merges: bool) -> Value {
    let added = |id: u32, content: &str, special: bool| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": special})
    };
    let mut single = vec![json!({"Sequence": {"id": "A", "type_id": 0}})];
    if prefix {
        single.insert(0, json!({"SpecialToken": {"id": "<s>", "type_id": 0}}));
    }
    let merges = match merges {
        true => json!([["h", "e"], ["Ġ", "he"]]),
        false => json!([]),
    };
    json!({
        "added_tokens": [added(10, "<s>", true), added(11, "</s>", true), added(12, "<stop>", true),
                         added(13, "<x>", false), added(14, "<halt>", true), added(15, "<end>", true)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "decoder": {"type": "ByteLevel"},
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": []},
        "model": {"type": "BPE", "merges": merges, "vocab": {"h": 0, "e": 1, "Ġ": 2, "he": 3, "Ġhe": 4,
                  "a": 5, "b": 6, "i": 7, "!": 8, "Ċ": 9}}
    })
}

/// The case, the files beside `config.json`, and the end tokens that folder and GGUF must have.
type Variant = (&'static str, Vec<(&'static str, Value)>, Vec<u32>);

/// Folders with every way of writing tokenizer and generation settings.
pub(crate) fn variants() -> Vec<Variant> {
    let named = json!({"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>", "chat_template": TEMPLATE});
    let with = |more: Value| {
        let mut config = named.clone();
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        config
    };
    let files = |tokenizer: Value, config: Value, generation: Value| {
        vec![
            ("tokenizer.json", tokenizer),
            ("tokenizer_config.json", config),
            ("generation_config.json", generation),
        ]
    };
    let none = || json!({});
    let listed = json!([{"name": "default", "template": TEMPLATE}, {"name": "tool_use", "template": "{{ bos_token }}T{{ tools }}"}]);
    vec![
        (
            "plain",
            files(small_tokenizer(true, true), named.clone(), none()),
            vec![11],
        ),
        (
            "no merges",
            files(small_tokenizer(true, false), named.clone(), none()),
            vec![11],
        ),
        (
            "add_bos_token false",
            files(
                small_tokenizer(true, true),
                with(json!({"add_bos_token": false})),
                none(),
            ),
            vec![11],
        ),
        (
            "add_bos_token true",
            files(
                small_tokenizer(false, true),
                with(json!({"add_bos_token": true})),
                none(),
            ),
            vec![11],
        ),
        (
            "many ends",
            files(
                small_tokenizer(false, true),
                named.clone(),
                json!({"eos_token_id": [12, 11, 14, 15]}),
            ),
            vec![11, 12, 14, 15],
        ),
        (
            "declared tokens",
            files(
                small_tokenizer(true, true),
                with(
                    json!({"added_tokens_decoder": {"16": {"content": "<y>", "special": true}}, "eos_token": "<z>"}),
                ),
                none(),
            ),
            vec![11, 17],
        ),
        (
            "sampling",
            files(
                small_tokenizer(true, true),
                named.clone(),
                json!({"do_sample": true, "temperature": 0.5, "top_k": 20, "top_p": 0.75, "min_p": 0.25,
                       "typical_p": 0.5, "repetition_penalty": 1.25, "presence_penalty": 0.5, "frequency_penalty": 0.25}),
            ),
            vec![11],
        ),
        (
            "greedy",
            files(
                small_tokenizer(true, true),
                named.clone(),
                json!({"do_sample": false, "repetition_penalty": 1.25}),
            ),
            vec![11],
        ),
        (
            "templates with names",
            files(
                small_tokenizer(true, true),
                with(json!({"chat_template": listed})),
                none(),
            ),
            vec![11],
        ),
    ]
}
