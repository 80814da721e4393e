//! The cache changes no bit. Sequences made, forked, cut, released and begun from kept pages in any
//! order compute the same as an engine that keeps nothing and starts from the first token.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, Error, KvType, LoadedModel, LogitsFor, SeqId,
};
use millrace_testkit::golden::Golden;
use millrace_testkit::ops::add_leaky_sums;
use proptest::prelude::*;

/// Full attention; windows of 9 and 13 in some layers; a window of 17 in all; gated delta nets; short convolutions;
/// selective scans, with experts, beside attention and alone.
const MODELS: [&str; 10] = [
    "llama-llama3",
    "gemma3-256",
    "gemma3-pattern",
    "mistral-window",
    "qwen35",
    "lfm2",
    "granitehybrid",
    "falcon_h1",
    "mamba",
    "jamba",
];

/// The same models again, with a recurrent state in every block.
const WITH_STATES: [&str; 2] = ["llama-llama3+states", "mistral-window+states"];

fn names() -> impl Iterator<Item = &'static str> {
    MODELS.into_iter().chain(WITH_STATES)
}

const N_CTX: usize = 400;

fn model(name: &str) -> Arc<LoadedModel> {
    static OPEN: OnceLock<BTreeMap<&'static str, Arc<LoadedModel>>> = OnceLock::new();
    let all = OPEN.get_or_init(|| {
        let open = |name: &str| {
            let golden = name.trim_end_matches("+states");
            let model = LoadedModel::open(Golden::named(golden).hf()).unwrap();
            let states = |graph: &mut _| {
                if name != golden {
                    add_leaky_sums(graph, "attn_residual");
                }
            };
            Arc::new(model.with_graph(states).unwrap())
        };
        names().map(|name| (name, open(name))).collect()
    });
    all[name].clone()
}

fn engine(name: &str, kv_tokens: usize, keep_prefixes: bool) -> CpuEngine {
    let options = EngineOptions {
        n_threads: Some(1),
        n_ctx: Some(N_CTX),
        kv_tokens: Some(kv_tokens),
        max_sequences: 4,
        max_chunk: 48,
        kv_type: KvType::F16,
        keep_prefixes,
        ..EngineOptions::default()
    };
    CpuEngine::new(model(name), options).unwrap()
}

/// A text. It equals all others up to token `70 · text`, and then diverges. Two texts agree up to the earlier of their two
/// divergences.
fn text(model: &LoadedModel, text: usize, len: usize) -> Vec<u32> {
    let vocab_size = model.model().config.vocab_size;
    let token = |i| {
        if i < 70 * text {
            i * 7
        } else {
            i * 11 + 5 + text
        }
    };
    (0..len).map(|i| (token(i) % vocab_size) as u32).collect()
}

#[derive(Clone, Debug)]
enum Action {
    /// Some sequences go on in one step, each as a text does; or one is made.
    Append(Vec<(usize, usize, usize)>),
    Fork(usize),
    Truncate(usize, usize),
    Release(usize),
    /// A prompt: reuses as much as possible, and computes the rest.
    Prompt(usize, usize, usize),
}

fn action() -> impl Strategy<Value = Action> {
    let any = any::<usize>;
    let append = (any(), 0usize..4, 1usize..90);
    prop_oneof![
        4 => prop::collection::vec(append, 1..3).prop_map(Action::Append),
        1 => any().prop_map(Action::Fork),
        // Mostly a little, sometimes anything.
        2 => (any(), prop_oneof![0usize..64, 0..N_CTX]).prop_map(|(i, n)| Action::Truncate(i, n)),
        1 => any().prop_map(Action::Release),
        3 => (any(), 0usize..4, 1usize..260).prop_map(|(i, t, n)| Action::Prompt(i, t, n)),
    ]
}

/// An engine that keeps pages, and one that keeps nothing.
struct Pair {
    cached: CpuEngine,
    fresh: CpuEngine,
    alive: Vec<SeqId>,
}

impl Pair {
    fn pick(&mut self, i: usize) -> SeqId {
        if self.alive.is_empty() {
            self.alive.push(self.cached.create().unwrap());
        }
        self.alive[i % self.alive.len()]
    }

    /// Appends to sequences in one step, and compares every row of logits. A full cache is not a
    /// failure: nothing has changed.
    fn append(&mut self, appended: &[(SeqId, Vec<u32>)]) {
        let before: Vec<Vec<u32>> = appended
            .iter()
            .map(|(seq, _)| self.cached.tokens(*seq).unwrap().to_vec())
            .collect();
        let batch: Vec<BatchItem<'_>> = appended
            .iter()
            .map(|(seq, tokens)| BatchItem::new(*seq, tokens, LogitsFor::All))
            .collect();
        let output = match self.cached.compute(&batch) {
            Ok(output) => output,
            Err(Error::CacheFull { .. } | Error::ContextOverflow { .. }) => {
                for ((seq, _), before) in appended.iter().zip(before) {
                    assert_eq!(self.cached.tokens(*seq).unwrap(), before);
                }
                return;
            }
            Err(error) => panic!("{error}"),
        };
        for (i, ((seq, tokens), before)) in appended.iter().zip(before).enumerate() {
            let whole = [&before[..], tokens].concat();
            assert_eq!(self.cached.tokens(*seq).unwrap(), whole);
            let other = self.fresh.create().unwrap();
            if !before.is_empty() {
                let past = BatchItem::new(other, &before, LogitsFor::None);
                self.fresh.compute(&[past]).unwrap();
            }
            let item = BatchItem::new(other, tokens, LogitsFor::All);
            let expected = self.fresh.compute(&[item]).unwrap();
            assert!(
                output.logits(i) == expected.logits(0),
                "after {}",
                before.len()
            );
            self.fresh.release(other).unwrap();
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Append(parts) => {
                let mut appended: Vec<(SeqId, Vec<u32>)> = Vec::new();
                for (i, t, n) in parts {
                    let seq = self.pick(i);
                    let len = self.cached.len(seq).unwrap();
                    let tokens = text(self.cached.model(), t, len + n)[len..].to_vec();
                    if appended.iter().all(|(other, _)| *other != seq) {
                        appended.push((seq, tokens));
                    }
                }
                self.append(&appended);
            }
            Action::Fork(i) => {
                let seq = self.pick(i);
                self.alive.extend(self.cached.fork(seq).ok());
            }
            Action::Truncate(i, n) => {
                let seq = self.pick(i);
                let len = self.cached.len(seq).unwrap();
                let cut = self.cached.truncate(seq, len.saturating_sub(n));
                assert!(matches!(cut, Ok(()) | Err(Error::WindowGone { .. })));
            }
            Action::Release(i) => {
                let seq = self.pick(i);
                self.cached.release(seq).unwrap();
                self.alive.retain(|other| *other != seq);
                assert!(matches!(self.cached.len(seq), Err(Error::NoSequence(_))));
            }
            Action::Prompt(i, t, n) => {
                let new = (self.alive.len() < 4).then(|| self.cached.create().unwrap());
                self.alive.extend(new);
                let seq = self.pick(i);
                let prompt = text(self.cached.model(), t, n);
                let kept = self.cached.reuse_prefix(seq, &prompt).unwrap();
                assert_eq!(self.cached.tokens(seq).unwrap(), &prompt[..kept]);
                self.append(&[(seq, prompt[kept..].to_vec())]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn cached_and_computed_are_the_same_bits(
        actions in prop::collection::vec(action(), 4..16),
        kv_tokens in prop::sample::select(vec![500usize, 1600]),
    ) {
        for name in names() {
            let mut pair = Pair {
                cached: engine(name, kv_tokens, true),
                fresh: engine(name, 4 * N_CTX, false),
                alive: Vec::new(),
            };
            actions.iter().for_each(|action| pair.act(action.clone()));
        }
    }
}

/// The same with required hits, so that a cache that never hits does not pass.
#[test]
fn what_was_released_is_found_again_on_every_model() {
    for name in names() {
        let mut pair = Pair {
            cached: engine(name, 1600, true),
            fresh: engine(name, 1600, false),
            alive: Vec::new(),
        };
        let prompt = |t, n| Action::Prompt(0, t, n);
        pair.act(prompt(3, 200));
        pair.act(Action::Release(0));
        pair.act(prompt(3, 230));
        assert_eq!(pair.cached.counters().prefix.n_hit_tokens, 192, "{name}");
        pair.act(Action::Release(0));
        // Agrees with the first for 140 tokens: two pages.
        pair.act(prompt(2, 230));
        let hits = pair.cached.counters().prefix.n_hit_tokens - 192;
        assert_eq!(hits, 128, "{name}");
    }
}
