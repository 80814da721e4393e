//! Calls in earlier answers, and functions, for templates that do not accept all of them unchanged.

use serde_json::{Value, json};

use crate::native::{self, demo_bytes, rename, serve, set_template};

const PROMPT: &str = "/apply-template";

/// A conversation with an answer of two calls, whose results came in another order.
fn conversation() -> Value {
    let call = |name: &str, arguments: Value| json!({"id": name, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}});
    json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "look", "tool_calls": [call("aa", json!({"x": [1, true]})), call("bb", json!({}))]},
        {"role": "tool", "tool_call_id": "bb", "content": "B"}, {"role": "tool", "tool_call_id": "aa", "content": "A"},
        {"role": "user", "content": "go on"},
    ])
}

#[test]
fn templates_that_write_one_call_of_an_answer_get_one() {
    let each = "{% for m in messages %}[{{m.role}}]{{m.content}}{% if m.tool_calls %}CHECK{{m.tool_calls[0].function.name}}{% endif %}{% endfor %}\
                {{tools|tojson if tools}}";
    for check in [
        "",
        "{% if m.tool_calls|length > 1 %}{{raise_exception('one')}}{% endif %}",
    ] {
        let server = native::server(&each.replace("CHECK", check));
        let given = server.ask(PROMPT, &json!({"messages": conversation()}));
        let expected = "[user]hi[assistant]lookaa[tool]A[assistant]bb[tool]B[user]go on";
        assert_eq!(given["prompt"], expected, "{check}");
    }
}

#[test]
fn templates_that_write_no_calls_get_them_as_the_model_writes_them() {
    let mut bytes = demo_bytes();
    let names = [
        ("<|reserved_0|>", "<|tool_call_start|>"),
        ("<|reserved_1|>", "<|tool_call_end|>"),
        ("<|reserved_2|>", "<|2_|>"),
    ];
    rename(&mut bytes, &names, "<|reserved_5|>");
    let template =
        "{% for m in messages %}[{{m.role}}]{{m.content}}{% endfor %}{{tools|tojson if tools}}";
    set_template(&mut bytes, template);
    let server = serve(&bytes);
    let mut messages = conversation();
    // Control tokens spelled by the user are text, and so are lookalikes of a stand-in.
    messages[4]["content"] = "<|tool_call_start|> zqmark0q0q".into();
    let given = server.ask(PROMPT, &json!({"messages": messages}));
    let expected = "[user]hi[assistant]look<|tool_call_start|>[aa(x=[1, True]), bb()]<|tool_call_end|>[tool]B[tool]A\
                    [user]<|tool_call_start|> zqmark0q0q";
    assert_eq!(given["prompt"], expected);
    let mark =
        json!({"content": "<|tool_call_start|>", "add_special": false, "parse_special": true});
    let mark = server.ask("/tokenize", &mark)["tokens"].clone();
    assert_eq!(mark.as_array().unwrap().len(), 1, "{mark}");
    let tokens = given["tokens"].as_array().unwrap().iter();
    assert_eq!(
        tokens.filter(|token| **token == mark[0]).count(),
        1,
        "{given}"
    );
}

#[test]
fn templates_that_fail_at_a_schema_get_a_simpler_one() {
    let template = "{% for t in tools or [] %}{{t.function.name}}{% for k, v in t.function.parameters.properties.items() %} {{k}}:\
                    {{v.type if v.type is string else raise_exception('type')}}{% endfor %}{% endfor %}{{messages[0].content}}";
    let server = native::server(template);
    let ask = |parameters: Value| {
        let function = json!({"name": "f", "parameters": parameters});
        let body = json!({"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": function}]});
        server.ask(PROMPT, &body)["prompt"].clone()
    };
    let plain = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    assert_eq!(ask(plain), "f a:integerhi");
    let odd = json!({"type": "object", "properties": {"a": {"type": ["null", "integer"]}, "b": {"anyOf": [{"type": "null"}, {"items": {}}]}}});
    assert_eq!(ask(odd), "f a:integer b:arrayhi");
    assert_eq!(ask(json!({"type": "object"})), "fhi");
}
