//! Attention as two products of the device with a softmax of the host between them.
//!
//! For a key-value head's scores s, the host computes p = exp(scale·(s − max)) / Σ, in f32 by powers of two. The next
//! product takes p in the element type of its slot:
//!
//! | checked | held against | tolerance |
//! |---|---|---|
//! | queries, keys, values | the host's rows and the pages of the sequence | half a unit of the slot's element |
//! | both products | the numbers in their slots, in f64 | that of projections, with f32 results |
//! | probabilities | softmax in f64 of the scores that left the device | p · (e + half a unit), e = 4v·(scale·(∣s∣ + ∣max∣) + 8 + √n) |
//! | the host's rows of the result | the numbers that left the device | none: one rounding to bf16 |
//!
//! With v = 2⁻²⁴: s·scale·log₂e and its difference to the maximum are rounded, and the sum is of n terms.
//! The keys that a token sees are derived from the graph alone.

use super::rule::{OpRule, half_unit};
use super::{CallCheck, Mismatch, OpsState};
use millrace_graph::{Attention, Graph, Op};
use millrace_kernels::KvSide;
use millrace_plan::{
    AttentionPart, Binding, OperandArrangement, ValueArrangement, attention_products,
};
use millrace_runtime::npu::NpuError;

/// Half a unit in the last place of f32, relative.
const V: f64 = 1.0 / 16_777_216.0;

/// Below it binary16 has no normal numbers: half a step there.
const TINY: f64 = 3e-8;

/// One of the two products of a key-value head.
pub(super) struct HeadProduct<'a> {
    node: usize,
    attention: &'a Attention,
    kv_head: usize,
    n_keys: usize,
    /// Contents of its slots: two operands and the result.
    parts: [(AttentionPart, ValueArrangement); 3],
}

impl CallCheck<'_> {
    /// The part of attention that the call computes, if it is such a product.
    pub(super) fn head_product(&self) -> Option<HeadProduct<'_>> {
        let part = |slot: usize| match self.seen.call.bindings.get(slot) {
            Some(Binding::AttentionProduct { of, id, .. }) => Some((*of, *id)),
            _ => None,
        };
        let parts = [part(0)?, part(1)?, part(2)?];
        match self.seen.call.bindings.first()? {
            Binding::AttentionProduct {
                node,
                kv_head,
                n_keys,
                ..
            } => Some(HeadProduct {
                node: *node,
                attention: attention(self.graph(), *node)?,
                kv_head: *kv_head,
                n_keys: *n_keys,
                parts,
            }),
            _ => None,
        }
    }

    pub(super) fn head_product_call(
        &self,
        at: &HeadProduct<'_>,
        state: &mut OpsState,
    ) -> Result<(), NpuError> {
        let [x, w, y] = [0, 1, 2].map(|slot| self.numbers(at, slot));
        let (x, w, y) = (x?, w?, y?);
        let is_scores = at.parts[2].0 == AttentionPart::Scores;
        for (slot, found) in [(0, &x), (1, &w)] {
            if at.parts[slot].0 == AttentionPart::Probabilities {
                self.probabilities(at, found, state);
                continue;
            }
            let expected = self.given(at, slot);
            let half_unit = half_unit(self.slots()[slot].element);
            let off = |(expected, found): &(&f32, &f32)| {
                let (expected, found) = (f64::from(**expected), f64::from(**found));
                // NaN is off too.
                !matches!((found - expected).abs().partial_cmp(&(half_unit * expected.abs() + TINY)),
                    Some(order) if order.is_le())
            };
            let mut wrong = expected.iter().zip(found).enumerate();
            let first = wrong.by_ref().find(|(_, pair)| off(pair)).map(|(i, _)| i);
            let n_more = wrong.filter(|(_, pair)| off(pair)).count();
            state.summary.n_moved += 1;
            let at_byte = |i: usize| i * self.slots()[slot].element.size_bytes() as usize;
            let what = first.map(|i| Mismatch::Value {
                at: at_byte(i),
                n_wrong: at_byte(1 + n_more),
            });
            self.report(slot, None, Some(at.node), what, state);
        }
        let [n_rows, n] = self.shape(at, 2);
        let k = self.shape(at, 0)[1];
        state.summary.n_ops += 1;
        let (worst, n_wrong) = OpRule::product(x, w, k).compare(self.npu.cpu(), n_rows, n, &y);
        let launch = self.seen.plan.programs[self.seen.call.program]
            .launches
            .first();
        let what = (n_wrong > 0).then_some(Mismatch::Op {
            row: worst.row,
            col: worst.col,
            expected: worst.expected,
            found: worst.found,
            tolerance: worst.tolerance,
            n_wrong,
            n_elements: (n_rows * n) as u64,
        });
        self.note(at, worst.share, state);
        self.report(2, launch, Some(at.node), what, state);
        match is_scores {
            true => state.scores = y,
            false => self.sums(at, &y, state),
        }
        Ok(())
    }

    fn note(&self, at: &HeadProduct<'_>, share: f64, state: &mut OpsState) {
        let label = self.graph().nodes[at.node].label;
        let worst = state.summary.worst.entry(label).or_default();
        *worst = worst.max(share);
    }

    fn shape(&self, at: &HeadProduct<'_>, slot: usize) -> [usize; 2] {
        let n_tokens = self.seen.plan.n_tokens as usize;
        at.parts[slot].0.shape(at.attention, n_tokens, at.n_keys)
    }

    /// A slot's numbers, row-major.
    fn numbers(&self, at: &HeadProduct<'_>, slot: usize) -> Result<Vec<f32>, NpuError> {
        let [n_rows, width] = self.shape(at, slot);
        let mut rows = vec![0.0; n_rows * width];
        let bytes = self.bytes(slot)?;
        let id = at.parts[slot].1;
        let (planner, cpu, scales) = (self.npu.planner(), self.npu.cpu(), self.seen.scales);
        let read = match slot {
            2 => planner.unpack(
                cpu,
                &self.own_slot(slot, id),
                &bytes,
                scales,
                width,
                &mut rows,
            ),
            _ => {
                let scales = scales.get(slot).cloned().unwrap_or_default();
                let own = self.own_slot(slot, OperandArrangement::Value(id));
                planner.operand(cpu, &own, &bytes, &scales, &mut rows)
            }
        };
        read.map_err(|problem| NpuError::plan(&self.seen.call.set, problem))?;
        Ok(rows)
    }

    /// The expected content of an operand's slot. Of queries, only the rows without padding.
    fn given(&self, at: &HeadProduct<'_>, slot: usize) -> Vec<f32> {
        let [n_rows, width] = self.shape(at, slot);
        let (a, seen) = (at.attention, self.seen);
        let side = match at.parts[slot].0 {
            AttentionPart::Keys => KvSide::K,
            AttentionPart::Values => KvSide::V,
            AttentionPart::Queries(q) => {
                let q = seen.value(q);
                let group = attention_products::group(a);
                let rows = (0..seen.n_real * group).map(|row| (row / group, row % group));
                return rows
                    .flat_map(|(token, head)| {
                        let head = at.kv_head * group + head;
                        let start = (token * a.n_heads + head) * a.head_dim;
                        q.get(start..start + a.head_dim).unwrap_or_default()
                    })
                    .map(|x| x.to_f32())
                    .collect();
            }
            _ => return Vec::new(),
        };
        let mut rows = vec![0.0; n_rows * width];
        let mut row = vec![0.0; a.head_dim];
        for (key, position) in (oldest(a, seen.first)..seen.first + seen.n_real).enumerate() {
            // A missing row is NaN, which equals nothing.
            let read = seen.cached_row(a.layer, side, (at.kv_head, position), &mut row);
            if read.is_none() {
                row.fill(f32::NAN);
            }
            for (dim, x) in row.iter().enumerate() {
                let place = match side {
                    KvSide::K => key * width + dim,
                    KvSide::V => dim * width + key,
                };
                if let Some(place) = rows.get_mut(place) {
                    *place = *x;
                }
            }
        }
        rows
    }

    /// Softmax in f64 of the scores that left the device.
    fn probabilities(&self, at: &HeadProduct<'_>, found: &[f32], state: &mut OpsState) {
        let (a, seen) = (at.attention, self.seen);
        let (group, scale) = (attention_products::group(a), f64::from(a.scale));
        let half_unit = half_unit(self.slots()[0].element);
        let base = oldest(a, seen.first);
        let (mut worst, mut worst_share, mut n_wrong) = (None, 0.0, 0);
        let rows = found
            .chunks_exact(at.n_keys)
            .zip(state.scores.chunks_exact(at.n_keys));
        for (row, (found, scores)) in rows.enumerate() {
            let position = seen.first + row / group;
            let sees = |key: usize| {
                let key = base + key;
                let is_in_window = a.window.is_none_or(|window| key + window > position);
                row / group < seen.n_real && key <= position && is_in_window
            };
            let score = |key: usize| scale * f64::from(scores[key]);
            let keys = || (0..at.n_keys).filter(|key| sees(*key));
            let max = keys().map(score).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = keys().map(|key| (score(key) - max).exp()).sum();
            for (key, found) in found.iter().enumerate() {
                let (p, off) = match sees(key) {
                    true => {
                        let rounded =
                            score(key).abs() + max.abs() + 8.0 + (at.n_keys as f64).sqrt();
                        ((score(key) - max).exp() / sum, 4.0 * V * rounded)
                    }
                    false => (0.0, 0.0),
                };
                let tolerance = p * (off + half_unit) + TINY;
                let error = (f64::from(*found) - p).abs();
                let share = if error.is_nan() {
                    f64::INFINITY
                } else {
                    error / tolerance
                };
                n_wrong += u64::from(share > 1.0);
                if share > worst_share {
                    worst_share = share;
                    worst = Some((row, key, p, f64::from(*found), tolerance));
                }
            }
        }
        state.summary.n_ops += 1;
        self.note(at, worst_share, state);
        let n_elements = found.len() as u64;
        let what = worst.filter(|_| n_wrong > 0);
        let what = what.map(|(row, col, expected, found, tolerance)| Mismatch::Op {
            row,
            col,
            expected,
            found,
            tolerance,
            n_wrong,
            n_elements,
        });
        self.report(0, None, Some(at.node), what, state);
    }

    /// The host's rows of a result are the numbers that left the device, rounded once.
    fn sums(&self, at: &HeadProduct<'_>, found: &[f32], state: &mut OpsState) {
        let a = at.attention;
        let output = self.graph().nodes[at.node].output;
        let rows = self.seen.value(output);
        let elems = attention_products::group(a) * a.head_dim;
        let (mut first, mut n_wrong) = (None, 0);
        for (token, sums) in found.chunks_exact(elems).take(self.seen.n_real).enumerate() {
            let start = token * a.n_heads * a.head_dim + at.kv_head * elems;
            for (i, sum) in sums.iter().enumerate() {
                if rows.get(start + i) != Some(&half::bf16::from_f32(*sum)) {
                    first.get_or_insert(2 * (start + i));
                    n_wrong += 2;
                }
            }
        }
        state.summary.n_moved += 1;
        let what = first.map(|at| Mismatch::Value { at, n_wrong });
        self.report(2, None, Some(at.node), what, state);
    }
}

/// The attention of a node.
fn attention(graph: &Graph, node: usize) -> Option<&Attention> {
    match &graph.nodes.get(node)?.op {
        Op::Attention(attention) => Some(attention),
        _ => None,
    }
}

/// The oldest position that a token after `first` others sees.
fn oldest(attention: &Attention, first: usize) -> usize {
    match attention.window {
        Some(window) if first + 1 > window => first + 1 - window,
        _ => 0,
    }
}
