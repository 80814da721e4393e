//! Additions to the cores of projections that attend, too.

use super::super::dqp::{VECTOR, W, Y};
use super::super::{BYTES, ROWS};
use super::{AT, UNIT};
use crate::mapping::parts::{
    Checks, block, call_with, constant, free, get, local, new, put, repeat, x, y,
};
use crate::mapping::{BuildError, Rule, Tiling};
use millrace_npu::Element;
use millrace_xdna2_machine::program::{Affine, Local, Op, Operand, Var};

const SCORES: Operand = Operand::Local(2);
const STATE: Operand = Operand::Local(3);

/// Heads, and their layout on the cores.
#[derive(Clone, Copy, Debug)]
pub(in crate::mapping::q4nx) struct Heads {
    pub(in crate::mapping::q4nx) head_dim: u64,
    pub(in crate::mapping::q4nx) n_heads: u64,
    pub(in crate::mapping::q4nx) n_kv_heads: u64,
    /// Columns of a key-value head.
    pub(in crate::mapping::q4nx) spread: u64,
    /// Keys that a core has room for.
    pub(in crate::mapping::q4nx) keys: u64,
    /// Elements of the vector.
    pub(in crate::mapping::q4nx) total: u64,
}

/// Constants of a launch that attends; zeros in a projection.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::mapping::q4nx) struct Attend {
    /// Number of a core's blocks of keys, and of values; the first of them.
    pub(super) rounds: u64,
    pub(super) first: u64,
    pub(super) window: u64,
    /// Rows of the cache.
    pub(super) n_rows: u64,
}

impl Heads {
    /// Heads from the tiling of a projection that shares its cores with attention.
    pub(in crate::mapping::q4nx) fn of_projection(tiling: &Tiling) -> Option<Heads> {
        let n_kv_heads = tiling.get("n_kv_heads")?;
        Some(Heads {
            head_dim: tiling.get("head_dim")?,
            n_heads: tiling.get("n_heads")?,
            n_kv_heads,
            spread: tiling["cols"] / n_kv_heads.max(1),
            keys: tiling.get("keys")?,
            total: tiling["total"],
        })
    }

    pub(super) fn group(&self) -> u64 {
        self.n_heads / self.n_kv_heads.max(1)
    }

    /// Keys of a block.
    pub(super) fn rows(&self) -> u64 {
        BYTES / 2 / self.head_dim.max(1)
    }

    /// Pieces of a head in a core's part.
    pub(super) fn pieces(&self) -> u64 {
        2 * (self.head_dim / ROWS) + 1
    }

    /// Elements of a column's part.
    pub(super) fn part(&self) -> u64 {
        self.group() * self.pieces() * UNIT * ROWS
    }

    pub(super) fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    pub(in crate::mapping::q4nx) fn l1_bytes(&self) -> u64 {
        4 * self.group() * (self.keys + self.head_dim + 2)
    }

    pub(in crate::mapping::q4nx) fn check(
        &self,
        checks: Checks,
        cols: u64,
    ) -> Result<(), BuildError> {
        let kv_heads = ("key-value heads", self.n_kv_heads);
        checks.divides(("heads", self.n_heads), kv_heads)?;
        checks.divides(("cols", cols), kv_heads)?;
        checks.divides(("head_dim", self.head_dim), ("elements of a piece", ROWS))?;
        let (bytes, row) = (("a block's bytes", BYTES), 2 * self.head_dim);
        checks.divides(bytes, ("bytes of a key", row))?;
        checks.divides(("keys", self.keys), ("keys of a block", self.rows()))?;
        let needed = (self.n_heads + 2 * self.n_kv_heads) * self.head_dim + AT;
        checks.ensure(self.total >= needed, Rule::Range, || {
            format!(
                "total = {}; query, key, value and position have {needed}",
                self.total
            )
        })
    }

    pub(in crate::mapping::q4nx) fn locals(&self) -> Vec<Local> {
        let state = self.group() * (self.head_dim + 2);
        vec![
            local("scores", Element::F32, &[self.group(), self.keys]),
            local("state", Element::F32, &[state]),
        ]
    }

    /// The second half of a core's program.
    pub(in crate::mapping::q4nx) fn ops(&self, attend: Attend) -> Vec<Op> {
        let Attend {
            rounds,
            first,
            window,
            n_rows,
        } = attend;
        let attends = u64::from(rounds > 0);
        let dims = [
            self.total,
            self.head_dim,
            self.n_heads,
            self.n_kv_heads,
            self.spread,
            UNIT,
            self.keys,
        ];
        let here = || vec![x(), y()];
        let number = || Affine::of(Var::Loop(1), 1);
        let of = |kernel: &str, operands: &[Operand], scalars: Vec<Affine>, scale: Vec<f32>| {
            call_with(kernel, &dims, operands, scalars, scale)
        };
        let scores = of(
            "ta_scores_bf16",
            &[block(0), VECTOR, SCORES],
            vec![
                number(),
                constant(first),
                x(),
                y(),
                constant(window),
                constant(n_rows),
            ],
            Vec::new(),
        );
        let soften = of(
            "ta_soften_bf16",
            &[VECTOR, SCORES, STATE],
            vec![constant(rounds), constant(first), x(), y()],
            vec![self.scale()],
        );
        let values = of(
            "ta_values_bf16",
            &[block(0), SCORES, STATE],
            vec![number()],
            Vec::new(),
        );
        let give = of(
            "ta_give_bf16",
            &[STATE, block(1)],
            vec![number()],
            Vec::new(),
        );
        let pieces = self.group() * self.pieces();
        // One constant turns all of it off, so that those within need not be written for a projection.
        let all = vec![
            repeat(rounds, vec![get(W, here(), 0), scores, free(0)]),
            soften,
            repeat(rounds, vec![get(W, here(), 0), values, free(0)]),
            repeat(pieces, vec![new(Y, here(), 1), give, put(1)]),
        ];
        vec![repeat(attends, all)]
    }
}
