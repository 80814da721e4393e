//! The library from a user's view: errors and their texts, sessions on several threads, chats side by side, batches.
#![allow(clippy::unwrap_used)] // A test may panic.

mod batch;

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

/// Errors before any work: their texts and their advice.
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

#[test]
fn the_cpu_refuses_settings_of_an_npu() {
    let model = demo();
    for device in [
        Device::named("cpu").mode("int8"),
        Device::named("cpu").set("cols=4"),
    ] {
        let error = model.on(device).unwrap_err();
        assert!(matches!(error, Error::NpuSetting { .. }), "{error}");
        assert!(error.advice().unwrap().contains("NPU"));
    }
}

#[test]
fn a_missing_vision_encoder_is_named_at_once() {
    let error = Model::open_with("demo", &OpenOptions::new().mmproj("no-such.gguf")).unwrap_err();
    assert!(matches!(error, Error::Read { .. }), "{error}");
    assert!(error.to_string().contains("no-such.gguf"), "{error}");
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

/// A callback may use the session during text events: no lock is held then.
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
    // The same messages at once, and in a chat that continues from them.
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

/// The demo with a template that ends a prompt as Functionary 3.2 does: with the mark of a message. The model writes
/// the line after it.
fn functionary(folder: &std::path::Path, signs: &str) -> Model {
    let template = format!(
        "{{{{bos_token}}}}{{%for m in messages%}}<|{{{{m.role}}}}|>{{{{'>>>all\n' if m.role=='assistant'}}}}{{{{m.content}}}}<|end|>{{%endfor%}}\
         {{%if add_generation_prompt%}}<|assistant|>>>>{{%endif%}}{{#{signs}#}}"
    );
    let path = folder.join(format!("{}.gguf", signs.len()));
    std::fs::write(&path, with_template(&template)).unwrap();
    Model::open(path.to_str().unwrap()).unwrap()
}

/// The demo's file with another template, at most as long as its own.
fn with_template(template: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/demo.gguf");
    let mut bytes = std::fs::read(path).unwrap();
    let place = |text: &[u8]| bytes.windows(text.len()).position(|window| window == text);
    let from = place(b"{{ bos_token }}{% for message in messages %}").unwrap();
    let end = b"{{ '<|assistant|>' }}{% endif %}";
    let to = place(end).unwrap() + end.len();
    let space = " ".repeat(to - from - template.len() - "{##}".len());
    bytes[from..to].copy_from_slice(format!("{template}{{#{space}#}}").as_bytes());
    bytes
}

#[test]
fn answers_of_functionary_are_text_to_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let model = functionary(folder.path(), ">>>${recipient}");
    let other = functionary(folder.path(), "");
    let prompt = || Prompt::user("What is 7 plus 5?");
    let plain = other.prepare(prompt()).unwrap();
    let line = model.prepare(Prompt::text("all\n")).unwrap();
    // A text begins with the BOS token.
    let expected = [plain.tokens(), &line.tokens()[1..]].concat();
    assert_eq!(model.prepare(prompt()).unwrap().tokens(), expected);
    // A chat sends the same tokens, and its earlier answers get the line from the template.
    let device = || Device::named("cpu").threads(1).context(256);
    let (session, plain) = (model.on(device()).unwrap(), other.on(device()).unwrap());
    let options = Options::greedy().max_tokens(3);
    let said = |session: &Session| {
        let mut chat = session.chat().unwrap().options(&options);
        chat.say("What is 7 plus 5?").unwrap();
        chat.n_tokens()
    };
    let n_line = line.tokens().len() - 1;
    assert!(n_line > 0);
    assert_eq!(said(&session), said(&plain) + n_line);
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

/// RoPE frequencies that are the same in all layers have a base. Scaled ones, and those of two kinds of layers, have
/// no single base.
#[test]
fn a_base_of_rope_is_told_where_it_says_all() {
    let goldens = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens");
    let base = |name: &str| {
        let folder = goldens.join(name);
        Model::open(folder.to_str().unwrap()).unwrap().rope_base()
    };
    assert_eq!(demo().rope_base(), Some(10_000.0));
    for name in ["llama-linear-bias", "llama-llama3", "gemma3-pattern"] {
        assert_eq!(base(name), None, "{name}");
    }
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
