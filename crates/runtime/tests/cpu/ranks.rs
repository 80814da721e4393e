//! One model on several ranks, which are threads here: the bits of one rank, whatever their number.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use millrace_format::Source;
use millrace_graph::RankPlace;
use millrace_model::Model;
use millrace_model::convert::Recipe;
use millrace_model::synth::{self, ModelGeometry, SynthOptions};
use millrace_runtime::ranks::{
    LeaderEngine, LinkModel, LocalRanks, RankError, RankPlan, RankTraffic, Ranks, follow,
    local_ranks, plan,
};
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, Error, Image, KvType, LoadedModel, LogitsFor,
};
use millrace_testkit::golden::{Golden, context};
use millrace_testkit::sample;

const TIMEOUT: Duration = Duration::from_secs(60);

type Follower = JoinHandle<Result<RankTraffic, Error>>;

fn options(model: &LoadedModel, n_threads: usize) -> EngineOptions {
    let limit = model.model().config.position_limit();
    EngineOptions {
        n_ctx: context(limit).or(Some(limit.map_or(256, |limit| limit.min(256)))),
        kv_type: KvType::F16,
        max_sequences: 4,
        max_chunk: 32,
        n_threads: Some(n_threads),
        keep_prefixes: true,
        ..EngineOptions::default()
    }
}

/// A leader, and the other ranks, which may have other numbers of threads.
fn start(model: &Arc<LoadedModel>, n_ranks: usize) -> (LeaderEngine, Vec<Follower>) {
    let mut ranks = local_ranks(n_ranks, TIMEOUT);
    let others = ranks.split_off(1).into_iter().enumerate();
    let others = others.map(|(i, ranks)| {
        let (model, options) = (Arc::clone(model), options(model, 1 + i % 2));
        spawn(move || follow(&model, options, Box::new(ranks)))
    });
    let others = others.collect();
    let leader = ranks.pop().map(Box::new).unwrap();
    let leader = LeaderEngine::new(model, options(model, 1), leader);
    (leader.unwrap_or_else(|error| panic!("{error}")), others)
}

/// Results of an engine for a prompt in uneven parts, beside another sequence, cut back, forked and read again.
fn run(engine: &mut dyn Engine, tokens: &[u32]) -> Vec<f32> {
    let mut given = Vec::new();
    let [a, b] = [0; 2].map(|_| engine.create().unwrap());
    let (first, rest) = tokens.split_at(tokens.len() / 2 + 1);
    let both = [
        BatchItem {
            hidden: true,
            ..BatchItem::new(a, first, LogitsFor::All)
        },
        BatchItem::last(b, &tokens[..3]),
    ];
    let output = engine.compute(&both).unwrap();
    given.extend_from_slice(output.logits(0));
    given.extend_from_slice(output.logits(1));
    given.extend(output.hidden(0).iter().flatten());
    let c = engine.fork(a).unwrap();
    engine.truncate(a, first.len() - 1).unwrap();
    for seq in [a, c] {
        let item = BatchItem::new(seq, rest, LogitsFor::All);
        given.extend_from_slice(engine.compute(&[item]).unwrap().logits(0));
    }
    engine.release(b).unwrap();
    engine.set_scope(c, 0).unwrap();
    let held = engine.reuse_prefix(c, tokens).unwrap();
    let item = BatchItem::last(c, &tokens[held..]);
    given.extend_from_slice(engine.compute(&[item]).unwrap().logits(0));
    engine.release(c).unwrap();
    given
}

fn alone(model: &Arc<LoadedModel>, tokens: &[u32]) -> Vec<f32> {
    let mut engine = CpuEngine::new(Arc::clone(model), options(model, 2)).unwrap();
    run(&mut engine, tokens)
}

/// Asserts the same bits on all numbers of ranks.
fn compare(name: &str, model: &Arc<LoadedModel>, tokens: &[u32], counts: &[usize]) {
    let expected = alone(model, tokens);
    assert!(expected.iter().all(|x| x.is_finite()), "{name}");
    for &n_ranks in counts {
        let (mut engine, others) = start(model, n_ranks);
        let found = run(&mut engine, tokens);
        let differs = found
            .iter()
            .zip(&expected)
            .position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(differs, None, "{name} on {n_ranks} ranks");
        assert_eq!(found.len(), expected.len());
        let traffic = engine.rank_traffic().unwrap();
        assert_eq!(traffic.n_gathers > 1, n_ranks > 1, "{name}");
        drop(engine);
        let mut sent = traffic.sent_bytes;
        let mut received = traffic.received_bytes;
        for other in others {
            let traffic = other.join().unwrap().unwrap();
            sent += traffic.sent_bytes;
            received += traffic.received_bytes;
        }
        assert_eq!(sent, received, "{name} on {n_ranks} ranks");
    }
}

#[test]
fn every_family_has_the_bits_of_one_rank_on_any_number_of_ranks() {
    for golden in Golden::all() {
        let model = Arc::new(LoadedModel::open(golden.hf()).unwrap());
        let tokens = golden.expected().tokens;
        compare(&golden.name, &model, &tokens, &[2, 3, 4]);
    }
}

/// One layer of a published geometry.
fn synthetic(geometry: &str, recipe: Recipe, dir: &Path) -> Arc<LoadedModel> {
    let name = match recipe.is_q4nx() {
        true => "bundle",
        false => "model.gguf",
    };
    let path = dir.join(name);
    let options = SynthOptions {
        recipe,
        vocab: None,
        vision: false,
        n_layers: Some(1),
        seed: 1,
        n_threads: Some(2),
    };
    let geometry = ModelGeometry::named(geometry).unwrap().with_vocab_size(288);
    synth::write(geometry, &path, &options, &mut |_, _| {
        ControlFlow::Continue(())
    })
    .unwrap();
    Arc::new(LoadedModel::open(&path).unwrap_or_else(|error| panic!("{error}")))
}

/// Blocks of weights, tiles of rows and 16-bit keys: a sample of formats, or all.
#[test]
fn every_format_has_the_bits_of_one_rank() {
    let few = ["Q4_K_M", "Q8_0", "Q4_0", "Q4NX", "BF16", "IQ2_XS"];
    let recipes: Vec<Recipe> = match sample::is_whole() {
        true => Recipe::all().collect(),
        false => few.map(|name| Recipe::parse(name).unwrap()).to_vec(),
    };
    let tokens: Vec<u32> = (0..19).map(|i| i * 13 % 288).collect();
    for recipe in recipes {
        let dir = tempfile::tempdir().unwrap();
        let model = synthetic("qwen3-0.6b", recipe, dir.path());
        compare(recipe.name(), &model, &tokens, &[3]);
    }
}

/// The demo, whose weights are quantised, over more tokens than a pass takes.
#[test]
fn a_long_prompt_has_the_bits_of_one_rank() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-draft/demo-draft.gguf");
    let model = Arc::new(LoadedModel::open(&path).unwrap());
    let tokens: Vec<u32> = (0..150).map(|i| i * 7 % 200).collect();
    compare("demo-draft", &model, &tokens, &[2, 4]);
}

fn golden() -> Arc<LoadedModel> {
    Arc::new(LoadedModel::open(Golden::named("llama-llama3").hf()).unwrap())
}

#[test]
fn a_lost_rank_ends_the_step_and_is_named() {
    let model = golden();
    let mut ranks = local_ranks(3, TIMEOUT);
    let dead = ranks.pop().unwrap();
    let follower = {
        let (model, ranks) = (Arc::clone(&model), ranks.pop().unwrap());
        spawn(move || follow(&model, options(&model, 1), Box::new(ranks)))
    };
    // The third rank ends when all are ready.
    let third = {
        let model = Arc::clone(&model);
        spawn(move || {
            let dies = Dies {
                ranks: dead,
                n_left: 3,
            };
            follow(&model, options(&model, 1), Box::new(dies))
        })
    };
    let leader = Box::new(ranks.pop().unwrap());
    let mut engine = LeaderEngine::new(&model, options(&model, 1), leader).unwrap();
    let seq = engine.create().unwrap();
    let lost = loop {
        match engine.compute(&[BatchItem::last(seq, &[1, 2, 3])]) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(third.join().unwrap().is_err());
    assert!(
        matches!(lost, Error::Rank(RankError::Lost { rank: 2, .. })),
        "{lost}"
    );
    assert_eq!(
        lost.to_string(),
        "rank 2 is lost: it ended; start all ranks again"
    );
    // Nothing waits for it again.
    let again = engine.compute(&[BatchItem::last(seq, &[4])]).unwrap_err();
    assert_eq!(again.to_string(), lost.to_string());
    drop(engine);
    assert!(matches!(
        follower.join().unwrap(),
        Err(Error::Rank(RankError::Lost { .. }))
    ));
}

#[test]
fn ranks_with_other_options_or_files_are_refused_and_named() {
    let model = golden();
    let other = Arc::new(LoadedModel::open(Golden::named("llama-mha").hf()).unwrap());
    let longer = EngineOptions {
        n_ctx: Some(64),
        ..options(&model, 1)
    };
    for (model_of_1, options_of_1, said) in [
        (&other, options(&model, 1), "its weights is"),
        (&model, longer, "its options is"),
    ] {
        let mut ranks = local_ranks(2, TIMEOUT);
        let (follower, own) = (ranks.pop().unwrap(), Arc::clone(model_of_1));
        let follower = spawn(move || follow(&own, options_of_1, Box::new(follower)));
        let leader = Box::new(ranks.pop().unwrap());
        let refused = LeaderEngine::new(&model, options(&model, 1), leader).err();
        let refused = refused.unwrap().to_string();
        assert!(refused.starts_with("rank 1 differs"), "{refused}");
        let reason = follower.join().unwrap().unwrap_err().to_string();
        assert!(reason.contains(said), "{reason}");
    }
}

#[test]
fn what_one_engine_refuses_the_leader_refuses_and_all_go_on() {
    let model = golden();
    let (mut engine, others) = start(&model, 2);
    let seq = engine.create().unwrap();
    let bad = engine.compute(&[BatchItem::last(seq, &[u32::MAX >> 4])]);
    assert!(matches!(bad, Err(Error::BadToken { .. })));
    let images: [Arc<Image>; 0] = [];
    let item = BatchItem::last(seq, &[1, 2]).with_images(&images);
    engine.compute(&[item]).unwrap();
    assert!(engine.truncate(seq, 1).is_ok());
    drop(engine);
    for other in others {
        other.join().unwrap().unwrap();
    }
}

/// Profiles cover every rank, and count its tokens, gathers and bytes as the plan does.
#[test]
fn profiles_of_all_ranks_have_the_bytes_of_the_plan() {
    let model = golden();
    for n_ranks in [1, 3] {
        let (mut engine, others) = start(&model, n_ranks);
        let seq = engine.create().unwrap();
        engine.compute(&[BatchItem::last(seq, &[1, 2])]).unwrap();
        let before = engine.profiles().unwrap();
        for token in 3..7 {
            engine.compute(&[BatchItem::last(seq, &[token])]).unwrap();
        }
        let after = engine.profiles().unwrap();
        let plans = plan(model.model(), &options(&model, 1), n_ranks).unwrap();
        assert_eq!((before.len(), after.len()), (n_ranks, n_ranks));
        for (rank, plan) in plans.iter().enumerate() {
            let profile = after[rank].since(&before[rank]);
            let traffic = profile.traffic;
            assert_eq!(traffic.n_tokens, 4);
            assert_eq!(traffic.n_gathers, 4 * plan.n_gathers as u64);
            assert_eq!(traffic.sent_bytes, 4 * plan.sent_bytes);
            assert_eq!(traffic.received_bytes, 4 * plan.received_bytes);
            assert!(profile.products_ns > 0 && profile.attention_ns > 0);
            assert!(profile.products_ns + profile.attention_ns < profile.pass_ns);
        }
        let link = engine.measure_link().unwrap();
        assert_eq!(link.is_some(), n_ranks > 1);
        if let Some(link) = link {
            assert_eq!(link.n_ranks, n_ranks);
            let bytes: Vec<u64> = link.gathers.iter().map(|gather| gather.bytes).collect();
            assert!(bytes.is_sorted() && bytes[0] == 4, "{bytes:?}");
            assert!(
                link.gathers
                    .iter()
                    .all(|gather| gather.least_ns <= gather.median_ns)
            );
        }
        // The measurement does not count as traffic of the model, and all ranks go on.
        assert_eq!(engine.rank_traffic().unwrap(), after[0].traffic);
        engine.compute(&[BatchItem::last(seq, &[8])]).unwrap();
        drop(engine);
        for other in others {
            other.join().unwrap().unwrap();
        }
    }
}

/// 70 billion parameters in 4 bits, on four machines of 16 GB: less than 11 GiB of weights each, and a quarter of the cache.
#[test]
fn ranks_share_weights_and_cache() {
    let geometry = ModelGeometry::named("llama-3.1-70b").unwrap();
    let recipe = Recipe::parse("Q4_K_M").unwrap();
    let model = Model::without_weights(geometry, None, recipe, Source::Gguf).unwrap();
    let options = EngineOptions::default();
    let alone = plan(&model, &options, 1).unwrap()[0];
    assert_eq!((alone.n_gathers, alone.sent_bytes), (0, 0));
    let ranks = plan(&model, &options, 4).unwrap();
    // Norms are read by all.
    let weights: u64 = ranks.iter().map(|rank| rank.weight_bytes).sum();
    let extra = weights - alone.weight_bytes;
    assert_eq!(extra % 3, 0);
    assert!(extra / 3 < 10 << 20, "{extra}");
    for rank in &ranks {
        assert!(rank.weight_bytes < 11 << 30);
        assert_eq!(rank.kv_bytes * 4, alone.kv_bytes);
        // Heads, their product, the gated activation and its product of every layer; and the logits.
        assert_eq!(rank.n_gathers, 4 * 80 + 1);
        let width = 80 * (3 * 8192 + 28_672) + 128_256;
        assert_eq!(rank.received_bytes, width * 4 * 3 / 4);
        assert_eq!(rank.sent_bytes, rank.received_bytes);
        assert!(rank.read_bytes <= rank.weight_bytes + (1 << 20));
        let all = rank.weight_bytes + rank.kv_bytes + rank.scratch_bytes;
        assert!(all < 14 << 30, "{all}");
    }
}

#[test]
fn a_token_takes_the_slowest_ranks_weights_gathers_and_bytes() {
    let link = LinkModel {
        memory_bytes_per_s: 1e9,
        undivided_s: 0.5,
        gather_s: 1e-3,
        message_s: 1e-4,
        link_bytes_per_s: 1e6,
    };
    let rank = |read_bytes, sent_bytes| RankPlan {
        weight_bytes: 0,
        read_bytes,
        kv_bytes: 0,
        scratch_bytes: 0,
        n_gathers: 5,
        sent_bytes,
        received_bytes: 2000,
    };
    let [slow, fast] = [rank(2_000_000_000, 3000), rank(1_000_000_000, 9000)];
    // Alone: the weights, the undivided work, and no exchange except its bytes, which a real plan would not have. Two: a
    // command and five gathers more. Four: two ranks more, each a message there and one back, in each of the six.
    for (ranks, expected) in [
        (&[slow][..], 2.5 + 0.003),
        (&[slow, fast], 2.5 + 0.006 + 0.003),
        (&[slow, fast, fast, fast], 2.5 + 0.006 + 6.0 * 4e-4 + 0.003),
    ] {
        let seconds = link.token_s(ranks);
        assert!((seconds - expected).abs() < 1e-9, "{seconds}, {expected}");
    }
}

/// A rank that ends before a gather.
struct Dies {
    ranks: LocalRanks,
    n_left: usize,
}

impl Ranks for Dies {
    fn place(&self) -> RankPlace {
        self.ranks.place()
    }

    fn all_gather(
        &mut self,
        own: &[f32],
        lens: &[usize],
        out: &mut [f32],
    ) -> Result<(), RankError> {
        if self.n_left == 0 {
            let reason = "this test ends it".to_owned();
            return Err(RankError::Lost { rank: 2, reason });
        }
        self.n_left -= 1;
        self.ranks.all_gather(own, lens, out)
    }

    fn broadcast(&mut self, message: &mut Vec<u8>) -> Result<(), RankError> {
        self.ranks.broadcast(message)
    }
}
