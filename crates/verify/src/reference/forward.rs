//! The graph by its definition, node by node: what a device is judged by.
//!
//! A whole sequence goes through at once, every token at its position, so one pass gives the logits of
//! every step of a continuation that is known. Nothing of the engine's plan, of the lowering or of the
//! array is used; matrices are multiplied by the CPU's kernels in f32.

use super::Products;
use half::bf16;
use half::slice::HalfFloatSliceExt;
use millrace_graph::{
    Embed, Graph, Linear, Node, Op, RmsNorm, Sequence, SequenceMemory, WeightId, exact,
};
use millrace_kernels::matmul::{Activations, Multiplication, Precision, WeightMatrix, matmul};
use millrace_kernels::{self as kernels, Cpu};
use millrace_quant::{self as quant};
use millrace_runtime::{Error, LoadedModel, Numbers, decode_vectors};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

mod attention;
mod experts;
mod linear;
mod operands;

pub use experts::ExpertChoices;

/// What is called for each product, with its node and the rows of its inputs.
type VisitProduct<'a> = &'a mut dyn FnMut(&Node, &[&[f32]]);

/// The arithmetic of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassArithmetic {
    /// f32 throughout, weights as the checkpoint gives them.
    F32,
    /// What an array of bf16 has to round, to nearest: weights, tables and every value of the graph;
    /// within attention the scores and probabilities; within a gated activation the function's value
    /// and the products. Sums are f32.
    Bf16,
}

impl PassArithmetic {
    fn round(self, x: &mut [f32]) {
        if self == PassArithmetic::Bf16 {
            x.iter_mut().for_each(|x| *x = self.one(*x));
        }
    }

    fn one(self, x: f32) -> f32 {
        match self {
            PassArithmetic::F32 => x,
            PassArithmetic::Bf16 => bf16::from_f32(x).to_f32(),
        }
    }
}

/// Logits `[rows.len(), vocab]` after the tokens `rows` of a sequence.
///
/// # Errors
/// As [`logits_with_experts`].
pub fn logits(
    cpu: &Cpu,
    model: &LoadedModel,
    tokens: &[u32],
    rows: Range<usize>,
    numerics: PassArithmetic,
    products: &Products,
) -> Result<Vec<f32>, Error> {
    let how = (numerics, products);
    logits_with_experts(cpu, model, tokens, rows, how, &mut ExpertChoices::default())
}

/// The same where tokens take the experts that are given, if there are any, and every choice is noted.
///
/// # Errors
/// No tokens, a token outside the vocabulary, rows beyond the sequence, weights that do not decode.
pub fn logits_with_experts(
    cpu: &Cpu,
    model: &LoadedModel,
    tokens: &[u32],
    rows: Range<usize>,
    (numerics, products): (PassArithmetic, &Products),
    experts: &mut ExpertChoices,
) -> Result<Vec<f32>, Error> {
    let vocab_size = model.model().config.vocab_size;
    if let Some(&token) = tokens.iter().find(|token| **token as usize >= vocab_size) {
        return Err(Error::BadToken { token, vocab_size });
    }
    if rows.is_empty() || rows.end > tokens.len() {
        return Err(Error::EmptyPrompt);
    }
    let how = (numerics, products);
    run(cpu, model, tokens, rows, how, (experts, &mut |_, _| {}))
}

/// What every matrix of a model multiplies, over the tokens of a sequence, in f32: `visit` is called for each
/// product in the graph's order with its node and what the node reads: the activations `[n_tokens, k]`, and of experts the
/// choice, too.
///
/// # Errors
/// As [`logits`].
pub fn visit_products(
    cpu: &Cpu,
    model: &LoadedModel,
    tokens: &[u32],
    visit: &mut dyn FnMut(&Node, &[&[f32]]),
) -> Result<(), Error> {
    let vocab_size = model.model().config.vocab_size;
    if let Some(&token) = tokens.iter().find(|token| **token as usize >= vocab_size) {
        return Err(Error::BadToken { token, vocab_size });
    }
    if tokens.is_empty() {
        return Err(Error::EmptyPrompt);
    }
    let rows = tokens.len() - 1..tokens.len();
    let how = (PassArithmetic::F32, &Products::default());
    let mut experts = ExpertChoices::default();
    run(cpu, model, tokens, rows, how, (&mut experts, visit))?;
    Ok(())
}

fn run(
    cpu: &Cpu,
    model: &LoadedModel,
    tokens: &[u32],
    rows: Range<usize>,
    (numerics, products): (PassArithmetic, &Products),
    (experts, visit): (&mut ExpertChoices, VisitProduct<'_>),
) -> Result<Vec<f32>, Error> {
    let graph = &model.model().graph;
    let mut pass = ForwardPass {
        cpu,
        model,
        graph,
        numerics,
        products,
        vectors: decode_vectors(model, graph)?,
        values: vec![Vec::new(); graph.values.len()],
        tokens,
        rows,
        is_cut: false,
        experts,
    };
    let last = last_uses(graph);
    for (index, node) in graph.nodes.iter().enumerate() {
        if node.op.product().is_some() {
            let inputs = node.inputs.iter().map(|input| &pass.values[input.0][..]);
            visit(node, &inputs.collect::<Vec<_>>());
        }
        pass.node(index, node)?;
        for (value, _) in last.iter().enumerate().filter(|(_, last)| **last == index) {
            pass.values[value] = Vec::new();
        }
    }
    let logits = graph
        .logits
        .map(|value| std::mem::take(&mut pass.values[value.0]));
    Ok(logits.unwrap_or_default())
}

/// By value, the node that reads it last; logits and what is never read stay.
fn last_uses(graph: &Graph) -> Vec<usize> {
    let mut last = vec![usize::MAX; graph.values.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|value| last[value.0] = index);
    }
    last
}

struct ForwardPass<'a> {
    cpu: &'a Cpu,
    model: &'a LoadedModel,
    graph: &'a Graph,
    numerics: PassArithmetic,
    products: &'a Products,
    /// Norm weights and biases, by weight.
    vectors: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
    tokens: &'a [u32],
    /// Tokens whose logits are wanted.
    rows: Range<usize>,
    /// Whether values have those rows only, as they do once the final norm was computed.
    is_cut: bool,
    experts: &'a mut ExpertChoices,
}

impl ForwardPass<'_> {
    fn node(&mut self, index: usize, node: &Node) -> Result<(), Error> {
        if Some(node.output) == self.graph.head_input && !self.is_cut {
            self.cut(node);
        }
        let input = |i: usize| -> &[f32] { &self.values[node.inputs[i].0] };
        let mut out = match &node.op {
            Op::Embed(Embed { table, scale }) => {
                let spec = &self.graph.weights[table.0];
                let bytes = self.model.weight_bytes(*table);
                let table = WeightMatrix::new(spec.dtype, spec.n, spec.k, bytes)?;
                let mut out = vec![0.0; self.tokens.len() * spec.k];
                kernels::embed(self.cpu, &table, self.tokens, *scale, &mut out)?;
                out
            }
            Op::RmsNorm(RmsNorm {
                weight,
                eps,
                offset,
                group,
            }) => {
                let x = input(0);
                let mut scale: Vec<f32> =
                    self.vectors[weight.0].iter().map(|w| w + offset).collect();
                self.numerics.round(&mut scale);
                let mut out = vec![0.0; x.len()];
                kernels::rms_norm(self.cpu, x, *group, &scale, *eps, 0.0, &mut out);
                out
            }
            Op::Linear(Linear { weight, bias }) => {
                self.linear(index, (*weight, *bias), input(0))?
            }
            Op::Attention(attention) => {
                let mut out = self.defined(node);
                if self.numerics == PassArithmetic::Bf16 && self.in_blocks(index) {
                    let qkv = [input(0), input(1), input(2)];
                    self.attention_in_blocks(attention, qkv, &mut out);
                }
                out
            }
            Op::ExpertLinear(op) => self.expert_linear(index, op, input(0), input(1))?,
            Op::HeadLinear(op) => {
                self.head_linear(index, op, self.graph.width(node.inputs[0]), input(0))?
            }
            Op::Route(route) => {
                let mut out = self.defined(node);
                self.choose(index, route, node, &mut out);
                out
            }
            _ => self.defined(node),
        };
        self.numerics.round(&mut out);
        self.values[node.output.0] = out;
        Ok(())
    }

    /// From here on values have the rows alone whose logits are wanted.
    fn cut(&mut self, node: &Node) {
        for value in &node.inputs {
            let width = self.graph.width(*value);
            let rows = self.rows.start * width..self.rows.end * width;
            self.values[value.0] = self.values[value.0][rows].to_vec();
        }
        self.is_cut = true;
    }

    /// A node by its op's definition, tokens side by side where none reads what another leaves.
    fn defined(&self, node: &Node) -> Vec<f32> {
        let values = node.inputs.iter().map(|v| &self.values[v.0][..]);
        let inputs: Vec<&[f32]> = values.collect();
        let width = self.graph.width(node.output);
        let n_rows = match self.is_cut {
            true => self.rows.len(),
            false => self.tokens.len(),
        };
        let sequence = Sequence {
            graph: self.graph,
            weights: &Numbers {
                model: self.model,
                vectors: &self.vectors,
            },
            tokens: &self.tokens[..n_rows],
            round: match self.numerics {
                PassArithmetic::F32 => exact,
                PassArithmetic::Bf16 => |x| PassArithmetic::Bf16.one(x),
            },
        };
        if let SequenceMemory::State(_) = node.op.memory() {
            return sequence.value(node, &inputs);
        }
        let mut out = vec![0.0; n_rows * width];
        self.cpu
            .pool()
            .run_pieces(&mut out, width, &|position, out| {
                sequence.row(node, &inputs, position, &mut [], out);
            });
        out
    }

    /// A matrix of a weight in bf16.
    fn rounded(&self, weight: WeightId, expert: usize) -> Result<Vec<bf16>, Error> {
        const ROWS: usize = 32;
        let spec = &self.graph.weights[weight.0];
        let (n, k, bytes) = (spec.n, spec.k, self.model.matrix_bytes(weight, expert));
        let failed = Mutex::new(Ok(()));
        let mut rounded = vec![bf16::ZERO; n * k];
        self.cpu
            .pool()
            .run_pieces(&mut rounded, ROWS * k, &|i, out| {
                let rows = i * ROWS..n.min((i + 1) * ROWS);
                let mut values = vec![0.0; out.len()];
                let decoded = quant::decode_rows(spec.dtype, bytes, n, k, rows, &mut values);
                if decoded.is_err() {
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = decoded;
                }
                out.convert_from_f32_slice(&values);
            });
        failed
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)?;
        Ok(rounded)
    }

    fn multiply(&self, weight: WeightMatrix<'_>, bias: Option<&[f32]>, x: &[f32], out: &mut [f32]) {
        let m = x.len() / weight.k();
        let mut activations = Activations::new(Precision::Exact);
        matmul(
            self.cpu,
            x,
            m,
            &mut activations,
            &mut [Multiplication { weight, bias, out }],
        );
    }
}
