//! Programs of the two cores of a pair: the lower one has the keys, the upper one the values.

use super::shape::FlowKvDims;
use super::{Of, SLICE, bundle};
use crate::mapping::cached_attention::AT_DIGITS;
use crate::mapping::parts::{
    block, call, call_with, free, get, int, local, new, put, repeat, small, x, y,
};
use millrace_npu::Element;
use millrace_xdna2_machine::program::{Affine, Condition, Herd, Local, Op, Operand, Var};

/// The core of keys: queries, position, maxima and denominators.
const Q: Operand = Operand::Local(0);
const AT: Operand = Operand::Local(1);
const STATE: Operand = Operand::Local(2);
/// The core of values: numerators, denominators.
const NUMERATORS: Operand = Operand::Local(3);
const L: Operand = Operand::Local(4);

impl FlowKvDims {
    pub(super) fn herd(&self) -> Herd {
        let roles = (0..self.col_heads).flat_map(|head| [self.keys(head), self.values(head)]);
        let mut roles: Vec<Vec<Op>> = roles.collect();
        let mut body = roles.pop().unwrap_or_default();
        while let Some(below) = roles.pop() {
            let row = int(roles.len() as u64 + 1);
            body = vec![Op::If {
                value: y() + -row,
                condition: Condition::Negative,
                then: below,
                otherwise: body,
            }];
        }
        Herd {
            name: "pairs".to_owned(),
            col: 0,
            row: 0,
            cols: small(self.cols()),
            rows: small(2 * self.col_heads),
            locals: self.locals(),
            body,
        }
    }

    fn locals(&self) -> Vec<Local> {
        let (bf16, f32) = (Element::Bf16, Element::F32);
        let (tq, d) = (self.tile_q(), self.of.head_dim);
        vec![
            local("q", bf16, &[tq * d]),
            local("at", bf16, &[AT_DIGITS as u64]),
            local("state", f32, &[tq / SLICE, 2, SLICE]),
            local("numerators", f32, &[tq * d]),
            local("l", f32, &[tq]),
        ]
    }

    fn keys(&self, head: u64) -> Vec<Op> {
        let (tq, lc, d) = (self.tile_q(), self.tile_kv, self.of.head_dim);
        let next = || get(bundle(head, Of::Keys), vec![x()], 0);
        let first_row = Affine::of(Var::Loop(0), int(lc));
        let scalars = vec![
            first_row,
            Affine::new(int(self.of.window)),
            Affine::new(int(self.of.max_tokens)),
        ];
        let operands = [Q, block(0), AT, block(1), block(2), STATE];
        let scores = call_with(
            "fkv_scores_bf16",
            &[tq, lc, d],
            &operands,
            scalars,
            vec![self.scale()],
        );
        let chunk = vec![
            next(),
            new(bundle(head, Of::F), vec![x()], 1),
            new(bundle(head, Of::C), vec![x()], 2),
            scores,
            free(0),
            put(1),
            put(2),
        ];
        vec![
            next(),
            call("fkv_take_bf16", &[tq, lc, d], &[block(0), Q]),
            free(0),
            next(),
            call("fkv_at_bf16", &[lc, d], &[block(0), AT]),
            free(0),
            call("fkv_init_f32", &[tq], &[STATE]),
            repeat(self.of.n_keys / lc, chunk),
        ]
    }

    fn values(&self, head: u64) -> Vec<Op> {
        let (tq, lc, d) = (self.tile_q(), self.tile_kv, self.of.head_dim);
        let next = |of: Of, name: u8| get(bundle(head, of), vec![x()], name);
        let operands = [block(0), block(1), block(2), NUMERATORS, L];
        let chunk = vec![
            next(Of::F, 0),
            next(Of::C, 1),
            next(Of::Values, 2),
            call("fkv_values_bf16", &[tq, lc, d], &operands),
            free(0),
            free(1),
            free(2),
        ];
        let finish = [NUMERATORS, L, block(0)];
        vec![
            call("zero_f32", &[tq * d], &[NUMERATORS]),
            repeat(self.of.n_keys / lc, chunk),
            new(bundle(head, Of::Y), vec![x()], 0),
            call("fkv_finish_bf16", &[self.of.group(), tq, d], &finish),
            put(0),
        ]
    }
}
