//! Numbers in the forms that clients send: -1, nulls, and token ids.

use serde_json::{Value, json};

use crate::{question, shared, with};

const CHAT: &str = "/v1/chat/completions";

/// A request whose answers differ unless they have the same seed.
fn hot(fields: Value) -> Value {
    let hot = json!({"temperature": 5, "top_p": 1, "min_p": 0, "top_k": -1, "max_tokens": 8});
    with(with(question("hi"), hot), fields)
}

fn texts(answer: &Value) -> Vec<String> {
    let choices = answer["choices"].as_array().unwrap();
    let text = |choice: &Value| choice["message"]["content"].as_str().unwrap().to_owned();
    choices.iter().map(text).collect()
}

#[test]
fn a_seed_of_minus_one_is_another_each_time() {
    let ask = |seed: Value| texts(&shared().ask(CHAT, &hot(json!({"seed": seed, "n": 2}))));
    for seed in [json!(-1), json!(-1.0), Value::Null] {
        let (first, second) = (ask(seed.clone()), ask(seed));
        assert_ne!(first, second);
        assert_ne!(first[0], first[1]);
    }
    for seed in [json!(-2), json!(7), json!(u64::MAX)] {
        assert_eq!(ask(seed.clone()), ask(seed));
    }
    let generate = |seed: i64| {
        let options = json!({"temperature": 5, "top_p": 1, "min_p": 0, "top_k": 0, "num_predict": 8, "seed": seed});
        let body = json!({"model": "demo", "prompt": "hi", "stream": false, "options": options});
        shared().ask("/api/generate", &body)["response"].clone()
    };
    assert_ne!(generate(-1), generate(-1));
    assert_eq!(generate(3), generate(3));
}

#[test]
fn minus_one_is_no_limit() {
    let whole = texts(&shared().ask(CHAT, &question("What is 7 plus 5?")));
    for fields in [
        json!({"max_tokens": -1}),
        json!({"max_completion_tokens": -1}),
        json!({"max_tokens": -1.0}),
        json!({"max_tokens": null, "n": null, "stop": null, "stream": null, "tools": null, "tool_choice": null,
               "logit_bias": null, "top_p": null, "seed": null, "response_format": null, "logprobs": null,
               "stop_token_ids": null, "chat_template_kwargs": null, "parallel_tool_calls": null}),
        json!({"top_p": 0}),
        json!({"top_k": 0, "min_p": 0}),
    ] {
        let answer = shared().ask(CHAT, &with(question("What is 7 plus 5?"), fields.clone()));
        assert_eq!(texts(&answer), whole, "{fields}");
    }
    let prompt =
        json!({"model": "demo", "temperature": 0, "prompt": "Once upon a time", "stop": "Ben"});
    let count = |max_tokens: Value| {
        let body = with(prompt.clone(), json!({"max_tokens": max_tokens}));
        let answer = shared().ask("/v1/completions", &body);
        answer["usage"]["completion_tokens"].as_u64().unwrap()
    };
    assert_eq!(count(Value::Null), 16);
    assert!(count(json!(-1)) > 16);
}

#[test]
fn minus_one_is_no_limit_of_other_apis() {
    for (path, fields) in [
        (
            "/v1/responses",
            json!({"input": "hi", "max_output_tokens": -1}),
        ),
        (
            "/v1/messages",
            json!({"max_tokens": -1, "top_k": -1, "messages": [{"role": "user", "content": "hi"}]}),
        ),
        (
            "/api/generate",
            json!({"prompt": "hi", "stream": false, "options": {"num_predict": -1, "top_k": -1, "top_p": 0}}),
        ),
        (
            "/api/generate",
            json!({"prompt": "hi", "stream": false, "options": {"num_predict": -2, "top_k": 0, "seed": null}}),
        ),
        (
            "/api/generate",
            json!({"prompt": "hi", "stream": false, "options": {"num_predict": 4.0}}),
        ),
        ("/api/generate", json!({"keep_alive": "1h30m"})),
        ("/api/generate", json!({"keep_alive": "-1"})),
        ("/api/generate", json!({"keep_alive": "-1m"})),
        ("/api/generate", json!({"keep_alive": -1})),
        ("/api/generate", json!({"keep_alive": 300})),
        ("/api/generate", json!({"keep_alive": null})),
    ] {
        let reply = shared().post(path, &with(json!({"model": "demo"}), fields.clone()));
        assert_eq!(reply.status, 200, "{path} {fields}: {}", reply.body);
    }
}

/// Token ids as clients without integers write them, behind a byte order mark as PowerShell writes it.
#[test]
fn token_ids_may_be_written_as_floats() {
    let fields = |prompt: Value| json!({"model": "demo", "temperature": 0, "max_tokens": 6, "prompt": prompt});
    let text = |reply: Value| reply["choices"][0]["text"].clone();
    let expected = text(shared().ask("/v1/completions", &fields(json!([65, 1000]))));
    for prompt in [json!([65.0, 1e3]), json!([[65.0, 1000]])] {
        let marked = format!("\u{feff}{}", fields(prompt));
        let headers = [("content-type", "application/json")];
        let reply = shared().request("POST", "/v1/completions", &headers, marked.as_bytes());
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(text(reply.json()), expected);
    }
    let reply = shared().post("/v1/completions", &fields(json!([65, true])));
    assert_eq!(reply.status, 400);
    assert!(
        reply.body.contains("a whole number in place 1"),
        "{}",
        reply.body
    );
}

#[test]
fn numbers_that_make_no_sense_are_refused_by_name() {
    for (field, value) in [
        ("max_tokens", json!(-3)),
        ("max_tokens", json!(1.5)),
        ("seed", json!(0.5)),
        ("n", json!(-1)),
    ] {
        let reply = shared().post(CHAT, &with(question("hi"), json!({field: value})));
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!(field))
        );
    }
}

/// None reaches the step that all requests share.
#[test]
fn tokens_that_the_vocabulary_lacks_are_refused() {
    let faults = || shared().get("/v1/system").json()["models"][0]["counters"].clone();
    let before = faults();
    for id in [2048, 999_999, u64::from(u32::MAX), 1 << 32, u64::MAX] {
        for (path, fields, param) in [
            ("/v1/completions", json!({"prompt": [65, id]}), "prompt"),
            ("/v1/completions", json!({"prompt": [[65], [id]]}), "prompt"),
            ("/v1/completions", json!({"prompt": ["hi", [id]]}), "prompt"),
            (
                "/v1/completions",
                json!({"prompt": "hi", "logit_bias": {id.to_string(): 1}}),
                "logit_bias.",
            ),
            (
                "/v1/completions",
                json!({"prompt": "hi", "stop_token_ids": [id]}),
                "stop_token_ids",
            ),
            (
                CHAT,
                json!({"messages": [{"role": "user", "content": "hi"}], "stop_token_ids": [id]}),
                "stop_token_ids",
            ),
            ("/v1/embeddings", json!({"input": [65, id]}), "input"),
            ("/v1/embeddings", json!({"input": [[65], [id]]}), "input"),
            ("/detokenize", json!({"tokens": [65, id]}), "tokens"),
        ] {
            let reply = shared().post(
                path,
                &with(json!({"model": "demo", "max_tokens": 2}), fields.clone()),
            );
            assert_eq!(reply.status, 400, "{path} {fields}: {}", reply.body);
            let error = reply.json()["error"].clone();
            assert!(
                error["param"].as_str().unwrap().starts_with(param),
                "{path} {fields}: {error}"
            );
        }
    }
    for (path, fields) in [
        ("/v1/completions", json!({"prompt": [-1]})),
        ("/v1/completions", json!({"prompt": [1.5]})),
        (
            "/v1/completions",
            json!({"prompt": "hi", "stop_token_ids": 5}),
        ),
        (
            "/v1/completions",
            json!({"prompt": "hi", "stop_token_ids": vec![1; 129]}),
        ),
        ("/detokenize", json!({"tokens": ["x"]})),
    ] {
        let reply = shared().post(path, &with(json!({"model": "demo"}), fields.clone()));
        assert_eq!(reply.status, 400, "{path} {fields}: {}", reply.body);
    }
    assert_eq!(faults()["failed"], before["failed"]);
}

#[test]
fn a_token_can_end_an_answer() {
    let tokens =
        shared().ask("/tokenize", &json!({"content": "7 plus 5 is 12."}))["tokens"].clone();
    let third = &tokens[2];
    let answer = shared().ask(
        CHAT,
        &with(
            question("What is 7 plus 5?"),
            json!({"stop_token_ids": [third]}),
        ),
    );
    let text = &texts(&answer)[0];
    assert!(
        "7 plus 5 is 12.".starts_with(text.as_str()) && text.len() < 8,
        "{text}"
    );
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}
