//! The launch: channels, memory-tile buffers, shim tasks, cores.

use super::GemmStreamDims;
use crate::mapping::parts::{
    at, block, call, call_with, constant, core, deep, end, free, g, get, herd, i, int, launch,
    local, new, pattern, put, repeat, small, stage, stream, transfer, upto, x, y,
};
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

impl GemmStreamDims {
    /// The one launch: a grid point for every step over M, and within it all of N.
    pub(super) fn launch(&self, machine: &Machine) -> Launch {
        let n_products = self.n.len();
        let args: Vec<usize> = (0..1 + 2 * n_products).collect();
        let sums = local("sums", self.of.sums, &[self.tm, self.tn]);
        Launch {
            channels: self.channels(machine),
            stages: self.stages(machine),
            transfers: self.transfers(),
            herds: vec![herd("cores", self.cols, self.rows, vec![sums], self.body())],
            ..launch(
                "gemm",
                &args,
                &[self.m / self.m_step()],
                GridOrder::Streamed,
            )
        }
    }

    /// Columns of the memory tiles that hold A and B.
    fn columns(&self, machine: &Machine) -> [Affine; 2] {
        let (own, spread) = (i(0, 1), i(0, self.spread(machine)));
        if self.n_over_cols {
            [spread, own]
        } else {
            [own, spread]
        }
    }

    fn channels(&self, machine: &Machine) -> Vec<Channel> {
        let (tm, tk, tn) = (self.tm, self.tk, self.tn);
        let (element, result) = (self.of.element, self.of.result);
        let [a_col, b_col] = self.columns(machine);
        let shim = |col: &Affine| Place::Shim(col.clone());
        let memory = |col: &Affine| Place::Memory(col.clone());
        let col = i(0, 1);
        let down = core(at(col.clone()), upto(self.rows));
        let along = core(upto(self.cols), at(col.clone()));
        let [a_to, b_to] = if self.n_over_cols {
            [along, down]
        } else {
            [down, along]
        };
        let a_in = [tm, if self.hold_a { self.k } else { self.kl2 }];
        let (b_in, b_tile) = if self.bt {
            ([tn, self.kl2], [tk / 8, tn / 8, 8, 8])
        } else {
            ([self.kl2, tn], [tn / 8, tk / 8, 8, 8])
        };
        let a_tile = [tk / 8, tm / 8, 8, 8];
        let c_tile = [tn / 8 / self.chunks, tm / 8, 8, 8];
        let ([a], [b]) = ([self.a_streams()], [self.b_streams()]);
        let cores = [self.cols, self.rows];
        let c_from = core(at(i(0, 1)), at(i(1, 1)));
        let c_block = [self.rows, tm, tn];
        let tiles = |channel| deep(channel, self.l1_depth);
        vec![
            stream("a_in", &[a], element, &a_in, shim(&a_col), memory(&a_col)),
            tiles(stream("a", &[a], element, &a_tile, memory(&a_col), a_to)),
            stream("b_in", &[b], element, &b_in, shim(&b_col), memory(&b_col)),
            tiles(stream("b", &[b], element, &b_tile, memory(&b_col), b_to)),
            deep(
                stream("c", &cores, result, &c_tile, c_from, memory(&col)),
                1,
            ),
            stream(
                "c_out",
                &[self.cols],
                result,
                &c_block,
                memory(&col),
                shim(&col),
            ),
        ]
    }

    fn stages(&self, machine: &Machine) -> Vec<Stage> {
        let (tm, tn, tk, kl2) = (self.tm, self.tn, self.tk, self.kl2);
        let (element, result) = (self.of.element, self.of.result);
        let own = || vec![i(0, 1)];
        let whole = |n: u64| pattern(constant(0), &[(n, 1)]);
        // Tiles of 8 × 8 of a block [rows, depth], in columns.
        let tiles =
            |rows: u64, depth: u64| pattern(constant(0), &[(depth / 8, 8), (rows, depth), (8, 1)]);
        let depth = if self.hold_a { self.k } else { kl2 };
        let a_drain = StageEnd {
            repeat: small(if self.hold_a { self.n_tiles() } else { 1 }),
            ..end(A, own(), tiles(tm, depth))
        };
        let (b_block, b_walk) = if self.bt {
            ([tn, kl2], tiles(tn, kl2))
        } else {
            let walk = [(kl2 / tk, tk * tn), (tn / 8, 8), (tk, tn), (8, 1)];
            ([kl2, tn], pattern(constant(0), &walk))
        };
        let tile = tm * tn;
        let c_fill = StageEnd {
            each: small(self.rows),
            index: vec![i(0, 1), Affine::of(Var::Each, 1)],
            ..end(
                C,
                Vec::new(),
                pattern(
                    Affine::of(Var::Each, int(tile)),
                    &[(tn / 8, 8), (tm, tn), (8, 1)],
                ),
            )
        };
        // Core by core: a descriptor waits for one core's tile, so the drain cannot alternate between
        // them. The shim's tasks arrange them.
        let c_walk = whole(self.rows * tile);
        let [a_col, b_col] = self.columns(machine);
        let a_ends = [end(A_IN, own(), whole(tm * depth)), a_drain];
        let b_ends = [end(B_IN, own(), whole(kl2 * tn)), end(B, own(), b_walk)];
        let c_ends = [c_fill, end(C_OUT, own(), c_walk)];
        let copies = |stage: Stage, copies: u64| Stage {
            copies: small(copies),
            ..stage
        };
        let (a, b) = (self.a_streams(), self.b_streams());
        let c_block = [self.rows, tm, tn];
        vec![
            copies(
                stage("a_l2", a, a_col, element, &[tm, depth], a_ends),
                self.a_copies(),
            ),
            copies(
                stage("b_l2", b, b_col, element, &b_block, b_ends),
                self.l2_copies,
            ),
            stage("c_l2", self.cols, i(0, 1), result, &c_block, c_ends),
        ]
    }

    /// Tasks of a step over M: for every product and step over N one a stream.
    fn transfers(&self) -> Vec<Transfer> {
        let (k, kl2, tm, tn) = (self.k, self.kl2, self.tm, self.tn);
        let in_loop = |count: u64, transfer: Transfer| Transfer {
            loops: vec![constant(count)],
            ..transfer
        };
        let panels = |rows: u64| [(k / kl2, kl2), (rows, k), (kl2, 1)];
        let a_at = g(0, self.m_step() * k).plus(Var::Index(0), int(tm * k));
        let a =
            |dims: &[(u64, u64)]| transfer(self.a_streams(), 0, A_IN, pattern(a_at.clone(), dims));
        let mut transfers = vec![if self.hold_a {
            a(&[(tm * k, 1)])
        } else {
            in_loop(self.n_tiles(), a(&panels(tm)))
        }];
        let step = self.n_step();
        for (part, &n) in self.n.iter().enumerate() {
            let (first, next, dims) = if self.bt {
                (tn * k, step * k, panels(tn))
            } else {
                (tn, step, [(k / kl2, kl2 * n), (kl2, n), (tn, 1)])
            };
            let at = i(0, first).plus(Var::Loop(0), int(next));
            let b = transfer(self.b_streams(), 1 + part, B_IN, pattern(at, &dims));
            transfers.push(in_loop(n / step, b));
        }
        for (part, &n) in self.n.iter().enumerate() {
            // Rows of the array are further rows of C, or further columns.
            let (first, next) = if self.n_over_cols {
                (tn, tm * n)
            } else {
                (tm * n, tn)
            };
            let dims = [(self.rows, next), (tm, n), (tn, 1)];
            let at = g(0, self.m_step() * n)
                .plus(Var::Index(0), int(first))
                .plus(Var::Loop(0), int(step));
            let arg = 1 + self.n.len() + part;
            let c = transfer(self.cols, arg, C_OUT, pattern(at, &dims));
            transfers.push(in_loop(n / step, c));
        }
        transfers
    }

    fn body(&self) -> Vec<Op> {
        let sums = Operand::Local(0);
        let tile = self.tm * self.tn;
        let kernel = match self.bt {
            true => self.of.matmul_bt,
            false => self.of.matmul,
        };
        let [a_index, b_index] = if self.n_over_cols {
            [y(), x()]
        } else {
            [x(), y()]
        };
        let dims = [self.tm, self.tn, self.tk];
        let step = vec![
            get(A, vec![a_index], 1),
            get(B, vec![b_index], 2),
            call(kernel, &dims, &[block(1), block(2), sums]),
            free(1),
            free(2),
        ];
        let piece = tile / self.chunks;
        let operands = [sums, block(0)];
        let results = match self.of.drain {
            Some(whole) if self.chunks == 1 => call(whole, &[piece], &operands),
            _ => {
                let first = vec![Affine::of(Var::Loop(1), int(piece))];
                let name = self.of.drain_part;
                call_with(name, &[piece, tile], &operands, first, Vec::new())
            }
        };
        let drain = vec![new(C, vec![x(), y()], 0), results, put(0)];
        let body = vec![
            call(self.of.zero, &[tile], &[sums]),
            repeat(self.k / self.tk, step),
            repeat(self.chunks, drain),
        ];
        vec![repeat(self.n_tiles(), body)]
    }
}
