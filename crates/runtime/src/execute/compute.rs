//! A step of one op: by its kernel, or by the graph's definition.

use millrace_graph::{Attention, Embed, InputRows, Node, Op, SequenceMemory, SequenceSpan, Tokens};
use millrace_kernels as kernels;
use millrace_kernels::{AttentionScratch, KvRun, StateRun};

use super::attend::{AttendArgs, attend, recycle};
use super::chunk::{Chunk, PassBuffers, RunSpan};
use super::memory::Past;
use super::op_kernels::has_kernel;
use super::ops::Ops;
use super::plan::Register;
use super::products::known_matrix;
use super::recurrent::state_run;
use crate::Error;
use crate::image::is_replaced;
use crate::kv::CacheParts;

/// A step of one op.
pub(super) struct Compute<'a> {
    pub(super) ops: Ops<'a>,
    pub(super) chunk: &'a Chunk,
    pub(super) tokens: Tokens<'a>,
    /// Rows.
    pub(super) m: usize,
    pub(super) node: &'a Node,
    pub(super) inputs: &'a [Register],
    pub(super) out: Register,
}

impl Compute<'_> {
    /// An op with its own kernel, or otherwise the graph's definition of it.
    pub(super) fn run(
        &self,
        buffers: &mut PassBuffers,
        cache: &mut CacheParts<'_>,
        scratch: (&mut AttentionScratch, &mut Vec<KvRun<'static>>),
    ) -> Result<(), Error> {
        if let Some(attention) = self.node.op.attention() {
            self.attend(attention, buffers, cache, scratch);
            return Ok(());
        }
        match (&self.node.op, self.inputs) {
            (Op::Embed(embed), _) => self.embed(embed, buffers)?,
            (Op::TargetState(_), _) => {
                let out = buffers.rows_mut(self.out, self.m);
                out.copy_from_slice(&self.chunk.given);
            }
            (op, inputs) if has_kernel(op) => {
                let positions = self.tokens.positions;
                let other = inputs.iter().find(|input| input.buffer != self.out.buffer);
                buffers.write(self.out, self.m, |buffers, out| {
                    let other = other.map_or(&[][..], |other| buffers.rows(*other, self.m));
                    self.ops.by_kernel(op, positions, other, out);
                });
            }
            _ => self.by_definition(buffers, cache),
        }
        Ok(())
    }

    /// Attention over a cache: of this op, of an earlier one, or of a target. Only the first has keys and values to append.
    fn attend(
        &self,
        attention: &Attention,
        buffers: &mut PassBuffers,
        cache: &mut CacheParts<'_>,
        scratch: (&mut AttentionScratch, &mut Vec<KvRun<'static>>),
    ) {
        let q = self.inputs[0];
        let kv = |index: usize| self.inputs.get(index).copied().unwrap_or(q);
        let args = AttendArgs {
            attention,
            registers: [q, kv(1), kv(2)],
            out: self.out,
            appends: matches!(self.node.op.memory(), SequenceMemory::KvCache(_)),
            sinks: attention.sinks.map(|sinks| &self.ops.vectors[sinks.0][..]),
        };
        let layer = &mut cache.layers[attention.layer];
        let (cpu, tables) = (self.ops.cpu, cache.tables);
        attend(cpu, buffers, scratch, layer, tables, self.chunk, args);
    }

    /// A recurrent op over all sequences of the chunk.
    pub(super) fn over_states(
        &self,
        buffers: &mut PassBuffers,
        cache: &mut CacheParts<'_>,
        memory: &mut Vec<StateRun<'static>>,
    ) {
        let tables = cache.tables;
        let run = |span: &RunSpan| state_run(tables, span.seq, (span.rows.clone(), span.first_pos));
        let mut runs = recycle(std::mem::take(memory));
        buffers.write(self.out, self.m, |buffers, out| {
            let inputs = self.input_rows(buffers);
            // Two spans of a sequence are two runs of the kernel, which defines no order among the runs of one.
            for is_replay in [true, false] {
                let spans = self
                    .chunk
                    .spans
                    .iter()
                    .filter(|span| span.is_replay == is_replay);
                runs.clear();
                runs.extend(spans.clone().map(run));
                spans.for_each(|span| self.take_snapshot(cache, span));
                if !runs.is_empty() {
                    let states = &mut *cache.states;
                    self.ops
                        .by_state_kernel(&self.node.op, &inputs, states, &runs, out);
                }
            }
        });
        *memory = recycle(runs);
    }

    fn input_rows<'b>(&self, buffers: &'b PassBuffers) -> InputRows<'b, f32> {
        let rows = |input: &Register| buffers.rows(*input, self.m);
        self.inputs.iter().map(rows).collect()
    }

    /// Copies the state of this op before a span into the snapshot, while it is in the cache, if the span takes one.
    fn take_snapshot(&self, cache: &mut CacheParts<'_>, span: &RunSpan) {
        if let (true, SequenceMemory::State(state)) = (span.takes_snapshot, self.node.op.memory()) {
            let from = cache.tables.state_slot(span.seq, span.first_pos);
            let to = cache.tables.snapshot_slot(span.seq);
            cache.states.begin(state, Some(from), to);
        }
    }

    fn embed(&self, embed: &Embed, buffers: &mut PassBuffers) -> Result<(), Error> {
        let table = known_matrix(self.ops.model, embed.table);
        let out = buffers.rows_mut(self.out, self.m);
        kernels::embed(self.ops.cpu, &table, &self.chunk.ids, embed.scale, out)?;
        let is_replaced = !self.chunk.images.is_empty() && is_replaced(self.ops.graph(), self.node);
        for placed in self.chunk.images.iter().filter(|_| is_replaced) {
            let (elements, place) = placed.elements();
            out[place].copy_from_slice(elements);
        }
        Ok(())
    }

    fn by_definition(&self, buffers: &mut PassBuffers, cache: &mut CacheParts<'_>) {
        let tokens = self.tokens;
        buffers.write(self.out, self.m, |buffers, out| {
            let inputs = self.input_rows(buffers);
            if self.node.op.memory() == SequenceMemory::None {
                return self.ops.by_definition(self.node, tokens, &inputs, out);
            }
            for span in &self.chunk.spans {
                self.take_snapshot(cache, span);
                let past = Past::of(cache, span.seq);
                let span = SequenceSpan {
                    rows: span.rows.clone(),
                    first_pos: span.first_pos,
                };
                self.ops
                    .over_memory(self.node, (tokens, span), &inputs, past, out);
            }
        });
    }
}
