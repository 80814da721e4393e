//! Requests that an engine refuses; refusing changes nothing.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, Error, GenerateParams, LoadedModel,
    SamplingParams, generate,
};
use millrace_testkit::golden::Golden;

fn model() -> Arc<LoadedModel> {
    Arc::new(LoadedModel::open(Golden::named("llama-llama3").hf()).unwrap())
}

fn engine(options: EngineOptions) -> CpuEngine {
    CpuEngine::new(model(), options).unwrap()
}

#[test]
fn bad_batches_are_refused_before_any_work() {
    let mut engine = engine(EngineOptions {
        n_ctx: Some(20),
        max_sequences: 2,
        max_chunk: 4,
        ..EngineOptions::default()
    });
    let (a, b) = (engine.create().unwrap(), engine.create().unwrap());
    assert!(matches!(
        engine.create(),
        Err(Error::TooManySequences { max_sequences: 2 })
    ));
    engine.compute(&[BatchItem::last(a, &[1, 2, 3])]).unwrap();
    let long = [1; 18];
    let outside = [engine.model().model().config.vocab_size as u32];
    type Check = fn(&Error) -> bool;
    let cases: [(&[BatchItem<'_>], Check); 4] = [
        (
            &[BatchItem::last(b, &[1]), BatchItem::last(a, &long)],
            |error| {
                matches!(
                    error,
                    Error::ContextOverflow {
                        n_prompt: 21,
                        n_ctx: 20,
                        ..
                    }
                )
            },
        ),
        (
            &[BatchItem::last(b, &[1]), BatchItem::last(b, &[1])],
            |error| matches!(error, Error::DuplicateSequence(_)),
        ),
        (
            &[BatchItem::last(b, &[1]), BatchItem::last(a, &[])],
            |error| matches!(error, Error::EmptyPrompt),
        ),
        (
            &[BatchItem::last(b, &[1]), BatchItem::last(a, &outside)],
            |error| matches!(error, Error::BadToken { .. }),
        ),
    ];
    for (batch, expected) in cases {
        let error = engine.compute(batch).unwrap_err();
        assert!(expected(&error), "{error:?}");
        assert_eq!(
            (engine.len(a).unwrap(), engine.len(b).unwrap()),
            (3, 0),
            "{error}"
        );
    }
    engine.release(b).unwrap();
    let gone = engine.compute(&[BatchItem::last(b, &[1])]).unwrap_err();
    assert!(matches!(gone, Error::NoSequence(_)));
}

#[test]
fn a_cache_smaller_than_its_sequences_refuses_with_the_numbers() {
    let mut engine = engine(EngineOptions {
        n_ctx: Some(400),
        max_sequences: 2,
        kv_tokens: Some(128),
        ..EngineOptions::default()
    });
    let seq = engine.create().unwrap();
    let error = engine
        .compute(&[BatchItem::last(seq, &[1; 300])])
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::CacheFull {
                needed: 5,
                free: 4,
                ..
            }
        ),
        "{error:?}"
    );
    engine.compute(&[BatchItem::last(seq, &[1; 200])]).unwrap();
}

#[test]
fn options_out_of_range_are_refused() {
    let bad = [
        EngineOptions {
            n_ctx: Some(0),
            ..EngineOptions::default()
        },
        EngineOptions {
            max_chunk: 0,
            ..EngineOptions::default()
        },
        EngineOptions {
            max_sequences: 0,
            ..EngineOptions::default()
        },
        EngineOptions {
            n_threads: Some(0),
            ..EngineOptions::default()
        },
    ];
    for options in bad {
        assert!(CpuEngine::new(model(), options).is_err());
    }
    let ctx = |n_ctx| EngineOptions {
        n_ctx: Some(n_ctx),
        ..EngineOptions::default()
    };
    let huge = EngineOptions {
        max_sequences: 1 << 20,
        ..ctx((1 << 31) - 1)
    };
    assert!(matches!(
        CpuEngine::new(model(), huge),
        Err(Error::CacheTooLarge { .. })
    ));
    assert!(matches!(
        CpuEngine::new(model(), ctx(1 << 31)),
        Err(Error::BadOption { .. })
    ));
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_and_a_model_without_tokenizer_says_so() {
    let mut engine = engine(EngineOptions {
        n_ctx: Some(30),
        ..EngineOptions::default()
    });
    let seq = engine.create().unwrap();
    let cancel = AtomicBool::new(false);
    let mut run = |prompt: &[u32], max_tokens| {
        let params = GenerateParams {
            sampling: SamplingParams::default(),
            max_tokens,
            ..GenerateParams::default()
        };
        generate(&mut engine, seq, prompt, &params, &cancel, &mut |_| {})
    };
    let error = run(&[1; 30], Some(6)).unwrap_err();
    let text = error.to_string();
    assert!(matches!(
        error,
        Error::ContextOverflow {
            n_prompt: 30,
            n_new: 1,
            n_ctx: 30,
            ..
        }
    ));
    assert!(
        text.contains("30 prompt tokens + 1 new tokens = 31"),
        "{text}"
    );
    assert!(matches!(
        run(&[1; 31], None).unwrap_err(),
        Error::ContextOverflow { .. }
    ));
    // A maximum beyond the context does not count: this model fails later, for lack of a tokenizer.
    assert!(matches!(
        run(&[1; 25], Some(1000)).unwrap_err(),
        Error::NoTokenizer { .. }
    ));
    assert!(matches!(run(&[], None).unwrap_err(), Error::EmptyPrompt));
    assert!(matches!(
        run(&[1], None).unwrap_err(),
        Error::NoTokenizer { .. }
    ));
    // The answer may have any length: it stops where the context is full.
    assert!(matches!(
        run(&[1; 29], Some(usize::MAX)).unwrap_err(),
        Error::NoTokenizer { .. }
    ));
}

/// LongRoPE has one list of divisors up to the original context and one for longer contexts. The requested context
/// selects the list, whatever a sequence's own length.
#[test]
fn a_long_rope_follows_the_context() {
    let model = Arc::new(LoadedModel::open(Golden::named("phi3-long").hf()).unwrap());
    let with = |n_ctx| {
        let options = EngineOptions {
            n_ctx,
            ..EngineOptions::default()
        };
        CpuEngine::new(Arc::clone(&model), options).unwrap()
    };
    let mut usual = with(None);
    assert_eq!(usual.limits().n_ctx, 32);
    let seq = usual.create().unwrap();
    let error = usual
        .compute(&[BatchItem::last(seq, &[1; 33])])
        .unwrap_err();
    assert!(matches!(error, Error::ContextOverflow { .. }), "{error}");
    assert!(error.to_string().contains("--ctx"), "{error}");
    let logits = |n_ctx| {
        let mut engine = with(n_ctx);
        let seq = engine.create().unwrap();
        let item = BatchItem::last(seq, &[1, 2, 3, 4, 5, 6, 7, 8]);
        engine.compute(&[item]).unwrap().logits(0).to_vec()
    };
    assert_eq!(logits(None), logits(Some(20)));
    assert_eq!(logits(Some(33)), logits(Some(500)));
    assert_ne!(logits(None), logits(Some(33)));
}

#[test]
fn a_dynamic_rope_ends_at_the_trained_context() {
    let model = Arc::new(LoadedModel::open(Golden::named("llama-dynamic").hf()).unwrap());
    let with = |n_ctx| {
        let options = EngineOptions {
            n_ctx: Some(n_ctx),
            ..EngineOptions::default()
        };
        CpuEngine::new(Arc::clone(&model), options)
    };
    assert!(with(512).is_ok());
    let error = with(513).err().unwrap();
    assert!(
        matches!(error, Error::BeyondRope { limit: 512, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("--ctx"), "{error}");
    assert!(error.to_string().contains("RoPE"), "{error}");
}

#[test]
fn a_table_of_positions_ends_at_its_last_row() {
    let model = Arc::new(LoadedModel::open(Golden::named("gpt2").hf()).unwrap());
    let options = EngineOptions {
        n_ctx: Some(1 << 20),
        ..EngineOptions::default()
    };
    let error = CpuEngine::new(model, options).err().unwrap();
    assert!(matches!(error, Error::BeyondRope { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("table") && !text.contains("RoPE"), "{text}");
}
