//! Requests as Codex CLI and other agents send them to OpenAI's APIs.

use serde_json::{Value, json};

use crate::{question, shared, with};

const RESPONSES: &str = "/v1/responses";
const CHAT: &str = "/v1/chat/completions";
const LEFT_OUT: &str = "x-millrace-left-out";

fn shell() -> Value {
    json!({"type": "function", "name": "shell", "description": "d", "strict": false, "parameters": {
        "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": false}})
}

fn patch() -> Value {
    json!({"type": "custom", "name": "apply_patch", "description": "d",
           "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"a\""}})
}

fn space() -> Value {
    json!({"type": "namespace", "name": "mcp__x", "description": "d", "tools": [shell(), {"type": "web_search"}]})
}

fn ask(fields: Value) -> crate::client::Reply {
    let body = json!({"model": "demo", "input": "hi", "max_output_tokens": 2, "temperature": 0});
    shared().post(RESPONSES, &with(body, fields))
}

#[test]
fn tools_that_a_server_would_run_are_left_out() {
    for kind in [
        "web_search",
        "image_generation",
        "local_shell",
        "code_interpreter",
        "mcp",
        "tool_search",
    ] {
        for tools in [json!([shell(), {"type": kind}]), json!([{"type": kind}])] {
            let reply = ask(json!({"tools": tools, "tool_choice": "auto"}));
            assert_eq!(reply.status, 200, "{}", reply.body);
            assert!(
                reply.header(LEFT_OUT).unwrap().contains(kind),
                "{:?}",
                reply.headers
            );
            let chat = with(
                question("hi"),
                json!({"tools": [{"type": kind}], "max_tokens": 2, "stream": true}),
            );
            let reply = shared().post(CHAT, &chat);
            assert!(
                reply.header(LEFT_OUT).unwrap().contains(kind),
                "{:?}",
                reply.headers
            );
        }
        let reply = ask(json!({"tools": [shell(), {"type": kind}], "tool_choice": {"type": kind}}));
        assert_eq!(reply.status, 400);
        assert_eq!(reply.json()["error"]["param"], "tool_choice.type");
        assert!(reply.body.contains(kind), "{}", reply.body);
    }
    let reply = ask(json!({"tools": [shell()]}));
    assert_eq!((reply.status, reply.header(LEFT_OUT)), (200, None));
}

/// A bias that makes a call's text end.
fn towards_an_end() -> Value {
    let comma = shared().ask("/tokenize", &json!({"content": "\"}}"}))["tokens"][0].to_string();
    json!({"logit_bias": {comma: 50}})
}

#[test]
fn a_custom_tool_is_called_with_a_text() {
    let fields = json!({"tools": [shell(), patch()], "parallel_tool_calls": false, "max_output_tokens": 200,
                        "tool_choice": {"type": "custom", "name": "apply_patch"}});
    let fields = with(fields, towards_an_end());
    let reply = ask(fields.clone());
    assert!(
        reply
            .header(LEFT_OUT)
            .unwrap()
            .contains("tools[1].format (apply_patch): the grammar"),
        "{:?}",
        reply.headers
    );
    let item = reply.json()["output"][0].clone();
    assert_eq!(
        (&item["type"], &item["name"]),
        (&json!("custom_tool_call"), &json!("apply_patch")),
        "{}",
        reply.body
    );
    assert!(
        item["input"].is_string() && item["call_id"].is_string() && item.get("arguments").is_none()
    );

    let events = ask(with(fields, json!({"stream": true}))).events();
    let data = |kind: &str| -> Value {
        let event = events
            .iter()
            .find(|(name, _)| name.as_deref() == Some(kind));
        serde_json::from_str(&event.unwrap_or_else(|| panic!("no {kind}")).1).unwrap()
    };
    // In pieces, without the JSON around it.
    let deltas = events
        .iter()
        .filter(|(name, _)| name.as_deref() == Some("response.custom_tool_call_input.delta"))
        .map(|(_, data)| serde_json::from_str::<Value>(data).unwrap());
    let deltas: Vec<String> = deltas
        .map(|event| event["delta"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(deltas.concat(), item["input"].as_str().unwrap());
    assert_eq!(
        data("response.custom_tool_call_input.done")["input"],
        item["input"]
    );
    assert_eq!(data("response.output_item.added")["item"]["input"], "");
    assert_eq!(
        data("response.output_item.done")["item"]["type"],
        "custom_tool_call"
    );
}

#[test]
fn chats_call_a_custom_tool_with_a_text() {
    let custom = json!({"type": "custom", "custom": {"name": "apply_patch", "description": "d"}});
    let choice = json!({"type": "custom", "custom": {"name": "apply_patch"}});
    let body = json!({"tools": [custom], "tool_choice": choice, "parallel_tool_calls": false, "max_tokens": 200});
    let body = with(body, towards_an_end());
    let answer = shared().ask(CHAT, &with(question("hi"), body));
    let call = &answer["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(
        (&call["type"], &call["custom"]["name"]),
        (&json!("custom"), &json!("apply_patch")),
        "{answer}"
    );
    assert!(call["custom"]["input"].is_string());
}

#[test]
fn functions_of_a_namespace_are_called_by_both_names() {
    let choices = [
        json!({"type": "function", "name": "shell", "namespace": "mcp__x"}),
        json!({"type": "function", "name": "mcp__x__shell"}),
        json!({"type": "function", "name": "shell"}),
    ];
    for choice in choices {
        let reply = ask(
            json!({"tools": [space()], "tool_choice": choice, "parallel_tool_calls": false,
                               "max_output_tokens": 200}),
        );
        let item = reply.json()["output"][0].clone();
        assert_eq!(
            (&item["type"], &item["name"], &item["namespace"]),
            (&json!("function_call"), &json!("shell"), &json!("mcp__x")),
            "{}",
            reply.body
        );
        let arguments: Value = serde_json::from_str(item["arguments"].as_str().unwrap()).unwrap();
        assert!(arguments["on"].is_boolean());
        assert!(
            reply
                .header(LEFT_OUT)
                .unwrap()
                .contains("tools[0].tools[1].type: this server runs no `web_search`")
        );
    }
    // A function of the same name outside the namespace comes first.
    let reply = ask(
        json!({"tools": [space(), shell()], "tool_choice": {"type": "function", "name": "shell"},
                           "parallel_tool_calls": false, "max_output_tokens": 200}),
    );
    assert!(
        reply.json()["output"][0].get("namespace").is_none(),
        "{}",
        reply.body
    );
}

#[test]
fn only_allowed_tools_are_called() {
    let lamp = with(shell(), json!({"name": "lamp"}));
    for (choice, status, param) in [
        (
            json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "lamp"}]}),
            200,
            "",
        ),
        (
            json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}),
            400,
            "tool_choice",
        ),
        (
            json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "other"}]}),
            400,
            "tool_choice.tools",
        ),
        (
            json!({"type": "allowed_tools", "mode": "maybe", "tools": []}),
            400,
            "tool_choice.mode",
        ),
    ] {
        let reply = ask(
            json!({"tools": [shell(), lamp], "tool_choice": choice, "parallel_tool_calls": false,
                               "max_output_tokens": 200}),
        );
        assert_eq!(reply.status, status, "{choice}: {}", reply.body);
        match status {
            200 => assert_eq!(reply.json()["output"][0]["name"], "lamp", "{}", reply.body),
            _ => assert_eq!(reply.json()["error"]["param"], param, "{}", reply.body),
        }
    }
    let function = |tool: &Value| json!({"type": "function", "function": tool});
    let inner =
        json!({"mode": "required", "tools": [{"type": "function", "function": {"name": "lamp"}}]});
    let body = json!({"tools": [function(&shell()), function(&lamp)], "parallel_tool_calls": false, "max_tokens": 200,
                      "tool_choice": {"type": "allowed_tools", "allowed_tools": inner}});
    let answer = shared().ask(CHAT, &with(question("hi"), body));
    let call = &answer["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "lamp", "{answer}");
    let none = json!({"type": "allowed_tools", "mode": "auto", "tools": []});
    assert_eq!(
        ask(json!({"tools": [shell()], "tool_choice": none})).status,
        200
    );
}

/// Number of tokens of an input.
fn n_tokens(input: &Value) -> u64 {
    let reply = ask(json!({"input": input}));
    assert_eq!(reply.status, 200, "{input}: {}", reply.body);
    reply.json()["usage"]["input_tokens"].as_u64().unwrap()
}

/// A call and its result after a question.
fn with_call(call: Value, output: Value) -> Value {
    let call = with(json!({"call_id": "c"}), call);
    let output = with(json!({"call_id": "c"}), output);
    json!([{"role": "user", "content": "hi"}, call, output])
}

/// Number of tokens of a history with a function call.
fn n_plain(name: &str, arguments: Value, output: &str) -> u64 {
    let call = json!({"type": "function_call", "name": name, "arguments": arguments.to_string()});
    let output = json!({"type": "function_call_output", "output": output});
    n_tokens(&with_call(call, output))
}

#[test]
fn results_of_every_kind_are_read() {
    let shell = json!({"type": "function_call", "name": "shell", "arguments": "{}"});
    for (output, text) in [
        (json!([{"type": "input_text", "text": "ok"}]), "ok"),
        (
            json!([{"type": "input_text", "text": "one."}, {"type": "output_text", "text": "two."}]),
            "one.\ntwo.",
        ),
        (json!([]), ""),
        (Value::Null, ""),
        (json!({"a": 1}), "{\"a\":1}"),
    ] {
        let result = json!({"type": "function_call_output", "output": output});
        let found = n_tokens(&with_call(shell.clone(), result));
        assert_eq!(found, n_plain("shell", json!({}), text), "{output}");
    }
}

#[test]
fn histories_of_every_kind_of_call_are_read() {
    let custom = json!({"type": "custom_tool_call", "name": "apply_patch", "input": "x"});
    let found = n_tokens(&with_call(
        custom,
        json!({"type": "custom_tool_call_output", "output": "ok"}),
    ));
    assert_eq!(found, n_plain("apply_patch", json!({"input": "x"}), "ok"));
    let local = json!({"type": "local_shell_call", "action": {"command": ["ls"]}});
    let found = n_tokens(&with_call(
        local,
        json!({"type": "local_shell_call_output", "output": "ok"}),
    ));
    assert_eq!(
        found,
        n_plain("local_shell", json!({"command": ["ls"]}), "ok")
    );
    let named =
        json!({"type": "function_call", "name": "shell", "namespace": "mcp__x", "arguments": ""});
    let found = n_tokens(&with_call(
        named,
        json!({"type": "function_call_output", "output": "ok"}),
    ));
    assert_eq!(found, n_plain("mcp__x__shell", json!({}), "ok"));
    let thought = json!([{"role": "user", "content": "hi"},
                         {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"}]);
    assert_eq!(n_tokens(&thought), n_tokens(&json!("hi")));
    let searched = json!([{"role": "user", "content": "hi"}, {"type": "web_search_call", "id": "ws", "status": "completed"}]);
    let reply = ask(json!({"input": searched}));
    assert_eq!(
        reply.json()["usage"]["input_tokens"],
        n_tokens(&json!("hi"))
    );
    assert!(reply.header(LEFT_OUT).unwrap().contains("web_search_call"));
    let refused = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}]);
    let said = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "output_text", "text": "no"}]}]);
    assert_eq!(n_tokens(&refused), n_tokens(&said));
}

#[test]
fn chats_replay_what_other_services_said() {
    let prompt = |assistant: Value| {
        let messages = json!([{"role": "user", "content": "hi"}, with(json!({"role": "assistant"}), assistant),
                              {"role": "user", "content": "go on"}]);
        shared().ask("/apply-template", &json!({"messages": messages}))["prompt"].clone()
    };
    let said = prompt(json!({"content": "no"}));
    assert_eq!(
        prompt(json!({"content": [{"type": "refusal", "refusal": "no"}]})),
        said
    );
    assert_eq!(prompt(json!({"content": null, "refusal": "no"})), said);
    let function = json!({"name": "f", "arguments": "{\"input\": \"x\"}"});
    let called =
        prompt(json!({"tool_calls": [{"id": "c", "type": "function", "function": function}]}));
    let custom = json!({"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}});
    assert_eq!(prompt(json!({"tool_calls": [custom]})), called);
}

#[test]
fn variables_of_the_template_that_are_the_servers_are_refused() {
    for name in [
        "messages",
        "tools",
        "bos_token",
        "eos_token",
        "add_generation_prompt",
    ] {
        let body = with(
            question("hi"),
            json!({"chat_template_kwargs": {name: "x", "enable_thinking": true}}),
        );
        for path in [CHAT, "/apply-template"] {
            let reply = shared().post(path, &body);
            assert_eq!(reply.status, 400, "{name}");
            assert_eq!(
                reply.json()["error"]["param"],
                format!("chat_template_kwargs.{name}")
            );
        }
    }
    // Control tokens in a variable are text.
    let server =
        crate::native::server("{{ note }}{% for m in messages %}{{ m.content }}{% endfor %}");
    let body = json!({"messages": [{"role": "user", "content": ""}], "chat_template_kwargs": {"note": "<|end|>"}});
    let given = server.ask("/apply-template", &body);
    assert_eq!(given["prompt"], "<|end|>");
    assert!(given["tokens"].as_array().unwrap().len() > 1, "{given}");
}
