//! A conversation of 20,000 tokens with a recurrent model: the cost of its second turn, in the same process and in another.

use std::sync::Arc;

use millrace_runtime::disk::PageFolder;
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, LoadedModel, LogitsFor, SeqId,
};
use millrace_testkit::golden::Golden;

/// Tokens of the first turn: question and answer.
const PROMPT: usize = 19_900;
const ANSWER: usize = 100;
/// Tokens of the second question.
const QUESTION: usize = 150;

fn engine(keep_prefixes: bool) -> CpuEngine {
    let model = LoadedModel::open(Golden::named("qwen35").hf()).unwrap();
    let options = EngineOptions {
        n_threads: Some(2),
        n_ctx: Some(PROMPT + ANSWER + QUESTION + 50),
        max_sequences: 1,
        keep_prefixes,
        ..EngineOptions::default()
    };
    CpuEngine::new(Arc::new(model), options).unwrap()
}

fn text() -> Vec<u32> {
    let token = |i: usize| (i * i * 7 + i * 11) as u32 % 251;
    (0..PROMPT + ANSWER + QUESTION).map(token).collect()
}

/// Reads tokens; returns the logits after the last.
fn read(engine: &mut CpuEngine, seq: SeqId, tokens: &[u32]) -> Vec<f32> {
    let item = BatchItem::new(seq, tokens, LogitsFor::Last);
    engine.compute(&[item]).unwrap().logits(0).to_vec()
}

/// The second turn: the tokens that it found cached, and the logits after it.
fn second_turn(engine: &mut CpuEngine) -> (usize, Vec<f32>) {
    let text = text();
    let seq = engine.create().unwrap();
    let n_held = engine.reuse_prefix(seq, &text).unwrap();
    let before = engine.counters().n_tokens;
    let logits = read(engine, seq, &text[n_held..]);
    let n_computed = engine.counters().n_tokens - before;
    assert_eq!(n_computed as usize, text.len() - n_held);
    engine.release(seq).unwrap();
    (n_held, logits)
}

#[test]
fn the_second_turn_computes_what_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let folder = PageFolder {
        path: dir.path().to_owned(),
        max_bytes: u64::MAX,
        warn: Arc::new(|line| panic!("{line}")),
    };
    let text = text();
    let mut first = engine(true);
    first.keep_pages_in(&folder).unwrap();
    let seq = first.create().unwrap();
    assert_eq!(first.reuse_prefix(seq, &text[..PROMPT]).unwrap(), 0);
    read(&mut first, seq, &text[..PROMPT]);
    for token in &text[PROMPT..PROMPT + ANSWER] {
        read(&mut first, seq, &[*token]);
    }
    first.release(seq).unwrap();
    assert_eq!(first.counters().n_tokens as usize, PROMPT + ANSWER);

    let (n_held, logits) = second_turn(&mut first);
    drop(first);
    // Started again.
    let mut again = engine(true);
    again.keep_pages_in(&folder).unwrap();
    let (n_read, read_again) = second_turn(&mut again);
    let n_first = PROMPT + ANSWER;
    for (n_held, what) in [(n_held, "kept"), (n_read, "from disk")] {
        assert!(
            n_held * 100 >= n_first * 97,
            "{what}: {n_held} of {n_first}"
        );
    }

    // Nothing was kept, and all is computed: the same bits.
    let mut plain = engine(false);
    let (n_held, expected) = second_turn(&mut plain);
    assert_eq!(n_held, 0);
    assert!(logits == expected && read_again == expected);
}
