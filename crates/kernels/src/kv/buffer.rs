//! Zeroed, cache-line-aligned memory for pages.

use crate::error::Error;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of a buffer: a transparent huge page. The system may back large caches with them, and
/// a walk over the cache then costs no address-translation misses.
const ALIGN_BYTES: usize = 2 << 20;

/// Alignment of buffers too small to fill a huge page: one cache line.
const SMALL_ALIGN_BYTES: usize = 64;

/// Alignment requested from the allocator. Above it an allocator clears memory by writing zeros,
/// and a cache sized for a long context would be resident before its first token. Up to it, large
/// blocks come from the system already zero and untouched.
const ALLOCATION_ALIGN_BYTES: usize = 16;

/// Bytes of KV pages (or any kernel operand): zeroed, aligned to a cache line at least. The system
/// commits memory when it is first written, so a generous size costs nothing until it is used.
pub struct KvBuffer {
    /// Start of the allocation.
    allocation: NonNull<u8>,
    layout: Layout,
    /// Its first aligned byte.
    start: NonNull<u8>,
    n_bytes: usize,
}

// SAFETY: the buffer owns its bytes, as a `Vec<u8>` does.
unsafe impl Send for KvBuffer {}
// SAFETY: a shared reference only returns `&[u8]`.
unsafe impl Sync for KvBuffer {}

impl KvBuffer {
    /// A buffer of `n_bytes` zeros.
    ///
    /// # Errors
    /// [`Error::Memory`] when the system refuses.
    pub fn zeroed(n_bytes: usize) -> Result<KvBuffer, Error> {
        let align = if n_bytes >= ALIGN_BYTES {
            ALIGN_BYTES
        } else {
            SMALL_ALIGN_BYTES
        };
        let refused = || Error::Memory { n_bytes };
        let size = n_bytes.checked_add(align).ok_or_else(refused)?;
        let layout =
            Layout::from_size_align(size, ALLOCATION_ALIGN_BYTES).map_err(|_| refused())?;
        // SAFETY: the layout's size is not zero: `align` is not.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        // SAFETY: skips fewer than `align` bytes, and `n_bytes` remain after them.
        let start = unsafe { allocation.add(allocation.align_offset(align)) };
        let buffer = KvBuffer {
            allocation,
            layout,
            start,
            n_bytes,
        };
        buffer.advise_huge_pages();
        Ok(buffer)
    }

    /// Best effort: without huge pages everything works, a few per cent slower.
    fn advise_huge_pages(&self) {
        #[cfg(target_os = "linux")]
        if self.n_bytes >= ALIGN_BYTES {
            let start = self.start.as_ptr().cast();
            let advice = rustix::mm::Advice::LinuxHugepage;
            // SAFETY: the range is this buffer's own; the advice changes no contents.
            let _ = unsafe { rustix::mm::madvise(start, self.n_bytes, advice) };
        }
    }
}

impl Deref for KvBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `n_bytes` initialised bytes owned by `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.n_bytes) }
    }
}

impl DerefMut for KvBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.n_bytes) }
    }
}

impl Drop for KvBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}
