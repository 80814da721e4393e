//! For any text that a grammar allows, every call read from it fits its schema, and there are no more calls than
//! allowed.

use super::*;
use crate::api::tools::tests::{accepts, demo};
use crate::grammar::Grammar;
use crate::syntax::grammar::{CallGrammar, Callable, MAX_CALLS};
use crate::syntax::lark::Marks;
use millrace_testkit::sample;

/// The rules for an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CallRules {
    must_call: bool,
    is_parallel: bool,
    has_form: bool,
    /// Only the first of the functions may be called.
    is_named: bool,
}

impl CallRules {
    pub(super) const fn auto(is_parallel: bool) -> CallRules {
        CallRules {
            must_call: false,
            is_parallel,
            has_form: false,
            is_named: false,
        }
    }

    pub(super) const fn required(is_parallel: bool) -> CallRules {
        CallRules {
            must_call: true,
            ..CallRules::auto(is_parallel)
        }
    }

    pub(super) const NAMED: CallRules = CallRules {
        is_named: true,
        ..CallRules::required(false)
    };

    /// The functions that may be called.
    fn names(self) -> &'static [&'static str] {
        match self.is_named {
            true => &["weather"],
            false => &["weather", "time"],
        }
    }

    const WITH_FORM: CallRules = CallRules {
        has_form: true,
        ..CallRules::auto(true)
    };

    pub(super) fn grammar(self, row: &CallSyntax) -> Grammar {
        let (schema, form) = (schema(), json!({"type": "object"}));
        let functions = self.names().iter().map(|name| Callable {
            name,
            schema: &schema,
        });
        let calls = CallGrammar {
            functions: functions.collect(),
            must_call: self.must_call,
            is_parallel: self.is_parallel,
            form: self.has_form.then_some(&form),
            around: None,
        };
        Grammar::Calls(row.grammar(&calls, &Marks::default()))
    }

    pub(super) fn reader(self, row: &CallSyntax) -> AnswerReader {
        let names = self.names().iter();
        let names = Names::new(names.map(|name| ((*name).to_owned(), schema())));
        let reader = AnswerReader::new(Some(*row), None, names);
        match self.has_form {
            true => reader.beside_form(),
            false => reader,
        }
    }
}

/// Whether arguments match the [schema](schema).
fn fits(arguments: &Value) -> bool {
    let is_of = |(name, value): (&String, &Value)| match name.as_str() {
        "city" => ["Rome", "Paris"].iter().any(|city| value == city),
        "note" => value.is_string(),
        "days" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        "wet" => value.is_boolean(),
        "tags" => value
            .as_array()
            .is_some_and(|list| list.iter().all(Value::is_string)),
        _ => false,
    };
    let object = arguments.as_object().unwrap();
    object.iter().all(is_of) && object.contains_key("city") && object.contains_key("days")
}

/// Pseudo-random numbers that are the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Texts that try to produce a call that the grammar does not allow.
fn hostile_pieces(row: &CallSyntax) -> Vec<String> {
    let good = written(row, &[("weather", some())]);
    let bad = written(row, &[("weather", json!({"city": "Oslo", "days": true}))]);
    let none = written(row, &[("time", json!({}))]);
    let middle = good.len() / 2;
    let middle = (middle..).find(|at| good.is_char_boundary(*at)).unwrap();
    let spaced: String = good.chars().take(6).flat_map(|c| [c, ' ']).collect();
    let mut pieces = vec![
        good[..middle].to_owned(),
        good[middle..].to_owned(),
        format!(" {bad}"),
        format!("\n{none}"),
        format!("\u{a0}{bad}"),
        bad.replace("\"name\"", "\"n\\u0061me\""),
        bad.replace("Oslo", &row.after.replace('⟨', "")),
        spaced,
        row.open.to_owned(),
        row.close.to_owned(),
        row.before.to_owned(),
        row.again().to_owned(),
        "<|end|><|start|>assistant to=functions.time<|message|>{}<|end|>".to_owned(),
        "<|channel|>final<|message|>".to_owned(),
        "{\"note\": \"".to_owned(),
        "[{\"a\": 1}]".to_owned(),
        format!("all\nI look.{}{none}", row.between),
        format!("{0}>{0}another\n{0}{bad}", row.between),
        " \n".to_owned(),
    ];
    // More frequent than the rest.
    pieces.extend([good.clone(), good, bad.clone(), bad, none]);
    pieces
}

/// Writes random pieces as far as the grammar allows, else any token that it allows. Checks the answer wherever it
/// may end.
fn walk(
    row: &CallSyntax,
    held: CallRules,
    grammar: &Grammar,
    chance: &mut Chance,
    mut look: impl FnMut(&str),
) {
    const MAX_TOKENS: usize = 120;
    let (tokenizer, vocab_size, factory) = demo();
    let vocab_size = *vocab_size;
    let ends = tokenizer.end_of_generation();
    let pieces = hostile_pieces(row);
    let mut constraint = factory
        .compile(grammar)
        .unwrap_or_else(|error| panic!("{} {held:?}: {error}", row.name));
    let (mut bytes, mut wanted) = (Vec::new(), Vec::new().into_iter());
    for _ in 0..MAX_TOKENS {
        let mut logits = vec![0.0; vocab_size];
        constraint.mask(&mut logits).unwrap();
        if logits[ends[0] as usize] == 0.0
            && let Ok(text) = std::str::from_utf8(&bytes)
        {
            look(text);
        }
        let may = |token: &u32| logits[*token as usize] == 0.0 && !ends.contains(token);
        let next = match wanted.next().filter(may) {
            Some(token) => token,
            None => {
                let piece = &pieces[chance.below(pieces.len())];
                wanted = tokenizer.encode(piece, Default::default()).into_iter();
                match wanted.next().filter(may) {
                    Some(token) => token,
                    None => {
                        let all: Vec<u32> =
                            (0..vocab_size as u32).filter(|token| may(token)).collect();
                        if all.is_empty() {
                            return;
                        }
                        all[chance.below(all.len())]
                    }
                }
            }
        };
        bytes.extend_from_slice(&tokenizer.token_bytes(next));
        constraint.accept(next).unwrap();
    }
}

/// Checks the parts read from a complete answer of a grammar; returns the number of calls.
fn check_read(row: &CallSyntax, held: CallRules, answer: &str) -> usize {
    let most = if held.is_parallel { MAX_CALLS } else { 1 };
    let mut n_calls = 0;
    for part in read(&held.reader(row), [answer]) {
        match part {
            AnswerPart::Call { name, arguments } => {
                n_calls += 1;
                assert!(fits(&arguments), "{} {held:?}: {answer}", row.name);
                assert!(
                    held.names().contains(&&*name),
                    "{} {held:?}: {answer}",
                    row.name
                );
            }
            // In channels, messages of other kinds precede a call.
            other => assert!(
                !held.must_call || is_in_messages(row),
                "{} {held:?}: {other:?} beside calls in {answer}",
                row.name
            ),
        }
    }
    assert!(n_calls <= most, "{} {held:?}: {answer}", row.name);
    let is_missing = held.must_call && n_calls == 0;
    assert!(!is_missing, "{} {held:?}: no call in {answer}", row.name);
    n_calls
}

#[test]
fn each_call_that_a_grammar_lets_be_read_fits() {
    let n_walks = sample::whole_or(40, 1);
    let mut n_calls_read = 0;
    for row in rows() {
        for held in [
            CallRules::auto(false),
            CallRules::auto(true),
            CallRules::WITH_FORM,
            CallRules::required(false),
            CallRules::required(true),
            CallRules::NAMED,
        ] {
            let grammar = held.grammar(&row);
            let mut chance = Chance(row.name.len() as u64);
            for _ in 0..n_walks {
                walk(&row, held, &grammar, &mut chance, |answer| {
                    n_calls_read += check_read(&row, held, answer);
                });
            }
        }
    }
    assert!(n_calls_read > 100, "{n_calls_read} calls were read");
}

/// Checks whether a grammar accepts an answer, and how many calls are read from it.
fn assert_read(name: &str, held: CallRules, answer: &str, (is_taken, n_calls): (bool, usize)) {
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
    let (one, many) = (CallRules::auto(false), CallRules::auto(true));
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
    let (one, many) = (CallRules::auto(false), CallRules::auto(true));
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
        // Text that is not a call is an answer.
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
        // Beside a form, an object with both members is a call.
        (good.clone(), CallRules::WITH_FORM, (true, 1)),
        (bad.clone(), CallRules::WITH_FORM, (false, 1)),
        (
            "{\"name\": \"weather\"}".to_owned(),
            CallRules::WITH_FORM,
            (true, 0),
        ),
        ("{\"sum\": 1}".to_owned(), CallRules::WITH_FORM, (true, 0)),
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
    // JSON between tags may contain the tag.
    let tags = json!({"city": "Rome", "days": 1, "tags": ["</parameter>", "</function>"]});
    for name in ["qwen coder", "minimax m2", "kimi k3"] {
        let answer = written(&row(name), &[("weather", tags.clone())]);
        let parts = read(
            &CallRules::auto(false).reader(&row(name)),
            [answer.as_str()],
        );
        assert_eq!(parts, [call("weather", &tags)], "{name}");
        assert_read(name, CallRules::auto(false), &answer, (true, 1));
    }
    // Any word is accepted as a type.
    let answer = written(
        &row("kimi k3"),
        &[("weather", json!({"city": "Rome", "days": 1}))],
    );
    let answer = answer.replace("\"number\"", "\"string\"");
    let parts = read(
        &CallRules::auto(false).reader(&row("kimi k3")),
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
        CallRules::WITH_FORM,
        &format!("{{\"a\": \"{inner}\"}}"),
        (true, 0),
    );
    let inner = "<|end|><|start|>assistant to=functions.time<|message|>{}<|end|>";
    let answer = format!("<|channel|>final<|message|>{{\"a\": \"{inner}\"}}");
    assert_read("harmony", CallRules::WITH_FORM, &answer, (true, 0));
    assert_read("harmony", CallRules::auto(false), &answer, (false, 1));
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
