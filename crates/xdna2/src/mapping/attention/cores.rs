//! What a core of the cascade does, tile by tile of keys.

use super::{CASCADE, KEYS, VALUES};
use crate::mapping::attention::shape::Plan;
use crate::mapping::parts::{
    block, call, call_with, constant, free, get, int, local, new, put, repeat, small, x, y,
};
use crate::program::{Affine, Condition, Herd, Op, Operand, Var};
use millrace_npu::Element;

// Locals of a core; Q's tiles by chunks of the head dimension follow.
const S: Operand = Operand::Local(0);
const R: Operand = Operand::Local(1);
const STATE: Operand = Operand::Local(2);
const FIRST_Q: usize = 3;

impl Plan {
    /// The cores of one of an iteration's heads.
    pub(super) fn herd(&self, head: u64) -> Herd {
        let bf16 = Element::Bf16;
        let (tile, dv) = (self.tile_kv, self.tile_dv);
        let mut locals = vec![
            local("s", bf16, &[tile, tile]),
            local("r", bf16, &[tile]),
            local("state", bf16, &[self.state_elements()]),
        ];
        for chunk in 0..self.dk_chunks() {
            locals.push(local(&format!("q{chunk}"), bf16, &[tile, self.tile_dk]));
        }
        let base = head as usize * self.bundles();
        let mut body = vec![
            call("fa_init_bf16", &[tile, dv], &[STATE]),
            self.keep_q(base),
        ];
        let per_stage = self.n_keys / (tile * self.stages);
        body.push(repeat(per_stage, self.tile_of_keys(base)));
        body.extend(self.join(base));
        Herd {
            name: format!("head{head}"),
            col: small(self.col0(head)),
            row: 0,
            cols: small(self.q_tiles),
            rows: small(self.stages),
            locals,
            body,
        }
    }

    /// Takes all tiles of queries off the stream and keeps the column's own.
    fn keep_q(&self, base: usize) -> Op {
        let size = [self.tile_kv * self.tile_dk];
        let mut body = Vec::new();
        for chunk in 0..self.dk_chunks() {
            let to = Operand::Local(FIRST_Q + chunk as usize);
            body.push(get(base + KEYS, vec![y()], 0));
            body.push(Op::If {
                value: x().plus(Var::Loop(0), -1),
                condition: Condition::Zero,
                then: vec![call("copy_bf16", &size, &[block(0), to])],
                otherwise: Vec::new(),
            });
            body.push(free(0));
        }
        repeat(self.q_tiles, body)
    }

    /// First query of the core's tile less the first key of its current tile of keys.
    fn lead(&self) -> (Affine, Affine) {
        let tile = int(self.tile_kv);
        let query = Affine::of(Var::Grid(0), int(self.tile_q())).plus(Var::X, tile);
        let key = Affine::of(Var::Loop(0), tile * int(self.stages)).plus(Var::Y, tile);
        (query, key)
    }

    fn tile_of_keys(&self, base: usize) -> Vec<Op> {
        let (tile, dv) = (self.tile_kv, self.tile_dv);
        let (query, key) = self.lead();
        // Without a mask every query comes after every key.
        let query_or_last = if self.causal {
            query.clone()
        } else {
            constant(self.n_keys)
        };
        let mut body = Vec::new();
        for chunk in 0..self.dk_chunks() {
            let kernel = if chunk == 0 {
                "fa_scores_bf16"
            } else {
                "fa_scores_add_bf16"
            };
            let q = Operand::Local(FIRST_Q + chunk as usize);
            body.push(get(base + KEYS, vec![y()], 0));
            let scalars = vec![query_or_last.clone(), key.clone()];
            let dims = [tile, tile, self.tile_dk];
            let scores = call_with(kernel, &dims, &[q, block(0), S], scalars, Vec::new());
            body.extend(self.unless_masked(vec![scores]));
            body.push(free(0));
        }
        let scale = vec![self.scale()];
        let dims = [tile, tile, dv];
        let softmax = call_with("fa_softmax_bf16", &dims, &[S, STATE, R], Vec::new(), scale);
        body.extend(self.unless_masked(vec![softmax]));
        body.push(get(base + VALUES, vec![y()], 1));
        let values = call("fa_values_bf16", &dims, &[S, block(1), R, STATE]);
        body.extend(self.unless_masked(vec![values]));
        body.push(free(1));
        body
    }

    /// With causal skipping, only where some key is not beyond every query. Blocks are taken all
    /// the same: their broadcast serves other columns.
    fn unless_masked(&self, then: Vec<Op>) -> Vec<Op> {
        if !self.causal_skip {
            return then;
        }
        let (query, key) = self.lead();
        let mut value = query;
        for (var, factor) in key.terms {
            value = value.plus(var, -factor);
        }
        vec![Op::If {
            value,
            condition: Condition::NotNegative,
            then,
            otherwise: Vec::new(),
        }]
    }

    /// Joins the states down the cascade and sends the result from row 0.
    fn join(&self, base: usize) -> Vec<Op> {
        let dims = [self.tile_kv, self.tile_dv];
        let scale = || vec![self.scale()];
        let finish = vec![
            new(base + self.y(), vec![x()], 1),
            call("fa_finish_bf16", &dims, &[STATE, block(1)]),
            put(1),
        ];
        if self.stages == 1 {
            return finish;
        }
        let above = vec![x(), y()];
        let below = || vec![x(), y() + -1];
        let send = |state: Op| vec![new(base + CASCADE, below(), 1), state, put(1)];
        let top_state = call("copy_bf16", &[self.state_elements()], &[STATE, block(1)]);
        let operands = [block(0), STATE, block(1)];
        let merge = call_with("fa_merge_bf16", &dims, &operands, Vec::new(), scale());
        let join = call_with(
            "fa_join_bf16",
            &dims,
            &[block(0), STATE],
            Vec::new(),
            scale(),
        );
        let last = [vec![join], finish].concat();
        let not_top = vec![
            get(base + CASCADE, above, 0),
            Op::If {
                value: y(),
                condition: Condition::Zero,
                then: last,
                otherwise: send(merge),
            },
            free(0),
        ];
        vec![Op::If {
            value: y() + (1 - int(self.stages)),
            condition: Condition::Zero,
            then: send(top_state),
            otherwise: not_top,
        }]
    }
}
