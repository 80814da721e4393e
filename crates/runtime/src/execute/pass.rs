//! Runs a plan's steps on the CPU kernels for one ragged chunk.

use std::ops::Range;

use millrace_graph::{self as graph, Op, Tokens};
use millrace_kernels::matmul::Activations;
use millrace_kernels::{AttentionScratch, Cpu, KvRun, RopeTable, StateRun};
use millrace_model::Model;

use super::chunk::{Chunk, PassBuffers, PassSink};
use super::compute::Compute;
use super::encoder::{self, TextPages};
use super::experts::ExpertScratch;
use super::head::{HeadBuffers, HeadStep};
use super::ops::{self, Ops, decode_vectors, rope_table};
use super::plan::{CpuPlan, PlanError, Register, StepKind};
use super::planes::{PlaneTables, Planes};
use super::products::{AdapterScratch, Linears, experts};
use super::recurrent::has_state_kernel;
use crate::Error;
use crate::image::planes::PlaneRows;
use crate::kv::CacheParts;
use crate::load::LoadedModel;
use crate::ranks::{Communicator, StepTimer};

/// Up to this many tokens choose experts one after the other; more are shared out to threads.
const FEW_CHOICES: usize = 16;

/// A plan with everything it needs besides the matrices, which stay in the checkpoint.
pub(crate) struct Executor {
    plan: CpuPlan,
    tables: OpTables,
    buffers: PassBuffers,
    activations: Activations,
    experts: ExpertScratch,
    attention: AttentionScratch,
    /// Pages for encoders.
    text_pages: TextPages,
    /// Empty between steps; kept for its memory.
    runs: Vec<KvRun<'static>>,
    /// As those.
    state_runs: Vec<StateRun<'static>>,
    logits: HeadBuffers,
    wanted: WantedRows,
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
            tables: OpTables {
                vectors: decode_vectors(model, graph)?,
                ropes: graph.ropes.iter().map(rope_table).collect(),
                planes: plane_tables(model.model()),
            },
            activations: Activations::default(),
            experts: ExpertScratch::default(),
            attention: AttentionScratch::default(),
            text_pages: TextPages::default(),
            runs: Vec::new(),
            state_runs: Vec::new(),
            logits: HeadBuffers::new(&plan, model.model().config.vocab_size, max_chunk),
            wanted: WantedRows::new(max_chunk),
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

    /// Computes one chunk: appends to the memory of its sequences, and passes the requested results to `sink`.
    pub(crate) fn run(
        &mut self,
        cpu: &Cpu,
        model: &LoadedModel,
        mut cache: CacheParts<'_>,
        mut ranks: Option<&mut Communicator>,
        chunk: &Chunk,
        sink: &mut dyn PassSink,
    ) -> Result<(), Error> {
        let mut rows = PassRows {
            cpu,
            model,
            chunk,
            m: chunk.tokens.len(),
        };
        let drops_rows = !chunk.hidden && !chunk.head_input && chunk.logit_rows.len() < rows.m;
        self.adapters.adapted.clone_from(&chunk.adapted);
        for i in 0..self.plan.steps.len() {
            if i == self.plan.gather_at && drops_rows {
                if chunk.logit_rows.is_empty() {
                    return Ok(());
                }
                self.drop_rows(chunk);
                rows.m = chunk.logit_rows.len();
            }
            let timer = StepTimer::start(ranks.as_deref());
            self.step(i, rows, &mut cache, ranks.as_deref_mut())?;
            if let Some(work) = self.plan.steps[i].kind.rank_work(&model.model().graph) {
                timer.stop(ranks.as_deref_mut(), work);
            }
            self.between_layers(i, rows, sink);
        }
        self.head(rows, ranks, sink)
    }

    /// Keeps only the rows whose logits are needed, in all values that later steps read.
    fn drop_rows(&mut self, chunk: &Chunk) {
        for &register in &self.plan.gather {
            self.buffers.gather(register, &chunk.logit_rows);
        }
        self.wanted.take(chunk);
        for adapted in &mut self.adapters.adapted {
            adapted.rows = places(&chunk.logit_rows, &adapted.rows);
        }
    }

    fn step(
        &mut self,
        i: usize,
        rows: PassRows<'_>,
        cache: &mut CacheParts<'_>,
        ranks: Option<&mut Communicator>,
    ) -> Result<(), Error> {
        let PassRows { cpu, model, m, .. } = rows;
        match &self.plan.steps[i].kind {
            StepKind::Op { .. } => return self.op_step(i, rows, cache, ranks),
            StepKind::Linear { x, parts } => {
                let linears = Linears {
                    model,
                    vectors: &self.tables.vectors,
                    x: *x,
                    m,
                };
                linears.run(cpu, parts, &mut self.buffers, &mut self.activations);
                linears.adapt(cpu, parts, &mut self.buffers, &mut self.adapters);
            }
            StepKind::Experts { x, choice, parts } => {
                let ops = self.tables.ops(cpu, model, &[]);
                let from = (*x, *choice, m);
                experts(ops, parts, from, &mut self.buffers, &mut self.experts);
            }
            StepKind::Copy { x, out } => self.buffers.write(*out, m, |buffers, out| {
                out.copy_from_slice(buffers.rows(*x, m));
            }),
        }
        Ok(())
    }

    fn op_step(
        &mut self,
        i: usize,
        rows: PassRows<'_>,
        cache: &mut CacheParts<'_>,
        ranks: Option<&mut Communicator>,
    ) -> Result<(), Error> {
        let StepKind::Op { node, inputs, out } = &self.plan.steps[i].kind else {
            unreachable!("only steps of one op are computed here");
        };
        let PassRows {
            cpu,
            model,
            chunk,
            m,
        } = rows;
        let node = &model.model().graph.nodes[*node];
        let (tokens, planes) = self.wanted.tokens_of(rows);
        let compute = Compute {
            ops: self.tables.ops(cpu, model, planes),
            chunk,
            tokens,
            m,
            node,
            inputs,
            out: *out,
        };
        match (&node.op, &inputs[..], ranks) {
            (Op::AllGather(op), &[x], Some(ranks)) => {
                self.buffers.gather_ranks(ranks, op, (x, *out, m))?;
            }
            (Op::EncoderAttention(op), &[q, k, v], _) => {
                let scratch = (&mut self.attention, &mut self.text_pages);
                let registers = ([q, k, v], *out);
                encoder::attend(cpu, (&mut self.buffers, chunk), scratch, op, registers);
            }
            (Op::Route(route), &[scores], _) if m <= FEW_CHOICES => {
                let ops = compute.ops;
                self.buffers.write(*out, m, |buffers, out| {
                    let scores = buffers.rows(scores, m);
                    ops.choices(route, scores, &mut self.experts, out);
                });
            }
            (op, ..) if has_state_kernel(op) => {
                compute.over_states(&mut self.buffers, cache, &mut self.state_runs);
            }
            _ => {
                let scratch = (&mut self.attention, &mut self.runs);
                compute.run(&mut self.buffers, cache, scratch)?;
            }
        }
        Ok(())
    }

    /// Processes states between layers: images add to them, and `sink` may capture them.
    fn between_layers(&mut self, i: usize, rows: PassRows<'_>, sink: &mut dyn PassSink) {
        let PassRows { chunk, m, .. } = rows;
        let step = &self.plan.steps[i];
        for (index, register) in &step.hidden {
            if !chunk.images.is_empty() {
                add_summands(&mut self.buffers, chunk, (*index, *register), m);
            }
            if chunk.hidden {
                sink.hidden(*index, self.buffers.rows(*register, m));
            }
        }
        if let (true, Some(register)) = (chunk.head_input, step.head_input) {
            sink.head_input(self.buffers.rows(register, m));
        }
    }

    /// The logits that are wanted, of a model that has a head.
    fn head(
        &mut self,
        rows: PassRows<'_>,
        ranks: Option<&mut Communicator>,
        sink: &mut dyn PassSink,
    ) -> Result<(), Error> {
        let Some(head) = &self.plan.head else {
            return Ok(());
        };
        let wanted = &rows.chunk.logit_rows;
        if wanted.len() < rows.m {
            self.buffers.gather(head.x, wanted);
        }
        let ops = self.tables.ops(rows.cpu, rows.model, &[]);
        let x = self.buffers.rows(head.x, wanted.len());
        let buffers = (&mut self.logits, &mut self.activations);
        HeadStep { ops, head }.run(x, buffers, ranks, sink)
    }
}

/// Tables that ops read, besides rows and matrices.
struct OpTables {
    /// Norm weights and biases as f32, by weight; empty for matrices.
    vectors: Vec<Vec<f32>>,
    ropes: Vec<RopeTable>,
    /// For models whose positions have three axes.
    planes: Vec<PlaneTables>,
}

impl OpTables {
    fn ops<'a>(
        &'a self,
        cpu: &'a Cpu,
        model: &'a LoadedModel,
        plane_rows: &'a [PlaneRows],
    ) -> Ops<'a> {
        Ops {
            cpu,
            model,
            vectors: &self.vectors,
            ropes: &self.ropes,
            planes: Planes {
                tables: &self.planes,
                rows: plane_rows,
            },
        }
    }
}

/// The rows that a step computes.
#[derive(Clone, Copy)]
struct PassRows<'a> {
    cpu: &'a Cpu,
    model: &'a LoadedModel,
    chunk: &'a Chunk,
    /// All tokens of the chunk, or those whose logits are needed.
    m: usize,
}

/// Tokens and positions of the rows whose logits are needed.
struct WantedRows {
    ids: Vec<u32>,
    positions: Vec<u32>,
}

impl WantedRows {
    fn new(max_chunk: usize) -> WantedRows {
        WantedRows {
            ids: Vec::with_capacity(max_chunk),
            positions: Vec::with_capacity(max_chunk),
        }
    }

    fn take(&mut self, chunk: &Chunk) {
        self.ids.clear();
        self.positions.clear();
        let rows = chunk.logit_rows.iter();
        self.ids.extend(rows.clone().map(|row| chunk.ids[*row]));
        self.positions.extend(rows.map(|row| chunk.positions[*row]));
    }

    /// The tokens of a step's rows, and the positions of image rows among them.
    fn tokens_of<'a>(&'a self, rows: PassRows<'a>) -> (Tokens<'a>, &'a [PlaneRows]) {
        let PassRows { chunk, m, .. } = rows;
        if m == chunk.tokens.len() {
            let tokens = Tokens {
                ids: &chunk.ids,
                positions: &chunk.positions,
            };
            return (tokens, &chunk.planes);
        }
        let tokens = Tokens {
            ids: &self.ids,
            positions: &self.positions,
        };
        // Nothing rotates after the last attention.
        (tokens, &[])
    }
}

/// The tables of a model whose positions have three axes; none for other models.
fn plane_tables(model: &Model) -> Vec<PlaneTables> {
    let ropes = model.graph.ropes.iter();
    let tables = ropes.filter_map(|rope| {
        let axes = model.config.rope_axes(rope.inv_freq.len())?;
        Some(PlaneTables::new(rope, &axes))
    });
    tables.collect()
}

/// Adds the summands of the images to hidden state `index`, for the layer before it.
fn add_summands(
    buffers: &mut PassBuffers,
    chunk: &Chunk,
    (index, register): (usize, Register),
    m: usize,
) {
    let Some(layer) = index.checked_sub(1) else {
        return;
    };
    let out = buffers.rows_mut(register, m);
    for image in &chunk.images {
        // Unneeded rows may have been dropped.
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
            let out = &mut out[at * register.width..(at + 1) * register.width];
            out.iter_mut()
                .zip(summand)
                .for_each(|(x, added)| *x += added);
        }
    }
}

/// Positions of a range's rows among the kept rows, which ascend.
fn places(kept: &[usize], rows: &Range<usize>) -> Range<usize> {
    let before = |end: usize| kept.partition_point(|row| *row < end);
    before(rows.start)..before(rows.end)
}

/// The plan of a graph, which is checked first.
fn plan_of(graph: &graph::Graph) -> Result<CpuPlan, PlanError> {
    graph::check(graph)?;
    CpuPlan::new(graph)
}
