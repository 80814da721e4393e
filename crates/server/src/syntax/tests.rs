//! All call syntaxes: calls written by a row are accepted by its grammar and read by its reader, however they are
//! cut.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::calls::{Arguments, CallSyntax};
use super::reader::{AnswerPart, AnswerReader, Names};
use super::rows::ROWS;
use super::unshown::BY_VOCABULARY;

mod any_text;
mod grammars;
mod held;
mod published;
mod written;

use written::written;

fn rows() -> impl Iterator<Item = CallSyntax> {
    ROWS.into_iter().chain(BY_VOCABULARY.map(|(_, row)| row))
}

/// Whether answers are messages, with marks around them.
fn is_in_messages(row: &CallSyntax) -> bool {
    row.is_harmony() || row.is_functionary() || row.has_recipients
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

/// All parts that a reader reports for an answer in these pieces; consecutive texts, thoughts and arguments are
/// joined.
fn events<'a>(reader: &AnswerReader, pieces: impl IntoIterator<Item = &'a str>) -> Vec<AnswerPart> {
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
            (Some(AnswerPart::CallArguments(text)), AnswerPart::CallArguments(more)) => {
                text.push_str(&more);
            }
            (_, part) => joined.push(part),
        }
    }
    joined
}

/// The texts, thoughts and complete calls among events: the result for a client that waits for the whole answer. Also
/// checks that earlier reports of calls have the form that streams rely on.
fn whole(events: &[AnswerPart]) -> Vec<AnswerPart> {
    let mut parts: Vec<AnswerPart> = Vec::new();
    let mut told: Option<(String, String)> = None;
    for event in events {
        let is_amid = told.is_some();
        match event {
            AnswerPart::CallBegin { name } => {
                assert!(!is_amid, "{events:?}");
                told = Some((name.clone(), String::new()));
            }
            AnswerPart::CallArguments(more) => told.as_mut().unwrap().1.push_str(more),
            AnswerPart::Call { name, arguments } => {
                assert_eq!(told.take(), Some((name.clone(), arguments.to_string())));
                parts.push(event.clone());
            }
            AnswerPart::CallBroken | AnswerPart::CallCut(_) => {
                let (_, text) = told.take().unwrap();
                let read = serde_json::from_str::<Value>(&text);
                assert!(read.is_err(), "a call that is none looks complete: {text}");
                if let AnswerPart::CallCut(text) = event {
                    push_text(&mut parts, text);
                }
            }
            AnswerPart::Text(text) => {
                assert!(!is_amid, "{events:?}");
                push_text(&mut parts, text);
            }
            AnswerPart::Thought(_) => {
                assert!(!is_amid, "{events:?}");
                parts.push(event.clone());
            }
        }
    }
    assert_eq!(told, None);
    parts
}

fn push_text(parts: &mut Vec<AnswerPart>, more: &str) {
    match parts.last_mut() {
        Some(AnswerPart::Text(text)) => text.push_str(more),
        _ => parts.push(AnswerPart::Text(more.to_owned())),
    }
}

/// The parts that a reader finds in an answer in these pieces, without early reports of incomplete calls.
fn read<'a>(reader: &AnswerReader, pieces: impl IntoIterator<Item = &'a str>) -> Vec<AnswerPart> {
    whole(&events(reader, pieces))
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
        if is_in_messages(&row) {
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
        // Another function; a call that was cut; and text that only resembles a call.
        let other = written(&row, &[("another", some())]);
        let cut = &whole[..whole.find("days").unwrap()];
        let nonsense = format!("{} nonsense", row.trigger());
        for text in [&other, cut, &nonsense, "plain < text [", "", " \n"] {
            let found = read(&reader, pieces(text, &[1]).iter().map(String::as_str));
            let calls = found
                .iter()
                .filter(|part| matches!(part, AnswerPart::Call { .. }));
            assert_eq!(calls.count(), 0, "{}: {text}", row.name);
            if !is_in_messages(&row) {
                let texts: Vec<AnswerPart> = (!text.is_empty())
                    .then(|| AnswerPart::Text(text.to_owned()))
                    .into_iter()
                    .collect();
                assert_eq!(found, texts, "{}: {text}", row.name);
            }
        }
    }
}

/// A text split repeatedly after these numbers of characters.
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
    // Parts of calls, whole calls, and texts that break them.
    let piece = (0..10_usize, any::<prop::sample::Index>());
    let answer = prop::collection::vec(piece, 0..8);
    let cuts = prop::collection::vec(1..9_usize, 1..6);
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    };
    proptest!(config, |(which in 0..n_rows, answer in answer, cuts in cuts)| {
        let row = rows[which];
        let written = written(&row, &[("weather", some())]);
        let text: String = answer.iter().map(|(kind, index)| {
            let at = index.index(written.chars().count() + 1);
            let byte = written.char_indices().nth(at).map_or(written.len(), |(byte, _)| byte);
            match kind {
                0..3 => written.clone(),
                3 => written[..byte].to_owned(),
                4 => written[byte..].to_owned(),
                5 if row.close.is_empty() => written.replace("note", "city"),
                5 => row.trigger().to_owned(),
                6 => " \n".to_owned(),
                7 => "a < b { [ \"é\" ".to_owned(),
                8 => row.close.to_owned(),
                _ => "<|channel|>final<|message|>Yes<|end|>".to_owned(),
            }
        }).collect();
        let reader = AnswerReader::new(Some(row), None, names());
        let at_once = events(&reader, [text.as_str()]);
        let cut = pieces(&text, &cuts);
        let in_pieces = events(&reader, cut.iter().map(String::as_str));
        prop_assert_eq!(&at_once, &in_pieces, "{}: {}", row.name, text);
        let at_once = whole(&at_once);
        // Text without a call is reported unchanged.
        let is_call = |part: &AnswerPart| matches!(part, AnswerPart::Call { .. });
        if !is_in_messages(&row) && !at_once.iter().any(is_call) && !text.is_empty() {
            prop_assert_eq!(at_once, [AnswerPart::Text(text)], "{}", row.name);
        }
    });
}

/// The part of a call that is reported before its last piece arrives.
fn told_early(row: &CallSyntax, answer: &str, n_bytes: usize) -> (Option<String>, String) {
    let mut reader = AnswerReader::new(Some(*row), None, names());
    let (mut name, mut text) = (None, String::new());
    for piece in pieces(&answer[..n_bytes], &[1]) {
        for part in reader.push(&piece) {
            match part {
                AnswerPart::CallBegin { name: begun } => name = Some(begun),
                AnswerPart::CallArguments(more) => text += &more,
                other => panic!("{}: {other:?}", row.name),
            }
        }
    }
    (name, text)
}

#[test]
fn arguments_are_told_while_they_are_written() {
    for row in rows() {
        let answer = written(&row, &[("weather", some())]);
        // Within the last word of a string.
        let at = answer.rfind("days").unwrap() - 8;
        let (name, text) = told_early(&row, &answer, at);
        assert_eq!(name.as_deref(), Some("weather"), "{}", row.name);
        let is_json = matches!(
            row.arguments,
            Arguments::Json(_) | Arguments::Harmony | Arguments::Functionary
        );
        let (certain, whole) = match is_json {
            true => (
                "{\"city\":\"Rome\",\"note\":\"a \\\"b\\\"",
                some().to_string(),
            ),
            false => ("{\"city\":\"Rome\"", some().to_string()),
        };
        assert!(text.starts_with(certain), "{}: {text}", row.name);
        assert!(whole.starts_with(&text), "{}: {text}", row.name);
        // Everything but the closing of the object is reported before the call ends.
        let end = answer.rfind("y").unwrap() + 1;
        let (_, text) = told_early(&row, &answer, end);
        let certain = match is_json {
            true => {
                "{\"city\":\"Rome\",\"note\":\"a \\\"b\\\" {c}\",\"days\":3,\"wet\":true,\"tags\":[\"x\",\""
            }
            false => "{\"city\":\"Rome\",\"note\":\"a \\\"b\\\" {c}\",\"days\":3,\"wet\":true",
        };
        assert!(text.starts_with(certain), "{}: {text}", row.name);
    }
}

#[test]
fn hostile_calls_keep_the_form_of_what_is_told() {
    let call = |arguments: &str| {
        format!("<tool_call>\n{{\"name\": \"weather\", \"arguments\": {arguments}}}\n</tool_call>")
    };
    let good = call("{\"city\": \"Rome\"}");
    for (answer, n_calls) in [
        // Of duplicate members the last one counts.
        (call("{\"city\": \"Rome\", \"city\": \"Paris\"}"), 1),
        (call("{\"city\": \"Rome\"}, \"arguments\": {}"), 1),
        (call("{\"city\": \"Rome\"}, \"name\": \"time\""), 1),
        (call("{\"city\": \"Rome\"}, \"name\": \"another\""), 0),
        (call("{\"city\": Rome}"), 0),
        (call("[\"Rome\"]"), 0),
        (format!("{} not this", &good[..good.len() - 12]), 0),
        (format!("{}{good}", call("{\"city\": Rome}")), 1),
        (format!("{good} and {}", &good[..good.len() - 14]), 1),
        (
            format!(
                "<tool_call>{{\"arguments\": {{\"days\": 1}}, \"name\": \"time\"}}</tool_call>{good}"
            ),
            2,
        ),
    ] {
        let reader = AnswerReader::new(Some(row("hermes")), None, names());
        let at_once = events(&reader, [answer.as_str()]);
        for n_chars in [1, 2, 5, 13] {
            let cut = pieces(&answer, &[n_chars]);
            assert_eq!(
                events(&reader, cut.iter().map(String::as_str)),
                at_once,
                "{answer}"
            );
        }
        let calls = whole(&at_once);
        let calls = calls
            .iter()
            .filter(|part| matches!(part, AnswerPart::Call { .. }));
        assert_eq!(calls.count(), n_calls, "{answer}: {at_once:?}");
    }
}
