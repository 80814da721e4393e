//! One op over rows of f32 by its definition, and the data of a model that kernels and definitions read.

use super::plan::PlanError;
use super::planes::Planes;
use crate::Error;
use crate::load::LoadedModel;
use millrace_graph::{
    self as graph, Executor, Graph, Node, RopeStyle, RowPool, Tokens, WeightId, WeightKind,
    WeightValues, exact,
};
use millrace_kernels::matmul::WeightMatrix;
use millrace_kernels::{Cpu, RopeTable};
use millrace_quant as quant;

/// Inputs of definitions besides values: the numbers of a model's weights, and threads.
pub struct Numbers<'a> {
    /// The threads.
    pub cpu: &'a Cpu,
    /// The model.
    pub model: &'a LoadedModel,
    /// Its vectors as f32, by weight ([`decode_vectors`]).
    pub vectors: &'a [Vec<f32>],
}

impl WeightValues<f32> for Numbers<'_> {
    fn row(&self, id: WeightId, row: usize, out: &mut [f32]) {
        let spec = &self.model.model().graph.weights[id.0];
        let (n, k) = (spec.n, spec.k);
        let (expert, row) = (row / n, row % n);
        let bytes = self.model.matrix_bytes(id, expert);
        let decoded = quant::decode_rows(spec.dtype, bytes, n, k, row..row + 1, out);
        decoded.expect("the graph's weights were checked against the checkpoint");
    }

    fn vector(&self, id: WeightId) -> &[f32] {
        &self.vectors[id.0]
    }
}

impl RowPool<f32> for Numbers<'_> {
    fn each_row(&self, out: &mut [f32], width: usize, row: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        self.cpu.pool().run_pieces(out, width, row);
    }
}

/// Inputs of ops besides values.
#[derive(Clone, Copy)]
pub(crate) struct Ops<'a> {
    pub(crate) cpu: &'a Cpu,
    pub(crate) model: &'a LoadedModel,
    /// Vector weights, by weight; empty for the others.
    pub(crate) vectors: &'a [Vec<f32>],
    /// By the graph's tables.
    pub(crate) ropes: &'a [RopeTable],
    /// For rows with positions on three axes.
    pub(crate) planes: Planes<'a>,
}

impl<'a> Ops<'a> {
    /// An op without memory by its definition, rows side by side.
    pub(crate) fn by_definition(
        &self,
        node: &Node,
        tokens: Tokens<'_>,
        inputs: &[&[f32]],
        out: &mut [f32],
    ) {
        if self.by_products(node, inputs, out) {
            return;
        }
        self.executor().rows(node, tokens, inputs, out);
    }

    fn numbers(&self) -> Numbers<'a> {
        Numbers {
            cpu: self.cpu,
            model: self.model,
            vectors: self.vectors,
        }
    }

    /// The executor of ops by their definitions, rows side by side.
    pub(super) fn executor(&self) -> Executor<'_, f32> {
        Executor {
            graph: self.graph(),
            weights: self,
            pool: self,
            round: exact,
        }
    }

    /// The weight as a matrix over the checkpoint's own bytes.
    ///
    /// # Errors
    /// A shape or a format that kernels do not support.
    pub(crate) fn matrix(&self, weight: WeightId) -> Result<WeightMatrix<'a>, Error> {
        matrix(self.model, weight)
    }

    pub(crate) fn graph(&self) -> &'a Graph {
        &self.model.model().graph
    }
}

impl WeightValues<f32> for Ops<'_> {
    fn row(&self, id: WeightId, row: usize, out: &mut [f32]) {
        self.numbers().row(id, row, out);
    }

    fn vector(&self, id: WeightId) -> &[f32] {
        &self.vectors[id.0]
    }
}

impl RowPool<f32> for Ops<'_> {
    fn each_row(&self, out: &mut [f32], width: usize, row: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        self.numbers().each_row(out, width, row);
    }
}

/// The kernels' form of a rotation, with its own pairing of elements.
pub(crate) fn rope_table(rope: &graph::Rope) -> RopeTable {
    let interleaved = rope.style == RopeStyle::Interleaved;
    RopeTable::new(interleaved, rope.inv_freq.clone(), rope.attention_factor)
}

/// The weight as a matrix over the checkpoint's own bytes.
pub(super) fn matrix(model: &LoadedModel, weight: WeightId) -> Result<WeightMatrix<'_>, Error> {
    expert_matrix(model, weight, 0)
}

/// One matrix of a weight that has several.
pub(super) fn expert_matrix(
    model: &LoadedModel,
    weight: WeightId,
    expert: usize,
) -> Result<WeightMatrix<'_>, Error> {
    let spec = &model.model().graph.weights[weight.0];
    let bytes = model.matrix_bytes(weight, expert);
    Ok(WeightMatrix::new(spec.dtype, spec.n, spec.k, bytes)?)
}

/// Tries every matrix once, so that steps need not fail.
pub(super) fn check_matrices(model: &LoadedModel, graph: &Graph) -> Result<(), Error> {
    let used = graph.nodes.iter().flat_map(|node| node.op.weights());
    for used in used.filter(|used| used.kind != WeightKind::Vector) {
        let weight = &graph.weights[used.id.0];
        if weight.n_experts > 1 && weight.dtype.block_rows() > 1 {
            let format = weight.dtype.name();
            let problem = format!("{}: matrices of experts in {format} tiles", weight.name);
            return Err(PlanError::Weight(problem).into());
        }
        for expert in 0..weight.n_experts {
            expert_matrix(model, used.id, expert)?;
        }
    }
    Ok(())
}

/// Decodes the weights that ops read as f32 vectors, by weight; empty for the others.
pub fn decode_vectors(model: &LoadedModel, graph: &Graph) -> Result<Vec<Vec<f32>>, Error> {
    let mut vectors = vec![Vec::new(); graph.weights.len()];
    let used = graph.nodes.iter().flat_map(|node| node.op.weights());
    for used in used.filter(|used| used.kind == WeightKind::Vector) {
        vectors[used.id.0] = decode_vector(model, used.id)?;
    }
    Ok(vectors)
}

/// A weight that is a vector, as f32.
pub(crate) fn decode_vector(model: &LoadedModel, id: WeightId) -> Result<Vec<f32>, Error> {
    let spec = &model.model().graph.weights[id.0];
    let mut vector = vec![0.0; spec.n_experts * spec.n * spec.k];
    let matrices = vector.chunks_exact_mut((spec.n * spec.k).max(1));
    for (matrix, numbers) in matrices.enumerate() {
        quant::decode_blocks(spec.dtype, model.matrix_bytes(id, matrix), numbers)?;
    }
    Ok(vector)
}
