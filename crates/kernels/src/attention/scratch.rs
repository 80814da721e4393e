//! The memory of attention: the list of units, buffers of the threads, results of spans.

use super::plan::{self, TokenBlock};
use super::{AttentionInput, AttentionShape, SPAN_TOKENS, STRIP_TOKENS};
use crate::kv::{KvLayout, TILE_TOKENS};
use crate::pool::DisjointMut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Reusable memory of [`super::attention`]; keep one and pass it to every call. Grows to the
/// largest call seen.
#[derive(Default)]
pub struct AttentionScratch {
    units: Vec<TokenBlock>,
    pending: Vec<AtomicUsize>,
    partials: Lines,
    buffers: Vec<Mutex<Lines>>,
}

/// The scratch during a parallel region.
pub(super) struct RegionScratch<'a> {
    pub(super) units: &'a [TokenBlock],
    /// Chunks that share one unit's spans; 1 where a unit is a chunk.
    pub(super) chunks_per_unit: usize,
    /// Chunks of each unit still to be computed; the thread that brings it to zero merges.
    pub(super) pending: &'a [AtomicUsize],
    /// Results of spans of units that several chunks share, from [`TokenBlock::partials`] on.
    pub(super) partials: DisjointMut<'a, f32>,
    /// One for each thread.
    pub(super) buffers: &'a [Mutex<Lines>],
}

impl AttentionScratch {
    /// Lists the units of a call and makes room for them.
    pub(super) fn prepare(
        &mut self,
        shape: &AttentionShape,
        layout: &KvLayout,
        input: &AttentionInput<'_>,
        n_threads: usize,
    ) -> RegionScratch<'_> {
        plan::list_units(shape, input, &mut self.units);
        let chunks_per_unit = plan::chunks_per_unit(&self.units, n_threads);
        let padded_dim = layout.padded_dim();
        let mut n_partials = 0;
        if chunks_per_unit > 1 {
            for unit in &mut self.units {
                unit.partials = n_partials;
                let n_rows = unit.rows.len() * shape.group();
                n_partials += unit.spans.len() * partial_elems(n_rows, padded_dim);
            }
        }
        self.partials.reserve(n_partials);
        if self.pending.len() < self.units.len() {
            self.pending
                .resize_with(self.units.len(), AtomicUsize::default);
        }
        for pending in &self.pending[..self.units.len()] {
            pending.store(chunks_per_unit, Ordering::Relaxed);
        }
        let most_rows = self
            .units
            .iter()
            .map(|unit| unit.rows.len())
            .max()
            .unwrap_or(0);
        let buffer_elems = UnitBuffers::elems(most_rows * shape.group(), layout);
        self.buffers
            .resize_with(n_threads.max(self.buffers.len()), Mutex::default);
        for buffer in &mut self.buffers {
            buffer
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .reserve(buffer_elems);
        }
        RegionScratch {
            units: &self.units,
            chunks_per_unit,
            pending: &self.pending,
            partials: DisjointMut::new(self.partials.as_mut_slice()),
            buffers: &self.buffers,
        }
    }
}

impl RegionScratch<'_> {
    pub(super) fn n_chunks(&self) -> usize {
        self.units.len() * self.chunks_per_unit
    }

    /// A buffer that no other thread uses. There are as many as threads, so one is free.
    pub(super) fn buffer(&self) -> MutexGuard<'_, Lines> {
        loop {
            for buffer in self.buffers {
                match buffer.try_lock() {
                    Ok(guard) => return guard,
                    // Buffers hold no invariant that a panic could break.
                    Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                    Err(TryLockError::WouldBlock) => {}
                }
            }
            std::thread::yield_now();
        }
    }
}

/// Sixteen floats that fill a cache line.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct FloatLine([f32; 16]);

/// Floats aligned to a cache line.
#[derive(Default)]
pub(super) struct Lines(Vec<FloatLine>);

impl Lines {
    fn reserve(&mut self, n_elems: usize) {
        let n_lines = n_elems.div_ceil(16);
        if self.0.len() < n_lines {
            self.0.resize(n_lines, FloatLine([0.0; 16]));
        }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// Buffers of one thread to compute a span for `n_rows` query rows.
pub(super) struct SpanScratch<'a> {
    /// Scaled queries, `[n_rows, padded_dim]`.
    pub(super) q: &'a mut [f32],
    /// Scores, then weights, `[n_rows, SPAN_TOKENS]`.
    pub(super) scores: &'a mut [f32],
    /// A strip in the type that kernels multiply, if pages have another type; otherwise empty.
    pub(super) wide: &'a mut [f32],
    /// A converted strip.
    pub(super) strip: &'a mut [f32],
}

/// Buffers of one thread to work on a unit.
pub(super) struct UnitBuffers<'a> {
    pub(super) work: SpanScratch<'a>,
    /// The current span's result.
    pub(super) span: Partial<'a>,
    /// The merged result of the spans so far.
    pub(super) total: Partial<'a>,
}

impl<'a> UnitBuffers<'a> {
    fn elems(n_rows: usize, layout: &KvLayout) -> usize {
        let padded_dim = layout.padded_dim();
        n_rows * (padded_dim + SPAN_TOKENS)
            + wide_elems(layout)
            + STRIP_TOKENS * padded_dim
            + 2 * partial_elems(n_rows, padded_dim)
    }

    /// Divides a thread's floats. Their contents are left from earlier work.
    pub(super) fn carve(
        floats: &'a mut [f32],
        n_rows: usize,
        layout: &KvLayout,
    ) -> UnitBuffers<'a> {
        let padded_dim = layout.padded_dim();
        let (q, floats) = floats.split_at_mut(n_rows * padded_dim);
        let (scores, floats) = floats.split_at_mut(n_rows * SPAN_TOKENS);
        let (wide, floats) = floats.split_at_mut(wide_elems(layout));
        let (strip, floats) = floats.split_at_mut(STRIP_TOKENS * padded_dim);
        let (span, total) = floats.split_at_mut(partial_elems(n_rows, padded_dim));
        let span = Partial::carve(span, n_rows, padded_dim);
        let total = Partial::carve(total, n_rows, padded_dim);
        UnitBuffers {
            work: SpanScratch {
                q,
                scores,
                wide,
                strip,
            },
            span,
            total,
        }
    }
}

/// Floats of a strip as kernels multiply it, where pages have another type: whole cache lines.
fn wide_elems(layout: &KvLayout) -> usize {
    let widened = layout.widened();
    match widened == *layout {
        true => 0,
        false => {
            let n_tiles = STRIP_TOKENS / TILE_TOKENS;
            (n_tiles * widened.tile_bytes() / size_of::<f32>()).next_multiple_of(16)
        }
    }
}

/// Result of one or more spans for the rows of a unit.
pub(super) struct Partial<'a> {
    /// Largest score of each row, [`super::NO_SCORE`] where there was none.
    pub(super) max: &'a mut [f32],
    /// Sum of exponentials of each row.
    pub(super) sum: &'a mut [f32],
    /// Weighted sums of values, `[n_rows, padded_dim]`.
    pub(super) values: &'a mut [f32],
}

/// Floats of a [`Partial`]: whole cache lines.
pub(super) fn partial_elems(n_rows: usize, padded_dim: usize) -> usize {
    n_rows * padded_dim + (2 * n_rows).next_multiple_of(16)
}

impl<'a> Partial<'a> {
    pub(super) fn carve(floats: &'a mut [f32], n_rows: usize, padded_dim: usize) -> Partial<'a> {
        let (values, floats) = floats.split_at_mut(n_rows * padded_dim);
        let (max, floats) = floats.split_at_mut(n_rows);
        Partial {
            max,
            sum: &mut floats[..n_rows],
            values,
        }
    }

    /// Resets to the result of no span.
    pub(super) fn clear(&mut self) {
        self.max.fill(super::NO_SCORE);
        self.sum.fill(0.0);
        self.values.fill(0.0);
    }
}
