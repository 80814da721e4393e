//! Counts the allocations of a thread, so that tests can hold readers to "no allocation that the
//! file does not justify". This is the one place outside `mmap` that needs unsafe code: the
//! allocator's interface is unsafe, and nothing else sees an allocation that is never touched.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE_BYTES: Cell<usize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator with a counter in front.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn grow(bytes: usize) {
    // A thread that is ending has no counter any more, and nothing to count.
    let _ = LIVE_BYTES.try_with(|live| {
        // Wraps where a thread frees an allocation of another; `peak_of` compares differences only.
        live.set(live.get().wrapping_add(bytes));
        let _ = PEAK_BYTES.try_with(|peak| {
            if (live.get() as isize) > (peak.get() as isize) {
                peak.set(live.get());
            }
        });
    });
}

fn shrink(bytes: usize) {
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get().wrapping_sub(bytes)));
}

// SAFETY: every call goes to the system's allocator with the caller's own arguments, so its
// guarantees are the system's; counting touches nothing but two thread-local cells without
// destructors, which do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `work` and returns its result with the most bytes that this thread held for it at once.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE_BYTES.get();
    PEAK_BYTES.set(before);
    let result = work();
    (result, PEAK_BYTES.get().wrapping_sub(before))
}

#[test]
fn it_counts() {
    let (kept, peak) = peak_of(|| {
        drop(Vec::<u8>::with_capacity(3000));
        Vec::<u8>::with_capacity(1000)
    });
    assert_eq!(kept.capacity(), 1000);
    assert_eq!(peak, 3000);
}
