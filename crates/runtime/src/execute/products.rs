//! Products with matrices of the checkpoint: linear layers, the contributions of adapters to them, and experts.

use millrace_graph::{self as graph, MatrixProduct};
use millrace_kernels::Cpu;
use millrace_kernels::matmul::{Activations, Multiplication, WeightMatrix, matmul};

use super::chunk::PassBuffers;
use super::experts::ExpertScratch;
use super::ops::{self, Ops};
use super::plan::{ExpertPart, LinearPart, Register};
use crate::load::LoadedModel;
use crate::lora::{self, AdaptedRows};

/// The weight as a matrix that [`Executor::new`](super::Executor::new) has validated.
pub(super) fn known_matrix(model: &LoadedModel, weight: graph::WeightId) -> WeightMatrix<'_> {
    ops::matrix(model, weight).expect("every matrix was checked when the executor was made")
}

/// Scratch of adapters, kept for its memory.
#[derive(Default)]
pub(super) struct AdapterScratch {
    /// Rows with adapters among the rows that are still computed.
    pub(super) adapted: Vec<AdaptedRows>,
    inner: Vec<f32>,
}

/// The products of one step of experts.
pub(super) fn experts(
    ops: Ops<'_>,
    parts: &[ExpertPart],
    (x, choice, m): (Register, Register, usize),
    buffers: &mut PassBuffers,
    scratch: &mut ExpertScratch,
) {
    // Arrays, not a vector: a decode step allocates nothing.
    match parts {
        [a] => expert_parts(ops, [a], (x, choice, m), buffers, scratch),
        [a, b] => expert_parts(ops, [a, b], (x, choice, m), buffers, scratch),
        [a, b, c] => expert_parts(ops, [a, b, c], (x, choice, m), buffers, scratch),
        more => more
            .iter()
            .for_each(|part| expert_parts(ops, [part], (x, choice, m), buffers, scratch)),
    }
}

fn expert_parts<const N: usize>(
    ops: Ops<'_>,
    parts: [&ExpertPart; N],
    (x, choice, m): (Register, Register, usize),
    buffers: &mut PassBuffers,
    scratch: &mut ExpertScratch,
) {
    let nodes = &ops.model.model().graph.nodes;
    let mut outs = parts.map(|part| std::mem::take(&mut buffers.0[part.out.buffer]));
    let mut of_parts = parts.into_iter();
    let products = outs.each_mut().map(|out| {
        let part = of_parts.next().expect("as many parts as buffers");
        let Some(MatrixProduct::Chosen(op)) = nodes[part.node].op.product() else {
            unreachable!("the plan makes such steps of products of experts alone");
        };
        (op, &mut out[..m * part.out.width])
    });
    let inputs = (buffers.rows(x, m), buffers.rows(choice, m));
    ops.expert_linears(inputs, scratch, products);
    for (part, out) in parts.into_iter().zip(outs) {
        buffers.0[part.out.buffer] = out;
    }
}

/// The linear layers of one step.
pub(super) struct Linears<'a> {
    pub(super) model: &'a LoadedModel,
    pub(super) vectors: &'a [Vec<f32>],
    pub(super) x: Register,
    pub(super) m: usize,
}

impl Linears<'_> {
    pub(super) fn run(
        &self,
        cpu: &Cpu,
        parts: &[LinearPart],
        buffers: &mut PassBuffers,
        act: &mut Activations,
    ) {
        // Arrays, not a vector: a decode step allocates nothing.
        match parts {
            [a] => self.run_parts(cpu, [a], buffers, act),
            [a, b] => self.run_parts(cpu, [a, b], buffers, act),
            [a, b, c] => self.run_parts(cpu, [a, b, c], buffers, act),
            more => more
                .iter()
                .for_each(|part| self.run_parts(cpu, [part], buffers, act)),
        }
    }

    /// Adds the contributions of the rows' adapters.
    pub(super) fn adapt(
        &self,
        cpu: &Cpu,
        parts: &[LinearPart],
        buffers: &mut PassBuffers,
        scratch: &mut AdapterScratch,
    ) {
        let AdapterScratch { adapted, inner } = scratch;
        if adapted.is_empty() {
            return;
        }
        for part in parts {
            buffers.write(part.out, self.m, |buffers, out| {
                let rows = (buffers.rows(self.x, self.m), out);
                lora::add(cpu, adapted, part.weight, rows, self.m, inner);
            });
        }
    }

    fn run_parts<const N: usize>(
        &self,
        cpu: &Cpu,
        parts: [&LinearPart; N],
        buffers: &mut PassBuffers,
        activations: &mut Activations,
    ) {
        let mut outs = parts.map(|part| std::mem::take(&mut buffers.0[part.out.buffer]));
        let mut i = 0;
        let mut products = outs.each_mut().map(|out| {
            let part = parts[i];
            i += 1;
            Multiplication {
                weight: known_matrix(self.model, part.weight),
                bias: part.bias.map(|bias| &self.vectors[bias.0][..]),
                out: &mut out[..self.m * part.out.width],
            }
        });
        matmul(
            cpu,
            buffers.rows(self.x, self.m),
            self.m,
            activations,
            &mut products,
        );
        for (part, out) in parts.into_iter().zip(outs) {
            buffers.0[part.out.buffer] = out;
        }
    }
}
