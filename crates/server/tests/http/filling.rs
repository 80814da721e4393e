//! Infill between two texts: the demo with tokens renamed as in code models.

use serde_json::{Value, json};

use crate::Running;
use crate::native::{demo_bytes, rename, serve};

fn tokens(server: &Running, text: &str, special: bool) -> Vec<Value> {
    let body = json!({"content": text, "parse_special": special});
    server.ask("/tokenize", &body)["tokens"]
        .as_array()
        .unwrap()
        .clone()
}

/// All infill routes give the same text as the family's prompt given as tokens.
fn assert_filled(server: &Running, order: &[&str]) {
    let (before, behind) = ("The dog went to", "and ran home.");
    let bos = json!({"content": "", "add_special": true});
    let mut prompt = server.ask("/tokenize", &bos)["tokens"]
        .as_array()
        .unwrap()
        .clone();
    for part in order {
        match *part {
            "before" => prompt.extend(tokens(server, before, false)),
            "behind" => prompt.extend(tokens(server, behind, false)),
            mark => {
                let mark = tokens(server, mark, true);
                assert_eq!(mark.len(), 1, "{part} is a token");
                prompt.extend(mark);
            }
        }
    }
    let n_prompt = prompt.len();
    let plain = json!({"model": "demo", "prompt": prompt, "max_tokens": 12, "temperature": 0});
    let plain = server.ask("/v1/completions", &plain);
    let expected = &plain["choices"][0]["text"];
    assert_ne!(expected, "");
    let filled = json!({"model": "demo", "prompt": before, "suffix": behind, "max_tokens": 12, "temperature": 0});
    let filled = server.ask("/v1/completions", &filled);
    assert_eq!(
        (&filled["choices"][0]["text"], &filled["usage"]),
        (expected, &plain["usage"])
    );
    for (prefix, prompt) in [(before, ""), ("The dog ", "went to")] {
        let body = json!({"input_prefix": prefix, "prompt": prompt, "input_suffix": behind, "n_predict": 12, "temperature": 0});
        let infilled = server.ask("/infill", &body);
        assert_eq!(
            (&infilled["content"], &infilled["tokens_evaluated"]),
            (expected, &json!(n_prompt))
        );
    }
    let body = json!({"input_prefix": before, "input_suffix": behind, "n_predict": 12, "temperature": 0,
                      "input_extra": [{"filename": "a.txt", "text": "A cat."}]});
    let beside = server.ask("/infill", &body);
    // Another file is text in front, on lines of its own.
    let joined = format!("A cat.\n{before}");
    let joined =
        json!({"input_prefix": joined, "input_suffix": behind, "n_predict": 12, "temperature": 0});
    let joined = server.ask("/infill", &joined);
    assert!(joined["tokens_evaluated"].as_u64() > Some(n_prompt as u64));
    for name in ["content", "tokens_evaluated"] {
        assert_eq!(beside[name], joined[name], "{name}");
    }
    let body = json!({"model": "demo", "prompt": before, "suffix": behind, "stream": false,
                      "options": {"num_predict": 12, "temperature": 0}});
    let ollama = server.ask("/api/generate", &body);
    assert_eq!(
        (&ollama["response"], &ollama["prompt_eval_count"]),
        (expected, &json!(n_prompt))
    );
}

#[test]
fn a_gap_is_filled_as_qwen_coder_was_taught() {
    let mut bytes = demo_bytes();
    let names = [
        ("<|reserved_0|>", "<|fim_prefix|>"),
        ("<|reserved_1|>", "<|fim_suffix|>"),
        ("<|reserved_2|>", "<|fim_middle|>"),
    ];
    rename(&mut bytes, &names, "<|reserved_5|>");
    let order = [
        "<|fim_prefix|>",
        "before",
        "<|fim_suffix|>",
        "behind",
        "<|fim_middle|>",
    ];
    assert_filled(&serve(&bytes), &order);
}

#[test]
fn a_gap_is_filled_as_codestral_was_taught() {
    let mut bytes = demo_bytes();
    let names = [
        ("<|reserved_0|>", "[SUFFIX]"),
        ("<|reserved_1|>", "[PREFIX]"),
    ];
    rename(&mut bytes, &names, "<|reserved_5|>");
    assert_filled(
        &serve(&bytes),
        &["[SUFFIX]", "behind", "[PREFIX]", "before"],
    );
}

#[test]
fn models_that_were_not_taught_say_so() {
    let body = json!({"model": "demo", "prompt": "a", "suffix": "b"});
    for (path, param) in [("/v1/completions", "suffix"), ("/api/generate", "suffix")] {
        let reply = crate::shared().post(path, &body);
        assert_eq!(reply.status, 400, "{path}");
        assert!(
            reply
                .body
                .contains(&format!("{param}: this model's vocabulary")),
            "{}",
            reply.body
        );
    }
}
