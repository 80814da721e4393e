//! Attention of new tokens over a cache of keys and values, for one decode step or a later chunk of a prompt.
//!
//! K and V are the cache, head-major `[n_kv_heads, max_tokens, head_dim]`; its first `n_keys` rows are read. Where the
//! new tokens begin is known when the program runs. The slot `at` holds the position of the first in base 256, lowest
//! digit first (bf16 holds no larger whole numbers exactly). A query sees the keys up to its own position, those of its
//! chunk among them, which the host puts into the cache before the call; with a window, so many of the latest. Later
//! rows of the cache have no weight, but must be numbers.
//!
//! # On the array
//! A column belongs to one key-value head, or `spread` columns do. Its shim reads keys on one
//! channel and values on the other, in runs of `rows · tile_kv` rows; its memory tile deals one tile
//! of each to every core. The heads of a group are the rows of one tile of queries, of
//! `tile_tokens` tokens: every byte of the cache is read once for all of them. States are joined down
//! the cascade, then east by shared L1 where a head has several columns, slice by slice of eight
//! queries.
//!
//! All 16 reading shim channels carry the cache. So queries and position come first on the same
//! channels, one block or a few, repeated so that every core of the column finds them in the place of
//! its keys and values: `2 · rows · tile_kv · head_dim` elements a column, which tiles of 16 keys
//! keep small in decode.
//!
//! # Bits
//! Tile `t` of keys goes to part `t mod (rows · spread)` for every `n_keys`, and a tile beyond a query adds zeros. The
//! result does not depend on `n_keys` or on `n_queries`, only on `tile_kv`, `rows` and `spread`.

mod cores;
mod reference;
mod shape;

use super::data::Random;
use super::parts::{
    Checks, at, constant, core, deep, end, i, int, launch, pattern, slot, small, stage, stream,
};
use super::{BuildError, LeastWork, Mapping, NamedNumbers, Shape, ShapeError, Tiling, Tolerance};
use millrace_npu::{Element, Role, Slot};
use millrace_xdna2_machine::program::{
    Affine, Channel, ChannelLink, GridOrder, Herd, Launch, Place, Stage, Transfer, Var,
};
use millrace_xdna2_machine::{Machine, Numerics, Program};
use shape::CachedAttentionDims;
pub(crate) use shape::n_keys_unit;
pub(super) use shape::{lowest_common_rows, parse};
use std::ops::Range;

/// The mapping.
pub(super) struct CachedAttention;

/// Its name.
const NAME: &str = "cached-attention";

// Bundles, in this order; the last two only where there is something to join.
const K_IN: usize = 0;
const V_IN: usize = 1;
const KV: usize = 2;
const Y: usize = 3;
const CASCADE: usize = 4;

/// Digits of a position at the start of the slot `at`.
pub(crate) const POSITION_DIGITS: usize = 4;

/// Digits that cores keep of that slot: the position's, then those of the first key that counts, of an image's first
/// position and of the one after it.
pub(crate) const AT_DIGITS: usize = 4 * POSITION_DIGITS;

/// A position as the slot `at` holds it, in base 256.
pub(crate) fn position_digits(position: u32) -> [u8; POSITION_DIGITS] {
    position.to_le_bytes()
}

/// The output slot if one core takes tiles of so many keys one after the other, for any number of queries. The cache may be a ring.
pub(super) fn reference_in_one_part(
    shape: &Shape,
    tile_kv: u64,
    ring: Option<u64>,
    slots: &[Vec<u8>],
) -> Vec<u8> {
    let one = [
        "tile_tokens",
        "tile_kv",
        "heads",
        "spread",
        "rows",
        "l1_depth",
    ];
    let tiling = NamedNumbers::new(&one.map(|name| (name, 1))).with("tile_kv", tile_kv);
    reference::run(&CachedAttentionDims::new(shape, &tiling), ring, slots)
}

/// Contents of the slot `at`: a position, the first key that counts, an image's positions.
pub(super) fn at_bytes(n_elements: u64, position: u32, oldest: u32, image: Range<u32>) -> Vec<u8> {
    let mut bytes = vec![0; 2 * n_elements as usize];
    let numbers = [position, oldest, image.start, image.end];
    let digits = numbers.into_iter().flat_map(position_digits);
    for (to, digit) in bytes.chunks_exact_mut(2).zip(digits) {
        to.copy_from_slice(&half::bf16::from_f32(digit.into()).to_le_bytes());
    }
    bytes
}

/// The slots of attention over a cache: queries and result `[tokens, heads, head_dim]`, keys and values, the position.
pub(super) fn slots(q: [u64; 3], keys: [u64; 3], at_elements: u64) -> Vec<Slot> {
    let bf16 = Element::Bf16;
    vec![
        slot("q", bf16, &q, Role::Input),
        slot("k", bf16, &keys, Role::Input),
        slot("v", bf16, &keys, Role::Input),
        slot("at", bf16, &[at_elements], Role::Input),
        slot("y", bf16, &q, Role::Output),
    ]
}

/// Their contents before a run, the position's from the same seed.
pub(super) fn random_inputs(
    shape: &Shape,
    seed: u64,
    at: impl FnOnce(&mut Random) -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let d = shape["head_dim"];
    let n_q = shape["n_queries"] * shape["n_heads"] * d;
    let n_keys = shape["n_kv_heads"] * shape["max_tokens"] * d;
    let [q, k, v] = [n_q, n_keys, n_keys].map(|n| random.bf16_bytes(n, 2.0));
    let at = at(&mut random);
    vec![q, k, v, at, vec![0; 2 * n_q as usize]]
}

impl CachedAttentionDims {
    /// Bundle of the channels between columns.
    fn east(&self) -> usize {
        CASCADE + usize::from(self.rows > 1)
    }

    /// Column of a part of a head, in the indices of a bundle `[heads, spread]`.
    fn col(&self) -> Affine {
        i(0, self.spread) + i(1, 1)
    }

    fn channels(&self) -> Vec<Channel> {
        let (bf16, f32) = (Element::Bf16, Element::F32);
        let (tk, d) = (self.tile_kv, self.head_dim);
        let run = [self.rows * tk, d];
        let cols = [self.cols()];
        let (shim, memory) = (|| Place::Shim(i(0, 1)), || Place::Memory(i(0, 1)));
        let here = || core(at(i(0, 1)), at(i(1, 1)));
        let blocks = [2, d / 8, tk / 8, 8, 8];
        let kv = stream(
            "kv",
            &[self.cols(), self.rows],
            bf16,
            &blocks,
            memory(),
            here(),
        );
        // The last column of a head sends its result.
        let last = || i(0, self.spread) + int(self.spread - 1);
        let from = core(at(last()), at(constant(0)));
        let y_block = [self.tile_rows(), d];
        let y = stream(
            "y",
            &[self.heads],
            bf16,
            &y_block,
            from,
            Place::Shim(last()),
        );
        let mut channels = vec![
            stream("k_in", &cols, bf16, &run, shim(), memory()),
            stream("v_in", &cols, bf16, &run, shim(), memory()),
            deep(kv, self.l1_depth),
            deep(y, 1),
        ];
        let slice = [self.slice_elements()];
        let link = |link: ChannelLink, channel: Channel| Channel {
            link,
            ..deep(channel, 1)
        };
        if self.rows > 1 {
            let above = core(at(i(0, 1)), at(i(1, 1) + 1));
            let dims = [self.cols(), self.rows - 1];
            let down = stream("cascade", &dims, f32, &slice, above, here());
            channels.push(link(ChannelLink::Cascade, down));
        }
        if self.spread > 1 {
            let bottom = |col: Affine| core(at(col), at(constant(0)));
            let dims = [self.heads, self.spread - 1];
            let (from, to) = (bottom(self.col()), bottom(self.col() + 1));
            let east = stream("east", &dims, f32, &slice, from, to);
            channels.push(link(ChannelLink::Neighbour, east));
        }
        channels
    }

    /// A run of keys and one of values of a column, dealt to its cores in 8 × 8 blocks.
    fn stage(&self) -> Stage {
        let (tk, d) = (self.tile_kv, self.head_dim);
        let run = self.rows * tk * d;
        let half = |first: u64| pattern(constant(first), &[(run, 1)]);
        let tile = Affine::of(Var::Each, int(tk * d));
        let blocked = [(2, run), (d / 8, 8), (tk, d), (8, 1)];
        let ends = [
            end(K_IN, vec![i(0, 1)], half(0)),
            end(
                KV,
                vec![i(0, 1), Affine::of(Var::Each, 1)],
                pattern(tile, &blocked),
            ),
        ];
        let block = [2, self.rows * tk, d];
        let mut stage = stage("kv_l2", self.cols(), i(0, 1), Element::Bf16, &block, ends);
        stage.fills.push(end(V_IN, vec![i(0, 1)], half(run)));
        stage.drains[0].each = small(self.rows);
        stage.copies = 2;
        stage
    }

    fn transfers(&self) -> Vec<Transfer> {
        let (tk, d, group) = (self.tile_kv, self.head_dim, self.group());
        let run = self.rows * tk * d;
        let token = self.n_heads * d;
        let head = |rows: u64| {
            let of_iteration = Affine::of(Var::Grid(1), int(self.heads * rows * d));
            of_iteration.plus(Var::Index(0), int(rows * d))
        };
        let transfer = |arg: usize, channel: usize, pattern| Transfer {
            dims: vec![small(self.heads), small(self.spread)],
            loops: Vec::new(),
            arg,
            channel,
            index: vec![self.col()],
            pattern,
        };
        let prelude = |t: Transfer| Transfer {
            loops: vec![constant(self.prelude())],
            ..t
        };
        // Tokens of a block of the prelude, repeated for every core and until the run is full.
        let tokens = self.tile_tokens.min(tk / group);
        let first_query = head(group)
            .plus(Var::Grid(0), int(self.tile_tokens * token))
            .plus(Var::Loop(0), int(tokens * token));
        let repeats = self.rows * tk / (tokens * group);
        let queries = [(repeats, 0), (tokens, token), (group * d, 1)];
        let at = [(run / self.at_elements(), 0), (self.at_elements(), 1)];
        let first_row = head(self.max_tokens).plus(Var::Index(1), int(run));
        let rows = [(self.rounds(), self.spread * run), (run, 1)];
        let result = head(group).plus(Var::Grid(0), int(self.tile_tokens * token));
        let result_rows = [(self.tile_tokens, token), (group * d, 1)];
        vec![
            prelude(transfer(0, K_IN, pattern(first_query, &queries))),
            prelude(transfer(3, V_IN, pattern(constant(0), &at))),
            transfer(1, K_IN, pattern(first_row.clone(), &rows)),
            transfer(2, V_IN, pattern(first_row, &rows)),
            Transfer {
                dims: vec![small(self.heads)],
                index: vec![i(0, 1)],
                ..transfer(4, Y, pattern(result, &result_rows))
            },
        ]
    }

    fn launch(&self) -> Launch {
        let herd = Herd {
            name: "cores".to_owned(),
            col: 0,
            row: 0,
            cols: small(self.cols()),
            rows: small(self.rows),
            locals: self.locals(),
            body: self.body(),
        };
        Launch {
            channels: self.channels(),
            stages: vec![self.stage()],
            transfers: self.transfers(),
            herds: vec![herd],
            ..launch(
                "attention",
                &[0, 1, 2, 3, 4],
                &self.grid(),
                GridOrder::Streamed,
            )
        }
    }
}

impl Mapping for CachedAttention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "O = softmax(Q K^T / sqrt(d)) V over a cache, bf16; `NEWxKEYS HEADSq/KVHEADSkv dD [of MAX] [window W]`"
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        shape::parse(text)
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        shape::default(shape, machine)
    }

    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        shape::all(shape, machine)
    }

    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        let p = CachedAttentionDims::new(shape, tiling);
        let checks = Checks { mapping: NAME };
        checks.bounded(shape, tiling)?;
        p.check(machine)?;
        let q = [p.n_queries, p.n_heads, p.head_dim];
        let cache = [p.n_kv_heads, p.max_tokens, p.head_dim];
        Ok(Program {
            name: "cached_attention".to_owned(),
            slots: slots(q, cache, p.at_elements()),
            launches: vec![p.launch()],
        })
    }

    /// Inputs with a position from the seed.
    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let p = CachedAttentionDims::new(shape, &shape::default(shape, &Machine::npu2()));
        random_inputs(shape, seed, |random| {
            let free = p.n_keys.saturating_sub(p.n_queries) as f32;
            let position = (free * (1.0 + random.uniform()) / 2.0) as u32;
            at_bytes(p.at_elements(), position, 0, 0..0)
        })
    }

    fn reference_in(
        &self,
        _numerics: Numerics,
        shape: &Shape,
        tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        vec![(
            4,
            reference::run(&CachedAttentionDims::new(shape, tiling), None, slots),
        )]
    }

    fn keys_and_values(&self) -> &'static [usize] {
        &[1, 2]
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    /// Every key counts for every query, as the array reads and computes it.
    fn work(&self, shape: &Shape) -> LeastWork {
        let d = shape["head_dim"];
        let (heads, kv_heads) = (shape["n_heads"], shape["n_kv_heads"]);
        let (queries, keys) = (shape["n_queries"], shape["n_keys"]);
        LeastWork {
            flops: 4 * heads * queries * keys * d,
            ddr_bytes: 4 * d * (heads * queries + kv_heads * keys),
        }
    }
}
