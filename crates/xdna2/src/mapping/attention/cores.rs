//! Program of a core of the cascade, tile by tile of keys.

use super::{CASCADE, KEYS, VALUES};
use crate::mapping::attention::shape::AttentionDims;
use crate::mapping::parts::{
    block, call, call_with, constant, free, get, int, local, new, put, repeat, small, x, y,
};
use millrace_npu::Element;
use millrace_xdna2_machine::program::{Affine, Condition, Herd, Op, Operand, Var};

// Locals of a core; Q's tiles by chunks of the head dimension follow.
const S: Operand = Operand::Local(0);
const R: Operand = Operand::Local(1);
const STATE: Operand = Operand::Local(2);
const FIRST_Q: usize = 3;

impl AttentionDims {
    /// The cores of one of an iteration's heads: head `of` of those that share an unrolled head's keys.
    pub(super) fn herd(&self, head: u64, of: u64) -> Herd {
        let bf16 = Element::Bf16;
        let (tile, dv) = (self.tile_q, self.tile_dv);
        let mut locals = vec![
            local("s", bf16, &[tile, self.tile_kv]),
            local("r", bf16, &[tile]),
            local("state", bf16, &[self.state_elements()]),
        ];
        for chunk in 0..self.dk_chunks() {
            locals.push(local(&format!("q{chunk}"), bf16, &[tile, self.tile_dk]));
        }
        let base = head as usize * self.bundles();
        let mut body = vec![
            call("fa_init_bf16", &[tile, dv], &[STATE]),
            self.keep_q(base, of),
        ];
        let (each, more) = self.dealing();
        let tile_of_keys = self.tile_of_keys(base);
        body.push(match more {
            0 => repeat(each, tile_of_keys),
            _ => repeat(each + 1, vec![self.if_dealt(tile_of_keys)]),
        });
        body.extend(self.join(base, of));
        Herd {
            name: format!("head{}", head * self.heads + of),
            col: small(self.col0(head) + of * self.q_tiles),
            row: 0,
            cols: small(self.q_tiles),
            rows: small(self.stages),
            locals,
            body,
        }
    }

    /// Runs `then` if the stage has a tile of keys in this round of the deal.
    fn if_dealt(&self, then: Vec<Op>) -> Op {
        let n_tiles = self.n_keys / self.tile_kv;
        Op::If {
            value: self.turn(Var::Y).plus(Var::Loop(0), int(self.stages)) + -int(n_tiles),
            condition: Condition::Negative,
            then,
            otherwise: Vec::new(),
        }
    }

    /// Takes all blocks of queries off the stream and keeps the column's own tile.
    fn keep_q(&self, base: usize, of: u64) -> Op {
        let mut body = Vec::new();
        for chunk in 0..self.dk_chunks() {
            let to = Operand::Local(FIRST_Q + chunk as usize);
            body.push(get(base + KEYS, vec![y()], 0));
            body.push(self.if_own(to, of));
            body.push(free(0));
        }
        repeat(self.heads * self.q_blocks(), body)
    }

    /// Copies the column's tile out of a block that contains it.
    fn if_own(&self, to: Operand, of: u64) -> Op {
        let (tile, block_q) = (self.tile_q, self.tile_kv);
        let only_if = |value: Affine, condition: Condition, then: Op| Op::If {
            value,
            condition,
            then: vec![then],
            otherwise: Vec::new(),
        };
        if tile == block_q {
            let copy = call("copy_bf16", &[tile * self.tile_dk], &[block(0), to]);
            let ahead = x().plus(Var::Loop(0), -1) + int(of * self.q_tiles);
            return only_if(ahead, Condition::Zero, copy);
        }
        // First query of the tile within the block.
        let first = Affine::of(Var::X, int(tile)).plus(Var::Loop(0), -int(block_q))
            + int(of * self.iteration_q());
        let dims = [tile, block_q, self.tile_dk];
        let scalars = vec![first.clone()];
        let take = call_with("fa_take_bf16", &dims, &[block(0), to], scalars, Vec::new());
        let begins = only_if(first.clone() + -int(block_q), Condition::Negative, take);
        only_if(first, Condition::NotNegative, begins)
    }

    /// First query of the core's tile less the first key of its current tile of keys.
    fn lead(&self) -> (Affine, Affine) {
        let query = Affine::of(Var::Grid(0), int(self.iteration_q()));
        let query = query.plus(Var::X, int(self.tile_q));
        let tile = int(self.tile_kv);
        let mut key = Affine::of(Var::Loop(0), tile * int(self.stages));
        let turn = self.turn(Var::Y);
        key = key + turn.constant * tile;
        for (var, factor) in turn.terms {
            key = key.plus(var, factor * tile);
        }
        (query, key)
    }

    fn tile_of_keys(&self, base: usize) -> Vec<Op> {
        let (queries, keys, dv) = (self.tile_q, self.tile_kv, self.tile_dv);
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
            let mut scalars = vec![query_or_last.clone(), key.clone()];
            if self.window > 0 {
                scalars.push(constant(self.window));
            }
            let dims = [queries, keys, self.tile_dk];
            let scores = call_with(kernel, &dims, &[q, block(0), S], scalars, Vec::new());
            body.extend(self.unless_masked(vec![scores]));
            body.push(free(0));
        }
        let scale = vec![self.scale()];
        let dims = [queries, keys, dv];
        let softmax = call_with("fa_softmax_bf16", &dims, &[S, STATE, R], Vec::new(), scale);
        body.extend(self.unless_masked(vec![softmax]));
        body.push(get(base + VALUES, vec![y()], 1));
        let values = call("fa_values_bf16", &dims, &[S, block(1), R, STATE]);
        body.extend(self.unless_masked(vec![values]));
        body.push(free(1));
        body
    }

    /// With causal skipping, runs `then` only if some key is not beyond every query. Tiles of keys begin where tiles of
    /// queries do, so that holds if the first key is not beyond the first query. Blocks are taken all the same: their
    /// broadcast serves other columns. With a window, runs it only if the last key is within that of the first query.
    fn unless_masked(&self, then: Vec<Op>) -> Vec<Op> {
        if !self.causal_skip {
            return then;
        }
        let (query, key) = self.lead();
        let mut value = query + -key.constant;
        for (var, factor) in key.terms {
            value = value.plus(var, -factor);
        }
        let then = match self.window {
            0 => then,
            window => vec![Op::If {
                value: value.clone() + -int(window + self.tile_kv - 1),
                condition: Condition::Negative,
                then,
                otherwise: Vec::new(),
            }],
        };
        vec![Op::If {
            value,
            condition: Condition::NotNegative,
            then,
            otherwise: Vec::new(),
        }]
    }

    /// Joins the states down the cascade and sends the result from row 0.
    fn join(&self, base: usize, of: u64) -> Vec<Op> {
        let dims = [self.tile_q, self.tile_dv];
        let col = || x() + int(of * self.q_tiles);
        let scale = || vec![self.scale()];
        let finish = vec![
            new(base + self.y(), vec![col()], 1),
            call("fa_finish_bf16", &dims, &[STATE, block(1)]),
            put(1),
        ];
        if self.stages == 1 {
            return finish;
        }
        let above = vec![col(), y()];
        let below = || vec![col(), y() + -1];
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
