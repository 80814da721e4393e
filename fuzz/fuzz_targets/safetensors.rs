//! Any bytes as a safetensors file and as a Q4NX bundle: an error, or tensors that fill the bytes after the header.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use millrace_format::safetensors::Header;

fuzz_target!(|bytes: &[u8]| {
    for name in ["fuzz.safetensors", "fuzz.q4nx"] {
        match Header::parse(bytes, Path::new(name)) {
            Ok(header) => {
                let filled: usize = header.tensors.iter().map(|tensor| tensor.size_bytes).sum();
                assert_eq!(header.data_offset as usize + filled, bytes.len());
                for tensor in &header.tensors {
                    let start = tensor.offset as usize;
                    std::hint::black_box(&bytes[start..start + tensor.size_bytes]);
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});
