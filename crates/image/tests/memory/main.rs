//! Memory and time that images take, by a counting allocator. Extreme shapes in every format are compared with the bound
//! computed from the bytes in front of the pixels, and with the plain way through the decoder.
#![allow(clippy::unwrap_used)] // A test may panic.
#![allow(unsafe_code)] // An allocator is.

mod webp;
mod webp_files;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use millrace_image::{Error, Limits, Preprocess, RgbImage};
use png::{BitDepth, ColorType};

/// Counts the bytes that a thread holds, and the most it has held.
struct Counting;

thread_local! {
    static HELD_BYTES: Cell<i64> = const { Cell::new(0) };
    static MOST_BYTES: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    let held = HELD_BYTES.get() + bytes;
    HELD_BYTES.set(held);
    MOST_BYTES.set(MOST_BYTES.get().max(held));
}

// SAFETY: every call goes to the system's allocator unchanged; cells of a thread are counted beside it. A block that grows
// counts twice while it is copied, since the default `realloc` takes the new one first.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's layout.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's block and layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that `work` holds in addition, and its result.
fn most_bytes<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = HELD_BYTES.get();
    MOST_BYTES.set(before);
    let found = work();
    ((MOST_BYTES.get() - before) as u64, found)
}

/// Bytes without a pattern, from the smallest to the largest values.
fn noise(n: usize) -> Vec<u8> {
    let mut state = n as u32 | 1;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..n).map(|_| byte()).collect()
}

fn png(width: u32, height: u32, colour: ColorType, depth: BitDepth, data: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(colour);
    encoder.set_depth(depth);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(data).unwrap();
    drop(writer);
    file
}

/// The bound of a file: the limit from which it is accepted.
fn bound_bytes(file: &[u8]) -> u64 {
    let mut limits = Limits {
        bytes: 0,
        ..Limits::default()
    };
    // The bound of the head is checked first, then that of the tables behind it.
    while let Err(Error::TooMuchMemory { needed_bytes, .. }) =
        RgbImage::decode_within("x", file, limits)
    {
        assert!(needed_bytes > limits.bytes, "{needed_bytes} bytes refused");
        limits.bytes = needed_bytes;
    }
    assert!(limits.bytes > 0, "a file without a bound");
    limits.bytes
}

const SHAPES: [(u32, u32); 10] = [
    (1, 1),
    (1, 100_000),
    (100_000, 1),
    (2, 40_001),
    (40_001, 2),
    (3, 30_007),
    (30_007, 3),
    (31, 2011),
    (65_537, 13),
    (299, 301),
];

const LAYOUTS: [(ColorType, BitDepth); 7] = [
    (ColorType::Rgb, BitDepth::Eight),
    (ColorType::Rgba, BitDepth::Eight),
    (ColorType::Grayscale, BitDepth::One),
    (ColorType::Grayscale, BitDepth::Eight),
    (ColorType::GrayscaleAlpha, BitDepth::Sixteen),
    (ColorType::Rgb, BitDepth::Sixteen),
    (ColorType::Rgba, BitDepth::Sixteen),
];

#[test]
fn every_shape_of_png_stays_within_its_bound() {
    for (width, height) in SHAPES {
        for (colour, depth) in LAYOUTS {
            let name = format!("{width} × {height}, {colour:?} {depth:?}");
            let row_bytes = (width as usize * colour.samples() * depth as usize).div_ceil(8);
            let file = png(
                width,
                height,
                colour,
                depth,
                &noise(row_bytes * height as usize),
            );
            check(&name, &file);
        }
    }
}

#[test]
#[ignore = "takes long; .ci/full runs it"]
fn every_shape_of_interlaced_png_stays_within_its_bound() {
    for (width, height) in SHAPES {
        for (colour, depth) in LAYOUTS {
            let name = format!("{width} × {height}, {colour:?} {depth:?}, interlaced");
            let row_bytes = (width as usize * colour.samples() * depth as usize).div_ceil(8);
            let data = noise(row_bytes * height as usize);
            let plain = RgbImage::decode(&name, &png(width, height, colour, depth, &data)).unwrap();
            let found = check(&name, &interlaced(width, height, colour, depth, &data));
            assert!(found == plain, "{name}");
        }
    }
}

/// As [`png`], with the pixels in the seven passes of Adam7.
fn interlaced(width: u32, height: u32, colour: ColorType, depth: BitDepth, data: &[u8]) -> Vec<u8> {
    let bits = colour.samples() * depth as usize;
    let row_bytes = (width as usize * bits).div_ceil(8);
    let mut raw = Vec::new();
    let passes = [
        (0, 8, 0, 8),
        (4, 8, 0, 8),
        (0, 4, 4, 8),
        (2, 4, 0, 4),
        (0, 2, 2, 4),
        (1, 2, 0, 2),
        (0, 1, 1, 2),
    ];
    for (x0, dx, y0, dy) in passes {
        let columns: Vec<usize> = (x0..width as usize).step_by(dx).collect();
        for y in (y0..height as usize)
            .step_by(dy)
            .filter(|_| !columns.is_empty())
        {
            let row = &data[y * row_bytes..][..row_bytes];
            raw.push(0);
            match bits {
                1 => raw.extend(columns.chunks(8).map(|eight| {
                    let bit = |(i, x): (usize, &usize)| (row[x / 8] >> (7 - x % 8) & 1) << (7 - i);
                    eight.iter().enumerate().map(bit).sum::<u8>()
                })),
                _ => raw.extend(
                    columns
                        .iter()
                        .flat_map(|x| &row[x * bits / 8..][..bits / 8]),
                ),
            }
        }
    }
    let mut head = [width.to_be_bytes(), height.to_be_bytes()].concat();
    head.extend([depth as u8, colour as u8, 0, 0, 1]);
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut file, b"IHDR", &head);
    chunk(&mut file, b"IDAT", &stored_zlib(&raw));
    chunk(&mut file, b"IEND", &[]);
    file
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    file.extend((data.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend(kind);
    file.extend(data);
    let crc = file[start..].iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    });
    file.extend((!crc).to_be_bytes());
}

/// RFC 1950 without compression.
fn stored_zlib(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let n_blocks = data.len().div_ceil(65_535);
    for (i, block) in data.chunks(65_535).enumerate() {
        out.push(u8::from(i + 1 == n_blocks));
        out.extend((block.len() as u16).to_le_bytes());
        out.extend((!(block.len() as u16)).to_le_bytes());
        out.extend(block);
    }
    let (a, b) = data.iter().fold((1u32, 0u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (a + b) % 65_521)
    });
    out.extend((b << 16 | a).to_be_bytes());
    out
}

/// A JPEG of one grey: a scan in which every block's mean is that of the block before. Frames of each kind, with colours in whole and
/// in parts.
fn jpeg(width: u16, height: u16, is_progressive: bool, samplings: &[u8]) -> Vec<u8> {
    let mut file = vec![0xff, 0xd8];
    let mut segment = |marker: u8, data: &[u8]| {
        file.extend([0xff, marker]);
        file.extend((data.len() as u16 + 2).to_be_bytes());
        file.extend(data);
    };
    segment(0xdb, &[&[0][..], &[1; 64]].concat());
    let [high, low] = height.to_be_bytes();
    let [left, right] = width.to_be_bytes();
    let n = samplings.len() as u8;
    let mut frame = vec![8, high, low, left, right, n];
    let mut scan = vec![n];
    for (i, sampling) in samplings.iter().enumerate() {
        frame.extend([i as u8 + 1, *sampling, 0]);
        scan.extend([i as u8 + 1, 0]);
    }
    segment(if is_progressive { 0xc2 } else { 0xc0 }, &frame);
    // One code of one bit: no difference, and the end of a block.
    for class in [0x00, 0x10] {
        let mut table = vec![class, 1];
        table.extend([0; 15]);
        table.push(0);
        segment(0xc4, &table);
    }
    scan.extend([0, if is_progressive { 0 } else { 63 }, 0]);
    segment(0xda, &scan);
    let side = |n: u16, largest: u8| usize::from(n).div_ceil(8 * usize::from(largest));
    let largest = |shift: u8| samplings.iter().map(|s| s >> shift & 15).max().unwrap();
    let n_units = side(width, largest(4)) * side(height, largest(0));
    let blocks = samplings.iter().map(|s| usize::from((s >> 4) * (s & 15)));
    // Two bits a block, one where only means are coded; the rest of the last byte is ones.
    let n_bits = n_units * blocks.sum::<usize>() * if is_progressive { 1 } else { 2 };
    file.resize(file.len() + n_bits / 8, 0);
    file.push(0xff >> (n_bits % 8));
    if n_bits.is_multiple_of(8) {
        file.pop();
    }
    file.extend([0xff, 0xd9]);
    file
}

#[test]
fn every_shape_of_jpeg_stays_within_its_bound() {
    let shapes = [
        (1, 1),
        (1, 65_500),
        (65_500, 1),
        (2, 65_499),
        (40_001, 17),
        (17, 40_001),
        (33, 31),
        (1500, 1000),
    ];
    let samplings: [&[u8]; 5] = [
        &[0x11],
        &[0x11, 0x11, 0x11],
        &[0x22, 0x11, 0x11],
        &[0x21, 0x11, 0x11],
        &[0x11, 0x11, 0x11, 0x11],
    ];
    for (width, height) in shapes {
        for sampling in samplings {
            for is_progressive in [false, true] {
                let name = format!("{width} × {height}, {sampling:x?}, {is_progressive}");
                let image = check(&name, &jpeg(width, height, is_progressive, sampling));
                let size = (image.width(), image.height());
                assert_eq!(size, (width.into(), height.into()), "{name}");
            }
        }
    }
}

/// A row that takes more than the limit is refused before it is read, with figures.
#[test]
fn what_takes_too_much_is_refused_with_figures() {
    let file = png(
        3_000_000,
        1,
        ColorType::Rgba,
        BitDepth::Sixteen,
        &noise(24_000_000),
    );
    let limits = Limits::of_pixels(3_000_000);
    let (most, error) = most_bytes(|| RgbImage::decode_within("long.png", &file, limits));
    let error = error.unwrap_err().to_string();
    assert!(most < 1 << 20, "{most} bytes");
    let needed = bound_bytes(&file).div_ceil(1 << 20);
    let expected = format!(
        "long.png: decoding PNG of 3000000 × 1 pixels takes {needed} MiB, and at most 61 are taken"
    );
    assert!(error.starts_with(&expected), "{error}");
}

/// Decodes and resizes `file`, and compares the memory with the bounds.
fn check(name: &str, file: &[u8]) -> RgbImage {
    let bound = bound_bytes(file);
    let (most, image) = most_bytes(|| RgbImage::decode(name, file).unwrap());
    assert!(most <= bound, "{name}: {most} bytes, {bound} by the bound");
    let exactly = Limits {
        bytes: bound,
        ..Limits::default()
    };
    RgbImage::decode_within(name, file, exactly).unwrap();
    for size in [56, 448] {
        let preprocess = Preprocess::siglip(size);
        let (most, values) = most_bytes(|| preprocess.apply(&image).unwrap());
        // The result in bytes and floats, a strip, sums of a few rows, weights of a list that grows; or the few columns.
        let own = 18 * size * size + 64 * 3 * size + 40 * size * 3 + (1 << 20);
        let own = own + image.width().min(size) * size * 8;
        assert!(
            most <= own as u64,
            "{name} to {size}: {most} bytes, not {own}"
        );
        assert_eq!(values[0].data.len(), 3 * size * size);
    }
    image
}

/// The most that a server accepts: 24 million pixels in a column, a row and between, to a vision encoder of 896.
#[test]
#[ignore = "takes long; .ci/full runs it"]
fn twenty_four_million_pixels_of_any_shape_take_little() {
    for (width, height) in [
        (1, 24_000_000),
        (24_000_000, 1),
        (2, 12_000_000),
        (4899, 4898),
    ] {
        let data = vec![200; (width * height * 3) as usize];
        let file = png(width, height, ColorType::Rgb, BitDepth::Eight, &data);
        drop(data);
        let limits = Limits::of_pixels(24_000_000);
        let start = std::time::Instant::now();
        let (most, values) = most_bytes(|| {
            let image = RgbImage::decode_within("x", &file, limits).unwrap();
            Preprocess::siglip(896).apply(&image).unwrap()
        });
        println!(
            "{width} × {height}: {} MiB, {:?}",
            most >> 20,
            start.elapsed()
        );
        assert!(most <= limits.bytes, "{width} × {height}: {most} bytes");
        let grey = (200.0 / 255.0 - 0.5) / 0.5;
        assert!(values[0].data.iter().all(|v| (v - grey).abs() < 1e-5));
    }
}

/// A camera's metadata beside few pixels: counted, and refused where they exceed the limit.
#[test]
fn metadata_of_png_stay_within_the_bound() {
    for n_bytes in [100, 3 << 20, 9_999_999] {
        let whole = png(4, 4, ColorType::Rgb, BitDepth::Eight, &noise(48));
        // Behind the signature and the head.
        let mut file = whole[..33].to_vec();
        chunk(&mut file, b"eXIf", &noise(n_bytes));
        file.extend(&whole[33..]);
        check(&format!("{n_bytes} bytes of metadata"), &file);
        let mut n_read = 0;
        for pixels in [16, 1 << 17, 1 << 20, 1 << 21, 1 << 22, 1 << 23] {
            let limits = Limits::of_pixels(pixels);
            let (most, found) = most_bytes(|| RgbImage::decode_within("x", &file, limits));
            assert!(
                most <= limits.bytes,
                "{n_bytes} bytes, {limits:?}: {most} bytes"
            );
            n_read += usize::from(found.is_ok());
        }
        assert!(n_read > 1, "{n_bytes} bytes are refused");
    }
}
