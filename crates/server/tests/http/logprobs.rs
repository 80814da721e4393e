//! Log-probabilities in every dialect equal those of chat completions.

use serde_json::{Value, json};

use crate::{question, shared, with};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const QUESTION: &str = "What is 7 plus 5?";
const INCLUDE: &str = "message.output_text.logprobs";

/// Log-probabilities of chat completions, which other tests compare with the engine's.
fn of_chat() -> Vec<Value> {
    let body = with(
        question(QUESTION),
        json!({"logprobs": true, "top_logprobs": 3}),
    );
    let answer = shared().ask(CHAT, &body);
    let content = &answer["choices"][0]["logprobs"]["content"];
    let content = content.as_array().unwrap().clone();
    assert!(content.len() > 4 && content[0]["top_logprobs"].as_array().unwrap().len() == 3);
    content
}

fn list(value: &Value) -> Vec<Value> {
    value
        .as_array()
        .unwrap_or_else(|| panic!("no list: {value}"))
        .clone()
}

#[test]
fn responses_have_those_of_chat() {
    let body = json!({"model": "demo", "temperature": 0, "input": QUESTION, "include": [INCLUDE], "top_logprobs": 3});
    let response = shared().ask(RESPONSES, &body);
    assert_eq!(response["top_logprobs"], 3);
    assert_eq!(
        list(&response["output"][0]["content"][0]["logprobs"]),
        of_chat()
    );
    let events = shared()
        .post(RESPONSES, &with(body.clone(), json!({"stream": true})))
        .events();
    let mut told = Vec::new();
    for (name, data) in &events {
        let data: Value = serde_json::from_str(data).unwrap();
        match name.as_deref().unwrap() {
            "response.output_text.delta" => told.extend(list(&data["logprobs"])),
            "response.output_text.done" => {
                // The token that ends the answer has no text, and is reported here.
                let all = list(&data["logprobs"]);
                assert_eq!(all[..told.len()], told);
                assert_eq!(all, of_chat());
            }
            "response.content_part.done" => assert_eq!(list(&data["part"]["logprobs"]), of_chat()),
            "response.completed" => {
                let part = &data["response"]["output"][0]["content"][0];
                assert_eq!(list(&part["logprobs"]), of_chat());
            }
            _ => {}
        }
    }
    assert!(told.len() + 1 >= of_chat().len(), "{told:?}");
    // Without a request for them there are none, and invalid values are refused.
    let plain = shared().ask(
        RESPONSES,
        &json!({"model": "demo", "temperature": 0, "input": QUESTION}),
    );
    assert!(plain["output"][0]["content"][0].get("logprobs").is_none());
    for (fields, param) in [
        (json!({"include": []}), "top_logprobs"),
        (
            json!({"include": ["message.output_text.probs"]}),
            "include[0]",
        ),
        (json!({"top_logprobs": 21}), "top_logprobs"),
    ] {
        let reply = shared().post(RESPONSES, &with(body.clone(), fields));
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!(param))
        );
    }
    // Encrypted thoughts are null here, although every agent requests them.
    let agent = with(
        body,
        json!({"include": ["reasoning.encrypted_content"], "top_logprobs": 0}),
    );
    assert_eq!(shared().post(RESPONSES, &agent).status, 200);
}

#[test]
fn ollama_has_those_of_chat() {
    // A possible beginning of a stop text is held back, and its tokens with it.
    let options = json!({"temperature": 0, "stop": [" isn't"]});
    let body = json!({"model": "demo", "options": options, "logprobs": true, "top_logprobs": 3});
    for (path, fields) in [
        (
            "/api/chat",
            json!({"messages": [{"role": "user", "content": QUESTION}]}),
        ),
        ("/api/generate", json!({"prompt": QUESTION})),
    ] {
        let body = with(body.clone(), fields);
        let whole = shared().ask(path, &with(body.clone(), json!({"stream": false})));
        assert_eq!(list(&whole["logprobs"]), of_chat(), "{path}");
        let stream = shared().post(path, &body);
        let lines = stream
            .body
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let told: Vec<Value> = lines
            .filter_map(|line| line.get("logprobs").map(list))
            .flatten()
            .collect();
        assert_eq!(told, of_chat(), "{path}");
        let reply = shared().post(path, &with(body, json!({"logprobs": false})));
        assert_eq!(reply.status, 400);
        assert!(
            reply.json()["error"]
                .as_str()
                .unwrap()
                .starts_with("top_logprobs:")
        );
    }
}

#[test]
fn llama_cpps_completions_have_those_of_chat() {
    let messages = json!({"messages": [{"role": "user", "content": QUESTION}]});
    let prompt = shared().ask("/apply-template", &messages)["tokens"].clone();
    // A possible beginning of a stop text is held back, and its tokens with it.
    let body = json!({"prompt": prompt, "temperature": 0, "n_probs": 3, "return_tokens": true, "stop": [" isn't"]});
    let whole = shared().ask("/completion", &body);
    let without_ids = |list: &Value| -> Vec<Value> {
        let mut list = self::list(list);
        for token in &mut list {
            token.as_object_mut().unwrap().remove("id").unwrap();
            for top in token["top_logprobs"].as_array_mut().unwrap() {
                top.as_object_mut().unwrap().remove("id").unwrap();
            }
        }
        list
    };
    let probabilities = &whole["completion_probabilities"];
    assert_eq!(without_ids(probabilities), of_chat());
    let ids: Vec<Value> = list(probabilities)
        .iter()
        .map(|token| token["id"].clone())
        .collect();
    assert_eq!(list(&whole["tokens"]), ids);
    let stream = shared().post("/completion", &with(body.clone(), json!({"stream": true})));
    let chunks = stream.events().into_iter();
    let chunks = chunks.map(|(_, data)| serde_json::from_str::<Value>(&data).unwrap());
    let chunks: Vec<Value> = chunks.collect();
    let all = |name: &str| -> Vec<Value> {
        let found = chunks.iter().filter_map(|chunk| chunk.get(name));
        found.flat_map(list).collect()
    };
    let told = json!(all("completion_probabilities"));
    assert_eq!(&told, probabilities);
    assert_eq!(all("tokens"), ids);
    let plain = shared().ask(
        "/completion",
        &with(body.clone(), json!({"n_probs": 0, "return_tokens": false})),
    );
    assert!(plain.get("completion_probabilities").is_none() && plain["tokens"] == json!([]));
    for (fields, param) in [
        (json!({"n_probs": 21}), "n_probs"),
        (json!({"post_sampling_probs": true}), "post_sampling_probs"),
        (json!({"n_cmpl": 2}), "n_cmpl"),
    ] {
        let reply = shared().post("/completion", &with(body.clone(), fields));
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!(param))
        );
    }
}
