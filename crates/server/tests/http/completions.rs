//! Completions, tokens, templates, models.

use serde_json::{Value, json};

use crate::shared;

#[test]
fn text_goes_on() {
    let body =
        json!({"model": "demo", "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0});
    let answer = shared().ask("/v1/completions", &body);
    let text = answer["choices"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with(", there was"), "{text}");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 12);

    let mut stream = body.clone();
    stream["stream"] = true.into();
    let chunks = shared().post("/v1/completions", &stream).chunks();
    let parts = chunks
        .iter()
        .map(|chunk| chunk["choices"][0]["text"].as_str().unwrap());
    assert_eq!(parts.collect::<String>(), text);

    // The default is 16 tokens, as in OpenAI's API.
    let mut short = body;
    short.as_object_mut().unwrap().remove("max_tokens");
    let answer = shared().ask("/v1/completions", &short);
    assert_eq!(answer["usage"]["completion_tokens"], 16);
}

#[test]
fn several_prompts_have_their_places() {
    let prompts = ["Once upon a time", "What is", "The dog"];
    let ask = |prompt: Value, stream: bool| {
        let body = json!({
            "model": "demo", "prompt": prompt, "max_tokens": 6, "temperature": 0, "n": 2, "stream": stream,
        });
        let reply = shared().post("/v1/completions", &body);
        let choices: Vec<Value> = match stream {
            true => reply
                .chunks()
                .iter()
                .map(|chunk| chunk["choices"][0].clone())
                .collect(),
            false => reply.json()["choices"].as_array().unwrap().clone(),
        };
        let mut texts = vec![String::new(); 6];
        for choice in choices {
            texts[choice["index"].as_u64().unwrap() as usize] += choice["text"].as_str().unwrap();
        }
        texts
    };
    let together = ask(json!(prompts), false);
    assert_eq!(together, ask(json!(prompts), true));
    for (i, prompt) in prompts.iter().enumerate() {
        let alone = ask(json!(prompt), false);
        assert_eq!(alone[..2], together[2 * i..2 * i + 2]);
        assert_eq!(alone[0], alone[1], "greedy answers are equal");
    }
    // Token ids are accepted as prompts.
    let tokenized = shared().ask(
        "/tokenize",
        &json!({"content": prompts[0], "add_special": true}),
    );
    assert_eq!(ask(tokenized["tokens"].clone(), false)[0], together[0]);
    // Repeated, they are their text, without the token that begins one.
    let body =
        json!({"model": "demo", "prompt": tokenized["tokens"], "max_tokens": 0, "echo": true});
    let echoed = shared().ask("/v1/completions", &body);
    assert_eq!(echoed["choices"][0]["text"], prompts[0]);
}

#[test]
fn logprobs_have_offsets() {
    let body = json!({
        "model": "demo", "prompt": "Once upon a time", "max_tokens": 5, "temperature": 0, "logprobs": 2,
    });
    let choice = shared().ask("/v1/completions", &body)["choices"][0].clone();
    let logprobs = &choice["logprobs"];
    let tokens: Vec<String> = serde_json::from_value(logprobs["tokens"].clone()).unwrap();
    let offsets: Vec<usize> = serde_json::from_value(logprobs["text_offset"].clone()).unwrap();
    assert_eq!(tokens.concat(), choice["text"].as_str().unwrap());
    assert_eq!(offsets[1], tokens[0].chars().count());
    assert_eq!(logprobs["top_logprobs"][0].as_object().unwrap().len(), 2);
    assert_eq!(logprobs["token_logprobs"].as_array().unwrap().len(), 5);
}

#[test]
fn what_is_not_supported_is_refused() {
    for (fields, param) in [
        // The demo was not trained for infill.
        (json!({"suffix": "x"}), "suffix"),
        (json!({"best_of": 3, "stream": true}), "best_of"),
        (json!({"n": 3, "best_of": 2}), "best_of"),
        (json!({"prompt": {"x": 1}}), "prompt"),
        (json!({"prompt": []}), "prompt"),
        (json!({"prompt": [1, -1]}), "prompt"),
    ] {
        let body = crate::with(json!({"model": "demo", "prompt": "x"}), fields);
        let reply = shared().post("/v1/completions", &body);
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert_eq!(reply.json()["error"]["param"], param, "{}", reply.body);
    }
    let reply = shared().post(
        "/v1/completions",
        &json!({"model": "demo", "prompt": [99999999]}),
    );
    assert_eq!(reply.status, 400);
}

#[test]
fn tokens_go_there_and_back() {
    let text = "Once upon a time <|user|> was — ü";
    let tokens = shared().ask("/tokenize", &json!({"content": text, "with_pieces": true}));
    assert!(tokens["count"].as_u64().unwrap() > 8);
    let ids: Vec<Value> = tokens["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token["id"].clone())
        .collect();
    let back = shared().ask("/detokenize", &json!({"tokens": ids}));
    assert_eq!(back["content"], text);
    // Control tokens in a user's text are plain text unless requested.
    let control = shared().ask(
        "/tokenize",
        &json!({"content": "<|user|>", "parse_special": true}),
    );
    assert_eq!(control["count"], 1);
    let rendered = shared().ask(
        "/apply-template",
        &json!({"messages": [{"role": "user", "content": "<|end|>"}]}),
    );
    let prompt = rendered["prompt"].as_str().unwrap();
    assert!(
        prompt.ends_with("<|user|><|end|><|end|><|assistant|>"),
        "{prompt}"
    );
    let n_ends = rendered["tokens"].as_array().unwrap().iter();
    let end = shared().ask(
        "/tokenize",
        &json!({"content": "<|end|>", "parse_special": true}),
    );
    assert_eq!(n_ends.filter(|id| **id == end["tokens"][0]).count(), 1);
}

#[test]
fn models_are_listed() {
    let list = shared().get("/v1/models").json();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0]["id"], "demo");
    assert_eq!(list["data"][0]["status"], "ready");
    let one = shared().get("/v1/models/demo").json();
    assert_eq!(one["max_model_len"], 1024);
    assert_eq!(shared().get("/v1/models/other").status, 404);
    assert_eq!(shared().get("/v1/nothing").status, 404);
    assert_eq!(shared().get("/v1/completions").status, 405);
}
