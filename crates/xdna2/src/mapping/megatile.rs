//! Megatile GEMM of seed 002 §3.1.2, the prefill projection of its decoder.
//!
//! A core computes tiles `m × n`; the array a *supertile* of `cols·m × rows·n`. Memory tiles hold
//! blocks of A and B for a *megatile* of `cols·e_y·m × rows·e_x·n` and stream them several times:
//! A `[e_y·m, k]` of a column `e_x` times, B `[k, n]` of a row `e_y` times. DDR then moves
//! `N / (rows·e_x·n)` times A and `M / (cols·e_y·m)` times B (its equation 5). A core keeps the
//! `e_x · e_y` sums of its tiles in L1 over all of K; C is gathered in L2 and leaves core by core.
//! Tasks of the next megatile are queued behind those of this one, so nothing waits for C.
//!
//! M need only be a multiple of `e_y·m`: what remains after whole megatiles is computed by a second
//! launch on the columns it needs, so a short prompt is padded by less than `e_y·m` rows.

mod shape;

use super::data::{Random, bf16_bytes, floats};
use super::gemm::accumulate;
use super::parts::{
    Checks, at, block, call, constant, core, deep, end, free, g, get, herd, i, int, launch, local,
    new, pattern, put, repeat, slot, small, stage, stream, transfer, upto, x, y,
};
use super::{BuildError, Mapping, Shape, ShapeError, Tiling, Tolerance, Work, parse_dims};
use millrace_npu::{Element, Role};
use millrace_xdna2_machine::program::{
    Affine, Channel, Launch, Op, Operand, Order, Place, Stage, StageEnd, Transfer, Var,
};
use millrace_xdna2_machine::{Machine, Numerics, Program};
use shape::Tiled;

/// The megatile GEMM.
pub(super) struct Megatile;

// Channels of the launch, in this order.
const A_IN: usize = 0;
const A: usize = 1;
const B_IN: usize = 2;
const B: usize = 3;
const C: usize = 4;
const C_OUT: usize = 5;

/// One launch: `cols` columns from row `first_row` of A, `n_down` megatiles down.
struct Part<'a> {
    tiled: &'a Tiled,
    name: &'static str,
    first_row: u64,
    n_down: u64,
    cols: u64,
}

impl Part<'_> {
    fn launch(&self, machine: &Machine) -> Launch {
        let p = self.tiled;
        let grid = [self.n_down, p.n / p.mega_n()];
        let sums =
            (0..p.e_x * p.e_y).map(|s| local(&format!("sum{s}"), Element::F32, &[p.tm, p.tn]));
        Launch {
            channels: self.channels(machine),
            stages: self.stages(machine),
            transfers: self.transfers(),
            herds: vec![herd(
                "cores",
                self.cols,
                p.rows,
                sums.collect(),
                self.body(),
            )],
            ..launch(self.name, &[0, 1, 2], &grid, Order::Streamed)
        }
    }

    fn b_col(&self, machine: &Machine) -> Affine {
        i(0, (u64::from(machine.cols) / self.tiled.rows).max(1))
    }

    fn channels(&self, machine: &Machine) -> Vec<Channel> {
        let p = self.tiled;
        let (cols, rows) = ([self.cols], [p.rows]);
        let bf16 = Element::Bf16;
        let col = || i(0, 1);
        let b_col = || self.b_col(machine);
        let a_tile = [p.tk / 8, p.tm / 8, 8, 8];
        let b_tile = [p.tn / 8, p.tk / 8, 8, 8];
        let c_tile = [p.tn / 8, p.tm / 8, 8, 8];
        let memory = || Place::Memory(col());
        let a_to = core(at(col()), upto(p.rows));
        let b_to = core(upto(self.cols), at(col()));
        let c_from = core(at(col()), at(i(1, 1)));
        let a_in = [p.e_y * p.tm, p.kl2];
        let b_in = [p.kl2, p.tn];
        let c_out = [p.e_y * p.tm, p.mega_n()];
        let b_shim = Place::Shim(b_col());
        let b_memory = || Place::Memory(b_col());
        vec![
            stream("a_in", &cols, bf16, &a_in, Place::Shim(col()), memory()),
            deep(
                stream("a", &cols, bf16, &a_tile, memory(), a_to),
                p.l1_depth,
            ),
            stream("b_in", &rows, bf16, &b_in, b_shim, b_memory()),
            deep(
                stream("b", &rows, bf16, &b_tile, b_memory(), b_to),
                p.l1_depth,
            ),
            deep(
                stream("c", &[self.cols, p.rows], bf16, &c_tile, c_from, memory()),
                1,
            ),
            stream("c_out", &cols, bf16, &c_out, memory(), Place::Shim(col())),
        ]
    }

    fn stages(&self, machine: &Machine) -> Vec<Stage> {
        let p = self.tiled;
        let (m, n, tk, kl2) = (p.tm, p.tn, p.tk, p.kl2);
        let own = || vec![i(0, 1)];
        let whole = |size: u64| pattern(constant(0), &[(size, 1)]);
        let a_walk = [(p.e_y, m * kl2), (kl2 / 8, 8), (m, kl2), (8, 1)];
        let a_drain = StageEnd {
            repeat: small(p.e_x),
            ..end(A, own(), pattern(constant(0), &a_walk))
        };
        let b_walk = [(kl2 / tk, tk * n), (n / 8, 8), (tk, n), (8, 1)];
        let b_drain = StageEnd {
            repeat: small(p.e_y),
            ..end(B, own(), pattern(constant(0), &b_walk))
        };
        let bf16 = Element::Bf16;
        let a_block = [p.e_y * m, kl2];
        let a_fill = end(A_IN, own(), whole(p.e_y * m * kl2));
        let b_fill = end(B_IN, own(), whole(kl2 * n));
        let b_col = self.b_col(machine);
        let copies = |stage: Stage| Stage {
            copies: small(p.l2_copies),
            ..stage
        };
        vec![
            copies(stage(
                "a_l2",
                self.cols,
                i(0, 1),
                bf16,
                &a_block,
                [a_fill, a_drain],
            )),
            copies(stage(
                "b_l2",
                p.rows,
                b_col,
                bf16,
                &[kl2, n],
                [b_fill, b_drain],
            )),
            copies(self.c_stage()),
        ]
    }

    /// C of a column, gathered from its cores.
    fn c_stage(&self) -> Stage {
        let p = self.tiled;
        let (m, width) = (p.tm, p.e_x * p.tn);
        let own = || vec![i(0, 1)];
        // A core sends its tiles row by row of the megatile, so that columns of adjacent tiles
        // form one dimension.
        let c_walk = [(p.e_y, m * width), (width / 8, 8), (m, width), (8, 1)];
        let part = p.e_y * m * width;
        let c_fill = StageEnd {
            each: small(p.rows),
            channel: C,
            index: vec![i(0, 1), Affine::of(Var::Each, 1)],
            pattern: pattern(Affine::of(Var::Each, int(part)), &c_walk),
            repeat: 1,
        };
        // Core by core: a descriptor waits for one core's part, so the drain cannot alternate between
        // them. The shim's task arranges them.
        let c_drain = pattern(constant(0), &[(p.rows * part, 1)]);
        let c_drain = end(C_OUT, own(), c_drain);
        let c_block = [p.rows, p.e_y * m, width];
        let bf16 = Element::Bf16;
        stage(
            "c_l2",
            self.cols,
            i(0, 1),
            bf16,
            &c_block,
            [c_fill, c_drain],
        )
    }

    fn transfers(&self) -> Vec<Transfer> {
        let p = self.tiled;
        let height = p.e_y * p.tm;
        let width = p.e_x * p.tn;
        let first = |row: u64| {
            g(0, self.cols * height * row).plus(Var::Index(0), int(height * row))
                + int(self.first_row * row)
        };
        let a = [(p.k / p.kl2, p.kl2), (height, p.k), (p.kl2, 1)];
        let b_at = g(1, p.mega_n())
            .plus(Var::Index(0), int(width))
            .plus(Var::Loop(0), int(p.kl2 * p.n));
        let b = [(p.e_x, p.tn), (p.kl2, p.n), (p.tn, 1)];
        let c_at = first(p.n).plus(Var::Grid(1), int(p.mega_n()));
        let c = [(p.rows, width), (height, p.n), (width, 1)];
        vec![
            transfer(self.cols, 0, A_IN, pattern(first(p.k), &a)),
            // A task for every block of k: a descriptor has three dimensions.
            Transfer {
                loops: vec![constant(p.k / p.kl2)],
                ..transfer(p.rows, 1, B_IN, pattern(b_at, &b))
            },
            transfer(self.cols, 2, C_OUT, pattern(c_at, &c)),
        ]
    }

    /// For every block of k, all tiles of the megatile by column, then row; the sums are sent row
    /// by row.
    fn body(&self) -> Vec<Op> {
        let p = self.tiled;
        let sum = |tile_x: u64, tile_y: u64| Operand::Local((tile_y * p.e_x + tile_x) as usize);
        let tiles = || (0..p.e_x).flat_map(|tx| (0..p.e_y).map(move |ty| (tx, ty)));
        let zero = |(tx, ty)| call("zero_f32", &[p.tm * p.tn], &[sum(tx, ty)]);
        let mut body: Vec<Op> = tiles().map(zero).collect();
        let product = |(tx, ty)| {
            let operands = [block(0), block(1), sum(tx, ty)];
            let step = vec![
                get(A, vec![x()], 0),
                get(B, vec![y()], 1),
                call("matmul_bf16_f32.flm", &[p.tm, p.tn, p.tk], &operands),
                free(0),
                free(1),
            ];
            repeat(p.kl2 / p.tk, step)
        };
        body.push(repeat(p.k / p.kl2, tiles().map(product).collect()));
        for ty in 0..p.e_y {
            for tx in 0..p.e_x {
                let operands = [sum(tx, ty), block(2)];
                body.push(new(C, vec![x(), y()], 2));
                body.push(call("cast_f32_bf16", &[p.tm * p.tn], &operands));
                body.push(put(2));
            }
        }
        body
    }
}

impl Mapping for Megatile {
    fn name(&self) -> &'static str {
        "gemm-megatile"
    }

    fn summary(&self) -> &'static str {
        "C = A B in megatiles, bf16 in and out, M in steps of e_y * tile_m; MxKxN"
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        parse_dims(text, ["m", "k", "n"])
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
        let p = Tiled::new(shape, tiling);
        let checks = Checks {
            mapping: self.name(),
        };
        checks.bounded(shape, tiling)?;
        p.check(machine)?;
        let whole = p.m / p.mega_m();
        let first_row = whole * p.mega_m();
        let parts = [
            ("megatiles", 0, whole, p.cols),
            ("rest", first_row, 1, (p.m - first_row) / (p.e_y * p.tm)),
        ];
        let parts = parts.into_iter().filter(|part| part.2 * part.3 > 0);
        let launches = parts.map(|(name, first_row, n_down, cols)| {
            let part = Part {
                tiled: &p,
                name,
                first_row,
                n_down,
                cols,
            };
            part.launch(machine)
        });
        let bf16 = Element::Bf16;
        Ok(Program {
            name: "gemm_megatile".to_owned(),
            slots: vec![
                slot("a", bf16, &[p.m, p.k], Role::Input),
                slot("b", bf16, &[p.k, p.n], Role::Static),
                slot("c", bf16, &[p.m, p.n], Role::Output),
            ],
            launches: launches.collect(),
        })
    }

    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let (m, k, n) = (shape["m"], shape["k"], shape["n"]);
        let mut random = Random::new(seed);
        let a = random.bf16_bytes(m * k, 1.0);
        let b = random.bf16_bytes(k * n, 1.0);
        vec![a, b, vec![0; 2 * (m * n) as usize]]
    }

    /// Sums stay in f32 over all of K; one rounding.
    fn reference_in(
        &self,
        numerics: Numerics,
        shape: &Shape,
        _tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        let (a, b) = (floats(&slots[0]), floats(&slots[1]));
        let (k, n) = (shape["k"] as usize, shape["n"] as usize);
        let mut c = vec![0.0; shape["m"] as usize * n];
        accumulate(numerics, &mut c, &a, &b, [k, n], 0..k);
        vec![(2, bf16_bytes(&c))]
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    fn work(&self, shape: &Shape) -> Work {
        let (m, k, n) = (shape["m"], shape["k"], shape["n"]);
        Work {
            flops: 2 * m * k * n,
            ddr_bytes: 2 * (m * k + k * n + m * n),
        }
    }
}
