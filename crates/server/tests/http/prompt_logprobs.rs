//! Log-probabilities of the prompt: vLLM's `prompt_logprobs`, and `echo` with `logprobs`.

use millrace_runtime::sampling::log_softmax;
use millrace_runtime::{BatchItem, CpuEngine, Engine, LogitsFor};
use serde_json::{Value, json};

use crate::engines::model;
use crate::{engine_options, question, shared, with};

/// For each token but the first: its log-probability and its rank, computed with the engine directly.
fn expected(tokens: &[u32]) -> Vec<(f64, usize)> {
    let mut engine = CpuEngine::new(model(), engine_options()).unwrap();
    let seq = engine.create().unwrap();
    let item = BatchItem::new(seq, tokens, LogitsFor::All);
    let output = engine.compute(&[item]).unwrap();
    let rows = output.logits(0).chunks_exact(output.vocab_size());
    rows.zip(&tokens[1..])
        .map(|(row, token)| {
            let own = row[*token as usize];
            let rank = 1 + row.iter().filter(|logit| **logit > own).count();
            (log_softmax(row)(*token), rank)
        })
        .collect()
}

fn tokens_of(text: &str) -> Vec<u32> {
    let body = json!({"content": text, "add_special": true});
    let tokens = shared().ask("/tokenize", &body)["tokens"].clone();
    serde_json::from_value(tokens).unwrap()
}

/// Compares vLLM's list with the engine's results.
fn check(found: &Value, tokens: &[u32], n_top: usize) {
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), tokens.len());
    assert_eq!(found[0], Value::Null);
    for ((entry, token), (logprob, rank)) in
        found[1..].iter().zip(&tokens[1..]).zip(expected(tokens))
    {
        let own = &entry[token.to_string()];
        assert!(
            (own["logprob"].as_f64().unwrap() - logprob).abs() < 1e-9,
            "{own}"
        );
        assert_eq!(own["rank"], rank, "{own}");
        assert!(own["decoded_token"].is_string());
        let entries = entry.as_object().unwrap();
        assert_eq!(entries.len(), n_top + usize::from(rank > n_top), "{entry}");
        let mut ranks: Vec<u64> = entries
            .values()
            .filter_map(|entry| entry["rank"].as_u64())
            .collect();
        ranks.sort_unstable();
        assert_eq!(
            ranks[..n_top],
            Vec::from_iter(1..=n_top as u64)[..],
            "{entry}"
        );
    }
}

#[test]
fn prompts_have_log_probabilities() {
    // A prompt of more tokens than a pass, sent twice, so that the cache has it.
    let long = "The dog and the cat went to the house. ".repeat(20);
    let prompts = ["Once upon a time there was", long.as_str(), long.as_str()];
    for (n_top, max_tokens) in [(0, 1), (2, 4), (2, 0)] {
        for prompt in prompts {
            let body = json!({
                "model": "demo", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
                "prompt_logprobs": n_top, "n": 2,
            });
            let answer = shared().ask("/v1/completions", &body);
            let tokens = tokens_of(prompt);
            for choice in answer["choices"].as_array().unwrap() {
                check(&choice["prompt_logprobs"], &tokens, n_top);
                assert_eq!(choice["logprobs"], Value::Null);
                assert_eq!(choice["finish_reason"], "length");
                assert_eq!(choice["text"] == "", max_tokens == 0);
            }
            assert_eq!(answer["usage"]["completion_tokens"], 2 * max_tokens);
            assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
        }
    }
    // The answer is the same as without.
    let body = json!({"model": "demo", "prompt": prompts[0], "max_tokens": 8, "temperature": 0});
    let alone = shared().ask("/v1/completions", &body)["choices"][0]["text"].clone();
    let body = with(body, json!({"prompt_logprobs": 1}));
    assert_eq!(
        shared().ask("/v1/completions", &body)["choices"][0]["text"],
        alone
    );
}

#[test]
fn conversations_have_them_beside_their_choices() {
    let body = with(
        question("What is 7 plus 5?"),
        json!({"prompt_logprobs": 1, "max_tokens": 3}),
    );
    let rendered = shared().ask("/apply-template", &body);
    let tokens: Vec<u32> = serde_json::from_value(rendered["tokens"].clone()).unwrap();
    let answer = shared().ask("/v1/chat/completions", &body);
    check(&answer["prompt_logprobs"], &tokens, 1);
    let plain = shared().ask("/v1/chat/completions", &question("What is 7 plus 5?"));
    assert_eq!(plain.get("prompt_logprobs"), None);
}

#[test]
fn repeated_prompts_have_those_of_both() {
    let prompts = ["Once upon a time", "What is"];
    for max_tokens in [0, 3] {
        let body = json!({
            "model": "demo", "prompt": prompts, "max_tokens": max_tokens, "temperature": 0, "n": 2,
            "echo": true, "logprobs": 1,
        });
        let whole = shared().ask("/v1/completions", &body)["choices"].clone();
        let chunks = shared()
            .post("/v1/completions", &with(body, json!({"stream": true})))
            .chunks();
        for index in 0..4 {
            let choice = &whole[index];
            let prompt = prompts[index / 2];
            let text = choice["text"].as_str().unwrap();
            assert!(text.starts_with(prompt), "{text}");
            let tokens = tokens_of(prompt);
            let lists = &choice["logprobs"];
            let logprobs = lists["token_logprobs"].as_array().unwrap();
            assert_eq!(logprobs.len(), tokens.len() + max_tokens);
            assert_eq!(logprobs[0], Value::Null);
            assert_eq!(lists["top_logprobs"][0], Value::Null);
            for (found, (logprob, _)) in logprobs[1..].iter().zip(expected(&tokens)) {
                assert!((found.as_f64().unwrap() - logprob).abs() < 1e-9);
            }
            assert_eq!(lists["top_logprobs"][1].as_object().unwrap().len(), 1);
            let texts: Vec<String> = serde_json::from_value(lists["tokens"].clone()).unwrap();
            assert!(texts.concat().ends_with(text), "{texts:?}");
            let mut offset = 0;
            for (text, found) in texts.iter().zip(lists["text_offset"].as_array().unwrap()) {
                assert_eq!(*found, offset);
                offset += text.chars().count();
            }
            // In a stream, the pieces add up to the same lists.
            let of_choice: Vec<&Value> = chunks
                .iter()
                .map(|chunk| &chunk["choices"][0])
                .filter(|choice| choice["index"] == index)
                .collect();
            let streamed = of_choice
                .iter()
                .filter_map(|choice| choice["text"].as_str());
            assert_eq!(streamed.collect::<String>(), text);
            for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
                let pieces = of_choice
                    .iter()
                    .filter_map(|choice| choice["logprobs"][list].as_array());
                let joined: Vec<Value> = pieces.flatten().cloned().collect();
                assert_eq!(Value::Array(joined), lists[list], "{list}");
            }
        }
    }
}

#[test]
fn each_list_has_as_many_as_were_asked_for() {
    let body = json!({"model": "demo", "prompt": "Once upon a time", "max_tokens": 2, "temperature": 0, "echo": true,
                      "logprobs": 1, "prompt_logprobs": 3});
    let choice = shared().ask("/v1/completions", &body)["choices"][0].clone();
    let n_listed = |value: &Value| value.as_object().unwrap().len();
    let top = choice["logprobs"]["top_logprobs"].as_array().unwrap();
    assert!(top[1..].iter().all(|one| n_listed(one) == 1), "{choice}");
    let own = choice["prompt_logprobs"].as_array().unwrap();
    assert!(own[1..].iter().all(|one| n_listed(one) >= 3), "{choice}");
}

#[test]
fn what_cannot_be_told_is_refused() {
    for (route, body) in [
        ("/v1/completions", json!({"model": "demo", "prompt": "x"})),
        ("/v1/chat/completions", question("x")),
    ] {
        for fields in [
            json!({"prompt_logprobs": 1, "stream": true}),
            json!({"prompt_logprobs": 21}),
            json!({"prompt_logprobs": -1}),
            json!({"prompt_logprobs": "all"}),
        ] {
            let reply = shared().post(route, &with(body.clone(), fields));
            assert_eq!(reply.status, 400, "{}", reply.body);
            assert_eq!(
                reply.json()["error"]["param"],
                "prompt_logprobs",
                "{}",
                reply.body
            );
        }
        // `null` counts as not requested.
        let reply = shared().post(
            route,
            &with(body, json!({"prompt_logprobs": null, "max_tokens": 1})),
        );
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
}
