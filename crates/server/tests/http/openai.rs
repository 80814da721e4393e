//! Chat completions.

use serde_json::{Value, json};

use crate::{question, shared, with};

const CHAT: &str = "/v1/chat/completions";

/// The joined contents of a stream for each answer, with the finish reasons.
fn collected(chunks: &[Value]) -> Vec<(String, Option<String>)> {
    let mut answers: Vec<(String, Option<String>)> = Vec::new();
    for choice in chunks
        .iter()
        .flat_map(|chunk| chunk["choices"].as_array().unwrap())
    {
        let index = choice["index"].as_u64().unwrap() as usize;
        answers.resize(answers.len().max(index + 1), Default::default());
        answers[index].0 += choice["delta"]["content"].as_str().unwrap_or_default();
        if let Some(reason) = choice["finish_reason"].as_str() {
            assert!(answers[index].1.is_none(), "two reasons");
            answers[index].1 = Some(reason.to_owned());
        }
    }
    answers
}

#[test]
fn an_answer_with_its_usage() {
    let answer = shared().ask(CHAT, &question("What is 7 plus 5?"));
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "demo");
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["content"], "7 plus 5 is 12.");
    assert_eq!(choice["message"]["role"], "assistant");
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(choice["logprobs"], Value::Null);
    let usage = &answer["usage"];
    let sum =
        usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"].as_u64().unwrap(), sum);
    assert!(usage.get("placement").is_none());
}

#[test]
fn a_stream_says_the_same() {
    let body = with(
        question("What is 7 plus 5?"),
        json!({"stream": true, "stream_options": {"include_usage": true}}),
    );
    let chunks = shared().post(CHAT, &body).chunks();
    assert_eq!(
        collected(&chunks),
        [("7 plus 5 is 12.".into(), Some("stop".into()))]
    );
    assert_eq!(
        chunks[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    let (last, others) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert!(last["usage"]["prompt_tokens"].as_u64().unwrap() > 5);
    assert!(others.iter().all(|chunk| chunk["usage"].is_null()));
    assert!(others.len() > 4, "it came in one piece");
}

/// Other servers refuse these fields, and clients send them anyway: they change no answer here.
#[test]
fn fields_that_say_nothing_are_left_alone() {
    for fields in [
        json!({"stream_options": {"include_usage": true}}),
        json!({"stream": false, "stream_options": {"include_usage": false}}),
        json!({"stop": ""}),
        json!({"stop": []}),
        json!({"stop": ["", ""]}),
    ] {
        let answer = shared().ask(CHAT, &with(question("What is 7 plus 5?"), fields.clone()));
        let choice = &answer["choices"][0];
        assert_eq!(choice["message"]["content"], "7 plus 5 is 12.", "{fields}");
        assert_eq!(choice["finish_reason"], "stop", "{fields}");
        // A whole answer has its usage, asked for or not.
        assert!(
            answer["usage"]["completion_tokens"].as_u64() > Some(5),
            "{fields}"
        );
    }
}

#[test]
fn limits_and_stops_end_with_their_true_reasons() {
    let ask = |fields: Value| shared().ask(CHAT, &with(question("What is 7 plus 5?"), fields));
    let choice = |fields| ask(fields)["choices"][0].clone();
    let cut = choice(json!({"max_tokens": 3}));
    assert_eq!(cut["finish_reason"], "length");
    let newer = choice(json!({"max_tokens": 100, "max_completion_tokens": 3}));
    assert_eq!(newer["message"], cut["message"]);
    for stop in [json!(" is"), json!(["zebra", " is"])] {
        let stopped = choice(json!({"stop": stop}));
        assert_eq!(stopped["message"]["content"], "7 plus 5");
        assert_eq!(stopped["finish_reason"], "stop");
    }
    assert_eq!(
        ask(json!({"max_tokens": 3}))["usage"]["completion_tokens"],
        3
    );
}

#[test]
fn seeds_repeat_and_several_answers_differ() {
    let body = with(
        question("Tell me a story."),
        json!({"temperature": 1.5, "seed": 7, "n": 3, "max_tokens": 24, "top_p": 1, "min_p": 0, "top_k": 0}),
    );
    let texts = |answer: Value| -> Vec<String> {
        let choices = answer["choices"].as_array().unwrap().clone();
        let text = |choice: Value| choice["message"]["content"].as_str().unwrap().to_owned();
        choices.into_iter().map(text).collect()
    };
    let first = texts(shared().ask(CHAT, &body));
    assert_eq!(first.len(), 3);
    assert!(first[0] != first[1] && first[1] != first[2]);
    assert_eq!(first, texts(shared().ask(CHAT, &body)));
    let streamed = shared()
        .post(CHAT, &with(body.clone(), json!({"stream": true})))
        .chunks();
    let streamed: Vec<String> = collected(&streamed)
        .into_iter()
        .map(|(text, _)| text)
        .collect();
    assert_eq!(first, streamed);
    let other = with(body, json!({"seed": 8}));
    assert_ne!(first, texts(shared().ask(CHAT, &other)));
}

#[test]
fn logprobs_are_those_of_the_tokens() {
    let body = with(
        question("What is 7 plus 5?"),
        json!({"logprobs": true, "top_logprobs": 3}),
    );
    let answer = shared().ask(CHAT, &body);
    let content = answer["choices"][0]["logprobs"]["content"]
        .as_array()
        .unwrap()
        .clone();
    let text: String = content
        .iter()
        .map(|token| token["token"].as_str().unwrap())
        .collect();
    assert_eq!(text, "7 plus 5 is 12.");
    for token in &content {
        let logprob = token["logprob"].as_f64().unwrap();
        assert!(logprob <= 0.0);
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        // With greedy sampling, the drawn token is the likeliest.
        assert_eq!(
            (&top[0]["token"], &top[0]["logprob"]),
            (&token["token"], &token["logprob"])
        );
        assert!(top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64());
        let bytes: Vec<u8> = serde_json::from_value(token["bytes"].clone()).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            token["token"].as_str().unwrap()
        );
    }
    // In a stream they arrive with the chunks.
    let chunks = shared()
        .post(CHAT, &with(body, json!({"stream": true})))
        .chunks();
    let streamed: Vec<Value> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(streamed, content);
}

#[test]
fn biases_and_penalties_reach_the_sampler() {
    let ask = |fields: Value| {
        let answer = shared().ask(CHAT, &with(question("What is 7 plus 5?"), fields));
        answer["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let token = |text: &str| {
        let tokens = shared().ask("/tokenize", &json!({"content": text}))["tokens"].clone();
        assert_eq!(tokens.as_array().unwrap().len(), 1, "{text}");
        tokens[0].to_string()
    };
    let banned = ask(json!({"logit_bias": {token("7"): -100}}));
    assert!(!banned.contains('7'), "{banned}");
    let chosen = ask(json!({"logit_bias": {token("7"): 100}, "max_tokens": 4}));
    assert_eq!(chosen, "7777");
    // Each 7 makes the next one less likely, until another token is likelier.
    let biased = json!({"logit_bias": {token("7"): 40}, "max_tokens": 30});
    assert_eq!(ask(biased.clone()), "7".repeat(30));
    let penalties = json!({"frequency_penalty": 2, "presence_penalty": 2});
    let chosen = ask(with(biased, penalties));
    assert!(
        chosen.starts_with("777") && chosen != "7".repeat(30),
        "{chosen}"
    );
}

#[test]
fn parts_and_developers_are_understood() {
    let plain = shared().ask(CHAT, &question("What is 7 plus 5?"));
    let parts = json!({"model": "demo", "temperature": 0, "messages": [{"role": "user", "content": [
        {"type": "text", "text": "What is 7 "}, {"type": "text", "text": "plus 5?"},
    ]}]});
    let answer = shared().ask(CHAT, &parts);
    assert_eq!(answer["choices"], plain["choices"]);
    let prompt = |role: &str| {
        let messages =
            json!([{"role": role, "content": "Be brief."}, {"role": "user", "content": "Hi"}]);
        shared().ask("/apply-template", &json!({"messages": messages}))["prompt"].clone()
    };
    assert_eq!(prompt("developer"), prompt("system"));
}

/// Sends these fields, and expects an error that names one of them with these words.
fn assert_refused(fields: &Value, status: u16, (param, words): (&str, &str)) {
    let reply = shared().post(CHAT, &with(question("Hi"), fields.clone()));
    let error = &reply.json()["error"];
    assert_eq!(reply.status, status, "{fields}: {error}");
    assert_eq!(error["param"], param, "{fields}: {error}");
    assert!(
        error["message"].as_str().unwrap().contains(words),
        "{error}"
    );
    assert!(error["type"].is_string() && error.get("code").is_some());
}

#[test]
fn wrong_messages_are_told_which_field() {
    for (fields, status, param, words) in [
        (json!({"model": null}), 400, "model", "required"),
        (
            json!({"model": "gpt-9"}),
            404,
            "model",
            "this server has: demo",
        ),
        (
            json!({"messages": "hi"}),
            400,
            "messages",
            "expected a list",
        ),
        (json!({"messages": []}), 400, "messages", "at least one"),
        (
            json!({"messages": [{"role": "wizard", "content": "x"}]}),
            400,
            "messages[0].role",
            "wizard",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]}),
            400,
            "messages",
            "no vision encoder",
        ),
    ] {
        assert_refused(&fields, status, (param, words));
    }
}

#[test]
fn wrong_options_are_told_which_field() {
    for (fields, status, param, words) in [
        (
            json!({"temperature": "hot"}),
            400,
            "temperature",
            "a number from 0 to 100, found \"hot\"",
        ),
        (json!({"top_p": 2}), 400, "top_p", "from 0 to 1"),
        (json!({"n": 0}), 400, "n", "from 1 to 32"),
        (json!({"stop": [1]}), 400, "stop", "list of strings"),
        (
            json!({"logit_bias": {"99999999": 1}}),
            400,
            "logit_bias.99999999",
            "id of a token",
        ),
        (
            json!({"top_logprobs": 3}),
            400,
            "top_logprobs",
            "logprobs must be true",
        ),
        (json!({"functions": [{}]}), 400, "functions", "use tools"),
        (
            json!({"response_format": {"type": "xml"}}),
            400,
            "response_format.type",
            "json_schema",
        ),
        (
            json!({"tool_choice": "required"}),
            400,
            "tool_choice",
            "tools is empty",
        ),
    ] {
        assert_refused(&fields, status, (param, words));
    }
    // Fields without effect are ignored.
    let body = with(
        question("Hi"),
        json!({"user": "me", "store": true, "metadata": {}, "x": [1]}),
    );
    shared().ask(CHAT, &body);
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_with_the_numbers() {
    let reply = shared().post(CHAT, &question(&"Ben went to the lake. ".repeat(400)));
    assert_eq!(reply.status, 400);
    let error = &reply.json()["error"];
    assert_eq!(error["code"], "context_length_exceeded");
    assert!(
        error["message"].as_str().unwrap().contains("1024 tokens"),
        "{error}"
    );
}

#[test]
fn progress_and_placement_are_told_if_asked() {
    let long = "Ben went to the lake with a dog. ".repeat(20);
    let body = with(
        question(&long),
        json!({"stream": true, "return_progress": true, "max_tokens": 2, "placement": true,
               "stream_options": {"include_usage": true}}),
    );
    let chunks = shared().post(CHAT, &body).chunks();
    let progress: Vec<u64> = chunks
        .iter()
        .filter_map(|chunk| chunk["prompt_progress"]["processed"].as_u64())
        .collect();
    assert!(progress.len() >= 2 && progress.is_sorted(), "{progress:?}");
    let usage = &chunks.last().unwrap()["usage"];
    assert_eq!(
        usage["prompt_tokens"].as_u64().unwrap(),
        *progress.last().unwrap()
    );
    let placement = &usage["placement"];
    assert!(placement["device"].as_str().unwrap().starts_with("cpu ("));
    assert_eq!(placement["host_time"], "measured");
    assert!(placement["host_ms"].as_f64().unwrap() > 0.0);
    assert!(placement.get("device_ms").is_none());
}

#[test]
fn the_second_turn_finds_the_first_cached() {
    let mut body = question(&"Hugo went to the river with a cat. ".repeat(12));
    let first = shared().ask(CHAT, &body);
    let n_first = first["usage"]["prompt_tokens"].as_u64().unwrap();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(first["choices"][0]["message"].clone());
    messages.push(json!({"role": "user", "content": "And then?"}));
    let second = shared().ask(CHAT, &body);
    let n_cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap();
    assert!(n_cached + 64 >= n_first, "{n_cached} of {n_first}");
}
