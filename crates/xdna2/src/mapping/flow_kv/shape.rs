//! Tilings of FlowKV.

use super::{NAME, SLICE};
use crate::mapping::cached_attention::{AT_DIGITS, lowest_common_rows};
use crate::mapping::parts::{Checks, divisors};
use crate::mapping::prompt_attention::Problem;
use crate::mapping::{BuildError, NamedNumbers, Rule, Shape, Tiling};
use millrace_xdna2_machine::Machine;

/// Shape and tiling as plain numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowKvDims {
    pub(super) of: Problem,
    /// Keys of a chunk.
    pub(super) tile_kv: u64,
    /// Key-value heads at once.
    pub(super) heads: u64,
    /// How many of these belong to one column.
    pub(super) col_heads: u64,
}

/// Names of a tiling, in order.
const TILING: [&str; 3] = ["tile_kv", "heads", "col_heads"];

/// Most keys of a chunk: beyond, a token waits longer for the first than it saves by handing over less often.
const MOST_KEYS: u64 = 64;

impl FlowKvDims {
    pub(super) fn new(shape: &Shape, tiling: &Tiling) -> FlowKvDims {
        FlowKvDims {
            of: Problem::new(shape),
            tile_kv: tiling["tile_kv"],
            heads: tiling["heads"],
            col_heads: tiling["col_heads"],
        }
    }

    fn tiling(&self) -> Tiling {
        let values = [self.tile_kv, self.heads, self.col_heads];
        NamedNumbers::new(&TILING.into_iter().zip(values).collect::<Vec<_>>())
    }

    /// Queries of a core in whole slices.
    pub(super) fn tile_q(&self) -> u64 {
        self.of.group().next_multiple_of(SLICE)
    }

    pub(super) fn cols(&self) -> u64 {
        self.heads / self.col_heads
    }

    /// Elements of the slot with the position.
    pub(super) fn at_elements(&self) -> u64 {
        2 * self.of.head_dim
    }

    /// How often the position is sent, for it to fill a chunk of each of a column's heads.
    pub(super) fn position_repeats(&self) -> u64 {
        self.col_heads * self.tile_kv * self.of.head_dim / self.at_elements()
    }

    /// 1/√d.
    pub(super) fn scale(&self) -> f32 {
        1.0 / (self.of.head_dim as f32).sqrt()
    }

    /// Bytes of the fuller core of a pair. Both have the buffers of both roles, a chunk in ping-pong, and the shared
    /// buffers.
    fn l1_bytes(&self) -> u64 {
        let (tq, lc, d) = (self.tile_q(), self.tile_kv, self.of.head_dim);
        let chunks = 2 * 2 * lc * d;
        let shared = 2 * (2 * tq * lc + 4 * 2 * tq);
        let own = 2 * (tq * d + AT_DIGITS as u64) + 4 * (tq * d + 3 * tq);
        chunks + shared + own + 2 * self.of.group() * d
    }

    fn l2_bytes(&self) -> u64 {
        2 * 2 * 2 * self.col_heads * self.tile_kv * self.of.head_dim
    }

    pub(super) fn check(&self, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks { mapping: NAME };
        checks.ensure(self.of.n_queries == 1, Rule::Range, || {
            format!("{} new tokens; it is one", self.of.n_queries)
        })?;
        let kv_heads = ("key-value heads", self.of.n_kv_heads);
        checks.divides(("heads", self.of.n_heads), kv_heads)?;
        checks.divides(kv_heads, ("heads", self.heads))?;
        checks.divides(("heads", self.heads), ("col_heads", self.col_heads))?;
        checks.herd(self.cols(), 2 * self.col_heads, machine)?;
        let edge = ("the matrix unit's edge", 8);
        let lc = ("tile_kv", self.tile_kv);
        checks.divides(lc, edge)?;
        checks.divides(("head_dim", self.of.head_dim), edge)?;
        checks.divides(lc, ("heads of a group", self.of.group()))?;
        let queries = self.tile_q();
        checks.ensure(queries <= self.tile_kv, Rule::Range, || {
            format!(
                "{queries} queries come in the place of {} keys",
                self.tile_kv
            )
        })?;
        checks.divides(("keys", self.of.n_keys), lc)?;
        checks.ensure(self.of.n_keys <= self.of.max_tokens, Rule::Range, || {
            let (keys, rows) = (self.of.n_keys, self.of.max_tokens);
            format!("{keys} keys of a cache of {rows} tokens")
        })?;
        let (repeats, limit) = (
            self.position_repeats().max(self.tile_kv / self.of.group()),
            u64::from(machine.repeat_max),
        );
        checks.ensure(repeats <= limit, Rule::Repeat, || {
            format!("queries or position repeat {repeats} times, {limit} at most; take a smaller tile_kv")
        })?;
        checks.l2(self.l2_bytes(), machine)?;
        checks.l1(self.l1_bytes(), machine)
    }
}

/// Chunks that may be, the largest first: whole groups and slices of queries, doubled.
fn chunks(shape: &Shape) -> Vec<u64> {
    let group = (shape["n_heads"] / shape["n_kv_heads"].max(1)).max(1);
    let unit = lowest_common_rows(group);
    let doubled = (0..).map(|power| unit << power);
    let mut chunks: Vec<u64> = doubled
        .take_while(|&lc| lc <= MOST_KEYS.max(unit))
        .collect();
    chunks.reverse();
    chunks
}

/// The chunk, which decides a result's bits: the same for any number of keys of such heads. `None` if none fits a core.
pub(crate) fn tile_kv(shape: &Shape, machine: &Machine) -> Option<u64> {
    let fits = |&lc: &u64| {
        let tiled = FlowKvDims::new(shape, &least(lc));
        let of = Problem {
            n_queries: 1,
            n_keys: lc,
            max_tokens: lc,
            window: 0,
            ..tiled.of
        };
        let alone = FlowKvDims { of, ..tiled };
        alone.check(machine).is_ok()
    };
    chunks(shape).into_iter().find(fits)
}

/// One head at once.
fn least(tile_kv: u64) -> Tiling {
    NamedNumbers::new(&[("tile_kv", tile_kv), ("heads", 1), ("col_heads", 1)])
}

/// Legal tilings, best first: the chunk of all lengths, then others; the most heads at once, two to a column.
fn plans(shape: &Shape, machine: &Machine) -> Vec<FlowKvDims> {
    let wanted = tile_kv(shape, machine);
    let mut plans = Vec::new();
    for lc in chunks(shape) {
        for heads in divisors(shape["n_kv_heads"].max(1)) {
            for col_heads in [2, 1] {
                let tiling = NamedNumbers::new(&[
                    ("tile_kv", lc),
                    ("heads", heads),
                    ("col_heads", col_heads),
                ]);
                let tiled = FlowKvDims::new(shape, &tiling);
                plans.extend(Some(tiled).filter(|p| p.check(machine).is_ok()));
            }
        }
    }
    plans.sort_by_key(|p| {
        let other = Some(p.tile_kv) != wanted;
        (other, u64::MAX - p.heads, u64::MAX - p.col_heads)
    });
    plans
}

/// Whether there is a legal tiling.
pub(crate) fn fits(shape: &Shape, machine: &Machine) -> bool {
    let wanted = tile_kv(shape, machine);
    let first = plans(shape, machine).into_iter().next();
    first.is_some_and(|p| Some(p.tile_kv) == wanted)
}

pub(super) fn default(shape: &Shape, machine: &Machine) -> Tiling {
    let first = plans(shape, machine).into_iter().next();
    // Where no chunk fits, one that the rules refuse.
    let chunk = || tile_kv(shape, machine).or_else(|| chunks(shape).last().copied());
    first.map_or_else(|| least(chunk().unwrap_or(SLICE)), |p| p.tiling())
}

pub(super) fn all(shape: &Shape, machine: &Machine) -> Vec<Tiling> {
    plans(shape, machine)
        .iter()
        .map(FlowKvDims::tiling)
        .collect()
}
