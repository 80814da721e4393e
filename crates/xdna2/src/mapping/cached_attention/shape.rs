//! Shapes of attention over a cache and their tilings.

use super::NAME;
use crate::mapping::parts::{Checks, divisors};
use crate::mapping::{BuildError, NamedNumbers, Rule, Shape, ShapeError, Tiling};
use millrace_xdna2_machine::Machine;

/// Shape and tiling as plain numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedAttentionDims {
    pub(super) n_queries: u64,
    pub(super) n_keys: u64,
    pub(super) max_tokens: u64,
    pub(super) n_heads: u64,
    pub(super) n_kv_heads: u64,
    pub(super) head_dim: u64,
    /// Keys that a query sees at most; 0 for all.
    pub(super) window: u64,
    /// Tokens of a tile of queries.
    pub(super) tile_tokens: u64,
    /// Keys of a tile.
    pub(super) tile_kv: u64,
    /// Key-value heads at once.
    pub(super) heads: u64,
    /// Columns of a head.
    pub(super) spread: u64,
    pub(super) rows: u64,
    pub(super) l1_depth: u64,
}

impl CachedAttentionDims {
    pub(super) fn new(shape: &Shape, tiling: &Tiling) -> CachedAttentionDims {
        CachedAttentionDims {
            n_queries: shape["n_queries"],
            n_keys: shape["n_keys"],
            max_tokens: shape["max_tokens"],
            n_heads: shape["n_heads"],
            n_kv_heads: shape["n_kv_heads"],
            head_dim: shape["head_dim"],
            window: shape["window"],
            tile_tokens: tiling["tile_tokens"],
            tile_kv: tiling["tile_kv"],
            heads: tiling["heads"],
            spread: tiling["spread"],
            rows: tiling["rows"],
            l1_depth: tiling["l1_depth"],
        }
    }

    /// A problem without a tiling yet: every size is 0.
    fn untiled(shape: &Shape) -> CachedAttentionDims {
        let none = NamedNumbers::new(&[
            ("tile_tokens", 0),
            ("tile_kv", 0),
            ("heads", 0),
            ("spread", 0),
            ("rows", 0),
            ("l1_depth", 0),
        ]);
        CachedAttentionDims::new(shape, &none)
    }

    fn tiling(&self) -> Tiling {
        NamedNumbers::new(&[
            ("tile_tokens", self.tile_tokens),
            ("tile_kv", self.tile_kv),
            ("heads", self.heads),
            ("spread", self.spread),
            ("rows", self.rows),
            ("l1_depth", self.l1_depth),
        ])
    }

    /// Heads that share keys.
    pub(super) fn group(&self) -> u64 {
        self.n_heads / self.n_kv_heads
    }

    pub(super) fn cols(&self) -> u64 {
        self.heads * self.spread
    }

    /// Queries of a tile: heads of a group by tokens.
    pub(super) fn tile_rows(&self) -> u64 {
        self.tile_tokens * self.group()
    }

    /// The same in whole slices.
    pub(super) fn tile_q(&self) -> u64 {
        self.tile_rows().next_multiple_of(8)
    }

    /// Elements of the state of a slice of eight queries.
    pub(super) fn slice_elements(&self) -> u64 {
        8 * (self.head_dim + 2)
    }

    /// Blocks of a core that bring queries.
    pub(super) fn prelude(&self) -> u64 {
        self.tile_rows().div_ceil(self.tile_kv)
    }

    /// Blocks of a core that bring keys and values.
    pub(super) fn rounds(&self) -> u64 {
        self.n_keys / (self.rows * self.spread * self.tile_kv)
    }

    /// Elements of the slot with the position: repeated, they fill the blocks of a column, in runs
    /// that are not too short.
    pub(super) fn at_elements(&self) -> u64 {
        2 * self.head_dim
    }

    /// Tiles of queries, key-value heads.
    pub(super) fn grid(&self) -> [u64; 2] {
        [
            self.n_queries / self.tile_tokens,
            self.n_kv_heads / self.heads,
        ]
    }

    /// 1/√d.
    pub(super) fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    fn l1_bytes(&self) -> u64 {
        let (tq, tk, d) = (self.tile_q(), self.tile_kv, self.head_dim);
        let bf16 = tq * d + tq * tk + self.l1_depth * 2 * tk * d + self.tile_rows() * d + 4;
        // From above, and to below or from the west and to the east.
        let passing = match self.spread {
            1 => 2,
            _ => 3,
        };
        2 * bf16 + 4 * self.slice_elements() * (tq / 8 + passing)
    }

    fn l2_bytes(&self) -> u64 {
        2 * 2 * 2 * self.rows * self.tile_kv * self.head_dim
    }

    pub(super) fn check(&self, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks { mapping: NAME };
        checks.ensure((1..=2).contains(&self.l1_depth), Rule::Range, || {
            format!("l1_depth = {}; it is 1, or 2 for ping-pong", self.l1_depth)
        })?;
        checks.divides(
            ("heads", self.n_heads),
            ("key-value heads", self.n_kv_heads),
        )?;
        let edge = ("the matrix unit's edge", 8);
        checks.divides(("tile_kv", self.tile_kv), edge)?;
        checks.divides(("head_dim", self.head_dim), edge)?;
        checks.ensure(self.heads > 0 && self.spread > 0, Rule::Range, || {
            "heads and spread are at least 1".to_owned()
        })?;
        checks.herd(self.cols(), self.rows, machine)?;
        let run = (
            "rows * spread * tile_kv",
            self.rows * self.spread * self.tile_kv,
        );
        checks.divides(("keys", self.n_keys), run)?;
        checks.divides(
            ("queries", self.n_queries),
            ("tile_tokens", self.tile_tokens),
        )?;
        checks.divides(("key-value heads", self.n_kv_heads), ("heads", self.heads))?;
        let (rows, tk) = (
            ("tile_tokens * group", self.tile_rows()),
            ("tile_kv", self.tile_kv),
        );
        checks.divides(tk, ("heads of a group", self.group()))?;
        if rows.1 < tk.1 {
            checks.divides(tk, rows)?;
        } else {
            checks.divides(rows, tk)?;
        }
        checks.ensure(self.n_keys <= self.max_tokens, Rule::Range, || {
            format!(
                "{} keys of a cache of {} tokens",
                self.n_keys, self.max_tokens
            )
        })?;
        let seen = self.n_queries <= self.n_keys;
        checks.ensure(seen, Rule::Range, || {
            format!(
                "{} new tokens over {} keys, their own among them",
                self.n_queries, self.n_keys
            )
        })?;
        let repeats = self.rows * tk.1 / rows.1.min(tk.1).max(1);
        let limit = u64::from(machine.repeat_max);
        checks.ensure(repeats <= limit, Rule::Repeat, || {
            format!("queries are repeated {repeats} times, {limit} at most; take a smaller tile_kv")
        })?;
        let step = 2 * self.spread * self.rows * tk.1 * self.head_dim;
        checks.stride("a round of keys", step, machine)?;
        checks.stride(
            "a token's queries",
            2 * self.n_heads * self.head_dim,
            machine,
        )?;
        checks.l2(self.l2_bytes(), machine)?;
        checks.l1(self.l1_bytes(), machine)
    }
}

/// Reads `NEWxKEYS HEADSq/KVHEADSkv dD [of MAX] [window W]`.
pub(in crate::mapping) fn parse(text: &str) -> Result<Shape, ShapeError> {
    const EXPECTED: &str = "the shape is `NEWxKEYS HEADSq/KVHEADSkv dD [of MAX] [window W]`, for \
                            example `1x4096 32q/8kv d64 of 8192`; whole numbers from 1 to 2^20";
    let error = || ShapeError::new(text, EXPECTED);
    let number = |word: &str| {
        let value = word.parse::<u64>().ok();
        value
            .filter(|v| (1..=1 << 20).contains(v))
            .ok_or_else(error)
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let [lengths, heads, dim, options @ ..] = &words[..] else {
        return Err(error());
    };
    let (queries, keys) = lengths.split_once('x').ok_or_else(error)?;
    let (heads, kv_heads) = heads.split_once('/').ok_or_else(error)?;
    let heads = heads.strip_suffix('q').ok_or_else(error)?;
    let kv_heads = kv_heads.strip_suffix("kv").ok_or_else(error)?;
    let dim = dim.strip_prefix('d').ok_or_else(error)?;
    let (mut max_tokens, mut window) = (number(keys)?, 0);
    for pair in options.chunks(2) {
        match *pair {
            ["of", max] => max_tokens = number(max)?,
            ["window", keys] => window = number(keys)?,
            _ => return Err(error()),
        }
    }
    Ok(NamedNumbers::new(&[
        ("n_queries", number(queries)?),
        ("n_keys", number(keys)?),
        ("max_tokens", max_tokens),
        ("n_heads", number(heads)?),
        ("n_kv_heads", number(kv_heads)?),
        ("head_dim", number(dim)?),
        ("window", window),
    ]))
}

/// Key-value heads at once and columns of each: most columns, then most heads.
fn columns(n_kv_heads: u64, machine: &Machine) -> (u64, u64) {
    let cols = u64::from(machine.cols);
    let fit = divisors(n_kv_heads).into_iter().filter(|&h| h <= cols);
    let used = |heads: u64| heads * (cols / heads);
    fit.max_by_key(|&h| (used(h), h))
        .map_or((1, 1), |h| (h, cols / h))
}

/// Least tile of keys that holds whole slices and whole groups.
pub(in crate::mapping) fn lowest_common_rows(group: u64) -> u64 {
    let common = |a: u64, b: u64| divisors(a).into_iter().rev().find(|d| b.is_multiple_of(*d));
    group * 8 / common(group, 8).unwrap_or(1)
}

/// Tilings for one token, or for chunks of any length, best first: the most queries a tile, then
/// ping-pong, then large tiles of keys. In decode small ones, because queries take the place of a
/// block of keys.
fn candidates(shape: &Shape, machine: &Machine) -> Vec<CachedAttentionDims> {
    let (heads, spread) = columns(shape["n_kv_heads"], machine);
    let group = shape["n_heads"] / shape["n_kv_heads"].max(1);
    let unit = lowest_common_rows(group.max(1));
    let decode = shape["n_queries"] == 1;
    let largest = if decode { 16 } else { 32 };
    let tiles = (1..=(largest / unit).max(1)).rev().map(|n| n * unit);
    let tokens = if decode { 1 } else { 64 / group.clamp(1, 64) };
    let mut plans = Vec::new();
    for tile_tokens in (1..=tokens.max(1)).rev() {
        for l1_depth in [2, 1] {
            for tile_kv in tiles.clone() {
                let tiled = CachedAttentionDims {
                    tile_tokens,
                    tile_kv,
                    heads,
                    spread,
                    rows: machine.rows.into(),
                    l1_depth,
                    ..CachedAttentionDims::untiled(shape)
                };
                plans.push(tiled);
            }
        }
    }
    plans
}

/// The best candidate by the tile of keys, which the bits depend on, for any numbers of queries and keys; then the
/// number of queries that divides theirs.
pub(super) fn default(shape: &Shape, machine: &Machine) -> Tiling {
    let plans = candidates(shape, machine);
    let anywhere = |p: &&CachedAttentionDims| {
        let round = p.rows * p.spread * p.tile_kv;
        let roomy = CachedAttentionDims {
            n_queries: p.tile_tokens,
            n_keys: round * p.tile_tokens,
            max_tokens: round * p.tile_tokens,
            ..**p
        };
        roomy.check(machine).is_ok()
    };
    let best = plans.iter().find(anywhere);
    let here = plans.iter().find(|p| {
        let same = best.is_none_or(|best| p.tile_kv == best.tile_kv);
        same && p.check(machine).is_ok()
    });
    let first = here.or(best).or(plans.first());
    first.map_or_else(
        || CachedAttentionDims::untiled(shape).tiling(),
        CachedAttentionDims::tiling,
    )
}

pub(super) fn all(shape: &Shape, machine: &Machine) -> Vec<Tiling> {
    let mut tilings: Vec<Tiling> = Vec::new();
    for tiled in candidates(shape, machine) {
        if tiled.check(machine).is_ok() {
            tilings.push(tiled.tiling());
        }
    }
    tilings
}

/// Unit of the number of keys that a tiling reads.
pub(crate) fn n_keys_unit(shape: &Shape, machine: &Machine) -> u64 {
    let tiling = default(shape, machine);
    let tiled = CachedAttentionDims::new(shape, &tiling);
    (tiled.rows * tiled.spread * tiled.tile_kv).max(1)
}
