//! The heap's free pages go back to the system. The test has its own process, because allocations of other tests would count too.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::unwrap_used)] // A test may panic.

/// Resident anonymous memory of this process.
fn own_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut words = status.split_ascii_whitespace();
    words.find(|word| *word == "RssAnon:").unwrap();
    words.next().unwrap().parse().unwrap()
}

/// 64 MiB in pieces too small to be mapped individually, below one that stays: the heap's end is never free.
#[test]
fn what_is_free_below_the_end_goes_back() {
    let mut pieces: Vec<Vec<u8>> = (0..1024).map(|_| vec![1; 64 << 10]).collect();
    let last = pieces.pop();
    drop(pieces);
    let kept = own_kib();
    assert!(millrace_kernels::heap::trim());
    let after = own_kib();
    assert!(
        after + (48 << 10) < kept,
        "{kept} KiB before, {after} after"
    );
    drop(last);
}
