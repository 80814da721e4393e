//! Rows of the cache in a device's slots against the pages of the sequence.

use super::{CallCheck, Mismatch, OpsState, statics};
use millrace_graph::Op;
use millrace_kernels::KvSide;
use millrace_npu::Role;
use millrace_plan::{Binding, CachePart, cache_element};
use millrace_runtime::npu::NpuError;

/// A slot that the call appends to, the layer of its cache, and the part of it.
pub(super) type CacheAppend = (usize, usize, CachePart);

impl CallCheck<'_> {
    /// Caches that the call appends to itself.
    pub(super) fn appends(&self) -> Vec<CacheAppend> {
        let slots = self.slots().iter().zip(&self.seen.call.bindings);
        let caches = slots.enumerate().filter_map(|(slot, of)| match of {
            (s, Binding::Cache { layer, of }) if s.role == Role::Intermediate => {
                Some((slot, *layer, *of))
            }
            _ => None,
        });
        caches.collect()
    }

    /// Takes those of a layer, or all, and reports on them. This runs after the ops that make keys and values, which
    /// are at fault if these are wrong. It runs before attention, which only reads the appended rows.
    pub(super) fn appended(
        &self,
        caches: &mut Vec<CacheAppend>,
        layer: Option<usize>,
        state: &mut OpsState,
    ) -> Result<(), NpuError> {
        let is_wanted = |(_, of, _): &CacheAppend| layer.is_none_or(|layer| layer == *of);
        for (slot, layer, part) in caches.iter().filter(|cache| is_wanted(cache)) {
            self.report_cache(*slot, (*layer, *part, None), state)?;
        }
        caches.retain(|cache| !is_wanted(cache));
        Ok(())
    }

    /// Number of rows, and elements of a row, of a slot that holds a cache, for each key-value head.
    fn cache_shape(&self, slot: usize) -> Option<[usize; 3]> {
        let Some(Binding::Cache { layer, .. }) = self.seen.call.bindings.get(slot) else {
            return None;
        };
        let attention = self.graph().nodes.iter().find_map(|node| match &node.op {
            Op::Attention(a) if a.layer == *layer => Some(a),
            _ => None,
        })?;
        let declared = &self.slots()[slot];
        let row_bytes = attention.head_dim as u64 * cache_element(declared).size_bytes();
        let n_rows = declared.size_bytes()? / (row_bytes * attention.n_kv_heads as u64).max(1);
        Some([attention.n_kv_heads, n_rows as usize, attention.head_dim])
    }

    /// The earliest position in a cache's slot after the pass: 0 unless it is a ring.
    pub(super) fn ring_start(&self, slot: usize) -> usize {
        let end = self.seen.first + self.seen.n_real;
        self.cache_shape(slot)
            .map_or(0, |[_, n_rows, _]| end.saturating_sub(n_rows))
    }

    /// A slot's numbers, the rows of a ring in the order of their positions.
    pub(super) fn in_order(&self, slot: usize, mut numbers: Vec<f32>) -> Vec<f32> {
        let start = self.ring_start(slot);
        if let (Some([_, n_rows, head_dim]), 1..) = (self.cache_shape(slot), start) {
            let heads = numbers.chunks_exact_mut(n_rows * head_dim);
            heads.for_each(|head| head.rotate_left(start % n_rows * head_dim));
        }
        numbers
    }

    pub(super) fn report_cache(
        &self,
        slot: usize,
        rows: (usize, CachePart, Option<i64>),
        state: &mut OpsState,
    ) -> Result<(), NpuError> {
        let (node, wrong) = self.cache_rows(slot, rows)?;
        state.summary.n_moved += 1;
        self.report(slot, None, node, wrong, state);
        Ok(())
    }

    /// First mismatch between a slot `[n_kv_heads, rows, head_dim]` and the pages, and the node that attends. The
    /// slot's first row is position `start`, or the slot is a ring. Positions up to the pass's last that the sequence
    /// still has are compared.
    fn cache_rows(
        &self,
        slot: usize,
        (layer, of, start): (usize, CachePart, Option<i64>),
    ) -> Result<(Option<usize>, Option<Mismatch>), NpuError> {
        let nodes = &self.graph().nodes;
        let attends = |op: &Op| matches!(op, Op::Attention(a) if a.layer == layer);
        let Some(node) = nodes.iter().position(|node| attends(&node.op)) else {
            return Ok((None, None));
        };
        let Op::Attention(a) = &nodes[node].op else {
            return Ok((None, None));
        };
        let side = match of {
            CachePart::Keys => KvSide::K,
            CachePart::Values => KvSide::V,
        };
        let (element, found) = (cache_element(&self.slots()[slot]), self.bytes(slot)?);
        let row_bytes = a.head_dim * element.size_bytes() as usize;
        let n_slot_rows = found.len() / (row_bytes * a.n_kv_heads).max(1);
        let (mut row, mut first_wrong, mut n_wrong) = (vec![0.0; a.head_dim], None, 0);
        for kv_head in 0..a.n_kv_heads {
            let end = self.seen.first + self.seen.n_real;
            let first = match start {
                Some(start) => start.max(0) as usize,
                None => end.saturating_sub(n_slot_rows),
            };
            for position in first..end {
                let place = (kv_head, position);
                if (self.seen.cached_row(layer, side, place, &mut row)).is_none() {
                    continue;
                }
                let number = match start {
                    Some(start) => (position as i64).saturating_sub(start) as usize,
                    None => position % n_slot_rows.max(1),
                };
                let at = (kv_head * n_slot_rows + number) * row_bytes;
                let there = (number < n_slot_rows).then(|| found.get(at..at + row_bytes));
                let expected = statics::encode(&row, element);
                if there.flatten() != Some(&expected[..]) {
                    first_wrong.get_or_insert(at);
                    n_wrong += row_bytes;
                }
            }
        }
        let wrong = first_wrong.map(|at| Mismatch::Value { at, n_wrong });
        Ok((Some(node), wrong))
    }
}
