//! Images against the results of Pillow and transformers (`tools/make_vision_goldens.py`).
#![allow(clippy::unwrap_used)] // A test may panic.

use std::path::{Path, PathBuf};

use millrace_format::Checkpoint;
use millrace_image::{Error, Filter, Fit, Limits, PanAndScan, Preprocess, RgbImage};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vision")
}

fn decode(name: &str) -> Result<RgbImage, Error> {
    let bytes = std::fs::read(root().join("images").join(name)).unwrap();
    RgbImage::decode(name, &bytes)
}

fn expected() -> Checkpoint {
    Checkpoint::open(&root().join("images.safetensors")).unwrap()
}

/// Bytes `[h, w, 3]` as an image.
fn image(file: &Checkpoint, name: &str) -> RgbImage {
    let tensor = file.tensor(name).unwrap_or_else(|| panic!("{name}"));
    let shape = &tensor.info.shape;
    RgbImage::new(shape[1], shape[0], tensor.bytes.to_vec())
}

/// The 8-bit values that correspond to pixel values of the usual normalisation, `[size, size, 3]`.
fn bytes_of(preprocess: &Preprocess, image: &RgbImage) -> Vec<u8> {
    let values = preprocess.apply(image).unwrap().remove(0);
    let n = values.width * values.height;
    let level = |value: f32| ((value + 1.0) * 127.5).round() as u8;
    (0..n)
        .flat_map(|i| [0, 1, 2].map(|c| level(values.data[c * n + i])))
        .collect()
}

/// The size in the head is the decoded size, except for an image that is turned.
#[test]
fn sizes_are_known_from_heads() {
    for name in [
        "wide.png",
        "tall.png",
        "alpha.png",
        "photo.jpg",
        "lossless.webp",
        "lossy.webp",
    ] {
        let bytes = std::fs::read(root().join("images").join(name)).unwrap();
        let found = RgbImage::size_within(name, &bytes, Limits::default()).unwrap();
        let image = decode(name).unwrap();
        assert_eq!(found, (image.width(), image.height()), "{name}");
        // From the head alone, and from less.
        let head = &bytes[..bytes.len() / 2];
        assert_eq!(
            RgbImage::size_within(name, head, Limits::default()).unwrap(),
            found
        );
        RgbImage::size_within(name, &bytes[..14], Limits::default()).unwrap_err();
        RgbImage::size_within(name, &bytes, Limits::of_pixels(100)).unwrap_err();
    }
    let bytes = std::fs::read(root().join("images/turned.jpg")).unwrap();
    let (width, height) = RgbImage::size_within("turned.jpg", &bytes, Limits::default()).unwrap();
    let image = decode("turned.jpg").unwrap();
    assert_eq!((height, width), (image.width(), image.height()));
}

#[test]
fn exact_formats_decode_to_the_same_bytes() {
    let file = expected();
    let names = [
        "wide.png",
        "tall.png",
        "square.png",
        "small.png",
        "as-tall.png",
        "alpha.png",
        "grey.png",
        "palette.png",
        "lossless.webp",
    ];
    for name in names {
        let found = decode(name).unwrap();
        assert!(
            found == image(&file, &format!("decoded/{name}")),
            "{name} differs"
        );
    }
}

/// Decoders of lossy formats may round differently; one to three levels are not visible.
#[test]
fn lossy_formats_decode_to_nearly_the_same() {
    let file = expected();
    for name in ["photo.jpg", "turned.jpg", "lossy.webp"] {
        let found = decode(name).unwrap();
        let expected = image(&file, &format!("decoded/{name}"));
        assert_eq!(
            (found.width(), found.height()),
            (expected.width(), expected.height()),
            "{name}"
        );
        let pairs = found.rgb().iter().zip(expected.rgb());
        let differences: Vec<u8> = pairs.map(|(a, b)| a.abs_diff(*b)).collect();
        let mean =
            differences.iter().map(|d| f64::from(*d)).sum::<f64>() / differences.len() as f64;
        let worst = differences.iter().max().unwrap();
        assert!(*worst <= 6 && mean < 0.6, "{name}: {worst}, mean {mean:.3}");
    }
}

#[test]
fn resizing_is_pillows_bit_for_bit() {
    let file = expected();
    for name in [
        "wide.png",
        "tall.png",
        "small.png",
        "as-tall.png",
        "square.png",
    ] {
        let source = decode(name).unwrap();
        for size in [56, 112] {
            for (label, filter) in [("bilinear", Filter::Bilinear), ("bicubic", Filter::Bicubic)] {
                let preprocess = Preprocess {
                    filter,
                    ..Preprocess::siglip(size)
                };
                let expected = image(&file, &format!("resized/{name}/{size}/{label}"));
                assert!(
                    bytes_of(&preprocess, &source) == expected.rgb(),
                    "{name} to {size}, {label}"
                );
            }
        }
        let found = bytes_of(&Preprocess::siglip(896), &source);
        let found: Vec<u8> = found.into_iter().step_by(97).collect();
        let sampled = file.tensor(&format!("sampled/{name}")).unwrap();
        assert!(found == sampled.bytes, "{name} to 896");
    }
}

#[test]
fn pixel_values_are_those_of_transformers() {
    let file = expected();
    let tensor = file.tensor("pixel_values").unwrap();
    let (numbers, _) = tensor.bytes.as_chunks::<4>();
    let found = Preprocess::siglip(112)
        .apply(&decode("wide.png").unwrap())
        .unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].data.len(), numbers.len());
    for (found, expected) in found[0].data.iter().zip(numbers) {
        let expected = f32::from_le_bytes(*expected);
        assert!((found - expected).abs() <= 2.4e-7, "{found} for {expected}");
    }
}

#[test]
fn pan_and_scan_cuts_where_transformers_does() {
    let file = expected();
    let pan_and_scan = PanAndScan {
        min_crop_size: 24,
        ..PanAndScan::default()
    };
    for name in [
        "wide.png",
        "tall.png",
        "square.png",
        "as-tall.png",
        "small.png",
    ] {
        let crops = pan_and_scan.crops(&decode(name).unwrap());
        let expected = file.tensor(&format!("crops/{name}")).unwrap();
        assert_eq!(crops.len(), expected.info.shape[0], "{name}");
        for (i, crop) in crops.iter().enumerate() {
            assert!(
                *crop == image(&file, &format!("crop/{name}/{i}")),
                "{name}, crop {i}"
            );
        }
        let preprocess = Preprocess {
            pan_and_scan: Some(pan_and_scan),
            ..Preprocess::siglip(28)
        };
        let values = preprocess.apply(&decode(name).unwrap()).unwrap();
        assert_eq!(values.len(), 1 + crops.len());
    }
}

#[test]
fn a_letterbox_is_black_around_the_image() {
    let preprocess = Preprocess {
        fit: Fit::Letterbox,
        ..Preprocess::siglip(112)
    };
    // 160 × 90 becomes 112 × 63, with 24 rows of black above.
    let found = bytes_of(&preprocess, &decode("wide.png").unwrap());
    let row = |y: usize| &found[y * 112 * 3..(y + 1) * 112 * 3];
    assert!(
        (0..24)
            .chain(87..112)
            .all(|y| row(y).iter().all(|v| *v == 0))
    );
    assert!((24..87).all(|y| row(y).iter().any(|v| *v > 0)));
    // A square needs none.
    let square = decode("square.png").unwrap();
    let stretched = Preprocess::siglip(112);
    assert!(preprocess.apply(&square).unwrap() == stretched.apply(&square).unwrap());
}

#[test]
fn what_is_no_image_is_named() {
    let message = |name: &str| decode(name).unwrap_err().to_string();
    assert!(message("broken.png").starts_with("broken.png is a broken PNG file"));
    assert!(message("animated.png").starts_with("animated.png is an animated PNG file"));
    assert!(message("animated.webp").starts_with("animated.webp is an animated WebP file"));
    assert!(message("still.gif").contains("give a PNG, JPEG or WebP file"));
    for bytes in [&b""[..], b"hello", b"\xff\xd8\xff\xe0"] {
        RgbImage::decode("x", bytes).unwrap_err();
    }
    // A header of 41 bytes that claims 60,000 × 60,000 pixels.
    let wide = std::fs::read(root().join("images/wide.png")).unwrap();
    let mut huge = wide.clone();
    huge[16..20].copy_from_slice(&60_000u32.to_be_bytes());
    huge[20..24].copy_from_slice(&60_000u32.to_be_bytes());
    let crc = crc32(&huge[12..29]);
    huge[29..33].copy_from_slice(&crc.to_be_bytes());
    let error = RgbImage::decode("huge.png", &huge).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

/// Every prefix and every damaged byte of a file of each format gives an image or an error.
#[test]
fn damaged_files_do_not_panic() {
    for name in ["small.png", "photo.jpg", "lossy.webp", "lossless.webp"] {
        let whole = std::fs::read(root().join("images").join(name)).unwrap();
        for i in (0..whole.len()).step_by(7) {
            let _ = RgbImage::decode(name, &whole[..i]);
            let mut damaged = whole.clone();
            damaged[i] ^= 0x55;
            let _ = RgbImage::decode(name, &damaged);
        }
    }
}

/// The checksum of PNG chunks.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}
