//! Chat templates: the environment, the errors, the defaults. Real templates are compared with
//! Jinja's output in `tests/chat_goldens.rs`.

use super::*;
use crate::GgufVocab;
use serde_json::json;

fn render(source: &str, variables: Value) -> String {
    render_source(source, variables).unwrap()
}

#[test]
fn values_print_as_in_python() {
    let variables =
        json!({"x": {"a": [1, 1.5, true, null, "it's", "\"q\"'\n"]}, "f": 1e16, "g": 1e-5});
    assert_eq!(
        render("{{ x }}", variables.clone()),
        r#"{'a': [1, 1.5, True, None, "it's", '"q"\'\n']}"#
    );
    assert_eq!(
        render("{{ f }} {{ g }} {{ 2.0 }} {{ none }} {{ true }}", variables),
        "1e+16 1e-05 2.0 None True"
    );
    assert_eq!(
        render("{{ ('a',) }}{{ {} }}{{ [] }}", json!({})),
        "('a',){}[]"
    );
}

#[test]
fn to_json_writes_what_json_dumps_writes() {
    let variables = json!({"x": {"b": [1, 2.0, "é<'\u{1}\u{7F}🦙"], "a": {}, "c": null}});
    for (source, want) in [
        (
            "{{ x | tojson }}",
            "{\"b\": [1, 2.0, \"é<'\\u0001\u{7F}🦙\"], \"a\": {}, \"c\": null}",
        ),
        (
            "{{ x | tojson(ensure_ascii=true, sort_keys=true) }}",
            r#"{"a": {}, "b": [1, 2.0, "\u00e9<'\u0001\u007f\ud83e\udd99"], "c": null}"#,
        ),
        ("{{ x.b[:2] | tojson(indent=2) }}", "[\n  1,\n  2.0\n]"),
        ("{{ x.a | tojson(indent=4) }}", "{}"),
        ("{{ x.b[:2] | tojson(separators=(',', ':')) }}", "[1,2.0]"),
        (
            "{{ {1: true, none: 2} | tojson }}",
            r#"{"1": true, "null": 2}"#,
        ),
    ] {
        assert_eq!(render(source, variables.clone()), want, "{source}");
    }
    let error = render_source("{{ nothing | tojson }}", json!({}))
        .unwrap_err()
        .to_string();
    assert!(error.contains("not JSON serializable"), "{error}");
}

#[test]
fn functions_filters_and_tags() {
    for (source, want) in [
        ("{{ strftime_now('%d %b %Y') }}", "09 Sep 2001"),
        (
            "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "013",
        ),
        (
            "{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
            "3",
        ),
        (
            "{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x is defined }}",
            "1False",
        ),
        (
            "{{ 'a b'.split()[-1].upper() }}{{ ' x '.strip() }}{{ {'a': 1}.get('b', 2) }}",
            "Bx2",
        ),
        ("  {% if true %}\n a\n  {% endif %}\nb\n", " a\nb"),
        (
            "{{ 'x' is iterable }}{{ 'x' is sequence }}{{ {} is sequence }}{{ 1 is iterable }}",
            "TrueTrueTrueFalse",
        ),
        (
            "{{ bos_token }}{{ eos_token }}{{ tools is none }}{{ documents is none }}{{ missing }}",
            "<s></s>TrueTrue",
        ),
        (
            "{% macro m(a, b='c') %}{{ a }}{{ b }}{% endmacro %}{{ m('x') }}{{ m('x', b='y') }}",
            "xcxy",
        ),
        ("<&'\">{{ '<&' }}", "<&'\"><&"),
    ] {
        assert_eq!(render(source, json!({})), want, "{source}");
    }
}

#[test]
fn refusals_and_failures_are_told_apart() {
    let refused = render_source("{{ raise_exception('roles must alternate') }}", json!({}));
    assert!(matches!(refused, Err(Error::Refused(reason)) if reason == "roles must alternate"));
    let nested = "{% macro m() %}{{ raise_exception('no') }}{% endmacro %}{{ m() }}";
    assert!(
        matches!(render_source(nested, json!({})), Err(Error::Refused(reason)) if reason == "no")
    );
    let failed = render_source("\n{{ missing.field }}", json!({}));
    assert!(
        matches!(failed, Err(Error::Render { line: 2, .. })),
        "{failed:?}"
    );
    let syntax = render_source("a\n\n{% if %}", json!({}));
    assert!(
        matches!(syntax, Err(Error::Template { line: 3, .. })),
        "{syntax:?}"
    );
}

#[test]
fn templates_without_an_end_are_stopped() {
    let nested =
        "{% for a in range(90000) %}{% for b in range(90000) %}{{ '' }}{% endfor %}{% endfor %}";
    assert!(matches!(
        render_source(nested, json!({})),
        Err(Error::TemplateLimit { .. })
    ));
    let recursive = "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}";
    assert!(render_source(recursive, json!({})).is_err());
    let long = "{% for a in range(90000) %}{{ 'x' * 90000 }}{% endfor %}";
    let error = render_source(long, json!({})).unwrap_err();
    assert!(matches!(error, Error::TemplateLimit { .. }), "{error}");
}

#[test]
fn named_templates_are_chosen_by_tools_and_by_name() {
    let config = json!({"bos_token": {"content": "<b>"}, "eos_token": "</b>", "chat_template": [
        {"name": "default", "template": "{{ bos_token }}plain"},
        {"name": "tool_use", "template": "tools{{ eos_token }}"},
        {"name": "rag", "template": "rag"}]});
    let template = ChatTemplate::from_hf("test", Some(&config), None)
        .unwrap()
        .unwrap();
    assert_eq!(template.names(), ["default", "rag", "tool_use"]);
    let render = |options: &RenderOptions| template.render(&[], options);
    assert_eq!(render(&RenderOptions::default()).unwrap(), "<b>plain");
    let tools = RenderOptions {
        tools: Some(json!([])),
        ..Default::default()
    };
    assert_eq!(render(&tools).unwrap(), "tools</b>");
    let named = |name: &str| RenderOptions {
        template: Some(name.to_owned()),
        ..Default::default()
    };
    assert_eq!(render(&named("rag")).unwrap(), "rag");
    let error = render(&named("other")).unwrap_err().to_string();
    assert!(error.contains("other") && error.contains("rag"), "{error}");
}

#[test]
fn folders_without_a_template_or_with_a_wrong_one() {
    let from = |config: Value, source| ChatTemplate::from_hf("test", Some(&config), source);
    assert!(ChatTemplate::from_hf("test", None, None).unwrap().is_none());
    assert!(
        from(json!({"chat_template": null}), None)
            .unwrap()
            .is_none()
    );
    for wrong in [json!(1), json!([1]), json!([{"name": "x"}])] {
        assert!(from(json!({"chat_template": wrong}), None).is_err());
    }
    // The file takes precedence.
    let config = json!({"chat_template": "config", "bos_token": "<b>"});
    let template = from(config, Some("{{ bos_token }}file")).unwrap().unwrap();
    assert_eq!(
        template.render(&[], &RenderOptions::default()).unwrap(),
        "<b>file"
    );
}

#[test]
fn messages_are_json() {
    let text =
        r#"{"role": "assistant", "content": null, "tool_calls": [{"id": 1}], "reasoning": "hm"}"#;
    let message: Message = serde_json::from_str(text).unwrap();
    assert_eq!((message.content.as_str(), message.fields.len()), ("", 2));
    let source = "{{ messages[0].tool_calls[0].id }}{{ messages[0].reasoning_content }}{{ messages[0].thinking }}";
    let template = ChatTemplate::new("test", source, None, None).unwrap();
    assert_eq!(
        template
            .render(&[message], &RenderOptions::default())
            .unwrap(),
        "1hmhm"
    );
    let parts = json!([{"role": "user", "content": [{"type": "text", "text": "hi"}]}]);
    let template =
        ChatTemplate::new("test", "{{ messages[0].content[0].text }}", None, None).unwrap();
    assert_eq!(
        template
            .render_json(&parts, &RenderOptions::default())
            .unwrap(),
        "hi"
    );
}

fn conversation() -> Vec<Message> {
    vec![
        Message::system("Be kind."),
        Message::user("Hi "),
        Message::assistant(" Hello."),
        Message::user("Bye"),
    ]
}

/// The conversation in every default template.
const DEFAULT_FORMATS: [(DefaultTemplate, &str); 9] = [
    (
        DefaultTemplate::ChatMl,
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi <|im_end|>\n<|im_start|>assistant\n \
             Hello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
    ),
    (
        DefaultTemplate::Llama3,
        "<s><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|><|start_header_id|>user\
             <|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>\
             <|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant\
             <|end_header_id|>\n\n",
    ),
    (
        DefaultTemplate::Gemma,
        "<s><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n\
             <start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
    ),
    (
        DefaultTemplate::Mistral,
        "<s>[INST] Be kind.\n\nHi [/INST] Hello.</s>[INST] Bye[/INST]",
    ),
    (
        DefaultTemplate::Llama2,
        "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST] Hello. </s><s>[INST] Bye [/INST]",
    ),
    (
        DefaultTemplate::Phi3,
        "<|system|>\nBe kind.<|end|>\n<|user|>\nHi <|end|>\n<|assistant|>\n Hello.<|end|>\n<|user|>\nBye<|end|>\n\
             <|assistant|>\n",
    ),
    (
        DefaultTemplate::Granite,
        "<|start_of_role|>system<|end_of_role|>Be kind.<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Hi \
             <|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|> Hello.<|end_of_text|>\n<|start_of_role|>user\
             <|end_of_role|>Bye<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
    ),
    (
        DefaultTemplate::DeepSeek,
        "<s>Be kind.<｜User｜>Hi <｜Assistant｜> Hello.<｜end▁of▁sentence｜><｜User｜>Bye<｜Assistant｜>",
    ),
    (
        DefaultTemplate::CommandR,
        "<s><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be kind.<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|>\
             <|USER_TOKEN|>Hi<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Hello.\
             <|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Bye<|END_OF_TURN_TOKEN|>\
             <|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    ),
];

#[test]
fn default_formats() {
    for (kind, want) in DEFAULT_FORMATS {
        let template = ChatTemplate::new("test", kind.source(), Some("<s>"), Some("</s>")).unwrap();
        let options = RenderOptions {
            add_generation_prompt: true,
            ..Default::default()
        };
        assert_eq!(
            template.render(&conversation(), &options).unwrap(),
            want,
            "{kind:?}"
        );
        // A vocabulary without such tokens leaves them out.
        assert!(
            ChatTemplate::new("test", kind.source(), None, None)
                .unwrap()
                .render(&conversation(), &options)
                .is_ok()
        );
    }
}

#[test]
fn defaults_follow_the_vocabulary_then_the_family() {
    let tokenizer = |tokens: Vec<&'static str>| {
        let token_types = tokens
            .iter()
            .map(|t| if t.len() > 1 { 3 } else { 1 })
            .collect();
        let scores = vec![0.0; tokens.len()];
        let vocab = GgufVocab {
            model: "llama",
            tokens,
            scores,
            token_types,
            ..GgufVocab::default()
        };
        Tokenizer::from_gguf(vocab).unwrap()
    };
    let chatml = tokenizer(vec!["a", "<|im_start|>", "<|im_end|>"]);
    let bare = tokenizer(vec!["a", "b", "c"]);
    assert_eq!(
        DefaultTemplate::for_vocabulary(&chatml),
        Some(DefaultTemplate::ChatMl)
    );
    assert_eq!(DefaultTemplate::for_vocabulary(&bare), None);
    for (markers, want) in [
        (["<|user|>", "<|end|>"], DefaultTemplate::Phi3),
        (
            ["<|start_of_role|>", "<|end_of_role|>"],
            DefaultTemplate::Granite,
        ),
        (["<｜User｜>", "<｜Assistant｜>"], DefaultTemplate::DeepSeek),
        (
            ["<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"],
            DefaultTemplate::CommandR,
        ),
    ] {
        let marked = tokenizer(vec!["a", markers[0], markers[1]]);
        assert_eq!(DefaultTemplate::for_vocabulary(&marked), Some(want));
    }
    for (family, want) in [
        ("qwen3", Some(DefaultTemplate::ChatMl)),
        ("gemma3_text", Some(DefaultTemplate::Gemma)),
        ("Mistral", Some(DefaultTemplate::Mistral)),
        ("llama", Some(DefaultTemplate::Llama2)),
        ("llama3", Some(DefaultTemplate::Llama3)),
        ("phi3", Some(DefaultTemplate::Phi3)),
        ("granitemoe", Some(DefaultTemplate::Granite)),
        ("command-r", Some(DefaultTemplate::CommandR)),
        ("cohere2", Some(DefaultTemplate::CommandR)),
        ("deepseek_v3", Some(DefaultTemplate::DeepSeek)),
        ("mamba", None),
    ] {
        assert_eq!(DefaultTemplate::for_family(family), want, "{family}");
    }
    assert!(ChatTemplate::default_for(&chatml, Some("llama")).is_some());
    assert!(ChatTemplate::default_for(&bare, Some("llama")).is_some());
    assert!(ChatTemplate::default_for(&bare, None).is_none());
}

mod bounds;
