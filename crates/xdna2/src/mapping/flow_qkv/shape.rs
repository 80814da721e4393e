//! Tilings of FlowQKV.

use super::NAME;
use crate::mapping::parts::{Checks, divisors};
use crate::mapping::prompt_attention::{CoreTile, Problem};
use crate::mapping::{BuildError, NamedNumbers, Rule, Shape, Tiling};
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::Affine;

/// Shape and tiling as plain numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowQkvDims {
    pub(super) of: Problem,
    pub(super) core: CoreTile,
    /// Chunks of queries at once.
    pub(super) chunks: u64,
    /// Key-value heads at once.
    pub(super) heads: u64,
    /// How many of these belong to one column.
    pub(super) col_heads: u64,
    /// Cores of a column, the same number for each of its heads.
    pub(super) rows: u64,
    /// Keys of a head that come to L2 at once.
    pub(super) keys_l2: u64,
}

/// Names of a tiling, in order.
const TILING: [&str; 9] = [
    "tile_tokens",
    "tile_kv",
    "y_rows",
    "chunks",
    "heads",
    "col_heads",
    "rows",
    "keys_l2",
    "l1_depth",
];

/// Most key-value heads at once: four, as in the paper.
const MAX_HEADS: u64 = 4;

/// Fewest tiles of keys that come to L2 at once.
const LEAST_TILES: u64 = 2;

/// Most tiles of keys that come to L2 at once.
const MOST_TILES: u64 = 8;

/// Unit of the rows that a pass reaches with a window, with such tiles of keys.
pub(crate) fn reach_unit(tile_kv: u64) -> u64 {
    LEAST_TILES * tile_kv
}

impl FlowQkvDims {
    pub(super) fn new(shape: &Shape, tiling: &Tiling) -> FlowQkvDims {
        let of = Problem::new(shape);
        FlowQkvDims {
            of,
            core: CoreTile {
                tile_tokens: tiling["tile_tokens"],
                group: of.group(),
                head_dim: of.head_dim,
                tile_kv: tiling["tile_kv"],
                y_rows: tiling["y_rows"],
                l1_depth: tiling["l1_depth"],
            },
            chunks: tiling["chunks"],
            heads: tiling["heads"],
            col_heads: tiling["col_heads"],
            rows: tiling["rows"],
            keys_l2: tiling["keys_l2"],
        }
    }

    /// A problem without a tiling yet.
    fn untiled(shape: &Shape) -> FlowQkvDims {
        FlowQkvDims::new(shape, &NamedNumbers::new(&TILING.map(|name| (name, 1))))
    }

    fn tiling(&self) -> Tiling {
        let core = &self.core;
        let values = [
            core.tile_tokens,
            core.tile_kv,
            core.y_rows,
            self.chunks,
            self.heads,
            self.col_heads,
            self.rows,
            self.keys_l2,
            core.l1_depth,
        ];
        let pairs = TILING.into_iter().zip(values);
        NamedNumbers::new(&pairs.collect::<Vec<_>>())
    }

    /// Cores of a head of a chunk.
    pub(super) fn cores(&self) -> u64 {
        self.rows / self.col_heads
    }

    /// Columns of a chunk.
    pub(super) fn chunk_cols(&self) -> u64 {
        self.heads / self.col_heads
    }

    /// Columns of all chunks.
    pub(super) fn cols(&self) -> u64 {
        self.chunks * self.chunk_cols()
    }

    /// Tokens of a chunk.
    pub(super) fn chunk_tokens(&self) -> u64 {
        self.cores() * self.core.tile_tokens
    }

    /// Tokens of a super-chunk.
    pub(super) fn iteration_tokens(&self) -> u64 {
        self.chunks * self.chunk_tokens()
    }

    /// Blocks of the stream of keys that a chunk's queries take.
    pub(super) fn query_blocks(&self) -> u64 {
        self.chunk_tokens() * self.of.group() / self.keys_l2
    }

    /// How often the position is sent, for it to fill as many blocks of the stream of values.
    pub(super) fn position_repeats(&self) -> u64 {
        self.query_blocks() * self.col_heads * self.keys_l2 / self.core.tile_kv
    }

    /// Keys that a sweep reads, in units of so many.
    pub(super) fn band(&self, unit: u64) -> Affine {
        let reach = reach_unit(self.core.tile_kv);
        self.of.band(self.iteration_tokens(), reach, unit)
    }

    fn l2_bytes(&self) -> u64 {
        let rows = 2 * self.col_heads * self.keys_l2 + self.rows * self.core.y_rows;
        2 * 2 * rows * self.of.head_dim
    }

    pub(super) fn check(&self, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks { mapping: NAME };
        let kv_heads = ("key-value heads", self.of.n_kv_heads);
        checks.divides(("heads", self.of.n_heads), kv_heads)?;
        checks.divides(kv_heads, ("heads", self.heads))?;
        let col_heads = ("col_heads", self.col_heads);
        checks.divides(("heads", self.heads), col_heads)?;
        checks.divides(("rows", self.rows), col_heads)?;
        checks.herd(self.cols(), self.rows, machine)?;
        self.core.check(checks, machine)?;
        let rows = self.chunk_tokens() * self.of.group();
        let keys_l2 = ("keys_l2", self.keys_l2);
        checks.divides(keys_l2, ("tile_kv", self.core.tile_kv))?;
        checks.divides(("a chunk's queries", rows), keys_l2)?;
        let tokens = ("chunks * cores * tile_tokens", self.iteration_tokens());
        checks.divides(("queries", self.of.n_queries), tokens)?;
        let reach = ("2 * tile_kv", reach_unit(self.core.tile_kv));
        self.of.check_reach(checks, tokens, reach)?;
        checks.divides(("keys", self.of.n_keys), keys_l2)?;
        if self.of.own || self.of.window > 0 {
            checks.divides(tokens, keys_l2)?;
        }
        let (repeats, limit) = (self.position_repeats(), u64::from(machine.repeat_max));
        checks.ensure(repeats <= limit, Rule::Repeat, || {
            format!("the position is repeated {repeats} times, {limit} at most; take less tokens")
        })?;
        let (blocks, limit) = (
            self.of.n_keys / self.keys_l2,
            1 << machine.shim.iteration_bits,
        );
        let in_one_walk = self.of.own && self.col_heads > 1;
        checks.ensure(!in_one_walk || blocks <= limit, Rule::Repeat, || {
            format!("{blocks} blocks of keys in a walk, {limit} at most; take more keys_l2")
        })?;
        let results = 2 * self.core.tile_tokens * self.of.token();
        checks.stride("a core's tokens", results, machine)?;
        let keys = 2 * self.keys_l2 * self.of.key_stride();
        checks.stride("a block of keys", keys, machine)?;
        checks.l2(self.l2_bytes(), machine)
    }
}

/// Legal tilings, best first: on the most cores, with the most tokens a core; then the most heads at once, two to a column, and the most keys
/// in L2.
fn plans(shape: &Shape, machine: &Machine) -> Vec<FlowQkvDims> {
    let Some(least) = CoreTile::least(shape, machine) else {
        return Vec::new();
    };
    let of = Problem::new(shape);
    let (cols, rows) = (u64::from(machine.cols), u64::from(machine.rows));
    let mut plans = Vec::new();
    let heads = divisors(of.n_kv_heads.max(1));
    for heads in heads.into_iter().filter(|&heads| heads <= MAX_HEADS) {
        for col_heads in divisors(heads).into_iter().filter(|&n| rows / n > 1) {
            for chunks in 1..=cols * col_heads / heads {
                for core in least.multiples(machine) {
                    let tiles = (1..=MOST_TILES / LEAST_TILES).map(|n| n * LEAST_TILES);
                    let tiled = tiles.map(|tiles| FlowQkvDims {
                        of,
                        core,
                        chunks,
                        heads,
                        col_heads,
                        rows: rows / col_heads * col_heads,
                        keys_l2: tiles * core.tile_kv,
                    });
                    plans.extend(tiled.filter(|p| p.check(machine).is_ok()));
                }
            }
        }
    }
    let cores = |p: &FlowQkvDims| p.cols() * p.rows;
    plans.sort_by_key(|p| {
        let order = [
            cores(p),
            p.core.tile_tokens,
            p.heads,
            p.col_heads,
            p.keys_l2,
        ];
        order.map(|most| u64::MAX - most)
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
        let keys_l2 = reach_unit(core.tile_kv);
        Some(FlowQkvDims {
            core,
            keys_l2,
            rows: LEAST_TILES,
            ..FlowQkvDims::untiled(shape)
        })
    };
    // If no core has room for a tile, a tiling that the rules refuse.
    let tiled = best.or_else(least).unwrap_or(FlowQkvDims::untiled(shape));
    tiled.tiling()
}

pub(super) fn all(shape: &Shape, machine: &Machine) -> Vec<Tiling> {
    let plans = plans(shape, machine);
    let most = plans.first().map_or(0, |p| p.cols() * p.rows);
    let busy = plans.iter().filter(|p| p.cols() * p.rows == most);
    busy.map(FlowQkvDims::tiling).collect()
}
