//! WebP: tables of codes that a few bytes ask for, and sizes that do not agree.

use std::io::Cursor;
use std::panic::catch_unwind;

use millrace_image::{Error, Limits, RgbImage};
use millrace_testkit::sample;

use super::webp_files::{Bits, GROUP_BYTES, extended, frame, many_groups, riff};
use super::{bound_bytes, check, most_bytes, noise};

/// A lossy file, with transparency that is not compressed if `alpha`.
fn lossy(width: u32, height: u32, alpha: Option<Vec<u8>>) -> Vec<u8> {
    let frame = frame(width, height);
    match alpha {
        None => riff(&[(b"VP8 ", &frame)]),
        Some(alpha) => riff(&[
            (b"VP8X", &extended(width, height, 0x10)),
            (b"ALPH", &[vec![0], alpha].concat()),
            (b"VP8 ", &frame),
        ]),
    }
}

#[test]
fn every_shape_of_webp_stays_within_its_bound() {
    use image_webp::{ColorType, WebPEncoder};
    let shapes = [
        (1, 1),
        (1, 16_383),
        (16_383, 1),
        (2, 16_001),
        (16_001, 3),
        (101, 99),
        (1024, 768),
    ];
    for (width, height) in shapes {
        let pixels = (width * height) as usize;
        check(
            &format!("{width} × {height}, lossy"),
            &lossy(width, height, None),
        );
        check(
            &format!("{width} × {height}, lossy with alpha"),
            &lossy(width, height, Some(noise(pixels))),
        );
        for (colour, n) in [(ColorType::Rgb8, 3), (ColorType::Rgba8, 4)] {
            let name = format!("{width} × {height}, lossless of {n}");
            let data = noise(pixels * n);
            let mut file = Vec::new();
            let encoder = WebPEncoder::new(&mut file);
            encoder.encode(&data, width, height, colour).unwrap();
            let image = check(&name, &file);
            if n == 3 {
                assert!(image.rgb() == data, "{name}");
            }
        }
    }
}

/// Pixels of four bytes become three in their place, and are turned as well.
#[test]
fn a_turned_image_with_transparency_stays_within_its_bound() {
    let (width, height) = (1024, 1000);
    let mut file = Vec::new();
    let mut encoder = image_webp::WebPEncoder::new(&mut file);
    // Little-endian EXIF of one entry: an orientation (0x0112) of one short, 6.
    let exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0".to_vec();
    encoder.set_exif_metadata(exif);
    let data = [200, 100, 50, 255].repeat((width * height) as usize);
    encoder
        .encode(&data, width, height, image_webp::ColorType::Rgba8)
        .unwrap();
    let image = check("turned", &file);
    assert_eq!((image.width(), image.height()), (1000, 1024));
}

/// Images of each transform come before the groups, with a bit or more for each of their pixels: with a wrong size, reading ends
/// elsewhere.
#[test]
fn images_of_transforms_are_read_past() {
    let (width, height) = (83, 61);
    for colours in [2, 3, 4, 5, 16, 17, 256_u32] {
        let mut bits = Bits::default();
        bits.head(width, height);
        let per_pixel = match colours {
            1..=2 => 8,
            3..=4 => 4,
            5..=16 => 2,
            _ => 1,
        };
        let packed = width.div_ceil(per_pixel);
        // Predictors and factors of colours in blocks of 8, a palette, predictors' green taken off.
        for (kind, size) in [(0, width), (1, width), (3, 0), (2, 0)] {
            bits.put(1 | kind << 1, 3);
            match kind {
                3 => bits.put(colours - 1, 8),
                2 => continue,
                _ => bits.put(1, 3),
            }
            let n = match kind {
                3 => colours,
                _ => size.div_ceil(8) * height.div_ceil(8),
            };
            bits.image(n, 3);
        }
        bits.put(0, 1);
        // No cache of the image; an entropy image of blocks of 4.
        bits.put(0b10, 2);
        bits.put(0, 3);
        bits.image(packed.div_ceil(4) * height.div_ceil(4), 511);
        (0..512).for_each(|_| bits.group());
        bits.bytes.resize(bits.bytes.len() + 20_000, 0);
        let file = riff(&[(b"VP8L", &bits.bytes)]);
        let name = format!("{colours} colours");
        check(&name, &file);
        let (most, _) = most_bytes(|| RgbImage::decode("x", &file).unwrap());
        assert!(most > 512 * GROUP_BYTES, "{name}: {most} bytes");
    }
}

/// Memory of tables equals the count: no more, and not so much less that honest files are refused.
#[test]
fn tables_of_many_groups_are_in_the_bound() {
    let n = 600;
    let stream = many_groups(n, true);
    let file = riff(&[(b"VP8L", &stream)]);
    check("lossless", &file);
    let (most, _) = most_bytes(|| RgbImage::decode("x", &file).unwrap());
    assert!(
        most > u64::from(n) * GROUP_BYTES,
        "{most} bytes for {n} groups"
    );
    let bound = bound_bytes(&file);
    assert!(most * 10 > bound * 9, "{most} bytes, {bound} by the bound");
    let in_extended = riff(&[(b"VP8X", &extended(4, 4, 0)), (b"VP8L", &stream)]);
    check("extended", &in_extended);
}

#[test]
fn tables_of_transparencys_groups_are_in_the_bound() {
    let n = 1000;
    let alpha = [vec![1], many_groups(n, false)].concat();
    let file = riff(&[
        (b"VP8X", &extended(4, 4, 0x10)),
        (b"ALPH", &alpha),
        (b"VP8 ", &frame(4, 4)),
    ]);
    check("transparency", &file);
    let (most, _) = most_bytes(|| RgbImage::decode("x", &file).unwrap());
    assert!(
        most > u64::from(n) * GROUP_BYTES,
        "{most} bytes for {n} groups"
    );
}

/// 16 pixels in a file of 21 MB would take 2.5 GB.
#[test]
fn the_most_groups_are_refused_before_they_take_memory() {
    let file = riff(&[(b"VP8L", &many_groups(1 << 16, true))]);
    let (most, error) = most_bytes(|| RgbImage::decode("many.webp", &file));
    assert!(most < 1 << 20, "{most} bytes");
    let error = error.unwrap_err();
    let Error::TooMuchMemory { needed_bytes, .. } = &error else {
        panic!("{error}");
    };
    assert!(*needed_bytes > GROUP_BYTES << 16, "{needed_bytes} bytes");
    let words = format!(
        "takes {} MiB, and at most 1541 are taken",
        needed_bytes.div_ceil(1 << 20)
    );
    assert!(error.to_string().contains(&words), "{error}");
    // Cut off it is broken, and takes no more.
    let (most, error) = most_bytes(|| RgbImage::decode("cut.webp", &file[..file.len() / 2]));
    assert!(most < 1 << 20, "{most} bytes");
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error}");
}

/// Codes in which bits mean two symbols; the decoder's sum of 16 bits takes some of them for complete.
#[test]
fn a_code_with_too_many_symbols_is_broken() {
    let twice: Vec<u32> = [1, 1].into_iter().chain(1..=15).chain([15]).collect();
    let of_ten: Vec<u32> = [1; 65].into_iter().chain(1..=10).chain([10]).collect();
    for lengths in [twice, of_ten, vec![1, 2], vec![1, 1, 1]] {
        let mut bits = Bits::default();
        bits.head(4, 4);
        bits.put(0, 3);
        bits.lengths(&lengths);
        (0..4).for_each(|_| bits.one(0));
        bits.bytes.extend([0; 64]);
        let file = riff(&[(b"VP8L", &bits.bytes)]);
        let error = RgbImage::decode("x", &file).unwrap_err().to_string();
        assert!(
            error.contains("a code is not complete at bit "),
            "{lengths:?}: {error}"
        );
    }
}

/// The decoder takes memory for a frame's size before it compares that with the file's head.
#[test]
fn a_frame_larger_than_its_file_is_broken() {
    let mut large = frame(16, 16);
    large[6..10].copy_from_slice(&[0xff, 0x3f, 0xff, 0x3f]);
    let head = extended(16, 16, 0);
    let file = riff(&[(b"VP8X", &head), (b"VP8 ", &large)]);
    let (most, error) = most_bytes(|| RgbImage::decode("x", &file));
    assert!(most < 1 << 20, "{most} bytes");
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("16383 × 16383 pixels, and its head 16 × 16"),
        "{error}"
    );
}

/// A frame of an animation in a file that is not one: the decoder would read it, and not the image.
#[test]
fn frames_in_a_file_that_is_not_animated_are_refused() {
    let stream = many_groups(600, true);
    let inner = riff(&[(b"VP8L", &stream)])[12..].to_vec();
    let frames = [&[0; 16][..], &inner].concat();
    let file = riff(&[
        (b"VP8X", &extended(4, 4, 0)),
        (b"VP8 ", &frame(4, 4)),
        (b"ANMF", &frames),
    ]);
    let error = RgbImage::decode("x", &file).unwrap_err();
    assert!(matches!(error, Error::Animated { .. }), "{error}");
}

/// Parts of a lossy frame that claim 16 MiB and do not exist.
#[test]
fn parts_that_are_not_there_stay_within_the_bound() {
    let mut largest = 0;
    for first in 0..=255 {
        let mut data = frame(16, 16);
        let modes_bytes = (data.len() - 10) / 2;
        data[10..10 + modes_bytes].fill(first);
        data[10 + modes_bytes..].fill(0xff);
        let file = riff(&[(b"VP8 ", &data)]);
        let bound = bound_bytes(&file);
        let (most, _) = most_bytes(|| RgbImage::decode("x", &file));
        assert!(most <= bound, "{first}: {most} bytes, {bound} by the bound");
        largest = largest.max(most);
    }
    assert!(largest > 16 << 20, "{largest} bytes: no part was claimed");
}

/// Damage in any place: decoding stays within the limit, nothing panics, and no file that the decoder reads is called broken.
#[test]
fn damaged_files_stay_within_the_limit() {
    let n_each = sample::whole_or(4000, 60);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/webp");
    let mut state = 1u32;
    let mut random = |n: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % n
    };
    let (mut n_read, mut n_broken) = (0, 0);
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "webp") {
            continue;
        }
        let whole = std::fs::read(&path).unwrap();
        check(&path.display().to_string(), &whole);
        let limits = Limits {
            bytes: bound_bytes(&whole),
            ..Limits::default()
        };
        for _ in 0..n_each {
            let mut file = whole.clone();
            // Codes come first.
            let front = [60, 400, file.len()][random(3)];
            for _ in 0..1 + random(3) {
                file[random(front)] ^= 1 << random(8);
            }
            if random(4) == 0 {
                file.truncate(random(whole.len()));
            }
            let (most, found) = most_bytes(|| RgbImage::decode_within("x", &file, limits));
            assert!(most <= limits.bytes, "{most} bytes, {limits:?}: {file:x?}");
            match found {
                Ok(_) => n_read += 1,
                Err(Error::Broken { reason, .. }) => {
                    n_broken += 1;
                    let read = catch_unwind(|| plain(&file)).unwrap_or_default();
                    assert!(read.is_none(), "{reason}: {file:x?}");
                }
                Err(_) => {}
            }
        }
    }
    assert!(
        n_read > n_each && n_broken > n_each,
        "{n_read} read, {n_broken} broken"
    );
}

/// The decoder's own result, for few pixels and no animation.
fn plain(file: &[u8]) -> Option<Vec<u8>> {
    let mut decoder = image_webp::WebPDecoder::new(Cursor::new(file)).ok()?;
    let n_bytes = decoder.output_buffer_size()?;
    if n_bytes > 1 << 22 || decoder.num_frames() > 0 {
        return None;
    }
    let mut data = vec![0; n_bytes];
    decoder.read_image(&mut data).ok()?;
    Some(data)
}
