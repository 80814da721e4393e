//! Shapes of a prompt's attention over a cache and their tilings.

use super::NAME;
use crate::mapping::cached_attention::{self, AT_DIGITS, lowest_common_rows};
use crate::mapping::parts::{Checks, constant, divisors, int};
use crate::mapping::{BuildError, Named, Rule, Shape, ShapeError, Tiling};
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::{Affine, Var};

/// Shape and tiling as plain numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiled {
    pub(super) n_queries: u64,
    pub(super) n_keys: u64,
    pub(super) max_tokens: u64,
    pub(super) n_heads: u64,
    pub(super) n_kv_heads: u64,
    pub(super) head_dim: u64,
    /// Keys that a query sees at most; 0 for all.
    pub(super) window: u64,
    /// Whether the keys are the pass's own, a row a token, and the pass is a prompt's first.
    pub(super) own: bool,
    /// Whether every token sees all keys of the pass, which are its own.
    pub(super) full: bool,
    /// Whether an image may be among the tokens: an iteration reads all keys of the pass, which are its own.
    pub(super) image: bool,
    /// Tokens of a core.
    pub(super) tile_tokens: u64,
    /// Keys of a tile.
    pub(super) tile_kv: u64,
    /// Rows of a result that leave a core at once.
    pub(super) y_rows: u64,
    /// Key-value heads at once.
    pub(super) heads: u64,
    /// Columns of a head.
    pub(super) spread: u64,
    pub(super) rows: u64,
    pub(super) l1_depth: u64,
}

impl Tiled {
    pub(super) fn new(shape: &Shape, tiling: &Tiling) -> Tiled {
        Tiled {
            n_queries: shape["n_queries"],
            n_keys: shape["n_keys"],
            max_tokens: shape["max_tokens"],
            n_heads: shape["n_heads"],
            n_kv_heads: shape["n_kv_heads"],
            head_dim: shape["head_dim"],
            window: shape["window"],
            own: shape.get("own") == Some(1),
            full: shape.get("full") == Some(1),
            image: shape.get("image") == Some(1),
            tile_tokens: tiling["tile_tokens"],
            tile_kv: tiling["tile_kv"],
            y_rows: tiling["y_rows"],
            heads: tiling["heads"],
            spread: tiling["spread"],
            rows: tiling["rows"],
            l1_depth: tiling["l1_depth"],
        }
    }

    /// A problem without a tiling yet.
    fn untiled(shape: &Shape) -> Tiled {
        let names = [
            "tile_tokens",
            "tile_kv",
            "y_rows",
            "heads",
            "spread",
            "rows",
            "l1_depth",
        ];
        Tiled::new(shape, &Named::new(&names.map(|name| (name, 1))))
    }

    fn tiling(&self) -> Tiling {
        Named::new(&[
            ("tile_tokens", self.tile_tokens),
            ("tile_kv", self.tile_kv),
            ("y_rows", self.y_rows),
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

    /// Queries of a core: heads of a group by tokens.
    pub(super) fn tile_rows(&self) -> u64 {
        self.tile_tokens * self.group()
    }

    /// Cores of a head.
    pub(super) fn n_cores(&self) -> u64 {
        self.spread * self.rows
    }

    /// Tokens of all cores of a head.
    pub(super) fn iteration_tokens(&self) -> u64 {
        self.n_cores() * self.tile_tokens
    }

    /// Blocks of the stream of keys that their queries take.
    pub(super) fn query_blocks(&self) -> u64 {
        self.n_cores() * self.tile_rows() / self.tile_kv
    }

    /// Keys that an iteration reads, in units of so many: all, those that its tokens reach, or all up to its own.
    pub(super) fn band(&self, unit: u64) -> Affine {
        let tokens = self.iteration_tokens();
        match (self.own, self.window) {
            // Along the first dimension there is one iteration then: cores have one program with a mask and without.
            (true, _) if self.full => {
                Affine::of(Var::Grid(0), int(tokens / unit)) + int(self.n_keys / unit)
            }
            (true, _) if self.image => constant(self.n_keys / unit),
            (true, _) => Affine::of(Var::Grid(0), int(tokens / unit)) + int(tokens / unit),
            (false, 0) => constant(self.n_keys / unit),
            (false, window) => constant((tokens + before(window, self.tile_kv)) / unit),
        }
    }

    /// Elements from a key to the next of its head.
    pub(super) fn key_stride(&self) -> u64 {
        match self.own {
            true => self.n_kv_heads * self.head_dim,
            false => self.head_dim,
        }
    }

    /// Rows from a head's first key to that of the next head.
    pub(super) fn head_rows(&self) -> u64 {
        if self.own { 1 } else { self.max_tokens }
    }

    /// Shape of the slots of keys and values.
    pub(super) fn kv_shape(&self) -> [u64; 3] {
        match self.own {
            true => [self.n_keys, self.n_kv_heads, self.head_dim],
            false => [self.n_kv_heads, self.max_tokens, self.head_dim],
        }
    }

    /// Parts in which a core's result leaves.
    pub(super) fn y_parts(&self) -> u64 {
        self.tile_rows() / self.y_rows
    }

    /// Elements of the slot with the position: a block of the stream of values.
    pub(super) fn at_elements(&self) -> u64 {
        self.tile_kv * self.head_dim
    }

    /// Elements of the state of a slice of eight queries.
    pub(super) fn slice_elements(&self) -> u64 {
        8 * (self.head_dim + 2)
    }

    /// Tiles of tokens, key-value heads; of tokens that see all keys, one, key-value heads, and tiles of tokens.
    pub(super) fn grid(&self) -> Vec<u64> {
        let (tiles, heads) = (
            self.n_queries / self.iteration_tokens(),
            self.n_kv_heads / self.heads,
        );
        match self.full {
            true => vec![1, heads, tiles],
            false => vec![tiles, heads],
        }
    }

    /// What counts the tiles of tokens.
    pub(super) fn token_tile(&self) -> Var {
        Var::Grid(if self.full { 2 } else { 0 })
    }

    fn l1_bytes(&self) -> u64 {
        let (tq, tk, d) = (self.tile_rows(), self.tile_kv, self.head_dim);
        let bf16 =
            tq * d + tq * tk + self.l1_depth * 2 * tk * d + self.y_rows * d + AT_DIGITS as u64;
        2 * bf16 + 4 * self.slice_elements() * (tq / 8)
    }

    fn l2_bytes(&self) -> u64 {
        2 * 2 * (2 * self.tile_kv + self.rows * self.y_rows) * self.head_dim
    }

    fn fits_l1(&self, machine: &Machine) -> bool {
        self.l1_bytes() <= machine.core.data_bytes - machine.stack_bytes
    }

    pub(super) fn check(&self, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks { mapping: NAME };
        checks.ensure((1..=2).contains(&self.l1_depth), Rule::Range, || {
            format!("l1_depth = {}; it is 1, or 2 for ping-pong", self.l1_depth)
        })?;
        let kv_heads = ("key-value heads", self.n_kv_heads);
        checks.divides(("heads", self.n_heads), kv_heads)?;
        checks.divides(kv_heads, ("heads", self.heads))?;
        let edge = ("the matrix unit's edge", 8);
        let tk = ("tile_kv", self.tile_kv);
        checks.divides(tk, edge)?;
        checks.divides(("head_dim", self.head_dim), edge)?;
        checks.herd(self.heads * self.spread, self.rows, machine)?;
        let group = ("heads of a group", self.group());
        let rows = ("tile_tokens * group", self.tile_rows());
        checks.divides(tk, group)?;
        checks.divides(rows, tk)?;
        checks.divides(rows, ("y_rows", self.y_rows))?;
        checks.divides(("y_rows", self.y_rows), group)?;
        let tokens = ("spread * rows * tile_tokens", self.iteration_tokens());
        checks.divides(("queries", self.n_queries), tokens)?;
        checks.divides(("keys", self.n_keys), tk)?;
        checks.ensure(self.n_keys <= self.max_tokens, Rule::Range, || {
            let (keys, rows) = (self.n_keys, self.max_tokens);
            format!("{keys} keys of a cache of {rows} tokens")
        })?;
        self.check_reach(checks, tokens)?;
        let (blocks, limit) = (self.query_blocks(), u64::from(machine.repeat_max));
        checks.ensure(blocks <= limit, Rule::Repeat, || {
            format!("the position is repeated {blocks} times, {limit} at most; take less tokens")
        })?;
        let token = 2 * self.n_heads * self.head_dim;
        let results = self.rows * self.tile_tokens * token;
        checks.stride("a column's tokens", results, machine)?;
        let keys = 2 * self.tile_kv * self.key_stride();
        checks.stride("a tile of keys", keys, machine)?;
        checks.l2(self.l2_bytes(), machine)?;
        checks.l1(self.l1_bytes(), machine)
    }

    /// The keys are those of the tokens and what they reach.
    fn check_reach(&self, checks: Checks, tokens: (&str, u64)) -> Result<(), BuildError> {
        let (new, keys) = (self.n_queries, self.n_keys);
        if self.own {
            checks.divides(tokens, ("tile_kv", self.tile_kv))?;
            let all = new == keys && keys == self.max_tokens;
            checks.ensure(all, Rule::Range, || {
                let rows = self.max_tokens;
                format!("{new} tokens over their own keys, but {keys} keys of {rows}")
            })?;
            return checks.ensure(!self.full || self.window == 0, Rule::Range, || {
                let window = self.window;
                format!("tokens that see all keys, but a window of {window}")
            });
        }
        if self.window == 0 {
            return checks.ensure(new <= keys, Rule::Range, || {
                format!("{new} new tokens over {keys} keys, their own among them")
            });
        }
        checks.divides(tokens, ("tile_kv", self.tile_kv))?;
        let reached = new + before(self.window, self.tile_kv);
        checks.ensure(keys == reached, Rule::Range, || {
            let window = self.window;
            format!("{new} new tokens with a window of {window} reach {reached} keys, not {keys}")
        })
    }
}

/// Reads `NEWxKEYS HEADSq/KVHEADSkv dD [of MAX] [window W] [own|full|image]`.
pub(super) fn parse(text: &str) -> Result<Shape, ShapeError> {
    let text = text.trim_end();
    if let Some(rest) = text.strip_suffix(" full") {
        return cached_attention::parse(rest).map(|shape| without_mask(&shape));
    }
    if let Some(rest) = text.strip_suffix(" image") {
        return cached_attention::parse(rest).map(|shape| with_image(&shape));
    }
    match text.strip_suffix(" own") {
        Some(rest) => cached_attention::parse(rest).map(|shape| over_own_keys(&shape)),
        None => cached_attention::parse(text),
    }
}

/// The same over the keys of the pass itself, a prompt's first.
pub(crate) fn over_own_keys(shape: &Shape) -> Shape {
    with(shape, &["own"])
}

/// The same where every token sees all keys of the pass: no mask.
pub(crate) fn without_mask(shape: &Shape) -> Shape {
    with(shape, &["own", "full"])
}

/// The same where an image may be among the pass's tokens.
pub(crate) fn with_image(shape: &Shape) -> Shape {
    with(shape, &["own", "image"])
}

fn with(shape: &Shape, set: &[&'static str]) -> Shape {
    let sizes = NAMES.iter().map(|name| (*name, shape[name]));
    let set = set.iter().map(|name| (*name, 1));
    Named::new(&sizes.chain(set).collect::<Vec<_>>())
}

/// Names of a shape's numbers.
const NAMES: [&str; 7] = [
    "n_queries",
    "n_keys",
    "max_tokens",
    "n_heads",
    "n_kv_heads",
    "head_dim",
    "window",
];

/// Rows before a pass's own that its tokens reach with a window, wherever in a tile of the sequence it begins.
pub(crate) fn before(window: u64, tile_kv: u64) -> u64 {
    (window + tile_kv - 2).next_multiple_of(tile_kv)
}

/// A problem with the tile of keys that all lengths have, on a single core, with as few tokens as that can have.
fn least(shape: &Shape, machine: &Machine) -> Option<Tiled> {
    let group = shape["n_heads"] / shape["n_kv_heads"].max(1);
    let unit = lowest_common_rows(group.max(1));
    let tiles = || (1..=(32 / unit).max(1)).rev().map(|n| n * unit);
    let plans = [2, 1].into_iter().flat_map(|l1_depth| {
        tiles().flat_map(move |tile_kv| [tile_kv, unit].map(|y_rows| (l1_depth, tile_kv, y_rows)))
    });
    let mut plans = plans.map(|(l1_depth, tile_kv, y_rows)| Tiled {
        tile_tokens: tile_kv / group.max(1),
        tile_kv,
        y_rows,
        l1_depth,
        ..Tiled::untiled(shape)
    });
    plans.find(|p| p.fits_l1(machine))
}

/// Keys of a tile, which decide a result's bits: the same for any number of tokens and keys of such heads. `None` where
/// no tile fits a core.
pub(crate) fn tile_kv(shape: &Shape, machine: &Machine) -> Option<u64> {
    least(shape, machine).map(|p| p.tile_kv)
}

/// Rows of a core's result that leave at once where L1 takes that many queries: all, or a few.
fn with_results(p: Tiled, machine: &Machine) -> Option<Tiled> {
    let some = lowest_common_rows(p.group());
    let parts = [p.tile_rows(), some].map(|y_rows| Tiled { y_rows, ..p });
    let legal = |p: &Tiled| p.tile_rows().is_multiple_of(p.y_rows) && p.fits_l1(machine);
    parts.into_iter().find(legal)
}

/// Most queries of a core.
const MAX_ROWS: u64 = 64;

/// Legal tilings, best first: on the most cores, with the most queries each; then two heads at once, because one
/// brings all cores' queries past each of them, and more read the cache more often.
fn plans(shape: &Shape, machine: &Machine) -> Vec<Tiled> {
    let Some(least) = least(shape, machine) else {
        return Vec::new();
    };
    let (cols, rows) = (u64::from(machine.cols), u64::from(machine.rows));
    let mut plans = Vec::new();
    for heads in divisors(least.n_kv_heads.max(1)) {
        for spread in 1..=cols / heads {
            for rows in 1..=rows {
                for tiles in 1..=(MAX_ROWS / least.tile_kv).max(1) {
                    let tile_tokens = tiles * least.tile_tokens;
                    let tiled = Tiled {
                        tile_tokens,
                        heads,
                        spread,
                        rows,
                        ..least
                    };
                    let tiled = with_results(tiled, machine);
                    plans.extend(tiled.filter(|p| p.check(machine).is_ok()));
                }
            }
        }
    }
    let cores = |p: &Tiled| p.heads * p.n_cores();
    plans.sort_by_key(|p| {
        let most = u64::MAX - cores(p);
        (most, u64::MAX - p.tile_tokens, p.heads.abs_diff(2), p.heads)
    });
    plans
}

/// Whether there is a legal tiling.
pub(crate) fn fits(shape: &Shape, machine: &Machine) -> bool {
    !plans(shape, machine).is_empty()
}

pub(super) fn default(shape: &Shape, machine: &Machine) -> Tiling {
    let best = plans(shape, machine).first().copied();
    let least = best.or_else(|| least(shape, machine));
    // Where no core has room for a tile, one that the rules refuse.
    least.unwrap_or(Tiled::untiled(shape)).tiling()
}

pub(super) fn all(shape: &Shape, machine: &Machine) -> Vec<Tiling> {
    let plans = plans(shape, machine);
    let most = plans.first().map_or(0, |p| p.heads * p.n_cores());
    let busy = plans.iter().filter(|p| p.heads * p.n_cores() == most);
    busy.map(Tiled::tiling).collect()
}
