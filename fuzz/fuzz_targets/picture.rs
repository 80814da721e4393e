//! Any bytes as a picture: an error, or pixel values, in the memory that the limits allow (`-rss_limit_mb=256`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_picture::{Limits, PanAndScan, Picture, Preprocess};

/// A limit of bytes well below libFuzzer's own, so that what exceeds the former meets the latter.
const LIMITS: Limits = Limits::of_pixels(1 << 20);

fuzz_target!(|bytes: &[u8]| {
    match Picture::decode_within("fuzz", bytes, LIMITS) {
        Ok(picture) => {
            let pixels = picture.width() as u64 * picture.height() as u64;
            assert!(pixels <= LIMITS.pixels);
            let preprocess = Preprocess {
                pan_and_scan: Some(PanAndScan::default()),
                ..Preprocess::siglip(56)
            };
            for values in preprocess.apply(&picture).expect("a square of any picture") {
                assert_eq!(values.data.len(), 3 * 56 * 56);
                assert!(values.data.iter().all(|value| (-1.0..=1.0).contains(value)));
            }
        }
        Err(error) => assert!(error.to_string().contains("fuzz")),
    }
});
