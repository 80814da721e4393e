//! Bounds of templates, and the places of errors.

use super::{render, render_source};
use crate::Error;
use crate::chat::{ChatTemplate, MAX_TEMPLATE_BYTES};
use serde_json::json;

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

/// Nothing in a template takes more time or memory than the bounds allow.
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
}

#[test]
fn ranges_have_a_bound_and_small_sizes_are_rendered() {
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
