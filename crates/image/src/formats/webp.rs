//! WebP.
//!
//! The decoder does not report the size of the codes of lossless data before it takes memory, nor whether all sizes in a file agree. Both
//! are read here first.

mod bits;
mod chunks;
mod lossless;
mod prefix;

use std::io::Cursor;

use super::{FileImage, ImageFault, broken, check, over_white};
use crate::Limits;

/// Width and height from the head.
pub(super) fn size(bytes: &[u8]) -> Result<(u32, u32), ImageFault> {
    let decoder = image_webp::WebPDecoder::new(Cursor::new(bytes)).map_err(broken)?;
    Ok(decoder.dimensions())
}

pub(super) fn read(bytes: &[u8], limits: Limits) -> Result<FileImage, ImageFault> {
    let mut decoder = image_webp::WebPDecoder::new(Cursor::new(bytes)).map_err(broken)?;
    // The decoder has its own rules for choosing among frames without the flag.
    if decoder.is_animated() || decoder.num_frames() > 0 {
        return Err(ImageFault::Animated);
    }
    let (width, height) = decoder.dimensions();
    let kind = (decoder.is_lossy(), decoder.has_alpha());
    let decode_bytes = decode_bytes(width, height, kind, bytes.len());
    check(width, height, decode_bytes, limits)?;
    // Reading the codes takes less than the memory just granted.
    let code_bytes = code_bytes(bytes, width, height, kind)?;
    check(width, height, decode_bytes + code_bytes, limits)?;
    decoder.set_memory_limit(bytes.len());
    let size = decoder.output_buffer_size();
    let mut data = vec![0; size.ok_or_else(|| broken("its size overflows"))?];
    decoder.read_image(&mut data).map_err(broken)?;
    if decoder.has_alpha() {
        on_white(&mut data);
    }
    Ok(FileImage {
        width: width as usize,
        height: height as usize,
        rgb: data,
        // Metadata that cannot be read is ignored.
        exif: decoder.exif_metadata().ok().flatten(),
    })
}

/// Bytes of tables for the codes of lossless data: the image's, or its transparency's. A lossy image has none, but must have the
/// size given in the file's head.
fn code_bytes(
    file: &[u8],
    width: u32,
    height: u32,
    (is_lossy, has_alpha): (bool, bool),
) -> Result<u64, ImageFault> {
    let chunk = |kind: &[u8; 4]| {
        let missing = || broken(format!("it has no chunk {}", kind.escape_ascii()));
        chunks::find(file, kind).ok_or_else(missing)
    };
    if !is_lossy {
        return lossless::code_bytes(chunk(b"VP8L")?, width, height, true);
    }
    key_frame(chunk(b"VP8 ")?, width, height)?;
    if !has_alpha {
        return Ok(0);
    }
    // Of the first byte two bits are the compression: 1 is a lossless stream whose green is the transparency.
    match chunk(b"ALPH")? {
        [first, data @ ..] if first & 3 == 1 => lossless::code_bytes(data, width, height, false),
        _ => Ok(0),
    }
}

/// Whether a lossy image begins with a key frame of this size (RFC 6386, 9.1).
fn key_frame(data: &[u8], width: u32, height: u32) -> Result<(), ImageFault> {
    let Some([first, _, _, 0x9d, 0x01, 0x2a, size @ ..]) = data.first_chunk::<10>() else {
        return Err(broken("its lossy data do not begin with a key frame"));
    };
    if first & 1 != 0 {
        return Err(broken("its lossy data do not begin with a key frame"));
    }
    // Two bits above the 14 of each side are an upscaling hint, which nobody uses.
    let side = |i: usize| u32::from(u16::from_le_bytes([size[i], size[i + 1]]) & 0x3fff);
    match (side(0), side(2)) == (width, height) {
        true => Ok(()),
        false => Err(broken(format!(
            "its lossy data have {} × {} pixels, and its head {width} × {height}",
            side(0),
            side(2)
        ))),
    }
}

/// The length of a part of lossy data has 24 bits (RFC 6386, 9.5). The decoder takes that much before it checks that the part exists.
const MAX_PART_BYTES: u64 = 1 << 24;

/// Pixels of four bytes as three, in place.
fn on_white(data: &mut Vec<u8>) {
    let n = data.len() / 4;
    for i in 0..n {
        let alpha = data[4 * i + 3];
        for c in 0..3 {
            data[3 * i + c] = over_white(data[4 * i + c], alpha);
        }
    }
    data.truncate(3 * n);
}

/// Most bytes that decoding takes beside the tables of codes.
///
/// Lossy: the image, planes of luma and two of a quarter in whole blocks of 16 × 16, and 29 bytes for each block. These are in a list
/// that grows to twice its contents while the old one is still there. The file's bytes are held in two copies, or three while their
/// buffer grows, and a missing part may be asked for. Transparency adds a lossless image. Lossless: four bytes a pixel, and images with
/// one pixel for 4 × 4 pixels that hold the transforms and select the codes. Where an image of four bytes a pixel becomes one of three in
/// its place, it is turned with all four. Metadata are a copy of the file at most.
fn decode_bytes(width: u32, height: u32, (is_lossy, has_alpha): (bool, bool), file: usize) -> u64 {
    let pixels = u64::from(width) * u64::from(height);
    let [width_whole, height_whole] = [width, height].map(|n| u64::from(n).next_multiple_of(16));
    let whole = width_whole * height_whole;
    let file = file as u64;
    let lossy_bytes = whole * 3 / 2 + 3 * 29 * (whole / 256) + 3 * file + MAX_PART_BYTES;
    let changes_bytes = whole;
    let bytes = match (is_lossy, has_alpha) {
        (true, false) => 3 * pixels + lossy_bytes,
        (true, true) => 4 * pixels + lossy_bytes + 5 * pixels + changes_bytes,
        (false, true) => (4 * pixels + changes_bytes).max(7 * pixels) + file,
        (false, false) => 3 * pixels + 4 * pixels + changes_bytes + file,
    };
    bytes + (1 << 20)
}

#[cfg(test)]
mod tests;
