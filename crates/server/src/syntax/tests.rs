//! Every way of writing calls: what a row writes, its grammar takes and its reader reads, however it is cut.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::calls::{Arguments, CallSyntax, Tags};
use super::grammar::{CallGrammar, Callable, channel_form};
use super::lark::{BLANKS, Marks};
use super::reader::{AnswerPart, AnswerReader, Names};
use super::rows::{BY_VOCABULARY, ROWS};
use crate::api::tools::tests::accepts;
use crate::grammar::Grammar;

fn rows() -> impl Iterator<Item = CallSyntax> {
    ROWS.into_iter().chain(BY_VOCABULARY.map(|(_, row)| row))
}

fn row(name: &str) -> CallSyntax {
    rows().find(|row| row.name == name).unwrap()
}

/// A function with arguments of all kinds.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": {"$ref": "#/$defs/city"}, "note": {"type": "string"}, "days": {"type": "integer"},
            "wet": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["city", "days"],
        "additionalProperties": false,
        "$defs": {"city": {"enum": ["Rome", "Paris"]}},
    })
}

fn names() -> Names {
    Names::new(["weather", "time"].map(|name| (name.to_owned(), schema())))
}

fn filled(text: &str) -> String {
    let values = ["3", "a1B2c3D4e", "number"];
    let blanks = BLANKS.iter().zip(values);
    blanks.fold(text.to_owned(), |text, ((blank, _), value)| {
        text.replace(blank, value)
    })
}

fn gemma(value: &Value) -> String {
    match value {
        Value::String(text) => format!("<|\"|>{text}<|\"|>"),
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(gemma).collect::<Vec<_>>().join(",")
        ),
        other => other.to_string(),
    }
}

/// Arguments as a row has them.
fn arguments(row: &CallSyntax, value: &Value) -> String {
    let members = || value.as_object().unwrap().iter();
    let spaced = |value: &Value| match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(Value::to_string).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    };
    match &row.arguments {
        Arguments::Tagged(Tags {
            key,
            value,
            json,
            end,
        }) => members()
            .map(|(name, argument)| match argument {
                Value::String(text) => filled(&format!("{key}{name}{value}{text}{end}")),
                other => filled(&format!("{key}{name}{json}{}{end}", spaced(other))),
            })
            .collect(),
        Arguments::Python => {
            let one = |(name, argument): (&String, &Value)| match argument {
                Value::Bool(true) => format!("{name}=True"),
                other => format!("{name}={}", spaced(other)),
            };
            members().map(one).collect::<Vec<_>>().join(", ")
        }
        Arguments::Gemma => {
            let one = |(name, argument): (&String, &Value)| format!("{name}:{}", gemma(argument));
            members().map(one).collect::<Vec<_>>().join(",")
        }
        Arguments::Json(_) | Arguments::Harmony => {
            let one =
                |(name, argument): (&String, &Value)| format!("\"{name}\": {}", spaced(argument));
            format!("{{{}}}", members().map(one).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Calls as a row has them.
fn written(row: &CallSyntax, calls: &[(&str, Value)]) -> String {
    if row.is_harmony() {
        let (name, value) = &calls[0];
        let arguments = arguments(row, value);
        return format!(
            "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}"
        );
    }
    let call = |(name, value): &(&str, Value)| {
        let [before, middle, after] = [row.before, row.middle, row.after].map(filled);
        format!("{before}{name}{middle}{}{after}", arguments(row, value))
    };
    let calls: Vec<String> = calls.iter().map(call).collect();
    format!("{}{}{}", row.open, calls.join(row.between), row.close)
}

/// What a reader makes of an answer in these pieces; texts and thoughts that follow each other are one.
fn read<'a>(reader: &AnswerReader, pieces: impl IntoIterator<Item = &'a str>) -> Vec<AnswerPart> {
    let mut reader = reader.clone();
    let mut parts = Vec::new();
    for piece in pieces {
        parts.extend(reader.push(piece));
    }
    parts.extend(reader.finish());
    let n_calls = parts
        .iter()
        .filter(|part| matches!(part, AnswerPart::Call { .. }));
    assert_eq!(n_calls.count(), reader.n_calls());
    let mut joined: Vec<AnswerPart> = Vec::new();
    for part in parts {
        match (joined.last_mut(), part) {
            (Some(AnswerPart::Text(text)), AnswerPart::Text(more)) => text.push_str(&more),
            (Some(AnswerPart::Thought(text)), AnswerPart::Thought(more)) => text.push_str(&more),
            (_, part) => joined.push(part),
        }
    }
    joined
}

fn call(name: &str, arguments: &Value) -> AnswerPart {
    AnswerPart::Call {
        name: name.to_owned(),
        arguments: arguments.clone(),
    }
}

fn some() -> Value {
    json!({"city": "Rome", "note": "a \"b\" {c}", "days": 3, "wet": true, "tags": ["x", "y"]})
}

#[test]
fn what_a_row_writes_is_read() {
    for row in rows() {
        let reader = AnswerReader::new(Some(row), None, names());
        let least = json!({"city": "Paris", "days": -1});
        let one = written(&row, &[("weather", some())]);
        for cut in [one.len(), 1] {
            let pieces = pieces(&one, &[cut]);
            let found = read(&reader, pieces.iter().map(String::as_str));
            assert_eq!(found, [call("weather", &some())], "{}: {one}", row.name);
        }
        if row.is_harmony() || row.is_bare && row.close.is_empty() {
            continue;
        }
        let two = written(&row, &[("weather", some()), ("time", least.clone())]);
        let both = [call("weather", &some()), call("time", &least)];
        assert_eq!(read(&reader, [two.as_str()]), both, "{}: {two}", row.name);
        if row.is_bare {
            continue;
        }
        let text = format!("Let me see. {two}\n");
        let found = read(&reader, [text.as_str()]);
        assert_eq!(
            found[0],
            AnswerPart::Text("Let me see. ".to_owned()),
            "{}",
            row.name
        );
        assert_eq!(found[1..], both, "{}", row.name);
    }
}

#[test]
fn what_is_no_call_is_text() {
    for row in rows() {
        let reader = AnswerReader::new(Some(row), None, names());
        let whole = written(&row, &[("weather", some())]);
        // Another function; a call that was cut; and what only looks like one.
        let other = written(&row, &[("another", some())]);
        let cut = &whole[..whole.find("days").unwrap()];
        let nonsense = format!("{} nonsense", row.trigger());
        for text in [&other, cut, &nonsense, "plain < text [", "", " \n"] {
            let found = read(&reader, pieces(text, &[1]).iter().map(String::as_str));
            let calls = found
                .iter()
                .filter(|part| matches!(part, AnswerPart::Call { .. }));
            assert_eq!(calls.count(), 0, "{}: {text}", row.name);
            if !row.is_harmony() {
                let texts: Vec<AnswerPart> = (!text.is_empty())
                    .then(|| AnswerPart::Text(text.to_owned()))
                    .into_iter()
                    .collect();
                assert_eq!(found, texts, "{}: {text}", row.name);
            }
        }
    }
}

/// A text cut after so many characters, again and again.
fn pieces(text: &str, cuts: &[usize]) -> Vec<String> {
    let (mut out, mut chars) = (Vec::new(), text.chars().peekable());
    for cut in cuts.iter().cycle() {
        if chars.peek().is_none() {
            break;
        }
        out.push(chars.by_ref().take((*cut).max(1)).collect());
    }
    out
}

#[test]
fn grammars_take_what_rows_write_and_nothing_else() {
    // A row of each kind; all take a while.
    const SOME: [&str; 8] = [
        "hermes",
        "qwen coder",
        "deepseek v4",
        "gemma 4",
        "lfm 2",
        "harmony",
        "mistral, list",
        "llama, json",
    ];
    let is_all = std::env::var_os("MILLRACE_TEST_ALL").is_some();
    let schema = schema();
    for row in rows().filter(|row| is_all || SOME.contains(&row.name)) {
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
            };
            Grammar::Calls(row.grammar(&calls, &marks))
        };
        let (auto, required) = (grammar(false), grammar(true));
        let plain = if row.is_harmony() {
            "<|channel|>final<|message|>Hello"
        } else {
            "Hello < there"
        };
        assert!(accepts(&auto, plain), "{}", row.name);
        assert!(!accepts(&required, plain), "{}", row.name);
        let good = written(&row, &[("weather", some())]);
        let wrong_city = json!({"city": "Oslo", "days": 1});
        let no_days = json!({"city": "Rome"});
        let text_days = json!({"city": "Rome", "days": true});
        for grammar in [&auto, &required] {
            assert!(accepts(grammar, &good), "{}: {good}", row.name);
            for bad in [
                written(&row, &[("another", some())]),
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
fn channels_are_told_apart() {
    let reader = AnswerReader::new(Some(row("harmony")), None, names());
    let text = |text: &str| AnswerPart::Text(text.to_owned());
    let thought = |text: &str| AnswerPart::Thought(text.to_owned());
    let arguments = "{\"city\": \"Rome\", \"days\": 1}";
    let value = json!({"city": "Rome", "days": 1});
    for (answer, parts) in [
        ("<|channel|>final<|message|>Hello".to_owned(), vec![text("Hello")]),
        ("Hello <b>".to_owned(), vec![text("Hello <b>")]),
        (
            "<|channel|>analysis to=assistant<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes".to_owned(),
            vec![thought("hm"), text("Yes")],
        ),
        (
            format!("<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{arguments}"),
            vec![text("I look."), call("weather", &value)],
        ),
        (
            format!(" to=functions.weather<|channel|>commentary <|constrain|>json<|message|>{arguments}<|end|>"),
            vec![call("weather", &value)],
        ),
        (
            "<|channel|>commentary to=functions.weather<|message|>{\"city\": ".to_owned(),
            vec![text("{\"city\": ")],
        ),
        ("<|channel|>fin".to_owned(), vec![text("<|channel|>fin")]),
    ] {
        for cut in [answer.len(), 1, 3] {
            let pieces = pieces(&answer, &[cut]);
            assert_eq!(read(&reader, pieces.iter().map(String::as_str)), parts, "{answer}");
        }
    }
}

#[test]
fn what_stands_around_answers_is_left_out() {
    let reader = AnswerReader::new(None, Some(("<answer>", "</answer>")), Names::default());
    for (answer, text) in [
        ("<answer>\nYes</answer>", "Yes"),
        (" <answer>a < b</answer>\n", "a < b\n"),
        ("Yes", "Yes"),
        ("<ans", "<ans"),
        ("a</answ", "a</answ"),
    ] {
        let found = read(&reader, pieces(answer, &[1]).iter().map(String::as_str));
        assert_eq!(found, [AnswerPart::Text(text.to_owned())], "{answer}");
    }
}

#[test]
fn any_cut_of_any_answer_gives_the_same_events() {
    let rows: Vec<CallSyntax> = rows().collect();
    let n_rows = rows.len();
    // Parts of calls, whole calls, and what breaks them.
    let piece = (0..10_usize, any::<prop::sample::Index>());
    let answer = prop::collection::vec(piece, 0..8);
    let cuts = prop::collection::vec(1..9_usize, 1..6);
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    };
    proptest!(config, |(which in 0..n_rows, answer in answer, cuts in cuts)| {
        let row = rows[which];
        let whole = written(&row, &[("weather", some())]);
        let text: String = answer.iter().map(|(kind, index)| {
            let at = index.index(whole.chars().count() + 1);
            let byte = whole.char_indices().nth(at).map_or(whole.len(), |(byte, _)| byte);
            match kind {
                0..3 => whole.clone(),
                3 => whole[..byte].to_owned(),
                4 => whole[byte..].to_owned(),
                5 => row.trigger().to_owned(),
                6 => " \n".to_owned(),
                7 => "a < b { [ \"é\" ".to_owned(),
                8 => row.close.to_owned(),
                _ => "<|channel|>final<|message|>Yes<|end|>".to_owned(),
            }
        }).collect();
        let reader = AnswerReader::new(Some(row), None, names());
        let at_once = read(&reader, [text.as_str()]);
        let cut = pieces(&text, &cuts);
        let in_pieces = read(&reader, cut.iter().map(String::as_str));
        prop_assert_eq!(&at_once, &in_pieces, "{}: {}", row.name, text);
        // What is no call is told, all of it.
        let is_call = |part: &AnswerPart| matches!(part, AnswerPart::Call { .. });
        if !row.is_harmony() && !at_once.iter().any(is_call) && !text.is_empty() {
            prop_assert_eq!(at_once, [AnswerPart::Text(text)], "{}", row.name);
        }
    });
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

#[test]
fn control_tokens_of_a_way_are_tokens_of_its_grammar() {
    let (tokenizer, vocab_size, factory) = crate::api::tools::tests::demo();
    let text = |id: u32| tokenizer.token_text(id).to_owned();
    let ends = tokenizer.end_of_generation();
    let control: Vec<u32> = (0..*vocab_size as u32)
        .filter(|id| {
            tokenizer.is_special(*id) && !ends.contains(id) && Some(*id) != tokenizer.bos()
        })
        .filter(|id| tokenizer.encode(&text(*id), SPECIAL) == [*id])
        .collect();
    let [before, middle, after] = [0, 1, 2].map(|i| text(control[i]));
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
        };
        let grammar = Grammar::Calls(row.grammar(&calls, &marks));
        let tokens = tokenizer.encode(&answer, SPECIAL);
        let mut constraint = factory.compile(&grammar).unwrap();
        let mut is_taken = true;
        for token in tokens {
            let mut logits = vec![0.0; *vocab_size];
            constraint.mask(&mut logits).unwrap();
            is_taken =
                is_taken && logits[token as usize] == 0.0 && constraint.accept(token).is_ok();
            if !is_taken {
                break;
            }
        }
        assert_eq!(is_taken, is_fine, "{answer}");
        // A trial has a vocabulary without these tokens.
        let tried = crate::grammar::GrammarTrial::of(grammar).run();
        assert!(
            matches!(tried, crate::grammar::TrialReply::Passed),
            "{tried:?}"
        );
    }
}

const SPECIAL: millrace_text::EncodeOptions = millrace_text::EncodeOptions {
    add_special: false,
    parse_special: true,
};
