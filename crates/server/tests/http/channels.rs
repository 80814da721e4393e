//! Thoughts in channels: the demo with the marks of gpt-oss, and with those of Gemma 4.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::native::{demo_bytes, rename, serve, set_template};
use crate::{Running, question, with};

const CHAT: &str = "/v1/chat/completions";

/// A turn in the demo's form, and then an answer whose thought has begun.
const GPT_OSS: &str = "{{bos_token}}{% for m in messages %}<|{{m.role}}|>{{m.content}}<|return|>{% endfor %}<|assistant|>\
    {% if tools %}{{tools|tojson}}<|start|>assistant{% else %}<|start|>assistant<|channel|>analysis<|message|>{% endif %}{#<|end|>#}";

const GEMMA_4: &str = "{{bos_token}}{% for m in messages %}<|{{m.role}}|>{{m.content}}<|end|>{% endfor %}<|assistant|>\
    <|channel>thought\n{#<channel|>#}";

fn gpt_oss() -> &'static Running {
    static SERVER: OnceLock<Running> = OnceLock::new();
    SERVER.get_or_init(|| {
        let mut bytes = demo_bytes();
        // The token that ends the demo's turns ends an answer; messages have a separate end token.
        let names = [
            ("<|end|>", "<|return|>"),
            ("<|reserved_0|>", "<|start|>"),
            ("<|reserved_1|>", "<|channel|>"),
            ("<|reserved_2|>", "<|message|>"),
            ("<|reserved_3|>", "<|constrain|>"),
            ("<|reserved_4|>", "<|end|>"),
            ("<|reserved_6|>", "<|call|>"),
        ];
        rename(&mut bytes, &names, "<|reserved_5|>");
        set_template(&mut bytes, GPT_OSS);
        serve(&bytes)
    })
}

fn gemma_4() -> &'static Running {
    static SERVER: OnceLock<Running> = OnceLock::new();
    SERVER.get_or_init(|| {
        let mut bytes = demo_bytes();
        let names = [
            ("<|reserved_0|>", "<|channel>"),
            ("<|reserved_1|>", "<channel|>"),
        ];
        rename(&mut bytes, &names, "<|reserved_5|>");
        set_template(&mut bytes, GEMMA_4);
        serve(&bytes)
    })
}

/// A question, with a budget of three thought tokens, and an answer of maximum length.
fn asked(fields: Value) -> Value {
    let options = json!({"thinking_budget": 3, "max_tokens": 40, "ignore_eos": true});
    with(with(question("What is 7 plus 5?"), options), fields)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn assert_plain(text: &str) {
    for mark in ["<|", "|>", "analysis", "thought"] {
        assert!(!text.contains(mark), "{mark} in {text}");
    }
}

#[test]
fn thoughts_in_channels_are_told_apart_by_every_api() {
    for (family, server) in [("gpt-oss", gpt_oss()), ("gemma 4", gemma_4())] {
        let answer = server.ask(CHAT, &asked(json!({})));
        let message = &answer["choices"][0]["message"];
        let (thought, said) = (
            text(&message["reasoning_content"]),
            text(&message["content"]),
        );
        assert!(
            !thought.is_empty() && !said.is_empty(),
            "{family}: {answer}"
        );
        assert_plain(&thought);
        assert_plain(&said);
        let n_thought = &answer["usage"]["completion_tokens_details"]["reasoning_tokens"];
        assert!(n_thought.as_u64().unwrap() >= 3, "{family}: {answer}");

        let mut told = [String::new(), String::new()];
        for chunk in server.post(CHAT, &asked(json!({"stream": true}))).chunks() {
            let delta = &chunk["choices"][0]["delta"];
            told[0] += &text(&delta["reasoning_content"]);
            told[1] += &text(&delta["content"]);
        }
        assert_eq!(told, [thought.clone(), said.clone()], "{family}");

        let body = json!({"model": "demo", "max_tokens": 40, "temperature": 0, "thinking": {"type": "enabled", "budget_tokens": 3},
                          "messages": [{"role": "user", "content": "What is 7 plus 5?"}]});
        let message = server.ask("/v1/messages", &body);
        assert_eq!(
            message["content"][0]["type"], "thinking",
            "{family}: {message}"
        );
        assert_eq!(
            text(&message["content"][0]["thinking"]),
            thought,
            "{family}"
        );
        let body = json!({"model": "demo", "input": "What is 7 plus 5?", "temperature": 0, "max_output_tokens": 40,
                          "reasoning": {"max_tokens": 3}});
        let response = server.ask("/v1/responses", &body);
        assert_eq!(
            response["output"][0]["type"], "reasoning",
            "{family}: {response}"
        );
        assert_eq!(
            text(&response["output"][0]["content"][0]["text"]),
            thought,
            "{family}"
        );
    }
}

#[test]
fn a_form_comes_in_the_last_channel() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"],
                        "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let fields = json!({"response_format": format, "ignore_eos": false, "max_tokens": 80});
    let answer = gemma_4().ask(CHAT, &asked(fields));
    let content = text(&answer["choices"][0]["message"]["content"]);
    let read: Value =
        serde_json::from_str(content.trim()).unwrap_or_else(|error| panic!("{error}: {answer}"));
    assert!(read["n"].is_u64(), "{answer}");
}

#[test]
fn calls_come_in_a_channel_of_their_own() {
    let tools = json!([{"type": "function", "function": {"name": "lamp", "parameters": {
        "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": false}}}]);
    let fields =
        json!({"tools": tools, "tool_choice": "required", "ignore_eos": false, "max_tokens": 200});
    let answer = gpt_oss().ask(
        CHAT,
        &with(asked(fields.clone()), json!({"thinking_budget": 0})),
    );
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    let function = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(function["name"], "lamp");
    let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["on"].is_boolean(), "{answer}");
    assert_plain(&text(&choice["message"]["content"]));
}
