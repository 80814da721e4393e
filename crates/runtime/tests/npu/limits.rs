//! Requests that the engine on a device refuses; refusing changes nothing.

use crate::support::{append, demo, noise};
use millrace_runtime::npu::{NpuOptions, PlannedEngine};
use millrace_runtime::{BatchItem, Engine, Error};
use millrace_xdna2::lower::{Features, Mode};

fn short() -> PlannedEngine {
    let options = NpuOptions {
        n_ctx: Some(200),
        max_sequences: 4,
        ..crate::support::padded_to(64)
    };
    let npu = crate::support::load(&demo(), Features::of(Mode::Fast), options);
    PlannedEngine::new(&npu).unwrap()
}

#[test]
fn a_spent_name_is_refused_by_everything() {
    let mut engine = short();
    let old = engine.create().unwrap();
    append(&mut engine, old, &[1, 2, 3]);
    engine.release(old).unwrap();
    let new = engine.create().unwrap();
    assert_ne!(old, new);
    let gone = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::NoSequence(seq)) if seq == old));
    };
    gone(engine.compute(&[BatchItem::last(old, &[4])]).map(|_| ()));
    gone(engine.truncate(old, 0));
    gone(engine.release(old));
    gone(engine.fork(old).map(|_| ()));
    gone(engine.reuse_prefix(old, &[1, 2]).map(|_| ()));
    gone(engine.tokens(old).map(|_| ()));
    gone(engine.room(&[old], 0).map(|_| ()));
    assert_eq!(engine.len(new).unwrap(), 0);
    let mut other = PlannedEngine::new(&engine.npu().clone()).unwrap();
    other.create().unwrap();
    assert!(matches!(other.len(new), Err(Error::NoSequence(_))));
}

#[test]
fn bad_batches_are_refused_before_any_work() {
    let mut engine = short();
    let [a, b] = [0; 2].map(|_| engine.create().unwrap());
    append(&mut engine, a, &[1, 2, 3]);
    let counters = engine.counters();
    let long = [1; 198];
    let good = BatchItem::last(b, &[1]);
    let hidden = BatchItem {
        hidden: true,
        images: &[],
        ..BatchItem::last(a, &[1])
    };
    type Check = fn(&Error) -> bool;
    let cases: [(BatchItem<'_>, Check); 5] = [
        (BatchItem::last(a, &long), |error| {
            matches!(
                error,
                Error::ContextOverflow {
                    n_prompt: 201,
                    n_ctx: 200,
                    ..
                }
            )
        }),
        (BatchItem::last(b, &[2]), |error| {
            matches!(error, Error::DuplicateSequence(_))
        }),
        (BatchItem::last(a, &[]), |error| {
            matches!(error, Error::EmptyPrompt)
        }),
        (BatchItem::last(a, &[99_999]), |error| {
            matches!(error, Error::BadToken { .. })
        }),
        (hidden, |error| {
            matches!(
                error,
                Error::BadOption {
                    option: "hidden states",
                    ..
                }
            )
        }),
    ];
    for (bad, expected) in cases {
        let error = engine.compute(&[good, bad]).unwrap_err();
        assert!(expected(&error), "{error:?}");
        assert_eq!((engine.len(a).unwrap(), engine.len(b).unwrap()), (3, 0));
    }
    assert_eq!(engine.counters(), counters);
}

#[test]
fn room_is_what_a_step_takes_and_no_more() {
    let mut engine = short();
    let [a, b] = [0; 2].map(|_| engine.create().unwrap());
    assert_eq!(engine.room(&[a, b], 2).unwrap(), 200);
    assert_eq!(engine.room(&[a], 3).unwrap(), 0, "there are but two more");
    append(&mut engine, a, &noise(70, 1));
    let room = engine.room(&[a, b], 2).unwrap();
    assert_eq!(room, 130);
    assert!(engine.check_context(70 + room, 0).is_ok());
    assert!(matches!(
        engine.check_context(70, room + 1),
        Err(Error::ContextOverflow {
            n_prompt: 70,
            n_new: 131,
            n_ctx: 200,
            ..
        })
    ));
    let tokens = noise(room as u32 + 1, 2);
    let batch = |n| [a, b].map(|seq| BatchItem::last(seq, &tokens[..n]));
    let refused = engine.compute(&batch(room + 1)).unwrap_err();
    assert!(matches!(refused, Error::ContextOverflow { .. }));
    assert_eq!((engine.len(a).unwrap(), engine.len(b).unwrap()), (70, 0));
    engine.compute(&batch(room)).unwrap();
    assert_eq!(engine.room(&[a], 0).unwrap(), 0);
    engine.create().unwrap();
    engine.create().unwrap();
    let refused = engine.create().unwrap_err();
    assert!(matches!(
        refused,
        Error::TooManySequences { max_sequences: 4 }
    ));
    assert!(matches!(
        engine.fork(a),
        Err(Error::TooManySequences { .. })
    ));
}
