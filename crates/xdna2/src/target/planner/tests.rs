use super::*;

/// Plans compiled ahead are those that tokens will ask for: within a plan's stated range, no token takes another.
#[test]
fn a_tokens_plan_serves_as_long_as_it_says() {
    let attends = one_layer();
    for mode in [Mode::Fast, Mode::Int4, Mode::FastFlowLm] {
        let profile = Profile::builtin(Profile::DEFAULT).expect("built in");
        let planner = Xdna2::new(Machine::npu2(), profile, Features::of(mode));
        let rows = planner.cache_rows(&attends, 16_384);
        let kind = |first| planner.kind(&attends, Phase::Decode, Chunk::token(first), rows);
        let mut first = 0;
        let mut n_plans = 0;
        while first < 9000 {
            let until = planner.decode_until(first);
            assert!(until > first);
            for at in [first, (first + until) / 2, until - 1] {
                assert_eq!(kind(at), kind(first), "{mode:?}: {at} of {first}..{until}");
            }
            first = until;
            n_plans += 1;
        }
        assert!(n_plans >= 5, "{mode:?}");
    }
}

/// A graph that attends once, with two heads of 64 on one of keys.
fn one_layer() -> Graph {
    use millrace_graph::{Node, Value, ValueId};
    let mut graph = Graph::default();
    let value = |width| Value { width };
    graph.values = vec![value(128), value(64), value(64), value(128)];
    graph.nodes = vec![Node {
        label: "attn",
        layer: Some(0),
        op: Op::Attention(Attention {
            layer: 0,
            n_heads: 2,
            n_kv_heads: 1,
            head_dim: 64,
            scale: 0.125,
            window: None,
            chunked: false,
            softcap: None,
            sinks: None,
            slopes: None,
        }),
        inputs: vec![ValueId(0), ValueId(1), ValueId(2)],
        output: ValueId(3),
    }];
    graph
}

#[test]
fn modes_have_names() {
    let fast = Features::of(Mode::Fast);
    assert_eq!(mode(fast), "fast");
    assert_eq!(mode(Features::PUBLISHED), "mlir-air");
    assert_eq!(mode(Features::NONE), "mlir-air without single-row-head");
    assert_eq!(mode(fast.without(Feature::Alias)), "fast without alias");
    assert_eq!(mode(fast.with(Feature::DeltaNets)), "fast with delta-nets");
    let packed = Features::of(Mode::Int4);
    assert_eq!(mode(packed), "int4");
    assert_eq!(mode(packed.without(Feature::Alias)), "int4 without alias");
    let paper = Features::of(Mode::FastFlowLm);
    assert_eq!(mode(paper), "fastflowlm");
    let fused = paper.without(Feature::ExpandedWeights);
    assert_eq!(mode(fused), "fastflowlm without expanded-weights");
    let plain = fused.without(Feature::FlowKv).without(Feature::FlowQkv);
    let plain = plain.with(Feature::AllCores);
    assert_eq!(
        mode(plain),
        "int4 without resident-attention with delta-nets"
    );
    let plain = plain.without(Feature::DeltaNets);
    assert_eq!(mode(plain), "int4 without resident-attention");
    assert_eq!(mode(plain.with(Feature::ResidentAttention)), "int4");
    assert_eq!(
        mode(paper.without(Feature::Alias)),
        "fastflowlm without alias"
    );
    let emulated = fast.with_numerics(Numerics::Bfp16);
    assert_eq!(mode(emulated), "fast, products in bfp16");
}
