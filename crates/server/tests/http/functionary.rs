//! Answers as messages to recipients: the demo with a template in the style of Functionary 3.2.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::native::server;
use crate::{Running, question, with};

const CHAT: &str = "/v1/chat/completions";

/// A prompt ends with the mark of a message. Arguments of earlier calls must be text.
const TEMPLATE: &str = "{{bos_token}}{{tools|tojson if tools}}{%for m in messages%}<|{{m.role}}|>{%if m.role=='assistant'%}\
    {{'>>>all\n'+m.content if m.content}}{%for c in m.tool_calls or []%}{{'>>>'+c.function.name+'\n'+c.function.arguments}}\
    {%endfor%}{%else%}{{m.content}}{%endif%}<|end|>{%endfor%}{%if add_generation_prompt%}<|assistant|>>>>{%endif%}\
    {#>>>${recipient}#}";

fn served() -> &'static Running {
    static SERVER: OnceLock<Running> = OnceLock::new();
    SERVER.get_or_init(|| server(TEMPLATE))
}

fn tools(name: &str) -> Value {
    json!([{"type": "function", "function": {"name": name, "description": "Switches.", "parameters": {
        "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
        "additionalProperties": false}}}])
}

fn prompt(body: &Value) -> String {
    let answer = served().ask("/apply-template", body);
    answer["prompt"].as_str().unwrap().to_owned()
}

#[test]
fn without_functions_the_prompt_says_that_the_user_is_spoken_to() {
    let asked = json!({"messages": [{"role": "user", "content": "Light!"}]});
    let plain = prompt(&asked);
    assert!(
        plain.ends_with("<|user|>Light!<|end|><|assistant|>>>>all\n"),
        "{plain}"
    );
    let none = with(
        asked.clone(),
        json!({"tools": tools("lamp"), "tool_choice": "none"}),
    );
    assert_eq!(prompt(&none), plain);
    let offered = prompt(&with(asked, json!({"tools": tools("lamp")})));
    assert!(offered.ends_with("<|assistant|>>>>"), "{offered}");
    assert!(offered.contains("\"name\": \"lamp\""), "{offered}");

    // The form is then the whole answer.
    let schema =
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "boolean"}}});
    let answer = served().ask(
        CHAT,
        &with(question("Yes?"), json!({"response_format": schema})),
    );
    let said = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(["true", "false"].contains(&said), "{answer}");
}

#[test]
fn calls_are_messages_to_functions() {
    let fields = json!({"tools": tools("lamp"), "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 100});
    let ask = with(question("Light!"), fields);
    let answer = served().ask(CHAT, &ask);
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    assert_eq!(choice["message"]["content"], Value::Null);
    let call = choice["message"]["tool_calls"][0].clone();
    assert_eq!(call["function"]["name"], "lamp");
    let arguments = call["function"]["arguments"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(arguments).unwrap()["on"].is_boolean());
    let chunks = served()
        .post(CHAT, &with(ask, json!({"stream": true})))
        .chunks();
    let deltas = || chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
    let told =
        deltas().filter_map(|delta| delta["tool_calls"][0]["function"]["arguments"].as_str());
    assert_eq!(told.collect::<String>(), arguments);
    assert!(deltas().all(|delta| delta["content"].as_str().unwrap_or_default().is_empty()));

    // A call in the history is rendered as the template expects it.
    let body = json!({"tools": tools("lamp"), "messages": [
        {"role": "user", "content": "Light!"}, {"role": "assistant", "content": "Yes.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "done"}]});
    let again = prompt(&body);
    assert!(
        again.contains("<|assistant|>>>>all\nYes.>>>lamp\n{\"on\":"),
        "{again}"
    );
}

#[test]
fn beside_functions_the_line_of_the_user_is_no_text() {
    let ask = |fields: Value| {
        with(
            with(
                question("What is 7 plus 5?"),
                json!({"tools": tools("lamp"), "max_tokens": 30}),
            ),
            fields,
        )
    };
    let token = served().ask("/tokenize", &json!({"content": "all\n"}))["tokens"][0].to_string();
    let free = ask(json!({"logit_bias": {token: 60}}));
    let answer = served().ask(CHAT, &free);
    let message = &answer["choices"][0]["message"];
    let said = message["content"].as_str().unwrap();
    assert!(!said.starts_with("all\n"), "{answer}");
    assert!(message.get("tool_calls").is_none(), "{answer}");
    let chunks = served()
        .post(CHAT, &with(free, json!({"stream": true})))
        .chunks();
    let told = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    assert_eq!(told.collect::<String>(), said);

    let reply = served().post(CHAT, &ask(json!({"tools": tools("all")})));
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert!(
        reply.body.contains("give it another name"),
        "{}",
        reply.body
    );
}
