//! Shapes of attention and their tilings.

mod numerics;
use numerics::{TileNumerics, canonical, numerics};

use crate::mapping::parts::{Checks, divisors, int};
use crate::mapping::{BuildError, NamedNumbers, Rule, Shape, ShapeError, Tiling};
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::{Affine, Var};

/// Shape and tiling as plain numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttentionDims {
    pub(super) n_queries: u64,
    pub(super) n_keys: u64,
    pub(super) n_heads: u64,
    pub(super) n_kv_heads: u64,
    pub(super) head_dim: u64,
    pub(super) causal: bool,
    seq_first: bool,
    /// Keys that a query sees; 0 for all.
    pub(super) window: u64,
    /// Queries of a core's tile.
    pub(super) tile_q: u64,
    /// Keys of a tile.
    pub(super) tile_kv: u64,
    /// Elements of the head dimension that a block of K has.
    pub(super) tile_dk: u64,
    /// Columns of V and of the output that an iteration treats.
    pub(super) tile_dv: u64,
    pub(super) q_tiles: u64,
    /// Stages that tiles of keys are dealt to.
    dealt: u64,
    /// Number of stages that get keys: a stage without keys adds nothing and has no cores.
    pub(super) stages: u64,
    /// Heads of an iteration with a stream of keys each.
    pub(super) unroll: u64,
    /// Heads that share one of those streams.
    pub(super) heads: u64,
    pub(super) causal_skip: bool,
    /// Iterations follow each other without a pause.
    pub(super) streamed: bool,
    /// Tiles of keys are dealt from the top row down.
    pub(super) top_first: bool,
    pub(super) l1_depth: u64,
}

/// Positions of heads and rows in a slot, in elements.
pub(super) struct HeadLayout {
    pub(super) head: u64,
    pub(super) row: u64,
}

impl AttentionDims {
    pub(super) fn new(shape: &Shape, tiling: &Tiling) -> AttentionDims {
        let (n_keys, tile_kv) = (shape["n_keys"], tiling["tile_kv"]);
        let dealt = tiling["stages"];
        AttentionDims {
            n_queries: shape["n_queries"],
            n_keys,
            n_heads: shape["n_heads"],
            n_kv_heads: shape["n_kv_heads"],
            head_dim: shape["head_dim"],
            causal: shape["causal"] == 1,
            seq_first: shape["seq_first"] == 1,
            window: shape.get("window").unwrap_or(0),
            tile_q: tiling["tile_q"],
            tile_kv,
            tile_dk: tiling["tile_dk"],
            tile_dv: tiling["tile_dv"],
            q_tiles: tiling["q_tiles"],
            dealt,
            stages: dealt.min(n_keys.div_ceil(tile_kv.max(1))),
            unroll: tiling["unroll"],
            heads: tiling["heads"],
            causal_skip: tiling["causal_skip"] == 1,
            streamed: tiling["streamed"] == 1,
            top_first: tiling["top_first"] == 1,
            l1_depth: tiling["l1_depth"],
        }
    }

    pub(super) fn tiling(&self) -> Tiling {
        NamedNumbers::new(&[
            ("tile_q", self.tile_q),
            ("tile_kv", self.tile_kv),
            ("tile_dk", self.tile_dk),
            ("tile_dv", self.tile_dv),
            ("q_tiles", self.q_tiles),
            ("stages", self.dealt),
            ("unroll", self.unroll),
            ("heads", self.heads),
            ("causal_skip", u64::from(self.causal_skip)),
            ("streamed", u64::from(self.streamed)),
            ("top_first", u64::from(self.top_first)),
            ("l1_depth", self.l1_depth),
        ])
    }

    /// Columns that take the same keys.
    pub(super) fn width(&self) -> u64 {
        self.heads * self.q_tiles
    }

    /// Queries of an iteration, of each of its heads.
    pub(super) fn iteration_q(&self) -> u64 {
        self.q_tiles * self.tile_q
    }

    /// Blocks of K's stream they take.
    pub(super) fn q_blocks(&self) -> u64 {
        self.iteration_q() / self.tile_kv
    }

    /// Tiles of keys that every stage has, and how many stages have one more.
    pub(super) fn dealing(&self) -> (u64, u64) {
        let tiles = self.n_keys / self.tile_kv;
        (tiles / self.stages, tiles % self.stages)
    }

    /// The stage that has a tile of keys.
    pub(super) fn stage_of(&self, tile: u64) -> u64 {
        let stage = tile % self.stages;
        if self.top_first {
            self.stages - 1 - stage
        } else {
            stage
        }
    }

    /// A stage's number in the deal as an expression: the row itself, or counted from the top.
    pub(super) fn turn(&self, row: Var) -> Affine {
        if self.top_first {
            Affine::new(int(self.stages) - 1).plus(row, -1)
        } else {
            Affine::of(row, 1)
        }
    }

    pub(super) fn n_cores(&self) -> u64 {
        self.unroll * self.width() * self.stages
    }

    pub(super) fn dk_chunks(&self) -> u64 {
        self.head_dim / self.tile_dk
    }

    /// 1/√d.
    pub(super) fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    fn group(&self) -> u64 {
        self.n_heads / self.n_kv_heads
    }

    /// Whether an iteration's heads have separate key-value heads, rather than share one.
    fn spreads_kv(&self) -> bool {
        self.n_kv_heads.is_multiple_of(self.unroll)
    }

    /// Tiles of queries, key-value heads, heads of a group, chunks of values.
    pub(super) fn grid(&self) -> [u64; 4] {
        let (kv, group) = if self.spreads_kv() {
            (self.n_kv_heads / self.unroll, self.group() / self.heads)
        } else {
            (self.n_kv_heads, self.group() / (self.unroll * self.heads))
        };
        let chunks = self.head_dim / self.tile_dv;
        [self.n_queries / self.iteration_q(), kv, group, chunks]
    }

    fn layout(&self, heads: u64, rows: u64) -> HeadLayout {
        if self.seq_first {
            HeadLayout {
                head: self.head_dim,
                row: heads * self.head_dim,
            }
        } else {
            HeadLayout {
                head: rows * self.head_dim,
                row: self.head_dim,
            }
        }
    }

    /// Layout of Q and the output.
    pub(super) fn q_layout(&self) -> HeadLayout {
        self.layout(self.n_heads, self.n_queries)
    }

    /// Layout of K and V.
    pub(super) fn kv_layout(&self) -> HeadLayout {
        self.layout(self.n_kv_heads, self.n_keys)
    }

    /// Shape of a slot of so many rows and heads.
    pub(super) fn slot_shape(&self, rows: u64, heads: u64) -> [u64; 3] {
        if self.seq_first {
            [rows, heads, self.head_dim]
        } else {
            [heads, rows, self.head_dim]
        }
    }

    /// Start of the iteration's `unrolled`-th head in Q.
    pub(super) fn q_head(&self, unrolled: u64) -> Affine {
        let head = self.q_layout().head;
        let apart = if self.spreads_kv() {
            self.n_heads / self.unroll
        } else {
            self.group() / self.unroll
        };
        Affine::new(int(unrolled * apart * head))
            .plus(Var::Grid(1), int(self.group() * head))
            .plus(Var::Grid(2), int(self.heads * head))
    }

    /// Start of its keys and values.
    pub(super) fn kv_head(&self, unrolled: u64) -> Affine {
        let head = self.kv_layout().head;
        let apart = if self.spreads_kv() {
            self.n_kv_heads / self.unroll
        } else {
            0
        };
        Affine::new(int(unrolled * apart * head)).plus(Var::Grid(1), int(head))
    }

    fn l1_bytes(&self) -> u64 {
        let (queries, keys) = (self.tile_q, self.tile_kv);
        let state = queries * (self.tile_dv + 2);
        let streams = self.l1_depth * keys * (self.tile_dk + self.tile_dv);
        let kept = queries * (self.head_dim + keys + 1);
        // Own state, that from above, and that for the row below (in row 0 the result).
        2 * (streams + kept + 3 * state)
    }

    pub(super) fn check(&self, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks {
            mapping: "flash-attention",
        };
        for (name, value) in [("unroll", self.unroll), ("l1_depth", self.l1_depth)] {
            checks.ensure((1..=2).contains(&value), Rule::Range, || {
                format!("{name} = {value}; it is 1 or 2")
            })?;
        }
        let edge = ("the matrix unit's edge", 8);
        for (name, size) in [
            ("tile_q", self.tile_q),
            ("tile_kv", self.tile_kv),
            ("tile_dk", self.tile_dk),
            ("tile_dv", self.tile_dv),
        ] {
            checks.divides((name, size), edge)?;
        }
        let none = [self.q_tiles, self.stages, self.heads].contains(&0);
        checks.ensure(!none, Rule::Range, || {
            "q_tiles, stages and heads are at least 1".to_owned()
        })?;
        checks.herd(self.unroll * self.width(), self.stages, machine)?;
        let columns = self.unroll * self.stages;
        checks.ensure(columns <= u64::from(machine.cols), Rule::Streams, || {
            format!(
                "{columns} stages need a memory tile and two shim streams each; the array has {} \
                 columns",
                machine.cols
            )
        })?;
        self.check_shape(checks, machine)?;
        checks.l1(self.l1_bytes(), machine)
    }

    fn check_shape(&self, checks: Checks, machine: &Machine) -> Result<(), BuildError> {
        checks.divides(
            ("heads", self.n_heads),
            ("key-value heads", self.n_kv_heads),
        )?;
        let kv = self.spreads_kv();
        checks.ensure(kv || self.group().is_multiple_of(self.unroll), Rule::Divides, || {
            format!(
                "neither the {} key-value heads nor their {} heads each come in groups of unroll = \
                 {}; set unroll=1",
                self.n_kv_heads,
                self.group(),
                self.unroll
            )
        })?;
        let sharing = self.group() / if kv { 1 } else { self.unroll };
        checks.divides(("heads that share keys", sharing), ("heads", self.heads))?;
        let iteration = ("q_tiles * tile_q", self.iteration_q());
        checks.divides(("queries", self.n_queries), iteration)?;
        checks.divides(("tile_kv", self.tile_kv), ("tile_q", self.tile_q))?;
        checks.divides(iteration, ("tile_kv", self.tile_kv))?;
        checks.divides(("keys", self.n_keys), ("tile_kv", self.tile_kv))?;
        checks.divides(("head_dim", self.head_dim), ("tile_dk", self.tile_dk))?;
        checks.divides(("head_dim", self.head_dim), ("tile_dv", self.tile_dv))?;
        let square = self.n_queries == self.n_keys;
        checks.ensure(square || !self.causal, Rule::Range, || {
            format!(
                "a causal mask over {} queries and {} keys; they must be as many",
                self.n_queries, self.n_keys
            )
        })?;
        checks.ensure(self.causal || self.window == 0, Rule::Range, || {
            format!("a window of {} keys without a causal mask", self.window)
        })?;
        checks.ensure(self.causal || !self.causal_skip, Rule::Range, || {
            "causal_skip=1 without a causal mask; set it to 0".to_owned()
        })?;
        let step = 2 * self.stages * self.tile_kv * self.kv_layout().row;
        checks.stride("stages * tile_kv keys", step, machine)?;
        checks.stride("a row of Q", 2 * self.q_layout().row, machine)
    }
}

/// Reads `LQ[xLK] HEADSq/KVHEADSkv dD causal|full [seq-first] [window W]`.
pub(super) fn parse(text: &str) -> Result<Shape, ShapeError> {
    const EXPECTED: &str = "the shape is `LQ[xLK] HEADSq/KVHEADSkv dD causal|full [seq-first] \
                            [window W]`, for example `2048 32q/8kv d64 causal`; whole numbers from 1 to 2^20";
    let error = || ShapeError::new(text, EXPECTED);
    let number = |word: &str| {
        let value = word.parse::<u64>().ok();
        value
            .filter(|v| (1..=1 << 20).contains(v))
            .ok_or_else(error)
    };
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let window = match words[..] {
        [.., "window", window] => {
            words.truncate(words.len() - 2);
            Some(number(window)?)
        }
        _ => None,
    };
    let (required, seq_first) = match words[..] {
        [a, b, c, d] => ([a, b, c, d], 0),
        [a, b, c, d, "seq-first"] => ([a, b, c, d], 1),
        _ => return Err(error()),
    };
    let [lengths, heads, dim, mask] = required;
    let (queries, keys) = lengths.split_once('x').unwrap_or((lengths, lengths));
    let (heads, kv_heads) = heads.split_once('/').ok_or_else(error)?;
    let heads = heads.strip_suffix('q').ok_or_else(error)?;
    let kv_heads = kv_heads.strip_suffix("kv").ok_or_else(error)?;
    let causal = match mask {
        "causal" => 1,
        "full" => 0,
        _ => return Err(error()),
    };
    let mut pairs = vec![
        ("n_queries", number(queries)?),
        ("n_keys", number(keys)?),
        ("n_heads", number(heads)?),
        ("n_kv_heads", number(kv_heads)?),
        (
            "head_dim",
            number(dim.strip_prefix('d').ok_or_else(error)?)?,
        ),
        ("causal", causal),
        ("seq_first", seq_first),
    ];
    pairs.extend(window.map(|window| ("window", window)));
    Ok(NamedNumbers::new(&pairs))
}

pub(super) fn down(n: u64, limit: u64) -> impl Iterator<Item = u64> {
    divisors(n).into_iter().rev().filter(move |&x| x <= limit)
}

fn busiest(plans: &[AttentionDims]) -> Option<&AttentionDims> {
    let most = plans.iter().map(AttentionDims::n_cores).max();
    plans.iter().find(|p| Some(p.n_cores()) == most)
}

/// The tiling on the most cores, with the numerics of every length. A length that is not a multiple of those tiles gets
/// smaller ones.
pub(super) fn default(shape: &Shape, machine: &Machine) -> Tiling {
    let best = |n: TileNumerics| busiest(&n.plans(shape, machine)).copied();
    let others = || numerics(shape["head_dim"], shape["n_keys"], machine);
    let tiled = canonical(shape, machine)
        .and_then(best)
        .or_else(|| others().into_iter().find_map(best));
    let least = TileNumerics {
        tile_kv: 8,
        tile_dk: 8,
        tile_dv: 8,
        stages: 1,
    };
    let tiled = tiled.unwrap_or_else(|| least.tiled(shape, 8, (1, 1)));
    tiled.tiling()
}

/// All on at least half as many cores as the default, without and with causal skipping.
pub(super) fn all(shape: &Shape, machine: &Machine) -> Vec<Tiling> {
    let all = numerics(shape["head_dim"], shape["n_keys"], machine);
    let plans = all.into_iter().flat_map(|n| n.plans(shape, machine));
    let plans: Vec<AttentionDims> = plans.collect();
    let most = busiest(&plans).map_or(0, AttentionDims::n_cores);
    let mut tilings = Vec::new();
    for tiled in plans {
        if 2 * tiled.n_cores() < most || tiled.tile_dk < 16 || tiled.tile_dv < 16 {
            continue;
        }
        tilings.push(tiled.tiling());
        if tiled.causal {
            tilings.push(tiled.tiling().with("causal_skip", 1));
            for even in super::balanced(shape, &tiled.tiling(), machine, None) {
                if !tilings.contains(&even) {
                    tilings.push(even);
                }
            }
        }
    }
    if tilings.is_empty() && most > 0 {
        tilings.push(default(shape, machine));
    }
    tilings
}
