//! The launch of a GEMM: channels, memory-tile buffers, shim tasks, cores.

use super::{Gemm, GemmDims, Path};
use crate::mapping::parts::{
    at, block, call, call_with, constant, core, deep, end, free, g, get, herd, i, int, launch,
    local, new, pattern, put, repeat, small, stage, stream, transfer, upto, x, y,
};
use millrace_npu::Element;
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::{
    Affine, Channel, GridOrder, Launch, Op, Operand, Pattern, Place, Stage, StageEnd, Transfer, Var,
};

// Channels of the launch, in this order.
const A_IN: usize = 0;
const A: usize = 1;
const B_IN: usize = 2;
const B: usize = 3;
const C: usize = 4;
const C_OUT: usize = 5;

impl Gemm {
    fn core_body(&self, p: &GemmDims) -> Vec<Op> {
        let tile = p.tm * p.tn;
        let sums = if self.keeps_sums() {
            Operand::Local(0)
        } else {
            block(0)
        };
        let step = vec![
            get(A, vec![x()], 1),
            get(B, vec![y()], 2),
            call(
                self.kernel(),
                &[p.tm, p.tn, p.tk],
                &[block(1), block(2), sums],
            ),
            free(1),
            free(2),
        ];
        let zero = call("zero_f32", &[tile], &[sums]);
        match self.path {
            Path::F32 | Path::FusedCast | Path::DirectF32 => vec![
                new(C, vec![x(), y()], 0),
                zero,
                repeat(p.k / p.tk, step),
                put(0),
            ],
            Path::Drain => [vec![zero, repeat(p.k / p.tk, step)], drain(p)].concat(),
            Path::Direct => {
                let l2_tile = vec![
                    repeat(p.kl2 / p.tk, step),
                    call("truncate_f32", &[tile], &[sums]),
                ];
                [vec![zero, repeat(p.k / p.kl2, l2_tile)], drain(p)].concat()
            }
        }
    }

    /// Computes C, or its f32 scratch.
    pub(super) fn gemm_launch(&self, p: &GemmDims, machine: &Machine) -> Launch {
        let grid = [p.m / (p.cols * p.tm), p.n / (p.rows * p.tn)];
        let mut launch = launch("gemm", &[0, 1, 2], &grid, GridOrder::Sequential);
        launch.channels = self.channels(p, machine);
        launch.stages = self.stages(p, machine);
        launch.transfers = self.transfers(p);
        let locals = if self.keeps_sums() {
            vec![local("sums", Element::F32, &[p.tm, p.tn])]
        } else {
            Vec::new()
        };
        let body = self.core_body(p);
        launch.herds = vec![herd("cores", p.cols, p.rows, locals, body)];
        launch
    }

    fn channels(&self, p: &GemmDims, machine: &Machine) -> Vec<Channel> {
        let b_col = i(0, p.b_step(machine));
        let (cols, rows) = (p.cols, p.rows);
        let c = self.c_element();
        let a_tile = [p.tk / 8, p.tm / 8, 8, 8];
        let (b_panel, b_tile) = if self.bt {
            ([p.tn, p.kl2], [p.tk / 8, p.tn / 8, 8, 8])
        } else {
            ([p.kl2, p.tn], [p.tn / 8, p.tk / 8, 8, 8])
        };
        let c_tile = [p.tn / 8 / p.chunks, p.tm / 8, 8, 8];
        let shim = |col: &Affine| Place::Shim(col.clone());
        let memory = |col: &Affine| Place::Memory(col.clone());
        let col = i(0, 1);
        let bf16 = Element::Bf16;
        let a_to = core(at(col.clone()), upto(rows));
        let b_to = core(upto(cols), at(i(0, 1)));
        let c_from = core(at(i(0, 1)), at(i(1, 1)));
        let c_block = [p.tm, rows * p.tn];
        vec![
            stream(
                "a_in",
                &[cols],
                bf16,
                &[p.tm, p.kl2],
                shim(&col),
                memory(&col),
            ),
            deep(
                stream("a", &[cols], bf16, &a_tile, memory(&col), a_to),
                p.l1_depth,
            ),
            stream(
                "b_in",
                &[rows],
                bf16,
                &b_panel,
                shim(&b_col),
                memory(&b_col),
            ),
            deep(
                stream("b", &[rows], bf16, &b_tile, memory(&b_col), b_to),
                p.l1_depth,
            ),
            deep(
                stream("c", &[cols, rows], c, &c_tile, c_from, memory(&col)),
                1,
            ),
            stream("c_out", &[cols], c, &c_block, memory(&col), shim(&col)),
        ]
    }

    fn stages(&self, p: &GemmDims, machine: &Machine) -> Vec<Stage> {
        let (tm, tn, tk, kl2) = (p.tm, p.tn, p.tk, p.kl2);
        let zero = || constant(0);
        let a_fill = end(A_IN, vec![i(0, 1)], pattern(zero(), &[(tm * kl2, 1)]));
        let a_drain = pattern(zero(), &[(kl2 / 8, 8), (tm, kl2), (8, 1)]);
        let b_fill = end(B_IN, vec![i(0, 1)], pattern(zero(), &[(kl2 * tn, 1)]));
        let (b_block, b_drain) = if self.bt {
            let drain = [(kl2 / 8, 8), (tn, kl2), (8, 1)];
            ([tn, kl2], pattern(zero(), &drain))
        } else {
            let drain = [(kl2 / tk, tk * tn), (tn / 8, 8), (tk, tn), (8, 1)];
            ([kl2, tn], pattern(zero(), &drain))
        };
        let c_fill = StageEnd {
            each: small(p.rows),
            channel: C,
            index: vec![i(0, 1), Affine::of(Var::Each, 1)],
            pattern: pattern(
                Affine::of(Var::Each, int(tm * tn)),
                &[(tn / 8, 8), (tm, tn), (8, 1)],
            ),
            repeat: 1,
        };
        let c_drain = pattern(zero(), &[(tm, tn), (p.rows, tm * tn), (tn, 1)]);
        let bf16 = Element::Bf16;
        let b_col = i(0, p.b_step(machine));
        let a_ends = [a_fill, end(A, vec![i(0, 1)], a_drain)];
        let b_ends = [b_fill, end(B, vec![i(0, 1)], b_drain)];
        let c_ends = [c_fill, end(C_OUT, vec![i(0, 1)], c_drain)];
        let mut a = stage("a_l2", p.cols, i(0, 1), bf16, &[tm, kl2], a_ends);
        let mut b = stage("b_l2", p.rows, b_col, bf16, &b_block, b_ends);
        let c_block = [p.rows, tm, tn];
        let c = stage("c_l2", p.cols, i(0, 1), self.c_element(), &c_block, c_ends);
        a.copies = small(p.l2_copies);
        b.copies = small(p.l2_copies);
        vec![a, b, c]
    }

    /// Shim tasks of one launch iteration: one a stream.
    fn transfers(&self, p: &GemmDims) -> Vec<Transfer> {
        let (m_step, n_step) = (p.cols * p.tm, p.rows * p.tn);
        let a_at = g(0, m_step * p.k).plus(Var::Index(0), int(p.tm * p.k));
        let c_at = g(0, m_step * p.n)
            .plus(Var::Grid(1), int(n_step))
            .plus(Var::Index(0), int(p.tm * p.n));
        let a = pattern(a_at, &[(p.k / p.kl2, p.kl2), (p.tm, p.k), (p.kl2, 1)]);
        let b = self.b_walk(p);
        let c = pattern(c_at, &[(p.tm, p.n), (p.rows, p.tn), (p.tn, 1)]);
        vec![
            transfer(p.cols, 0, A_IN, a),
            transfer(p.rows, 1, B_IN, b),
            transfer(p.cols, 2, C_OUT, c),
        ]
    }

    /// Walk of a row of cores over B.
    fn b_walk(&self, p: &GemmDims) -> Pattern {
        let n_step = p.rows * p.tn;
        if self.bt {
            let at = g(1, n_step * p.k).plus(Var::Index(0), int(p.tn * p.k));
            return pattern(at, &[(p.k / p.kl2, p.kl2), (p.tn, p.k), (p.kl2, 1)]);
        }
        let at = g(1, n_step).plus(Var::Index(0), int(p.tn));
        // The first two dimensions could be joined. MLIR-AIR keeps one a block, so `tile_k_l2 * n` has
        // to fit a stride: the ceiling its registry reports for wide N.
        let dims =
            [(p.k / p.kl2, p.kl2 * p.n), (p.kl2, p.n), (p.tn, 1)].map(|(s, d)| (int(s), int(d)));
        Pattern::new(at, &dims[usize::from(p.k == p.kl2)..])
    }
}

/// Sends the sums as bf16, in pieces: a piece is some of the tile's 8-column groups.
fn drain(p: &GemmDims) -> Vec<Op> {
    let piece = p.tm * p.tn / p.chunks;
    let offset = Affine::of(Var::Loop(0), int(piece));
    let operands = [Operand::Local(0), block(0)];
    let cast = if p.chunks == 1 {
        call("cast_f32_bf16", &[piece], &operands)
    } else {
        let dims = [piece, p.tm * p.tn];
        call_with(
            "cast_part_f32_bf16",
            &dims,
            &operands,
            vec![offset],
            Vec::new(),
        )
    };
    let body = vec![new(C, vec![x(), y()], 0), cast, put(0)];
    if p.chunks == 1 {
        body
    } else {
        vec![repeat(p.chunks, body)]
    }
}
