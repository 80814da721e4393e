//! Parameters that decide the bits of attention, and the plans with the same bits.

use super::{AttentionDims, down};
use crate::mapping::{NamedNumbers, Shape};
use millrace_xdna2_machine::Machine;

/// Parameters that decide the bits of a query's result: tiles of keys, their deal, and where sums over the head
/// dimension are rounded. Tiles of queries, columns and heads at once only say which core computes it.
#[derive(Clone, Copy)]
pub(super) struct TileNumerics {
    pub(super) tile_kv: u64,
    pub(super) tile_dk: u64,
    pub(super) tile_dv: u64,
    pub(super) stages: u64,
}

/// Largest tiles, for head dimensions beyond 128 of 32 × 32.
fn tile_max(head_dim: u64) -> u64 {
    if head_dim > 128 { 32 } else { 64 }
}

/// Numerics from the production configuration downwards, for `n_keys` keys.
pub(super) fn numerics(head_dim: u64, n_keys: u64, machine: &Machine) -> Vec<TileNumerics> {
    let mut found = Vec::new();
    let max_dv = if head_dim > 128 { 128 } else { 64 };
    for tile_kv in down(n_keys, tile_max(head_dim)) {
        for stages in (1..=u64::from(machine.rows)).rev() {
            for tile_dv in down(head_dim, max_dv) {
                for tile_dk in down(head_dim, 128) {
                    let sizes = [tile_kv, tile_dk, tile_dv];
                    if stages.is_power_of_two() && sizes.iter().all(|s| s.is_multiple_of(8)) {
                        found.push(TileNumerics {
                            tile_kv,
                            tile_dk,
                            tile_dv,
                            stages,
                        });
                    }
                }
            }
        }
    }
    found
}

/// The numerics of every length: those of the largest tiles that fit with as many queries as keys.
/// Fewer keys are one smaller tile, whose sums are those of a large one with the rest masked.
pub(super) fn canonical(shape: &Shape, machine: &Machine) -> Option<TileNumerics> {
    let (d, n_keys) = (shape["head_dim"], shape["n_keys"]);
    let fits = |n: &TileNumerics| {
        let tiled = n.tiled(shape, n.tile_kv, (1, 1));
        tiled.l1_bytes() <= machine.core.data_bytes - machine.stack_bytes
    };
    let largest = numerics(d, tile_max(d), machine).into_iter().find(fits)?;
    Some(TileNumerics {
        tile_kv: largest.tile_kv.min(n_keys),
        ..largest
    })
}

impl TileNumerics {
    /// The dimensions with tiles of so many queries, on so many columns, for so many heads.
    pub(super) fn tiled(
        self,
        shape: &Shape,
        tile_q: u64,
        (q_tiles, unroll): (u64, u64),
    ) -> AttentionDims {
        let tiling = NamedNumbers::new(&[
            ("tile_q", tile_q),
            ("tile_kv", self.tile_kv),
            ("tile_dk", self.tile_dk),
            ("tile_dv", self.tile_dv),
            ("q_tiles", q_tiles),
            ("stages", self.stages),
            ("unroll", unroll),
            ("heads", 1),
            ("causal_skip", 0),
            ("streamed", 0),
            ("top_first", 0),
            ("l1_depth", 1),
        ]);
        AttentionDims::new(shape, &tiling)
    }

    /// Legal plans with two heads before those with one, wide ones first; for head dimensions beyond 128, those with
    /// one head first.
    pub(super) fn plans(self, shape: &Shape, machine: &Machine) -> Vec<AttentionDims> {
        let cols = u64::from(machine.cols);
        let unrolls = match shape["head_dim"] {
            129.. => [1, 2],
            _ => [2, 1],
        };
        let mut plans = Vec::new();
        for unroll in unrolls {
            for q_tiles in (1..=cols / unroll).rev().filter(|q| q.is_power_of_two()) {
                let tile_q = self.tile_kv.min(shape["n_queries"] / q_tiles);
                let tiled = self.tiled(shape, tile_q, (q_tiles, unroll));
                if tiled.check(machine).is_ok() {
                    plans.push(tiled);
                }
            }
        }
        plans
    }
}
