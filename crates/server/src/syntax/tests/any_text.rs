//! Calls with texts that are easily misread: each is accepted by its grammars and read back unchanged.

use super::held::CallRules;
use super::*;
use crate::api::tools::tests::accepts;
use millrace_testkit::sample;

/// Arguments with a text that is easily misread.
fn texts() -> impl Iterator<Item = Value> {
    let texts = [
        "",
        " spaced ",
        "two\nlines\n",
        "\"quoted\"",
        "it's 'so'",
        "</b> <b>",
        "é🦙 雨",
        "42",
        "true",
        "null",
        "{a: 1}",
        "[1",
        "\\n \\",
        "<![CDATA[x]]>",
        "a, b=2)",
        "\t",
    ];
    let arguments = |text: &str| json!({"city": "Paris", "note": text, "days": -7, "wet": false, "tags": [text, "x"]});
    texts.into_iter().map(arguments)
}

#[test]
fn what_is_written_of_any_text_is_taken_and_read() {
    // A sixteenth for each syntax, unless all are requested: each text is tried with some.
    for (i, row) in rows().enumerate() {
        let grammars = [
            CallRules::auto(true),
            CallRules::required(true),
            CallRules::NAMED,
        ];
        let held = grammars.map(|held| (held, held.grammar(&row)));
        for arguments in sample::part(texts(), 16, i) {
            let own = |text: &str| text.to_owned();
            let calls = [("weather", &arguments)];
            // In channels, each call of an answer is a separate message.
            let text = match row.written(&calls, &own) {
                Some(text) => text,
                None => written(&row, &[("weather", arguments.clone())]),
            };
            for (held, grammar) in &held {
                assert!(accepts(grammar, &text), "{} {held:?}: {text}", row.name);
                for n_chars in [1, 5, text.len()] {
                    let cut = pieces(&text, &[n_chars]);
                    let found = read(&held.reader(&row), cut.iter().map(String::as_str));
                    assert_eq!(found, [call("weather", &arguments)], "{}: {text}", row.name);
                }
            }
            let other = json!({"city": "Rome", "days": 0});
            let calls = [("weather", &arguments), ("time", &other)];
            if let Some(text) = row.written(&calls, &own) {
                let (held, grammar) = &held[1];
                assert!(accepts(grammar, &text), "{} {held:?}: {text}", row.name);
                let both = [call("weather", &arguments), call("time", &other)];
                assert_eq!(
                    read(&held.reader(&row), [text.as_str()]),
                    both,
                    "{}: {text}",
                    row.name
                );
            }
        }
    }
}
