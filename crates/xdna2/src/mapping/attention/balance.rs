//! Tilings that share a causal mask's work evenly, and their estimated times.

use super::AttentionDims;
use super::shape::down;
use crate::mapping::{Shape, Tiling};
use millrace_xdna2_machine::{Machine, Profile, tile};

/// The same numerics with columns that are heads of a group before they are tiles of queries. Legal
/// ones on as many cores as there can be, the fastest first as far as a profile tells.
pub(in crate::mapping) fn balanced(
    shape: &Shape,
    tiling: &Tiling,
    machine: &Machine,
    profile: Option<&Profile>,
) -> Vec<Tiling> {
    let group = shape["n_heads"] / shape["n_kv_heads"].max(1);
    let cols = u64::from(machine.cols);
    let mut legal = Vec::new();
    for unroll in [1, 2] {
        for heads in down(group, cols / unroll) {
            for q_tiles in (1..=cols / (unroll * heads)).rev() {
                let tile_q = tiling["tile_kv"].min(shape["n_queries"] / q_tiles);
                let tiling = tiling.clone().with("tile_q", tile_q).with("unroll", unroll);
                let tiling = tiling.with("heads", heads).with("q_tiles", q_tiles);
                let tiling = tiling.with("causal_skip", shape["causal"]);
                let tiled =
                    AttentionDims::new(shape, &tiling.with("streamed", 1).with("top_first", 1));
                if tiled.check(machine).is_ok() {
                    legal.push(tiled);
                }
            }
        }
    }
    let most = legal.iter().map(AttentionDims::n_cores).max();
    legal.retain(|p| Some(p.n_cores()) == most);
    if let Some(profile) = profile {
        let estimate = |p: &AttentionDims| p.estimate_ns(machine, profile);
        legal.sort_by(|a, b| estimate(a).total_cmp(&estimate(b)));
    }
    legal.iter().map(AttentionDims::tiling).collect()
}

impl AttentionDims {
    /// Time of the cores in step, column by column as slow as the one with the latest queries, and of
    /// loading them where an iteration has several heads. [`timing`](millrace_xdna2_machine::timing) simulates it.
    fn estimate_ns(&self, machine: &Machine, profile: &Profile) -> f64 {
        let (q, kv, dv) = (self.tile_q, self.tile_kv, self.tile_dv);
        let cycles = |kernel: &str, dims: &[u64]| {
            let dims: Vec<u32> = dims.iter().map(|&d| d as u32).collect();
            let work = tile::find(kernel).map(|k| (k.work)(&dims, &[0, 0]));
            let rate = profile.kernel(kernel).copied().unwrap_or_default();
            rate.of(work.unwrap_or_default())
        };
        let chunks = self.dk_chunks() as f64;
        let tile = chunks * cycles("fa_scores_bf16", &[q, kv, self.tile_dk])
            + cycles("fa_softmax_bf16", &[q, kv, dv])
            + cycles("fa_values_bf16", &[q, kv, dv]);
        let join = cycles("fa_merge_bf16", &[q, dv]);
        let [iterations, kv_heads, group, value_chunks] = self.grid();
        let skips = self.causal && self.causal_skip;
        let tiles_of = |i: u64| {
            let last = if skips {
                (i + 1) * self.iteration_q()
            } else {
                self.n_keys
            };
            last.div_ceil(kv) as f64 / self.stages as f64
        };
        let tiles: f64 = (0..iterations).map(tiles_of).sum();
        let each = tiles * tile + iterations as f64 * join;
        let times = (kv_heads * group * value_chunks) as f64;
        // The least dispatch has one herd.
        let n_herds = (self.unroll * self.heads) as usize;
        // A core's program links the four kernels above.
        let n_cores = self.n_cores();
        let load = match n_herds {
            0 | 1 => 0.0,
            _ => profile.dispatch.estimated_load_ns(n_cores, 4 * n_cores),
        };
        times * each * 1e9 / machine.clock_hz + load
    }
}
