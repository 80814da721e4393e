//! Values that cross between host and device in a pass, and registers that layers share.

use crate::lower::{graph, llama_1b};
use millrace_graph::Graph;
use millrace_xdna2::lower::{self, Buffers, Feature, Features, LowerOptions, Mode, Plan};
use millrace_xdna2_machine::Machine;

const MIB: u64 = 1 << 20;

/// Bytes (written, read) by call, of a pass of Llama-3.2-1B.
fn crossing(plan: &Plan, graph: &Graph, n_real: u64) -> Vec<(String, u64, u64)> {
    let buffers = Buffers::of(plan, graph);
    let calls = plan.calls().enumerate();
    calls
        .map(|(index, call)| {
            let moved = buffers.traffic(plan, index, n_real);
            assert_eq!(moved.written_bytes, moved.to_device_bytes);
            assert_eq!(moved.read_bytes, moved.from_device_bytes);
            (call.set.clone(), moved.written_bytes, moved.read_bytes)
        })
        .collect()
}

/// In MLIR-AIR's Llama-3.2-1B example q, k and v cross to the host and back for attention, 192 MB each way in a pass.
/// Attention's result does so for the second half of the block, 128 MB each way; 640 MB together. Only slot 0 of the
/// first program is written, and its outputs are read.
#[test]
fn a_prefill_of_the_example_moves_what_its_authors_count() {
    let graph = llama_1b();
    let options = LowerOptions::new(Mode::MlirAir, 2048);
    let plan = lower::prefill(&graph, &Machine::npu2(), &options).unwrap();
    let crossed = crossing(&plan, &graph, 7);
    assert_eq!(crossed.len(), 49);
    for (layer, calls) in crossed.chunks_exact(3).take(16).enumerate() {
        let expected = [
            (
                format!("rms_gemms_rope_L{layer}"),
                8 * MIB,
                (8 + 2 + 2) * MIB,
            ),
            (format!("flash_attn_L{layer}"), (8 + 2 + 2) * MIB, 8 * MIB),
            (format!("o_ffn_L{layer}"), (8 + 8) * MIB, 8 * MIB),
        ];
        assert_eq!(calls, expected);
    }
    assert_eq!(
        crossed[48],
        ("lm_head_gemv".to_owned(), 4096, 2 * 8 * 16_384)
    );
    let between = |calls: &[(String, u64, u64)]| calls[0].2 + calls[1].1 + calls[1].2 + 8 * MIB;
    let brokered: u64 = crossed.chunks_exact(3).map(between).sum();
    assert_eq!(brokered, 2 * (192 + 128) * MIB);
}

/// A token's calls there: writes and reads are kilobytes.
#[test]
fn a_token_of_the_example_moves_kilobytes() {
    let graph = llama_1b();
    let options = LowerOptions::new(Mode::MlirAir, 2048);
    let mut plan = lower::decode(&graph, &Machine::npu2(), &options).unwrap();
    let crossed = crossing(&plan, &graph, 1);
    assert_eq!(crossed.len(), 33);
    // x and two rows of tables; q, k and v. Attention and residual; the block's output.
    let (d, kv) = (2 * 2048, 2 * 512);
    for calls in crossed.chunks_exact(2).take(16) {
        assert_eq!((calls[0].1, calls[0].2), (d + d + kv, d + 2 * kv));
        assert_eq!((calls[1].1, calls[1].2), (2 * d, d));
    }
    // With values in common buffers: the embedding, the tables once, attention; q, k and v, the last
    // block's output, logits.
    plan.alias = true;
    let crossed = crossing(&plan, &graph, 1);
    let total = |of: fn(&(String, u64, u64)) -> u64| crossed.iter().map(of).sum::<u64>();
    assert_eq!(total(|c| c.1), d + d + kv + 16 * d + d);
    assert_eq!(total(|c| c.2), 16 * (d + 2 * kv) + d + 2 * 8 * 16_384);
}

/// At most 150 MB remain of 640. The host writes the embeddings and reads keys and values
/// for its cache, the row before the head, and logits.
#[test]
fn a_prefill_with_aliases_moves_what_the_host_computes_with() {
    let graph = llama_1b();
    let head = (4096, 2 * 8 * 16_384);
    for merged in [false, true] {
        let mut options = LowerOptions::new(Mode::Fast, 2048);
        if !merged {
            options.features = options.features.without(Feature::MergedBlocks);
        }
        let plan = lower::prefill(&graph, &Machine::npu2(), &options).unwrap();
        let total = |n_real: u64| {
            let crossed = crossing(&plan, &graph, n_real);
            crossed.iter().fold((0, 0), |(w, r), c| (w + c.1, r + c.2))
        };
        let kv = |n_tokens: u64| 16 * 2 * n_tokens * 2 * 512;
        assert_eq!(total(2048), (8 * MIB + head.0, kv(2048) + 4096 + head.1));
        assert!(total(2048).0 + total(2048).1 < 80 * MIB);
        // Rows of padding are not read.
        assert_eq!(total(10), (8 * MIB + head.0, kv(10) + 4096 + head.1));
    }
}

/// All layers share registers: their number does not grow with the model.
#[test]
fn layers_share_registers() {
    let of = |n_layers: usize, features: Features| {
        let graph = graph("llama-3.2-1b", Some(n_layers));
        let options = LowerOptions {
            features,
            ..LowerOptions::new(Mode::Fast, 256)
        };
        let plan = lower::prefill(&graph, &Machine::npu2(), &options).unwrap();
        let buffers = Buffers::of(&plan, &graph);
        (buffers.static_bytes(), buffers.other_bytes())
    };
    let fast = Features::of(Mode::Fast);
    assert_eq!(of(3, fast).1, of(6, fast).1);
    assert!(of(3, fast).0 < of(6, fast).0);
    let without = fast.without(Feature::Alias);
    assert!(of(6, without).1 > 4 * of(6, fast).1);
    assert_eq!(of(6, without).0, of(6, fast).0);
}
