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

#[test]
fn default_formats() {
    for (kind, want) in [
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
    ] {
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
    for (family, want) in [
        ("qwen3", Some(DefaultTemplate::ChatMl)),
        ("gemma3_text", Some(DefaultTemplate::Gemma)),
        ("Mistral", Some(DefaultTemplate::Mistral)),
        ("llama", Some(DefaultTemplate::Llama2)),
        ("llama3", Some(DefaultTemplate::Llama3)),
        ("mamba", None),
    ] {
        assert_eq!(DefaultTemplate::for_family(family), want, "{family}");
    }
    assert!(ChatTemplate::default_for(&chatml, Some("llama")).is_some());
    assert!(ChatTemplate::default_for(&bare, Some("llama")).is_some());
    assert!(ChatTemplate::default_for(&bare, None).is_none());
}

/// As deep a nesting as sources can hold, in each way a source can nest: the engine recurses with
/// all of them.
#[test]
fn the_deepest_sources_fit_the_stack() {
    let expressions = [
        ("", "-", "1"),
        ("", "not ", "a"),
        ("", "(", ""),
        ("", "[", ""),
        ("", "{1:", ""),
        ("a", ".b", ""),
        ("a", "[0]", ""),
        ("a", "()", ""),
        ("'a'", "|e", ""),
        ("a", "~a", ""),
        ("1", "+a", ""),
        ("2", "**a", ""),
        ("a", " is a", ""),
        ("1", " if a else 1", ""),
        ("a", " and a", ""),
    ];
    for (start, unit, end) in expressions {
        let of = |chars: usize| {
            let n = (chars - 10) / unit.replace(' ', "").len();
            format!("{{{{ {start}{}{end} }}}}", unit.repeat(n))
        };
        match render_source(&of(4096), json!({})) {
            Ok(_) | Err(Error::Template { .. } | Error::Render { .. }) => {}
            Err(Error::TemplateLimit { reason, .. }) if reason.contains("recursion") => {}
            Err(other) => panic!("{unit}: {other}"),
        }
        let longer = render_source(&of(4200), json!({}));
        assert!(matches!(longer, Err(Error::TemplateLimit { .. })), "{unit}");
    }
    for (unit, end) in [
        ("{%if a%}", "{%endif%}"),
        ("{%for a in b%}", "{%endfor%}"),
        ("{%macro a()%}", "{%endmacro%}"),
        ("{%filter e%}", "{%endfilter%}"),
        ("{%set a%}", "{%endset%}"),
        ("{%with%}", "{%endwith%}"),
        ("{%if a%}{%elif a%}", ""),
    ] {
        let n = MAX_TEMPLATE_BYTES / (unit.len() + end.len());
        let closed = unit.repeat(n) + &end.repeat(n);
        let open = unit.repeat(MAX_TEMPLATE_BYTES / unit.len());
        for source in [closed, open] {
            match render_source(&source, json!({})) {
                Ok(_) | Err(Error::Template { .. } | Error::Render { .. }) => {}
                Err(other) => panic!("{unit}: {other}"),
            }
        }
    }
    let long = "a".repeat(MAX_TEMPLATE_BYTES + 1);
    let error = ChatTemplate::new("of x.gguf, key", &long, None, None).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("of x.gguf, key") && text.contains("65537"),
        "{text}"
    );
}

/// Nothing that a template may write takes more time or memory than the bounds allow.
#[test]
fn sizes_are_bounded() {
    for source in [
        "{{ 'a' * 10**9 }}",
        "{{ 'ab' * 10**12 }}",
        "{{ [1] * 10**9 }}",
        "{{ (1,) * 10**30 }}",
        "{{ 'a'.ljust(10**9) }}",
        "{{ 'a'.rjust(10**9, 'x') }}",
        "{{ 'a'.center(10**30) }}",
        "{{ 'a'.zfill(10**9) }}",
        "{{ 'a\tb'.expandtabs(10**9) }}",
        "{{ 'a' | center(10**9) }}",
        "{{ 'a' | indent(9999999999) }}",
        "{{ 'a' | indent(width=9999999999) }}",
        "{{ ('a\n' * 9000000) | indent(9000) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%99999999999d' | format(1) }}",
        "{{ '%.999999999d' | format(1) }}",
        "{{ '%.999999999f' | format(1) }}",
        "{{ '%*d' | format(999999999, 1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:.1000000000f}'.format(1.5) }}",
        "{{ '{:{w}}'.format('a', w=10**9) }}",
        "{{ ('a' * 9000000).replace('a', 'b' * 9000) }}",
        "{{ ('a' * 9000000) | replace('', 'b' * 9000) }}",
        "{{ ('b' * 9000000).join(['a'] * 9000) }}",
        "{{ (['a'] * 9000) | join('b' * 9000000) }}",
        "{{ [[]] | tojson(indent=10**9) }}",
        "{{ [1] | batch(10**9, 0) | list }}",
        "{{ [1] | slice(10**9) | list }}",
        "{{ 'aaa' | wordwrap(1, wrapstring='x' * 60000000) }}",
        "{{ strftime_now('%1000000000d') }}",
        "{{ 10**1000 }}",
        "{{ 99999999999999999999 ** 9 }}",
        "{{ '9' * 50 | int }}{{ ('9' * 50) | int }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set a = namespace(l=[1]) %}{% set b = namespace(l=[1]) %}{% for i in range(99) %}{% set a.l = [a.l, a.l] %}{% set b.l = [b.l, b.l] %}{% endfor %}{{ a.l == b.l }}",
        "{% set ns = namespace(l=(1,)) %}{% for i in range(99) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: 1} }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = [ns.l] %}{% endfor %}",
        "{% set ns = namespace(f=1) %}{% for i in range(90000) %}{% set before = ns.f %}{% macro g() %}{{ before }}{% endmacro %}{% set ns.f = g %}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(90000) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
        "{% set ns = namespace(s='a') %}{% for i in range(90000) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='a' * 9000000) %}{% for i in range(90000) %}{% set ns.t = ns.s.upper() %}{% endfor %}",
        "{% for a in [[1, 2]] * 9 recursive %}{{ loop([a, a]) }}{% endfor %}",
    ] {
        let result = render_source(source, json!({}));
        let is_limit = matches!(result, Err(Error::TemplateLimit { .. }));
        let shown = result.map(|text| text.len());
        assert!(is_limit, "{source}: {shown:?}");
    }
    // Jinja2's own bound.
    let result = render_source("{{ range(10**9) }}", json!({}));
    assert!(matches!(result, Err(Error::Render { .. })), "{result:?}");
    assert_eq!(render("{{ 'a\nb' | indent(2) }}", json!({})), "a\n  b");
    assert_eq!(
        render("{{ '%5d|%.2f' | format(1, 2) }}", json!({})),
        "    1|2.00"
    );
    assert_eq!(render("{{ 'a'.ljust(9000) | length }}", json!({})), "9000");
}

/// The line of an error is that of the construct, in text and in the tree.
#[test]
fn errors_name_their_line() {
    for (source, want) in [
        ("\n\n{{ missing.x }}", 3),
        ("\r\n\r\n{{ missing.x }}", 3),
        ("{% if true %}\n\n{{ 1 +\n none }}{% endif %}", 3),
        (
            "{% macro m() %}\n{{ none + 1 }}{% endmacro %}\n{{ m() }}",
            2,
        ),
        ("{% for i in [1] %}\n{% set a, b = i %}{% endfor %}", 2),
        ("a\n{{ 'x' | truncate(1) }}", 2),
    ] {
        match render_source(source, json!({})) {
            Err(Error::Render { line, .. }) => assert_eq!(line, want, "{source:?}"),
            other => panic!("{source:?}: {other:?}"),
        }
    }
    for (source, want) in [
        ("\n{% if true %}\n", 2),
        ("\n\n{{ 1 | nosuch }}", 3),
        ("\n{{ 'a\n' }}{{ }}", 3),
        ("{#\n", 1),
        ("\n{% raw %}\n", 2),
        ("\n{{ $ }}", 2),
    ] {
        match render_source(source, json!({})) {
            Err(Error::Template { line, .. }) => assert_eq!(line, want, "{source:?}"),
            other => panic!("{source:?}: {other:?}"),
        }
    }
}
