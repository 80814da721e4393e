//! How the work of a call is shared out: units, and spans of units.

use super::scratch::{Partial, RegionScratch, UnitBuffers, partial_elems};
use super::span::{Road, SpanWalk, UnitSpan};
use super::{AttentionInput, AttentionShape, SPAN_TOKENS, UNIT_ROWS};
use crate::pool::DisjointMut;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Units for each thread below which a unit's spans are shared out too.
const UNITS_PER_THREAD: usize = 8;

/// Target number of chunks for each thread when spans are shared out. They are enough to even out a
/// busy core, and few enough that starting a chunk costs little. Its start is prefetched only if the
/// guess of [`RegionScratch::after`] is right.
const CHUNKS_PER_THREAD: usize = 8;

/// A block of neighbouring tokens of one run, with all query heads of one KV head.
#[derive(Debug, Clone)]
pub(super) struct TokenBlock {
    pub(super) run: usize,
    pub(super) kv_head: usize,
    /// Rows of the batch.
    pub(super) rows: Range<usize>,
    /// Position of the first row.
    pub(super) first_pos: usize,
    /// Spans that at least one row sees.
    pub(super) spans: Range<usize>,
    /// Where this unit's results of spans start in [`RegionScratch::partials`].
    pub(super) partials: usize,
}

/// Lists the units of a call, into memory that is reused. Within a KV head later blocks come first:
/// they see more, and long chunks should not start last.
pub(super) fn list_units(
    shape: &AttentionShape,
    input: &AttentionInput<'_>,
    units: &mut Vec<TokenBlock>,
) {
    units.clear();
    let block = (UNIT_ROWS / shape.group()).max(1);
    for (index, run) in input.runs.iter().enumerate() {
        for kv_head in 0..shape.n_kv_heads {
            for start in run.rows.clone().step_by(block).rev() {
                let rows = start..run.rows.end.min(start + block);
                let first_pos = run.first_pos + (start - run.rows.start);
                let first_span = shape.first_seen(first_pos) / SPAN_TOKENS;
                let end_seen = input.end_seen(rows.end - 1) - run.rows.start + run.first_pos;
                let end_span = end_seen.div_ceil(SPAN_TOKENS);
                let spans = first_span..end_span;
                units.push(TokenBlock {
                    run: index,
                    kv_head,
                    rows,
                    first_pos,
                    spans,
                    partials: 0,
                });
            }
        }
    }
}

/// Into how many chunks each unit is cut.
pub(super) fn chunks_per_unit(units: &[TokenBlock], n_threads: usize) -> usize {
    if n_threads == 1 || units.is_empty() || units.len() >= UNITS_PER_THREAD * n_threads {
        return 1;
    }
    let most_spans = units.iter().map(|unit| unit.spans.len()).max().unwrap_or(1);
    (CHUNKS_PER_THREAD * n_threads)
        .div_ceil(units.len())
        .clamp(1, most_spans)
}

impl RegionScratch<'_> {
    /// The unit of a chunk, and its spans (none, if a unit has fewer spans than chunks).
    fn chunk(&self, chunk: usize) -> (&TokenBlock, Range<usize>) {
        let unit = &self.units[chunk / self.chunks_per_unit];
        let (part, n_parts) = (chunk % self.chunks_per_unit, self.chunks_per_unit);
        let (first, n_spans) = (unit.spans.start, unit.spans.len());
        (
            unit,
            first + part * n_spans / n_parts..first + (part + 1) * n_spans / n_parts,
        )
    }

    /// The span that the thread of `chunk` most likely computes next, if the other threads are as
    /// fast: it is prefetched.
    fn after(&self, chunk: usize) -> Option<UnitSpan<'_>> {
        let next = chunk + self.buffers.len();
        let (unit, spans) = (next < self.n_chunks()).then(|| self.chunk(next))?;
        let span = spans.start;
        (!spans.is_empty()).then_some(UnitSpan { unit, span })
    }
}

/// Computes one chunk: a unit, or some spans of one.
pub(super) fn run_chunk(
    walk: &SpanWalk<'_>,
    shared: &RegionScratch<'_>,
    chunk: usize,
    out: &DisjointMut<'_, f32>,
) {
    let (unit, spans) = shared.chunk(chunk);
    let n_rows = walk.query_rows(unit);
    let mut lines = shared.buffer();
    let mut buffers = UnitBuffers::carve(lines.as_mut_slice(), n_rows, walk.layout());
    if !spans.is_empty() {
        walk.load_queries(unit, buffers.work.q);
    }
    let is_whole = shared.chunks_per_unit == 1;
    let mut road = Road::default();
    buffers.total.clear();
    for span in spans.clone() {
        let place = UnitSpan { unit, span };
        let next = if span + 1 < spans.end {
            Some(UnitSpan {
                unit,
                span: span + 1,
            })
        } else {
            shared.after(chunk)
        };
        if is_whole {
            walk.span(
                (place, next),
                &mut road,
                &mut buffers.work,
                &mut buffers.span,
            );
            walk.merge(&buffers.span, &mut buffers.total);
        } else {
            let mut result = stored(walk, shared, unit, span);
            walk.span((place, next), &mut road, &mut buffers.work, &mut result);
        }
    }
    if is_whole {
        walk.store(unit, &buffers.total, out);
        return;
    }
    let pending = &shared.pending[chunk / shared.chunks_per_unit];
    // Acquire and release: the last thread sees the stores of all others.
    if pending.fetch_sub(1, Ordering::AcqRel) == 1 {
        for span in unit.spans.clone() {
            walk.merge(&stored(walk, shared, unit, span), &mut buffers.total);
        }
        walk.store(unit, &buffers.total, out);
    }
}

/// The stored result of one span of a unit.
fn stored<'a>(
    walk: &SpanWalk<'_>,
    shared: &'a RegionScratch<'_>,
    unit: &TokenBlock,
    span: usize,
) -> Partial<'a> {
    let n_rows = walk.query_rows(unit);
    let n_elems = partial_elems(n_rows, walk.padded_dim());
    let start = unit.partials + (span - unit.spans.start) * n_elems;
    // SAFETY: each (unit, span) has its own range. The one chunk that computes the span takes it first.
    // After all chunks of the unit have counted down `pending`, the one chunk that merges takes it.
    let floats = unsafe { shared.partials.slice(start..start + n_elems) };
    Partial::carve(floats, n_rows, walk.padded_dim())
}
