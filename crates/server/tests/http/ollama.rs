//! Ollama's API.

use serde_json::{Value, json};

use crate::shared;

fn lines(body: &str) -> Vec<Value> {
    body.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn chat() -> Value {
    json!({"model": "demo:latest", "options": {"temperature": 0},
           "messages": [{"role": "user", "content": "What is 7 plus 5?"}]})
}

#[test]
fn chats_stream_unless_told_otherwise() {
    let reply = shared().post("/api/chat", &chat());
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    let parts = lines(&reply.body);
    let text: String = parts
        .iter()
        .map(|part| part["message"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(text, "7 plus 5 is 12.");
    let (last, others) = parts.split_last().unwrap();
    assert!(others.iter().all(|part| part["done"] == false) && others.len() > 3);
    assert_eq!(
        (&last["done"], &last["done_reason"]),
        (&json!(true), &json!("stop"))
    );
    assert!(last["eval_count"].as_u64().unwrap() > 4);
    assert!(last["total_duration"].as_u64().unwrap() >= last["eval_duration"].as_u64().unwrap());

    let whole = shared().ask("/api/chat", &crate::with(chat(), json!({"stream": false})));
    assert_eq!(
        whole["message"],
        json!({"role": "assistant", "content": "7 plus 5 is 12."})
    );
    assert_eq!(whole["model"], "demo:latest");
}

#[test]
fn generate_takes_a_template_or_none() {
    let body = json!({"model": "demo", "prompt": "What is 7 plus 5?", "stream": false, "options": {"temperature": 0}});
    assert_eq!(
        shared().ask("/api/generate", &body)["response"],
        "7 plus 5 is 12."
    );
    let raw = json!({"model": "demo", "prompt": "Once upon a time", "raw": true, "stream": false,
                     "options": {"temperature": 0, "num_predict": 3}});
    let answer = shared().ask("/api/generate", &raw);
    assert!(
        answer["response"].as_str().unwrap().starts_with(", there"),
        "{answer}"
    );
    assert_eq!(answer["done_reason"], "length");
    // An empty prompt loads the model.
    let load = shared().ask("/api/generate", &json!({"model": "demo"}));
    assert_eq!(
        (&load["done"], &load["done_reason"]),
        (&json!(true), &json!("load"))
    );
}

#[test]
fn forms_are_kept() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 99, "minimum": 0}},
                        "required": ["n"], "additionalProperties": false});
    let body = crate::with(chat(), json!({"stream": false, "format": schema}));
    let text = shared().ask("/api/chat", &body)["message"]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert!((0..100).contains(&value["n"].as_i64().unwrap()));
}

#[test]
fn functions_are_called() {
    let tool = json!({"type": "function", "function": {"name": "lamp", "parameters": {
        "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
        "additionalProperties": false,
    }}});
    let body = crate::with(
        chat(),
        json!({"stream": false, "tools": [tool], "tool_choice": "required",
                                          "parallel_tool_calls": false}),
    );
    let message = shared().ask("/api/chat", &body)["message"].clone();
    let call = &message["tool_calls"][0]["function"];
    assert_eq!(call["name"], "lamp");
    assert!(call["arguments"]["on"].is_boolean(), "{message}");
}

#[test]
fn models_are_described() {
    let tags = shared().get("/api/tags").json();
    assert_eq!(tags["models"][0]["name"], "demo");
    assert_eq!(tags["models"][0]["digest"].as_str().unwrap().len(), 64);
    assert_eq!(
        shared().get("/api/ps").json()["models"][0]["context_length"],
        1024
    );
    assert!(shared().get("/api/version").json()["version"].is_string());
    let show = shared().ask("/api/show", &json!({"model": "demo"}));
    assert_eq!(show["model_info"]["llama.context_length"], 512);
    assert_eq!(show["details"]["format"], "gguf");
}

#[test]
fn what_is_kept_for_no_time_is_unloaded() {
    let server = crate::Running::start(crate::options());
    let status = || server.get("/v1/models/demo").json()["status"].clone();
    for nothing in [json!(0), json!("0s"), json!("0")] {
        let body = json!({"model": "demo", "keep_alive": nothing});
        let gone = server.ask("/api/generate", &body);
        assert_eq!(
            (&gone["done"], &gone["done_reason"]),
            (&json!(true), &json!("unload"))
        );
        assert_eq!(status(), "unloaded", "{body}");
        let body = json!({"model": "demo:latest", "messages": [], "keep_alive": "5m"});
        let back = server.ask("/api/chat", &body);
        assert_eq!(back["done_reason"], "load");
        assert_eq!(status(), "ready");
    }
    for (body, status, words) in [
        (
            json!({"model": "demo", "keep_alive": "soon"}),
            400,
            "keep_alive: expected seconds",
        ),
        (
            json!({"model": "demo", "keep_alive": []}),
            400,
            "keep_alive: expected seconds",
        ),
        (json!({"model": "other", "keep_alive": 0}), 404, "other"),
    ] {
        let reply = server.post("/api/generate", &body);
        assert_eq!(reply.status, status, "{}", reply.body);
        assert!(reply.body.contains(words), "{}", reply.body);
    }
}

#[test]
fn errors_have_this_shape() {
    let reply = shared().post("/api/chat", &json!({"model": "other", "messages": []}));
    assert_eq!(reply.status, 404);
    assert!(reply.json()["error"].as_str().unwrap().contains("other"));
    let body = crate::with(chat(), json!({"options": {"temperature": "hot"}}));
    let reply = shared().post("/api/chat", &body);
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("options.temperature"), "{}", reply.body);
}
