//! Whatever a grammar lets a model write: each call that is read of it fits its schema, and there are no more than may be.

use super::*;
use crate::api::tools::tests::accepts;
use crate::grammar::Grammar;
use crate::syntax::grammar::{CallGrammar, Callable, MAX_CALLS};
use crate::syntax::lark::Marks;

/// What an answer may be.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    must_call: bool,
    is_parallel: bool,
    has_form: bool,
}

impl Held {
    const fn auto(is_parallel: bool) -> Held {
        Held {
            must_call: false,
            is_parallel,
            has_form: false,
        }
    }

    const WITH_FORM: Held = Held {
        has_form: true,
        ..Held::auto(true)
    };

    fn grammar(self, row: &CallSyntax) -> Grammar {
        let (schema, form) = (schema(), json!({"type": "object"}));
        let functions = ["weather", "time"].map(|name| Callable {
            name,
            schema: &schema,
        });
        let calls = CallGrammar {
            functions: functions.to_vec(),
            must_call: self.must_call,
            is_parallel: self.is_parallel,
            form: self.has_form.then_some(&form),
        };
        Grammar::Calls(row.grammar(&calls, &Marks::default()))
    }

    fn reader(self, row: &CallSyntax) -> AnswerReader {
        let reader = AnswerReader::new(Some(*row), None, names());
        match self.has_form {
            true => reader.beside_form(),
            false => reader,
        }
    }
}

/// An answer, whether a grammar takes it, and how many calls are read of it.
fn assert_read(name: &str, held: Held, answer: &str, (is_taken, n_calls): (bool, usize)) {
    let row = row(name);
    let is_accepted = accepts(&held.grammar(&row), answer);
    assert_eq!(is_accepted, is_taken, "{name} {held:?}: {answer}");
    let parts = read(&held.reader(&row), [answer]);
    let calls = parts
        .iter()
        .filter(|part| matches!(part, AnswerPart::Call { .. }));
    assert_eq!(calls.count(), n_calls, "{name} {held:?}: {answer}");
}

#[test]
fn behind_the_last_call_none_begins() {
    let (one, many) = (Held::auto(false), Held::auto(true));
    for name in [
        "hermes",
        "kimi k2",
        "solar",
        "glm",
        "qwen coder",
        "mistral, list",
    ] {
        let row = row(name);
        let good = written(&row, &[("weather", some())]);
        let bad = written(&row, &[("weather", json!({"city": "Oslo", "days": true}))]);
        assert_read(name, one, &format!("{good}\nDone < it"), (true, 1));
        for second in [&good, &bad] {
            let answer = format!("{good}\n{second}");
            let parts = read(&one.reader(&row), [answer.as_str()]);
            assert!(parts.len() >= 2, "{parts:?}");
            assert!(!accepts(&one.grammar(&row), &answer), "{name}: {answer}");
            let is_fine = row.open.is_empty() && second == &good;
            assert_eq!(
                accepts(&many.grammar(&row), &answer),
                is_fine,
                "{name}: {answer}"
            );
        }
        let all: Vec<(&str, Value)> = (0..=MAX_CALLS).map(|_| ("weather", some())).collect();
        assert_read(name, many, &written(&row, &all[1..]), (true, MAX_CALLS));
        let grammar = many.grammar(&row);
        assert!(!accepts(&grammar, &written(&row, &all)), "{name}");
    }
    // A mark with white space in it begins no call.
    let good = written(&row("hermes"), &[("weather", some())]);
    let spaced = "<tool _call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>";
    assert_read("hermes", one, &format!("{good}{spaced}"), (true, 1));
}

#[test]
fn bare_calls_are_held_and_other_answers_are_free() {
    let json_call =
        |arguments: &str| format!("{{\"name\": \"weather\", \"parameters\": {arguments}}}");
    let good = json_call("{\"city\": \"Rome\", \"days\": 1}");
    let bad = json_call("{\"city\": \"Oslo\"}");
    let (one, many) = (Held::auto(false), Held::auto(true));
    for (answer, held, expected) in [
        (good.clone(), one, (true, 1)),
        (format!("\n {good}"), one, (true, 1)),
        (format!("\n{bad}"), one, (false, 1)),
        (format!("{good}; {good}"), many, (true, 2)),
        (
            good.replacen("{", "{\"type\": \"function\", ", 1),
            one,
            (true, 1),
        ),
        (
            bad.replacen("{", "{\"type\": \"function\", ", 1),
            one,
            (false, 1),
        ),
        (bad.replace("\"name\"", " \"name\" "), one, (false, 1)),
        // What is no call is an answer.
        ("{\"name\": \"Ben\"}".to_owned(), one, (true, 0)),
        ("{\"sum\": [1, 2]}".to_owned(), one, (true, 0)),
        ("[1, 2]".to_owned(), one, (true, 0)),
        ("{".to_owned(), one, (true, 0)),
        ("Hello".to_owned(), one, (true, 0)),
        (format!("It is {bad}"), one, (true, 0)),
        (
            "{\"parameters\": {}, \"name\": \"weather\"}".to_owned(),
            one,
            (true, 0),
        ),
        (
            "{\"n\\u0061me\": \"weather\", \"parameters\": {}}".to_owned(),
            one,
            (true, 0),
        ),
        // Beside a form an object with both members is a call.
        (good.clone(), Held::WITH_FORM, (true, 1)),
        (bad.clone(), Held::WITH_FORM, (false, 1)),
        (
            "{\"name\": \"weather\"}".to_owned(),
            Held::WITH_FORM,
            (true, 0),
        ),
        ("{\"sum\": 1}".to_owned(), Held::WITH_FORM, (true, 0)),
    ] {
        assert_read("llama, json", held, &answer, expected);
    }
    for (answer, expected) in [
        ("[weather(city=\"Rome\", days=1)]", (true, 1)),
        ("[ weather (city=\"Rome\", days=1)]", (true, 1)),
        ("\n[weather(city=\"Oslo\", days=1)]", (false, 1)),
        ("[weather]", (true, 0)),
        ("[a link](https://example.com)", (true, 0)),
        ("[1, 2]", (true, 0)),
    ] {
        assert_read("llama, python", one, answer, expected);
    }
}

#[test]
fn texts_of_arguments_and_of_forms_are_no_marks() {
    // JSON between tags may have the tag in it.
    let tags = json!({"city": "Rome", "days": 1, "tags": ["</parameter>", "</function>"]});
    for name in ["qwen coder", "minimax m2", "kimi k3"] {
        let answer = written(&row(name), &[("weather", tags.clone())]);
        let parts = read(&Held::auto(false).reader(&row(name)), [answer.as_str()]);
        assert_eq!(parts, [call("weather", &tags)], "{name}");
        assert_read(name, Held::auto(false), &answer, (true, 1));
    }
    // A type that any word may stand for.
    let answer = written(
        &row("kimi k3"),
        &[("weather", json!({"city": "Rome", "days": 1}))],
    );
    let answer = answer.replace("\"number\"", "\"string\"");
    let parts = read(
        &Held::auto(false).reader(&row("kimi k3")),
        [answer.as_str()],
    );
    assert_eq!(
        parts,
        [call("weather", &json!({"city": "Rome", "days": 1}))]
    );
    // A text of a form that looks like a call, or like the end of a message.
    let inner = "<tool_call><function=weather></function></tool_call>";
    assert_read(
        "qwen coder",
        Held::WITH_FORM,
        &format!("{{\"a\": \"{inner}\"}}"),
        (true, 0),
    );
    let inner = "<|end|><|start|>assistant to=functions.time<|message|>{}<|end|>";
    let answer = format!("<|channel|>final<|message|>{{\"a\": \"{inner}\"}}");
    assert_read("harmony", Held::WITH_FORM, &answer, (true, 0));
    assert_read("harmony", Held::auto(false), &answer, (false, 1));
}

#[test]
fn what_is_left_out_of_an_answer_joins_no_mark() {
    let wrapper = Some(("<answer>", "</answer>"));
    let reader = AnswerReader::new(Some(row("hermes")), wrapper, names());
    let good = written(&row("hermes"), &[("weather", some())]);
    let answer = format!("<answer>Well{good}</answer>");
    let whole = [
        AnswerPart::Text("Well".to_owned()),
        call("weather", &some()),
    ];
    let split =
        "<answer><tool_</answer>call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>";
    for n in [1, 4, 400] {
        let cut = pieces(&answer, &[n]);
        assert_eq!(read(&reader, cut.iter().map(String::as_str)), whole);
        let cut = pieces(split, &[n]);
        let parts = read(&reader, cut.iter().map(String::as_str));
        assert!(matches!(&parts[..], [AnswerPart::Text(_)]), "{parts:?}");
    }
}
