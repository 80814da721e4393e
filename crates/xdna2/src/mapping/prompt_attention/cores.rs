//! What a core does: its own queries out of all, then every tile of keys.

use super::{BUNDLES, KV, Y};
use crate::mapping::cached_attention::AT_DIGITS;
use crate::mapping::parts::{
    block, call, call_with, free, get, int, local, new, put, repeat, small, x, y,
};
use crate::mapping::prompt_attention::shape::Tiled;
use millrace_npu::Element;
use millrace_xdna2_machine::program::{Affine, Condition, Herd, Local, Op, Operand, Var};

const Q: Operand = Operand::Local(0);
const AT: Operand = Operand::Local(1);
const P: Operand = Operand::Local(2);
const STATE: Operand = Operand::Local(3);

impl Tiled {
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
            locals: self.locals(),
            body,
        }
    }

    fn locals(&self) -> Vec<Local> {
        let (bf16, f32) = (Element::Bf16, Element::F32);
        let (tq, d) = (self.tile_rows(), self.head_dim);
        vec![
            local("q", bf16, &[tq * d]),
            local("at", bf16, &[AT_DIGITS as u64]),
            local("p", bf16, &[tq * self.tile_kv]),
            local("state", f32, &[tq / 8, self.slice_elements()]),
        ]
    }

    /// What the cores of a head do.
    fn body(&self, head: u64) -> Vec<Op> {
        let base = head as usize * BUNDLES;
        let col = x() + -int(self.col0(head));
        let (tq, tk, d) = (self.tile_rows(), self.tile_kv, self.head_dim);
        let next = || get(base + KV, Vec::new(), 0);
        let finish = call_with(
            "ca_finish_bf16",
            &[self.y_rows, tq, d],
            &[STATE, block(0)],
            vec![Affine::of(Var::Loop(0), int(self.y_rows))],
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
            repeat(self.y_parts(), send),
        ]
    }

    /// `factor` times the core's number among those of its head: which tile of the iteration's tokens it has.
    fn number(&self, head: u64, factor: i64) -> Affine {
        let first = Affine::new(-int(self.col0(head) * self.rows) * factor);
        let of_column = first.plus(Var::X, int(self.rows) * factor);
        of_column.plus(Var::Y, factor)
    }

    fn take_if_own(&self, head: u64) -> Op {
        let (tq, tk, d) = (self.tile_rows(), self.tile_kv, self.head_dim);
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
        let (tk, d) = (self.tile_kv, self.head_dim);
        let tokens = int(self.iteration_tokens());
        let mut key = Affine::of(Var::Loop(0), int(tk));
        if self.window > 0 && !self.own {
            key = key.plus(Var::Grid(0), tokens);
        }
        let own = self.number(head, int(self.tile_tokens));
        let token = own.plus(Var::Grid(0), tokens);
        // The core's first token less the tile's first key, where the pass is the prompt's first.
        let lead = token.clone().plus(Var::Loop(0), -int(tk));
        let scalars = vec![key, Affine::new(0), token, Affine::new(int(self.window))];
        let dims = [self.tile_rows(), tk, d, self.group(), tk];
        let operands = [Q, block(0), AT, P, STATE];
        let scale = vec![1.0 / (d as f32).sqrt()];
        let attend = call_with("ca_attend_bf16.chunk", &dims, &operands, scalars, scale);
        match self.own && !self.image {
            true => self.if_seen(lead, attend),
            false => attend,
        }
    }

    /// Only where some token of the core sees a key of the tile: not one that all come before, nor one that the windows
    /// of all have left behind. Such a tile would leave the state as it is. Without a window the second never holds: a
    /// core's program is the same with one and without, but for two constants, and so it is without a mask.
    fn if_seen(&self, lead: Affine, attend: Op) -> Op {
        let only_if = |value: Affine, condition: Condition, then: Op| Op::If {
            value,
            condition,
            then: vec![then],
            otherwise: Vec::new(),
        };
        let window = match self.window {
            0 => self.n_keys,
            window => window,
        };
        let beyond = lead.clone() + -int(window + self.tile_kv - 1);
        let within = only_if(beyond, Condition::Negative, attend);
        // Without a mask no key comes after a token.
        let none = if self.full { int(self.n_keys) } else { 0 };
        let last = lead + (int(self.tile_tokens) - 1 + none);
        only_if(last, Condition::NotNegative, within)
    }
}
