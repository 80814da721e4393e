//! The interface between engines and their drivers: sinks, room, names, and turns in a batch.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, Error, Finish, GenerateParams, ItemRows,
    LoadedModel, LogitsFor, SamplingParams, SeqId, StepOutput, Turn, generate,
};
use millrace_testkit::golden::Golden;
use millrace_text::EncodeOptions;

fn golden() -> Arc<LoadedModel> {
    Arc::new(LoadedModel::open(Golden::named("llama-llama3").hf()).unwrap())
}

fn demo() -> Arc<LoadedModel> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    Arc::new(LoadedModel::open(&models.join("demo-draft/demo-draft.gguf")).unwrap())
}

fn encode(model: &LoadedModel, text: &str) -> Vec<u32> {
    let options = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    model.tokenizer().unwrap().encode(text, options)
}

fn boxed(model: Arc<LoadedModel>, options: EngineOptions) -> Box<dyn Engine + Send> {
    Box::new(CpuEngine::new(model, options).unwrap())
}

#[test]
fn an_engine_goes_to_another_thread_and_serves_there() {
    let mut engine = boxed(golden(), EngineOptions::default());
    let server = std::thread::spawn(move || {
        let seq = engine.create().unwrap();
        let output = engine.compute(&[BatchItem::last(seq, &[1, 2, 3])]).unwrap();
        assert_eq!(output.logits(0).len(), output.vocab_size());
        let counters = engine.counters();
        assert_eq!((counters.n_steps, counters.n_passes), (1, 1));
        assert_eq!((counters.n_tokens, counters.n_logit_rows), (3, 1));
        assert!(counters.host_ns > 0 && engine.device_time().is_none());
        assert!(engine.name().starts_with("cpu ("));
    });
    server.join().unwrap();
}

#[test]
fn rows_come_in_order_and_some_at_a_time() {
    for max_chunk in [512, 100, 7] {
        let options = EngineOptions {
            max_sequences: 4,
            n_ctx: Some(300),
            max_chunk,
            ..EngineOptions::default()
        };
        let mut engine = boxed(golden(), options);
        let seqs: Vec<SeqId> = (0..4).map(|_| engine.create().unwrap()).collect();
        let tokens: Vec<u32> = (0..200).map(|i| i % 90).collect();
        let batch = [
            BatchItem::new(seqs[0], &tokens[..30], LogitsFor::Last),
            BatchItem::new(seqs[1], &tokens, LogitsFor::All),
            BatchItem::new(seqs[2], &tokens[..9], LogitsFor::None),
            BatchItem::new(seqs[3], &tokens[..11], LogitsFor::All),
        ];
        let width = engine.model().model().config.vocab_size;
        let mut expected = vec![(0, 29)];
        expected.extend((0..200).map(|token| (1, token)));
        expected.extend((0..11).map(|token| (3, token)));
        let mut found = Vec::new();
        let mut data = Vec::new();
        let mut sink = |rows: ItemRows<'_>| {
            let n_rows = rows.data.len() / width;
            assert!((1..=128).contains(&n_rows));
            found.extend((0..n_rows).map(|row| (rows.item, rows.first_token + row)));
            data.extend_from_slice(rows.data);
        };
        engine.step(&batch, &mut sink).unwrap();
        assert_eq!(found, expected, "in passes of {max_chunk}");

        for (seq, item) in seqs.iter().zip(&batch) {
            assert_eq!(engine.tokens(*seq).unwrap(), item.tokens);
            engine.truncate(*seq, 0).unwrap();
        }
        let output = engine.compute(&batch).unwrap();
        assert!(output.logits(2).is_empty());
        let collected = [output.logits(0), output.logits(1), output.logits(3)].concat();
        assert!(collected == data);
    }
}

#[test]
fn room_is_what_a_step_takes_and_no_more() {
    let options = EngineOptions {
        max_sequences: 3,
        n_ctx: Some(400),
        kv_tokens: Some(448),
        ..EngineOptions::default()
    };
    let mut engine = boxed(golden(), options);
    let [a, b] = [0; 2].map(|_| engine.create().unwrap());
    assert_eq!(engine.room(&[a], 0).unwrap(), 400);
    engine.compute(&[BatchItem::last(a, &[1; 70])]).unwrap();
    assert_eq!(engine.room(&[a], 0).unwrap(), 330);
    // Ten pages: two are taken, eight are for both, and the first has 58 slots left.
    let room = engine.room(&[a, b], 0).unwrap();
    assert_eq!(room, 256);
    assert_eq!(engine.room(&[b], 1).unwrap(), 256);
    assert_eq!(
        engine.room(&[], 2).unwrap(),
        0,
        "there is but one sequence more"
    );
    assert_eq!(engine.room(&[], 0).unwrap(), 400);
    let tokens = vec![1; room + 1];
    let batch = |n| [a, b].map(|seq| BatchItem::last(seq, &tokens[..n]));
    let refused = engine.compute(&batch(room + 1)).unwrap_err();
    assert!(matches!(
        refused,
        Error::CacheFull { .. } | Error::ContextOverflow { .. }
    ));
    assert_eq!((engine.len(a).unwrap(), engine.len(b).unwrap()), (70, 0));
    engine.truncate(a, 40).unwrap();
    engine.compute(&batch(room)).unwrap();
}

#[test]
fn a_spent_name_is_refused_by_everything() {
    let mut engine = boxed(golden(), EngineOptions::default());
    let old = engine.create().unwrap();
    engine.compute(&[BatchItem::last(old, &[1, 2, 3])]).unwrap();
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
    let mut other = boxed(golden(), EngineOptions::default());
    other.create().unwrap();
    assert!(matches!(other.len(new), Err(Error::NoSequence(_))));
}

#[test]
fn lengths_that_overflow_are_refused_in_words() {
    let engine = boxed(golden(), EngineOptions::default());
    for (n_prompt, n_new) in [(usize::MAX, 1), (1, usize::MAX), (usize::MAX, usize::MAX)] {
        let error = engine.check_context(n_prompt, n_new).unwrap_err();
        assert!(error.to_string().contains("do not fit the context"));
    }
}

fn greedy(n: usize) -> GenerateParams {
    GenerateParams {
        max_tokens: Some(n),
        ..GenerateParams::default()
    }
}

fn alone(engine: &mut dyn Engine, prompt: &[u32], params: &GenerateParams) -> (Vec<u32>, String) {
    let seq = engine.create().unwrap();
    let never = AtomicBool::new(false);
    let mut streamed = String::new();
    let done = generate(engine, seq, prompt, params, &never, &mut |event| {
        if let millrace_runtime::GenerationEvent::Text(text) = event {
            streamed += text;
        }
    });
    let done = done.unwrap();
    assert_eq!(streamed, done.text);
    engine.release(seq).unwrap();
    (done.tokens, done.text)
}

/// Works like a server: turns of different lengths come and go, with some tokens of each in every step.
#[test]
fn turns_that_share_steps_write_what_each_writes_alone() {
    let model = demo();
    let options = EngineOptions {
        n_ctx: Some(128),
        max_sequences: 4,
        keep_prefixes: true,
        ..EngineOptions::default()
    };
    let mut engine = boxed(model.clone(), options);
    let jobs: Vec<(Vec<u32>, GenerateParams)> = ["Once", "There was a big", "Tom", "A cat and a"]
        .iter()
        .zip([12, 30, 21, 5])
        .enumerate()
        .map(|(i, (text, n))| {
            let sampling = SamplingParams {
                temperature: 0.8 * (i % 2) as f32,
                seed: i as u64,
                ..SamplingParams::default()
            };
            let params = GenerateParams {
                sampling,
                ignore_end: true,
                ..greedy(n)
            };
            (encode(&model, text), params)
        })
        .collect();
    let expected: Vec<(Vec<u32>, String)> = jobs
        .iter()
        .map(|(prompt, params)| alone(&mut *engine, prompt, params))
        .collect();
    let n_ctx = engine.limits().n_ctx;
    let mut turns: Vec<(SeqId, Turn)> = jobs
        .iter()
        .map(|(prompt, params)| {
            let mut turn = Turn::new(&model, prompt, params, n_ctx).unwrap();
            let seq = engine.create().unwrap();
            turn.resume(engine.reuse_prefix(seq, prompt).unwrap());
            (seq, turn)
        })
        .collect();
    let mut output = StepOutput::default();
    loop {
        let feeds: Vec<_> = turns
            .iter()
            .enumerate()
            .filter_map(|(i, (seq, turn))| Some((i, *seq, turn.feed(2)?)))
            .collect();
        if feeds.is_empty() {
            break;
        }
        let batch: Vec<BatchItem<'_>> = feeds
            .iter()
            .map(|(_, seq, feed)| BatchItem::new(*seq, feed.tokens, feed.logits))
            .collect();
        engine.step(&batch, &mut output).unwrap();
        let fed: Vec<_> = feeds
            .iter()
            .map(|(i, _, feed)| (*i, feed.tokens.len(), feed.logits))
            .collect();
        for (item, (i, n, logits)) in fed.into_iter().enumerate() {
            turns[i].1.fed(n);
            if logits == LogitsFor::Last {
                turns[i].1.push_logits(output.logits(item)).unwrap();
            }
        }
    }
    for ((_, turn), (tokens, text)) in turns.into_iter().zip(expected) {
        let done = turn.into_generation();
        assert_eq!(done.finish, Finish::Length);
        assert_eq!((done.tokens, done.text), (tokens, text));
    }
}

/// A driver that guesses: right ones save steps, wrong ones are cut, and the text is the same.
#[test]
fn drafts_are_verified_by_the_logits_of_all_tokens() {
    let model = demo();
    let options = EngineOptions {
        n_ctx: Some(128),
        ..EngineOptions::default()
    };
    let mut engine = boxed(model.clone(), options);
    let prompt = encode(&model, "Once upon a time");
    let params = GenerateParams {
        ignore_end: true,
        ..greedy(40)
    };
    let (expected, text) = alone(&mut *engine, &prompt, &params);
    let seq = engine.create().unwrap();
    let mut turn = Turn::new(&model, &prompt, &params, 128).unwrap();
    let width = model.model().config.vocab_size;
    let mut n_steps = 0;
    while let Some(feed) = turn.feed(usize::MAX) {
        let n_drawn = turn.drawn().len();
        let mut drafts = expected[n_drawn..]
            .iter()
            .copied()
            .take(4)
            .collect::<Vec<_>>();
        // Every third is wrong.
        for (i, draft) in drafts.iter_mut().enumerate() {
            if (n_drawn + i) % 3 == 2 {
                *draft = (*draft + 1) % width as u32;
            }
        }
        let n_new = feed.tokens.len();
        let tokens = [feed.tokens, &drafts].concat();
        let output = engine
            .compute(&[BatchItem::new(seq, &tokens, LogitsFor::All)])
            .unwrap();
        n_steps += 1;
        turn.fed(n_new);
        let rows = output.logits(0).chunks(width).skip(n_new - 1);
        let mut drafts = drafts.into_iter();
        for row in rows {
            let token = turn.push_logits(row).unwrap();
            if turn.finish().is_some() || token != drafts.next() {
                break;
            }
            turn.fed(1);
        }
        let n_kept = prompt.len() + turn.drawn().len() - 1;
        engine.truncate(seq, n_kept).unwrap();
    }
    let done = turn.into_generation();
    assert_eq!((done.tokens, done.text), (expected, text));
    assert!(n_steps <= 15, "{n_steps} steps for 40 tokens");
}
