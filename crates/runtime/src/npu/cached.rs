//! A pass and the host's pages: appending to them, attending over them, reading rows of them, and the part of
//! them within a window.

use super::NpuError;
use super::device_cache::LayerRows;
use super::pass::Pass;
use crate::kv::{CacheParts, KvCache, LayerCache, PageTables};
use crate::sequences::SeqId;
use half::bf16;
use half::slice::HalfFloatSliceExt;
use millrace_graph::{Node, Op, ValueId};
use millrace_kernels::{self as kernels, AttentionInput, AttentionShape, KvRun, KvSide, kv_read};
use millrace_npu::Slot;
use millrace_plan::{CachePart, KeyRange};
use std::fmt;

/// A sequence's pages, to read.
#[derive(Clone, Copy)]
pub(super) struct SequencePages<'a> {
    cache: &'a KvCache,
    layers: &'a [LayerCache],
    tables: PageTables<'a>,
    seq: SeqId,
}

impl fmt::Debug for SequencePages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} layers of {:?}", self.layers.len(), self.seq)
    }
}

impl<'a> SequencePages<'a> {
    /// The pages of that sequence.
    pub(super) fn of(cache: &'a KvCache, seq: SeqId) -> SequencePages<'a> {
        let (layers, tables) = cache.shared();
        SequencePages {
            cache,
            layers,
            tables,
            seq,
        }
    }

    /// The state after the token at a position.
    pub(super) fn state(&self, index: usize, position: usize) -> Option<&'a [f32]> {
        self.cache.state_behind(self.seq, index, position)
    }

    /// A key or value of a head, into `row` of `head_dim` elements; `None` where the sequence has no such
    /// position.
    pub(super) fn read(
        &self,
        layer: usize,
        side: KvSide,
        (kv_head, position): (usize, usize),
        row: &mut [f32],
    ) -> Option<()> {
        let cache = self.layers.get(layer)?;
        let (layout, table) = (&cache.layout, self.tables.pages(self.seq, layer));
        let slot = position.checked_sub(table.1)?;
        if slot >= table.0.len() * layout.page_tokens || row.len() != layout.head_dim {
            return None;
        }
        let slab: &[u8] = match side {
            KvSide::K => &cache.k,
            KvSide::V => &cache.v,
        };
        kv_read(layout, side, slab, table, (kv_head, position), row);
        Some(())
    }
}

impl Pass<'_> {
    /// Keys and values of the tokens without padding.
    pub(super) fn append(&mut self, layer: usize, k: ValueId, v: ValueId) -> Result<(), NpuError> {
        let place = || format!("the cache of layer {layer}");
        let CacheParts { layers, tables, .. } = self.cache.parts();
        let (pages, pages_first_pos) = tables.pages(self.seq, layer);
        let Some(cache) = layers.get_mut(layer) else {
            return Err(NpuError::plan(place(), "no such layer"));
        };
        let n_elems = self.n_real * cache.layout.n_kv_heads * cache.layout.head_dim;
        let rows = |value: ValueId| {
            let rows = self.values.get(value).get(..n_elems);
            rows.map(HalfFloatSliceExt::to_f32_vec)
        };
        let (Some(k), Some(v)) = (rows(k), rows(v)) else {
            return Err(NpuError::plan(place(), "no keys and values"));
        };
        let run = KvRun {
            rows: 0..self.n_real,
            first_pos: self.first,
            pages,
            pages_first_pos,
        };
        let (cpu, layout) = (&self.npu.cpu, cache.layout);
        kernels::kv_append(cpu, &layout, &k, &v, &mut cache.k, &mut cache.v, &[run]);
        let rows = LayerRows {
            index: layer,
            layer: cache,
            pages,
            pages_first_pos,
        };
        let n_rows = self.first + self.n_real;
        self.counters.traffic += self.npu.sync_cache(self.prepared, &rows, n_rows)?;
        Ok(())
    }

    /// Before a call that appends to the device's copy of layers: brings the earlier rows to the device.
    pub(super) fn bring(&mut self, layers: &[usize]) -> Result<(), NpuError> {
        for &index in layers {
            let rows = layer_rows(self.cache, self.seq, index)?;
            self.counters.traffic += self.npu.sync_cache(self.prepared, &rows, self.first)?;
        }
        Ok(())
    }

    /// After such a call: the device has the pass's rows too.
    pub(super) fn brought(&self, layers: &[usize]) {
        let n_rows = self.first + self.n_real;
        let cache = &self.npu.device_cache;
        layers.iter().for_each(|&layer| cache.set(layer, n_rows));
    }

    /// Attention over the cache. Rows of padding are zero, as nothing reads them.
    pub(super) fn attention(&mut self, node: &Node) -> Result<(), NpuError> {
        let (Op::Attention(attention), Some(q)) = (&node.op, node.inputs.first()) else {
            return Err(NpuError::plan(node.label, "no attention"));
        };
        let sinks = attention.sinks;
        let n_elems = self.n_real * attention.n_heads * attention.head_dim;
        let mut rows = self.values.take(node.output, self.n_rows(node.output));
        let CacheParts { layers, tables, .. } = self.cache.parts();
        let q = self.values.get(*q).get(..n_elems);
        let (Some(q), Some(cache), true) = (q, layers.get(attention.layer), rows.len() >= n_elems)
        else {
            return Err(NpuError::plan(node.label, "queries of another shape"));
        };
        let q = q.to_f32_vec();
        let shape = AttentionShape {
            n_heads: attention.n_heads,
            n_kv_heads: attention.n_kv_heads,
            head_dim: attention.head_dim,
            scale: attention.scale,
            window: attention.window,
            chunked: attention.chunked,
            softcap: attention.softcap,
        };
        let (pages, pages_first_pos) = tables.pages(self.seq, attention.layer);
        let runs = [KvRun {
            rows: 0..self.n_real,
            first_pos: self.first,
            pages,
            pages_first_pos,
        }];
        let blocks: Vec<_> = self
            .images
            .iter()
            .map(|placed| placed.rows.clone())
            .collect();
        let input = AttentionInput {
            q: &q,
            k_pages: &cache.k,
            v_pages: &cache.v,
            runs: &runs,
            blocks: &blocks,
            sinks: sinks.map(|sinks| &self.npu.vectors[sinks.0][..]),
            slopes: attention.slopes.as_deref(),
        };
        let mut out = vec![0.0; n_elems];
        let cpu = &self.npu.cpu;
        kernels::attention(cpu, &shape, &cache.layout, &input, self.scratch, &mut out);
        let (real, padding) = rows.split_at_mut(n_elems);
        real.convert_from_f32_slice(&out);
        padding.fill(bf16::ZERO);
        self.values.put(node.output, rows);
        Ok(())
    }

    /// The rows of a layer's cache that the pass reaches, the pass's own among them.
    pub(super) fn cache_range(
        &self,
        (index, of, range): (usize, CachePart, KeyRange),
        slot: &Slot,
        bytes: &mut [u8],
    ) -> Result<(), NpuError> {
        let rows = layer_rows(self.cache, self.seq, index)?;
        let n_rows = self.first + self.n_real;
        rows.write_range(of, (range, self.first, n_rows), slot, bytes)
    }
}

/// A sequence's rows in the cache of a layer.
fn layer_rows(cache: &KvCache, seq: SeqId, index: usize) -> Result<LayerRows<'_>, NpuError> {
    let (layers, tables) = cache.shared();
    let wrong = || NpuError::plan(format!("the cache of layer {index}"), "no such layer");
    let layer = layers.get(index).ok_or_else(wrong)?;
    let (pages, pages_first_pos) = tables.pages(seq, index);
    Ok(LayerRows {
        index,
        layer,
        pages,
        pages_first_pos,
    })
}
