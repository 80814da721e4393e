//! Products with matrices of the checkpoint: linear layers, what adapters add to them, and experts.

use millrace_graph::{self as graph, ExpertLinear, Op};
use millrace_kernels::Cpu;
use millrace_kernels::matmul::{Activations, Multiplication, WeightMatrix, matmul};

use super::chunk::PassBuffers;
use super::experts::ExpertScratch;
use super::ops::{self, Ops};
use super::plan::{ExpertPart, LinearPart, Register};
use crate::load::LoadedModel;
use crate::lora::{self, AdaptedRows};

/// The weight as a matrix, of those that [`Executor::new`](super::Executor::new) has tried.
pub(super) fn known_matrix(model: &LoadedModel, weight: graph::WeightId) -> WeightMatrix<'_> {
    ops::matrix(model, weight).expect("every matrix was checked when the executor was made")
}

/// What adapters compute with, kept for its memory.
#[derive(Default)]
pub(super) struct AdapterScratch {
    /// Rows with adapters among those that the pass goes on with.
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
    let nodes = &ops.model.model().graph.nodes;
    let taken = parts
        .iter()
        .map(|part| std::mem::take(&mut buffers.0[part.out.buffer]));
    let mut taken: Vec<Vec<f32>> = taken.collect();
    let outs = taken.iter_mut().zip(parts);
    let mut products: Vec<(&ExpertLinear, &mut [f32])> = outs
        .filter_map(|(out, part)| match &nodes[part.node].op {
            Op::ExpertLinear(op) => Some((op, &mut out[..m * part.out.width])),
            _ => None,
        })
        .collect();
    let inputs = (buffers.rows(x, m), buffers.rows(choice, m));
    ops.expert_linears(inputs, scratch, &mut products);
    for (part, out) in parts.iter().zip(taken) {
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

    /// Adds what the rows' adapters say.
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
