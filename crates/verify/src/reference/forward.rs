//! The graph by its definition, node by node: the reference that a device is judged by.
//!
//! The graph's executor computes a whole sequence at once, every token at its position. So one pass gives the
//! logits of every step of a continuation that is known. Nothing of the engine's plan, of the lowering or of the
//! array is used. This module has a device's numerics of products and of attention; matrices are multiplied by
//! the CPU's kernels in f32.

use super::Products;
use half::bf16;
use half::slice::HalfFloatSliceExt;
use millrace_graph::{
    Executor, Graph, Linear, MatrixProduct, Node, Op, RmsNorm, Sequence, SequenceNode, WeightId,
    exact,
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

/// Callback for each product, with its node and the rows of its inputs.
type VisitProduct<'a> = &'a mut dyn FnMut(&Node, &[&[f32]]);

/// The arithmetic of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassArithmetic {
    /// f32 throughout, weights as in the checkpoint.
    F32,
    /// Everything that an array of bf16 has to round is rounded to nearest: weights, tables and every value of the
    /// graph. Within attention these are also the scores and probabilities, and within a gated activation the
    /// function's value and the products. Sums are f32.
    Bf16,
}

impl PassArithmetic {
    fn round(self, x: &mut [f32]) {
        if self == PassArithmetic::Bf16 {
            x.iter_mut().for_each(|x| *x = self.one(*x));
        }
    }

    /// Rounding between the steps of a definition.
    fn rounding(self) -> fn(f32) -> f32 {
        match self {
            PassArithmetic::F32 => exact,
            PassArithmetic::Bf16 => |x| PassArithmetic::Bf16.one(x),
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

/// The same with given experts for tokens, if there are any, and a record of every choice.
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
    let how = (numerics, products);
    run(cpu, model, tokens, rows, how, (experts, &mut |_, _| {}))
}

/// Visits the activations of every matrix of a model, over the tokens of a sequence, in f32. `visit` is called for each
/// product in the graph's order, with its node and the node's inputs: the activations `[n_tokens, k]`, and for experts
/// the choice, too.
///
/// # Errors
/// As [`logits`].
pub fn visit_products(
    cpu: &Cpu,
    model: &LoadedModel,
    tokens: &[u32],
    visit: &mut dyn FnMut(&Node, &[&[f32]]),
) -> Result<(), Error> {
    let rows = tokens.len().saturating_sub(1)..tokens.len();
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
    let vocab_size = model.model().config.vocab_size;
    if let Some(&token) = tokens.iter().find(|token| **token as usize >= vocab_size) {
        return Err(Error::BadToken { token, vocab_size });
    }
    if rows.is_empty() || rows.end > tokens.len() {
        return Err(Error::EmptyPrompt);
    }
    let graph = &model.model().graph;
    let vectors = decode_vectors(model, graph)?;
    let numbers = Numbers {
        cpu,
        model,
        vectors: &vectors,
    };
    let executor = Executor {
        graph,
        weights: &numbers,
        pool: &numbers,
        round: numerics.rounding(),
    };
    let sequence = Sequence { executor, tokens };
    let mut pass = ForwardPass {
        cpu,
        model,
        graph,
        numerics,
        products,
        vectors: &vectors,
        is_behind_norm: false,
    };
    sequence.logits(rows, &mut |at| {
        pass.is_behind_norm = at.is_behind_norm;
        let mut out = match (&at.node.op, at.node.op.product()) {
            (_, Some(product)) => {
                visit(at.node, at.inputs);
                pass.of_product(&at, product)?
            }
            (Op::RmsNorm(norm), _) => pass.rms_norm(norm, at.inputs[0]),
            _ => sequence.value(&at),
        };
        match &at.node.op {
            Op::Attention(attention) => pass.attention(&at, attention, &mut out),
            Op::Route(route) => experts.choose(&at, route, numerics, &mut out),
            _ => {}
        }
        numerics.round(&mut out);
        Ok(out)
    })
}

/// Executor of the graph's ops with a device's numerics.
struct ForwardPass<'a> {
    cpu: &'a Cpu,
    model: &'a LoadedModel,
    graph: &'a Graph,
    numerics: PassArithmetic,
    products: &'a Products,
    /// Norm weights and biases, by weight.
    vectors: &'a [Vec<f32>],
    /// Whether the only rows are those whose logits are wanted.
    is_behind_norm: bool,
}

impl ForwardPass<'_> {
    /// Its sums of squares are the CPU's kernels': the bounds of verdicts are calibrated with them.
    fn rms_norm(&self, norm: &RmsNorm, x: &[f32]) -> Vec<f32> {
        let weight = self.vectors[norm.weight.0].iter();
        let mut scale: Vec<f32> = weight.map(|w| w + norm.offset).collect();
        self.numerics.round(&mut scale);
        let mut out = vec![0.0; x.len()];
        kernels::rms_norm(self.cpu, x, norm.group, &scale, norm.eps, 0.0, &mut out);
        out
    }

    fn of_product(
        &self,
        at: &SequenceNode<'_, f32>,
        product: MatrixProduct<'_>,
    ) -> Result<Vec<f32>, Error> {
        let (node, x) = (at.number, at.inputs[0]);
        match product {
            MatrixProduct::Plain(Linear { weight, bias }) => {
                self.product(node, ((*weight, 0), *bias), x, self.products.n_tokens)
            }
            MatrixProduct::Chosen(op) => self.expert_linear(node, op, x, at.inputs[1]),
            MatrixProduct::EachHead(op) => {
                self.head_linear(node, op, self.graph.width(at.node.inputs[0]), x)
            }
        }
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
