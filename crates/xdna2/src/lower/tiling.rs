//! Tilings to try before a mapping's own choice.

use super::{Feature, Features, Phase};
use crate::mapping::{self, Shape, Tiling};
use millrace_xdna2_machine::{Machine, Profile};

/// Tilings in order of preference, the published stack's or fast ones, by the features. The first that fits the shape
/// and the machine is used; if none does, the mapping's default.
pub(super) fn preferred(
    features: Features,
    phase: Phase,
    (name, shape): (&str, &Shape),
    default: &Tiling,
    (machine, profile): (&Machine, Option<&Profile>),
) -> Vec<Tiling> {
    let mut tilings = Vec::new();
    if phase == Phase::Prefill {
        if features.has(Feature::BalancedAttention) && name == "flash-attention" {
            tilings.extend(mapping::balanced_attention(
                shape,
                default,
                (machine, profile),
            ));
            // The same deal at every length, so that the bits do not depend on it.
            let others = attention(shape, default)
                .into_iter()
                .chain([default.clone()]);
            tilings.extend(others.map(|tiling| tiling.with("top_first", 1)));
        }
        if let (true, Some(profile)) = (features.has(Feature::AllCores), profile) {
            tilings.extend(mapping::on_more_cores(name, shape, machine, profile));
        }
    }
    tilings.extend(match features.has(Feature::FastTilings) {
        false => seed(phase, name, shape, default),
        true => fastest(phase, name, shape, default),
    });
    tilings
}

/// Tilings that the published stack uses for a mapping, the preferred first. MLIR-AIR's Llama-3.2-1B example has GEMVs
/// with tile_m = 8 and m_input = 4, for K = 8192 with 2 and 1, and a decode's rotation on a single core.
pub fn seed(phase: Phase, mapping: &str, shape: &Shape, default: &Tiling) -> Vec<Tiling> {
    let tiling = default.clone();
    match mapping {
        // Larger L2 tiles for the wide projections.
        "gemm-direct" | "gemm-direct-bt" if shape["k"] >= 4096 => {
            vec![tiling.with("tile_k_l2", 512)]
        }
        "gemv" => [8, 4, 2]
            .iter()
            .flat_map(|&rows| gemv(&tiling, rows))
            .collect(),
        "rope" if phase == Phase::Decode => vec![tiling.with("cols", 1).with("rows", 1)],
        _ => Vec::new(),
    }
}

/// The published stack's GEMV with that many rows a panel. It has two calls a panel and ping-pong in L1 where that
/// fits. Launch iterations are issued sixteen at a time, so that none waits for the one before (`backend_presets.py` in
/// mlir-air's `llama32_1b`). There, a program with K = 8192 turns ping-pong off for all its launches: that is left out.
fn gemv(default: &Tiling, tile_m: u64) -> [Tiling; 2] {
    let tiling = default.clone().with("tile_m", tile_m);
    let tiling = tiling.with("m_input", tile_m / 2).with("streamed", 1);
    [2, 1].map(|depth| tiling.clone().with("l1_depth", depth))
}

/// The fastest tilings by the timing model, at the shapes of Llama-3.2-1B under the `air-strix-2026`
/// profile.
fn fastest(phase: Phase, mapping: &str, shape: &Shape, default: &Tiling) -> Vec<Tiling> {
    let with = |name, values: &[u64]| -> Vec<Tiling> {
        let one = |&value: &u64| default.clone().with(name, value);
        values.iter().map(one).collect()
    };
    match (phase, mapping) {
        // Large tiles read A and B less often; results leave in pieces to make room for them.
        (_, "gemm-drain" | "gemm-drain-bt") => {
            let wide = default.clone().with("tile_m", 64).with("tile_n", 128);
            vec![
                wide.with("drain_chunks", 4),
                default.clone().with("tile_n", 256),
            ]
        }
        (_, "flash-attention") => attention(shape, default),
        // Panels come while the ones before are handed on; the next rows are always under way.
        (_, "gemv") => with("m_input", &[4, 2, 1])
            .into_iter()
            .map(|t| {
                t.with("l1_depth", 2)
                    .with("l2_copies", 2)
                    .with("streamed", 1)
            })
            .collect(),
        (Phase::Prefill, "rope") => with("tile_rows", &[64, 32, 16, 8, 4, 2]),
        (Phase::Prefill, "rmsnorm") => with("tile_rows", &[2]),
        // A few thousand elements: loading programs into more cores takes longer than the work.
        (Phase::Decode, "rope") => vec![default.clone().with("cols", 1).with("rows", 1)],
        (Phase::Decode, "add" | "silu-mul" | "gelu-mul") => {
            let n_cores = default["cols"] * default["rows"];
            let alone = default.clone().with("cols", 1).with("rows", 1);
            let tile = default["tile"];
            let factors = [n_cores, n_cores / 2, n_cores / 4, 1].into_iter();
            let tiles = factors
                .filter(|&f| f > 0)
                .map(|f| alone.clone().with("tile", tile * f));
            tiles.collect()
        }
        _ => Vec::new(),
    }
}

/// One head on the whole array rather than two on halves, skipping masked tiles. Short prompts have small tiles of
/// queries; tiles of keys and their deal stay, and therefore the bits.
fn attention(shape: &Shape, default: &Tiling) -> Vec<Tiling> {
    let skipping = default.clone().with("causal_skip", 1);
    let tile_q = default["tile_kv"].min(shape["n_queries"] / 8);
    let one_head = skipping.clone().with("unroll", 1).with("q_tiles", 8);
    vec![one_head.with("tile_q", tile_q), skipping]
}
