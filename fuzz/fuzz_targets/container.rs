//! Any bytes as a program on disk: an error, or a container that is written back unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_npu::Container;

fuzz_target!(|bytes: &[u8]| {
    match Container::decode(bytes) {
        Ok(container) => assert_eq!(container.encode(), bytes),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
