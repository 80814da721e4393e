//! Program of a core: its own queries out of the chunk's, then every tile of keys and of values.

use super::shape::FlowQkvDims;
use super::{Y, keys_of, values_of};
use crate::mapping::parts::{
    block, call, call_with, free, get, int, new, put, repeat, small, x, y,
};
use crate::mapping::prompt_attention::{AT, P, Q, STATE};
use millrace_xdna2_machine::program::{Affine, Condition, Herd, Op, Var};

/// Blocks of a core: keys, values; results come after both are freed.
const K: u8 = 0;
const V: u8 = 1;

impl FlowQkvDims {
    pub(super) fn herd(&self) -> Herd {
        Herd {
            name: "cores".to_owned(),
            col: 0,
            row: 0,
            cols: small(self.cols()),
            rows: small(self.rows),
            locals: self.core.locals(),
            body: self.of_chunk(),
        }
    }

    /// The cores of all chunks. Where a chunk is a column, its number is the column's.
    fn of_chunk(&self) -> Vec<Op> {
        if self.chunk_cols() == 1 {
            return self.of_head(&x());
        }
        let numbered = |chunk: u64| self.of_head(&Affine::new(int(chunk)));
        let mut body = numbered(self.chunks - 1);
        for chunk in (1..self.chunks).rev() {
            body = vec![Op::If {
                value: x() + -int(chunk * self.chunk_cols()),
                condition: Condition::Negative,
                then: numbered(chunk - 1),
                otherwise: body,
            }];
        }
        body
    }

    /// The cores of a column's heads.
    fn of_head(&self, chunk: &Affine) -> Vec<Op> {
        let mut body = self.body(chunk, self.col_heads - 1);
        for head in (1..self.col_heads).rev() {
            body = vec![Op::If {
                value: y() + -int(head * self.cores()),
                condition: Condition::Negative,
                then: self.body(chunk, head - 1),
                otherwise: body,
            }];
        }
        body
    }

    fn body(&self, chunk: &Affine, head: u64) -> Vec<Op> {
        let (tq, tk, d) = (self.core.tile_rows(), self.core.tile_kv, self.of.head_dim);
        let tile = |op: Op| {
            vec![
                get(keys_of(head), vec![x()], K),
                get(values_of(head), vec![x()], V),
                op,
                free(K),
                free(V),
            ]
        };
        let finish = call_with(
            "ca_finish_bf16",
            &[self.core.y_rows, tq, d],
            &[STATE, block(0)],
            vec![Affine::of(Var::Loop(0), int(self.core.y_rows))],
            Vec::new(),
        );
        let send = vec![new(Y, vec![x(), y()], 0), finish, put(0)];
        let select = repeat(tq / tk, tile(self.take_if_own(head)));
        vec![
            repeat(self.cores(), vec![select]),
            call("ca_init_f32", &[tq, d], &[STATE]),
            Op::Loop {
                count: self.band(tk),
                body: tile(self.attend(chunk, head)),
            },
            repeat(self.core.y_parts(), send),
        ]
    }

    /// The core's number among those of its head.
    fn number(&self, head: u64) -> Affine {
        y() + -int(head * self.cores())
    }

    /// Queries of a chunk come core by core.
    fn take_if_own(&self, head: u64) -> Op {
        let (tq, tk, d) = (self.core.tile_rows(), self.core.tile_kv, self.of.head_dim);
        let first = vec![Affine::of(Var::Loop(1), int(tk))];
        let operands = [block(K), block(V), Q, AT];
        let take = call_with("fq_take_bf16", &[tq, tk, d], &operands, first, Vec::new());
        Op::If {
            value: self.number(head).plus(Var::Loop(0), -1),
            condition: Condition::Zero,
            then: vec![take],
            otherwise: Vec::new(),
        }
    }

    fn attend(&self, chunk: &Affine, head: u64) -> Op {
        let (tk, d) = (self.core.tile_kv, self.of.head_dim);
        let tokens = self.iteration_tokens();
        let own = self.number(head) * int(self.core.tile_tokens);
        let token = own + chunk.clone() * int(self.chunk_tokens());
        let token = token + self.of.first_token(tokens);
        let lead = token.clone().plus(Var::Loop(0), -int(tk));
        let key = self.of.first_key(tokens, tk);
        let window = Affine::new(int(self.of.window));
        let scalars = vec![key, Affine::new(0), token, window];
        let dims = [self.core.tile_rows(), tk, d, self.of.group(), tk];
        let operands = [Q, block(K), block(V), AT, P, STATE];
        let scale = vec![1.0 / (d as f32).sqrt()];
        let attend = call_with("fq_attend_bf16", &dims, &operands, scalars, scale);
        self.of.if_seen(lead, [self.core.tile_tokens, tk], attend)
    }
}
