//! The table of ops that have a fast kernel besides their definition. A new kernel needs only a row: generic code
//! calls [`has_kernel`] and [`Ops::by_kernel`], which are generated from it.

use super::ops::Ops;
use millrace_graph::{self as graph, Glu, LayerNorm, Op, RmsNorm, Xielu};
use millrace_kernels as kernels;

/// Arguments of a kernel.
struct KernelCall<'a> {
    /// Positions of the rows.
    positions: &'a [u32],
    /// The second input of an op that works in place, otherwise the first.
    other: &'a [f32],
    /// The result; where the op works in place it holds the input that is overwritten.
    out: &'a mut [f32],
}

/// Makes [`has_kernel`] and [`Ops::by_kernel`] of the rows: an op's pattern, and its kernel on `$ops` and `$call`.
macro_rules! op_kernels {
    (|$ops:ident, $call:ident| $($op:pat => $kernel:expr,)+) => {
        /// Whether a kernel computes the op, row by row, in place where its definition allows it.
        #[allow(unused_variables)] // Rows name what their kernels read.
        pub(crate) fn has_kernel(op: &Op) -> bool {
            match op {
                $($op => true,)+
                _ => false,
            }
        }

        impl Ops<'_> {
            /// Computes an op that [has a kernel](has_kernel), over all rows. If it works in place, `out` holds
            /// the input that it overwrites, and `other` is its second; otherwise `other` is its first.
            pub(crate) fn by_kernel(
                &self,
                op: &Op,
                positions: &[u32],
                other: &[f32],
                out: &mut [f32],
            ) {
                let $ops = self;
                let $call = KernelCall { positions, other, out };
                match op {
                    $($op => $kernel,)+
                    op => unreachable!("{} has no row in the table of kernels", op.name()),
                }
            }
        }
    };
}

op_kernels! { |ops, call|
    Op::RmsNorm(RmsNorm { weight, eps, offset, group }) => {
        let weight = &ops.vectors[weight.0];
        kernels::rms_norm(ops.cpu, call.other, *group, weight, *eps, *offset, call.out);
    },
    // Without a weight it goes by its definition.
    Op::LayerNorm(LayerNorm { weight: Some(weight), bias, eps, group }) => {
        let weight = &ops.vectors[weight.0];
        let bias = bias.map_or(&[][..], |bias| &ops.vectors[bias.0]);
        kernels::layer_norm(ops.cpu, call.other, *group, (weight, bias), *eps, call.out);
    },
    Op::Rope(op) => {
        let table = &ops.ropes[op.rope.0];
        ops.planes.rotate(ops.cpu, op, (table, call.positions), call.out);
    },
    Op::Glu(Glu { clamp: Some(clamp), .. }) => {
        kernels::glu_clamped(ops.cpu, (clamp.alpha, clamp.limit), call.out, call.other);
    },
    Op::Glu(op) => kernels::glu(ops.cpu, activation(op.activation), call.out, call.other),
    Op::Activate(op) => kernels::activate(ops.cpu, activation(op.activation), call.out),
    Op::Xielu(Xielu { square, exponential, linear, bound }) => {
        kernels::xielu(ops.cpu, [*square, *exponential, *linear, *bound], call.out);
    },
    Op::Add(_) => kernels::add(ops.cpu, call.out, call.other),
    Op::Multiply(_) => kernels::multiply(ops.cpu, call.out, call.other),
    Op::SliceHeads(op) => {
        let head_dim = call.other.len() * op.range.len() / call.out.len().max(1);
        kernels::slice_heads(ops.cpu, call.other, head_dim, op.range.clone(), call.out);
    },
    Op::Scale(op) => kernels::scale(ops.cpu, call.out, op.factor),
    Op::ScaleByWeight(op) => kernels::scale(ops.cpu, call.out, ops.vectors[op.weight.0][0]),
    Op::Softcap(op) => kernels::softcap(ops.cpu, call.out, op.cap),
}

/// The kernels' form of an activation.
fn activation(activation: graph::Activation) -> kernels::Activation {
    match activation {
        graph::Activation::Silu => kernels::Activation::Silu,
        graph::Activation::GeluTanh => kernels::Activation::GeluTanh,
        graph::Activation::Gelu => kernels::Activation::Gelu,
        graph::Activation::Sigmoid => kernels::Activation::Sigmoid,
        graph::Activation::Relu => kernels::Activation::Relu,
        graph::Activation::ReluSquared => kernels::Activation::ReluSquared,
    }
}
