//! Schemas of functions that say more than a grammar can.

use serde_json::{Value, json};

use crate::client::Reply;
use crate::{question, shared, with};

const CHAT: &str = "/v1/chat/completions";

fn function(name: &str, property: &Value, strict: bool) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "d", "strict": strict, "parameters": {
        "type": "object", "properties": {"x": property}, "required": ["x"], "additionalProperties": false}}})
}

fn ask(tools: Value) -> Reply {
    let body = json!({"tools": tools, "max_tokens": 2});
    shared().post(CHAT, &with(question("hi"), body))
}

/// The schema of an argument, and the keyword that the grammar leaves out.
fn cases() -> Vec<(Value, &'static str)> {
    vec![
        (
            json!({"type": "object", "propertyNames": {"maxLength": 3}}),
            "propertyNames",
        ),
        (json!({"type": "string", "pattern": "^(?!a)"}), "pattern"),
        (json!({"type": "array", "uniqueItems": true}), "uniqueItems"),
        (json!({"not": {}}), "not"),
        (
            json!({"type": "object", "if": {"minProperties": 2}, "then": {"required": ["b"]}}),
            "if",
        ),
        (
            json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            "oneOf",
        ),
        (json!({"type": "string", "format": "phone"}), "format"),
        (json!({"$ref": "https://example.org/a.json"}), "$ref"),
        (json!({"type": "any"}), "type"),
        (
            json!({"type": "object", "unevaluatedProperties": false}),
            "unevaluatedProperties",
        ),
    ]
}

#[test]
fn what_only_narrows_is_left_out_and_told() {
    for (schema, keyword) in cases() {
        let reply = ask(json!([
            function("odd", &schema, false),
            function("fine", &json!({}), false)
        ]));
        assert_eq!(reply.status, 200, "{schema}: {}", reply.body);
        let told = format!("tools[0].function.parameters (odd): `{keyword}` at /properties/x");
        assert_eq!(reply.header("x-millrace-left-out"), Some(told.as_str()));
        // A function that may not be called is not constrained.
        let body = json!({"tools": [function("odd", &schema, true)], "tool_choice": "none", "max_tokens": 2});
        let reply = shared().post(CHAT, &with(question("hi"), body));
        assert_eq!(
            (reply.status, reply.header("x-millrace-left-out")),
            (200, None)
        );
    }
}

#[test]
fn strict_functions_are_held_whole_or_refused_by_name() {
    for (schema, keyword) in cases() {
        let reply = ask(json!([
            function("fine", &json!({}), true),
            function("odd", &schema, true)
        ]));
        assert_eq!(reply.status, 400, "{schema}: {}", reply.body);
        let error = reply.json()["error"].clone();
        assert_eq!(error["param"], "tools[1].function.parameters");
        let message = error["message"].as_str().unwrap();
        let words = format!("`odd` is strict, and the grammar cannot hold `{keyword}`");
        assert!(message.contains(&words), "{message}");
    }
    let fine = json!({"type": "string", "description": "d", "x-own": 1, "default": "a"});
    assert_eq!(ask(json!([function("fine", &fine, true)])).status, 200);
}

#[test]
fn forms_are_still_refused_by_name() {
    for (schema, words) in [
        (
            json!({"type": "object", "propertyNames": {"maxLength": 3}}),
            "`propertyNames`",
        ),
        (
            json!({"properties": {"a": {"type": "string", "format": "phone"}}}),
            "`format` at /properties/a",
        ),
        (
            json!({"type": "array", "uniqueItems": true}),
            "`uniqueItems`",
        ),
    ] {
        let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
        for tools in [Value::Null, json!([function("f", &json!({}), false)])] {
            let body = json!({"response_format": format, "tools": tools});
            let reply = shared().post(CHAT, &with(question("hi"), body));
            let error = reply.json()["error"].clone();
            assert_eq!(
                (reply.status, &error["param"]),
                (400, &json!("response_format.json_schema.schema"))
            );
            let message = error["message"].as_str().unwrap();
            assert!(
                message.contains("the grammar cannot hold") && message.contains(words),
                "{message}"
            );
        }
    }
}

/// A grammar can enforce each keyword alone, but not all of them together.
#[test]
fn a_schema_that_fails_whole_is_any_object() {
    let nothing = json!({"allOf": [{"type": "string"}, {"type": "integer"}]});
    let reply = ask(json!([
        function("fine", &json!({}), false),
        function("odd", &nothing, false)
    ]));
    assert_eq!(reply.status, 200, "{}", reply.body);
    let told = reply.header("x-millrace-left-out").unwrap();
    assert!(
        told.starts_with("tools[1].function.parameters (odd): all of it"),
        "{told}"
    );
    assert!(!told.contains("tail") && !told.contains("call_"), "{told}");
    let reply = ask(json!([function("odd", &nothing, true)]));
    assert_eq!(reply.status, 400);
    let message = reply.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains("`odd` is strict") && !message.contains("tail"),
        "{message}"
    );
}

#[test]
fn arguments_are_held_to_what_remains() {
    let schema = json!({"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": true, "minItems": 1, "maxItems": 2});
    let body = json!({"tools": [function("odd", &schema, false)], "tool_choice": "required", "max_tokens": 200,
                      "parallel_tool_calls": false, "temperature": 2});
    for seed in 0..4 {
        let body = with(question("hi"), with(body.clone(), json!({"seed": seed})));
        let answer = shared().ask(CHAT, &body);
        let call = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        let list = arguments["x"].as_array().unwrap();
        assert!((1..=2).contains(&list.len()), "{arguments}");
        assert!(
            list.iter().all(|item| item == "a" || item == "b"),
            "{arguments}"
        );
    }
}

#[test]
fn many_described_functions_fit() {
    let long = "What this parameter is about, in a sentence or two as authors write. ".repeat(2);
    let properties: Value = (0..8)
        .map(|i| {
            (
                format!("p{i}"),
                json!({"type": "string", "description": long}),
            )
        })
        .collect::<serde_json::Map<_, _>>()
        .into();
    let tool = |i: usize| {
        json!({"name": format!("mcp__plugin_with_a_long_name__tool_with_a_long_name_of_its_own_number_{i}"),
               "input_schema": {"type": "object", "properties": properties}})
    };
    let tools: Vec<Value> = (0..100).map(tool).collect();
    let body = json!({"model": "demo", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}], "tools": tools});
    let reply = shared().post("/v1/messages", &body);
    // The only possible refusal is about the prompt that describes them.
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("prompt is too long"), "{}", reply.body);
    let one = with(
        body,
        json!({"tools": [tool(0)], "tool_choice": {"type": "none"}}),
    );
    assert_eq!(shared().post("/v1/messages", &one).status, 200);
}

/// Calls of two functions with the same name could not be distinguished.
#[test]
fn two_functions_of_one_name_are_refused_by_name() {
    let schema = json!({"type": "object", "properties": {}});
    let openai = function("lamp", &json!({}), false);
    let of_response = json!({"type": "function", "name": "lamp", "parameters": schema});
    let custom = json!({"type": "custom", "name": "lamp"});
    let anthropic = |name: &str| json!({"name": name, "input_schema": schema});
    let space = |names: [&str; 2]| {
        let inner = names.map(|name| json!({"type": "function", "name": name}));
        json!({"type": "namespace", "name": "home", "tools": inner})
    };
    let messages = json!([{"role": "user", "content": "hi"}]);
    let ask = |path: &str, tools: &Value| {
        let fields = json!({"model": "demo", "max_tokens": 2, "max_output_tokens": 2, "stream": false, "tools": tools});
        let asked = match path {
            "/v1/responses" => json!({"input": messages}),
            _ => json!({"messages": messages}),
        };
        shared().post(path, &with(fields, asked))
    };
    for (path, tools, place) in [
        (CHAT, json!([openai, openai]), "tools[1].function.name"),
        (
            "/api/chat",
            json!([openai, openai]),
            "tools[1].function.name",
        ),
        (
            "/v1/responses",
            json!([of_response, custom]),
            "tools[1].name",
        ),
        (
            "/v1/responses",
            json!([space(["lamp", "lamp"])]),
            "tools[0].tools[1].name",
        ),
        (
            "/v1/messages",
            json!(["lamp", "door", "lamp"].map(anthropic)),
            "tools[2].name",
        ),
    ] {
        let reply = ask(path, &tools);
        assert_eq!(reply.status, 400, "{path}: {}", reply.body);
        for words in [place, "another function is named `", "lamp` too"] {
            assert!(reply.body.contains(words), "{path}: {}", reply.body);
        }
    }
    // The same name in a namespace and outside it is two functions.
    let reply = ask(
        "/v1/responses",
        &json!([of_response, space(["lamp", "door"])]),
    );
    assert_eq!(reply.status, 200, "{}", reply.body);
}
