//! Walking the cache: one span of a unit, and merging spans.

use super::plan::TokenBlock;
use super::scratch::{Partial, SpanScratch};
use super::{
    AttentionInput, AttentionShape, Leaves, PairLeaves, PvTask, QkTask, SPAN_TOKENS, STRIP_TOKENS,
    TileShape, TileStrip,
};
use crate::elementwise::ElementwiseKernels;
use crate::kv::narrow::{rotate, widen};
use crate::kv::{KvLayout, KvSide, KvType, TILE_TOKENS};
use crate::pool::DisjointMut;
use std::f32::consts::LOG2_E;
use std::ops::Range;

/// Strips of a span.
const STRIPS: usize = SPAN_TOKENS / STRIP_TOKENS;

/// Number of strips between prefetch and use. One strip's work takes about as long as memory takes
/// to answer; a few keep memory busy.
const AHEAD: usize = 3;

/// State that all units of a call share.
pub(super) struct SpanWalk<'a> {
    shape: &'a AttentionShape,
    layout: &'a KvLayout,
    input: &'a AttentionInput<'a>,
    leaves: &'a Leaves,
    elementwise: &'static ElementwiseKernels,
    /// The kernels on pairs of bf16, if the cache uses them.
    pairs: Option<&'a PairLeaves>,
    /// Type and shape of the tiles that kernels multiply.
    kernel_type: KvType,
    tile: TileShape,
    /// Bytes of a tile in a page.
    stored_bytes: usize,
    /// Shape of a converted tile.
    unpacked: TileShape,
    page_bytes: usize,
}

/// A span of a unit.
#[derive(Clone, Copy)]
pub(super) struct UnitSpan<'a> {
    pub(super) unit: &'a TokenBlock,
    pub(super) span: usize,
}

impl<'a> SpanWalk<'a> {
    pub(super) fn new(
        shape: &'a AttentionShape,
        layout: &'a KvLayout,
        input: &'a AttentionInput<'a>,
        (leaves, elementwise): (&'a Leaves, &'static ElementwiseKernels),
    ) -> SpanWalk<'a> {
        let unpacked = TileShape::new(&KvLayout {
            dtype: KvType::F32,
            ..*layout
        });
        let widened = layout.widened();
        SpanWalk {
            shape,
            layout,
            input,
            leaves,
            elementwise,
            pairs: leaves.pairs(layout.dtype),
            kernel_type: widened.dtype,
            tile: TileShape::new(&widened),
            stored_bytes: layout.tile_bytes(),
            unpacked,
            page_bytes: layout.page_bytes(),
        }
    }

    pub(super) fn padded_dim(&self) -> usize {
        self.tile.padded_dim
    }

    /// Whether the cache keeps rows rotated.
    fn is_rotated(&self) -> bool {
        self.layout.dtype.narrow_bits().is_some()
    }

    pub(super) fn layout(&self) -> &KvLayout {
        self.layout
    }

    /// Query rows of a unit: one for each token and each head of the group.
    pub(super) fn query_rows(&self, unit: &TokenBlock) -> usize {
        unit.rows.len() * self.shape.group()
    }

    /// Copies a unit's queries, scaled such that a weight is a power of two of a score difference.
    pub(super) fn load_queries(&self, unit: &TokenBlock, q: &mut [f32]) {
        let (group, head_dim) = (self.shape.group(), self.shape.head_dim);
        let scale = self.shape.scale * LOG2_E;
        let padded_dim = self.padded_dim();
        for (i, out) in q.chunks_exact_mut(padded_dim).enumerate() {
            let row = unit.rows.start + i / group;
            let head = unit.kv_head * group + i % group;
            let source = &self.input.q[(row * self.shape.n_heads + head) * head_dim..][..head_dim];
            for (out, value) in out.iter_mut().zip(source) {
                *out = value * scale;
            }
            if self.is_rotated() {
                rotate(&mut out[..head_dim]);
            }
        }
        if let Some(pairs) = self.pairs {
            pairs.queries(&self.tile, q);
        }
    }

    /// Positions that the `i`-th token of a unit sees.
    fn seen(&self, unit: &TokenBlock, i: usize) -> Range<usize> {
        let pos = unit.first_pos + i;
        let row = unit.rows.start + i;
        let ahead = self.input.end_seen(row) - row;
        self.shape.first_seen(pos)..pos + ahead
    }

    /// Positions of a span that at least one row of the unit sees.
    fn seen_in(&self, UnitSpan { unit, span }: UnitSpan<'_>) -> Range<usize> {
        let start = span * SPAN_TOKENS;
        let all = self.seen(unit, 0).start..self.seen(unit, unit.rows.len() - 1).end;
        all.start.max(start)..all.end.min(start + SPAN_TOKENS)
    }

    /// Computes one span of a unit: scores, weights, weighted sums. Meanwhile prefetches the strips
    /// of `next`. `road` is memory for the span's strips.
    pub(super) fn span(
        &self,
        (place, next): (UnitSpan<'_>, Option<UnitSpan<'_>>),
        road: &mut Road<'a>,
        work: &mut SpanScratch<'_>,
        result: &mut Partial<'_>,
    ) {
        let UnitSpan { unit, span } = place;
        let start = span * SPAN_TOKENS;
        let seen = self.seen_in(place);
        (road.len, road.end) = (0, road.strips.len());
        self.add_strips(unit, KvSide::K, &seen, road);
        road.n_strips = road.len;
        self.add_strips(unit, KvSide::V, &seen, road);
        road.end = road.len + AHEAD;
        if let Some(next) = next {
            let seen = self.seen_in(next);
            self.add_strips(next.unit, KvSide::K, &seen, road);
            self.add_strips(next.unit, KvSide::V, &seen, road);
        }
        for (_, strip) in &mut road.strips[road.len..road.end] {
            strip.n_tiles = 0;
        }
        let n_rows = self.query_rows(unit);
        self.score(n_rows, start, road, work);
        self.weigh(unit, start, &seen, work.scores, result);
        result.values.fill(0.0);
        self.add_values(n_rows, &seen, road, work, result.values);
    }

    /// Scores of all rows against the strips of a span that starts at `span_start`.
    fn score(&self, n_rows: usize, span_start: usize, road: &Road<'_>, work: &mut SpanScratch<'_>) {
        for i in 0..road.n_strips {
            let (pos, packed) = road.strips[i];
            let (_, ahead) = road.strips[i + AHEAD];
            let packed = self.widen(packed, work.wide);
            let scores = &mut work.scores[pos - span_start..];
            if let Some(pairs) = self.pairs {
                let strip = self.unpack(KvSide::K, packed, work.strip);
                let (shape, q, ahead) = (&self.unpacked, &*work.q, TileStrip::default());
                pairs.qk(QkTask {
                    shape,
                    q,
                    n_rows,
                    strip,
                    ahead,
                    scores,
                });
            } else if n_rows <= self.leaves.direct_rows {
                let (shape, q) = (&self.tile, &*work.q);
                let task = QkTask {
                    shape,
                    q,
                    n_rows,
                    strip: packed,
                    ahead,
                    scores,
                };
                self.leaves.qk(self.kernel_type, task);
            } else {
                let strip = self.unpack(KvSide::K, packed, work.strip);
                let (shape, q, ahead) = (&self.unpacked, &*work.q, TileStrip::default());
                self.leaves.qk(
                    KvType::F32,
                    QkTask {
                        shape,
                        q,
                        n_rows,
                        strip,
                        ahead,
                        scores,
                    },
                );
            }
        }
    }

    /// Turns scores into weights, row by row, and notes each row's maximum and sum.
    fn weigh(
        &self,
        unit: &TokenBlock,
        span_start: usize,
        seen: &Range<usize>,
        scores: &mut [f32],
        result: &mut Partial<'_>,
    ) {
        // Whole vectors around all positions that any row sees, counted from the span's start.
        let first = (seen.start - span_start) / TILE_TOKENS * TILE_TOKENS;
        let end = (seen.end - span_start).next_multiple_of(TILE_TOKENS);
        for (row, scores) in scores.chunks_exact_mut(SPAN_TOKENS).enumerate() {
            let row_sees = self.seen(unit, row / self.shape.group());
            let from = row_sees.start.clamp(seen.start, seen.end) - span_start - first;
            let to = row_sees.end.clamp(seen.start, seen.end) - span_start - first;
            if let Some(cap) = self.shape.softcap {
                // Scores are in units of powers of two.
                self.elementwise
                    .softcap(&mut scores[first + from..first + to], cap * LOG2_E);
            }
            if let Some(slopes) = self.input.slopes {
                let group = self.shape.group();
                let slope = slopes[unit.kv_head * group + row % group] * LOG2_E;
                let pos = unit.first_pos + row / group;
                for (i, score) in scores[first + from..first + to].iter_mut().enumerate() {
                    *score -= slope * pos.abs_diff(span_start + first + from + i) as f32;
                }
            }
            let (max, sum) = self.leaves.softmax(&mut scores[first..end], from..to);
            result.max[row] = max;
            result.sum[row] = sum;
            if let Some(pairs) = self.pairs {
                pairs.weights(&mut scores[first..end]);
            }
        }
    }

    /// Adds the weighted values of the positions `seen` to `sums`.
    fn add_values(
        &self,
        n_rows: usize,
        seen: &Range<usize>,
        road: &Road<'_>,
        work: &mut SpanScratch<'_>,
        sums: &mut [f32],
    ) {
        let span_start = seen.start / SPAN_TOKENS * SPAN_TOKENS;
        for i in road.n_strips..2 * road.n_strips {
            let (pos, packed) = road.strips[i];
            let (_, ahead) = road.strips[i + AHEAD];
            let packed = self.widen(packed, work.wide);
            let end = seen.end.min(pos + packed.n_tiles * TILE_TOKENS);
            let keys = seen.start.max(pos) - pos..end - pos;
            let weights = &work.scores[pos - span_start..];
            if let Some(pairs) = self.pairs {
                let strip = self.unpack(KvSide::V, packed, work.strip);
                let (shape, ahead) = (&self.unpacked, TileStrip::default());
                pairs.pv(PvTask {
                    shape,
                    weights,
                    n_rows,
                    strip,
                    keys,
                    ahead,
                    sums,
                });
            } else if n_rows <= self.leaves.direct_rows {
                let (shape, strip) = (&self.tile, packed);
                let task = PvTask {
                    shape,
                    weights,
                    n_rows,
                    strip,
                    keys,
                    ahead,
                    sums,
                };
                self.leaves.pv(self.kernel_type, task);
            } else {
                let strip = self.unpack(KvSide::V, packed, work.strip);
                let (shape, ahead) = (&self.unpacked, TileStrip::default());
                let task = PvTask {
                    shape,
                    weights,
                    n_rows,
                    strip,
                    keys,
                    ahead,
                    sums,
                };
                self.leaves.pv(KvType::F32, task);
            }
        }
    }

    /// The tiles of a strip as kernels multiply them.
    fn widen<'s>(&self, stored: TileStrip<'s>, out: &'s mut [f32]) -> TileStrip<'s> {
        let Some(bits) = self.layout.dtype.narrow_bits() else {
            return stored;
        };
        let out: &mut [u8] = bytemuck::cast_slice_mut(out);
        let tile_bytes = self.tile.tile_bytes;
        for (tile, out) in stored.tiles().iter().zip(out.chunks_exact_mut(tile_bytes)) {
            widen(bits, self.tile.scale_bytes, tile, out);
        }
        TileStrip::new(out, tile_bytes, stored.n_tiles)
    }

    /// Converts the tiles of a strip to f32, or arranges them in pairs. A cache of f32 is used in place.
    fn unpack<'s>(&self, side: KvSide, packed: TileStrip<'s>, out: &'s mut [f32]) -> TileStrip<'s> {
        if self.kernel_type == KvType::F32 {
            return packed;
        }
        let n_elems = self.tile.tile_elems();
        for (tile, out) in packed.tiles().iter().zip(out.chunks_exact_mut(n_elems)) {
            if let Some(pairs) = self.pairs {
                pairs.unpack(side, &self.tile, tile, out);
                continue;
            }
            match side {
                KvSide::K => self
                    .leaves
                    .unpack_k(self.kernel_type, &self.tile, tile, out),
                KvSide::V => self
                    .leaves
                    .unpack_v(self.kernel_type, &self.tile, tile, out),
            }
        }
        let tile_bytes = n_elems * size_of::<f32>();
        TileStrip::new(bytemuck::cast_slice(out), tile_bytes, packed.n_tiles)
    }

    /// Adds the strips with positions that are `seen`, all in one span, up to the road's end. A strip's tiles end at a multiple of
    /// [`STRIP_TOKENS`]; tiles without a seen position are left out.
    fn add_strips(
        &self,
        unit: &TokenBlock,
        side: KvSide,
        seen: &Range<usize>,
        road: &mut Road<'a>,
    ) {
        let run = &self.input.runs[unit.run];
        let pages = match side {
            KvSide::K => self.input.k_pages,
            KvSide::V => self.input.v_pages,
        };
        let tiles_per_page = self.layout.tiles_per_page();
        let mut pos = seen.start / TILE_TOKENS * TILE_TOKENS;
        let first = (pos - run.pages_first_pos) / TILE_TOKENS;
        let (mut page, mut tile) = (first / tiles_per_page, first % tiles_per_page);
        while pos < seen.end && road.len < road.end {
            let end = (pos + 1).next_multiple_of(STRIP_TOKENS);
            let n_tiles = (seen.end.min(end) - pos).div_ceil(TILE_TOKENS);
            let (strip_pos, strip) = &mut road.strips[road.len];
            (*strip_pos, strip.n_tiles) = (pos, n_tiles);
            for bytes in &mut strip.tiles[..n_tiles] {
                let start = run.pages[page] as usize * self.page_bytes
                    + (unit.kv_head * tiles_per_page + tile) * self.stored_bytes;
                *bytes = &pages[start..start + self.stored_bytes];
                tile += 1;
                if tile == tiles_per_page {
                    (page, tile) = (page + 1, 0);
                }
            }
            road.len += 1;
            pos = end;
        }
    }

    /// Adds the result of a span to that of the spans before it.
    pub(super) fn merge(&self, span: &Partial<'_>, total: &mut Partial<'_>) {
        let padded_dim = self.padded_dim();
        for row in 0..span.max.len() {
            // A neighbouring row sees this span; this row does not.
            if span.sum[row] == 0.0 {
                continue;
            }
            let values = row * padded_dim..(row + 1) * padded_dim;
            let (total_values, values) = (&mut total.values[values.clone()], &span.values[values]);
            if total.sum[row] == 0.0 {
                total_values.copy_from_slice(values);
                (total.max[row], total.sum[row]) = (span.max[row], span.sum[row]);
                continue;
            }
            let max = total.max[row].max(span.max[row]);
            let old = (total.max[row] - max).exp2();
            let new = (span.max[row] - max).exp2();
            total.max[row] = max;
            total.sum[row] = total.sum[row] * old + span.sum[row] * new;
            for (total, value) in total_values.iter_mut().zip(values) {
                *total = *total * old + value * new;
            }
        }
    }

    /// Writes a unit's finished rows.
    pub(super) fn store(&self, unit: &TokenBlock, total: &Partial<'_>, out: &DisjointMut<'_, f32>) {
        let (group, head_dim) = (self.shape.group(), self.shape.head_dim);
        let padded_dim = self.padded_dim();
        for (i, values) in total.values.chunks_exact(padded_dim).enumerate() {
            let row = unit.rows.start + i / group;
            let head = unit.kv_head * group + i % group;
            let start = (row * self.shape.n_heads + head) * head_dim;
            // SAFETY: runs do not share rows and units of a run share no (row, head); one thread
            // finishes a unit.
            let out = unsafe { out.slice(start..start + head_dim) };
            let factor = match self.input.sinks {
                None => 1.0 / total.sum[i],
                Some(sinks) => with_sink(total.max[i], total.sum[i], sinks[head] * LOG2_E),
            };
            for (out, value) in out.iter_mut().zip(values) {
                *out = value * factor;
            }
            if self.is_rotated() {
                rotate(out);
            }
        }
    }
}

/// Factor on the weighted sum of values if a score without a value takes part; scores are in units of powers of two.
fn with_sink(max: f32, sum: f32, sink: f32) -> f32 {
    let top = max.max(sink);
    let old = (max - top).exp2();
    old / (sum * old + (sink - top).exp2())
}

/// The strips of a span in the order of use: those of K, those of V, and the first [`AHEAD`] of the
/// next span. Each comes with the position of its first tile.
#[derive(Default)]
pub(super) struct Road<'a> {
    /// Strips from `len` to `end` are empty; strips beyond are left from earlier spans.
    strips: [(usize, TileStrip<'a>); 2 * STRIPS + AHEAD],
    len: usize,
    /// Where the strips end that may be used or fetched.
    end: usize,
    /// Strips of K, and strips of V; 0 until those of K are listed.
    n_strips: usize,
}
