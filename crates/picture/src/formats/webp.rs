//! WebP.

use std::io::Cursor;

use super::{Fault, Stored, broken, check, over_white};
use crate::Limits;

pub(super) fn read(bytes: &[u8], limits: Limits) -> Result<Stored, Fault> {
    let mut decoder = image_webp::WebPDecoder::new(Cursor::new(bytes)).map_err(broken)?;
    if decoder.is_animated() {
        return Err(Fault::Animated);
    }
    let (width, height) = decoder.dimensions();
    let kind = (decoder.is_lossy(), decoder.has_alpha());
    let decode_bytes = decode_bytes(width, height, kind, bytes.len());
    check(width, height, decode_bytes, limits)?;
    decoder.set_memory_limit(bytes.len());
    let size = decoder.output_buffer_size();
    let mut data = vec![0; size.ok_or_else(|| broken("its size overflows"))?];
    decoder.read_image(&mut data).map_err(broken)?;
    if decoder.has_alpha() {
        on_white(&mut data);
    }
    Ok(Stored {
        width: width as usize,
        height: height as usize,
        rgb: data,
        // Metadata that cannot be read is none.
        exif: decoder.exif_metadata().ok().flatten(),
    })
}

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

/// Most bytes that decoding takes. Lossy: the picture, planes of luma and two of a quarter, in whole blocks of 16 × 16; transparency
/// is a picture without losses besides. Without losses: four bytes a pixel, and images of one for 4 × 4 pixels that say how
/// they were changed and which codes they have. Codes take more than the file's bytes, and are counted by those.
fn decode_bytes(width: u32, height: u32, (is_lossy, has_alpha): (bool, bool), file: usize) -> u64 {
    let pixels = u64::from(width) * u64::from(height);
    let [width_whole, height_whole] = [width, height].map(|n| u64::from(n).next_multiple_of(16));
    let whole = width_whole * height_whole;
    let changes_bytes = whole;
    let bytes = match (is_lossy, has_alpha) {
        (true, false) => 3 * pixels + whole * 3 / 2,
        (true, true) => 4 * pixels + whole * 3 / 2 + 5 * pixels + changes_bytes,
        (false, true) => 4 * pixels + changes_bytes,
        (false, false) => 3 * pixels + 4 * pixels + changes_bytes,
    };
    bytes + 2 * file as u64 + (1 << 20)
}
