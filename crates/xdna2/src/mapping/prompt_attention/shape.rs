//! Tilings of a prompt's attention whose keys are broadcast.

use super::NAME;
use super::core_tile::CoreTile;
use super::problem::Problem;
use crate::mapping::parts::{Checks, divisors};
use crate::mapping::{BuildError, NamedNumbers, Rule, Shape, Tiling};
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::Affine;

/// Shape and tiling as plain numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptAttentionDims {
    pub(super) of: Problem,
    pub(super) core: CoreTile,
    /// Key-value heads at once.
    pub(super) heads: u64,
    /// Columns of a head.
    pub(super) spread: u64,
    pub(super) rows: u64,
}

impl PromptAttentionDims {
    pub(super) fn new(shape: &Shape, tiling: &Tiling) -> PromptAttentionDims {
        let of = Problem::new(shape);
        let core = CoreTile {
            tile_tokens: tiling["tile_tokens"],
            group: of.group(),
            head_dim: of.head_dim,
            tile_kv: tiling["tile_kv"],
            y_rows: tiling["y_rows"],
            l1_depth: tiling["l1_depth"],
        };
        PromptAttentionDims {
            of,
            core,
            heads: tiling["heads"],
            spread: tiling["spread"],
            rows: tiling["rows"],
        }
    }

    /// A problem without a tiling yet.
    fn untiled(shape: &Shape) -> PromptAttentionDims {
        let names = [
            "tile_tokens",
            "tile_kv",
            "y_rows",
            "heads",
            "spread",
            "rows",
            "l1_depth",
        ];
        PromptAttentionDims::new(shape, &NamedNumbers::new(&names.map(|name| (name, 1))))
    }

    fn tiling(&self) -> Tiling {
        NamedNumbers::new(&[
            ("tile_tokens", self.core.tile_tokens),
            ("tile_kv", self.core.tile_kv),
            ("y_rows", self.core.y_rows),
            ("heads", self.heads),
            ("spread", self.spread),
            ("rows", self.rows),
            ("l1_depth", self.core.l1_depth),
        ])
    }

    /// Cores of a head.
    pub(super) fn n_cores(&self) -> u64 {
        self.spread * self.rows
    }

    /// Tokens of all cores of a head.
    pub(super) fn iteration_tokens(&self) -> u64 {
        self.n_cores() * self.core.tile_tokens
    }

    /// Blocks of the stream of keys that their queries take.
    pub(super) fn query_blocks(&self) -> u64 {
        self.n_cores() * self.core.tile_rows() / self.core.tile_kv
    }

    /// Keys that an iteration reads, in units of so many.
    pub(super) fn band(&self, unit: u64) -> Affine {
        (self.of).band(self.iteration_tokens(), self.core.tile_kv, unit)
    }

    fn l2_bytes(&self) -> u64 {
        2 * 2 * (2 * self.core.tile_kv + self.rows * self.core.y_rows) * self.of.head_dim
    }

    pub(super) fn check(&self, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks { mapping: NAME };
        let kv_heads = ("key-value heads", self.of.n_kv_heads);
        checks.divides(("heads", self.of.n_heads), kv_heads)?;
        checks.divides(kv_heads, ("heads", self.heads))?;
        checks.herd(self.heads * self.spread, self.rows, machine)?;
        self.core.check(checks, machine)?;
        let tokens = ("spread * rows * tile_tokens", self.iteration_tokens());
        checks.divides(("queries", self.of.n_queries), tokens)?;
        let reach = ("tile_kv", self.core.tile_kv);
        self.of.check_reach(checks, tokens, reach)?;
        let (blocks, limit) = (self.query_blocks(), u64::from(machine.repeat_max));
        checks.ensure(blocks <= limit, Rule::Repeat, || {
            format!("the position is repeated {blocks} times, {limit} at most; take less tokens")
        })?;
        let results = 2 * self.rows * self.core.tile_tokens * self.of.token();
        checks.stride("a column's tokens", results, machine)?;
        let keys = 2 * self.core.tile_kv * self.of.key_stride();
        checks.stride("a tile of keys", keys, machine)?;
        checks.l2(self.l2_bytes(), machine)
    }
}

/// Legal tilings, best first: on the most cores, with the most queries each. Two heads at once come next, because one
/// brings all cores' queries past each of them, and more read the cache more often.
fn plans(shape: &Shape, machine: &Machine) -> Vec<PromptAttentionDims> {
    let Some(least) = CoreTile::least(shape, machine) else {
        return Vec::new();
    };
    let of = Problem::new(shape);
    let (cols, rows) = (u64::from(machine.cols), u64::from(machine.rows));
    let mut plans = Vec::new();
    for heads in divisors(of.n_kv_heads.max(1)) {
        for spread in 1..=cols / heads {
            for rows in 1..=rows {
                let tiled = least
                    .multiples(machine)
                    .into_iter()
                    .map(|core| PromptAttentionDims {
                        of,
                        core,
                        heads,
                        spread,
                        rows,
                    });
                plans.extend(tiled.filter(|p| p.check(machine).is_ok()));
            }
        }
    }
    let cores = |p: &PromptAttentionDims| p.heads * p.n_cores();
    plans.sort_by_key(|p| {
        let most = u64::MAX - cores(p);
        (
            most,
            u64::MAX - p.core.tile_tokens,
            p.heads.abs_diff(2),
            p.heads,
        )
    });
    plans
}

/// Whether there is a legal tiling.
pub(crate) fn fits(shape: &Shape, machine: &Machine) -> bool {
    !plans(shape, machine).is_empty()
}

pub(super) fn default(shape: &Shape, machine: &Machine) -> Tiling {
    let best = plans(shape, machine).first().copied();
    let least = || {
        let core = CoreTile::least(shape, machine)?;
        let untiled = PromptAttentionDims::untiled(shape);
        Some(PromptAttentionDims { core, ..untiled })
    };
    // If no core has room for a tile, a tiling that the rules refuse.
    let tiled = best
        .or_else(least)
        .unwrap_or(PromptAttentionDims::untiled(shape));
    tiled.tiling()
}

pub(super) fn all(shape: &Shape, machine: &Machine) -> Vec<Tiling> {
    let plans = plans(shape, machine);
    let most = plans.first().map_or(0, |p| p.heads * p.n_cores());
    let busy = plans.iter().filter(|p| p.heads * p.n_cores() == most);
    busy.map(PromptAttentionDims::tiling).collect()
}
