//! A mutable slice that the chunks of a region share, each writing its own part.

use std::marker::PhantomData;
use std::ops::Range;

/// A `&mut [T]` that several threads may take parts of, as long as the parts do not overlap.
pub(crate) struct DisjointMut<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: a shared reference gives access to elements only through `slice`, whose caller promises
// that no two live parts overlap; handing parts to other threads is sending `&mut T`.
unsafe impl<T: Send> Sync for DisjointMut<'_, T> {}
// SAFETY: as a `&mut [T]`.
unsafe impl<T: Send> Send for DisjointMut<'_, T> {}

impl<'a, T> DisjointMut<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> DisjointMut<'a, T> {
        DisjointMut {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            borrow: PhantomData,
        }
    }

    /// The same slice once more, under the same promise.
    pub(crate) fn share(&self) -> DisjointMut<'a, T> {
        DisjointMut { ..*self }
    }

    /// The elements of `range`.
    ///
    /// # Panics
    /// If the range leaves the slice.
    ///
    /// # Safety
    /// No other part alive at the same time may overlap `range`.
    #[expect(
        clippy::mut_from_ref,
        reason = "the caller promises that parts do not overlap"
    )]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "part {range:?} of {} elements",
            self.len
        );
        // SAFETY: in bounds by the assertion, exclusive by the caller's promise, alive as long as
        // the borrow in `self`.
        unsafe {
            std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start)
        }
    }

    /// Where the elements of `range` start, for parts that are not contiguous. Writing there is subject to the promise of
    /// [`DisjointMut::slice`], for the elements that are written.
    ///
    /// # Panics
    /// If the range leaves the slice.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn start_of(&self, range: Range<usize>) -> *mut T {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "part {range:?} of {} elements",
            self.len
        );
        // In bounds by the assertion.
        self.start.wrapping_add(range.start)
    }
}
