//! The logits: the last product, some rows at a time, and the ops that change it in place.

use millrace_graph::Op;
use millrace_kernels::matmul::{Activations, Multiplication, matmul};

use super::chunk::PassSink;
use super::ops::Ops;
use super::plan::{CpuPlan, Head};
use super::products::known_matrix;
use crate::Error;
use crate::ranks::{Communicator, RankWork, StepTimer};

/// Rows of logits computed at a time. A row is as wide as the vocabulary, so a whole chunk of rows
/// would be the largest buffer by far. More rows than this hardly make the head faster.
const HEAD_ROWS: usize = 128;

/// Logits of up to [`HEAD_ROWS`] rows.
pub(super) struct HeadBuffers {
    own: Vec<f32>,
    /// Assembled from the logits of all ranks; empty if there are no others.
    of_all: Vec<f32>,
}

impl HeadBuffers {
    pub(super) fn new(plan: &CpuPlan, vocab_size: usize, max_chunk: usize) -> HeadBuffers {
        let [own, of_all] = HeadBuffers::elems(plan, vocab_size, max_chunk);
        HeadBuffers {
            own: vec![0.0; own],
            of_all: vec![0.0; of_all],
        }
    }

    /// Elements of both; they saturate.
    pub(super) fn elems(plan: &CpuPlan, vocab_size: usize, max_chunk: usize) -> [usize; 2] {
        let elems = HEAD_ROWS.min(max_chunk).saturating_mul(vocab_size);
        match &plan.head {
            None => [0, 0],
            Some(Head { gather: None, .. }) => [elems, 0],
            Some(Head {
                gather: Some(_), ..
            }) => [elems, elems],
        }
    }
}

/// The head of a plan, with the context of its ops.
pub(super) struct HeadStep<'a> {
    pub(super) ops: Ops<'a>,
    pub(super) head: &'a Head,
}

impl HeadStep<'_> {
    /// Computes the logits of the rows `x` of its input, some rows at a time.
    pub(super) fn run(
        &self,
        x: &[f32],
        (buffers, activations): (&mut HeadBuffers, &mut Activations),
        mut ranks: Option<&mut Communicator>,
        sink: &mut dyn PassSink,
    ) -> Result<(), Error> {
        let HeadStep { ops, head } = self;
        let nodes = &ops.graph().nodes;
        let weight = known_matrix(ops.model, head.weight);
        let bias = head.bias.map(|bias| &ops.vectors[bias.0][..]);
        for x in x.chunks(HEAD_ROWS * head.x.width) {
            let rows = x.len() / weight.k();
            let out = &mut buffers.own[..rows * weight.n()];
            let product = Multiplication {
                weight,
                bias,
                out: &mut *out,
            };
            let timer = StepTimer::start(ranks.as_deref());
            matmul(ops.cpu, x, rows, activations, &mut [product]);
            timer.stop(ranks.as_deref_mut(), RankWork::Products);
            for node in &head.tail {
                ops.by_kernel(&nodes[*node].op, &[], &[], out);
            }
            let gather = head.gather.map(|node| &nodes[node].op);
            match (gather, ranks.as_deref_mut()) {
                (Some(Op::AllGather(op)), Some(ranks)) => {
                    let all = &mut buffers.of_all[..rows * op.piece_width()];
                    ranks.gather(op, rows, out, all)?;
                    sink.logits(all, op.piece_width());
                }
                _ => sink.logits(out, weight.n()),
            }
        }
        Ok(())
    }
}
