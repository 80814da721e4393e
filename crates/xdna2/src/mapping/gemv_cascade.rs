//! bf16 GEMV whose partial sums pass between cores. The rows of a column share the inner dimension, and each adds its
//! part of a sum to the one that comes down the cascade from the row above.
//!
//! A launch iteration computes `cols · tile_m` rows of W, as [`Gemv`](super::gemv)'s does. A column's memory
//! tile deals the panel `[tile_m, K]` to its `rows` cores by columns, `K / rows` each; the vector's
//! parts come from a shim a row. Row 0 rounds the sum to bf16 and sends it out.
//!
//! It is built to show the gain of a cascade for a product that waits for memory: none (docs/ceiling.md). It multiplies
//! the cores by `rows`, and no byte of W comes sooner.

use super::data::{Random, bf16_bytes};
use super::gemv::{LANES, product};
use super::parts::{
    Checks, at, block, call, constant, core, deep, divisors, end, free, g, get, herd, i, int,
    largest_divisor, launch, local, new, pattern, put, slot, small, stage, stream, transfer, upto,
    x, y,
};
use super::{
    BuildError, LeastWork, Mapping, NamedNumbers, Rule, Shape, ShapeError, Tiling, Tolerance,
    parse_dims,
};
use millrace_npu::{Element, Role};
use millrace_xdna2_machine::program::{
    Affine, Channel, ChannelLink, Condition, GridOrder, Launch, Op, Operand, Place, Stage,
    Transfer, Var,
};
use millrace_xdna2_machine::{Machine, Numerics, Program};
use std::ops::Range;

/// The GEMV.
pub(super) struct GemvCascade;

const NAME: &str = "gemv-cascade";

/// Shape and tiling as plain numbers.
#[derive(Clone, Copy)]
struct GemvCascadeDims {
    m: u64,
    k: u64,
    tile_m: u64,
    cols: u64,
    rows: u64,
    l2_copies: u64,
}

// Channels of the launch, in this order.
const W_IN: usize = 0;
const W: usize = 1;
const X: usize = 2;
const CASCADE: usize = 3;
const Y: usize = 4;
const Y_OUT: usize = 5;

// L1 buffers of a core.
const PART: Operand = Operand::Local(0);
const SUM: Operand = Operand::Local(1);

impl GemvCascadeDims {
    fn new(shape: &Shape, tiling: &Tiling) -> GemvCascadeDims {
        GemvCascadeDims {
            m: shape["m"],
            k: shape["k"],
            tile_m: tiling["tile_m"],
            cols: tiling["cols"],
            rows: tiling["rows"],
            l2_copies: tiling["l2_copies"],
        }
    }

    fn tiling(&self) -> Tiling {
        NamedNumbers::new(&[
            ("tile_m", self.tile_m),
            ("cols", self.cols),
            ("rows", self.rows),
            ("l2_copies", self.l2_copies),
        ])
    }

    /// Elements of the inner dimension that a core multiplies.
    fn part(&self) -> u64 {
        self.k / self.rows.max(1)
    }

    fn check(&self, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks { mapping: NAME };
        checks.herd(self.cols, self.rows, machine)?;
        checks.ensure(self.rows >= 2, Rule::Range, || {
            format!(
                "rows = {}: a cascade takes at least 2 rows of cores; `gemv` is the one without",
                self.rows
            )
        })?;
        checks.ensure(
            self.rows <= self.cols.max(u64::from(machine.cols)),
            Rule::Streams,
            || format!("{} parts of the vector need as many shims", self.rows),
        )?;
        checks.divides(
            ("k", self.k),
            ("rows * the vector unit's lanes", self.rows * LANES),
        )?;
        checks.divides(("m", self.m), ("cols * tile_m", self.cols * self.tile_m))?;
        checks.ensure(self.tile_m.is_multiple_of(2), Rule::Granularity, || {
            format!(
                "tile_m = {}: its bf16 results end within an address unit of 4 bytes; take an even tile_m",
                self.tile_m
            )
        })?;
        checks.ensure((1..=2).contains(&self.l2_copies), Rule::Range, || {
            format!(
                "l2_copies = {}; it is 1, or 2 for ping-pong",
                self.l2_copies
            )
        })?;
        checks.l2(2 * self.tile_m * (self.l2_copies * self.k + 1), machine)?;
        // W and the vector in ping-pong, two sums, a block each way of the cascade, the result.
        let l1_bytes = 4 * (self.tile_m + 1) * self.part() + (2 * 4 + 2 * 4 + 2) * self.tile_m;
        checks.l1(l1_bytes, machine)
    }

    fn channels(&self) -> Vec<Channel> {
        let (bf16, f32) = (Element::Bf16, Element::F32);
        let shim = || Place::Shim(i(0, 1));
        let memory = || Place::Memory(i(0, 1));
        let (cols, each) = ([self.cols], [self.cols, self.rows]);
        let here = || core(at(i(0, 1)), at(i(1, 1)));
        let bottom = || core(at(i(0, 1)), at(constant(0)));
        let row = core(upto(self.cols), at(i(0, 1)));
        let above = core(at(i(0, 1)), at(i(1, 1) + 1));
        let down = [self.cols, self.rows - 1];
        let panel = [self.tile_m, self.k];
        let part = [self.tile_m, self.part()];
        vec![
            stream("w_in", &cols, bf16, &panel, shim(), memory()),
            stream("w", &each, bf16, &part, memory(), here()),
            stream("x", &[self.rows], bf16, &[self.part()], shim(), row),
            Channel {
                link: ChannelLink::Cascade,
                ..deep(
                    stream("cascade", &down, f32, &[self.tile_m], above, here()),
                    1,
                )
            },
            deep(
                stream("y", &cols, bf16, &[self.tile_m], bottom(), memory()),
                1,
            ),
            stream("y_out", &cols, bf16, &[self.tile_m], memory(), shim()),
        ]
    }

    fn stages(&self) -> Vec<Stage> {
        let bf16 = Element::Bf16;
        let whole = |n| pattern(constant(0), &[(n, 1)]);
        // The transfer arranged the panel by parts: a drain's elements come in one stretch.
        let part = self.tile_m * self.part();
        let deal = pattern(Affine::of(Var::Each, int(part)), &[(part, 1)]);
        let ends = [
            end(W_IN, vec![i(0, 1)], whole(self.tile_m * self.k)),
            end(W, vec![i(0, 1), Affine::of(Var::Each, 1)], deal),
        ];
        let block = [self.tile_m, self.k];
        let mut w = stage("w_l2", self.cols, i(0, 1), bf16, &block, ends);
        w.drains[0].each = small(self.rows);
        w.copies = small(self.l2_copies);
        let ends = [Y, Y_OUT].map(|channel| end(channel, vec![i(0, 1)], whole(self.tile_m)));
        let y = stage("y_l2", self.cols, i(0, 1), bf16, &[self.tile_m], ends);
        vec![w, y]
    }

    fn transfers(&self) -> Vec<Transfer> {
        let step = self.cols * self.tile_m;
        let first = |unit: u64| g(0, step * unit).plus(Var::Index(0), int(self.tile_m * unit));
        let by_parts = [
            (self.rows, self.part()),
            (self.tile_m, self.k),
            (self.part(), 1),
        ];
        let panel = pattern(first(self.k), &by_parts);
        let part = pattern(i(0, self.part()), &[(self.part(), 1)]);
        let result = pattern(first(1), &[(self.tile_m, 1)]);
        vec![
            transfer(self.cols, 0, W_IN, panel),
            transfer(self.rows, 1, X, part),
            transfer(self.cols, 2, Y_OUT, result),
        ]
    }

    /// Program of a core: its part, then the sum from above, then on.
    fn body(&self) -> Vec<Op> {
        let n = [self.tile_m];
        let add = |to: Operand| call("add_f32", &n, &[PART, block(3), to]);
        let only_if =
            |value: Affine, condition: Condition, then: Vec<Op>, otherwise: Vec<Op>| Op::If {
                value,
                condition,
                then,
                otherwise,
            };
        let from_above = || get(CASCADE, vec![x(), y()], 3);
        let to_below = || new(CASCADE, vec![x(), y() + -1], 1);
        let dims = [self.tile_m, self.part()];
        let multiply = |to: Operand| call("matvec_bf16_f32", &dims, &[block(2), block(0), to]);
        let bottom = vec![
            multiply(PART),
            from_above(),
            add(SUM),
            free(3),
            new(Y, vec![x()], 1),
            call("cast_f32_bf16", &n, &[SUM, block(1)]),
            put(1),
        ];
        let top = vec![to_below(), multiply(block(1)), put(1)];
        let middle = vec![
            multiply(PART),
            from_above(),
            to_below(),
            add(block(1)),
            free(3),
            put(1),
        ];
        let above = only_if(y() + (1 - int(self.rows)), Condition::Negative, middle, top);
        vec![
            get(X, vec![y()], 0),
            get(W, vec![x(), y()], 2),
            only_if(y(), Condition::Zero, bottom, vec![above]),
            free(2),
            free(0),
        ]
    }
}

/// Columns of a matrix of bf16 bytes with rows of `k` elements.
fn columns_of(bytes: &[u8], k: usize, columns: Range<usize>) -> Vec<u8> {
    let rows = bytes.chunks_exact(2 * k);
    rows.flat_map(|row| &row[2 * columns.start..2 * columns.end])
        .copied()
        .collect()
}

impl Mapping for GemvCascade {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "y[M] = W[M,K] x[K], bf16, sums passed down the cascade; MxK"
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        parse_dims(text, ["m", "k"])
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        let least = GemvCascadeDims {
            m: shape["m"],
            k: shape["k"],
            tile_m: 2,
            cols: 1,
            rows: 2,
            l2_copies: 1,
        };
        let tilings = self.tilings(shape, machine);
        tilings.into_iter().next().unwrap_or(least.tiling())
    }

    /// Widest and highest herd first, then tall tiles.
    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        let (m, k) = (shape["m"], shape["k"]);
        let mut tilings = Vec::new();
        for cols in (1..=u64::from(machine.cols)).rev() {
            let largest = largest_divisor(m / cols, 16, 2);
            let tiles = divisors(largest).into_iter().rev();
            for (tile_m, rows) in tiles.flat_map(|t| [4, 3, 2].map(|rows| (t, rows))) {
                for l2_copies in [2, 1] {
                    let tiled = GemvCascadeDims {
                        m,
                        k,
                        tile_m,
                        cols,
                        rows,
                        l2_copies,
                    };
                    if tiled.check(machine).is_ok() {
                        tilings.push(tiled.tiling());
                    }
                }
            }
        }
        tilings
    }

    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        let p = GemvCascadeDims::new(shape, tiling);
        Checks { mapping: NAME }.bounded(shape, tiling)?;
        p.check(machine)?;
        let (bf16, f32) = (Element::Bf16, Element::F32);
        let locals = vec![
            local("part", f32, &[p.tile_m]),
            local("sum", f32, &[p.tile_m]),
        ];
        let grid = [p.m / (p.cols * p.tile_m)];
        let gemv = Launch {
            channels: p.channels(),
            stages: p.stages(),
            transfers: p.transfers(),
            herds: vec![herd("cores", p.cols, p.rows, locals, p.body())],
            ..launch("gemv", &[0, 1, 2], &grid, GridOrder::Streamed)
        };
        Ok(Program {
            name: "gemv_cascade".to_owned(),
            slots: vec![
                slot("w", bf16, &[p.m, p.k], Role::Static),
                slot("x", bf16, &[p.k], Role::Input),
                slot("y", bf16, &[p.m], Role::Output),
            ],
            launches: vec![gemv],
        })
    }

    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let (m, k) = (shape["m"], shape["k"]);
        let mut random = Random::new(seed);
        let w = random.bf16_bytes(m * k, 1.0);
        let x = random.bf16_bytes(k, 1.0);
        vec![w, x, vec![0; 2 * m as usize]]
    }

    /// The parts by themselves, added from the last to the first.
    fn reference_in(
        &self,
        _numerics: Numerics,
        shape: &Shape,
        tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        let (k, rows) = (shape["k"] as usize, tiling["rows"] as usize);
        let part = k / rows;
        let mut sums = vec![0.0_f32; shape["m"] as usize];
        for row in (0..rows).rev() {
            let columns = row * part..(row + 1) * part;
            let w = columns_of(&slots[0], k, columns.clone());
            let x = columns_of(&slots[1], k, columns);
            let first = row + 1 == rows;
            for (sum, part) in sums.iter_mut().zip(product(&w, &x, part)) {
                *sum = if first { part } else { part + *sum };
            }
        }
        vec![(2, bf16_bytes(&sums))]
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    fn work(&self, shape: &Shape) -> LeastWork {
        let (m, k) = (shape["m"], shape["k"]);
        LeastWork {
            flops: 2 * m * k,
            ddr_bytes: 2 * (m * k + k + m),
        }
    }
}
