//! Plans whose weights stay in blocks of 4 bits.

use crate::{decode, graph, on_host, prefill};
use millrace_model::graph::Graph;
use millrace_xdna2::lower::{self, Binding, Features, Mode, Options, Plan, WeightLayout};
use millrace_xdna2_machine::Machine;

fn plan_of(graph: &Graph, features: Features) -> Plan {
    let options = Options {
        features,
        ..Options::new(Mode::Q4nx, 128)
    };
    lower::decode(graph, &Machine::npu2(), &options).unwrap()
}

/// Bytes of matrices in slots.
fn weight_bytes(plan: &Plan) -> u64 {
    let of = |call: &millrace_xdna2::lower::Call| -> u64 {
        let slots = plan.programs[call.program].slots();
        let bound = slots.iter().zip(&call.bindings);
        let weights = bound.filter(|(_, b)| matches!(b, Binding::Weight { .. }));
        weights.map(|(slot, _)| slot.size_bytes().unwrap()).sum()
    };
    plan.calls().map(of).sum()
}

#[test]
fn matrices_of_published_models_stay_packed() {
    for (name, n_params) in [("gemma-3-1b", 1.0e9), ("llama-3.2-1b", 1.236e9)] {
        let graph = graph(name, None);
        let plan = plan_of(&graph, Features::of(Mode::Q4nx));
        let bytes = weight_bytes(&plan) as f64;
        // 5 bits a weight, and the columns that 1152 lacks to whole blocks.
        assert!(bytes < 0.70 * n_params, "{name}: {bytes}");
        let labels: Vec<&str> = on_host(&graph, &plan).iter().map(|h| h.0).collect();
        let others = ["embed", "attn", "output_norm"];
        assert!(
            labels.iter().all(|label| others.contains(label)),
            "{labels:?}"
        );
        let bf16 = decode(&graph, Mode::Best);
        assert!(weight_bytes(&bf16) as f64 > 2.9 * bytes);
    }
}

/// Prompt and token read the same blocks: their layouts, and so their buffers, are the same.
#[test]
fn prompt_and_token_share_weights() {
    let graph = graph("gemma-3-1b", Some(2));
    let layouts = |plan: &Plan| {
        let bindings = plan.calls().flat_map(|call| call.bindings.clone());
        let mut found: Vec<String> = bindings
            .filter(|b| {
                matches!(
                    b,
                    Binding::Weight {
                        layout: WeightLayout::Own { .. },
                        ..
                    }
                )
            })
            .map(|b| format!("{b:?}"))
            .collect();
        found.sort();
        found
    };
    let prompt = prefill(&graph, Options::new(Mode::Q4nx, 128));
    let token = plan_of(&graph, Features::of(Mode::Q4nx));
    assert_eq!(layouts(&prompt), layouts(&token));
    assert_eq!(layouts(&token).len(), 2 * 7 + 1);
    // A window of 512 keys is no reason for the host.
    let long = prefill(&graph, Options::new(Mode::Q4nx, 1024));
    assert!(on_host(&graph, &long).iter().all(|h| h.0 != "attn"));
}
