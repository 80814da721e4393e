//! PNG, a row at a time: no buffer holds the file's own samples, which may take eight bytes a pixel.

use std::io::Cursor;

use png::{BitDepth, ColorType, Reader};

use super::{FileImage, ImageFault, broken, check, over_white, rgb_bytes};
use crate::Limits;

/// Places of the pixels in each pass of Adam7: the first column, the step of columns, the first row, the step of rows (PNG
/// 3rd edition, 8.1).
const PASSES: [[usize; 4]; 7] = [
    [0, 8, 0, 8],
    [4, 8, 0, 8],
    [0, 4, 4, 8],
    [2, 4, 0, 4],
    [0, 2, 2, 4],
    [1, 2, 0, 2],
    [0, 1, 1, 2],
];

/// Width and height from the head: its first chunk, behind eight bytes of signature.
pub(super) fn size(bytes: &[u8]) -> Result<(u32, u32), ImageFault> {
    let head = bytes.get(8..24).filter(|head| &head[4..8] == b"IHDR");
    let head = head.ok_or_else(|| broken("it does not begin with its head"))?;
    let side = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    Ok((side(8), side(12)))
}

pub(super) fn read(bytes: &[u8], limits: Limits) -> Result<FileImage, ImageFault> {
    // The decoder counts lines and metadata by it; the sum of everything is checked below. A line has 8 bytes a pixel at most. Metadata
    // grow in a buffer that exists twice, then half as long: three bytes for two that are counted.
    let of_decoder = png::Limits {
        bytes: usize::try_from(limits.pixels * 10).unwrap_or(usize::MAX),
    };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), of_decoder);
    // Palettes become colours, and fewer than 8 bits become 8.
    decoder.set_transformations(png::Transformations::EXPAND);
    // Neither kind of metadata changes the pixels, and either may be expanded to the limit.
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(broken)?;
    if reader.info().animation_control.is_some() {
        return Err(ImageFault::Animated);
    }
    let (width, height) = reader.info().size();
    check(width, height, decode_bytes(&reader), limits)?;
    let (width, height) = (width as usize, height as usize);
    let mut rgb = vec![0; width * height * 3];
    rows(&mut reader, width, &mut rgb)?;
    Ok(FileImage {
        width,
        height,
        rgb,
        exif: reader.info().exif_metadata.as_deref().map(<[u8]>::to_vec),
    })
}

/// Most bytes that decoding takes: the image, a row as it is given out, and the decoder's buffer. That buffer holds rows until four can
/// be left out, 32 KiB that the compression looks back on, and 8 KiB of new ones. It may grow to twice its contents while the old one is
/// still there. The camera's metadata exist three times, once in a buffer of up to twice their length.
fn decode_bytes<R: std::io::BufRead + std::io::Seek>(reader: &Reader<R>) -> u64 {
    let info = reader.info();
    let (width, height) = info.size();
    let row_bytes = info.raw_row_length() as u64;
    let ahead_bytes = (6 * row_bytes).max(128 << 10) + (64 << 10);
    // Passes of Adam7 have a filter's byte for each of their rows.
    let all_bytes = row_bytes * u64::from(height) + 15 * u64::from(height) + (8 << 10);
    let given_bytes = match direct(reader) {
        true => 0,
        false => reader.output_line_size(width).unwrap_or(usize::MAX) as u64,
    };
    let exif_bytes = info.exif_metadata.as_ref().map_or(0, |exif| exif.len()) as u64;
    rgb_bytes(width, height)
        .saturating_add(given_bytes)
        .saturating_add(4 * exif_bytes)
        .saturating_add(3 * ahead_bytes.min(all_bytes) + row_bytes)
        .saturating_add(1 << 20)
}

/// Whether the decoder's rows have the form of the result.
fn direct<R: std::io::BufRead + std::io::Seek>(reader: &Reader<R>) -> bool {
    !reader.info().interlaced && reader.output_color_type() == (ColorType::Rgb, BitDepth::Eight)
}

/// Reads all rows into their places.
fn rows<R: std::io::BufRead + std::io::Seek>(
    reader: &mut Reader<R>,
    width: usize,
    rgb: &mut [u8],
) -> Result<(), ImageFault> {
    if direct(reader) {
        for row in rgb.chunks_exact_mut(width * 3) {
            reader.read_row(row).map_err(broken)?;
        }
        // A read behind the last row checks the checksum.
        return reader.read_row(&mut []).map(|_| ()).map_err(broken);
    }
    let (colours, depth) = reader.output_color_type();
    let line_bytes = reader.output_line_size(width as u32);
    let mut line = vec![0; line_bytes.ok_or_else(|| broken("its size overflows"))?];
    let pixel_bytes = colours.samples() * depth_bytes(depth);
    let (pixels, _) = rgb.as_chunks_mut::<3>();
    let height = pixels.len() / width;
    // A pass without columns has no rows; a plain image is one pass.
    let passes = match reader.info().interlaced {
        true => &PASSES[..],
        false => &[[0, 1, 0, 1]],
    };
    for [x, x_step, y, y_step] in passes.iter().filter(|[x, ..]| *x < width) {
        for y in (*y..height).step_by(*y_step) {
            let row = reader.read_row(&mut line).map_err(broken)?;
            row.ok_or_else(|| broken("it ends before its last row"))?;
            let out = pixels[y * width..][..width].iter_mut();
            let out = out.skip(*x).step_by(*x_step);
            spread(&line, pixel_bytes, depth == BitDepth::Sixteen, out);
        }
    }
    reader.read_row(&mut line).map(|_| ()).map_err(broken)
}

fn depth_bytes(depth: BitDepth) -> usize {
    match depth {
        BitDepth::Sixteen => 2,
        _ => 1,
    }
}

/// The nearest of 256 levels.
fn eight(high: u8, low: u8) -> u8 {
    ((u32::from(u16::from_be_bytes([high, low])) + 128) / 257) as u8
}

/// Pixels of a row, of 1 to 4 channels of 8 or 16 bits, as RGB: grey is copied to all three colours, transparency laid
/// on white.
fn spread<'a>(
    row: &[u8],
    pixel_bytes: usize,
    is_sixteen: bool,
    out: impl Iterator<Item = &'a mut [u8; 3]>,
) {
    let each = out.zip(row.chunks_exact(pixel_bytes));
    match (pixel_bytes, is_sixteen) {
        (1, _) => each.for_each(|(rgb, p)| *rgb = [p[0]; 3]),
        (2, false) => each.for_each(|(rgb, p)| *rgb = [over_white(p[0], p[1]); 3]),
        (3, _) => each.for_each(|(rgb, p)| *rgb = [p[0], p[1], p[2]]),
        (4, false) => {
            each.for_each(|(rgb, p)| *rgb = [0, 1, 2].map(|c| over_white(p[c], p[3])));
        }
        (2, true) => each.for_each(|(rgb, p)| *rgb = [eight(p[0], p[1]); 3]),
        (4, true) => each.for_each(|(rgb, p)| {
            *rgb = [over_white(eight(p[0], p[1]), eight(p[2], p[3])); 3];
        }),
        (6, _) => each.for_each(|(rgb, p)| *rgb = [0, 2, 4].map(|c| eight(p[c], p[c + 1]))),
        _ => each.for_each(|(rgb, p)| {
            let alpha = eight(p[6], p[7]);
            *rgb = [0, 2, 4].map(|c| over_white(eight(p[c], p[c + 1]), alpha));
        }),
    }
}
