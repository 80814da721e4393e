//! Runs a plan's steps on the CPU kernels for one ragged chunk.

use std::ops::Range;

use millrace_graph::{self as graph, Embed, Node, Op, SequenceMemory, SharedAttention};
use millrace_kernels as kernels;
use millrace_kernels::matmul::Activations;
use millrace_kernels::{AttentionScratch, Cpu, KvRun, RopeTable, StateRun};

use millrace_model::Model;

use super::attend::{AttendArgs, attend, recycle};
use super::chunk::{Chunk, PassBuffers, PassSink, RunSpan};
use super::encoder::{self, TextPages};
use super::experts::ExpertScratch;
use super::head::{HeadBuffers, HeadStep};
use super::memory::{Past, SequenceSpan};
use super::ops::{self, InputRows, Ops, Tokens, decode_vectors, has_kernel, rope_table};
use super::plan::{CpuPlan, PlanError, Register, StepKind};
use super::planes::{PlaneTables, Planes};
use super::products::{AdapterScratch, Linears, experts, known_matrix};
use super::recurrent::{has_state_kernel, state_run};
use crate::Error;
use crate::image::is_replaced;
use crate::kv::CacheParts;
use crate::load::LoadedModel;
use crate::ranks::Communicator;

/// Tokens whose experts are chosen one after the other; those of more are shared out to threads.
const FEW_CHOICES: usize = 16;

/// A plan with everything it needs besides the matrices, which stay in the checkpoint.
pub(crate) struct Executor {
    plan: CpuPlan,
    /// Norm weights and biases as f32, by weight; empty for matrices.
    vectors: Vec<Vec<f32>>,
    ropes: Vec<RopeTable>,
    /// Of models whose positions have three axes.
    planes: Vec<PlaneTables>,
    buffers: PassBuffers,
    activations: Activations,
    experts: ExpertScratch,
    attention: AttentionScratch,
    /// Of encoders.
    text_pages: TextPages,
    /// Empty between steps; kept for its memory.
    runs: Vec<KvRun<'static>>,
    /// As those.
    state_runs: Vec<StateRun<'static>>,
    logits: HeadBuffers,
    /// Tokens and positions of the rows whose logits are wanted.
    wanted: (Vec<u32>, Vec<u32>),
    adapters: AdapterScratch,
}

impl Executor {
    pub(crate) fn new(model: &LoadedModel, max_chunk: usize) -> Result<Executor, Error> {
        let graph = &model.model().graph;
        let plan = plan_of(graph)?;
        ops::check_matrices(model, graph)?;
        let buffers = plan
            .buffer_widths
            .iter()
            .map(|width| vec![0.0; width * max_chunk])
            .collect();
        Ok(Executor {
            buffers: PassBuffers(buffers),
            vectors: decode_vectors(model, graph)?,
            ropes: graph.ropes.iter().map(rope_table).collect(),
            planes: plane_tables(model.model()),
            activations: Activations::default(),
            experts: ExpertScratch::default(),
            attention: AttentionScratch::default(),
            text_pages: TextPages::default(),
            runs: Vec::new(),
            state_runs: Vec::new(),
            logits: HeadBuffers::new(&plan, model.model().config.vocab_size, max_chunk),
            wanted: (Vec::with_capacity(max_chunk), Vec::with_capacity(max_chunk)),
            adapters: AdapterScratch::default(),
            plan,
        })
    }

    /// Bytes of scratch buffers that [`Executor::new`] would allocate; saturates.
    pub(crate) fn scratch_bytes_of(model: &Model, max_chunk: usize) -> Result<usize, Error> {
        let plan = plan_of(&model.graph)?;
        let widths = plan.buffer_widths.iter();
        let rows = widths.map(|width| width.saturating_mul(max_chunk));
        let head = HeadBuffers::elems(&plan, model.config.vocab_size, max_chunk);
        let elems = rows.chain(head).fold(0, usize::saturating_add);
        Ok(elems.saturating_mul(size_of::<f32>()))
    }

    /// Computes one chunk: appends to what its sequences keep, and gives `sink` what was asked.
    pub(crate) fn run(
        &mut self,
        cpu: &Cpu,
        model: &LoadedModel,
        mut cache: CacheParts<'_>,
        mut ranks: Option<&mut Communicator>,
        chunk: &Chunk,
        sink: &mut dyn PassSink,
    ) -> Result<(), Error> {
        let mut m = chunk.tokens.len();
        let drop_rows = !chunk.hidden && !chunk.head_input && chunk.logit_rows.len() < m;
        self.adapters.adapted.clone_from(&chunk.adapted);
        for i in 0..self.plan.steps.len() {
            if i == self.plan.gather_at && drop_rows {
                if chunk.logit_rows.is_empty() {
                    return Ok(());
                }
                for &slot in &self.plan.gather {
                    self.buffers.gather(slot, &chunk.logit_rows);
                }
                m = chunk.logit_rows.len();
                self.want(chunk);
                for adapted in &mut self.adapters.adapted {
                    adapted.rows = places(&chunk.logit_rows, &adapted.rows);
                }
            }
            match &self.plan.steps[i].kind {
                StepKind::Op { node, inputs, out } => {
                    let node = &model.model().graph.nodes[*node];
                    let compute = Compute {
                        ops: Ops {
                            cpu,
                            model,
                            vectors: &self.vectors,
                            ropes: &self.ropes,
                            // Behind the last attention nothing turns.
                            planes: Planes {
                                tables: &self.planes,
                                rows: if m == chunk.tokens.len() {
                                    &chunk.planes
                                } else {
                                    &[]
                                },
                            },
                        },
                        chunk,
                        tokens: match m == chunk.tokens.len() {
                            true => Tokens {
                                ids: &chunk.ids,
                                positions: &chunk.positions,
                            },
                            false => Tokens {
                                ids: &self.wanted.0,
                                positions: &self.wanted.1,
                            },
                        },
                        m,
                        node,
                        inputs,
                        out: *out,
                    };
                    if let (Op::AllGather(op), &[x], Some(ranks)) =
                        (&node.op, &inputs[..], ranks.as_deref_mut())
                    {
                        self.buffers.gather_ranks(ranks, op, (x, *out, m))?;
                    } else if let (Op::EncoderAttention(op), &[q, k, v]) = (&node.op, &inputs[..]) {
                        let scratch = (&mut self.attention, &mut self.text_pages);
                        let slots = ([q, k, v], *out);
                        encoder::attend(cpu, (&mut self.buffers, chunk), scratch, op, slots);
                    } else if let (Op::Route(route), &[scores], true) =
                        (&node.op, &inputs[..], m <= FEW_CHOICES)
                    {
                        let ops = compute.ops;
                        self.buffers.write(*out, m, |buffers, out| {
                            let scores = buffers.rows(scores, m);
                            ops.choices(route, scores, &mut self.experts, out);
                        });
                    } else if has_state_kernel(&node.op) {
                        compute.over_states(&mut self.buffers, &mut cache, &mut self.state_runs);
                    } else {
                        let scratch = (&mut self.attention, &mut self.runs);
                        compute.run(&mut self.buffers, &mut cache, scratch)?;
                    }
                }
                StepKind::Linear { x, parts } => {
                    let linears = Linears {
                        model,
                        vectors: &self.vectors,
                        x: *x,
                        m,
                    };
                    linears.run(cpu, parts, &mut self.buffers, &mut self.activations);
                    linears.adapt(cpu, parts, &mut self.buffers, &mut self.adapters);
                }
                StepKind::Experts { x, choice, parts } => {
                    let ops = Ops {
                        cpu,
                        model,
                        vectors: &self.vectors,
                        ropes: &self.ropes,
                        planes: Planes::default(),
                    };
                    let (x, choice) = (*x, *choice);
                    experts(
                        ops,
                        parts,
                        (x, choice, m),
                        &mut self.buffers,
                        &mut self.experts,
                    );
                }
                StepKind::Copy { x, out } => self.buffers.write(*out, m, |buffers, out| {
                    out.copy_from_slice(buffers.rows(*x, m));
                }),
            }
            if !chunk.images.is_empty() {
                for (index, slot) in &self.plan.steps[i].hidden {
                    add_summands(&mut self.buffers, chunk, (*index, *slot), m);
                }
            }
            if chunk.hidden {
                for (index, slot) in &self.plan.steps[i].hidden {
                    sink.hidden(*index, self.buffers.rows(*slot, m));
                }
            }
            if let (true, Some(slot)) = (chunk.head_input, self.plan.steps[i].head_input) {
                sink.head_input(self.buffers.rows(slot, m));
            }
        }
        if let Some(head) = &self.plan.head {
            if !drop_rows && chunk.logit_rows.len() < m {
                self.buffers.gather(head.x, &chunk.logit_rows);
            }
            let ops = Ops {
                cpu,
                model,
                vectors: &self.vectors,
                ropes: &self.ropes,
                planes: Planes::default(),
            };
            let x = self.buffers.rows(head.x, chunk.logit_rows.len());
            let buffers = (&mut self.logits, &mut self.activations);
            HeadStep { ops, head }.run(x, buffers, ranks, sink)?;
        }
        Ok(())
    }

    fn want(&mut self, chunk: &Chunk) {
        let (ids, positions) = &mut self.wanted;
        ids.clear();
        positions.clear();
        ids.extend(chunk.logit_rows.iter().map(|row| chunk.ids[*row]));
        positions.extend(chunk.logit_rows.iter().map(|row| chunk.positions[*row]));
    }
}

/// The tables of a model whose positions have three axes; none of another.
fn plane_tables(model: &Model) -> Vec<PlaneTables> {
    let ropes = model.graph.ropes.iter();
    let tables = ropes.filter_map(|rope| {
        let axes = model.config.rope_axes(rope.inv_freq.len())?;
        Some(PlaneTables::new(rope, &axes))
    });
    tables.collect()
}

/// Adds to hidden state `index` what its images have for the layer that it leaves.
fn add_summands(
    buffers: &mut PassBuffers,
    chunk: &Chunk,
    (index, slot): (usize, Register),
    m: usize,
) {
    let Some(layer) = index.checked_sub(1) else {
        return;
    };
    let out = buffers.rows_mut(slot, m);
    for image in &chunk.images {
        // Rows that nobody wants anything of may have been dropped.
        let kept = match m == chunk.tokens.len() {
            true => image.rows.clone(),
            false => places(&chunk.logit_rows, &image.rows),
        };
        for at in kept {
            let row = match m == chunk.tokens.len() {
                true => at,
                false => chunk.logit_rows[at],
            };
            let Some(summand) = image.summand(layer, row) else {
                break;
            };
            let out = &mut out[at * slot.width..(at + 1) * slot.width];
            out.iter_mut()
                .zip(summand)
                .for_each(|(x, added)| *x += added);
        }
    }
}

/// Where the rows of a range stand among those that are kept, which ascend.
fn places(kept: &[usize], rows: &Range<usize>) -> Range<usize> {
    let before = |end: usize| kept.partition_point(|row| *row < end);
    before(rows.start)..before(rows.end)
}

/// The plan of a graph, which is checked first.
fn plan_of(graph: &graph::Graph) -> Result<CpuPlan, PlanError> {
    graph::check(graph)?;
    CpuPlan::new(graph)
}

/// A step of one op.
struct Compute<'a> {
    ops: Ops<'a>,
    chunk: &'a Chunk,
    tokens: Tokens<'a>,
    m: usize,
    node: &'a Node,
    inputs: &'a [Register],
    out: Register,
}

impl Compute<'_> {
    fn run(
        &self,
        buffers: &mut PassBuffers,
        cache: &mut CacheParts<'_>,
        scratch: (&mut AttentionScratch, &mut Vec<KvRun<'static>>),
    ) -> Result<(), Error> {
        match (&self.node.op, self.inputs) {
            (Op::Embed(embed), _) => self.embed(embed, buffers)?,
            (Op::TargetState(_), _) => {
                let out = buffers.rows_mut(self.out, self.m);
                out.copy_from_slice(&self.chunk.given);
            }
            (
                op
                @ (Op::Attention(attention) | Op::SharedAttention(SharedAttention { attention })),
                &[q, k, v],
            ) => {
                let args = AttendArgs {
                    attention,
                    slots: [q, k, v],
                    out: self.out,
                    appends: matches!(op, Op::Attention(_)),
                    sinks: attention.sinks.map(|sinks| &self.ops.vectors[sinks.0][..]),
                };
                let layer = &mut cache.layers[attention.layer];
                let (cpu, tables) = (self.ops.cpu, cache.tables);
                attend(cpu, buffers, scratch, layer, tables, self.chunk, args);
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

    /// A recurrent op over all sequences of the chunk.
    fn over_states(
        &self,
        buffers: &mut PassBuffers,
        cache: &mut CacheParts<'_>,
        memory: &mut Vec<StateRun<'static>>,
    ) {
        let tables = cache.tables;
        let run = |span: &RunSpan| state_run(tables, span.seq, (span.rows.clone(), span.first_pos));
        let mut runs = recycle(std::mem::take(memory));
        buffers.write(self.out, self.m, |buffers, out| {
            let mut inputs = [&[][..]; 3];
            for (rows, input) in inputs.iter_mut().zip(self.inputs) {
                *rows = buffers.rows(*input, self.m);
            }
            // Two spans of a sequence are two runs of the kernel, which knows no order among those of one.
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

    /// Copies the state of this op before a span, while it is near, if the span is to leave it behind.
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
            let rows = |input: &Register| buffers.rows(*input, self.m);
            let inputs: InputRows<'_> = self.inputs.iter().map(rows).collect();
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
