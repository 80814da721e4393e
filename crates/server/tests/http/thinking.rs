//! Models that think: the demo with templates that begin a thought for it, and a budget that ends the thought.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::native::server;
use crate::{Running, question, with};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

/// A template that begins a thought, unless told not to, and shows earlier ones.
const TEMPLATE: &str = "{{bos_token}}{% for m in messages %}<|{{m.role}}|>\
    {% if m.reasoning_content %}<think>{{m.reasoning_content}}</think>{% endif %}{{m.content}}<|end|>{% endfor %}\
    <|assistant|>{% if enable_thinking is not defined or enable_thinking %}<think>{% else %}<think></think>{% endif %}";

/// A template that always begins a thought, and shows its variables.
const STUBBORN: &str = "{{bos_token}}{% for m in messages %}<|{{m.role}}|>{{m.content}}<|end|>{% endfor %}\
    {{enable_thinking}}{{thinking}}{{reasoning_effort}}<|assistant|><think>{#</think>#}";

fn thinker() -> &'static Running {
    static SERVER: OnceLock<Running> = OnceLock::new();
    SERVER.get_or_init(|| server(TEMPLATE))
}

/// A question, with a budget of three thought tokens.
fn asked(fields: Value) -> Value {
    let options = json!({"thinking_budget": 3, "max_tokens": 40});
    with(with(question("What is 7 plus 5?"), options), fields)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn chat_tells_thoughts_apart() {
    let answer = thinker().ask(CHAT, &asked(json!({})));
    let message = &answer["choices"][0]["message"];
    let (thought, said) = (
        text(&message["reasoning_content"]),
        text(&message["content"]),
    );
    assert!(!thought.is_empty() && !said.is_empty(), "{answer}");
    assert!(!format!("{thought}{said}").contains("think>"), "{answer}");
    assert_eq!(message["reasoning"], message["reasoning_content"]);
    let usage = &answer["usage"];
    let n_thought = usage["completion_tokens_details"]["reasoning_tokens"]
        .as_u64()
        .unwrap();
    // Three tokens, and those of the closing mark.
    assert!(
        n_thought > 3 && n_thought < usage["completion_tokens"].as_u64().unwrap(),
        "{usage}"
    );

    let stream = thinker().post(CHAT, &asked(json!({"stream": true})));
    let mut told = [String::new(), String::new()];
    for chunk in stream.chunks() {
        let delta = &chunk["choices"][0]["delta"];
        assert_eq!(delta["reasoning_content"], delta["reasoning"]);
        told[0] += &text(&delta["reasoning_content"]);
        told[1] += &text(&delta["content"]);
        assert!(
            told[1].is_empty() || delta["reasoning"].is_null(),
            "a thought comes first"
        );
    }
    assert_eq!(told, [thought, said]);
    let hidden = thinker().ask(CHAT, &asked(json!({"include_reasoning": false})));
    assert_eq!(hidden["choices"][0]["message"]["reasoning"], Value::Null);
    let fields = json!({"include_reasoning": false, "stream": true});
    let chunks = thinker().post(CHAT, &asked(fields)).chunks();
    let deltas = || chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
    assert!(
        deltas().all(|delta| delta["reasoning"].is_null() && delta["reasoning_content"].is_null())
    );
    assert_eq!(
        deltas()
            .map(|delta| text(&delta["content"]))
            .collect::<String>(),
        told[1]
    );
    // Log-probabilities are those of the answer only.
    let logprobs = thinker().ask(CHAT, &asked(json!({"logprobs": true})));
    let tokens = logprobs["choices"][0]["logprobs"]["content"]
        .as_array()
        .unwrap()
        .iter();
    let tokens: String = tokens.map(|token| text(&token["token"])).collect();
    assert_eq!(
        tokens.trim_start(),
        text(&logprobs["choices"][0]["message"]["content"])
    );
}

#[test]
fn thinking_can_be_switched_off() {
    for off in [
        json!({"reasoning_effort": "none"}),
        json!({"thinking": {"type": "disabled"}}),
        json!({"reasoning": {"enabled": false}}),
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
    ] {
        let answer = thinker().ask(CHAT, &asked(off.clone()));
        let details = &answer["usage"]["completion_tokens_details"];
        assert_eq!(details["reasoning_tokens"], 0, "{off}: {answer}");
        assert_eq!(
            answer["choices"][0]["message"]["reasoning"],
            Value::Null,
            "{off}"
        );
    }
    // A template that ignores the option begins a thought, which is ended at once.
    let server = server(STUBBORN);
    let answer = server.ask(CHAT, &asked(json!({"reasoning_effort": "none"})));
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["reasoning"], Value::Null, "{answer}");
    assert!(!text(&message["content"]).is_empty(), "{answer}");
    let ollama = json!({"model": "demo", "stream": false, "think": false, "options": {"num_predict": 30},
                        "messages": [{"role": "user", "content": "What is 7 plus 5?"}]});
    let answer = server.ask("/api/chat", &ollama);
    assert_eq!(answer["message"]["thinking"], Value::Null, "{answer}");
    assert!(!text(&answer["message"]["content"]).is_empty(), "{answer}");
    // The variables that templates get.
    for (fields, heard) in [
        (json!({}), ""),
        (json!({"reasoning_effort": "low"}), "TrueTruelow"),
        (json!({"reasoning": {"effort": "none"}}), "FalseFalse"),
        (
            json!({"reasoning_effort": "high", "chat_template_kwargs": {"reasoning_effort": "max"}}),
            "TrueTruemax",
        ),
    ] {
        let prompt = server.ask("/apply-template", &asked(fields.clone()))["prompt"].clone();
        let end = format!("<|end|>{heard}<|assistant|><think>");
        assert!(text(&prompt).ends_with(&end), "{fields}: {prompt}");
    }
}

#[test]
fn forms_and_calls_come_behind_thoughts() {
    let lamp = json!({"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
                      "additionalProperties": false});
    let form = json!({"type": "json_schema", "json_schema": {"name": "lamp", "schema": lamp}});
    let answer = thinker().ask(CHAT, &asked(json!({"response_format": form})));
    let message = &answer["choices"][0]["message"];
    assert!(!text(&message["reasoning"]).is_empty(), "{answer}");
    let said: Value = serde_json::from_str(&text(&message["content"])).unwrap();
    assert!(said["on"].is_boolean(), "{answer}");
    // The model would end here, but the form has not begun.
    let long = asked(json!({"response_format": form, "thinking_budget": 60, "max_tokens": 120}));
    let answer = thinker().ask(CHAT, &long);
    let said: Value =
        serde_json::from_str(&text(&answer["choices"][0]["message"]["content"])).unwrap();
    assert!(said["on"].is_boolean(), "{answer}");

    let tools = json!([{"type": "function", "function": {"name": "lamp", "parameters": lamp}}]);
    let fields = json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 200});
    let answer = thinker().ask(CHAT, &asked(fields));
    let message = &answer["choices"][0]["message"];
    assert!(!text(&message["reasoning"]).is_empty(), "{answer}");
    assert_eq!(
        message["tool_calls"][0]["function"]["name"], "lamp",
        "{answer}"
    );
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
}

/// A question through Anthropic's API with these fields.
fn anthropics(fields: Value) -> Value {
    let body = json!({"model": "demo", "max_tokens": 40, "temperature": 0,
                      "messages": [{"role": "user", "content": "What is 7 plus 5?"}]});
    with(body, fields)
}

/// The same question with thoughts enabled.
fn anthropics_with_thoughts() -> Value {
    anthropics(json!({"thinking": {"type": "enabled", "budget_tokens": 3}}))
}

#[test]
fn anthropics_thoughts_are_signed() {
    let message = thinker().ask(MESSAGES, &anthropics_with_thoughts());
    let (thought, said) = (message["content"][0].clone(), message["content"][1].clone());
    assert_eq!(
        (&thought["type"], &said["type"]),
        (&json!("thinking"), &json!("text")),
        "{message}"
    );
    let n_thought = message["usage"]["output_tokens_details"]["thinking_tokens"].as_u64();
    assert!(n_thought.unwrap() > 3, "{message}");

    let stream = with(anthropics_with_thoughts(), json!({"stream": true}));
    let (mut told, mut kinds) = ([String::new(), String::new(), String::new()], Vec::new());
    for (_, data) in thinker().post(MESSAGES, &stream).events() {
        let event: Value = serde_json::from_str(&data).unwrap();
        let delta = &event["delta"];
        for (told, name) in told.iter_mut().zip(["thinking", "signature", "text"]) {
            *told += &text(&delta[name]);
        }
        kinds.push(text(&delta["type"]));
    }
    kinds.retain(|kind| !kind.is_empty());
    kinds.dedup();
    assert_eq!(kinds, ["thinking_delta", "signature_delta", "text_delta"]);
    let expected = [&thought["thinking"], &thought["signature"], &said["text"]].map(text);
    assert_eq!(told, expected);
    // A request without thoughts gets none.
    let plain = thinker().ask(MESSAGES, &anthropics(json!({})));
    assert_eq!(plain["content"][0]["type"], "text", "{plain}");
}

/// Without `thinking` a model that thinks all the same does so to its end, and nobody sees it.
#[test]
fn anthropics_models_think_unseen() {
    let server = server(STUBBORN);
    let message = server.ask(MESSAGES, &anthropics(json!({})));
    let n_thought = message["usage"]["output_tokens_details"]["thinking_tokens"].as_u64();
    assert!(n_thought.unwrap() > 3, "{message}");
    let blocks = message["content"].as_array().unwrap();
    assert!(
        blocks.iter().all(|block| block["type"] == "text"),
        "{message}"
    );
    let stream = server.post(MESSAGES, &anthropics(json!({"stream": true})));
    assert!(!stream.body.contains("thinking_delta"), "{}", stream.body);
}

/// A returned thought is passed to the template, if it is unchanged.
#[test]
fn anthropics_thoughts_come_back_as_they_were() {
    let message = thinker().ask(MESSAGES, &anthropics_with_thoughts());
    let thought = message["content"][0].clone();
    let count = |block: Value| {
        let messages = json!([{"role": "user", "content": "hi"},
            {"role": "assistant", "content": [block, {"type": "text", "text": "yes"}]}, {"role": "user", "content": "so?"}]);
        thinker().post(
            "/v1/messages/count_tokens",
            &json!({"model": "demo", "messages": messages}),
        )
    };
    let none = count(json!({"type": "text", "text": ""})).json()["input_tokens"]
        .as_u64()
        .unwrap();
    let with_thought = count(thought.clone()).json()["input_tokens"]
        .as_u64()
        .unwrap();
    assert!(with_thought > none + 3, "{with_thought} {none}");
    for (wrong, words) in [
        (
            with(thought.clone(), json!({"thinking": "other"})),
            "Invalid `signature` in `thinking` block",
        ),
        (
            with(thought.clone(), json!({"signature": ""})),
            "messages[1].content[0].signature",
        ),
        (
            json!({"type": "thinking", "thinking": "hm"}),
            "messages[1].content[0].signature",
        ),
    ] {
        let reply = count(wrong);
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert!(reply.body.contains(words), "{}", reply.body);
    }
}

#[test]
fn ollama_has_thoughts_beside_the_message() {
    let body = json!({"model": "demo", "stream": false, "think": true, "prompt": "What is 7 plus 5?",
                      "options": {"num_predict": 8, "temperature": 0},
                      "messages": [{"role": "user", "content": "What is 7 plus 5?"}]});
    let chat = thinker().ask("/api/chat", &body);
    let thought = text(&chat["message"]["thinking"]);
    assert!(!thought.is_empty(), "{chat}");
    assert_eq!(thinker().ask("/api/generate", &body)["thinking"], *thought);
    let stream = thinker().post("/api/chat", &with(body, json!({"stream": true})));
    let lines = stream
        .body
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told: String = lines
        .map(|line| text(&line["message"]["thinking"]))
        .collect();
    assert_eq!(told, thought);
}

#[test]
fn responses_have_items_of_reasoning() {
    let body = json!({"model": "demo", "temperature": 0, "input": "What is 7 plus 5?", "max_output_tokens": 40,
                      "reasoning": {"effort": "low", "max_tokens": 3}});
    let response = thinker().ask("/v1/responses", &body);
    let (thought, message) = (&response["output"][0], &response["output"][1]);
    assert_eq!(
        (&thought["type"], &message["type"]),
        (&json!("reasoning"), &json!("message")),
        "{response}"
    );
    assert_eq!(response["reasoning"]["effort"], "low");
    let n_thought = response["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64();
    assert!(n_thought.unwrap() > 3, "{response}");

    let events = thinker()
        .post(
            "/v1/responses",
            &with(body.clone(), json!({"stream": true})),
        )
        .events();
    let events: Vec<Value> = events
        .iter()
        .map(|(_, data)| serde_json::from_str(data).unwrap())
        .collect();
    let told = |kind: &str| -> String {
        let deltas = events.iter().filter(|event| event["type"] == *kind);
        deltas.map(|event| text(&event["delta"])).collect()
    };
    assert_eq!(
        told("response.reasoning_text.delta"),
        thought["content"][0]["text"]
    );
    assert_eq!(
        told("response.output_text.delta"),
        message["content"][0]["text"]
    );
    let output = &events.last().unwrap()["response"]["output"];
    assert_eq!(output[0]["content"], thought["content"]);
    assert_eq!(output[1]["content"], message["content"]);

    // A returned item is passed to the template together with the message after it.
    let n_input = |items: Value| {
        let body = with(
            body.clone(),
            json!({"input": items, "max_output_tokens": 1}),
        );
        thinker().ask("/v1/responses", &body)["usage"]["input_tokens"]
            .as_u64()
            .unwrap()
    };
    let (hi, yes) = (
        json!({"role": "user", "content": "hi"}),
        json!({"role": "assistant", "content": "yes"}),
    );
    let without = n_input(json!([hi, yes, hi]));
    assert!(n_input(json!([hi, thought, yes, hi])) > without + 3);
}
