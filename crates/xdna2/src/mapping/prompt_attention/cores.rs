//! Program of a core: its own queries out of all, then every tile of keys.

use super::core_tile::{AT, P, Q, STATE};
use super::shape::PromptAttentionDims;
use super::{BUNDLES, KV, Y};
use crate::mapping::parts::{
    block, call, call_with, free, get, int, new, put, repeat, small, x, y,
};
use millrace_xdna2_machine::program::{Affine, Condition, Herd, Op, Var};

impl PromptAttentionDims {
    /// All cores: one herd, whose columns have a head each, because a herd more takes longer to load.
    pub(super) fn herd(&self) -> Herd {
        let mut body = self.body(self.heads - 1);
        for head in (1..self.heads).rev() {
            body = vec![Op::If {
                value: x() + -int(self.col0(head)),
                condition: Condition::Negative,
                then: self.body(head - 1),
                otherwise: body,
            }];
        }
        Herd {
            name: "cores".to_owned(),
            col: 0,
            row: 0,
            cols: small(self.heads * self.spread),
            rows: small(self.rows),
            locals: self.core.locals(),
            body,
        }
    }

    /// Program of the cores of a head.
    fn body(&self, head: u64) -> Vec<Op> {
        let base = head as usize * BUNDLES;
        let col = x() + -int(self.col0(head));
        let (tq, tk, d) = (self.core.tile_rows(), self.core.tile_kv, self.of.head_dim);
        let next = || get(base + KV, Vec::new(), 0);
        let finish = call_with(
            "ca_finish_bf16",
            &[self.core.y_rows, tq, d],
            &[STATE, block(0)],
            vec![Affine::of(Var::Loop(0), int(self.core.y_rows))],
            Vec::new(),
        );
        let send = vec![new(base + Y, vec![col, y()], 0), finish, put(0)];
        let blocks = repeat(tq / tk, vec![next(), self.take_if_own(head), free(0)]);
        vec![
            repeat(self.n_cores(), vec![blocks]),
            call("ca_init_f32", &[tq, d], &[STATE]),
            Op::Loop {
                count: self.band(tk),
                body: vec![next(), self.attend(head), free(0)],
            },
            repeat(self.core.y_parts(), send),
        ]
    }

    /// `factor` times the core's number among those of its head: which tile of the iteration's tokens it has.
    fn number(&self, head: u64, factor: i64) -> Affine {
        let first = Affine::new(-int(self.col0(head) * self.rows) * factor);
        let of_column = first.plus(Var::X, int(self.rows) * factor);
        of_column.plus(Var::Y, factor)
    }

    fn take_if_own(&self, head: u64) -> Op {
        let (tq, tk, d) = (self.core.tile_rows(), self.core.tile_kv, self.of.head_dim);
        let first = vec![Affine::of(Var::Loop(1), int(tk))];
        let operands = [block(0), Q, AT];
        let take = call_with("ca_take_bf16", &[tq, tk, d], &operands, first, Vec::new());
        Op::If {
            value: self.number(head, 1).plus(Var::Loop(0), -1),
            condition: Condition::Zero,
            then: vec![take],
            otherwise: Vec::new(),
        }
    }

    fn attend(&self, head: u64) -> Op {
        let (tk, d) = (self.core.tile_kv, self.of.head_dim);
        let tokens = self.iteration_tokens();
        let key = self.of.first_key(tokens, tk);
        let own = self.number(head, int(self.core.tile_tokens));
        let token = own + self.of.first_token(tokens);
        // The core's first token less the tile's first key, where the pass is the prompt's first.
        let lead = token.clone().plus(Var::Loop(0), -int(tk));
        let window = Affine::new(int(self.of.window));
        let scalars = vec![key, Affine::new(0), token, window];
        let dims = [self.core.tile_rows(), tk, d, self.of.group(), tk];
        let operands = [Q, block(0), AT, P, STATE];
        let scale = vec![1.0 / (d as f32).sqrt()];
        let attend = call_with("ca_attend_bf16.chunk", &dims, &operands, scalars, scale);
        let tile = [self.core.tile_tokens, tk];
        self.of.if_seen(lead, tile, attend)
    }
}
