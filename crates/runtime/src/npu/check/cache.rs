//! Rows of the cache in a device's slots against the pages of the sequence.

use super::{Look, NpuError, State, Wrong, statics};
use millrace_kernels::KvSide;
use millrace_model::graph::Op;
use millrace_npu::Role;
use millrace_plan::{Binding, CachePart};

/// A slot that the call appends to, the layer whose cache it is, and which part.
pub(super) type Appended = (usize, usize, CachePart);

impl Look<'_> {
    /// Caches that the call appends to itself.
    pub(super) fn appends(&self) -> Vec<Appended> {
        let slots = self.slots().iter().zip(&self.seen.call.bindings);
        let caches = slots.enumerate().filter_map(|(slot, of)| match of {
            (s, Binding::Cache { layer, of }) if s.role == Role::Intermediate => {
                Some((slot, *layer, *of))
            }
            _ => None,
        });
        caches.collect()
    }

    /// Takes those of a layer, or all, and reports on them. Behind the ops that give keys and values, whose fault it is where these
    /// are wrong, and before attention, which only reads what was appended.
    pub(super) fn appended(
        &self,
        caches: &mut Vec<Appended>,
        layer: Option<usize>,
        state: &mut State,
    ) -> Result<(), NpuError> {
        let is_wanted = |(_, of, _): &Appended| layer.is_none_or(|layer| layer == *of);
        for (slot, layer, part) in caches.iter().filter(|cache| is_wanted(cache)) {
            self.report_cache(*slot, (*layer, *part, 0), state)?;
        }
        caches.retain(|cache| !is_wanted(cache));
        Ok(())
    }

    pub(super) fn report_cache(
        &self,
        slot: usize,
        rows: (usize, CachePart, i64),
        state: &mut State,
    ) -> Result<(), NpuError> {
        let (node, wrong) = self.cache_rows(slot, rows)?;
        state.summary.n_moved += 1;
        self.report(slot, None, node, wrong, state);
        Ok(())
    }

    /// What of a slot `[n_kv_heads, rows, head_dim]` whose first row is position `start` is not what the pages hold,
    /// of the positions up to the pass's last that the sequence still has; and the node that attends.
    fn cache_rows(
        &self,
        slot: usize,
        (layer, of, start): (usize, CachePart, i64),
    ) -> Result<(Option<usize>, Option<Wrong>), NpuError> {
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
        let (element, found) = (self.slots()[slot].element, self.bytes(slot)?);
        let row_bytes = a.head_dim * element.size_bytes() as usize;
        let n_slot_rows = found.len() / (row_bytes * a.n_kv_heads).max(1);
        let (mut row, mut first_wrong, mut n_wrong) = (vec![0.0; a.head_dim], None, 0);
        for kv_head in 0..a.n_kv_heads {
            for position in start.max(0) as usize..self.seen.first + self.seen.n_real {
                let place = (kv_head, position);
                if (self.seen.cached.read(layer, side, place, &mut row)).is_none() {
                    continue;
                }
                let number = (position as i64).saturating_sub(start) as usize;
                let at = (kv_head * n_slot_rows + number) * row_bytes;
                let there = (number < n_slot_rows).then(|| found.get(at..at + row_bytes));
                let expected = statics::encode(&row, element);
                if there.flatten() != Some(&expected[..]) {
                    first_wrong.get_or_insert(at);
                    n_wrong += row_bytes;
                }
            }
        }
        let wrong = first_wrong.map(|at| Wrong::Value { at, n_wrong });
        Ok((Some(node), wrong))
    }
}
