//! Answers keep to forms that the model would never produce itself.

use millrace_runtime::{Finish, Phase, Thinking};
use millrace_server::grammar::Grammar;
use millrace_server::scheduler::SchedulerOptions;
use serde_json::{Value, json};

use crate::engines::options;
use crate::{chat, sampled, start, wait};

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": {"enum": ["Paris", "Rome"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 30},
            "warm": {"type": "boolean"},
            "note": {"type": "string", "maxLength": 12},
        },
        "required": ["city", "days", "warm", "note"],
        "additionalProperties": false,
    })
}

#[test]
fn json_of_a_schema_is_of_the_schema_at_any_temperature() {
    let (scheduler, _) = start(options(), SchedulerOptions::default());
    let jobs: Vec<_> = (0..8)
        .map(|seed| {
            let mut job = sampled(chat("What is 7 plus 5?"), 200, seed);
            job.params.sampling.temperature = 0.4 * seed as f32;
            job.grammar = Some(Grammar::JsonSchema(schema()));
            scheduler.submit(job).unwrap()
        })
        .collect();
    // Beside an unconstrained one.
    let mut free = scheduler
        .submit(crate::job(chat("What is 7 plus 5?"), 40))
        .unwrap();
    for mut receiver in jobs {
        let answer = &wait(&mut receiver).unwrap().answers[0];
        assert_eq!(answer.finish, Finish::Stop);
        let value: Value = serde_json::from_str(&answer.text).expect(&answer.text);
        assert!(["Paris", "Rome"].contains(&value["city"].as_str().unwrap()));
        assert!((1..=30).contains(&value["days"].as_i64().unwrap()));
        assert!(value["warm"].is_boolean());
        assert!(value["note"].as_str().unwrap().chars().count() <= 12);
        assert_eq!(value.as_object().unwrap().len(), 4);
    }
    assert_eq!(wait(&mut free).unwrap().answers[0].text, "7 plus 5 is 12.");
}

#[test]
fn regular_expressions_and_grammars_too() {
    let (scheduler, _) = start(options(), SchedulerOptions::default());
    for (grammar, expected) in [
        (Grammar::Regex("[0-9]{3}-(yes|no)".to_owned()), 7..=8),
        (
            Grammar::Lark("start: \"a\" (\"b\" | \"c\")+ \"d\"".to_owned()),
            3..=200,
        ),
    ] {
        let mut job = sampled(chat("What is 7 plus 5?"), 200, 3);
        job.grammar = Some(grammar);
        let text = &wait(&mut scheduler.submit(job).unwrap()).unwrap().answers[0].text;
        assert!(expected.contains(&text.len()), "{text}");
    }
}

#[test]
fn an_answer_that_is_cut_is_told_as_cut() {
    let (scheduler, _) = start(options(), SchedulerOptions::default());
    let mut job = sampled(chat("Hello!"), 3, 1);
    job.grammar = Some(Grammar::JsonSchema(schema()));
    let answer = &wait(&mut scheduler.submit(job).unwrap()).unwrap().answers[0];
    assert_eq!(answer.finish, Finish::Length);
    assert!(answer.text.starts_with('{'));
}

#[test]
fn what_cannot_be_a_form_is_refused_with_the_reason() {
    let (scheduler, _) = start(options(), SchedulerOptions::default());
    for (grammar, words) in [
        (
            Grammar::JsonSchema(json!({"type": "banana"})),
            "JSON schema",
        ),
        (
            Grammar::JsonSchema(json!({"$ref": "https://example.com/x.json"})),
            "JSON schema",
        ),
        (Grammar::Regex("(".to_owned()), "regular expression"),
        (Grammar::Lark("start: nothing".to_owned()), "grammar"),
        (Grammar::Lark("x".repeat(100_000)), "at most 65536"),
    ] {
        let mut job = sampled(chat("Hello!"), 3, 1);
        job.grammar = Some(grammar);
        let error = scheduler.submit(job).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// A thought begins with a control token that only a bias makes likely. The form after it never contains that token.
#[test]
fn a_form_begins_behind_a_thought_whatever_begins_it() {
    let (scheduler, _) = start(options(), SchedulerOptions::default());
    let model = crate::engines::model();
    let tokenizer = model.tokenizer().unwrap();
    let id = |text: &str| tokenizer.id_of(text).unwrap();
    let (open, close) = (id("<|user|>"), id("<|assistant|>"));
    // A mark of one token, and one of two.
    for mark in ["<|user|>", "<|user|>The"] {
        for start in [Phase::Begin, Phase::Thought, Phase::Answer] {
            let mut job = crate::job(chat("What is 7 plus 5?"), 60);
            job.grammar = Some(Grammar::Regex("(yes|no)".to_owned()));
            job.shown = [open, close].into();
            job.params.sampling.logit_bias = vec![(open, 1e6)];
            job.thinking = Some(Thinking {
                open: mark.to_owned(),
                close: "<|assistant|>".to_owned(),
                start,
                budget: Some(4),
                closing: vec![close],
                ..Thinking::default()
            });
            let outcome = wait(&mut scheduler.submit(job).unwrap()).unwrap();
            let answer = &outcome.answers[0];
            assert!(
                ["yes", "no"].contains(&answer.text.as_str()),
                "{mark} {start:?}: {}",
                answer.text
            );
            assert_eq!(answer.finish, Finish::Stop);
            let has_thought = start != Phase::Answer;
            assert_eq!(
                !answer.thought.is_empty(),
                has_thought,
                "{mark} {start:?}: {}",
                answer.thought
            );
            assert_eq!(outcome.receipt.n_thought > 0, has_thought);
        }
    }
}

/// The model would end its answer. Within a thought it may not, since the form has not begun.
#[test]
fn an_answer_does_not_end_before_its_form_begins() {
    let (scheduler, _) = start(options(), SchedulerOptions::default());
    let tokenizer = crate::engines::model().tokenizer().unwrap();
    let close = tokenizer.id_of("<|assistant|>").unwrap();
    let mut job = crate::job(chat("What is 7 plus 5?"), 200);
    job.grammar = Some(Grammar::Regex("(yes|no)".to_owned()));
    job.shown = [close].into();
    job.thinking = Some(Thinking {
        open: "<|user|>".to_owned(),
        close: "<|assistant|>".to_owned(),
        start: Phase::Thought,
        budget: Some(40),
        closing: vec![close],
        ..Thinking::default()
    });
    let outcome = wait(&mut scheduler.submit(job).unwrap()).unwrap();
    let answer = &outcome.answers[0];
    assert!(
        answer.thought.starts_with("7 plus 5 is 12."),
        "{}",
        answer.thought
    );
    assert!(
        ["yes", "no"].contains(&answer.text.as_str()),
        "{}",
        answer.text
    );
}
