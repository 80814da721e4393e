//! Memory that is grown once and then reused: cache-line aligned bytes.

use std::cell::RefCell;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A byte buffer that starts on a cache line and never shrinks.
#[derive(Default)]
pub(crate) struct AlignedBytes(Vec<Line>);

impl AlignedBytes {
    /// At least `n_bytes` bytes; what they hold is unspecified, but initialised.
    pub(crate) fn at_least(&mut self, n_bytes: usize) -> &mut [u8] {
        let n_lines = n_bytes.div_ceil(64);
        if self.0.len() < n_lines {
            self.0.resize(n_lines, Line([0; 64]));
        }
        // SAFETY: the vector's lines are initialised, contiguous and exclusively borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * 64) }
    }

    /// The bytes there are.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }
}

/// What one thread needs to multiply a group of rows.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Panels of a group.
    pub(crate) panels: AlignedBytes,
    /// Accumulators `[tokens, GROUP_ROWS]` f32.
    pub(crate) acc: AlignedBytes,
    /// Rows of a matrix that has fewer than a panel, repeated to sixteen.
    pub(crate) rows: AlignedBytes,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Runs `f` with this thread's scratch.
pub(crate) fn with_scratch<R>(f: impl FnOnce(&mut Scratch) -> R) -> R {
    SCRATCH.with_borrow_mut(f)
}
