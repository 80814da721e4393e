//! A token's attention over a cache as in the Gemma 3 paper, FlowKV (§3.2.2 and §3.2.3 of *Mapping Gemma3 onto an Edge
//! Dataflow Architecture*): pairs of cores, of which one has the keys and its neighbour the values.
//!
//! Slots are those of [`cached_attention`](super::cached_attention) for one token. K and V are head-major
//! `[n_kv_heads, max_tokens, head_dim]`, of which the first `n_keys` rows are read. The slot `at` holds the token's
//! position, known when the program runs. A query sees the keys up to its own position, which the host puts into the
//! cache before the call; with a window, so many of the latest. The cache may be a *ring*: row s holds the latest key
//! whose position is s modulo `max_tokens`. A ring as long as the context never wraps.
//!
//! # On the array
//! A pair has a key-value head, a column two pairs: two columns have the four heads of Gemma3-4B.
//!
//! ```text
//! row 3   values of head 1   ▲ F, C, l
//! row 2   keys of head 1     ┘
//! row 1   values of head 0   ▲ F, C, l
//! row 0   keys of head 0     ┘
//! ```
//!
//! A column's shim brings keys on one channel, values on the other, a chunk of `tile_kv` rows of one of its heads after one of the other; its memory tile
//! sends each to its core in 8 × 8 blocks. Both ends have two chunks, so that one comes while one is computed on. The core of keys computes scores, maxima, exponentials F, correction C and
//! denominators l (equations 6 to 10) and hands F, C and l to its neighbour in shared L1; that one keeps the numerators (equation 11), divides at the end (12), and
//! sends the result. Queries and position come first, on the channel of keys.
//!
//! # FlowKV-SWA
//! A layer with a window has a ring of few more rows than the window, so the sweep is as short. The program differs in constants alone.
//!
//! # Bits
//! The bits are those of one core that takes tiles of `tile_kv` keys in the order of rows.

mod cores;
mod shape;

use super::cached_attention::{self, at_bytes, parse, reference_in_one_part};
use super::parts::{
    Checks, at, constant, core, deep, end, i, int, launch, pattern, small, stage, stream,
};
use super::{BuildError, LeastWork, Mapping, Shape, ShapeError, Tiling, Tolerance};
use millrace_npu::Element;
use millrace_xdna2_machine::program::{
    Affine, Channel, ChannelLink, GridOrder, Launch, Place, Stage, Transfer, Var,
};
use millrace_xdna2_machine::{Machine, Numerics, Program};
use shape::FlowKvDims;
pub(crate) use shape::{fits, tile_kv};

/// The mapping.
pub(super) struct FlowKv;

/// Its name.
pub(crate) const NAME: &str = "flow-kv";

/// Queries and values that a slice has.
const SLICE: u64 = 8;

// Bundles of channels, in this order; then those of each head of a column.
const K_IN: usize = 0;
const V_IN: usize = 1;
const OF_HEADS: usize = 2;

/// Channels of a head of a column.
#[derive(Clone, Copy)]
enum Of {
    Keys,
    Values,
    /// Exponentials, from the core of keys to that of values.
    F,
    /// Correction and denominators, likewise.
    C,
    Y,
}

/// The bundle of a column's head with that number.
const fn bundle(head: u64, of: Of) -> usize {
    OF_HEADS + 5 * head as usize + of as usize
}

impl FlowKvDims {
    fn channels(&self) -> Vec<Channel> {
        let (bf16, f32) = (Element::Bf16, Element::F32);
        let (lc, d, tq) = (self.tile_kv, self.of.head_dim, self.tile_q());
        let cols = [self.cols()];
        let (shim, memory) = (|| Place::Shim(i(0, 1)), || Place::Memory(i(0, 1)));
        let chunk = [lc, d];
        let mut channels = vec![
            stream("k_in", &cols, bf16, &chunk, shim(), memory()),
            stream("v_in", &cols, bf16, &chunk, shim(), memory()),
        ];
        let blocks = [d / 8, lc / 8, 8, 8];
        let neighbour = |channel: Channel| Channel {
            link: ChannelLink::Neighbour,
            ..channel
        };
        for head in 0..self.col_heads {
            let name = |part: &str| format!("{part}{head}");
            let row = |row: u64| core(at(i(0, 1)), at(constant(2 * head + row)));
            let (keys, values) = (|| row(0), || row(1));
            let f = [tq / SLICE, lc / 8, 8, 8];
            let c = [tq / SLICE, 2, SLICE];
            channels.extend([
                stream(&name("k"), &cols, bf16, &blocks, memory(), keys()),
                stream(&name("v"), &cols, bf16, &blocks, memory(), values()),
                neighbour(stream(&name("f"), &cols, bf16, &f, keys(), values())),
                neighbour(stream(&name("c"), &cols, f32, &c, keys(), values())),
                deep(
                    stream(
                        &name("y"),
                        &cols,
                        bf16,
                        &[self.of.group(), d],
                        values(),
                        shim(),
                    ),
                    1,
                ),
            ]);
        }
        channels
    }

    /// A chunk of each of a column's heads.
    fn stage(&self, name: &str, from: usize, of: Of) -> Stage {
        let (lc, d) = (self.tile_kv, self.of.head_dim);
        let chunk = lc * d;
        let own = || vec![i(0, 1)];
        let whole = pattern(constant(0), &[(self.col_heads * chunk, 1)]);
        let blocked = [(d / 8, 8), (lc, d), (8, 1)];
        let of_head = |head: u64| {
            let walk = pattern(constant(head * chunk), &blocked);
            end(bundle(head, of), own(), walk)
        };
        let block = [self.col_heads, lc, d];
        let ends = [end(from, own(), whole), of_head(0)];
        let mut stage = stage(name, self.cols(), i(0, 1), Element::Bf16, &block, ends);
        stage.drains.extend((1..self.col_heads).map(of_head));
        stage.copies = 2;
        stage
    }

    fn transfers(&self) -> Vec<Transfer> {
        let (lc, d, group) = (self.tile_kv, self.of.head_dim, self.of.group());
        let col_heads = constant(self.col_heads);
        // A column's head with the number of loop `number`, `rows` rows a head.
        let of_head = |rows: u64, number: u8| {
            let of_round = Affine::of(Var::Grid(0), int(self.heads * rows * d));
            let of_column = of_round.plus(Var::Index(0), int(self.col_heads * rows * d));
            of_column.plus(Var::Loop(number), int(rows * d))
        };
        let transfer = |arg: usize, channel: usize, loops: Vec<Affine>, pattern| Transfer {
            dims: vec![small(self.cols())],
            loops,
            arg,
            channel,
            index: vec![i(0, 1)],
            pattern,
        };
        // As many copies of a head's queries as fill a chunk.
        let queries = pattern(of_head(group, 0), &[(lc / group, 0), (group * d, 1)]);
        let position = [(self.position_repeats(), 0), (self.at_elements(), 1)];
        let chunks = || vec![constant(self.of.n_keys / lc), col_heads.clone()];
        let rows = of_head(self.of.max_tokens, 1).plus(Var::Loop(0), int(lc * d));
        let chunk = || pattern(rows.clone(), &[(lc * d, 1)]);
        let mut transfers = vec![
            transfer(0, K_IN, vec![col_heads.clone()], queries),
            transfer(3, K_IN, Vec::new(), pattern(constant(0), &position)),
            transfer(1, K_IN, chunks(), chunk()),
            transfer(2, V_IN, chunks(), chunk()),
        ];
        for head in 0..self.col_heads {
            let first = Affine::of(Var::Grid(0), int(self.heads * group * d));
            let first = first.plus(Var::Index(0), int(self.col_heads * group * d));
            let result = pattern(first + int(head * group * d), &[(group * d, 1)]);
            transfers.push(transfer(4, bundle(head, Of::Y), Vec::new(), result));
        }
        transfers
    }

    fn launch(&self) -> Launch {
        let grid = [self.of.n_kv_heads / self.heads];
        Launch {
            channels: self.channels(),
            stages: vec![
                self.stage("k_l2", K_IN, Of::Keys),
                self.stage("v_l2", V_IN, Of::Values),
            ],
            transfers: self.transfers(),
            herds: vec![self.herd()],
            ..launch("attention", &[0, 1, 2, 3, 4], &grid, GridOrder::Streamed)
        }
    }
}

impl Mapping for FlowKv {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "O = softmax(q K^T / sqrt(d)) V of a token as the Gemma 3 paper lays it out, bf16; `1xKEYS HEADSq/KVHEADSkv dD [of MAX] [window W]`"
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        parse(text)
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
        let p = FlowKvDims::new(shape, tiling);
        let checks = Checks { mapping: NAME };
        checks.bounded(shape, tiling)?;
        p.check(machine)?;
        let q = [1, p.of.n_heads, p.of.head_dim];
        let cache = [p.of.n_kv_heads, p.of.max_tokens, p.of.head_dim];
        Ok(Program {
            name: NAME.replace('-', "_"),
            slots: cached_attention::slots(q, cache, p.at_elements()),
            launches: vec![p.launch()],
        })
    }

    /// Inputs with a position from the seed that sees more than half of the rows. In a ring, the position is beyond the first lap.
    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let p = FlowKvDims::new(shape, &shape::default(shape, &Machine::npu2()));
        let is_ring = p.of.window > 0 && p.of.n_keys == p.of.max_tokens;
        let reach = if is_ring {
            3 * p.of.n_keys
        } else {
            p.of.n_keys
        };
        cached_attention::random_inputs(shape, seed, |random| {
            let short = (reach as f32 / 2.0 * (1.0 + random.uniform()) / 2.0) as u64;
            let position = reach.saturating_sub(1 + short) as u32;
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
        let ring = Some(shape["max_tokens"]);
        let y = reference_in_one_part(shape, tiling["tile_kv"], ring, slots);
        vec![(4, y)]
    }

    fn keys_and_values(&self) -> &'static [usize] {
        &[1, 2]
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    /// Every row that is read counts.
    fn work(&self, shape: &Shape) -> LeastWork {
        let d = shape["head_dim"];
        let (heads, kv_heads, keys) = (shape["n_heads"], shape["n_kv_heads"], shape["n_keys"]);
        LeastWork {
            flops: 4 * heads * keys * d,
            ddr_bytes: 4 * d * (heads + kv_heads * keys),
        }
    }
}
