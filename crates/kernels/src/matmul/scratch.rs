//! Memory that is grown once and then reused: cache-line aligned bytes.

use super::WeightMatrix;
use super::panel::{PANEL_ROWS, PanelSource};
use std::cell::RefCell;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

/// A byte buffer that starts on a cache line and never shrinks.
#[derive(Default)]
pub(crate) struct AlignedBytes(Vec<CacheLine>);

impl AlignedBytes {
    /// At least `n_bytes` bytes; their contents are unspecified, but initialised.
    pub(crate) fn at_least(&mut self, n_bytes: usize) -> &mut [u8] {
        let n_lines = n_bytes.div_ceil(64);
        if self.0.len() < n_lines {
            self.0.resize(n_lines, CacheLine([0; 64]));
        }
        // SAFETY: the vector's lines are initialised, contiguous and exclusively borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * 64) }
    }

    /// The bytes there are.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }
}

/// Buffers of one thread to multiply a group of rows.
#[derive(Default)]
pub(crate) struct MatmulScratch {
    /// Panels of a group.
    pub(crate) panels: AlignedBytes,
    /// Accumulators `[tokens, GROUP_ROWS]` f32.
    pub(crate) acc: AlignedBytes,
    /// Rows of a matrix that has fewer than a panel, repeated to sixteen.
    pub(crate) rows: AlignedBytes,
}

thread_local! {
    static SCRATCH: RefCell<MatmulScratch> = RefCell::default();
}

/// Runs `f` with this thread's scratch.
pub(crate) fn with_scratch<R>(f: impl FnOnce(&mut MatmulScratch) -> R) -> R {
    SCRATCH.with_borrow_mut(f)
}

/// The source, or where the matrix has fewer rows than a panel, a copy with the last one repeated.
pub(super) fn readable_rows(
    weight: &WeightMatrix<'_>,
    source: &PanelSource,
    repeated: &mut AlignedBytes,
) -> PanelSource {
    let WeightMatrix { dtype, n, .. } = *weight;
    if n >= PANEL_ROWS {
        return *source;
    }
    let row_bytes = source.k / dtype.block_elems() * dtype.block_bytes();
    let rows = &mut repeated.at_least(PANEL_ROWS * row_bytes)[..PANEL_ROWS * row_bytes];
    for (r, row) in rows.chunks_exact_mut(row_bytes).enumerate() {
        // SAFETY: the matrix has these rows, and in each the chunk's columns.
        let from = unsafe {
            std::slice::from_raw_parts(source.base.add(r.min(n - 1) * source.stride), row_bytes)
        };
        row.copy_from_slice(from);
    }
    PanelSource {
        base: rows.as_ptr(),
        stride: row_bytes,
        ..*source
    }
}
