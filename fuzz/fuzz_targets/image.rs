//! Any bytes as an image: an error, or pixel values, in the memory that the limits allow (`-rss_limit_mb=256`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_image::{Limits, PanAndScan, Preprocess, RgbImage};

/// Limits well below libFuzzer's own: a decoder that exceeds these runs into libFuzzer's.
const LIMITS: Limits = Limits::of_pixels(1 << 20);

fuzz_target!(|bytes: &[u8]| {
    match RgbImage::decode_within("fuzz", bytes, LIMITS) {
        Ok(image) => {
            let pixels = image.width() as u64 * image.height() as u64;
            assert!(pixels <= LIMITS.pixels);
            let preprocess = Preprocess {
                pan_and_scan: Some(PanAndScan::default()),
                ..Preprocess::siglip(56)
            };
            for values in preprocess.apply(&image).expect("a square of any image") {
                assert_eq!(values.data.len(), 3 * 56 * 56);
                assert!(values.data.iter().all(|value| (-1.0..=1.0).contains(value)));
            }
        }
        Err(error) => assert!(error.to_string().contains("fuzz")),
    }
});
