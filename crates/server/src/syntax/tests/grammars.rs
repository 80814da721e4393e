//! The grammars of rows.

use super::*;
use crate::api::tools::tests::{accepts, demo};
use crate::grammar::{Grammar, GrammarTrial, TrialReply};
use crate::syntax::grammar::{CallGrammar, Callable, channel_form};
use crate::syntax::lark::Marks;

#[test]
fn grammars_take_what_rows_write_and_nothing_else() {
    let schema = schema();
    for row in rows() {
        let marks = Marks::default();
        let functions = ["weather", "time"].map(|name| Callable {
            name,
            schema: &schema,
        });
        let grammar = |must_call| {
            let calls = CallGrammar {
                functions: functions.to_vec(),
                must_call,
                is_parallel: false,
                form: None,
                around: None,
            };
            Grammar::Calls(row.grammar(&calls, &marks))
        };
        let (auto, required) = (grammar(false), grammar(true));
        let plain = match (row.is_harmony(), row.has_recipients) {
            _ if row.is_functionary() => "all\nHello >>> there\n>>>other\n",
            (true, _) => "<|channel|>final<|message|>Hello",
            (_, true) => " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Hello",
            _ => "Hello < there",
        };
        assert!(accepts(&auto, plain), "{}", row.name);
        assert!(!accepts(&required, plain), "{}", row.name);
        let good = written(&row, &[("weather", some())]);
        let wrong_city = json!({"city": "Oslo", "days": 1});
        let no_days = json!({"city": "Rome"});
        let text_days = json!({"city": "Rome", "days": true});
        // Without an opening mark, a call of an unknown function is an answer.
        let other = written(&row, &[("another", some())]);
        assert_eq!(accepts(&auto, &other), row.is_bare, "{}: {other}", row.name);
        assert!(!accepts(&required, &other), "{}: {other}", row.name);
        for grammar in [&auto, &required] {
            assert!(accepts(grammar, &good), "{}: {good}", row.name);
            for bad in [
                written(&row, &[("weather", wrong_city.clone())]),
                written(&row, &[("weather", no_days.clone())]),
                written(&row, &[("weather", text_days.clone())]),
            ] {
                assert!(!accepts(grammar, &bad), "{}: {bad}", row.name);
            }
        }
    }
}

#[test]
fn answers_in_channels_are_of_a_form() {
    let form = Grammar::Calls(channel_form(
        "%json {\"type\": \"boolean\"}",
        &Marks::default(),
    ));
    let thought = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant";
    for (answer, is_fine) in [
        ("<|channel|>final<|message|>true".to_owned(), true),
        (format!("{thought}<|channel|>final<|message|>false"), true),
        (
            format!("{thought}{thought}<|channel|>final<|message|>false"),
            false,
        ),
        ("<|channel|>final<|message|>yes".to_owned(), false),
        ("true".to_owned(), false),
    ] {
        assert_eq!(accepts(&form, &answer), is_fine, "{answer}");
    }
}

#[test]
fn what_a_way_cannot_hold_is_told() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "pattern": "x+"}, "b": {"type": "integer", "minimum": 3},
        "c": {"type": "array", "items": {"type": "string"}, "maxItems": 2}, "d": {"enum": ["x"], "maxLength": 3},
    }});
    let json_way: &[&str] = &[];
    for (name, keywords) in [
        ("hermes", json_way),
        ("lfm 2", json_way),
        ("qwen coder", &["`pattern` of `a`"]),
        ("gemma 4", &["`pattern` of `a`", "`maxItems` of `c`"]),
    ] {
        let unheld = row(name).unheld(&schema);
        assert_eq!(unheld.len(), keywords.len(), "{name}: {unheld:?}");
        for (found, keyword) in unheld.iter().zip(keywords) {
            assert!(found.starts_with(keyword), "{name}: {found}");
        }
    }
}

/// Control tokens of the demo's vocabulary whose texts encode to them alone.
fn control_tokens() -> Vec<u32> {
    let (tokenizer, vocab_size, _) = demo();
    let ends = tokenizer.end_of_generation();
    let is_control =
        |id: &u32| tokenizer.is_special(*id) && !ends.contains(id) && Some(*id) != tokenizer.bos();
    (0..*vocab_size as u32)
        .filter(is_control)
        .filter(|id| tokenizer.encode(tokenizer.token_text(*id), SPECIAL) == [*id])
        .collect()
}

/// Whether a grammar accepts the beginning of an answer with control tokens.
fn takes(grammar: &Grammar, answer: &str) -> bool {
    let (tokenizer, vocab_size, factory) = demo();
    let mut constraint = factory.compile(grammar).unwrap();
    let mut tokens = tokenizer.encode(answer, SPECIAL).into_iter();
    tokens.all(|token| {
        let mut logits = vec![0.0; *vocab_size];
        constraint.mask(&mut logits).unwrap();
        logits[token as usize] == 0.0 && constraint.accept(token).is_ok()
    })
}

#[test]
fn control_tokens_of_a_way_are_tokens_of_its_grammar() {
    let control = control_tokens();
    let tokenizer = &demo().0;
    let [before, middle, after] = [0, 1, 2].map(|i| tokenizer.token_text(control[i]).to_owned());
    let row = CallSyntax::of_json([&before, &middle, &after, ""]);
    let marks = Marks::of(row.texts(), tokenizer);
    assert_eq!(marks.ids(), control[..3]);
    let schema = json!({"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
                        "additionalProperties": false});
    let functions = vec![Callable {
        name: "lamp",
        schema: &schema,
    }];
    for (must_call, is_parallel, answer, is_fine) in [
        (false, false, "Hello".to_owned(), true),
        (
            false,
            false,
            format!("Well. {before}lamp{middle}{{\"on\": true}}{after}"),
            true,
        ),
        (
            true,
            false,
            format!("{before}lamp{middle}{{\"on\": false}}{after}"),
            true,
        ),
        (
            false,
            true,
            format!(
                "{before}lamp{middle}{{\"on\": true}}{after}{before}lamp{middle}{{\"on\": false}}{after}"
            ),
            true,
        ),
        (
            false,
            false,
            format!("Well. {before}lamp{middle}{{\"on\": 1}}{after}"),
            false,
        ),
        (false, false, format!("Well. {before}other{middle}"), false),
        (false, false, format!("Well. {middle}"), false),
        (true, false, "Hello".to_owned(), false),
    ] {
        let calls = CallGrammar {
            functions: functions.clone(),
            must_call,
            is_parallel,
            form: None,
            around: None,
        };
        let grammar = Grammar::Calls(row.grammar(&calls, &marks));
        assert_eq!(takes(&grammar, &answer), is_fine, "{answer}");
        // The vocabulary of a trial does not have these tokens.
        let tried = GrammarTrial::of(grammar).run();
        assert!(matches!(tried, TrialReply::Passed), "{tried:?}");
    }
}

const SPECIAL: millrace_text::EncodeOptions = millrace_text::EncodeOptions {
    add_special: false,
    parse_special: true,
};

#[test]
fn control_tokens_may_stand_around_the_text_beside_calls() {
    let control = control_tokens();
    let tokenizer = &demo().0;
    let [trigger, open, close] = [0, 1, 2].map(|i| tokenizer.token_text(control[i]).to_owned());
    let row = CallSyntax::of_json([&trigger, " :: ", "!", ""]);
    let texts = row.texts().into_iter().chain([&*open, &*close]);
    let marks = Marks::of(texts, tokenizer);
    let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let functions = vec![Callable {
        name: "lamp",
        schema: &schema,
    }];
    let lamp = format!("{trigger}lamp :: {{}}!");
    for (answer, around, is_fine) in [
        (format!("{open}Hello{close}"), true, true),
        (format!("{open}Hello{close}"), false, false),
        (format!("{open}Well.{close}{lamp}"), true, true),
        (format!("{lamp}{open}Done{close}"), true, false),
        (lamp.clone(), true, true),
        (format!("Well. {lamp}"), true, true),
        (format!("{open}{lamp}"), true, true),
        (format!("{open}{open}Hello"), true, false),
    ] {
        let calls = CallGrammar {
            functions: functions.clone(),
            must_call: false,
            is_parallel: false,
            form: None,
            around: around.then_some((&*open, &*close)),
        };
        let grammar = Grammar::Calls(row.grammar(&calls, &marks));
        assert_eq!(takes(&grammar, &answer), is_fine, "{answer} {around}");
    }
}
