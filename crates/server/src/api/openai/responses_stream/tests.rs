//! For any output of a model, the events of a response are well-formed.

use proptest::prelude::*;

use super::*;
use crate::api::generation::hostile;
use millrace_runtime::Finish;

/// An item that has begun: its kind, its name, and its text so far.
struct Begun {
    item: Value,
    said: String,
    has_part: bool,
    is_said: bool,
}

/// Checks the order of events, and that the reported pieces add up to the reported whole.
fn assert_formed(events: &[(String, Value)]) {
    let (first, rest) = events.split_at(2);
    let names: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["response.created", "response.in_progress"]);
    let (last, rest) = rest.split_last().unwrap();
    assert!(["response.completed", "response.incomplete"].contains(&last.0.as_str()));
    let (mut open, mut done): (Option<Begun>, Vec<Value>) = (None, Vec::new());
    for (name, event) in rest {
        let place = &event["output_index"];
        assert_eq!(*place, done.len(), "{events:?}");
        let suffix = name.rsplit('.').next().unwrap();
        match (name.as_str(), suffix, &mut open) {
            ("response.output_item.added", _, None) => {
                open = Some(Begun {
                    item: event["item"].clone(),
                    said: String::new(),
                    has_part: false,
                    is_said: false,
                });
            }
            ("response.content_part.added", _, Some(begun)) => {
                assert!(!std::mem::replace(&mut begun.has_part, true), "{events:?}");
            }
            ("response.content_part.done", _, Some(begun)) => {
                assert!(begun.is_said && begun.has_part, "{events:?}");
                assert_eq!(event["part"]["text"], begun.said, "{events:?}");
            }
            ("response.output_item.done", _, Some(begun)) => {
                assert!(begun.is_said, "{events:?}");
                assert_eq!(event["item"]["id"], begun.item["id"]);
                done.push(event["item"].clone());
                open = None;
            }
            (_, "delta", Some(begun)) => {
                assert!(!begun.is_said, "{events:?}");
                assert_eq!(event["item_id"], begun.item["id"]);
                begun.said += event["delta"].as_str().unwrap();
            }
            (_, "done", Some(begun)) => {
                assert!(!std::mem::replace(&mut begun.is_said, true), "{events:?}");
                let field = if begun.has_part { "text" } else { "arguments" };
                assert_eq!(event[field], begun.said, "{events:?}");
            }
            _ => panic!("{name}: {events:?}"),
        }
    }
    assert!(open.is_none() && !done.is_empty(), "{events:?}");
    for (i, (_, event)) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], i);
    }
    let output = last.1["response"]["output"].as_array().unwrap();
    let kinds =
        |items: &[Value]| -> Vec<Value> { items.iter().map(|item| item["type"].clone()).collect() };
    assert_eq!(kinds(output), kinds(&done), "{events:?}");
    let mut ids: Vec<&str> = done
        .iter()
        .map(|item| item["id"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), done.len(), "two items have one name: {events:?}");
}

proptest! {
    #![proptest_config(hostile::config())]
    #[test]
    fn events_are_of_their_form(
        is_harmony in any::<bool>(),
        is_cut in any::<bool>(),
        parts in hostile::answers(),
        cuts in prop::collection::vec(1..9_usize, 1..5),
    ) {
        let finish = if is_cut { Finish::Length } else { Finish::Stop };
        for cuts in [&cuts[..], &[usize::MAX]] {
            let generation = hostile::generation(is_harmony, &parts, cuts, finish);
            let context = ResponseContext::for_tests();
            let events = hostile::events(|writer| stream(writer, generation, context));
            assert_formed(&events);
        }
    }
}
