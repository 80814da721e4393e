//! Blocks that share a dispatch, projections that share a launch.

use super::*;

#[test]
fn blocks_can_share_a_dispatch() {
    let graph = llama_1b();
    let options = LowerOptions {
        features: Features::of(Mode::MlirAir).with(Feature::MergedBlocks),
        ..LowerOptions::new(Mode::MlirAir, 2048)
    };
    let plan = prefill(&graph, options);
    assert_eq!(plan.calls().count(), 34);
    assert_eq!(program(&plan, "o_ffn_rms_gemms_rope").launches.len(), 14);
    let plan = lower::decode(&graph, &Machine::npu2(), &options).unwrap();
    assert_eq!(plan.calls().count(), 18);
    assert!(
        plan.programs
            .iter()
            .all(|p| verify(lower::program_of(p).unwrap(), &Machine::npu2()).is_ok())
    );
}

/// Prefill and decode read the same copy of a weight, and projections of one input share a launch.
#[test]
fn projections_of_one_input_share_a_launch() {
    let graph = llama_1b();
    let features = Features::of(Mode::Fast).without(Feature::MergedBlocks);
    let options = LowerOptions {
        features,
        ..LowerOptions::new(Mode::Fast, 64)
    };
    let plans = [
        prefill(&graph, options),
        lower::decode(&graph, &Machine::npu2(), &options).unwrap(),
    ];
    for plan in &plans {
        let of_attention = plan.programs.iter().find(|p| p.name().starts_with("rms_"));
        let launches = &of_attention.unwrap().launches;
        let names: Vec<&str> = launches.iter().map(|l| l.name.as_str()).collect();
        let joined = "attn_q_attn_k_attn_v";
        assert_eq!(names, ["attn_norm", joined, "attn_q_rope", "attn_k_rope"]);
        assert_eq!(of_attention.unwrap().slots().len(), 13);
        // Every node of a joined launch is placed there.
        let device = |label: &str| {
            let node = graph.nodes.iter().position(|n| n.label == label).unwrap();
            match &plan.placement[node].place {
                NodePlace::Device(device) => device.clone(),
                NodePlace::Host => panic!("{label}"),
            }
        };
        for label in ["attn_q", "attn_k", "attn_v"] {
            assert_eq!(device(label).launches, 1..2);
        }
        assert_eq!(device("ffn_gate"), device("ffn_up"));
        let head = &plan.programs.last().unwrap().launches;
        assert_eq!((head.len(), head[0].kernel.as_str()), (1, "gemv-stream"));
    }
    let weights = |plan: &Plan| -> Vec<Binding> {
        let all = plan.calls().flat_map(|call| call.bindings.clone());
        all.filter(|b| matches!(b, Binding::Weight { .. }))
            .collect()
    };
    assert_eq!(weights(&plans[0]), weights(&plans[1]));
    // Without it B is [k, n].
    let options = LowerOptions {
        features: features.without(Feature::OneCopy),
        ..options
    };
    let two_copies = weights(&prefill(&graph, options));
    assert!(two_copies.iter().any(|b| matches!(
        b,
        Binding::Weight {
            layout: WeightLayout::Transposed { .. },
            ..
        }
    )));
}
