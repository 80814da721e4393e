//! The heap of the process.
//!
//! glibc gives every thread that allocates beside others a part of the heap of its own and returns only what is free at a
//! part's very end. A server that has had its busiest hour would hold that hour's memory for good.

/// Gives the heap's free pages back to the system, wherever in it they lie; `true` if some were.
///
/// It takes the lock of each part of the heap in turn, milliseconds in all: for when nothing is to be computed. With a C
/// library that has no such call, nothing happens.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn trim() -> bool {
    unsafe extern "C" {
        /// `malloc_trim(3)`, of glibc since 2.0; of all parts of the heap since 2.8.
        fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    // SAFETY: the signature is that of <malloc.h>; it may be called from any thread at any time, and touches free memory only.
    unsafe { malloc_trim(0) != 0 }
}

/// Gives the heap's free pages back to the system, where the C library has a call for it: this one has none.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn trim() -> bool {
    false
}
