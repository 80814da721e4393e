//! Requests as Claude Code and other agents send them to Anthropic's API.

use serde_json::{Value, json};

use crate::{native, shared, with};

const MESSAGES: &str = "/v1/messages";

fn count(body: &Value) -> u64 {
    let body = with(json!({"model": "demo"}), body.clone());
    let answer = shared().ask("/v1/messages/count_tokens?beta=true", &body);
    answer["input_tokens"].as_u64().unwrap()
}

/// Number of tokens of a conversation through OpenAI's API.
fn count_plain(messages: &Value) -> u64 {
    let template = shared().ask("/apply-template", &json!({"messages": messages}));
    template["tokens"].as_array().unwrap().len() as u64
}

#[test]
fn instructions_amid_a_conversation_stay_where_they_are() {
    let agents = "Available agents: none";
    let plain = count_plain(&json!([
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"},
        {"role": "system", "content": agents},
    ]));
    for content in [
        json!(agents),
        json!([{"type": "text", "text": agents, "cache_control": {"type": "ephemeral"}}]),
    ] {
        let body = json!({"max_tokens": 4, "system": [{"type": "text", "text": "Be brief."}], "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]}, {"role": "system", "content": content},
        ]});
        assert_eq!(count(&body), plain, "{content}");
        let answer = shared().ask(
            "/v1/messages?beta=true",
            &with(body, json!({"model": "demo"})),
        );
        assert_eq!(answer["usage"]["output_tokens"], 4);
    }
    let first = json!({"messages": [{"role": "system", "content": [{"type": "text", "text": "x"}]}, {"role": "user", "content": "hi"}]});
    let system = json!({"system": "x", "messages": [{"role": "user", "content": "hi"}]});
    assert_eq!(count(&first), count(&system));
    let image = json!({"messages": [{"role": "system", "content": [{"type": "image", "source": {"type": "base64", "data": ""}}]}]});
    let reply = shared().post(
        MESSAGES,
        &with(json!({"model": "demo", "max_tokens": 1}), image),
    );
    assert_eq!(reply.status, 400);
    assert!(
        reply.body.contains("messages[0].content[0].type"),
        "{}",
        reply.body
    );
}

/// Templates that accept instructions only in the first place, that drop others, and that refuse or drop all; with
/// the conversation rendered by each.
const TEMPLATES: [(&str, &str); 4] = [
    (
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first!') }}{% endif %}\
         [{{ m.role }}]{{ m.content }}{% endfor %}",
        "[system]one\n\ntwo[user]hi[assistant]yes[user]go on",
    ),
    (
        "{% if messages[0].role == 'system' %}[system]{{ messages[0].content }}{% endif %}\
         {% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}",
        "[system]one\n\ntwo[user]hi[assistant]yes[user]go on",
    ),
    (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns!') }}\
         {% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}",
        "[user]one\n\nhi[assistant]yes[user]two\n\ngo on",
    ),
    (
        "{% for m in messages if m.role != 'system' %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns!') }}\
         {% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}",
        "[user]one\n\nhi[assistant]yes[user]two\n\ngo on",
    ),
];

#[test]
fn templates_that_refuse_instructions_get_them_elsewhere() {
    let conversation = json!([
        {"role": "user", "content": "hi"}, {"role": "system", "content": " two "},
        {"role": "assistant", "content": "yes"}, {"role": "user", "content": "go on"},
    ]);
    let with_first: Vec<Value> = [json!({"role": "system", "content": "one"})]
        .into_iter()
        .chain(conversation.as_array().unwrap().clone())
        .collect();
    for (template, prompt) in TEMPLATES {
        let server = native::server(template);
        let given = server.ask("/apply-template", &json!({"messages": with_first}));
        assert_eq!(given["prompt"], prompt, "{template}");
        let n_tokens = given["tokens"].as_array().unwrap().len();
        let body = json!({"model": "demo", "system": "one", "messages": conversation});
        let counted = server.ask("/v1/messages/count_tokens", &body);
        assert_eq!(counted["input_tokens"], n_tokens, "{template}");
    }
    // If a template refuses every arrangement, the error has its first message.
    let server = native::server("{{ raise_exception('never ' ~ (messages | length)) }}");
    let reply = server.post("/apply-template", &json!({"messages": with_first}));
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("never 5"), "{}", reply.body);
}

#[test]
fn what_is_meant_for_the_service_does_not_spoil_the_cache() {
    let text = "You are an agent. ".repeat(30);
    let ask = |cch: &str| {
        let header = format!(
            "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch={cch};"
        );
        json!({"model": "demo", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}], "system": [
            {"type": "text", "text": header}, {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]})
    };
    let without = json!({"system": text, "messages": [{"role": "user", "content": "hi"}]});
    assert_eq!(count(&ask("36ee5")), count(&without));
    shared().ask(MESSAGES, &ask("36ee5"));
    let usage = shared().ask(MESSAGES, &ask("0aaa9"))["usage"].clone();
    assert!(
        usage["cache_read_input_tokens"].as_u64().unwrap() >= 64,
        "{usage}"
    );
    // Those are not among the input's.
    let read =
        ["input_tokens", "cache_read_input_tokens"].map(|name| usage[name].as_u64().unwrap());
    assert_eq!(read.iter().sum::<u64>(), count(&ask("0aaa9")), "{usage}");
}

/// A conversation with the result of a call.
fn with_result(result: Value) -> Value {
    let result = with(json!({"type": "tool_result", "tool_use_id": "t"}), result);
    json!({"messages": [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Read", "input": {}}]},
        {"role": "user", "content": [result]},
    ]})
}

#[test]
fn results_are_made_of_blocks() {
    let document = json!({"type": "document", "title": "T", "context": "C",
                          "source": {"type": "text", "media_type": "text/plain", "data": "hi"}});
    for (content, text) in [
        (
            json!([{"type": "text", "text": "one."}, {"type": "text", "text": "two."}]),
            "one.\ntwo.",
        ),
        (json!([document]), "T\nC\nhi"),
        (
            json!([{"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "hi"}]}}]),
            "hi",
        ),
        (
            json!([{"type": "search_result", "title": "T", "source": "https://a.example",
                 "content": [{"type": "text", "text": "found"}]}]),
            "T\nhttps://a.example\nfound",
        ),
        (
            json!([{"type": "tool_reference", "tool_name": "Grep"}]),
            "Grep",
        ),
        (json!([]), ""),
        (Value::Null, ""),
    ] {
        let plain = count(&with_result(json!({"content": text})));
        assert_eq!(
            count(&with_result(json!({"content": content}))),
            plain,
            "{content}"
        );
    }
}

#[test]
fn results_that_failed_say_so() {
    let error = |fields: Value| count(&with_result(with(fields, json!({"is_error": true}))));
    let plain = |text: &str| count(&with_result(json!({"content": text})));
    assert_eq!(
        error(json!({"content": "no such file"})),
        plain("Error: no such file")
    );
    assert_eq!(
        error(json!({"content": "Error: it failed"})),
        plain("Error: it failed")
    );
    assert_eq!(error(json!({})), plain("Error"));
}

#[test]
fn blocks_that_no_model_reads_are_refused() {
    for (block, words) in [
        (
            json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": ""}}),
            "content[0].source.type: this server takes documents as text, not as",
        ),
        (
            json!({"type": "image", "source": {"type": "url", "url": "https://a.example"}}),
            "takes images as base64",
        ),
        (json!({"type": "audio"}), "reads text and images"),
    ] {
        let body = with_result(json!({"content": [block]}));
        let reply = shared().post(
            MESSAGES,
            &with(body, json!({"model": "demo", "max_tokens": 1})),
        );
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert!(reply.body.contains(words), "{}", reply.body);
    }
}

#[test]
fn tools_of_the_service_are_left_out_beside_others() {
    let search = json!({"type": "web_search_20250305", "name": "web_search"});
    let own = json!({"name": "Read", "input_schema": {"type": "object", "properties": {}}});
    let ask = |tools: Value, choice: Value| {
        let body = json!({"model": "demo", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}],
                          "tools": tools, "tool_choice": choice});
        shared().post(MESSAGES, &body)
    };
    let reply = ask(json!([search, own]), json!({"type": "auto"}));
    assert_eq!(reply.status, 200, "{}", reply.body);
    let left_out = reply.header("x-millrace-left-out").unwrap();
    assert!(left_out.contains("web_search_20250305"), "{left_out}");
    for (tools, choice) in [
        (json!([search]), json!({"type": "auto"})),
        (
            json!([search, own]),
            json!({"type": "tool", "name": "web_search"}),
        ),
    ] {
        let reply = ask(tools, choice);
        assert_eq!(reply.status, 400);
        assert!(
            reply.body.contains("runs no tools itself"),
            "{}",
            reply.body
        );
    }
}

/// A chat in which a function was called with these arguments.
fn chat(arguments: &Value) -> Value {
    json!({"messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]},
        {"role": "tool", "tool_call_id": "c", "content": "no such call"}, {"role": "user", "content": "go on"},
    ]})
}

#[test]
fn arguments_that_were_cut_do_not_end_a_conversation() {
    let prompt =
        |arguments: &Value| shared().ask("/apply-template", &chat(arguments))["prompt"].clone();
    // A template that iterates over the arguments does not accept a text.
    let items = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}\
                 {% for k, v in c.function.arguments | items %}{{ k }}={{ v }}{% endfor %}{% endfor %}{% endfor %}\
                 {{ tools | tojson if tools }}";
    let native = native::server(items);
    for (arguments, text) in [
        (json!(""), "{}"),
        (Value::Null, "{}"),
        (json!("{}"), "{}"),
        (json!("{\"value\": "), r#""{\"value\": ""#),
        (json!("not json"), r#""not json""#),
        (json!("42"), r#""42""#),
        (json!(42), r#""42""#),
        (json!([1]), r#""[1]""#),
    ] {
        let found = prompt(&arguments);
        let found = found.as_str().unwrap();
        let call = format!("{{\"name\":\"f\",\"arguments\":{text}}}");
        assert!(found.contains(&call), "{arguments}: {found}");
        let found = native.ask("/apply-template", &chat(&arguments))["prompt"].clone();
        assert_eq!(
            found, "[user]hi[assistant]f[tool]no such call[user]go on",
            "{arguments}"
        );
    }
    let found = native.ask("/apply-template", &chat(&json!("{\"a\": 1}")))["prompt"].clone();
    assert_eq!(
        found,
        "[user]hi[assistant]fa=1[tool]no such call[user]go on"
    );
}

#[test]
fn every_api_takes_arguments_that_were_cut() {
    for arguments in [
        json!(""),
        Value::Null,
        json!("{}"),
        json!("{\"value\": "),
        json!("not json"),
        json!("42"),
        json!(42),
        json!([1]),
    ] {
        let messages = json!({"model": "demo", "max_tokens": 2, "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": arguments}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "no"}]},
        ]});
        assert_eq!(
            shared().post(MESSAGES, &messages).status,
            200,
            "{arguments}"
        );
        let items = json!({"model": "demo", "max_output_tokens": 2, "input": [
            {"role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments},
            {"type": "function_call_output", "call_id": "c", "output": "no"},
        ]});
        assert_eq!(
            shared().post("/v1/responses", &items).status,
            200,
            "{arguments}"
        );
        let body = with(
            chat(&arguments),
            json!({"model": "demo", "stream": false, "options": {"num_predict": 2}}),
        );
        assert_eq!(shared().post("/api/chat", &body).status, 200, "{arguments}");
    }
}

#[test]
fn models_are_described_for_anthropics_clients_too() {
    let list = shared().get("/v1/models?limit=20").json();
    assert_eq!(
        (&list["has_more"], &list["first_id"], &list["last_id"]),
        (&json!(false), &json!("demo"), &json!("demo"))
    );
    for model in [&list["data"][0], &shared().get("/v1/models/demo").json()] {
        assert_eq!(
            (&model["type"], &model["display_name"]),
            (&json!("model"), &json!("demo"))
        );
        let created = model["created_at"].as_str().unwrap();
        assert!(created.len() >= 20 && created.ends_with('Z'), "{created}");
        assert!(model["created"].is_u64());
    }
}

#[test]
fn a_full_context_is_told_in_the_words_that_clients_wait_for() {
    let long = "Ben went to the lake. ".repeat(400);
    let messages = json!([{"role": "user", "content": long}]);
    let body = json!({"model": "demo", "max_tokens": 4, "messages": messages, "prompt": long, "input": long,
                      "max_output_tokens": 4, "raw": true});
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/embeddings",
    ] {
        let reply = shared().post(path, &with(body.clone(), json!({"prompt": long})));
        let reply = match path {
            "/v1/responses" => shared().post(path, &json!({"model": "demo", "input": long})),
            _ => reply,
        };
        let error = reply.json()["error"].clone();
        assert_eq!(
            (reply.status, &error["code"]),
            (400, &json!("context_length_exceeded")),
            "{path}: {error}"
        );
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("maximum context length is 1024 tokens"),
            "{path}: {message}"
        );
    }
    for path in ["/api/chat", "/api/generate"] {
        let reply = shared().post(path, &body);
        assert_eq!(reply.status, 400);
        assert!(
            reply.body.contains("maximum context length"),
            "{path}: {}",
            reply.body
        );
    }
    let error = shared().post(MESSAGES, &body).json()["error"].clone();
    assert_eq!(error["type"], "invalid_request_error");
    let message = error["message"].as_str().unwrap();
    let (found, most) = message
        .strip_prefix("prompt is too long: ")
        .and_then(|rest| rest.split_once(" tokens > "))
        .unwrap_or_else(|| panic!("{message}"));
    let most = most.split(' ').next().unwrap();
    assert!(
        found.parse::<usize>().unwrap() > most.parse::<usize>().unwrap(),
        "{message}"
    );
    assert!(message.contains("tokens > 1023 maximum"), "{message}");
}
