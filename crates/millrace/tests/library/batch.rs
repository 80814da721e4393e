//! Batches of prompts.

use super::*;

#[test]
fn a_batch_keeps_order_and_texts_however_few_sequences_there_are() {
    let prompts: Vec<String> = ["Once", "The dog", "A", "Tom and Mia", "One day", "It was"]
        .iter()
        .map(|start| format!("{start} and so"))
        .collect();
    let alone = session(1);
    let expected: Vec<Vec<u32>> = prompts
        .iter()
        .map(|prompt| alone.generate_with(prompt, &short()).unwrap().tokens)
        .collect();
    for n_sequences in [1, 2, 4, 8] {
        let session = session(n_sequences);
        let together = session.batch(&prompts, &short()).unwrap();
        let tokens: Vec<Vec<u32>> = together.into_iter().map(|g| g.tokens).collect();
        assert_eq!(tokens, expected, "{n_sequences} sequences");
        // Passes are shared.
        let passes = session.with_engine(|engine| engine.counters().n_passes);
        let most = (12 + 1) * prompts.len().div_ceil(n_sequences) as u64;
        assert!(passes <= most, "{passes} of {most} with {n_sequences}");
    }
    assert!(
        session(1)
            .batch(Vec::<String>::new(), &short())
            .unwrap()
            .is_empty()
    );
    // One invalid prompt fails the whole batch, and leaves nothing behind.
    let session = session(2);
    let error = session
        .batch(["a", &"b ".repeat(400)], &short())
        .unwrap_err();
    assert!(matches!(
        error,
        Error::Engine(EngineError::ContextOverflow { .. })
    ));
    assert_eq!(session.with_engine(|e| e.kv_usage().used_bytes), 0);
}

/// The common beginning of a list of prompts is computed once, even if all of it is new.
#[test]
fn a_batch_reads_a_common_beginning_once() {
    let session = {
        let device = Device::named("cpu").threads(1).context(400).sequences(8);
        demo().on(device).unwrap()
    };
    let beginning = "Tom saw a dog and a cat in the park. ".repeat(20);
    let prompts: Vec<String> = (0..6)
        .map(|n| format!("{beginning}It was day {n}"))
        .collect();
    let n_prompt = demo().tokenize(&prompts[0]).unwrap().len();
    let page = 64;
    let n_shared = demo().tokenize(&beginning).unwrap().len() / page * page;
    assert!(n_shared >= 2 * page, "{n_shared} tokens are too few");
    let together = session.batch(&prompts, &short()).unwrap();
    let n_cached: Vec<usize> = together.iter().map(|one| one.timings.n_cached).collect();
    // The beginning's last token may merge with the text after it, so the last shared page may end before it.
    assert_eq!(n_cached[0], 0);
    let least = n_shared - page;
    assert!(
        n_cached[1..].iter().all(|n| *n >= least && *n < n_prompt),
        "{n_cached:?} of {n_shared} tokens in common"
    );
    let device = Device::named("cpu").threads(1).context(400).sequences(1);
    let alone = demo().on(device).unwrap();
    for (prompt, one) in prompts.iter().zip(&together) {
        let alone = alone.generate_with(prompt, &short()).unwrap();
        assert_eq!(one.tokens, alone.tokens);
    }
    // Prompts with nothing in common are not delayed: all are read in the first passes.
    let before = session.with_engine(|engine| engine.counters().n_passes);
    session
        .batch(["The dog", "Tom", "One day"], &short())
        .unwrap();
    let passes = session.with_engine(|engine| engine.counters().n_passes) - before;
    assert!(passes <= 13, "{passes} passes");
}

/// A prompt that fails has its error, and the others their texts.
#[test]
fn a_batch_can_keep_the_good_of_it() {
    let session = session(2);
    let long = "b ".repeat(400);
    let each = session
        .batch_each(["Tom", &long, "The dog", &long], &short())
        .unwrap();
    assert_eq!(each.len(), 4);
    for (at, prompt) in [(0, "Tom"), (2, "The dog")] {
        let alone = session.generate_with(prompt, &short()).unwrap();
        assert_eq!(each[at].as_ref().unwrap().tokens, alone.tokens);
    }
    for at in [1, 3] {
        assert!(matches!(
            each[at],
            Err(Error::Engine(EngineError::ContextOverflow { .. }))
        ));
    }
}

/// Where not all prompts fit the cache, some are computed again, with the same texts.
#[test]
fn a_batch_fits_itself_into_a_small_cache() {
    let with = |kv_tokens: usize| {
        let options = EngineOptions {
            n_threads: Some(1),
            n_ctx: Some(256),
            max_sequences: 4,
            kv_tokens: Some(kv_tokens),
            ..EngineOptions::default()
        };
        demo()
            .on(Device::named("cpu").engine_options(options))
            .unwrap()
    };
    let prompts: Vec<String> = (1..5).map(|n| "Tom saw a dog. ".repeat(4 * n)).collect();
    let long = Options::greedy().max_tokens(70).ignore_end(true);
    let texts = |session: &Session| {
        session
            .batch(&prompts, &long)
            .map(|all| all.into_iter().map(|g| g.tokens).collect::<Vec<_>>())
    };
    let n_computed = |session: &Session| session.with_engine(|e| e.counters().n_tokens);
    let large = with(1024);
    let expected = texts(&large).unwrap();
    // A cache has room for a context at least.
    for kv_tokens in [1, 320] {
        let small = with(kv_tokens);
        assert_eq!(texts(&small).unwrap(), expected, "{kv_tokens}");
        assert!(n_computed(&small) > n_computed(&large), "nothing was short");
        assert_eq!(small.with_engine(|e| e.kv_usage().used_bytes), 0);
    }
}

#[test]
fn a_cancelled_batch_gives_what_it_has() {
    let cancel = Cancel::new();
    let session = session(2);
    let options = short().cancel(&cancel);
    cancel.cancel();
    let stopped = session.batch(["a", "b", "c"], &options).unwrap();
    assert_eq!(stopped.len(), 3);
    assert!(stopped.iter().all(|g| g.finish == Finish::Cancelled));
    cancel.reset();
    let done = session.batch(["a", "b", "c"], &options).unwrap();
    assert!(done.iter().all(|g| g.finish == Finish::Length));
}
