//! Samplers by the names that clients of llama.cpp's server, Ollama and vLLM send.

use serde_json::{Value, json};

use crate::{shared, with};

/// A story with these fields, requested through completions and through Ollama's options.
fn stories(fields: &Value) -> [String; 2] {
    let base = json!({"temperature": 0.9, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 5});
    let fields = with(base, fields.clone());
    let body = json!({"model": "demo", "prompt": "Once upon a time", "max_tokens": 40});
    let completion = shared().ask("/v1/completions", &with(body, fields.clone()));
    let body = json!({
        "model": "demo", "prompt": "Once upon a time", "raw": true, "stream": false,
        "options": with(fields, json!({"num_predict": 40})),
    });
    let generated = shared().ask("/api/generate", &body);
    let texts = [&completion["choices"][0]["text"], &generated["response"]];
    texts.map(|text| text.as_str().unwrap().to_owned())
}

#[test]
fn each_has_an_effect_in_every_dialect() {
    let plain = stories(&json!({}));
    assert_eq!(plain[0], plain[1]);
    for fields in [
        json!({"top_n_sigma": 0.01}),
        json!({"xtc_probability": 1, "xtc_threshold": 0.05}),
        json!({"dynatemp_range": 0.9, "dynatemp_exponent": 2}),
        json!({"dry_multiplier": 50, "dry_base": 2, "dry_allowed_length": 0, "dry_penalty_last_n": -1}),
        json!({"mirostat": 2, "mirostat_tau": 0.5, "mirostat_eta": 0.5}),
        json!({"repeat_penalty": 3, "repeat_last_n": -1}),
        json!({"typ_p": 0.2}),
        json!({"typical_p": 0.2}),
        json!({"repetition_penalty": 3, "repeat_last_n": -1}),
        json!({"presence_penalty": 2}),
        json!({"banned_strings": ["e"]}),
        json!({"logit_bias": [["the", false], [" the", false], [300, 50]]}),
        json!({"samplers": ["top_k", "temperature"], "top_k": 1}),
    ] {
        let told = stories(&fields);
        assert_eq!(told[0], told[1], "{fields}");
        assert_ne!(told[0], plain[0], "{fields}");
    }
    for fields in [
        json!({"top_n_sigma": -1, "xtc_probability": 0, "dynatemp_range": 0, "dry_multiplier": 0, "mirostat": 0,
               "mirostat_tau": 3, "typ_p": 1, "repeat_penalty": 1, "adaptive_target": -1, "min_keep": 0}),
        // Disabled by its window, or missing from the order.
        json!({"dry_multiplier": 50, "dry_penalty_last_n": 0}),
        json!({"repeat_penalty": 3, "repeat_last_n": 0}),
        json!({"xtc_probability": 1, "samplers": "edskypmt"}),
    ] {
        assert_eq!(stories(&fields), plain, "{fields}");
    }
}

#[test]
fn the_order_is_the_requests() {
    let greedy = stories(&json!({"temperature": 0}));
    let hot = |samplers: Value| {
        stories(
            &json!({"temperature": 50, "top_k": 1, "samplers": samplers, "xtc_probability": 1, "xtc_threshold": 0}),
        )
    };
    assert_eq!(hot(json!(["top_k"])), greedy);
    assert_eq!(hot(json!("kt")), greedy);
    assert_eq!(hot(json!("top_k;xtc")), greedy);
    assert_ne!(hot(json!(["xtc", "top_k"])), greedy);
}

#[test]
fn banned_texts_are_not_written() {
    for name in ["banned_strings", "bad_words"] {
        let greedy = json!({"temperature": 0});
        let plain = stories(&greedy);
        assert!(plain[0].contains(" there was"), "{plain:?}");
        let told = stories(&with(greedy, json!({name: ["here", "wa"]})));
        let is_clean = |text: &String| !text.contains("here") && !text.contains("wa");
        assert!(told.iter().all(is_clean), "{told:?}");
    }
}

/// Sends these fields to two APIs, and expects an error that begins with these words.
fn assert_refused(fields: &Value, named: &str) {
    let body = json!({"model": "demo", "prompt": "hi", "max_tokens": 1});
    let reply = shared().post("/v1/completions", &with(body, fields.clone()));
    let message = reply.json()["error"]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert_eq!(reply.status, 400, "{fields}");
    assert!(message.starts_with(named), "{message}");
    let body = json!({"model": "demo", "prompt": "hi", "options": fields});
    let reply = shared().post("/api/generate", &body);
    let message = reply.json()["error"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert_eq!(reply.status, 400, "{body}");
    assert!(
        message.starts_with(&format!("options.{named}")),
        "{message}"
    );
}

#[test]
fn values_that_make_no_sense_are_refused_by_name() {
    for (fields, named) in [
        (
            json!({"mirostat": 1}),
            "mirostat: expected 0 (off) or 2, found 1",
        ),
        (
            json!({"xtc_probability": 1.5}),
            "xtc_probability: expected a number from 0 to 1",
        ),
        (
            json!({"dry_base": 0.5}),
            "dry_base: expected a number from 1",
        ),
        (
            json!({"dry_sequence_breakers": [1]}),
            "dry_sequence_breakers: expected a string or a list",
        ),
        (
            json!({"samplers": ["top_k", "hot"]}),
            "samplers: there is no sampler `hot`",
        ),
        (
            json!({"samplers": ["top_k", "top_p", "topk"]}),
            "samplers: top_k stands there twice",
        ),
        (
            json!({"samplers": 3}),
            "samplers: expected a list of samplers' names",
        ),
        (
            json!({"adaptive_target": 0.5}),
            "adaptive_target: this server does not have it",
        ),
        (
            json!({"min_keep": 2}),
            "min_keep: this server does not have it",
        ),
        (
            json!({"logit_bias": [[1]]}),
            "logit_bias[0]: expected a token and its bias",
        ),
        (
            json!({"logit_bias": [[99_999_999, 1]]}),
            "logit_bias[0]: expected the id of a token",
        ),
        (
            json!({"logit_bias": {"5": true}}),
            "logit_bias.5: expected a number from -100",
        ),
        (
            json!({"banned_strings": "x".repeat(300)}),
            "banned_strings: at most 64 texts",
        ),
    ] {
        assert_refused(&fields, named);
    }
}
