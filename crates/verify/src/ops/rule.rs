//! An op's value in f64, and how far a device may be from it.
//!
//! With u = 2⁻⁸ (half a unit in the last place of bf16, to nearest; of a product that leaves the device in
//! another type, that type's), v = 2⁻²⁴ (of f32), y the exact
//! result and A the same sum over absolute values:
//!
//! | op | tolerance | rounding points |
//! |---|---|---|
//! | projection, its bias not in it | u·∣y∣ + λ·√k·v·A | one rounding of an f32 sum of k products |
//! | … truncating every K elements | 2u·Σ∣s∣ + λ·√k·v·A | s: the sum after each K elements |
//! | … by groups, w = scale·q + offset | u·(∣y∣ + Σ(∣scale·Σq·x∣ + ∣offset·Σx∣)) + λ·√k·v·A | both sums of every group, and the last |
//! | norm | (u + (λ·√n + 8)·v)·∣y∣ | one rounding; a mean of n squares in f32 |
//! | embedding | u·∣y∣ | one rounding of a scaled row |
//! | rotation | u·∣y∣ + 4v·(∣a·cos∣ + ∣b·sin∣) | one rounding |
//! | … by a table that no slot shows | the same + u·(∣a·cos∣ + ∣b·sin∣) | cosines and sines in bf16 |
//! | add | u·∣y∣ | one rounding |
//! | SwiGLU | (½∣t∣ + 3σ)·u·∣gate·up∣ | tanh t, 1 + t, and two products: each rounded; σ = ½(1 + t) |
//! | GeGLU (tanh) | ½∣x·up∣·((1 − t²)·7u·∣i∣ + u·∣t∣ + 3u·(1 + t)) | seven in tanh's argument i, then as above |
//! | attention | see [`AttentionRule`] | scores, probabilities, maxima, sums and output in bf16 |
//!
//! Where matrix units convert operands to blocks of eight values with one exponent, y and A are those of
//! the converted operands, which are bf16 numbers. Attention's probabilities are not known exactly, so its
//! second product has the most that converting changes.
//!
//! √k with λ = 8 instead of k is the probabilistic bound of Higham and Mary (SIAM J. Sci. Comput.
//! 41(5), 2019): beyond it lies one element in 10¹³, where k itself would let a wrong element pass.
//! Products of first-order terms are covered by a factor of 1 + 32u.

mod attention;
mod elementwise;
mod largest;

use crate::reference::{blocks, narrow};
use attention::AttentionRule;
use elementwise::{geglu, norm, pairs, rope, scaled, swiglu};
pub(super) use largest::LargestError;
use millrace_graph::{Activation, Embed, Glu, Node, Op, RmsNorm, RotateHeads};
use millrace_kernels::Cpu;
use millrace_npu::Element;
use millrace_plan::{Arithmetic, Binding, PlannedLaunch, WeightLayout};
use std::ops::Range;

/// Half a unit in the last place of bf16, relative.
pub(super) const U: f64 = 1.0 / 256.0;
/// The same of f32.
pub(super) const V: f64 = 1.0 / 16_777_216.0;
pub(super) const LAMBDA: f64 = 8.0;
pub(super) const SECOND_ORDER: f64 = 1.0 + 32.0 * U;
/// Below it bf16 has no normal numbers, and hardware may flush them.
pub(super) const TINY: f64 = 2.4e-38;

/// Columns of a projection that are computed together.
const COLUMNS: usize = 256;

/// An op as a device computed it.
pub(super) struct Operation<'a> {
    pub(super) node: &'a Node,
    pub(super) launch: &'a PlannedLaunch,
    /// Arithmetic that the target states.
    pub(super) arithmetic: Arithmetic,
    /// Contents of the slot of the weight or table.
    pub(super) parameter: Option<&'a Binding>,
    /// By the node's inputs, row-major; cached keys and values head-major.
    pub(super) operands: Vec<Vec<f32>>,
    /// The weight's or table's slot.
    pub(super) weights: Vec<f32>,
    /// Size of a weight's groups and their offsets, if groups' sums are rounded separately.
    pub(super) offsets: Option<(usize, Vec<f32>)>,
    /// Element type of the result's slot.
    pub(super) result: Element,
    /// Widths of the inputs.
    pub(super) widths: Vec<usize>,
    /// Number of rows of the result without padding.
    pub(super) n_rows: usize,
    /// Position of the first row; of attention, among its keys.
    pub(super) first: usize,
    /// The first of attention's keys that belongs to a token.
    pub(super) oldest_key: usize,
}

/// A formula with its operands.
pub(super) enum OpRule {
    Linear {
        x: Vec<f32>,
        w: Vec<f32>,
        k: usize,
        /// Elements between two rows of the stored matrix.
        stride: usize,
        transposed: bool,
        /// Elements after which sums are truncated to bf16.
        truncated_every: Option<usize>,
        /// Size of groups whose sums are rounded to bf16, and their offsets by row.
        offsets: Option<(usize, Vec<f32>)>,
        /// Half a unit in the last place of the result's type.
        half_unit: f64,
    },
    Norm {
        x: Vec<f32>,
        weight: Vec<f32>,
        eps: f64,
    },
    Embed {
        rows: Vec<f32>,
        scale: f64,
    },
    Rope {
        x: Vec<f32>,
        table: Vec<f32>,
        head_dim: usize,
        /// Relative error of cosines and sines.
        table_off: f64,
    },
    Glu {
        activation: GateFunction,
        gate: Vec<f32>,
        up: Vec<f32>,
    },
    Add {
        a: Vec<f32>,
        b: Vec<f32>,
    },
    Attention(AttentionRule),
}

/// An element's exact value and tolerance.
#[derive(Clone, Copy)]
struct Exact {
    y: f64,
    tolerance: f64,
}

/// The functions of gates that devices compute.
#[derive(Clone, Copy, Debug)]
pub(super) enum GateFunction {
    Silu,
    GeluTanh,
}

impl GateFunction {
    fn of(glu: &Glu) -> Result<GateFunction, String> {
        match (glu.activation, glu.clamp) {
            (Activation::Silu, None) => Ok(GateFunction::Silu),
            (Activation::GeluTanh, None) => Ok(GateFunction::GeluTanh),
            _ => Err("no device computes this gate".to_owned()),
        }
    }
}

fn f(x: f32) -> f64 {
    f64::from(x)
}

impl OpRule {
    /// The rule of an op, or why there is none.
    pub(super) fn new(op: &Operation<'_>) -> Result<OpRule, String> {
        let (n_rows, widths, weights) = (op.n_rows, &op.widths, &op.weights);
        let steps = op.arithmetic.attention;
        let from_cache = steps.is_some_and(|steps| steps.cache_rows.is_some());
        let rows = op.operands.iter().zip(widths);
        if !from_cache && !rows.clone().all(|(x, width)| x.len() >= n_rows * width) {
            return Err("an operand has fewer rows than the result".to_owned());
        }
        let operand = |i: usize| op.operands.get(i).cloned().unwrap_or_default();
        match (&op.node.op, op.parameter) {
            (Op::Linear(_), Some(Binding::Weight { layout, .. })) => {
                let (mut x, mut w, k) = (operand(0), weights.clone(), widths[0].max(1));
                if op.arithmetic.in_blocks {
                    x.chunks_exact_mut(k).for_each(in_blocks);
                    match layout {
                        WeightLayout::Transposed { .. } => {
                            let n = w.len() / k;
                            blocks::convert_columns(&mut w, n);
                        }
                        _ => w.chunks_exact_mut(k).for_each(in_blocks),
                    }
                }
                if let Some(rule) = &op.arithmetic.narrowed {
                    let rows = x.chunks_exact_mut(k);
                    rows.for_each(|row| narrow::activations(row, rule));
                }
                linear(op, layout, x, w, k)
            }
            (Op::RmsNorm(RmsNorm { eps, group, .. }), _) if weights.len() == *group => {
                Ok(OpRule::Norm {
                    x: operand(0),
                    weight: weights.clone(),
                    eps: f64::from(*eps),
                })
            }
            (Op::Rope(RotateHeads { head_dim, .. }), _) if weights.len() >= n_rows * widths[0] => {
                Ok(OpRule::Rope {
                    x: operand(0),
                    table: weights.clone(),
                    head_dim: *head_dim,
                    table_off: if op.parameter.is_some() { 0.0 } else { U },
                })
            }
            (Op::Glu(glu), _) => Ok(OpRule::Glu {
                activation: GateFunction::of(glu)?,
                gate: operand(0),
                up: operand(1),
            }),
            (Op::Add(_), _) => Ok(OpRule::Add {
                a: operand(0),
                b: operand(1),
            }),
            (Op::Attention(a), _) => AttentionRule::new(a, op).map(OpRule::Attention),
            _ => Err(format!("no rule for `{}`", op.launch.kernel)),
        }
    }

    /// The rule of an embedding, from its rows of the table.
    pub(super) fn embed(op: &Op, rows: Vec<f32>) -> OpRule {
        let scale = match op {
            Op::Embed(Embed { scale, .. }) => f64::from(*scale),
            _ => 1.0,
        };
        OpRule::Embed { rows, scale }
    }

    /// `x [n_rows, k] · w [n, k]ᵀ` with f32 sums.
    pub(super) fn product(x: Vec<f32>, w: Vec<f32>, k: usize) -> OpRule {
        OpRule::Linear {
            x,
            w,
            k,
            stride: k,
            transposed: false,
            truncated_every: None,
            offsets: None,
            half_unit: V,
        }
    }

    /// The worst of `found: [n_rows, n_cols]`, and how many are beyond their tolerance.
    pub(super) fn compare(
        &self,
        cpu: &Cpu,
        n_rows: usize,
        n_cols: usize,
        found: &[f32],
    ) -> (LargestError, u64) {
        let piece = self.piece(n_cols).clamp(1, n_cols.max(1));
        let pieces = n_cols.div_ceil(piece);
        let mut worst = vec![LargestError::default(); n_rows * pieces];
        cpu.pool().run_pieces(&mut worst, 1, &|index, worst| {
            let (row, start) = (index / pieces, index % pieces * piece);
            let cols = start..n_cols.min(start + piece);
            let exact = self.exact(row, n_cols, cols.clone());
            for (col, exact) in cols.zip(exact) {
                worst[0].take(row, col, exact, f(found[row * n_cols + col]));
            }
        });
        let n_wrong = worst.iter().map(|w| w.n_wrong).sum();
        let worst = worst
            .into_iter()
            .reduce(|a, b| if b.share > a.share { b } else { a });
        (worst.unwrap_or_default(), n_wrong)
    }

    /// Columns to compute together.
    fn piece(&self, n_cols: usize) -> usize {
        match self {
            OpRule::Linear { .. } => COLUMNS,
            OpRule::Norm { weight, .. } => weight.len(),
            OpRule::Rope { head_dim, .. } => *head_dim,
            OpRule::Embed { .. } | OpRule::Glu { .. } | OpRule::Add { .. } => n_cols,
            OpRule::Attention(attention) => attention.head_dim,
        }
    }

    /// Some columns of a row of the result.
    fn exact(&self, row: usize, n_cols: usize, cols: Range<usize>) -> Vec<Exact> {
        let at = row * n_cols + cols.start..row * n_cols + cols.end;
        let mut exact = match self {
            OpRule::Linear { x, k, .. } => self.products(&x[row * k..][..*k], cols),
            OpRule::Norm { x, weight, eps } => norm(&x[at], weight, *eps),
            OpRule::Embed { rows, scale } => {
                rows[at].iter().map(|x| scaled(f(*x) * scale)).collect()
            }
            OpRule::Rope {
                x,
                table,
                table_off,
                ..
            } => rope(&x[at.clone()], &table[at], *table_off),
            OpRule::Glu {
                activation,
                gate,
                up,
            } => pairs(&gate[at.clone()], &up[at], |gate, up| match activation {
                GateFunction::Silu => swiglu(gate, up),
                GateFunction::GeluTanh => geglu(gate, up),
            }),
            OpRule::Add { a, b } => pairs(&a[at.clone()], &b[at], |a, b| Exact {
                y: a + b,
                tolerance: U * (a + b).abs(),
            }),
            OpRule::Attention(attention) => attention.head(row, cols.start / attention.head_dim),
        };
        for e in &mut exact {
            e.tolerance = e.tolerance * SECOND_ORDER + TINY;
        }
        exact
    }

    /// Columns of `x · W`.
    fn products(&self, x: &[f32], cols: Range<usize>) -> Vec<Exact> {
        let OpRule::Linear {
            w,
            k,
            stride,
            transposed,
            truncated_every,
            offsets,
            half_unit,
            ..
        } = self
        else {
            return Vec::new();
        };
        let n = cols.len();
        let (mut sums, mut sizes, mut partial) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
        let every = truncated_every.unwrap_or(*k).max(1);
        let columns = Columns {
            w,
            stride: *stride,
            transposed: *transposed,
            cols: cols.clone(),
        };
        for start in (0..*k).step_by(every) {
            columns.add_products(x, start..(start + every).min(*k), &mut sums, &mut sizes);
            if truncated_every.is_some() {
                let partial = partial.iter_mut().zip(&sums);
                partial.for_each(|(partial, sum): (&mut f64, &f64)| *partial += sum.abs());
            }
        }
        let float = LAMBDA * (*k as f64).sqrt() * V;
        let first = cols.start;
        let of = |i: usize| {
            let rounding = match (truncated_every, offsets) {
                (Some(_), _) => 2.0 * U * partial[i],
                (None, Some((group, offsets))) => {
                    let row = first + i;
                    let n_groups = k.div_ceil(*group);
                    let offsets = &offsets[row * n_groups..][..n_groups];
                    let w = &w[row * stride..][..*k];
                    half_unit * f64::abs(sums[i]) + U * group_sums(x, w, *group, offsets)
                }
                (None, None) => half_unit * f64::abs(sums[i]),
            };
            Exact {
                y: sums[i],
                tolerance: rounding + float * sizes[i],
            }
        };
        (0..n).map(of).collect()
    }
}

/// Some columns of a product, and the place of their weights.
struct Columns<'a> {
    w: &'a [f32],
    stride: usize,
    transposed: bool,
    cols: Range<usize>,
}

impl Columns<'_> {
    /// Adds products of the elements `part` of a row to each column's sum, absolute values to its size.
    fn add_products(&self, x: &[f32], part: Range<usize>, sums: &mut [f64], sizes: &mut [f64]) {
        if self.transposed {
            for i in part {
                let x = f(x[i]);
                let w = &self.w[i * self.stride..][self.cols.clone()];
                for ((sum, size), w) in sums.iter_mut().zip(&mut *sizes).zip(w) {
                    let product = x * f(*w);
                    *sum += product;
                    *size += product.abs();
                }
            }
        } else {
            for ((sum, size), row) in sums.iter_mut().zip(&mut *sizes).zip(self.cols.clone()) {
                let w = &self.w[row * self.stride..][part.clone()];
                let (products, absolute) = dot(&x[part.clone()], w);
                *sum += products;
                *size += absolute;
            }
        }
    }
}

/// A row of operands as matrix units multiply it; exactly, as results are bf16 numbers.
fn in_blocks(row: &mut [f32]) {
    blocks::convert(row);
}

fn linear(
    op: &Operation<'_>,
    layout: &WeightLayout,
    x: Vec<f32>,
    w: Vec<f32>,
    k: usize,
) -> Result<OpRule, String> {
    let transposed = matches!(layout, WeightLayout::Transposed { .. });
    let k = k.max(1);
    if !w.len().is_multiple_of(k) {
        return Err("a weight of another size".to_owned());
    }
    Ok(OpRule::Linear {
        stride: if transposed { w.len() / k } else { k },
        x,
        w,
        k,
        transposed,
        truncated_every: op.arithmetic.truncated_every,
        offsets: op.offsets.clone(),
        half_unit: half_unit(op.result),
    })
}

/// Half a unit in the last place of a type's numbers, relative.
pub(super) fn half_unit(element: Element) -> f64 {
    element
        .precision()
        .map_or(0.0, |digits| f64::from(-(digits as f32)).exp2())
}

/// Sum over the groups of a row of the values that are rounded: ∣scale·Σq·x∣ + ∣offset·Σx∣ of each.
fn group_sums(x: &[f32], w: &[f32], group: usize, offsets: &[f32]) -> f64 {
    let groups = x.chunks(group).zip(w.chunks(group)).zip(offsets);
    groups.fold(0.0, |size, ((x, w), offset)| {
        let product = dot(x, w).0;
        let lifted = f(*offset) * x.iter().map(|x| f(*x)).sum::<f64>();
        size + (product - lifted).abs() + lifted.abs()
    })
}

/// Sum of products, and of their absolute values, in eight sums each.
fn dot(a: &[f32], b: &[f32]) -> (f64, f64) {
    let (mut sums, mut sizes) = ([0.0; 8], [0.0; 8]);
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        for (((sum, size), a), b) in sums.iter_mut().zip(&mut sizes).zip(a).zip(b) {
            let product = f(*a) * f(*b);
            *sum += product;
            *size += f64::abs(product);
        }
    }
    (sums.iter().sum(), sizes.iter().sum())
}
