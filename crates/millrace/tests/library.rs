//! The library as a user has it: what is refused and how, sessions of several threads, chats side by side, batches.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace::engine::{EngineOptions, Error as EngineError, SettingError};
use millrace::{
    Cancel, Chat, Device, Error, Event, Finish, KvType, Message, Model, OpenOptions, Options,
    Pooling, Prompt, RgbImage, Session, Stream,
};

fn demo() -> Model {
    Model::open("demo").unwrap()
}

/// A small session; tests share the cores.
fn session(n_sequences: usize) -> Session {
    let device = Device::named("cpu").threads(1).context(256);
    demo().on(device.sequences(n_sequences)).unwrap()
}

fn short() -> Options {
    Options::greedy().max_tokens(12)
}

fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}

#[test]
fn what_can_cross_threads_does() {
    is_send::<Model>();
    is_sync::<Model>();
    is_send::<Session>();
    is_sync::<Session>();
    is_send::<Chat>();
    is_send::<Stream>();
    is_send::<Cancel>();
    is_sync::<Cancel>();
    is_send::<Error>();
    is_sync::<Error>();
}

/// What is refused, before any work, in which words, and what is advised.
#[test]
fn errors_say_what_to_do() {
    let offline = OpenOptions::new().offline(true);
    let session = session(1);
    let long = "word ".repeat(400);
    let of = |result: Result<(), Error>| result.unwrap_err();
    let rows = [
        (
            of(Model::open("demoo").map(drop)),
            "no model `demoo`",
            "did you mean `demo`",
        ),
        (
            of(Model::open("no/such.gguf").map(drop)),
            "no such file",
            "open `demo`, a path",
        ),
        (
            of(demo().on("npu9").map(drop)),
            "no device `npu9`: there is cpu",
            "",
        ),
        (
            of(session.generate(long.as_str()).map(drop)),
            "256",
            "Device::context",
        ),
        (
            of(session
                .generate_with("x", &Options::new().top_p(2.0))
                .map(drop)),
            "top-p is 2",
            "",
        ),
        (
            of(session
                .generate_with("x", &Options::new().stop(""))
                .map(drop)),
            "stop text is empty",
            "",
        ),
        (
            of(session
                .generate_with("x", &Options::new().logit_bias(1 << 30, 1.0))
                .map(drop)),
            "not in the vocabulary",
            "",
        ),
        (
            of(session
                .generate(Prompt::text("x").image(RgbImage::new(2, 2, vec![0; 12])))
                .map(drop)),
            "no vision encoder",
            "OpenOptions::mmproj",
        ),
        (
            of(Prompt::text("x").image_file("no.png").map(drop)),
            "cannot read no.png",
            "",
        ),
        (of(session.embed(&long).map(drop)), "256", "Device::context"),
    ];
    for (error, said, advised) in rows {
        let text = error.to_string();
        assert!(text.contains(said), "{said}: {text}");
        let advice = error.advice().unwrap_or_default();
        assert!(advice.contains(advised), "{advised}: {advice}");
    }
    #[cfg(feature = "hub")]
    {
        let error = Model::open_with("hf:no-such-owner/no-such-model", &offline).unwrap_err();
        assert!(matches!(&error, Error::Hub(_)), "{error}");
        assert!(error.advice().unwrap().contains("network"));
    }
    #[cfg(not(feature = "hub"))]
    {
        let error = Model::open_with("hf:owner/model", &offline).unwrap_err();
        assert!(matches!(&error, Error::NoHub { .. }), "{error}");
    }
}

#[cfg(feature = "targets")]
#[test]
fn an_npu_refuses_what_it_does_not_take() {
    let model = demo();
    let on = |device: Device| model.on(device).unwrap_err();
    let error = on(Device::named("xdna2").kv_type(KvType::F32));
    assert!(matches!(
        error,
        Error::KvType {
            device: "xdna2",
            ..
        }
    ));
    let error = on(Device::named("xdna2").mode("no-such"));
    assert!(matches!(
        error,
        Error::Setting(SettingError::Unknown { what: "mode", .. })
    ));
    let error = on(Device::named("xdna2").set("no.such=1"));
    assert!(matches!(error, Error::Setting(_)), "{error}");
    let settings = millrace::TargetSettings {
        machine: Some("no-such".to_owned()),
        ..Default::default()
    };
    let error = on(Device::named("rk3588").settings(settings));
    assert!(matches!(
        error,
        Error::NoFacts {
            what: "machine",
            ..
        }
    ));
    assert!(error.advice().unwrap().contains("built in are"));
}

#[cfg(not(feature = "targets"))]
#[test]
fn without_targets_there_is_the_cpu() {
    assert_eq!(Device::names().len(), 1);
    let error = demo().on("xdna2").unwrap_err();
    assert!(matches!(error, Error::NoDevice { .. }));
    let _: Option<SettingError> = None;
    let _ = KvType::F16;
}

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
    // One that cannot be is an error of all, and leaves nothing behind.
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

/// What a list of prompts has in common is computed once, even if all of it is new.
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
    // The last token of the beginning may be another with what follows, so the last shared page may end before it.
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
    // Prompts with nothing in common are not held back: all are read in the first passes.
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

/// Where not all prompts fit the cache, some are computed again, to the same texts.
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

#[test]
fn streams_interleave_and_give_their_sequences_back() {
    let session = session(2);
    let expected = |prompt: &str| session.generate_with(prompt, &short()).unwrap().text;
    let expected = [expected("Once upon a time"), expected("The dog")];
    let mut a = session.stream("Once upon a time", &short()).unwrap();
    let mut b = session.stream("The dog", &short()).unwrap();
    let full = session.stream("A", &short()).unwrap_err();
    assert!(matches!(
        &full,
        Error::Engine(EngineError::TooManySequences { .. })
    ));
    assert!(full.advice().unwrap().contains("Device::sequences"));
    let mut texts = [String::new(), String::new()];
    loop {
        let pieces = [a.next(), b.next()];
        if pieces.iter().all(Option::is_none) {
            break;
        }
        for (text, piece) in texts.iter_mut().zip(pieces) {
            *text += &piece.transpose().unwrap().unwrap_or_default();
        }
    }
    assert_eq!(texts, expected);
    drop(a);
    let mut amid = session.stream("A", &short()).unwrap();
    amid.next().unwrap().unwrap();
    drop((amid, b));
    assert_eq!(session.with_engine(|e| e.kv_usage().used_bytes), 0);
}

/// Whoever is told of text may use the session: no lock is held then.
#[test]
fn a_callback_may_use_the_session() {
    let session = session(2);
    let mut inner = None;
    let outer = session.generate_events("Once upon a time", &short(), &mut |event| {
        if let (Event::Text(_), None) = (event, &inner) {
            inner = Some(session.generate_with("Once upon a time", &short()).unwrap());
        }
    });
    assert_eq!(outer.unwrap().text, inner.unwrap().text);
}

#[test]
fn threads_share_a_session() {
    let session = session(4);
    let expected = session.generate_with("The dog", &short()).unwrap().text;
    let texts: Vec<String> = std::thread::scope(|scope| {
        let run = || session.generate_with("The dog", &short()).unwrap().text;
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(texts.iter().all(|text| *text == expected));
}

#[test]
fn a_chat_says_what_its_messages_say_and_forgets_what_failed() {
    let session = session(2);
    let options = Options::greedy().max_tokens(16);
    let mut chat = session.chat().unwrap().options(&options);
    let first = chat.say("What is 7 plus 5?").unwrap();
    let second = chat.say("And 3 plus 4?").unwrap();
    assert!(second.timings.n_cached > first.timings.n_cached);
    let failed = chat.say("word ".repeat(400)).unwrap_err();
    assert!(matches!(
        failed,
        Error::Engine(EngineError::ContextOverflow { .. })
    ));
    let messages = chat.messages();
    assert_eq!(messages.len(), 4);
    // The same messages at once, and in a chat that takes up where this one is.
    let asked = messages[..3].to_vec();
    let at_once = session
        .generate_with(Prompt::messages(asked), &options)
        .unwrap();
    assert_eq!(at_once.tokens, second.tokens);
    drop(at_once);
    let mut other = session.chat().unwrap().options(&options);
    other.restore(messages[..2].to_vec()).unwrap();
    assert_eq!(other.say("And 3 plus 4?").unwrap().tokens, second.tokens);
    // Instructions come first, change the prompt, and stay when the conversation is cleared.
    other.set_system(Some("Be brief.".to_owned())).unwrap();
    assert_eq!(other.n_tokens(), 0);
    other.say("What is 7 plus 5?").unwrap();
    other.clear().unwrap();
    let system: Vec<Message> = other.messages();
    assert_eq!((system.len(), system[0].role.as_str()), (1, "system"));
}

#[test]
fn drafts_change_no_text() {
    let options = Options::new().seed(5).max_tokens(40);
    let plain = session(1)
        .generate_with("Once upon a time", &options)
        .unwrap();
    let draft = Model::open("demo-draft").unwrap();
    let device = || Device::named("cpu").threads(1).context(256).sequences(1);
    for device in [device().draft(&draft), device().draft_ngram()] {
        let session = demo().on(device).unwrap();
        for _ in 0..2 {
            let drafted = session.generate_with("Once upon a time", &options).unwrap();
            assert_eq!(drafted.tokens, plain.tokens);
        }
        let stats = session.speculation().unwrap();
        assert!(stats.n_checks + stats.n_plain > 0);
    }
    let larger = draft.on(device().draft(&demo())).unwrap_err();
    assert!(matches!(
        larger,
        Error::Engine(EngineError::LargerDraft { .. })
    ));
}

#[test]
fn embeddings_have_length_one_whatever_the_chunks() {
    let session = session(1);
    let text = "The dog saw a ball. ".repeat(8);
    for pooling in [Pooling::Mean, Pooling::Last] {
        let embedding = session.embed_with(&text, pooling).unwrap();
        assert_eq!(embedding.len(), session.model().d_model());
        let length: f32 = embedding.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    let mean = session.embed(&text).unwrap();
    assert_eq!(mean, session.embed_with(&text, Pooling::Mean).unwrap());
    assert_ne!(mean, session.embed_with(&text, Pooling::Last).unwrap());
    assert_eq!(session.with_engine(|e| e.kv_usage().used_bytes), 0);
}

#[test]
fn logits_are_a_row_a_token_and_lead_to_the_greedy_text() {
    let session = session(1);
    let tokens = session.model().tokenize("Once upon a time").unwrap();
    let logits = session.logits(Prompt::tokens(tokens.clone())).unwrap();
    assert_eq!(logits.vocab_size(), session.model().vocab_size());
    assert_eq!(logits.rows().len(), tokens.len());
    assert_eq!(logits.data().len(), tokens.len() * logits.vocab_size());
    let last = logits.rows().next_back().unwrap();
    let likeliest = (0..last.len()).max_by(|a, b| last[*a].total_cmp(&last[*b]));
    let drawn = session
        .generate_with(Prompt::tokens(tokens), &short())
        .unwrap();
    assert_eq!(likeliest.unwrap() as u32, drawn.tokens[0]);
}
