//! Output forms and function calls in chat completions.

use serde_json::{Value, json};

use crate::{question, shared, with};

const CHAT: &str = "/v1/chat/completions";

fn tools() -> Value {
    let city = json!({"type": "object", "properties": {"city": {"enum": ["Rome", "Paris"]}}, "required": ["city"],
                      "additionalProperties": false});
    let tool = |name: &str| {
        json!({"type": "function", "function": {
        "name": name, "description": "It tells.", "parameters": city}})
    };
    json!([tool("weather"), tool("time")])
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

#[test]
fn json_is_json() {
    let schema = json!({"type": "object", "properties": {
        "sum": {"type": "integer", "minimum": 0, "maximum": 50}, "sure": {"type": "boolean"}},
        "required": ["sum", "sure"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "sum", "schema": schema, "strict": true}});
    for temperature in [0.0, 1.0, 3.0] {
        let body = with(
            question("What is 7 plus 5?"),
            json!({"response_format": format, "temperature": temperature, "max_tokens": 60}),
        );
        let answer = shared().ask(CHAT, &body);
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        let value: Value = serde_json::from_str(content(&answer)).unwrap();
        assert!((0..=50).contains(&value["sum"].as_i64().unwrap()) && value["sure"].is_boolean());
    }
    let body = with(
        question("What is 7 plus 5?"),
        json!({"response_format": {"type": "json_object"}, "max_tokens": 40, "temperature": 1}),
    );
    assert!(content(&shared().ask(CHAT, &body)).starts_with('{'));
    let bad =
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "banana"}}});
    let reply = shared().post(CHAT, &with(question("Hi"), json!({"response_format": bad})));
    assert_eq!(reply.status, 400);
    assert!(
        reply.body.contains("the grammar cannot hold `type`"),
        "{}",
        reply.body
    );
}

#[test]
fn other_forms_go_by_vllms_name() {
    let ask = |outputs: Value| {
        let body = with(
            question("What is 7 plus 5?"),
            json!({"structured_outputs": outputs, "max_tokens": 30}),
        );
        content(&shared().ask(CHAT, &body)).to_owned()
    };
    assert!(["yes", "no \"or\""].contains(&ask(json!({"choice": ["yes", "no \"or\""]})).as_str()));
    let number = ask(json!({"regex": "[0-9]{4}"}));
    assert!(
        number.len() == 4 && number.parse::<u32>().is_ok(),
        "{number}"
    );
    assert_eq!(ask(json!({"grammar": "start: \"abc\""})), "abc");
}

#[test]
fn a_required_call_is_made_and_told() {
    let ask = with(
        question("Weather?"),
        json!({"tools": tools(), "tool_choice": "required",
                                                "parallel_tool_calls": false, "max_tokens": 300}),
    );
    let answer = shared().ask(CHAT, &ask);
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    assert_eq!(choice["message"]["content"], Value::Null);
    let call = &choice["message"]["tool_calls"][0];
    assert!(["weather", "time"].contains(&call["function"]["name"].as_str().unwrap()));
    let arguments: Value =
        serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert!(["Rome", "Paris"].contains(&arguments["city"].as_str().unwrap()));

    let chunks = shared()
        .post(CHAT, &with(ask, json!({"stream": true})))
        .chunks();
    let calls: Vec<&Value> = chunks
        .iter()
        .filter_map(|c| c["choices"][0]["delta"]["tool_calls"].get(0))
        .collect();
    // The name comes first, and then the arguments in pieces.
    assert_eq!(calls[0]["function"]["name"], call["function"]["name"]);
    assert_eq!(calls[0]["function"]["arguments"], "");
    assert!(calls[0]["id"].is_string());
    assert!(calls.len() > 3, "{calls:?}");
    assert!(calls[1..].iter().all(|call| call["id"].is_null()));
    assert!(calls.iter().all(|call| call["index"] == 0));
    let pieces = calls
        .iter()
        .map(|call| call["function"]["arguments"].as_str().unwrap());
    assert_eq!(
        pieces.collect::<String>(),
        call["function"]["arguments"].as_str().unwrap()
    );
    let reasons = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str());
    assert_eq!(reasons.collect::<Vec<_>>(), ["tool_calls"]);
}

#[test]
fn a_call_that_is_cut_is_never_complete() {
    let ask = with(
        question("Weather?"),
        json!({"tools": tools(), "tool_choice": "required", "stream": true}),
    );
    // With some of these limits, the call has begun but not ended.
    let mut n_begun = 0;
    for max_tokens in [20, 30, 40, 50, 60] {
        let ask = with(ask.clone(), json!({"max_tokens": max_tokens}));
        let chunks = shared().post(CHAT, &ask).chunks();
        let deltas = || chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
        let calls = deltas().filter_map(|delta| delta["tool_calls"].get(0));
        let pieces = calls.map(|call| call["function"]["arguments"].as_str().unwrap());
        let arguments: Vec<&str> = pieces.collect();
        let reasons = chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str());
        let reasons: Vec<&str> = reasons.collect();
        if arguments.is_empty() || reasons == ["tool_calls"] {
            continue;
        }
        n_begun += 1;
        assert!(serde_json::from_str::<Value>(&arguments.concat()).is_err());
        assert!(deltas().all(|delta| delta["content"].as_str().unwrap_or("").is_empty()));
        assert_eq!(reasons, ["length"]);
    }
    assert!(n_begun > 0);
}

#[test]
fn a_named_function_is_the_one_that_is_called() {
    for name in ["weather", "time"] {
        let choice = json!({"type": "function", "function": {"name": name}});
        let ask = with(
            question("Hello"),
            json!({"tools": tools(), "tool_choice": choice, "temperature": 1,
                                                 "parallel_tool_calls": false, "max_tokens": 300}),
        );
        let answer = shared().ask(CHAT, &ask);
        assert_eq!(
            answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"],
            name
        );
    }
    let choice = json!({"type": "function", "function": {"name": "other"}});
    let reply = shared().post(
        CHAT,
        &with(
            question("x"),
            json!({"tools": tools(), "tool_choice": choice}),
        ),
    );
    assert_eq!(reply.status, 400);
}

#[test]
fn forms_that_cannot_be_are_told_in_words() {
    let schema = |schema: serde_json::Value| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}});
    let functions = |parameters: serde_json::Value| json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}]});
    let long = "x".repeat(100_000);
    for (form, words) in [
        (schema(json!({"$ref": "#"})), "no text is of this form"),
        (
            schema(json!({"$ref": "file:///etc/passwd"})),
            "the grammar cannot hold `$ref`",
        ),
        (
            schema(json!({"properties": {long.as_str(): {}}})),
            "the JSON schema has 1000",
        ),
        (
            functions(json!(5)),
            "tools[0].function.parameters: expected a JSON schema",
        ),
        (
            functions(json!({"type": "object", "properties": {long.as_str(): {}}})),
            "tools[0].function.parameters: the schema of `f` has",
        ),
        (
            json!({"structured_outputs": {"regex": "("}}),
            "regular expression cannot be used",
        ),
    ] {
        let reply = shared().post(CHAT, &with(question("x"), form));
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert!(reply.body.contains(words), "{}", reply.body);
        assert!(!reply.body.contains("verbose"), "{}", reply.body);
    }
}

#[test]
fn a_call_that_was_cut_is_no_call() {
    let ask = with(
        question("Weather?"),
        json!({"tools": tools(), "tool_choice": "required", "max_tokens": 12}),
    );
    let choice = shared().ask(CHAT, &ask)["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "length");
    assert!(choice["message"].get("tool_calls").is_none(), "{choice}");
    assert!(
        choice["message"]["content"]
            .as_str()
            .unwrap()
            .starts_with("<tool_call>"),
        "{choice}"
    );
}

#[test]
fn without_a_choice_the_model_may_just_answer() {
    for choice in ["auto", "none"] {
        let ask = with(
            question("What is 7 plus 5?"),
            json!({"tools": tools(), "tool_choice": choice,
                                                             "max_tokens": 20}),
        );
        let answer = shared().ask(CHAT, &ask);
        assert!(!content(&answer).is_empty(), "{answer}");
    }
}

/// Objects with a sum of two digits.
fn sum_schema() -> Value {
    json!({"type": "object", "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 99}},
           "required": ["sum"], "additionalProperties": false})
}

/// An answer either has the form or calls a function.
#[test]
fn functions_and_a_form_go_together() {
    let chat = with(
        question("What is 7 plus 5?"),
        json!({"tools": tools(), "max_tokens": 200, "response_format": {
            "type": "json_schema", "json_schema": {"name": "o", "strict": true, "schema": sum_schema()}}}),
    );
    let token =
        |text: &str| shared().ask("/tokenize", &json!({"content": text}))["tokens"][0].to_string();
    // The first token decides which.
    for (first, is_call) in [("{", false), ("<", true)] {
        let biased = with(
            chat.clone(),
            json!({"logit_bias": {token(first): 60}, "parallel_tool_calls": false}),
        );
        let choice = shared().ask(CHAT, &biased)["choices"][0].clone();
        match is_call {
            true => {
                assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
                let call = &choice["message"]["tool_calls"][0]["function"];
                assert!(["weather", "time"].contains(&call["name"].as_str().unwrap()));
            }
            false => {
                let text = choice["message"]["content"].as_str().unwrap();
                let value: Value = serde_json::from_str(text).unwrap();
                assert!(
                    (0..100).contains(&value["sum"].as_i64().unwrap()),
                    "{value}"
                );
            }
        }
    }
    let required = with(
        chat,
        json!({"tool_choice": "required", "parallel_tool_calls": false}),
    );
    let choice = shared().ask(CHAT, &required)["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
}

#[test]
fn every_api_takes_functions_with_a_form() {
    let schema = sum_schema();
    let named = json!({"type": "json_schema", "name": "o", "schema": schema});
    let own = json!([{"name": "f", "input_schema": {"type": "object", "properties": {}}}]);
    let flat = json!([{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]);
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (path, body) in [
        (
            "/v1/responses",
            json!({"input": "hi", "tools": flat, "text": {"format": named}, "max_output_tokens": 60}),
        ),
        (
            "/v1/messages",
            json!({"messages": messages, "tools": own, "output_config": {"format": named}, "max_tokens": 60}),
        ),
        (
            "/api/chat",
            json!({"messages": messages, "tools": tools(), "format": schema, "stream": false}),
        ),
        (
            "/api/chat",
            json!({"messages": messages, "tools": tools(), "format": "json", "stream": false,
                             "options": {"num_predict": 30}}),
        ),
    ] {
        let reply = shared().post(path, &with(body, json!({"model": "demo"})));
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    }
}

/// An error names the field as written in the request.
#[test]
fn forms_that_are_wrong_are_named_as_they_came() {
    let bad = json!({"type": "object", "propertyNames": {"maxLength": 3}});
    let named = json!({"type": "json_schema", "name": "o", "schema": bad});
    let messages = json!([{"role": "user", "content": "hi"}]);
    let flat = json!([{"type": "function", "name": "f"}]);
    let own = json!([{"name": "f", "input_schema": {"type": "object", "properties": {}}}]);
    for tools in [false, true] {
        let offered = |list: &Value| if tools { list.clone() } else { Value::Null };
        for (path, body, field) in [
            (
                "/v1/responses",
                json!({"input": "hi", "text": {"format": named}, "tools": offered(&flat)}),
                "text.format.schema",
            ),
            (
                "/v1/messages",
                json!({"messages": messages, "output_config": {"format": named}, "max_tokens": 2, "tools": offered(&own)}),
                "output_config.format.schema",
            ),
            (
                "/api/chat",
                json!({"messages": messages, "format": bad, "tools": offered(&flat)}),
                "format: ",
            ),
            (
                "/v1/chat/completions",
                json!({"messages": messages, "structured_outputs": {"json": bad}, "tools": offered(&flat)}),
                "structured_outputs.json",
            ),
        ] {
            let reply = shared().post(path, &with(body, json!({"model": "demo"})));
            assert_eq!(reply.status, 400, "{path}: {}", reply.body);
            assert!(
                reply.body.contains(field) && reply.body.contains("propertyNames"),
                "{path}: {}",
                reply.body
            );
        }
    }
    // Forms other than JSON cannot be combined with calls.
    let body = json!({"tools": tools(), "structured_outputs": {"regex": "[0-9]+"}});
    let reply = shared().post(CHAT, &with(question("x"), body));
    assert_eq!(
        reply.json()["error"]["param"],
        "structured_outputs.regex",
        "{}",
        reply.body
    );
}
