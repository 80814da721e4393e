//! Attention of many new tokens over a cache of keys and values: a later pass of a prompt.
//!
//! Slots are those of [`cached_attention`](super::cached_attention): K and V head-major
//! `[n_kv_heads, max_tokens, head_dim]`, of which the first `n_keys` rows are read. The slot `at` holds the position of
//! the first token, known when the program runs, and after it the first row that counts.
//!
//! # On the array
//! A decode step spreads the keys; this spreads the tokens. `heads` key-value heads are treated at once, each on a
//! rectangle of `spread · rows` cores. Every core has a separate tile of `tile_tokens` tokens, with the heads of the
//! group as rows of it. All of them take the same keys and values, broadcast from one memory tile, to the end: nothing
//! is joined. A key is read from DDR once for `spread · rows · tile_tokens` tokens. With queries on columns alone, as
//! in flash attention, a core would need a second state and half the tile.
//!
//! Queries and position come first, on the channels of keys and values: each core finds its own among all. Results
//! leave by the memory tile of the core's column, `y_rows` rows at a time where L1 has no room for a whole tile's.
//!
//! # Windows
//! With a window the rows read are not the cache from its beginning, but those that the pass reaches ([`before`]). Its
//! first token is `window − 1` to `window + tile_kv − 2` rows after the first, where the host put them. An iteration
//! then reads the rows that its own tokens reach and no others, so that work grows with the window and not with the
//! context.
//!
//! # A prompt's first pass
//! With `own` the keys are those of the pass, `[n_tokens, n_kv_heads, head_dim]` as projections leave them. As the pass
//! begins at position 0, an iteration reads the keys only up to its own last token, and a core skips tiles that none of
//! its tokens sees. With a window, iterations that have left the pass's first keys behind are a separate launch on the
//! same configuration, and read only the window's reach.
//!
//! # Without a mask
//! With `full` every token sees all keys of the pass, as those of an image do in a vision encoder (the Gemma 3 paper's FlowQKV-NCA).
//! That is a first pass in which every iteration reads all keys, and whose tokens come after them: the slot `at` holds
//! the number of keys. Cores are those of a first pass except for constants.
//!
//! # With an image
//! With `image` the pass's rows of one image see each other in any order: the slot `at` holds where it begins and ends. An
//! iteration reads all keys of the pass; cores are those of a later pass.
//!
//! # Bits
//! A query takes the tiles of keys in their order, and one that it does not see leaves its state as it is. As rows that
//! a pass reaches begin at a whole tile of the sequence, a result depends only on `tile_kv`. It does not depend on
//! `n_keys`, `n_queries`, the pass's beginning, or the core that computes it.

mod core_tile;
mod cores;
mod problem;
mod shape;

use super::cached_attention;
use super::parts::{
    Checks, at, constant, core, deep, end, i, int, launch, pattern, small, stage, stream,
};
use super::{BuildError, LeastWork, Mapping, Shape, ShapeError, Tiling, Tolerance};
pub(crate) use core_tile::tile_kv;
pub(in crate::mapping) use core_tile::{AT, CoreTile, P, Q, STATE};
use millrace_npu::Element;
use millrace_xdna2_machine::program::{
    Affine, Channel, GridOrder, IndexRange, Launch, Pattern, Place, Stage, Transfer, Var,
};
use millrace_xdna2_machine::{Machine, Numerics, Program};
pub(in crate::mapping) use problem::{Problem, parse, reference, work};
pub(crate) use problem::{before, over_own_keys, with_image, without_mask};
use shape::PromptAttentionDims;
pub(crate) use shape::fits;

/// The mapping.
pub(super) struct PromptAttention;

/// Its name.
pub(crate) const NAME: &str = "prompt-attention";

// Bundles of a head that is treated at once, in this order.
const K_IN: usize = 0;
const V_IN: usize = 1;
const KV: usize = 2;
const Y: usize = 3;
const Y_OUT: usize = 4;
const BUNDLES: usize = 5;

impl PromptAttentionDims {
    /// First column of a head's cores; its memory tile and shim bring keys and values.
    fn col0(&self, head: u64) -> u64 {
        head * self.spread
    }

    fn channels(&self, head: u64) -> [Channel; BUNDLES] {
        let bf16 = Element::Bf16;
        let (tk, d) = (self.core.tile_kv, self.of.head_dim);
        let name = |part: &str| format!("{part}{head}");
        let first = self.col0(head);
        let (shim, memory) = (
            || Place::Shim(constant(first)),
            || Place::Memory(constant(first)),
        );
        let range = |start: u64, len: u64| IndexRange::Range {
            start: small(start),
            len: small(len),
        };
        let all = core(range(first, self.spread), range(0, self.rows));
        let own = || i(0, 1) + int(first);
        let blocks = [2, d / 8, tk / 8, 8, 8];
        let kv = stream(&name("kv"), &[], bf16, &blocks, memory(), all);
        let y = stream(
            &name("y"),
            &[self.spread, self.rows],
            bf16,
            &[self.core.y_rows, d],
            core(at(own()), at(i(1, 1))),
            Place::Memory(own()),
        );
        let y_out = stream(
            &name("y_out"),
            &[self.spread],
            bf16,
            &[self.rows * self.core.y_rows, d],
            Place::Memory(own()),
            Place::Shim(own()),
        );
        [
            stream(&name("k_in"), &[], bf16, &[tk, d], shim(), memory()),
            stream(&name("v_in"), &[], bf16, &[tk, d], shim(), memory()),
            deep(kv, self.core.l1_depth),
            deep(y, 1),
            y_out,
        ]
    }

    /// A tile of keys and one of values, sent in 8 × 8 blocks; results of a column's cores, one after the other.
    fn stages(&self, head: u64) -> [Stage; 2] {
        let base = head as usize * BUNDLES;
        let (bf16, tile) = (Element::Bf16, self.core.tile_kv * self.of.head_dim);
        let half = |first: u64| pattern(constant(first), &[(tile, 1)]);
        let d = self.of.head_dim;
        let blocked = [(2, tile), (d / 8, 8), (self.core.tile_kv, d), (8, 1)];
        let ends = [
            end(base + K_IN, Vec::new(), half(0)),
            end(base + KV, Vec::new(), pattern(constant(0), &blocked)),
        ];
        let col0 = constant(self.col0(head));
        let name = |part: &str| format!("{part}{head}_l2");
        let mut kv = stage(&name("kv"), 1, col0, bf16, &[2, self.core.tile_kv, d], ends);
        kv.dims = Vec::new();
        kv.fills.push(end(base + V_IN, Vec::new(), half(tile)));
        let part = self.core.y_rows * d;
        let of_row = pattern(Affine::of(Var::Each, int(part)), &[(part, 1)]);
        let index = vec![i(0, 1), Affine::of(Var::Each, 1)];
        let whole = pattern(constant(0), &[(self.rows * part, 1)]);
        let ends = [
            end(base + Y, index, of_row),
            end(base + Y_OUT, vec![i(0, 1)], whole),
        ];
        let col = i(0, 1) + int(self.col0(head));
        let block = [self.rows * self.core.y_rows, d];
        let mut y = stage(&name("y"), self.spread, col, bf16, &block, ends);
        y.fills[0].each = small(self.rows);
        kv.copies = 2;
        y.copies = 2;
        [kv, y]
    }

    fn transfers(&self, head: u64) -> [Transfer; 5] {
        let base = head as usize * BUNDLES;
        let (d, group) = (self.of.head_dim, self.of.group());
        let token = self.of.token();
        // Offset of the iteration's head with that number, with `rows` rows a head.
        let of_head = |rows: u64| {
            let own = Affine::new(int(head * rows * d));
            own.plus(Var::Grid(1), int(self.heads * rows * d))
        };
        let transfer = |arg: usize, channel: usize, pattern| Transfer {
            dims: Vec::new(),
            loops: Vec::new(),
            arg,
            channel: base + channel,
            index: Vec::new(),
            pattern,
        };
        let tokens = self.iteration_tokens();
        let first = of_head(group).plus(self.of.token_tile(), int(tokens * token));
        let first = first + self.of.skipped();
        let queries = [(tokens, token), (group * d, 1)];
        let positions = [(self.query_blocks(), 0), (self.core.at_elements(), 1)];
        let row = self.of.first_row(tokens) * int(self.of.key_stride());
        let row = of_head(self.of.head_rows()) + row;
        let keys = || self.keys(row.clone());
        // Parts of a core's result, a whole number of tokens each.
        let part = self.core.y_rows / group;
        let result = (first.clone())
            .plus(
                Var::Index(0),
                int(self.rows * self.core.tile_tokens * token),
            )
            .plus(Var::Loop(0), int(part * token));
        let results = [
            (self.rows, self.core.tile_tokens * token),
            (part, token),
            (group * d, 1),
        ];
        [
            transfer(0, K_IN, pattern(first, &queries)),
            transfer(3, V_IN, pattern(constant(0), &positions)),
            transfer(1, K_IN, keys()),
            transfer(2, V_IN, keys()),
            Transfer {
                dims: vec![small(self.spread)],
                loops: vec![constant(self.core.y_parts())],
                index: vec![i(0, 1)],
                ..transfer(4, Y_OUT, pattern(result, &results))
            },
        ]
    }

    /// The walk over a head's keys of an iteration.
    fn keys(&self, first: Affine) -> Pattern {
        let (tk, d, row) = (
            int(self.core.tile_kv),
            int(self.of.head_dim),
            int(self.of.key_stride()),
        );
        let dims = match row == d {
            true => vec![(self.band(1) * d, 1)],
            false => vec![
                (self.band(self.core.tile_kv), tk * row),
                (tk.into(), row),
                (d.into(), 1),
            ],
        };
        Pattern {
            offset: first,
            dims,
        }
    }

    /// A launch for each part of the pass, on one configuration.
    fn launches(&self) -> Vec<Launch> {
        let parts = self.of.parts(self.iteration_tokens(), self.core.tile_kv);
        let parts = parts
            .into_iter()
            .map(|of| PromptAttentionDims { of, ..*self });
        let launches = parts.map(|part| part.launch());
        resident(launches.collect())
    }

    fn launch(&self) -> Launch {
        let heads = || 0..self.heads;
        let grid = self.of.grid(self.iteration_tokens(), self.heads);
        Launch {
            channels: heads().flat_map(|head| self.channels(head)).collect(),
            stages: heads().flat_map(|head| self.stages(head)).collect(),
            transfers: heads().flat_map(|head| self.transfers(head)).collect(),
            herds: vec![self.herd()],
            ..launch("attention", &[0, 1, 2, 3, 4], &grid, GridOrder::Streamed)
        }
    }
}

/// Launches of one configuration, one after the other.
pub(in crate::mapping) fn resident(mut launches: Vec<Launch>) -> Vec<Launch> {
    for (at, launch) in launches.iter_mut().enumerate().skip(1) {
        launch.name = format!("{}{at}", launch.name);
        launch.resident = true;
    }
    launches
}

impl Mapping for PromptAttention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "O = softmax(Q K^T / sqrt(d)) V of many tokens over a cache, bf16; `NEWxKEYS HEADSq/KVHEADSkv dD [of MAX] [window W] [own|full|image]`"
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        problem::parse(text)
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
        let p = PromptAttentionDims::new(shape, tiling);
        let checks = Checks { mapping: NAME };
        checks.bounded(shape, tiling)?;
        p.check(machine)?;
        let q = [p.of.n_queries, p.of.n_heads, p.of.head_dim];
        Ok(Program {
            name: "prompt_attention".to_owned(),
            slots: cached_attention::slots(q, p.of.kv_shape(), p.core.at_elements()),
            launches: p.launches(),
        })
    }

    /// Inputs with a position from the seed. For one seed in two, a window's rows begin before the sequence.
    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let p = PromptAttentionDims::new(shape, &shape::default(shape, &Machine::npu2()));
        let at = (p.core.tile_kv, p.core.at_elements());
        p.of.inputs(shape, at, seed)
    }

    fn reference_in(
        &self,
        _numerics: Numerics,
        shape: &Shape,
        tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        vec![(4, problem::reference(shape, tiling["tile_kv"], slots))]
    }

    fn keys_and_values(&self) -> &'static [usize] {
        &[1, 2]
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    fn work(&self, shape: &Shape) -> LeastWork {
        problem::work(shape)
    }
}
