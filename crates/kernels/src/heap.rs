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

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    /// Resident memory of this process that is no file's.
    fn own_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let text = line
            .expect("the kernel counts it")
            .trim()
            .trim_end_matches(" kB");
        text.parse().expect("a number")
    }

    /// 64 MiB in pieces too small to be mapped each on its own, below one that stays: the heap's end is never free.
    #[test]
    fn what_is_free_below_the_end_goes_back() {
        let mut pieces: Vec<Vec<u8>> = (0..1024).map(|_| vec![1; 64 << 10]).collect();
        let last = pieces.pop();
        let full = own_kib();
        drop(pieces);
        super::trim();
        let after = own_kib();
        assert!(
            after + (48 << 10) < full,
            "{full} KiB before, {after} after"
        );
        drop(last);
    }
}
