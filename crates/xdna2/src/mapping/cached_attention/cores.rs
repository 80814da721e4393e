//! Program of a core: its queries, tile by tile of keys, and the joining of states.

use super::{CASCADE, KV, Y};
use crate::mapping::cached_attention::shape::CachedAttentionDims;
use crate::mapping::parts::{
    block, call, call_with, free, get, int, local, new, put, repeat, x, y,
};
use millrace_npu::Element;
use millrace_xdna2_machine::program::{Affine, Condition, Local, Op, Operand, Var};

const Q: Operand = Operand::Local(0);
const AT: Operand = Operand::Local(1);
const P: Operand = Operand::Local(2);
const STATE: Operand = Operand::Local(3);

fn only_if(value: Affine, condition: Condition, then: Vec<Op>) -> Op {
    Op::If {
        value,
        condition,
        then,
        otherwise: Vec::new(),
    }
}

impl CachedAttentionDims {
    pub(super) fn locals(&self) -> Vec<Local> {
        let (bf16, f32) = (Element::Bf16, Element::F32);
        let (tq, d) = (self.tile_q(), self.head_dim);
        vec![
            local("q", bf16, &[tq * d]),
            local("at", bf16, &[super::AT_DIGITS as u64]),
            local("p", bf16, &[tq * self.tile_kv]),
            local("state", f32, &[tq / 8, self.slice_elements()]),
        ]
    }

    pub(super) fn body(&self) -> Vec<Op> {
        let (tq, tk, d) = (self.tile_q(), self.tile_kv, self.head_dim);
        let take = call_with(
            "ca_take_bf16",
            &[tq, tk, d],
            &[block(0), Q, AT],
            vec![Affine::of(Var::Loop(0), int(tk))],
            Vec::new(),
        );
        let next = || get(KV, vec![x(), y()], 0);
        let mut body = vec![
            repeat(self.prelude(), vec![next(), take, free(0)]),
            call("ca_init_f32", &[tq, d], &[STATE]),
            repeat(self.rounds(), vec![next(), self.attend(), free(0)]),
            repeat(tq / 8, self.join()),
        ];
        let dims = [self.tile_rows(), tq, d];
        let finish = |head: Affine| {
            vec![
                new(Y, vec![head], 0),
                call("ca_finish_bf16", &dims, &[STATE, block(0)]),
                put(0),
            ]
        };
        let bottom = match self.spread {
            1 => finish(x()),
            spread => (0..self.heads)
                .map(|head| self.at_column((head + 1) * spread - 1, finish(int(head).into())))
                .collect(),
        };
        body.push(only_if(y(), Condition::Zero, bottom));
        body
    }

    fn at_column(&self, col: u64, then: Vec<Op>) -> Op {
        only_if(x() + -int(col), Condition::Zero, then)
    }

    fn attend(&self) -> Op {
        let (tk, d) = (self.tile_kv, self.head_dim);
        let run = self.rows * tk;
        let first = Affine::of(Var::Loop(0), int(self.spread * run)).plus(Var::Y, int(tk));
        // Columns of a head count from 0: the part is taken modulo the head's columns.
        let part = Affine::of(Var::X, int(run));
        let token = Affine::of(Var::Grid(0), int(self.tile_tokens));
        let scalars = vec![first, part, token, Affine::new(int(self.window))];
        let dims = [self.tile_q(), tk, d, self.group(), self.spread * run];
        let operands = [Q, block(0), AT, P, STATE];
        let kernel = match self.n_queries {
            1 => "ca_attend_bf16.decode",
            _ => "ca_attend_bf16.chunk",
        };
        call_with(kernel, &dims, &operands, scalars, vec![self.scale()])
    }

    /// One slice of the states: down the column, then east along the head's columns.
    fn join(&self) -> Vec<Op> {
        let dims = [self.tile_q(), self.head_dim];
        let slice = || vec![Affine::of(Var::Loop(0), 1)];
        let receive = |channel: usize, index: Vec<Affine>| {
            let operands = [block(0), STATE];
            let constants = vec![self.scale()];
            vec![
                get(channel, index, 0),
                call_with("ca_join_f32", &dims, &operands, slice(), constants),
                free(0),
            ]
        };
        let send = |channel: usize, index: Vec<Affine>| {
            let operands = [STATE, block(1)];
            vec![
                new(channel, index, 1),
                call_with("ca_send_f32", &dims, &operands, slice(), Vec::new()),
                put(1),
            ]
        };
        let mut ops = Vec::new();
        if self.rows > 1 {
            let not_top = y() + (1 - int(self.rows));
            let from_above = receive(CASCADE, vec![x(), y()]);
            ops.push(only_if(not_top, Condition::Negative, from_above));
            let to_below = send(CASCADE, vec![x(), y() + -1]);
            ops.push(only_if(y(), Condition::NotZero, to_below));
        }
        let mut bottom = Vec::new();
        for (head, part) in (0..self.heads).flat_map(|h| (0..self.spread).map(move |j| (h, j))) {
            let index = |part: u64| vec![int(head).into(), int(part).into()];
            let mut then = Vec::new();
            if part > 0 {
                then.extend(receive(self.east(), index(part - 1)));
            }
            if part + 1 < self.spread {
                then.extend(send(self.east(), index(part)));
            }
            if !then.is_empty() {
                bottom.push(self.at_column(head * self.spread + part, then));
            }
        }
        if !bottom.is_empty() {
            ops.push(only_if(y(), Condition::Zero, bottom));
        }
        ops
    }
}
