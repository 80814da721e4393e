//! Mode `best`: blocks of ops as programs.

use super::{best, checked, demo, load, random, settings, tokens};
use millrace_plan::{Settings, Target};
use millrace_runtime::npu::{NpuModel, NpuOptions, NpuSession};
use millrace_tcp::target::TcpTarget;
use std::sync::Arc;

/// Logits of a prompt and of two tokens.
fn logits(npu: &Arc<NpuModel>, n: usize) -> Vec<u32> {
    let mut session = NpuSession::new(npu).unwrap();
    let n_vocab = npu.model().model().config.vocab_size;
    let mut all = session.prefill(&tokens(n, n_vocab)).unwrap().to_vec();
    for token in [5, 9] {
        all.extend_from_slice(session.decode(token).unwrap());
    }
    all.iter().map(|x| x.to_bits()).collect()
}

/// Blocks give the same results as their ops, to the bit, for every family; an observer changes nothing.
#[test]
fn blocks_give_the_bits_of_their_ops() {
    let random = ["qwen-tiny", "gemma-tiny", "llama-tiny"].map(|name| (random(name), "bf16"));
    let trained = ["bf16", "fp8", "int8"].map(|numerics| (demo(), numerics));
    for (model, numerics) in random.iter().chain(&trained) {
        let [plain, blocks] = [settings(numerics), best(numerics)].map(|s| load(model, &s));
        for n in [7, 40] {
            assert_eq!(
                logits(&plain, n),
                logits(&blocks, n),
                "{} {n}",
                model.name()
            );
        }
        let found = checked(&blocks, 7);
        assert_eq!(found.finding, None, "{}", model.name());
        assert!(found.unchecked.is_empty(), "{} {found:?}", model.name());
    }
    let demo = demo();
    let npu = load(&demo, &best("bf16"));
    let graph = &demo.model().graph;
    let plan = npu
        .planner()
        .lower(graph, &npu.sequences().decode(7))
        .unwrap();
    // The first layer has the embedding with it, the last the head.
    assert_eq!(plan.calls().count(), demo.model().config.n_layers);
    assert!(plan.programs.len() <= 3, "layers share programs");
}

/// A prompt in chunks, and two sequences by turns on one chip, give the results of each alone.
#[test]
fn blocks_take_chunks_and_turns() {
    let model = demo();
    let chunked = |settings: &Settings| {
        let options = NpuOptions {
            n_ctx: Some(300),
            n_threads: Some(2),
            prefill_tokens: Some(16),
            ..NpuOptions::default()
        };
        let planner = TcpTarget.planner(settings).unwrap();
        Arc::new(NpuModel::load(model.clone(), planner, options).unwrap())
    };
    let [plain, blocks] = [settings("bf16"), best("bf16")].map(|s| chunked(&s));
    assert_eq!(logits(&plain, 40), logits(&blocks, 40));
    let mut sessions = [40, 23].map(|n| (n, NpuSession::new(&blocks).unwrap(), Vec::new()));
    for (n, session, all) in &mut sessions {
        all.extend_from_slice(session.prefill(&tokens(*n, 500)).unwrap());
    }
    for token in [5, 9] {
        for (_, session, all) in &mut sessions {
            all.extend_from_slice(session.decode(token).unwrap());
        }
    }
    let n_vocab = model.model().config.vocab_size;
    for (n, _, all) in sessions {
        let mut alone = NpuSession::new(&blocks).unwrap();
        let mut expected = alone.prefill(&tokens(n, 500)).unwrap().to_vec();
        expected.extend_from_slice(alone.decode(5).unwrap());
        expected.extend_from_slice(alone.decode(9).unwrap());
        assert!(all == expected && all.len() == 3 * n_vocab, "{n}");
    }
}

/// The plan states why a block ends, and a machine with little memory has shorter ones.
#[test]
fn blocks_say_where_they_end() {
    let model = random("qwen-tiny");
    let graph = &model.model().graph;
    let reasons = |settings: &Settings| {
        let planner = TcpTarget.planner(settings).unwrap();
        let npu = load(&model, settings);
        let plan = planner.lower(graph, &npu.sequences().prefill(npu.lengths().next(0, 200)));
        let plan = plan.unwrap();
        let reasons = plan.placement.iter().map(|placed| placed.reason.clone());
        (plan.calls().count(), reasons.collect::<Vec<_>>().join("\n"))
    };
    let (n_calls, said) = reasons(&best("bf16"));
    for why in ["the next layer's", "each head is a row", "of other rows"] {
        assert!(said.contains(why), "{why}: {said}");
    }
    let small = Settings {
        set: vec!["dm_bytes=32768".to_owned()],
        ..best("bf16")
    };
    let (n_small, said) = reasons(&small);
    assert!(n_small > n_calls, "{n_small} {n_calls}");
    assert!(said.contains("of each slice's data memory"), "{said}");
}
