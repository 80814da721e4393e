//! The heap of the process.
//!
//! glibc gives concurrent threads separate arenas of the heap, and returns only the memory free at an arena's very end.
//! Without trimming, a server would keep the memory of its busiest hour for good.

/// Returns the heap's free pages to the system, wherever they are; `true` if there were some.
///
/// It locks each arena of the heap in turn, which takes milliseconds in all: call it when nothing is to be computed.
/// With a C library that has no such call, nothing happens.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn trim() -> bool {
    unsafe extern "C" {
        /// `malloc_trim(3)`, of glibc since 2.0; of all parts of the heap since 2.8.
        fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    // SAFETY: the signature is that of <malloc.h>; it may be called from any thread at any time, and touches free memory only.
    unsafe { malloc_trim(0) != 0 }
}

/// Returns the heap's free pages to the system, where the C library has a call for it: this one has none.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn trim() -> bool {
    false
}
