//! Runs a plan's steps on the CPU kernels for one ragged chunk.

use std::ops::Range;
use std::sync::Arc;

use millrace_kernels as kernels;
use millrace_kernels::matmul::{Activations, Matrix, Product, matmul};
use millrace_kernels::{AttentionInput, AttentionScratch, Cpu, KvRun, RopeTable};
use millrace_model::graph::{self, Attention, Graph, Op, RopeStyle, WeightId};
use millrace_quant as quant;

use crate::Error;
use crate::image::{self, Image, Placed};
use crate::kv::{LayerCache, PageTables};
use crate::load::LoadedModel;
use crate::schedule::{Head, LinearPart, Register, Schedule, StageKind};
use crate::sequences::SeqId;

/// A sequence's share of a chunk.
#[derive(Clone, Debug)]
pub(crate) struct RunSpan {
    pub(crate) seq: SeqId,
    /// Rows of the chunk.
    pub(crate) rows: std::ops::Range<usize>,
    /// Position of the first row.
    pub(crate) first_pos: usize,
}

/// The rows one pass computes: at most `max_chunk` tokens of any number of sequences.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) tokens: Vec<u32>,
    /// The images that some rows are of, in order.
    pub(crate) images: Vec<Placed>,
    /// Those rows alone: they see each other.
    blocks: Vec<Range<usize>>,
    /// The tokens with something of the vocabulary in place of images' rows.
    ids: Vec<u32>,
    pub(crate) positions: Vec<u32>,
    pub(crate) spans: Vec<RunSpan>,
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
pub(crate) trait Sink {
    /// Rows `[m, d_model]` of hidden state `index` (see [`Graph::hidden`]).
    fn hidden(&mut self, index: usize, rows: &[f32]);
    /// Some of the wanted logit rows `[_, vocab]`, of `width` elements; calls come in the order of the
    /// rows.
    fn logits(&mut self, rows: &[f32], width: usize);
}

/// Scratch buffers, each `max_chunk` rows of the widest value it ever holds.
struct Buffers(Vec<Vec<f32>>);

impl Buffers {
    fn rows(&self, slot: Register, m: usize) -> &[f32] {
        &self.0[slot.buffer][..m * slot.width]
    }

    fn rows_mut(&mut self, slot: Register, m: usize) -> &mut [f32] {
        &mut self.0[slot.buffer][..m * slot.width]
    }

    /// Writes `out` while the other buffers can be read. A plan never reads a step's own output.
    fn write(&mut self, out: Register, m: usize, f: impl FnOnce(&Buffers, &mut [f32])) {
        let mut taken = std::mem::take(&mut self.0[out.buffer]);
        f(self, &mut taken[..m * out.width]);
        self.0[out.buffer] = taken;
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
    schedule: Schedule,
    /// Norm weights and biases as f32, by weight; empty for matrices.
    vectors: Vec<Vec<f32>>,
    ropes: Vec<RopeTable>,
    buffers: Buffers,
    activations: Activations,
    attention: AttentionScratch,
    /// Empty between steps; kept for its memory.
    runs: Vec<KvRun<'static>>,
    /// Up to [`HEAD_ROWS`] rows.
    logits: Vec<f32>,
}

/// Rows of logits computed at a time. A row is a vocabulary wide, so a whole chunk of them would be
/// the largest buffer by far; more rows than this make the head hardly faster.
const HEAD_ROWS: usize = 128;

impl Executor {
    pub(crate) fn new(model: &LoadedModel, max_chunk: usize) -> Result<Executor, Error> {
        let graph = &model.model().graph;
        let schedule = Schedule::new(graph)?;
        check_matrices(model, graph)?;
        let buffers = schedule
            .buffer_widths
            .iter()
            .map(|width| vec![0.0; width * max_chunk])
            .collect();
        Ok(Executor {
            buffers: Buffers(buffers),
            vectors: decode_vectors(model, graph)?,
            ropes: graph.ropes.iter().map(rope_table).collect(),
            activations: Activations::default(),
            attention: AttentionScratch::default(),
            runs: Vec::new(),
            logits: vec![0.0; model.model().config.vocab_size * HEAD_ROWS.min(max_chunk)],
            schedule,
        })
    }

    /// Bytes of scratch buffers that [`Executor::new`] would allocate; saturates.
    pub(crate) fn scratch_bytes_of(model: &LoadedModel, max_chunk: usize) -> Result<usize, Error> {
        let schedule = Schedule::new(&model.model().graph)?;
        let widths = schedule.buffer_widths.iter();
        let rows = widths.map(|width| width.saturating_mul(max_chunk));
        let vocab_size = model.model().config.vocab_size;
        let head = vocab_size.saturating_mul(HEAD_ROWS.min(max_chunk));
        let elems = rows.fold(head, usize::saturating_add);
        Ok(elems.saturating_mul(size_of::<f32>()))
    }

    /// Computes one chunk: appends its keys and values to the layers, and gives `sink` what was
    /// asked.
    pub(crate) fn run(
        &mut self,
        cpu: &Cpu,
        model: &LoadedModel,
        cache: (&mut [LayerCache], PageTables<'_>),
        chunk: &Chunk,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let (layers, tables) = cache;
        let mut m = chunk.tokens.len();
        let drop_rows = !chunk.hidden && chunk.logit_rows.len() < m;
        for i in 0..self.schedule.steps.len() {
            if i == self.schedule.gather_at && drop_rows {
                if chunk.logit_rows.is_empty() {
                    return Ok(());
                }
                for &slot in &self.schedule.gather {
                    self.buffers.gather(slot, &chunk.logit_rows);
                }
                m = chunk.logit_rows.len();
            }
            match &self.schedule.steps[i].kind {
                StageKind::Attention {
                    attention,
                    q,
                    k,
                    v,
                    out,
                } => {
                    let layer = &mut layers[attention.layer];
                    let args = AttendArgs {
                        attention,
                        slots: [*q, *k, *v],
                        out: *out,
                    };
                    attend(
                        cpu,
                        &mut self.buffers,
                        (&mut self.attention, &mut self.runs),
                        layer,
                        tables,
                        chunk,
                        args,
                    );
                }
                StageKind::Embed { table, scale, out } => {
                    let table = known_matrix(model, *table);
                    let out = self.buffers.rows_mut(*out, m);
                    kernels::embed(cpu, &table, &chunk.ids, *scale, out)?;
                    for placed in &chunk.images {
                        let (elements, place) = placed.elements();
                        out[place].copy_from_slice(elements);
                    }
                }
                StageKind::Linear { x, parts } => {
                    let linears = Linears {
                        model,
                        vectors: &self.vectors,
                        x: *x,
                        m,
                    };
                    linears.run(cpu, parts, &mut self.buffers, &mut self.activations);
                }
                kind => {
                    let (vectors, ropes) = (&self.vectors, &self.ropes);
                    by_row(
                        cpu,
                        kind,
                        vectors,
                        ropes,
                        &mut self.buffers,
                        m,
                        &chunk.positions,
                    );
                }
            }
            if chunk.hidden {
                for (index, slot) in &self.schedule.steps[i].hidden {
                    sink.hidden(*index, self.buffers.rows(*slot, m));
                }
            }
        }
        if !drop_rows && chunk.logit_rows.len() < m {
            self.buffers.gather(self.schedule.head.x, &chunk.logit_rows);
        }
        self.head(cpu, model, chunk.logit_rows.len(), sink);
        Ok(())
    }

    /// Computes the logits of the first `m` rows of the head's input, some rows at a time.
    fn head(&mut self, cpu: &Cpu, model: &LoadedModel, m: usize, sink: &mut dyn Sink) {
        let Head { x, weight, bias } = self.schedule.head;
        let weight = known_matrix(model, weight);
        let bias = bias.map(|bias| &self.vectors[bias.0][..]);
        for x in self.buffers.rows(x, m).chunks(HEAD_ROWS * x.width) {
            let rows = x.len() / weight.k();
            let out = &mut self.logits[..rows * weight.n()];
            let product = Product {
                weight,
                bias,
                out: &mut *out,
            };
            matmul(cpu, x, rows, &mut self.activations, &mut [product]);
            sink.logits(out, weight.n());
        }
    }
}

/// The weight as a matrix over the checkpoint's own bytes.
fn matrix(model: &LoadedModel, weight: WeightId) -> Result<Matrix<'_>, Error> {
    let spec = &model.model().graph.weights[weight.0];
    Ok(Matrix::new(
        spec.dtype,
        spec.n,
        spec.k,
        model.weight_bytes(weight),
    )?)
}

/// As [`matrix`], for the matrices that [`Executor::new`] has tried.
fn known_matrix(model: &LoadedModel, weight: WeightId) -> Matrix<'_> {
    matrix(model, weight).expect("every matrix was checked when the executor was made")
}

/// The linear layers of one step.
struct Linears<'a> {
    model: &'a LoadedModel,
    vectors: &'a [Vec<f32>],
    x: Register,
    m: usize,
}

impl Linears<'_> {
    fn run(&self, cpu: &Cpu, parts: &[LinearPart], buffers: &mut Buffers, act: &mut Activations) {
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

    fn run_parts<const N: usize>(
        &self,
        cpu: &Cpu,
        parts: [&LinearPart; N],
        buffers: &mut Buffers,
        activations: &mut Activations,
    ) {
        let mut outs = parts.map(|part| std::mem::take(&mut buffers.0[part.out.buffer]));
        let mut i = 0;
        let mut products = outs.each_mut().map(|out| {
            let part = parts[i];
            i += 1;
            Product {
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

struct AttendArgs<'a> {
    attention: &'a Attention,
    slots: [Register; 3],
    out: Register,
}

fn attend(
    cpu: &Cpu,
    buffers: &mut Buffers,
    (scratch, memory): (&mut AttentionScratch, &mut Vec<KvRun<'static>>),
    layer: &mut LayerCache,
    tables: PageTables<'_>,
    chunk: &Chunk,
    args: AttendArgs<'_>,
) {
    let AttendArgs {
        attention,
        slots: [q, k, v],
        out,
    } = args;
    let m = chunk.tokens.len();
    let run = |span: &RunSpan| {
        let (pages, pages_first_pos) = tables.pages(span.seq, attention.layer);
        KvRun {
            rows: span.rows.clone(),
            first_pos: span.first_pos,
            pages,
            pages_first_pos,
        }
    };
    let mut runs = recycle(std::mem::take(memory));
    runs.extend(chunk.spans.iter().map(run));
    let (k, v) = (buffers.rows(k, m), buffers.rows(v, m));
    kernels::kv_append(cpu, &layer.layout, k, v, &mut layer.k, &mut layer.v, &runs);
    let shape = kernels::AttentionShape {
        n_heads: attention.n_heads,
        n_kv_heads: attention.n_kv_heads,
        head_dim: attention.head_dim,
        scale: attention.scale,
        window: attention.window,
    };
    buffers.write(out, m, |buffers, out| {
        let q = buffers.rows(q, m);
        let input = AttentionInput {
            q,
            k_pages: &layer.k,
            v_pages: &layer.v,
            runs: &runs,
            blocks: &chunk.blocks,
        };
        kernels::attention(cpu, &shape, &layer.layout, &input, scratch, out);
    });
    *memory = recycle(runs);
}

/// The memory of a list of runs, for runs of another lifetime. Collecting from a vector's own iterator
/// reuses its memory, though the library does not promise it; `tests/allocation.rs` watches.
fn recycle<'to>(mut runs: Vec<KvRun<'_>>) -> Vec<KvRun<'to>> {
    runs.clear();
    runs.into_iter()
        .map(|_| unreachable!("the list is empty"))
        .collect()
}

/// Steps that treat each row by itself and read no matrix.
fn by_row(
    cpu: &Cpu,
    kind: &StageKind,
    vectors: &[Vec<f32>],
    ropes: &[RopeTable],
    buffers: &mut Buffers,
    m: usize,
    positions: &[u32],
) {
    match kind {
        StageKind::RmsNorm {
            weight,
            eps,
            offset,
            group,
            x,
            out,
        } => {
            let weight = &vectors[weight.0];
            buffers.write(*out, m, |buffers, out| {
                kernels::rms_norm(cpu, buffers.rows(*x, m), *group, weight, *eps, *offset, out);
            });
        }
        StageKind::Rope { rope, head_dim, x } => {
            kernels::rope(
                cpu,
                buffers.rows_mut(*x, m),
                *head_dim,
                positions,
                &ropes[rope.0],
            );
        }
        StageKind::Glu {
            activation,
            gate,
            up,
        } => {
            let activation = match activation {
                graph::Activation::Silu => kernels::Activation::Silu,
                graph::Activation::GeluTanh => kernels::Activation::GeluTanh,
            };
            buffers.write(*gate, m, |buffers, gate| {
                kernels::glu(cpu, activation, gate, buffers.rows(*up, m));
            });
        }
        StageKind::Add { acc, x } => {
            buffers.write(*acc, m, |buffers, acc| {
                kernels::add(cpu, acc, buffers.rows(*x, m))
            });
        }
        StageKind::Copy { x, out } => {
            buffers.write(*out, m, |buffers, out| {
                out.copy_from_slice(buffers.rows(*x, m))
            });
        }
        StageKind::Embed { .. } | StageKind::Linear { .. } | StageKind::Attention { .. } => {
            unreachable!("run() handles the steps that read matrices or the cache")
        }
    }
}

fn rope_table(rope: &graph::Rope) -> RopeTable {
    let interleaved = rope.style == RopeStyle::Interleaved;
    RopeTable::new(interleaved, rope.inv_freq.clone(), rope.attention_factor)
}

/// Tries every matrix once, so that steps need not fail.
fn check_matrices(model: &LoadedModel, graph: &Graph) -> Result<(), Error> {
    for node in &graph.nodes {
        if let Op::Linear { weight, .. } | Op::Embed { table: weight, .. } = node.op {
            matrix(model, weight)?;
        }
    }
    Ok(())
}

/// Decodes the weights that ops read as f32 vectors.
pub(crate) fn decode_vectors(model: &LoadedModel, graph: &Graph) -> Result<Vec<Vec<f32>>, Error> {
    let mut vectors = vec![Vec::new(); graph.weights.len()];
    let ids = graph.nodes.iter().filter_map(|node| match node.op {
        Op::RmsNorm { weight, .. } => Some(weight),
        Op::Linear { bias, .. } => bias,
        _ => None,
    });
    for id in ids {
        vectors[id.0] = decode_vector(model, id)?;
    }
    Ok(vectors)
}

/// A weight that is a vector, as f32.
pub(crate) fn decode_vector(model: &LoadedModel, id: WeightId) -> Result<Vec<f32>, Error> {
    let spec = &model.model().graph.weights[id.0];
    let mut vector = vec![0.0; spec.k];
    quant::decode_blocks(spec.dtype, model.weight_bytes(id), &mut vector)?;
    Ok(vector)
}
