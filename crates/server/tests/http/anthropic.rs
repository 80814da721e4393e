//! Messages.

use serde_json::{Value, json};

use crate::shared;

const MESSAGES: &str = "/v1/messages";

fn body() -> Value {
    json!({"model": "demo", "max_tokens": 40, "temperature": 0,
           "messages": [{"role": "user", "content": "What is 7 plus 5?"}]})
}

#[test]
fn a_message_and_its_stream() {
    let message = shared().ask(MESSAGES, &body());
    assert_eq!(message["type"], "message");
    assert_eq!(
        message["content"],
        json!([{"type": "text", "text": "7 plus 5 is 12."}])
    );
    assert_eq!(message["stop_reason"], "end_turn");
    assert_eq!(message["stop_sequence"], Value::Null);
    let usage = &message["usage"];
    assert!(usage["input_tokens"].as_u64().unwrap() > 0);

    let reply = shared().post(MESSAGES, &crate::with(body(), json!({"stream": true})));
    let events = reply.events();
    let names: Vec<&str> = events
        .iter()
        .map(|(name, _)| name.as_deref().unwrap())
        .collect();
    assert_eq!(names[..3], ["message_start", "ping", "content_block_start"]);
    assert_eq!(
        names[names.len() - 3..],
        ["content_block_stop", "message_delta", "message_stop"]
    );
    let data = |i: usize| serde_json::from_str::<Value>(&events[i].1).unwrap();
    let text: String = (0..events.len())
        .filter_map(|i| data(i)["delta"]["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(text, "7 plus 5 is 12.");
    for (i, name) in names.iter().enumerate() {
        assert_eq!(data(i)["type"], *name);
    }
    let last = data(events.len() - 2);
    assert_eq!(last["delta"]["stop_reason"], "end_turn");
    assert_eq!(last["usage"]["output_tokens"], usage["output_tokens"]);
}

#[test]
fn stop_sequences_are_named() {
    let stopped = crate::with(body(), json!({"stop_sequences": ["zebra", " is", " is 1"]}));
    let message = shared().ask(MESSAGES, &stopped);
    assert_eq!(message["stop_reason"], "stop_sequence");
    assert_eq!(message["stop_sequence"], " is");
    assert_eq!(message["content"][0]["text"], "7 plus 5");
    let cut = shared().ask(MESSAGES, &crate::with(body(), json!({"max_tokens": 2})));
    assert_eq!(cut["stop_reason"], "max_tokens");
}

#[test]
fn systems_and_blocks_are_counted_as_they_are_read() {
    let blocks = json!({"model": "demo", "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]});
    let plain = json!({"model": "demo", "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]});
    let count = |body: &Value| {
        shared().ask("/v1/messages/count_tokens", body)["input_tokens"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(count(&blocks), count(&plain));
    let template = json!({"messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
    ]});
    let tokens = shared().ask("/apply-template", &template)["tokens"].clone();
    assert_eq!(count(&plain), tokens.as_array().unwrap().len() as u64);
}

#[test]
fn errors_have_this_shape() {
    let reply = shared().post(MESSAGES, &json!({"model": "demo", "messages": []}));
    assert_eq!(reply.status, 400);
    let error = reply.json();
    assert_eq!(error["type"], "error");
    assert_eq!(error["error"]["type"], "invalid_request_error");
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("max_tokens"),
        "{error}"
    );
    let reply = shared().post(MESSAGES, &crate::with(body(), json!({"model": "claude"})));
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json()["error"]["type"], "not_found_error");
    for (fields, words) in [
        (
            json!({"messages": [{"role": "wizard", "content": "x"}]}),
            "user, assistant or system",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "audio", "source": {}}]}]}),
            "reads text and images",
        ),
        (
            json!({"output_config": {"format": {"type": "xml"}}}),
            "output_config.format.type",
        ),
        (
            json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
            "runs no tools",
        ),
        (json!({"temperature": 1.5}), "from 0 to 1"),
    ] {
        let reply = shared().post(MESSAGES, &crate::with(body(), fields));
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert!(reply.body.contains(words), "{}", reply.body);
    }
}

#[test]
fn forms_are_kept_and_thinking_is_left_to_the_template() {
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
                        "additionalProperties": false});
    let fields = json!({
        "output_config": {"format": {"type": "json_schema", "schema": schema}, "effort": "low"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    });
    let message = shared().ask(MESSAGES, &crate::with(body(), fields));
    let text = message["content"][0]["text"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(text).unwrap()["ok"].is_boolean());
}

#[test]
fn functions_are_used() {
    let tool = json!({"name": "lamp", "description": "Switches it.", "input_schema": {
        "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
        "additionalProperties": false,
    }});
    let ask =
        json!({"tools": [tool], "tool_choice": {"type": "any", "disable_parallel_tool_use": true}});
    let message = shared().ask(
        MESSAGES,
        &crate::with(crate::with(body(), ask.clone()), json!({"max_tokens": 200})),
    );
    assert_eq!(message["stop_reason"], "tool_use", "{message}");
    let block = &message["content"][0];
    assert_eq!(
        (&block["type"], &block["name"]),
        (&json!("tool_use"), &json!("lamp"))
    );
    assert!(block["input"]["on"].is_boolean());
    assert!(block["id"].as_str().unwrap().starts_with("toolu_"));

    let stream = crate::with(
        crate::with(body(), ask.clone()),
        json!({"max_tokens": 200, "stream": true}),
    );
    let events = shared().post(MESSAGES, &stream).events();
    let partial: String = events
        .iter()
        .filter_map(|(_, data)| {
            let data: Value = serde_json::from_str(data).unwrap();
            data["delta"]["partial_json"].as_str().map(str::to_owned)
        })
        .collect();
    assert_eq!(
        serde_json::from_str::<Value>(&partial).unwrap(),
        block["input"]
    );

    // The result goes back, and the model answers.
    let mut next = crate::with(
        body(),
        json!({"tools": [tool], "tool_choice": {"type": "none"}}),
    );
    let messages = next["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": message["content"]}));
    messages.push(json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "done"},
    ]}));
    let answer = shared().ask(MESSAGES, &next);
    assert_ne!(answer["stop_reason"], "tool_use");
}
