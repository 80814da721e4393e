//! One program an op: operands and result in HBM, so that each op can be checked by itself.
//!
//! The pieces are those of the blocks ([`embed`](super::embed) and the like), where activations stay in data memory between ops.

mod build;

pub(in crate::lower) use build::width_of;

use super::{Dims, LowerError, PassSizes, Target, TcpLowerOptions, TcpLowering, Weights};
use crate::Machine;

/// A kind of op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Rows of a table by token.
    Embed,
    /// RMSNorm of every row.
    Norm,
    /// RMSNorm of one row of a prompt.
    LastNorm,
    /// A product with a weight.
    Product(Role),
    /// RoPE of queries.
    RotateQueries,
    /// RoPE of keys.
    RotateKeys,
    /// Attention over the cache.
    Attend,
    /// `SiLU(gate) · up`.
    Gate,
    /// A sum.
    Add,
}

/// Role of a product in a model: the axes that it contracts and those of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// `D → h_kv, G, d_k`.
    Queries,
    /// `D → h_kv, d_k`: keys or values.
    Keys,
    /// `h_kv, G, d_k → D`.
    Output,
    /// `D → F`: gate or up.
    Up,
    /// `F → D`.
    Down,
    /// `D → V`.
    Head,
    /// `K → N`: any other.
    Other,
}

/// One row of [`KERNELS`].
#[derive(Clone, Copy, Debug)]
pub struct OpKernel {
    /// The kind.
    pub kind: OpKind,
    /// Its name.
    pub name: &'static str,
    /// Description of its computation.
    pub summary: &'static str,
    /// The axes whose sizes are its shape, in order.
    pub axes: &'static [&'static str],
}

const fn kernel(
    kind: OpKind,
    name: &'static str,
    summary: &'static str,
    axes: &'static [&'static str],
) -> OpKernel {
    OpKernel {
        kind,
        name,
        summary,
        axes,
    }
}

/// Every kind of op with its name and axes.
pub static KERNELS: [OpKernel; 15] = [
    kernel(
        OpKind::Embed,
        "embedding",
        "rows of a table by token",
        &["s_q", "V", "D"],
    ),
    kernel(OpKind::Norm, "norm", "RMSNorm of every row", &["s_q", "D"]),
    kernel(
        OpKind::LastNorm,
        "last-norm",
        "RMSNorm of one row of a prompt",
        &["s_in", "D"],
    ),
    kernel(
        OpKind::Product(Role::Queries),
        "q-projection",
        "queries from the stream",
        &["s_q", "D", "h_kv", "G", "d_k"],
    ),
    kernel(
        OpKind::Product(Role::Keys),
        "kv-projection",
        "keys or values from the stream",
        &["s_q", "D", "h_kv", "d_k"],
    ),
    kernel(
        OpKind::Product(Role::Output),
        "output-projection",
        "the stream of attention's results",
        &["s_q", "h_kv", "G", "d_k", "D"],
    ),
    kernel(
        OpKind::Product(Role::Up),
        "up-projection",
        "gate or up of the feed-forward",
        &["s_q", "D", "F"],
    ),
    kernel(
        OpKind::Product(Role::Down),
        "down-projection",
        "the stream from the feed-forward",
        &["s_q", "F", "D"],
    ),
    kernel(
        OpKind::Product(Role::Head),
        "head",
        "logits",
        &["s_q", "D", "V"],
    ),
    kernel(
        OpKind::Product(Role::Other),
        "product",
        "a product with any weight",
        &["s_q", "K", "N"],
    ),
    kernel(
        OpKind::RotateQueries,
        "q-rotation",
        "RoPE of queries by 2 × 2 matrices",
        &["s_q", "h_kv", "G", "d_k_prime"],
    ),
    kernel(
        OpKind::RotateKeys,
        "k-rotation",
        "RoPE of keys by 2 × 2 matrices",
        &["s_q", "h_kv", "d_k_prime"],
    ),
    kernel(
        OpKind::Attend,
        "attention",
        "scores, softmax and weighted sum over the cache",
        &["s_q", "h_kv", "G", "d_k", "s_k", "s_max"],
    ),
    kernel(
        OpKind::Gate,
        "gated-silu",
        "gate × sigmoid(gate) × up",
        &["s_q", "F"],
    ),
    kernel(OpKind::Add, "sum", "x + y", &["s_q", "D"]),
];

impl OpKernel {
    /// The kernel of that name.
    pub fn named(name: &str) -> Option<&'static OpKernel> {
        KERNELS.iter().find(|kernel| kernel.name == name)
    }

    /// The kernel of that kind.
    pub fn of(kind: OpKind) -> &'static OpKernel {
        let mut kernels = KERNELS.iter();
        // A test checks that every kind has its row.
        kernels
            .find(|kernel| kernel.kind == kind)
            .unwrap_or(&KERNELS[0])
    }
}

/// An op of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// The kind.
    pub kind: OpKind,
    /// Sizes of the axes of its [`OpKernel`], in that order.
    pub sizes: Vec<u64>,
    /// Epsilon of a norm.
    pub norm_eps: f32,
    /// Factor on attention's scores.
    pub attention_scale: f32,
    /// How a product's weight is stored and multiplied.
    pub weights: Weights,
}

/// A lowered op.
#[derive(Clone, Debug)]
pub struct LoweredOp {
    /// Its program, in which operands come first and the result last.
    pub lowered: TcpLowering,
    /// How it is cut, in words and numbers.
    pub cut: Vec<(&'static str, u64)>,
}

impl Op {
    /// The size of an axis; 1 where the op lacks it.
    pub fn size(&self, axis: &str) -> u64 {
        let axes = OpKernel::of(self.kind).axes.iter().zip(&self.sizes);
        let mut found = axes.filter(|(name, _)| **name == axis);
        found.next().map_or(1, |(_, size)| *size)
    }

    /// Multiplications and additions that it needs: two for each pair of a product; for other ops, one for each element
    /// and step.
    pub fn flops(&self) -> u64 {
        let all = || self.sizes.iter().product::<u64>();
        match self.kind {
            OpKind::Embed => 0,
            OpKind::Product(_) => 2 * all(),
            OpKind::Attend => 4 * all() / self.size("s_max").max(1),
            OpKind::RotateQueries | OpKind::RotateKeys => 6 * all(),
            OpKind::LastNorm => 4 * self.size("D"),
            OpKind::Norm | OpKind::Gate => 4 * all(),
            OpKind::Add => all(),
        }
    }

    /// The sizes of a model that its axes say; 1 where it has none.
    ///
    /// # Errors
    /// [`LowerError::Size`]: not one size an axis, or a size of 0.
    pub fn dims(&self) -> Result<Dims, LowerError> {
        let expected = OpKernel::of(self.kind).axes.len();
        if self.sizes.len() != expected || self.sizes.contains(&0) {
            return Err(LowerError::Size {
                what: "the number of sizes of an op".to_owned(),
                found: self.sizes.len() as u64,
                expected: format!("{expected}, none of them 0"),
            });
        }
        let head_dim = match self.kind {
            OpKind::RotateQueries | OpKind::RotateKeys => 2 * self.size("d_k_prime"),
            _ => self.size("d_k"),
        };
        Ok(Dims {
            d_model: self.size("D"),
            d_ff: self.size("F"),
            n_kv_heads: self.size("h_kv"),
            n_groups: self.size("G"),
            head_dim,
            vocab_size: self.size("V"),
            norm_eps: self.norm_eps,
            attention_scale: self.attention_scale,
        })
    }

    /// The pass that its axes say.
    pub fn call(&self) -> PassSizes {
        PassSizes {
            batch: 1,
            n_tokens: self.size("s_q"),
            n_keys: self.size("s_k"),
            n_cache: self.size("s_max"),
        }
    }

    /// Its program.
    ///
    /// # Errors
    /// [`LowerError`]: a size that the mappings do not take, more than data memory holds.
    pub fn lower(
        &self,
        name: &str,
        machine: &Machine,
        options: TcpLowerOptions,
    ) -> Result<LoweredOp, LowerError> {
        let dims = self.dims()?;
        let target = Target {
            machine,
            dims: &dims,
            options: TcpLowerOptions {
                weights: self.weights,
                ..options
            },
            call: self.call(),
        };
        build::op(self, name, target)
    }
}
