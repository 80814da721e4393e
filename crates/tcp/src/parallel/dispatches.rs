//! Programs of a stage one after the other: each takes the activations that the one before gave.

use crate::timing::{Dispatch, TimedProgram};

/// Programs of a stage, with separate buffers except for the stream of activations.
#[derive(Default)]
pub(super) struct StageDispatches<'p> {
    pub(super) list: Vec<Dispatch<'p>>,
    n_buffers: usize,
    /// The buffer of the activations.
    x: Option<usize>,
}

impl<'p> StageDispatches<'p> {
    fn fresh(&mut self, program: &'p TimedProgram) -> Dispatch<'p> {
        let dispatch = Dispatch::alone(program, self.n_buffers);
        self.n_buffers += dispatch.buffers.len();
        dispatch
    }

    /// A program from the activations to the next; gives the buffer that it reads.
    pub(super) fn push(&mut self, program: &'p TimedProgram) -> usize {
        let mut dispatch = self.fresh(program);
        let from = self.x.unwrap_or(dispatch.buffers[0]);
        dispatch.buffers[0] = from;
        self.x = dispatch.buffers.last().copied();
        self.list.push(dispatch);
        from
    }

    /// Adds the sum over chips of the activations since the buffer `from`.
    pub(super) fn push_sum(
        &mut self,
        exchange: &'p TimedProgram,
        reduce: &'p TimedProgram,
        from: usize,
    ) {
        self.push(exchange);
        let mut summed = self.fresh(reduce);
        summed.buffers[0] = from;
        if let Some(sent) = self.list.last() {
            summed.buffers[1..=sent.buffers.len()].copy_from_slice(&sent.buffers);
        }
        self.x = summed.buffers.last().copied();
        self.list.push(summed);
    }
}
