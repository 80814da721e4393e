//! Responses.

use serde_json::{Value, json};

use crate::{shared, with};

const RESPONSES: &str = "/v1/responses";

fn body() -> Value {
    json!({"model": "demo", "temperature": 0, "input": "What is 7 plus 5?"})
}

#[test]
fn a_response_and_its_stream() {
    let response = shared().ask(RESPONSES, &body());
    assert_eq!(
        (&response["object"], &response["status"]),
        (&json!("response"), &json!("completed"))
    );
    let item = &response["output"][0];
    assert_eq!(item["content"][0]["text"], "7 plus 5 is 12.");
    assert!(response["usage"]["output_tokens"].as_u64().unwrap() > 4);

    let events = shared()
        .post(RESPONSES, &with(body(), json!({"stream": true})))
        .events();
    let data: Vec<Value> = events
        .iter()
        .map(|(_, data)| serde_json::from_str(data).unwrap())
        .collect();
    for (i, (event, (name, _))) in data.iter().zip(&events).enumerate() {
        assert_eq!(event["type"], *name.as_ref().unwrap());
        assert_eq!(event["sequence_number"], i);
    }
    let kinds: Vec<&str> = data
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds[..4],
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added"
        ]
    );
    assert_eq!(
        kinds[kinds.len() - 4..],
        [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed"
        ]
    );
    let text: String = data
        .iter()
        .filter_map(|event| event["delta"].as_str())
        .collect();
    assert_eq!(text, "7 plus 5 is 12.");
    let last = &data.last().unwrap()["response"];
    assert_eq!(last["output"][0]["content"], item["content"]);
}

#[test]
fn a_conversation_with_calls_is_understood() {
    let chat = shared().ask(
        "/apply-template",
        &json!({"messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Light!"},
            {"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
                "function": {"name": "lamp", "arguments": "{\"on\": true}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "done"},
        ]}),
    );
    let response = shared().ask(RESPONSES, &json!({
        "model": "demo", "temperature": 0, "instructions": "Be brief.", "max_output_tokens": 2, "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Light!"}]},
            {"type": "function_call", "call_id": "a", "name": "lamp", "arguments": "{\"on\": true}"},
            {"type": "function_call_output", "call_id": "a", "output": "done"},
        ],
    }));
    let n_tokens = chat["tokens"].as_array().unwrap().len();
    assert_eq!(response["usage"]["input_tokens"], n_tokens);
    assert_eq!(response["status"], "incomplete");
    assert_eq!(
        response["incomplete_details"]["reason"],
        "max_output_tokens"
    );
}

#[test]
fn functions_are_called() {
    let ask = with(
        body(),
        json!({"tool_choice": "required", "parallel_tool_calls": false, "tools": [{
        "type": "function", "name": "lamp", "parameters": {
            "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
            "additionalProperties": false}}]}),
    );
    let response = shared().ask(RESPONSES, &ask);
    let call = &response["output"][0];
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("function_call"), &json!("lamp"))
    );
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["on"].is_boolean());
    let events = shared()
        .post(RESPONSES, &with(ask, json!({"stream": true})))
        .events();
    let done = events
        .iter()
        .find(|(name, _)| name.as_deref() == Some("response.function_call_arguments.done"));
    let done: Value = serde_json::from_str(&done.unwrap().1).unwrap();
    assert_eq!(done["arguments"], call["arguments"]);
    let deltas = events
        .iter()
        .filter(|(name, _)| name.as_deref() == Some("response.function_call_arguments.delta"))
        .map(|(_, data)| serde_json::from_str::<Value>(data).unwrap());
    let deltas: Vec<String> = deltas
        .map(|event| event["delta"].as_str().unwrap().to_owned())
        .collect();
    assert!(deltas.len() > 1, "{deltas:?}");
    assert_eq!(deltas.concat(), call["arguments"].as_str().unwrap());
}

#[test]
fn forms_and_refusals() {
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
                        "additionalProperties": false});
    let ask = with(
        body(),
        json!({"text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}}),
    );
    let response = shared().ask(RESPONSES, &ask);
    let text = response["output"][0]["content"][0]["text"]
        .as_str()
        .unwrap();
    assert!(serde_json::from_str::<Value>(text).unwrap()["ok"].is_boolean());
    for (fields, param) in [
        (
            json!({"previous_response_id": "resp_1"}),
            "previous_response_id",
        ),
        (json!({"input": 5}), "input"),
        (json!({"input": []}), "input"),
        (
            json!({"input": [{"role": "wizard", "content": "x"}]}),
            "input[0].role",
        ),
        (
            json!({"input": [{"type": "item_reference", "id": "x"}]}),
            "input[0].type",
        ),
    ] {
        let reply = shared().post(RESPONSES, &with(body(), fields));
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert_eq!(reply.json()["error"]["param"], param, "{}", reply.body);
    }
}
