//! Flash attention as a cascade: grouped-query, causal or full, as in MLIR-AIR's Llama-3.2-1B example.
//!
//! A launch iteration treats `unroll` heads, `q_tiles · tile_q` queries of each, and one chunk of
//! `tile_dv` value columns. A column of cores owns one head's tile of queries; its rows are the
//! cascade's stages. Stage `s` treats the tiles of keys `s, s + stages, …` with a separate running maximum, sum and
//! output. Then the states are joined down the cascade, from the top row to row 0, which divides and sends the result.
//! K and V stream anew for every iteration and scores are recomputed for every chunk of values, because L1 holds no
//! more.
//!
//! A core has two incoming DMA channels for Q, K and V. So Q comes first on K's stream in blocks of
//! the size of K's, broadcast along the row like K, and a core keeps the tile of its own column: a
//! whole block, or in short prompts a part of one. A stream of keys and one of values for each stage
//! of each head take all 16 shim channels.
//!
//! # Bits do not depend on length
//! A query's result depends on its own keys, on `tile_kv`, on how tiles are dealt, and on `tile_dk`, where scores are
//! rounded. The default tiling has the same ones at every length that is at most a tile or a whole number of tiles. The
//! extra work of a longer tiling changes no bit. A tile of masked keys has the weight 2^−∞ = 0 and leaves maximum, sum
//! and output as they are. Joining the state of a stage without keys, with a maximum below all others, adds zeros. Only
//! the sign of a zero could differ; the last division gives +0.
//!
//! # Windows
//! With a window (the local layers of Gemma 3) a query sees so many keys, its own the last. The kernel of scores masks
//! the others. With causal skipping, tiles before every query's window are not computed. It is the same configuration
//! except for these constants. Keys stream past all the same.
//!
//! # Even shares of a causal mask
//! The columns of a row take their keys from one broadcast, so they go in step: columns with later queries keep those
//! with earlier ones waiting. With `heads` above 1 the columns are heads of one group, which share keys, times
//! `q_tiles` neighbouring tiles of queries. Columns then differ by less than `q_tiles` tiles of keys instead of eight.
//! With `streamed`, an iteration does not wait for the one before: its queries and keys come while the states of that
//! one are joined. Both only say who computes a query and when, so they change no bit. With `top_first` the top row
//! gets the first tile of keys of every deal, row 0 the last. A mask leaves the early tiles to more queries, and the
//! rows further down have the states to join. That is another order of joining, so other bits, but again the same ones
//! at every length: a stage without keys is now below those that have some.

mod balance;
mod cores;
pub(super) mod reference;
mod shape;

use super::data::Random;
use super::parts::{
    Checks, at, constant, core, deep, end, i, int, pattern, slot, small, stage, stream,
};
use super::{BuildError, LeastWork, Mapping, Shape, ShapeError, Tiling, Tolerance};
pub(super) use balance::balanced;
use millrace_npu::{Element, Role};
use millrace_xdna2_machine::program::{
    Affine, Channel, ChannelLink, GridOrder, IndexRange, Launch, Pattern, Place, Transfer, Var,
};
use millrace_xdna2_machine::{Machine, Numerics, Program};
use shape::AttentionDims;

/// The attention.
pub(super) struct AttentionMapping;

// Bundles of one head, in this order; cores of every head have the same program but for them.
const KEYS_IN: usize = 0;
const KEYS: usize = 1;
const VALUES_IN: usize = 2;
const VALUES: usize = 3;
const CASCADE: usize = 4;
const Y: usize = 5;
const Y_OUT: usize = 6;
const BUNDLES: usize = 7;

impl AttentionDims {
    fn launch(&self) -> Launch {
        let mut launch = Launch {
            name: "attention".to_owned(),
            args: vec![0, 1, 2, 3],
            grid: self.grid().map(small).to_vec(),
            order: if self.streamed {
                GridOrder::Streamed
            } else {
                GridOrder::Sequential
            },
            ..Launch::default()
        };
        for head in 0..self.unroll {
            self.add_channels(&mut launch, head);
            self.add_stages(&mut launch, head);
            self.add_transfers(&mut launch, head);
            launch
                .herds
                .extend((0..self.heads).map(|of| self.herd(head, of)));
        }
        launch
    }

    /// First column of the cores that share an unrolled head's keys.
    fn col0(&self, head: u64) -> u64 {
        head * self.width()
    }

    /// Column of the memory tile and shim that serve a stage of a head.
    fn stage_col(&self, head: u64) -> Affine {
        i(0, 1) + int(head * self.stages)
    }

    fn state_elements(&self) -> u64 {
        self.tile_q * (self.tile_dv + 2)
    }

    fn add_channels(&self, launch: &mut Launch, head: u64) {
        let bf16 = Element::Bf16;
        let (tile, dv) = (self.tile_kv, self.tile_dv);
        let stages = [self.stages];
        let keys_tile = [self.tile_dk / 8, tile / 8, 8, 8];
        let values_tile = [dv / 8, tile / 8, 8, 8];
        let stage_col = || self.stage_col(head);
        let own_col = || i(0, 1) + int(self.col0(head));
        let name = |part: &str| format!("{part}{head}");
        let shim = || Place::Shim(stage_col());
        let memory = || Place::Memory(stage_col());
        let row = || Place::Core {
            col: IndexRange::Range {
                start: small(self.col0(head)),
                len: small(self.width()),
            },
            row: at(i(0, 1)),
        };
        let keys = stream(&name("keys"), &stages, bf16, &keys_tile, memory(), row());
        let values = stream(
            &name("values"),
            &stages,
            bf16,
            &values_tile,
            memory(),
            row(),
        );
        launch.channels.extend([
            stream(
                &name("keys_in"),
                &stages,
                bf16,
                &[tile, self.head_dim],
                shim(),
                memory(),
            ),
            deep(keys, self.l1_depth),
            stream(
                &name("values_in"),
                &stages,
                bf16,
                &[tile, dv],
                shim(),
                memory(),
            ),
            deep(values, self.l1_depth),
            self.cascade(&name("cascade"), own_col()),
        ]);
        launch.channels.extend(self.result_channels(head));
    }

    fn result_channels(&self, head: u64) -> [Channel; 2] {
        let bf16 = Element::Bf16;
        let (tile, dv) = (self.tile_q, self.tile_dv);
        let values_tile = [dv / 8, tile / 8, 8, 8];
        let own_col = || i(0, 1) + int(self.col0(head));
        let name = |part: &str| format!("{part}{head}");
        // The last row sends its result to the memory tile below it.
        let last = core(at(own_col()), at(constant(0)));
        let result = stream(
            &name("y"),
            &[self.width()],
            bf16,
            &values_tile,
            last,
            Place::Memory(own_col()),
        );
        let out = stream(
            &name("y_out"),
            &[self.width()],
            bf16,
            &[tile, dv],
            Place::Memory(own_col()),
            Place::Shim(own_col()),
        );
        [deep(result, 1), out]
    }

    /// The cascade from the row above to each row except the top one.
    fn cascade(&self, name: &str, col: Affine) -> Channel {
        let from = core(at(col.clone()), at(i(1, 1) + 1));
        let to = core(at(col), at(i(1, 1)));
        let bundle = [self.width(), (self.stages - 1).max(1)];
        let block = [self.state_elements()];
        Channel {
            depth: 1,
            link: ChannelLink::Cascade,
            ..stream(name, &bundle, Element::Bf16, &block, from, to)
        }
    }

    fn add_stages(&self, launch: &mut Launch, head: u64) {
        let bf16 = Element::Bf16;
        let base = head as usize * self.bundles();
        let (tile, d, dv) = (self.tile_kv, self.head_dim, self.tile_dv);
        let index = || vec![i(0, 1)];
        let whole = |n: u64| pattern(constant(0), &[(n, 1)]);
        // Row-major in the memory tile, 8 × 8 blocks by column on the stream.
        let blocked =
            |rows: u64, width: u64| pattern(constant(0), &[(width / 8, 8), (rows, width), (8, 1)]);
        let name = |part: &str| format!("{part}{head}_l2");
        let keys = [
            end(base + KEYS_IN, index(), whole(tile * d)),
            end(base + KEYS, index(), blocked(tile, d)),
        ];
        let values = [
            end(base + VALUES_IN, index(), whole(tile * dv)),
            end(base + VALUES, index(), blocked(tile, dv)),
        ];
        let result = [
            end(base + self.y(), index(), blocked(self.tile_q, dv)),
            end(base + self.y_out(), index(), whole(self.tile_q * dv)),
        ];
        let col = self.stage_col(head);
        let own_col = i(0, 1) + int(self.col0(head));
        let mut keys = stage(
            &name("keys"),
            self.stages,
            col.clone(),
            bf16,
            &[tile, d],
            keys,
        );
        let mut values = stage(&name("values"), self.stages, col, bf16, &[tile, dv], values);
        keys.copies = 2;
        values.copies = 2;
        let y_block = [self.tile_q, dv];
        let result = stage(&name("y"), self.width(), own_col, bf16, &y_block, result);
        launch.stages.extend([keys, values, result]);
    }

    fn add_transfers(&self, launch: &mut Launch, head: u64) {
        let base = head as usize * self.bundles();
        let (tile, d) = (self.tile_kv, self.head_dim);
        let (q, kv) = (self.q_layout(), self.kv_layout());
        let chunk = int(self.tile_dv);
        let first_query = self
            .q_head(head)
            .plus(Var::Grid(0), int(self.iteration_q() * q.row));
        // Every stage gets all queries of the iteration, head after head.
        let walk = [(self.heads, q.head), (self.iteration_q(), q.row), (d, 1)];
        let queries = pattern(first_query.clone(), &walk);
        let step = self.stages * tile * kv.row;
        let mut kv_tasks = Vec::new();
        // Stages `from ..` of so many tiles each.
        for (from, count, tiles) in self.shares() {
            // First key of the run's first stage, and the distance to the next stage's.
            let further = if self.top_first { -1 } else { 1 };
            let turn = if self.top_first {
                self.stages - 1 - from
            } else {
                from
            };
            let first_key = (self.kv_head(head) + int(turn * tile * kv.row))
                .plus(Var::Index(0), further * int(tile * kv.row));
            let keys = [(tiles, step), (tile, kv.row), (d, 1)];
            let values = [(tiles, step), (tile, kv.row), (self.tile_dv, 1)];
            let first_value = first_key.clone().plus(Var::Grid(3), chunk);
            kv_tasks.push((1, KEYS_IN, from, count, pattern(first_key, &keys)));
            kv_tasks.push((2, VALUES_IN, from, count, pattern(first_value, &values)));
        }
        let transfer = |count: u64, arg: usize, channel: usize, pattern: Pattern| Transfer {
            dims: vec![small(count)],
            loops: Vec::new(),
            arg,
            channel: base + channel,
            index: vec![i(0, 1)],
            pattern,
        };
        launch
            .transfers
            .push(transfer(self.stages, 0, KEYS_IN, queries));
        for (arg, channel, from, count, walk) in kv_tasks {
            let index = vec![i(0, 1) + int(from)];
            launch.transfers.push(Transfer {
                index,
                ..transfer(count, arg, channel, walk)
            });
        }
        for of in 0..self.heads {
            let first = (first_query.clone() + int(of * q.head))
                .plus(Var::Grid(3), chunk)
                .plus(Var::Index(0), int(self.tile_q * q.row));
            let walk = pattern(first, &[(self.tile_q, q.row), (self.tile_dv, 1)]);
            launch.transfers.push(Transfer {
                index: vec![i(0, 1) + int(of * self.q_tiles)],
                ..transfer(self.q_tiles, 3, self.y_out(), walk)
            });
        }
    }

    /// Runs of stages with as many tiles of keys: the first, how many, their tiles.
    fn shares(&self) -> Vec<(u64, u64, u64)> {
        let (each, more) = self.dealing();
        let shares = if self.top_first {
            let fewer = self.stages - more;
            [(0, fewer, each), (fewer, more, each + 1)]
        } else {
            [(0, more, each + 1), (more, self.stages - more, each)]
        };
        shares.into_iter().filter(|share| share.1 > 0).collect()
    }

    /// Channels of a head: a single stage has no cascade.
    fn bundles(&self) -> usize {
        if self.stages == 1 {
            BUNDLES - 1
        } else {
            BUNDLES
        }
    }

    fn y(&self) -> usize {
        if self.stages == 1 { CASCADE } else { Y }
    }

    fn y_out(&self) -> usize {
        if self.stages == 1 { Y } else { Y_OUT }
    }
}

impl Mapping for AttentionMapping {
    fn name(&self) -> &'static str {
        "flash-attention"
    }

    fn summary(&self) -> &'static str {
        "O = softmax(Q K^T / sqrt(d)) V, bf16; `LQ[xLK] HEADSq/KVHEADSkv dD causal|full [seq-first] [window W]`"
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
        let p = AttentionDims::new(shape, tiling);
        let checks = Checks {
            mapping: self.name(),
        };
        checks.bounded(shape, tiling)?;
        p.check(machine)?;
        let mut launch = p.launch();
        if p.stages == 1 {
            launch.channels.retain(|c| c.link != ChannelLink::Cascade);
        }
        let q_shape = p.slot_shape(p.n_queries, p.n_heads);
        let kv_shape = p.slot_shape(p.n_keys, p.n_kv_heads);
        let bf16 = Element::Bf16;
        Ok(Program {
            name: "flash_attention".to_owned(),
            slots: vec![
                slot("q", bf16, &q_shape, Role::Input),
                slot("k", bf16, &kv_shape, Role::Input),
                slot("v", bf16, &kv_shape, Role::Input),
                slot("y", bf16, &q_shape, Role::Output),
            ],
            launches: vec![launch],
        })
    }

    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let d = shape["head_dim"];
        let n_q = shape["n_heads"] * shape["n_queries"] * d;
        let n_kv = shape["n_kv_heads"] * shape["n_keys"] * d;
        let mut random = Random::new(seed);
        let q = random.bf16_bytes(n_q, 2.0);
        let k = random.bf16_bytes(n_kv, 2.0);
        let v = random.bf16_bytes(n_kv, 2.0);
        vec![q, k, v, vec![0; 2 * n_q as usize]]
    }

    fn reference_in(
        &self,
        numerics: Numerics,
        shape: &Shape,
        tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        vec![(
            3,
            reference::run(numerics, &AttentionDims::new(shape, tiling), slots),
        )]
    }

    fn keys_and_values(&self) -> &'static [usize] {
        &[1, 2]
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    /// A causal mask halves the operations, as published rates count them.
    fn work(&self, shape: &Shape) -> LeastWork {
        let d = shape["head_dim"];
        let (heads, kv_heads) = (shape["n_heads"], shape["n_kv_heads"]);
        let (queries, keys) = (shape["n_queries"], shape["n_keys"]);
        let full = 4 * heads * queries * keys * d;
        let flops = match shape.get("window").filter(|&window| window < keys) {
            // The first queries see all keys so far, the others a window.
            Some(window) => {
                4 * heads * d * (window * (window + 1) / 2 + (queries - window) * window)
            }
            None => full / (1 + shape["causal"]),
        };
        LeastWork {
            flops,
            ddr_bytes: 4 * d * (heads * queries + kv_heads * keys),
        }
    }
}
