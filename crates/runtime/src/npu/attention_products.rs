//! Attention as two products of the device for each key-value head, with the host's softmax between
//! them ([`millrace_plan::attention_products`] says which values go where).

use super::NpuError;
use super::cached::SequencePages;
use super::pass::Pass;
use half::bf16;
use half::slice::HalfFloatSliceExt;
use millrace_graph::{Attention, Graph, Op, ValueId};
use millrace_kernels::{self as kernels, KvSide};
use millrace_plan::{AttentionPart, Binding, Call, Scales, ValueArrangement, attention_products};
use std::ops::Range;

/// The keys that a pass reads of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRows {
    window: Option<usize>,
    first: usize,
    n_real: usize,
    /// Positions of key 0 and of all that the sequence has.
    pub(super) positions: Range<usize>,
}

impl KeyRows {
    /// Keys of a pass of `n_real` tokens after `first` others.
    pub(super) fn of(attention: &Attention, first: usize, n_real: usize) -> KeyRows {
        let window = attention.window;
        let oldest = window.map_or(0, |window| (first + 1).saturating_sub(window));
        KeyRows {
            window,
            first,
            n_real,
            positions: oldest..first + n_real,
        }
    }

    /// Keys that a token of the pass sees, by index; none for padding.
    pub(super) fn seen(&self, token: usize) -> Range<usize> {
        if token >= self.n_real {
            return 0..0;
        }
        let end = self.first + token + 1;
        let start = self.window.map_or(0, |window| end.saturating_sub(window));
        start - self.positions.start..end - self.positions.start
    }
}

/// The attention of a node.
pub(super) fn attention(graph: &Graph, node: usize) -> Option<&Attention> {
    match &graph.nodes.get(node)?.op {
        Op::Attention(attention) => Some(attention),
        _ => None,
    }
}

/// First element of a token's heads that share a key-value head, and how many elements they are.
pub(super) fn heads(attention: &Attention, token: usize, kv_head: usize) -> Range<usize> {
    let elems = attention_products::group(attention) * attention.head_dim;
    let start = token * attention.n_heads * attention.head_dim + kv_head * elems;
    start..start + elems
}

impl Pass<'_> {
    fn attention_slot(&self, call: &Call, number: usize) -> Result<AttentionSlot<'_>, String> {
        let graph = &self.npu.model.model().graph;
        let Binding::AttentionProduct {
            node,
            kv_head,
            of,
            n_keys,
            id,
        } = call.bindings[number]
        else {
            return Err("no part of attention".to_owned());
        };
        let attention = attention(graph, node).ok_or("no attention")?;
        let keys = KeyRows::of(attention, self.first, self.n_real);
        if keys.positions.len() > n_keys {
            let found = keys.positions.len();
            return Err(format!("{found} keys for a product of {n_keys}"));
        }
        Ok(AttentionSlot {
            attention,
            kv_head,
            of,
            id,
            keys,
            shape: of.shape(attention, self.tokens.len(), n_keys),
        })
    }

    /// Writes an operand of one of the two products into its slot.
    pub(super) fn attention_input(
        &self,
        call: &Call,
        number: usize,
        out: &mut [u8],
    ) -> Result<Scales, String> {
        let at = self.attention_slot(call, number)?;
        let [n_rows, width] = at.shape;
        let mut rows = vec![0.0; n_rows * width];
        match at.of {
            AttentionPart::Queries(q) => self.queries(&at, q, &mut rows)?,
            AttentionPart::Keys => {
                for (row, position) in rows.chunks_exact_mut(width).zip(at.keys.positions.clone()) {
                    self.cached_row(&at, KvSide::K, position, row)?;
                }
            }
            AttentionPart::Values => {
                let mut row = vec![0.0; n_rows];
                for (key, position) in at.keys.positions.clone().enumerate() {
                    self.cached_row(&at, KvSide::V, position, &mut row)?;
                    let column = rows[key..].iter_mut().step_by(width);
                    column.zip(&row).for_each(|(to, value)| *to = *value);
                }
            }
            AttentionPart::Probabilities if self.scores.len() == rows.len() => {
                rows.copy_from_slice(&self.scores);
            }
            _ => return Err("no scores before it".to_owned()),
        }
        let own = self.prepared.own_slot(call, number, at.id);
        let (arrangement, cpu) = (self.npu.arrangement(), &self.npu.cpu);
        arrangement.pack(cpu, &own, &rows, width, out)
    }

    fn queries(&self, at: &AttentionSlot<'_>, q: ValueId, rows: &mut [f32]) -> Result<(), String> {
        let q = self.values.get(q);
        let elems = attention_products::group(at.attention) * at.attention.head_dim;
        for (token, rows) in rows.chunks_exact_mut(elems.max(1)).enumerate() {
            let q = q.get(heads(at.attention, token, at.kv_head));
            q.ok_or("queries of another shape")?
                .convert_to_f32_slice(rows);
        }
        Ok(())
    }

    fn cached_row(
        &self,
        at: &AttentionSlot<'_>,
        side: KvSide,
        position: usize,
        row: &mut [f32],
    ) -> Result<(), String> {
        let read = SequencePages::of(self.cache, self.seq).read(
            at.attention.layer,
            side,
            (at.kv_head, position),
            row,
        );
        read.ok_or_else(|| format!("the cache has no position {position}"))
    }

    /// Takes a result of one of the two products from its slot: scores unchanged, sums into the group's heads
    /// of their value. Rows of padding become zero, as nothing reads them.
    pub(super) fn attention_output(
        &self,
        call: &Call,
        number: usize,
        (bytes, slots): (&[u8], &[Scales]),
        outputs: &mut [(ValueId, Vec<bf16>)],
        scores: &mut Vec<f32>,
    ) -> Result<(), String> {
        let at = self.attention_slot(call, number)?;
        let [n_rows, width] = at.shape;
        let mut rows = vec![0.0; n_rows * width];
        let own = self.prepared.own_slot(call, number, at.id);
        let (arrangement, cpu) = (self.npu.arrangement(), &self.npu.cpu);
        arrangement.unpack(cpu, &own, bytes, slots, width, &mut rows)?;
        let Some(value) = at.of.value() else {
            *scores = rows;
            return Ok(());
        };
        let output = outputs.iter_mut().find(|(other, _)| *other == value);
        let (_, output) = output.ok_or("nobody wants its value")?;
        let elems = attention_products::group(at.attention) * at.attention.head_dim;
        for (token, sums) in rows.chunks_exact_mut(elems.max(1)).enumerate() {
            if token >= self.n_real {
                sums.fill(0.0);
            }
            let to = output.get_mut(heads(at.attention, token, at.kv_head));
            to.ok_or("sums of another shape")?
                .convert_from_f32_slice(sums);
        }
        Ok(())
    }

    /// Probabilities of the scores from the previous call.
    pub(super) fn softmax(&mut self, node: usize, n_keys: usize) -> Result<(), NpuError> {
        let wrong = |problem: &str| NpuError::plan("softmax", problem);
        let graph = &self.npu.model.model().graph;
        let attention = attention(graph, node).ok_or_else(|| wrong("no attention"))?;
        let group = attention_products::group(attention).max(1);
        let keys = KeyRows::of(attention, self.first, self.n_real);
        if self.scores.len() != self.tokens.len() * group * n_keys || keys.positions.len() > n_keys
        {
            return Err(wrong("scores of another shape"));
        }
        let seen = |row: usize| keys.seen(row / group);
        let (cpu, scores) = (&self.npu.cpu, &mut self.scores);
        kernels::softmax(cpu, scores, n_keys, attention.scale, &seen);
        Ok(())
    }
}

/// A slot of one of the two products.
struct AttentionSlot<'a> {
    attention: &'a Attention,
    kv_head: usize,
    of: AttentionPart,
    id: ValueArrangement,
    keys: KeyRows,
    /// Rows, and elements of a row.
    shape: [usize; 2],
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(window: Option<usize>, first: usize, n_real: usize) -> KeyRows {
        let attention = Attention {
            layer: 0,
            n_heads: 4,
            n_kv_heads: 2,
            head_dim: 8,
            scale: 1.0,
            window,
            chunked: false,
            softcap: None,
            sinks: None,
            slopes: None,
        };
        KeyRows::of(&attention, first, n_real)
    }

    /// Against the graph's own words: a query at p sees p − w + 1 ..= p.
    #[test]
    fn keys_are_those_that_a_token_sees() {
        for (window, first, n_real) in [
            (None, 0, 5),
            (None, 70, 3),
            (Some(4), 0, 9),
            (Some(4), 2, 3),
            (Some(4), 90, 6),
            (Some(1), 7, 2),
        ] {
            let keys = rows(window, first, n_real);
            for token in 0..n_real {
                let position = first + token;
                let sees = |key: usize| key <= position && key + window.unwrap_or(1000) > position;
                let expected: Vec<usize> = (0..200).filter(|key| sees(*key)).collect();
                let found = keys.seen(token).map(|key| keys.positions.start + key);
                assert_eq!(
                    found.collect::<Vec<_>>(),
                    expected,
                    "{window:?} {first} {token}"
                );
                assert!(keys.positions.contains(&expected[0]));
            }
            assert_eq!(keys.seen(0).start, 0);
            assert!(keys.seen(n_real).is_empty());
            assert_eq!(keys.positions.end, first + n_real);
        }
    }
}
