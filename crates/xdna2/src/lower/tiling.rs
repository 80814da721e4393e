//! Tilings to try before a mapping's own choice.

use super::Phase;
use crate::mapping::{Shape, Tiling};

/// In order of preference, the seed's or `fast` ones; the first that fits the shape and the machine is taken, and where none
/// does, the mapping's default.
pub(super) fn preferred(
    fast: bool,
    phase: Phase,
    mapping: &str,
    shape: &Shape,
    default: &Tiling,
) -> Vec<Tiling> {
    match fast {
        false => seed(phase, mapping, shape, default),
        true => fastest(phase, mapping, shape, default),
    }
}

/// Seed 000: GEMVs with tile_m = 8 and m_input = 4 (B2.3; tile_m = 2 for K = 8192 is the default
/// there), a decode's rotation on a single core (B2.4).
fn seed(phase: Phase, mapping: &str, shape: &Shape, default: &Tiling) -> Vec<Tiling> {
    let tiling = default.clone();
    match mapping {
        // B2.2: larger L2 tiles for the wide projections.
        "gemm-direct" if shape.get("k") >= 4096 => vec![tiling.with("tile_k_l2", 512)],
        "gemv" => vec![tiling.with("tile_m", 8).with("m_input", 4)],
        "rope" if phase == Phase::Decode => vec![tiling.with("cols", 1).with("rows", 1)],
        _ => Vec::new(),
    }
}

/// What the timing model finds fastest at the shapes of Llama-3.2-1B under the `air-strix-2026`
/// profile.
fn fastest(phase: Phase, mapping: &str, shape: &Shape, default: &Tiling) -> Vec<Tiling> {
    let with = |name, values: &[u64]| -> Vec<Tiling> {
        let one = |&value: &u64| default.clone().with(name, value);
        values.iter().map(one).collect()
    };
    match (phase, mapping) {
        // Large tiles read A and B less often; results leave in pieces to make room for them.
        (_, "gemm-drain") => {
            let wide = default.clone().with("tile_m", 64).with("tile_n", 128);
            vec![
                wide.with("drain_chunks", 4),
                default.clone().with("tile_n", 256),
            ]
        }
        (_, "flash-attention") => attention(shape, default),
        // Row by row, the next row under way.
        (_, "gemv") => with("m_input", &[2, 1])
            .into_iter()
            .map(|t| t.with("l1_depth", 2))
            .collect(),
        (Phase::Prefill, "rope") => with("tile_rows", &[64, 32, 16, 8, 4, 2]),
        (Phase::Prefill, "rmsnorm") => with("tile_rows", &[2]),
        // A few thousand elements: loading programs into more cores takes longer than the work.
        (Phase::Decode, "rope") => vec![default.clone().with("cols", 1).with("rows", 1)],
        (Phase::Decode, "add" | "silu-mul" | "gelu-mul") => {
            let n_cores = default.get("cols") * default.get("rows");
            let alone = default.clone().with("cols", 1).with("rows", 1);
            let tile = default.get("tile");
            let factors = [n_cores, n_cores / 2, n_cores / 4, 1].into_iter();
            let tiles = factors
                .filter(|&f| f > 0)
                .map(|f| alone.clone().with("tile", tile * f));
            tiles.collect()
        }
        _ => Vec::new(),
    }
}

/// One head on the whole array rather than two on halves, skipping what the mask hides.
fn attention(shape: &Shape, default: &Tiling) -> Vec<Tiling> {
    let n_tokens = shape.get("n_queries");
    let skipping = default.clone().with("causal_skip", 1);
    let one_head = |stages: u64, tile: u64| {
        let tiling = skipping.clone().with("unroll", 1).with("q_tiles", 8);
        tiling.with("stages", stages).with("tile_kv", tile)
    };
    // Short prompts have too few tiles of keys for four stages.
    let stages = if n_tokens < 512 { 2 } else { 4 };
    let tile = (n_tokens / 8).min(default.get("tile_kv"));
    vec![one_head(stages, tile), skipping]
}
