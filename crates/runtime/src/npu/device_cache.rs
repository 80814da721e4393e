//! The device's copy of the cache: keys and values where programs attend over them.
//!
//! The host's pages belong to the sequence. Programs that read a cache have one buffer for the keys and one for the values
//! of a layer, `[n_kv_heads, rows, head_dim]`. It is a ring if it has fewer rows than the sequence has tokens. All
//! sequences of a model share it: a sequence that finds another's rows there writes all of its own, otherwise only new
//! rows cross. For programs that append to it themselves no rows cross: the host's pages get them from the call's outputs.

use super::NpuError;
use super::model::{NpuModel, lock};
use super::prepared::PreparedPlan;
use super::weights;
use crate::kv::LayerCache;
use crate::sequences::SeqId;
use millrace_kernels::{KvSide, kv_read};
use millrace_npu::{Role, Slot, Traffic};
use millrace_plan::{Binding, CachePart, KeyRange, cache_element};
use std::ops::Range;
use std::sync::Mutex;

/// The rows on the device, and the sequence they belong to.
#[derive(Default)]
pub(super) struct DeviceCache(Mutex<CacheCopy>);

#[derive(Default)]
struct CacheCopy {
    owner: Option<SeqId>,
    /// By layer.
    layers: Vec<LayerCopy>,
}

/// The device's copy of a layer.
#[derive(Clone, Copy, Default)]
struct LayerCopy {
    /// Number of leading rows that agree with the sequence; in a ring, the last of them.
    n_rows: usize,
    /// Whether later rows took the place of earlier ones.
    is_wrapped: bool,
}

/// A layer's pages, and where a sequence's are among them.
pub(super) struct LayerRows<'a> {
    pub(super) index: usize,
    pub(super) layer: &'a LayerCache,
    pub(super) pages: &'a [u32],
    /// Position of the first slot of the first page.
    pub(super) pages_first_pos: usize,
}

impl DeviceCache {
    /// The device lost everything.
    pub(super) fn reset(&self) {
        *lock(&self.0) = CacheCopy::default();
    }

    /// Prepares for a pass: rows that another sequence left on the device are not this one's. Of its own
    /// rows only those before the pass stay valid, whether this pass reads them (`reads`) or a later one.
    pub(super) fn enter(&self, seq: SeqId, first: usize, reads: bool) {
        let mut copied = lock(&self.0);
        if reads && copied.owner != Some(seq) {
            copied.owner = Some(seq);
            copied.layers.clear();
        }
        if copied.owner == Some(seq) {
            for layer in copied.layers.iter_mut().filter(|l| l.n_rows > first) {
                // Rows that go back took the place of some that are seen again.
                layer.n_rows = if layer.is_wrapped { 0 } else { first };
                layer.is_wrapped = false;
            }
        }
    }

    /// The rows of a layer that the device lacks, up to `n_rows`.
    fn missing(&self, layer: usize, n_rows: usize) -> Range<usize> {
        let has = lock(&self.0).layers.get(layer).map_or(0, |l| l.n_rows);
        has.min(n_rows)..n_rows
    }

    /// The device has a layer's rows up to `n_rows`.
    pub(super) fn set(&self, layer: usize, n_rows: usize) {
        self.set_in(layer, n_rows, usize::MAX);
    }

    /// The same if the device has room for `room` rows, as a ring.
    fn set_in(&self, layer: usize, n_rows: usize, room: usize) {
        let mut copied = lock(&self.0);
        if copied.layers.len() <= layer {
            copied.layers.resize(layer + 1, LayerCopy::default());
        }
        copied.layers[layer] = LayerCopy {
            n_rows,
            is_wrapped: n_rows > room,
        };
    }
}

impl NpuModel {
    /// Brings a layer's rows up to `n_rows` to the device, if the plan reads them there. Nothing reads
    /// rows that have left the window.
    pub(super) fn sync_cache(
        &self,
        prepared: &PreparedPlan,
        rows: &LayerRows<'_>,
        n_rows: usize,
    ) -> Result<Traffic, NpuError> {
        let mut traffic = Traffic::default();
        let missing = self.device_cache.missing(rows.index, n_rows);
        let missing = missing.start.max(rows.pages_first_pos)..missing.end;
        let mut room = usize::MAX;
        for (of, side) in [(CachePart::Keys, KvSide::K), (CachePart::Values, KvSide::V)] {
            let Some((index, slot)) = prepared.cache_slot(rows.index, of) else {
                return Ok(traffic);
            };
            let Some(call) = prepared.plan.calls().nth(index) else {
                return Err(NpuError::plan("the cache", "no such call"));
            };
            let (container, key) = (prepared.container(call), prepared.key(index));
            let declared = &container.slots()[slot];
            room = rows.room(declared);
            for lap in laps(missing.clone(), room) {
                let start = lap.start / room * room;
                let parts = rows.parts(side, &lap, declared, start as i64)?;
                let parts: Vec<(u64, &[u8])> = parts.iter().map(|(at, b)| (*at, &b[..])).collect();
                traffic += self.cache.write_parts(container, key, slot, &parts)?;
            }
        }
        self.device_cache.set_in(rows.index, n_rows, room);
        Ok(traffic)
    }
}

impl NpuModel {
    /// Fills the caches that call number `index` appends to with zeros, if they are still empty. Rows that were never
    /// written are read too; a mask added to their scores hides them.
    pub(super) fn empty_caches(
        &self,
        prepared: &PreparedPlan,
        index: usize,
    ) -> Result<(), NpuError> {
        let Some(call) = prepared.plan.calls().nth(index) else {
            return Ok(());
        };
        let (container, key) = (prepared.container(call), prepared.key(index));
        let slots = container.slots().iter().zip(&call.bindings).enumerate();
        for (number, (slot, binding)) in slots {
            let is_cache = matches!(binding, Binding::Cache { .. });
            if !is_cache || slot.role != Role::Intermediate {
                continue;
            }
            let Some((name, n_bytes)) = prepared.buffer_name(index, number).zip(slot.size_bytes())
            else {
                continue;
            };
            let appended = (n_bytes, Role::Intermediate);
            let known = lock(&self.kv_buffers).insert(name.to_owned(), appended);
            if known.is_none() {
                let zeros = vec![0; n_bytes as usize];
                let parts = [(0, &zeros[..])];
                *lock(&self.loaded) += self.cache.write_parts(container, key, number, &parts)?;
            }
        }
        Ok(())
    }

    /// Empties the caches that programs append to. It is for callers that made programs write values there on
    /// purpose which no sequence has: a number that is not finite passes through the mask.
    ///
    /// # Errors
    /// A buffer that cannot be written.
    pub fn wipe_caches(&self) -> Result<(), NpuError> {
        let _turn = self.turn();
        self.device_cache.reset();
        lock(&self.kv_buffers).retain(|_, (_, role)| *role == Role::Static);
        let plans: Vec<_> = lock(&self.plans).values().cloned().collect();
        for prepared in plans {
            let is_filled = *lock(&prepared.filled);
            let n_calls = prepared.plan.calls().count();
            for index in 0..if is_filled { n_calls } else { 0 } {
                self.empty_caches(&prepared, index)?;
            }
        }
        Ok(())
    }
}

/// The last rows that fit into a ring, split where it wraps around.
fn laps(rows: Range<usize>, room: usize) -> Vec<Range<usize>> {
    let mut left = rows.start.max(rows.end.saturating_sub(room))..rows.end;
    let mut laps = Vec::new();
    while !left.is_empty() {
        let end = left.end.min((left.start / room + 1).saturating_mul(room));
        laps.push(left.start..end);
        left.start = end;
    }
    laps
}

impl LayerRows<'_> {
    /// Rows that a slot of the layer's keys or values has; at least one.
    fn room(&self, slot: &Slot) -> usize {
        let row_bytes = self.layer.layout.n_kv_heads * self.layer.layout.head_dim;
        let row_bytes = row_bytes as u64 * cache_element(slot).size_bytes();
        let room = slot.size_bytes().unwrap_or(0) / row_bytes.max(1);
        usize::try_from(room).unwrap_or(usize::MAX).max(1)
    }

    /// Writes the rows up to `n_rows` that a pass from `first` on reaches into a slot, as far as the sequence has them.
    pub(super) fn write_range(
        &self,
        of: CachePart,
        (range, first, n_rows): (KeyRange, usize, usize),
        slot: &Slot,
        bytes: &mut [u8],
    ) -> Result<(), NpuError> {
        let side = match of {
            CachePart::Keys => KvSide::K,
            CachePart::Values => KvSide::V,
        };
        let start = range.start(first);
        let rows = (start.max(0) as usize).max(self.pages_first_pos)..n_rows;
        for (at, part) in self.parts(side, &rows, slot, start)? {
            bytes[at as usize..][..part.len()].copy_from_slice(&part);
        }
        Ok(())
    }

    /// Rows of keys or values in the layout of a slot `[n_kv_heads, rows, head_dim]` that begins at position `start`,
    /// whatever its shape is called. Returns a piece for each head, with its offset in bytes.
    fn parts(
        &self,
        side: KvSide,
        rows: &Range<usize>,
        slot: &Slot,
        start: i64,
    ) -> Result<Vec<(u64, Vec<u8>)>, NpuError> {
        let layout = &self.layer.layout;
        let element = cache_element(slot);
        let elem_bytes = element.size_bytes();
        let width = (layout.n_kv_heads * layout.head_dim) as u64;
        let n_elems = slot.size_bytes().unwrap_or(0) / elem_bytes;
        let n_slot_rows = n_elems / width.max(1);
        let of_slot = |position: usize| (position as i64).saturating_sub(start) as u64;
        if n_slot_rows * width != n_elems || of_slot(rows.end) > n_slot_rows {
            return Err(NpuError::plan("the cache", "a slot of another size"));
        }
        let head_dim = layout.head_dim as u64;
        let slab: &[u8] = match side {
            KvSide::K => &self.layer.k,
            KvSide::V => &self.layer.v,
        };
        let table = (self.pages, self.pages_first_pos);
        let mut parts = Vec::with_capacity(layout.n_kv_heads);
        for kv_head in 0..layout.n_kv_heads {
            let mut values = vec![0.0; rows.len() * layout.head_dim];
            for (pos, row) in rows.clone().zip(values.chunks_exact_mut(layout.head_dim)) {
                kv_read(layout, side, slab, table, (kv_head, pos), row);
            }
            let mut bytes = vec![0; values.len() * elem_bytes as usize];
            weights::write_f32(&values, element, &mut bytes)
                .map_err(|problem| NpuError::plan("the cache", problem))?;
            let at = (kv_head as u64 * n_slot_rows + of_slot(rows.start)) * head_dim * elem_bytes;
            parts.push((at, bytes));
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_takes_the_last_rows_lap_by_lap() {
        let cut = |rows: Range<usize>, room: usize| -> Vec<[usize; 2]> {
            let laps = laps(rows, room).into_iter();
            laps.map(|lap| [lap.start, lap.end]).collect()
        };
        assert_eq!(cut(0..5, 8), [[0, 5]]);
        assert_eq!(cut(5..8, 8), [[5, 8]]);
        assert_eq!(cut(5..10, 8), [[5, 8], [8, 10]]);
        assert_eq!(cut(0..20, 8), [[12, 16], [16, 20]]);
        assert_eq!(cut(0..24, 8), [[16, 24]]);
        assert!(cut(3..3, 8).is_empty());
        assert_eq!(cut(3..9, usize::MAX), [[3, 9]]);
    }

    /// A sequence that goes back: rows of a ring that were overwritten are brought again.
    #[test]
    fn a_ring_that_goes_back_is_brought_anew() {
        let cache = DeviceCache::default();
        let seq = crate::sequences::Sequences::new(1).insert(()).unwrap();
        cache.enter(seq, 0, true);
        cache.set_in(0, 20, 8);
        cache.set_in(1, 20, 32);
        cache.enter(seq, 20, true);
        assert_eq!(cache.missing(0, 21), 20..21);
        cache.enter(seq, 18, true);
        assert_eq!(cache.missing(0, 18), 0..18);
        assert_eq!(cache.missing(1, 18), 18..18);
    }
}
