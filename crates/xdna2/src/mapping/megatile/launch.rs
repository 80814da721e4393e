//! A launch: channels, memory-tile buffers, shim tasks, cores.

use super::{Layout, MATMUL, MegatileDims, PANEL};
use crate::mapping::parts::{
    at, block, call, constant, core, deep, end, free, g, get, herd, i, int, launch, local, new,
    pattern, put, repeat, small, stage, stream, transfer, upto, x, y,
};
use millrace_npu::Element;
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::{
    Affine, Channel, GridOrder, Launch, Op, Operand, Place, Stage, StageEnd, Transfer, Var,
};

// Channels of the launch, in this order.
const A_IN: usize = 0;
const A: usize = 1;
const B_IN: usize = 2;
const B: usize = 3;
const C: usize = 4;
const C_OUT: usize = 5;

/// One launch: `cols` columns from row `first_row` of A, `n_down` megatiles down.
pub(super) struct MegatileLaunch<'a> {
    pub(super) tiled: &'a MegatileDims,
    pub(super) name: &'static str,
    pub(super) first_row: u64,
    pub(super) n_down: u64,
    pub(super) cols: u64,
}

impl MegatileLaunch<'_> {
    /// A grid point for every row of megatiles, and within it all of N.
    pub(super) fn launch(&self, machine: &Machine) -> Launch {
        let p = self.tiled;
        let args: Vec<usize> = (0..1 + 2 * p.n.len()).collect();
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
            ..launch(self.name, &args, &[self.n_down], GridOrder::Streamed)
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
        let a_in = [p.height(), p.kl2];
        let b_in = p.layout.shape(p.kl2, p.tn);
        let c_out = [p.height(), p.mega_n()];
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
        // Tiles of 8 × 8 of a core's step, column by column of B.
        let b_walk = match p.layout {
            Layout::Rows => [(kl2 / tk, tk * n), (n / 8, 8), (tk, n), (8, 1)],
            Layout::Panels => [
                (kl2 / tk, tk * PANEL),
                (n / PANEL, kl2 * PANEL),
                (tk * PANEL, 1),
                (1, 1),
            ],
        };
        let b_drain = StageEnd {
            repeat: small(p.e_y),
            ..end(B, own(), pattern(constant(0), &b_walk))
        };
        let bf16 = Element::Bf16;
        let a_block = [p.height(), kl2];
        let b_block = p.layout.shape(kl2, n);
        let a_ends = [end(A_IN, own(), whole(p.height() * kl2)), a_drain];
        let b_ends = [end(B_IN, own(), whole(kl2 * n)), b_drain];
        let b_col = self.b_col(machine);
        let copies = |stage: Stage| Stage {
            copies: small(p.l2_copies),
            ..stage
        };
        vec![
            copies(stage("a_l2", self.cols, i(0, 1), bf16, &a_block, a_ends)),
            copies(stage("b_l2", p.rows, b_col, bf16, &b_block, b_ends)),
            copies(self.c_stage()),
        ]
    }

    /// C of a column, gathered from its cores.
    fn c_stage(&self) -> Stage {
        let p = self.tiled;
        let (m, width) = (p.tm, p.width());
        let own = || vec![i(0, 1)];
        // A core sends its tiles row by row of the megatile, so that columns of adjacent tiles
        // form one dimension.
        let c_walk = [(p.e_y, m * width), (width / 8, 8), (m, width), (8, 1)];
        let part = p.height() * width;
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
        let c_block = [p.rows, p.height(), width];
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

    /// Tasks of a row of megatiles: for every product and megatile one a stream, of B `[k, n]` one for every block
    /// of k.
    fn transfers(&self) -> Vec<Transfer> {
        let p = self.tiled;
        let (height, width, mega_n) = (p.height(), p.width(), p.mega_n());
        let first = |row: u64| {
            g(0, self.cols * height * row).plus(Var::Index(0), int(height * row))
                + int(self.first_row * row)
        };
        let a = [(p.k / p.kl2, p.kl2), (height, p.k), (p.kl2, 1)];
        let mut transfers = vec![Transfer {
            loops: vec![constant(p.n_tiles())],
            ..transfer(self.cols, 0, A_IN, pattern(first(p.k), &a))
        }];
        for (part, &n) in p.n.iter().enumerate() {
            transfers.push(self.b_transfer(part, n));
        }
        for (part, &n) in p.n.iter().enumerate() {
            let at = first(n).plus(Var::Loop(0), int(mega_n));
            let c = [(p.rows, width), (height, n), (width, 1)];
            let arg = 1 + p.n.len() + part;
            transfers.push(Transfer {
                loops: vec![constant(n / mega_n)],
                ..transfer(self.cols, arg, C_OUT, pattern(at, &c))
            });
        }
        transfers
    }

    /// B of a product: of each row of cores its tiles of a megatile, one after the other for every block of k.
    fn b_transfer(&self, part: usize, n: u64) -> Transfer {
        let p = self.tiled;
        let (k, kl2, width, mega_n) = (p.k, p.kl2, p.width(), p.mega_n());
        let at = |next: u64, own: u64| i(0, own).plus(Var::Loop(0), int(next));
        let (loops, walk) = match p.layout {
            // A descriptor has three dimensions.
            Layout::Rows => {
                let at = at(mega_n, width).plus(Var::Loop(1), int(kl2 * n));
                let dims = [(p.e_x, p.tn), (kl2, n), (p.tn, 1)];
                (vec![n / mega_n, k / kl2], pattern(at, &dims))
            }
            Layout::Panels => {
                let at = at(mega_n * k, width * k);
                let block = kl2 * PANEL;
                let dims = [(k / kl2, block), (width / PANEL, k * PANEL), (block, 1)];
                (vec![n / mega_n], pattern(at, &dims))
            }
        };
        Transfer {
            loops: loops.into_iter().map(constant).collect(),
            ..transfer(p.rows, 1 + part, B_IN, walk)
        }
    }

    /// For every megatile and every block of k, all its tiles by column, then row; the sums are sent row by row.
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
                call(MATMUL, &[p.tm, p.tn, p.tk], &operands),
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
        vec![repeat(p.n_tiles(), body)]
    }
}
