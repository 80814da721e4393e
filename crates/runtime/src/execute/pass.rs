//! Runs a plan's steps on the CPU kernels for one ragged chunk.

use std::ops::Range;
use std::sync::Arc;

use millrace_graph::{
    self as graph, AllGather, Embed, ExpertLinear, Node, Op, SequenceMemory, SharedAttention,
};
use millrace_kernels as kernels;
use millrace_kernels::matmul::{Activations, Multiplication, WeightMatrix, matmul};
use millrace_kernels::{AttentionScratch, Cpu, KvRun, RopeTable, StateRun};

use millrace_model::Model;

use super::attend::{AttendArgs, attend, recycle};
use super::encoder::{self, TextPages};
use super::experts::ExpertScratch;
use super::head::{HeadBuffers, HeadStep};
use super::memory::{Past, SequenceSpan};
use super::ops::{self, Ops, Tokens, decode_vectors, has_kernel, rope_table};
use super::plan::{CpuPlan, ExpertPart, LinearPart, PlanError, Register, StepKind};
use super::recurrent::{has_state_kernel, state_run};
use crate::Error;
use crate::image::{self, Image, ImageRows};
use crate::kv::CacheParts;
use crate::load::LoadedModel;
use crate::lora::{self, AdaptedRows};
use crate::ranks::Communicator;
use crate::sequences::SeqId;

/// A sequence's share of a chunk.
#[derive(Clone, Debug)]
pub(crate) struct RunSpan {
    pub(crate) seq: SeqId,
    /// Rows of the chunk.
    pub(crate) rows: std::ops::Range<usize>,
    /// Position of the first row.
    pub(crate) first_pos: usize,
    /// Whether the tokens were computed before and only their states are missing. Such a span comes before others of its sequence.
    pub(crate) is_replay: bool,
    /// Whether the states before the first row are to be copied to the sequence's slot for snapshots.
    pub(crate) takes_snapshot: bool,
}

/// The rows one pass computes: at most `max_chunk` tokens of any number of sequences.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) tokens: Vec<u32>,
    /// The images that some rows are of, in order.
    pub(crate) images: Vec<ImageRows>,
    /// Those rows alone: they see each other.
    pub(super) blocks: Vec<Range<usize>>,
    /// The tokens with something of the vocabulary in place of images' rows.
    ids: Vec<u32>,
    pub(crate) positions: Vec<u32>,
    pub(crate) spans: Vec<RunSpan>,
    /// Rows with adapters, ascending.
    pub(crate) adapted: Vec<AdaptedRows>,
    /// Rows whose logits are wanted, ascending.
    pub(crate) logit_rows: Vec<usize>,
    /// Whether every hidden state is to be captured.
    pub(crate) hidden: bool,
}

impl Chunk {
    /// Empties it, keeping its memory.
    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
        self.images.clear();
        self.blocks.clear();
        self.ids.clear();
        self.positions.clear();
        self.spans.clear();
        self.adapted.clear();
        self.logit_rows.clear();
        self.hidden = false;
    }

    /// Appends tokens in which no image is cut, and which [`image::check`] has passed.
    pub(crate) fn push_tokens(&mut self, tokens: &[u32], images: &[Arc<Image>]) {
        let row = self.tokens.len();
        for placed in image::placed(tokens, images, row) {
            self.blocks.push(placed.rows.clone());
            self.images.push(placed);
        }
        self.tokens.extend_from_slice(tokens);
        let ids = tokens.iter().map(|token| image::in_vocabulary(*token));
        self.ids.extend(ids);
    }
}

/// Takes what a pass hands back.
pub(crate) trait PassSink {
    /// Rows `[m, d_model]` of hidden state `index` (see [`Graph::hidden`]).
    fn hidden(&mut self, index: usize, rows: &[f32]);
    /// Some of the wanted logit rows `[_, vocab]`, of `width` elements; calls come in the order of the
    /// rows.
    fn logits(&mut self, rows: &[f32], width: usize);
}

/// Scratch buffers, each `max_chunk` rows of the widest value it ever holds.
pub(super) struct PassBuffers(Vec<Vec<f32>>);

impl PassBuffers {
    pub(super) fn rows(&self, slot: Register, m: usize) -> &[f32] {
        &self.0[slot.buffer][..m * slot.width]
    }

    fn rows_mut(&mut self, slot: Register, m: usize) -> &mut [f32] {
        &mut self.0[slot.buffer][..m * slot.width]
    }

    /// Writes `out` while the other buffers can be read. A plan never reads a step's own output.
    pub(super) fn write(
        &mut self,
        out: Register,
        m: usize,
        f: impl FnOnce(&PassBuffers, &mut [f32]),
    ) {
        let mut taken = std::mem::take(&mut self.0[out.buffer]);
        f(self, &mut taken[..m * out.width]);
        self.0[out.buffer] = taken;
    }

    /// Puts a value of `m` rows together of the parts that ranks have.
    fn gather_ranks(
        &mut self,
        ranks: &mut Communicator,
        op: &AllGather,
        (x, out, m): (Register, Register, usize),
    ) -> Result<(), Error> {
        let mut gathered = Ok(());
        self.write(out, m, |buffers, out| {
            gathered = ranks.gather(op, m, buffers.rows(x, m), out);
        });
        Ok(gathered?)
    }

    /// Keeps only `rows` (ascending) of a value, moved to the front.
    fn gather(&mut self, slot: Register, rows: &[usize]) {
        let width = slot.width;
        for (to, &from) in rows.iter().enumerate() {
            self.0[slot.buffer].copy_within(from * width..(from + 1) * width, to * width);
        }
    }
}

/// A plan with everything it needs besides the matrices, which stay in the checkpoint.
pub(crate) struct Executor {
    plan: CpuPlan,
    /// Norm weights and biases as f32, by weight; empty for matrices.
    vectors: Vec<Vec<f32>>,
    ropes: Vec<RopeTable>,
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

/// What adapters compute with, kept for its memory.
#[derive(Default)]
struct AdapterScratch {
    /// Rows with adapters among those that the pass goes on with.
    adapted: Vec<AdaptedRows>,
    inner: Vec<f32>,
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
        let drop_rows = !chunk.hidden && chunk.logit_rows.len() < m;
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
            if chunk.hidden {
                for (index, slot) in &self.plan.steps[i].hidden {
                    sink.hidden(*index, self.buffers.rows(*slot, m));
                }
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

/// The weight as a matrix, of those that [`Executor::new`] has tried.
pub(super) fn known_matrix(model: &LoadedModel, weight: graph::WeightId) -> WeightMatrix<'_> {
    ops::matrix(model, weight).expect("every matrix was checked when the executor was made")
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
        for placed in &self.chunk.images {
            let (elements, place) = placed.elements();
            out[place].copy_from_slice(elements);
        }
        Ok(())
    }

    fn by_definition(&self, buffers: &mut PassBuffers, cache: &mut CacheParts<'_>) {
        let tokens = self.tokens;
        buffers.write(self.out, self.m, |buffers, out| {
            let rows = |input: &Register| buffers.rows(*input, self.m);
            let inputs: Vec<&[f32]> = self.inputs.iter().map(rows).collect();
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

/// The products of one step of experts.
fn experts(
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
struct Linears<'a> {
    model: &'a LoadedModel,
    vectors: &'a [Vec<f32>],
    x: Register,
    m: usize,
}

impl Linears<'_> {
    fn run(
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
    fn adapt(
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
