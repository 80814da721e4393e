//! For any output of a model, the events of a message are well-formed.

use proptest::prelude::*;

use super::*;
use crate::api::generation::hostile;
use millrace_runtime::Finish;

fn context(hides_thoughts: bool) -> MessageContext {
    MessageContext {
        id: "msg_1".to_owned(),
        model: "m".to_owned(),
        n_prompt: 3,
        with_placement: false,
        hides_thoughts,
    }
}

/// Checks the order of events, and that each block has the deltas of its kind.
fn assert_formed(events: &[(String, Value)]) {
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..2], ["message_start", "ping"], "{names:?}");
    let n = names.len();
    assert_eq!(
        names[n - 2..],
        ["message_delta", "message_stop"],
        "{names:?}"
    );
    let (mut open, mut index, mut json) = (None, 0, String::new());
    let mut n_calls = 0;
    for (name, event) in &events[2..n - 2] {
        assert_eq!(
            (&event["type"], &event["index"]),
            (&json!(name), &json!(index)),
            "{events:?}"
        );
        match (name.as_str(), open) {
            ("content_block_start", None) => {
                open = event["content_block"]["type"].as_str();
                json.clear();
            }
            ("content_block_delta", Some(kind)) => {
                let kinds: &[&str] = match kind {
                    "text" => &["text_delta"],
                    "thinking" => &["thinking_delta", "signature_delta"],
                    _ => &["input_json_delta"],
                };
                let delta = &event["delta"];
                assert!(
                    kinds.contains(&delta["type"].as_str().unwrap()),
                    "{events:?}"
                );
                json += delta["partial_json"].as_str().unwrap_or_default();
            }
            ("content_block_stop", Some(kind)) => {
                let is_whole = serde_json::from_str::<Value>(&json).is_ok();
                n_calls += usize::from(kind == "tool_use" && is_whole);
                open = None;
                index += 1;
            }
            _ => panic!("{name} while {open:?} is open: {events:?}"),
        }
    }
    assert_eq!(open, None);
    let reason = &events[n - 2].1["delta"]["stop_reason"];
    assert!(*reason != json!("tool_use") || n_calls > 0, "{events:?}");
}

proptest! {
    #![proptest_config(hostile::config())]
    #[test]
    fn events_are_of_their_form(
        is_harmony in any::<bool>(),
        hides in any::<bool>(),
        is_cut in any::<bool>(),
        parts in hostile::answers(),
        cuts in prop::collection::vec(1..9_usize, 1..5),
    ) {
        let finish = if is_cut { Finish::Length } else { Finish::Stop };
        let of = |cuts: &[usize]| {
            let generation = hostile::generation(is_harmony, &parts, cuts, finish);
            hostile::events(|writer| stream(writer, generation, context(hides)))
        };
        assert_formed(&of(&cuts));
        assert_formed(&of(&[usize::MAX]));
    }
}

#[test]
fn each_thought_is_a_block_of_its_own() {
    let parts = [
        (true, "One."),
        (false, "A."),
        (true, "Two."),
        (true, " More."),
        (false, "B."),
    ];
    let parts = parts.map(|(is_thought, text)| (is_thought, text.to_owned()));
    let generation = || hostile::generation(false, &parts, &[3], Finish::Stop);
    let events = hostile::events(|writer| stream(writer, generation(), context(false)));
    let mut blocks: Vec<String> = Vec::new();
    for (name, event) in &events {
        match name.as_str() {
            "content_block_start" => blocks.push(String::new()),
            "content_block_delta" => {
                let fields = ["thinking", "text"].map(|field| event["delta"][field].as_str());
                blocks
                    .last_mut()
                    .unwrap()
                    .extend(fields.into_iter().flatten());
            }
            _ => {}
        }
    }
    assert_eq!(blocks, ["One.", "A.", "Two. More.", "B."]);
    // As a whole they are one, parted by an empty line.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.build().unwrap();
    let (answers, _) = runtime.block_on(generation().complete()).unwrap();
    assert_eq!(answers[0].thought, "One.\n\nTwo. More.");
}
