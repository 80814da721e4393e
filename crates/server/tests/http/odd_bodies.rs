//! Malformed bodies: each is answered at once in the dialect's form, and affects no other request.

use std::time::{Duration, Instant};

use millrace_testkit::sample;
use serde_json::{Value, json};

use crate::{shared, with};

/// Extracts the message of a dialect's error, in addition to its status.
type ErrorOf = fn(&Value) -> Option<&str>;

const OPENAI: ErrorOf = |body| {
    body["error"]["type"]
        .as_str()
        .and(body["error"]["message"].as_str())
};
const ANTHROPIC: ErrorOf = |body| {
    let is_error = body["type"] == "error" && body["error"]["type"].is_string();
    body["error"]["message"].as_str().filter(|_| is_error)
};
const OLLAMA: ErrorOf = |body| body["error"].as_str();

/// Routes that generate, the minimal body of each, and the form of its errors.
fn routes() -> Vec<(&'static str, Value, ErrorOf)> {
    [chats(), others()].concat()
}

fn chats() -> Vec<(&'static str, Value, ErrorOf)> {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let few = json!({"model": "demo", "max_tokens": 2, "temperature": 0});
    let ollama = json!({"model": "demo", "stream": false, "options": {"num_predict": 2}});
    vec![
        (
            "/v1/chat/completions",
            with(few.clone(), json!({"messages": messages})),
            OPENAI,
        ),
        (
            "/v1/completions",
            with(few.clone(), json!({"prompt": "hi"})),
            OPENAI,
        ),
        (
            "/v1/responses",
            json!({"model": "demo", "max_output_tokens": 2, "input": messages}),
            OPENAI,
        ),
        (
            "/v1/messages",
            with(few.clone(), json!({"messages": messages})),
            ANTHROPIC,
        ),
        (
            "/v1/messages/count_tokens",
            json!({"model": "demo", "messages": messages}),
            ANTHROPIC,
        ),
        (
            "/api/chat",
            with(ollama.clone(), json!({"messages": messages})),
            OLLAMA,
        ),
        (
            "/api/generate",
            with(ollama, json!({"prompt": "hi"})),
            OLLAMA,
        ),
        (
            "/completion",
            with(few, json!({"prompt": "hi", "n_predict": 2})),
            OPENAI,
        ),
        ("/apply-template", json!({"messages": messages}), OPENAI),
    ]
}

fn others() -> Vec<(&'static str, Value, ErrorOf)> {
    let few = json!({"model": "demo", "max_tokens": 2, "temperature": 0});
    vec![
        (
            "/infill",
            with(
                few,
                json!({"input_prefix": "a", "input_suffix": "b", "n_predict": 2}),
            ),
            OPENAI,
        ),
        ("/tokenize", json!({"content": "hi"}), OPENAI),
        (
            "/v1/embeddings",
            json!({"model": "demo", "input": "hi"}),
            OPENAI,
        ),
        (
            "/v1/rerank",
            json!({"model": "demo", "query": "a", "documents": ["b"]}),
            OPENAI,
        ),
        (
            "/v1/score",
            json!({"model": "demo", "text_1": "a", "text_2": "b"}),
            OPENAI,
        ),
    ]
}

fn start_of(text: &str) -> String {
    text.chars().take(300).collect()
}

/// The response to a body is not a server error, and an error has a message.
fn assert_answered(route: (&str, ErrorOf), what: &str, body: &[u8]) {
    let (path, error_of) = route;
    let start = Instant::now();
    let reply = shared().request("POST", path, &[], body);
    let what = format!("{path}: {what}: {} {}", reply.status, start_of(&reply.body));
    assert!(reply.status < 500 || reply.status == 501, "{what}");
    assert!(start.elapsed() < Duration::from_secs(20), "{what}");
    if reply.status >= 400 {
        let body: Value =
            serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{what}: {error}"));
        let message = error_of(&body).unwrap_or_else(|| panic!("{what}"));
        assert!(message.len() > 8 && message.len() < 2000, "{what}");
    }
}

/// Values of every type, including values that no field accepts.
fn odd_values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(1e308),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("\u{0}\u{fffd}\u{10ffff}"),
        json!("NaN"),
        json!([]),
        json!([null]),
        json!([[[]]]),
        json!([1, "a", {}]),
        json!({}),
        json!({"": {"": []}}),
        json!({"type": "function", "function": null}),
        json!({"type": {"type": "object"}}),
    ]
}

/// Fields of all dialects.
const FIELDS: [&str; 58] = [
    "model",
    "messages",
    "prompt",
    "input",
    "input_prefix",
    "input_suffix",
    "suffix",
    "system",
    "instructions",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n_predict",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "seed",
    "n",
    "best_of",
    "echo",
    "stop",
    "stop_sequences",
    "stop_token_ids",
    "stream",
    "stream_options",
    "logprobs",
    "top_logprobs",
    "n_probs",
    "prompt_logprobs",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "banned_strings",
    "response_format",
    "format",
    "structured_outputs",
    "json_schema",
    "grammar",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "functions",
    "function_call",
    "reasoning",
    "reasoning_effort",
    "thinking",
    "thinking_budget",
    "think",
    "output_config",
    "options",
    "chat_template_kwargs",
    "metadata",
    "user",
    "include",
    "previous_response_id",
];

#[test]
fn every_field_of_every_route_takes_odd_values_or_says_why_not() {
    // A seventh of them, unless all are requested: each field of each route is tried with some.
    let mut n = 0_usize;
    for (path, body, error_of) in routes() {
        for field in FIELDS {
            for value in odd_values() {
                n += 1;
                if !sample::takes(n, 7, 0) {
                    continue;
                }
                let mut body = body.clone();
                body[field] = value;
                // A limit, so that a long answer does not look like a hang.
                let limits = [
                    "max_tokens",
                    "max_completion_tokens",
                    "max_output_tokens",
                    "n_predict",
                    "options",
                ];
                if limits.contains(&field) {
                    body["stop"] = json!([" ", "e", "a", "o"]);
                }
                let text = body.to_string();
                assert_answered((path, error_of), &text, text.as_bytes());
            }
        }
    }
}

#[test]
fn bodies_that_are_no_requests_are_refused_in_the_dialects_words() {
    let deep = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
    let deep_objects = |n: usize| format!("{}1{}", "{\"a\":".repeat(n), "}".repeat(n));
    for (path, body, error_of) in routes() {
        let text = body.to_string();
        let inner = &text[1..text.len() - 1];
        let bodies = [
            String::new(),
            "{".to_owned(),
            "null".to_owned(),
            "[]".to_owned(),
            "\"text\"".to_owned(),
            "NaN".to_owned(),
            deep(100_000),
            deep_objects(100_000),
            format!("{{{inner},\"x\":{}}}", deep(120)),
            format!("{{{inner},\"x\":{}}}", deep(5_000)),
            format!("{{{inner},\"temperature\":NaN}}"),
            format!("{{{inner},\"temperature\":1e999}}"),
            format!("{{{inner},\"temperature\":-Infinity}}"),
            format!("{{{inner},{inner}}}"),
            format!("{{{inner},\"x\":\"\\ud800\"}}"),
            format!("{{{inner}}} trailing"),
        ];
        for body in &bodies {
            assert_answered((path, error_of), &start_of(body), body.as_bytes());
        }
        assert_answered(
            (path, error_of),
            "bytes that are no text",
            b"{\"messages\": \"\xff\xfe\"}",
        );
    }
}

#[test]
fn odd_conversations_are_answered_or_refused_by_place() {
    let user = json!({"role": "user", "content": "hi"});
    let long = "x".repeat(1 << 20);
    let call = |id: &str, arguments: Value| json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}}]});
    for messages in [
        json!([]),
        json!([{}]),
        json!([null]),
        json!([{"role": "user"}]),
        json!([{"content": "hi"}]),
        json!([{"role": "", "content": "hi"}]),
        json!([{"role": "narrator", "content": "hi"}]),
        json!([{"role": "user", "content": null}]),
        json!([{"role": "user", "content": ""}]),
        json!([{"role": "user", "content": []}]),
        json!([{"role": "user", "content": [{}]}]),
        json!([{"role": "user", "content": [{"type": "text"}]}]),
        json!([{"role": "user", "content": [{"type": "text", "text": 3}]}]),
        json!([{"role": "user", "content": [{"type": "video", "video": ""}]}]),
        json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]}]),
        json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]),
        json!([{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]}]),
        json!([{"role": "user", "content": "hi", "images": [""]}]),
        json!([{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]),
        json!([{"role": "user", "content": long}]),
        json!([user, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]),
        json!([{"role": "tool", "tool_call_id": "nobody", "content": "x"}]),
        json!([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "nobody", "content": []}]}]),
        json!([user, call("a", json!("{\"a\": ")), {"role": "tool", "tool_call_id": "b", "content": "x"}]),
        json!([user, call("", json!([[[[]]]]))]),
        json!([user, {"role": "assistant", "tool_calls": [{}]}]),
        json!([user, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": 3, "arguments": {}}}]}]),
        json!([user, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "forged"}]}]),
        json!([user, {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f", "input": "text"}]}]),
        json!([{"role": "system", "content": "only"}]),
        Value::Array(
            (0..5000)
                .map(|i| json!({"role": "user", "content": i.to_string()}))
                .collect(),
        ),
    ] {
        for (path, body, error_of) in routes() {
            let field = match path {
                "/v1/responses" => "input",
                _ if body["messages"].is_array() => "messages",
                _ => continue,
            };
            let mut body = body;
            body[field] = messages.clone();
            let text = body.to_string();
            assert_answered((path, error_of), &start_of(&text), text.as_bytes());
        }
    }
}

/// Schemas that are recursive without end, have no valid value, or make no sense.
fn odd_schemas() -> Vec<Value> {
    let mut nested = json!({"type": "string"});
    for _ in 0..60 {
        nested = json!({"type": "object", "properties": {"a": nested}});
    }
    let wide: serde_json::Map<String, Value> = (0..3000)
        .map(|i| (format!("p{i}"), json!({"type": "string"})))
        .collect();
    vec![
        json!({"$ref": "#"}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
        json!({"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
        json!({"$ref": "https://example.com/schema.json"}),
        json!({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}),
        json!({"type": "no such"}),
        json!({"type": 3}),
        json!({"type": "object", "properties": []}),
        json!({"type": "object", "required": "a"}),
        json!({"enum": []}),
        json!({"type": "string", "pattern": "(a+)+$"}),
        json!({"type": "string", "pattern": "("}),
        json!({"type": "string", "minLength": 5, "maxLength": 2}),
        json!({"type": "array", "minItems": 1_000_000_000}),
        json!({"type": "integer", "minimum": 5, "maximum": 2}),
        json!({"allOf": [{"type": "string"}, {"type": "integer"}]}),
        json!({"type": "object", "properties": wide}),
        nested,
        json!(false),
    ]
}

#[test]
fn odd_functions_and_schemas_are_answered_or_refused_by_name() {
    for schema in &odd_schemas() {
        for strict in [false, true] {
            let function = json!({"name": "f", "parameters": schema, "strict": strict});
            let tools = json!([{"type": "function", "function": function}]);
            let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": strict}});
            for (path, body, error_of) in routes() {
                let bodies = match path {
                    "/v1/chat/completions" => vec![
                        json!({"tools": tools}),
                        json!({"tools": tools, "tool_choice": "required"}),
                        json!({"response_format": format}),
                    ],
                    "/v1/responses" => vec![
                        json!({"tools": [with(json!({"type": "function"}), function.clone())]}),
                        json!({"text": {"format": with(json!({"type": "json_schema"}), format["json_schema"].clone())}}),
                    ],
                    "/v1/messages" => vec![
                        json!({"tools": [{"name": "f", "input_schema": schema}]}),
                        json!({"tools": [{"name": "f", "input_schema": schema}], "tool_choice": {"type": "any"}}),
                    ],
                    "/api/chat" => vec![json!({"tools": tools}), json!({"format": schema})],
                    "/completion" => vec![json!({"json_schema": schema})],
                    _ => continue,
                };
                for fields in bodies {
                    let text = with(body.clone(), fields).to_string();
                    assert_answered((path, error_of), &start_of(&text), text.as_bytes());
                }
            }
        }
    }
    // The server still works.
    assert_eq!(shared().get("/ready").status, 200);
}
