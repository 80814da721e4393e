//! The launch: channels, memory-tile buffers, shim tasks, cores.

use super::{BYTES, COLS, MATMUL, Q4nxGemmDims, ROWS, across};
use crate::mapping::parts::{
    at, block, call, call_with, constant, core, deep, end, free, g, get, herd, i, int, launch,
    local, new, pattern, put, repeat, small, stage, stream, transfer, upto, x, y,
};
use millrace_npu::Element;
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::{
    Affine, Channel, GridOrder, Launch, Local, Op, Operand, Pattern, Place, Stage, StageEnd,
    Transfer, Var,
};

// Channels of the launch, in this order; the last if rows have separate weights.
const A_IN: usize = 0;
const A: usize = 1;
const W: usize = 2;
const C: usize = 3;
const C_OUT: usize = 4;
const W_IN: usize = 5;

/// Weights of a slice, expanded.
const B: Operand = Operand::Local(0);

/// Sums of one of a core's row blocks.
fn sums(block: u64) -> Operand {
    Operand::Local(1 + block as usize)
}

impl Q4nxGemmDims {
    /// The one launch: a grid point for every step over M, and within it all of N.
    pub(super) fn launch(&self, machine: &Machine) -> Launch {
        let args: Vec<usize> = (0..1 + 2 * self.n.len()).collect();
        let herd = herd("cores", self.cols, self.rows, self.locals(), self.body());
        Launch {
            channels: self.channels(machine),
            stages: self.stages(machine),
            transfers: self.transfers(),
            herds: vec![herd],
            ..launch(
                "gemm",
                &args,
                &[self.m / self.m_step()],
                GridOrder::Streamed,
            )
        }
    }

    fn locals(&self) -> Vec<Local> {
        let mut locals = vec![local("b", Element::Bf16, &[self.tk, ROWS])];
        let sums = |block| local(&format!("sums{block}"), Element::F32, &[self.tm, ROWS]);
        locals.extend((0..self.blocks()).map(sums));
        locals
    }

    fn channels(&self, machine: &Machine) -> Vec<Channel> {
        let (u8, bf16) = (Element::U8, Element::Bf16);
        let (tm, tk) = (self.tm, self.tk);
        let a_col = i(0, self.spread(machine));
        let shim = |col: &Affine| Place::Shim(col.clone());
        let memory = |col: &Affine| Place::Memory(col.clone());
        let (own, cores) = (i(0, 1), [self.cols, self.rows]);
        let a_to = if self.n_over_rows {
            core(upto(self.cols), upto(self.rows))
        } else {
            core(upto(self.cols), at(own.clone()))
        };
        let a = self.a_streams();
        let a_in = [tm, if self.hold_a { self.k } else { self.kl2 }];
        let a_tile = [tk / 8, tm / 8, 8, 8];
        let c_tile = [ROWS / 8 / self.chunks, tm / 8, 8, 8];
        let c_block = [self.rows, tm, self.tn()];
        let here = || core(at(i(0, 1)), at(i(1, 1)));
        let weights = if self.n_over_rows {
            stream("w", &cores, u8, &[BYTES], memory(&own), here())
        } else {
            let down = core(at(own.clone()), upto(self.rows));
            let w = stream("w", &[self.cols], u8, &[BYTES], shim(&own), down);
            deep(w, 2 * self.unit)
        };
        let mut channels = vec![
            stream("a_in", &[a], bf16, &a_in, shim(&a_col), memory(&a_col)),
            stream("a", &[a], bf16, &a_tile, memory(&a_col), a_to),
            weights,
            deep(stream("c", &cores, bf16, &c_tile, here(), memory(&own)), 1),
            stream(
                "c_out",
                &[self.cols],
                bf16,
                &c_block,
                memory(&own),
                shim(&own),
            ),
        ];
        if self.n_over_rows {
            let blocks = [self.rows, BYTES];
            let w_in = stream("w_in", &[self.cols], u8, &blocks, shim(&own), memory(&own));
            channels.push(w_in);
        }
        channels
    }

    fn stages(&self, machine: &Machine) -> Vec<Stage> {
        let (tm, tn) = (self.tm, self.tn());
        let bf16 = Element::Bf16;
        let own = || vec![i(0, 1)];
        let whole = |n: u64| pattern(constant(0), &[(n, 1)]);
        let depth = if self.hold_a { self.k } else { self.kl2 };
        let a_drain = StageEnd {
            repeat: small(if self.hold_a { self.n_tiles() } else { 1 }),
            // Tiles of 8 × 8 of a block [tm, depth], in columns.
            ..end(
                A,
                own(),
                pattern(constant(0), &[(depth / 8, 8), (tm, depth), (8, 1)]),
            )
        };
        let tile = tm * tn;
        let each = |channel: usize, walk: Pattern| StageEnd {
            each: small(self.rows),
            index: vec![i(0, 1), Affine::of(Var::Each, 1)],
            ..end(channel, Vec::new(), walk)
        };
        let c_tile = pattern(
            Affine::of(Var::Each, int(tile)),
            &[(tn / 8, 8), (tm, tn), (8, 1)],
        );
        let c_block = [self.rows, tm, tn];
        let a_ends = [end(A_IN, own(), whole(tm * depth)), a_drain];
        // Core by core: a descriptor waits for one core's tile, so the drain cannot alternate between
        // them. The shim's tasks arrange them.
        let c_ends = [each(C, c_tile), end(C_OUT, own(), whole(self.rows * tile))];
        let a_col = i(0, self.spread(machine));
        let mut stages = vec![
            Stage {
                copies: small(self.a_copies()),
                ..stage("a_l2", self.a_streams(), a_col, bf16, &[tm, depth], a_ends)
            },
            stage("c_l2", self.cols, i(0, 1), bf16, &c_block, c_ends),
        ];
        if self.n_over_rows {
            let part = pattern(Affine::of(Var::Each, int(BYTES)), &[(BYTES, 1)]);
            let ends = [end(W_IN, own(), whole(self.rows * BYTES)), each(W, part)];
            let blocks = [self.rows, BYTES];
            stages.push(Stage {
                copies: 2,
                ..stage("w_l2", self.cols, i(0, 1), Element::U8, &blocks, ends)
            });
        }
        stages
    }

    /// Tasks of a step over M: for every product and step over N one a stream.
    fn transfers(&self) -> Vec<Transfer> {
        let (k, kl2, tm, tn) = (self.k, self.kl2, self.tm, self.tn());
        let in_loop = |count: u64, transfer: Transfer| Transfer {
            loops: vec![constant(count)],
            ..transfer
        };
        let a_at = g(0, self.m_step() * k).plus(Var::Index(0), int(tm * k));
        let a =
            |dims: &[(u64, u64)]| transfer(self.a_streams(), 0, A_IN, pattern(a_at.clone(), dims));
        let panels = [(k / kl2, kl2), (tm, k), (kl2, 1)];
        let mut transfers = vec![if self.hold_a {
            a(&[(tm * k, 1)])
        } else {
            in_loop(self.n_tiles(), a(&panels))
        }];
        // Bytes of row blocks that are side by side, of a column's share of a step, and of a step.
        let stretch = across(k) * self.unit * BYTES;
        let share = self.column_blocks() / self.unit * stretch;
        for (part, &n) in self.n.iter().enumerate() {
            let at = i(0, share).plus(Var::Loop(0), int(self.cols * share));
            let (channel, walk) = if self.n_over_rows {
                let groups = self.rows / self.unit;
                let dims = [
                    (across(k), self.unit * BYTES),
                    (groups, stretch),
                    (self.unit * BYTES, 1),
                ];
                (W_IN, pattern(at, &dims))
            } else {
                (W, pattern(at, &[(stretch, 1)]))
            };
            let w = transfer(self.cols, 1 + part, channel, walk);
            transfers.push(in_loop(n / self.n_step(), w));
        }
        for (part, &n) in self.n.iter().enumerate() {
            // Rows of the array are further rows of C, or further columns.
            let (first, next) = if self.n_over_rows {
                (self.rows * tn, tn)
            } else {
                (tn, tm * n)
            };
            let dims = [(self.rows, next), (tm, n), (tn, 1)];
            let at = g(0, self.m_step() * n)
                .plus(Var::Index(0), int(first))
                .plus(Var::Loop(0), int(self.n_step()));
            let arg = 1 + self.n.len() + part;
            let c = transfer(self.cols, arg, C_OUT, pattern(at, &dims));
            transfers.push(in_loop(n / self.n_step(), c));
        }
        transfers
    }

    fn body(&self) -> Vec<Op> {
        let tile = self.tm * ROWS;
        let mut body: Vec<Op> = (0..self.blocks())
            .map(|r| call("zero_f32", &[tile], &[sums(r)]))
            .collect();
        let (full, rest) = (self.k / COLS, self.k % COLS);
        if full > 0 {
            body.push(repeat(full, self.one_block(COLS / self.tk)));
        }
        if rest > 0 {
            body.push(repeat(1, self.one_block(rest / self.tk)));
        }
        body.extend((0..self.blocks()).map(|r| self.drain(r)));
        vec![repeat(self.n_tiles(), body)]
    }

    /// Takes a block for each of the core's row blocks, and multiplies its first slices.
    fn one_block(&self, n_slices: u64) -> Vec<Op> {
        let blocks = || 0..self.blocks();
        let name = |r: u64| 1 + r as u8;
        let weights = || {
            if self.n_over_rows {
                vec![x(), y()]
            } else {
                vec![x()]
            }
        };
        let a = if self.n_over_rows { constant(0) } else { y() };
        let first = || vec![Affine::of(Var::Loop(2), int(self.tk))];
        let dims = [self.tm, ROWS, self.tk];
        let multiply = |r: u64| {
            let operands = [block(name(r)), B];
            [
                call_with(
                    "q4nx_expand_bf16",
                    &[self.tk],
                    &operands,
                    first(),
                    Vec::new(),
                ),
                call(MATMUL, &dims, &[block(0), B, sums(r)]),
            ]
        };
        let slice = (std::iter::once(get(A, vec![a], 0)))
            .chain(blocks().flat_map(multiply))
            .chain([free(0)]);
        let slices = repeat(n_slices, slice.collect());
        (blocks().map(|r| get(W, weights(), name(r))))
            .chain([slices])
            .chain(blocks().map(|r| free(name(r))))
            .collect()
    }

    fn drain(&self, r: u64) -> Op {
        let tile = self.tm * ROWS;
        let piece = tile / self.chunks;
        let first = vec![Affine::of(Var::Loop(1), int(piece))];
        let operands = [sums(r), block(0)];
        let cast = call_with(
            "cast_part_f32_bf16",
            &[piece, tile],
            &operands,
            first,
            Vec::new(),
        );
        repeat(self.chunks, vec![new(C, vec![x(), y()], 0), cast, put(0)])
    }
}
