//! Any bytes as a GGUF file: an error, or tensors within the bytes.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use millrace_format::gguf::Header;

fuzz_target!(|bytes: &[u8]| {
    match Header::parse(bytes, Path::new("fuzz.gguf")) {
        Ok(header) => {
            for tensor in &header.tensors {
                let start = tensor.offset as usize;
                std::hint::black_box(&bytes[start..start + tensor.size_bytes]);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
