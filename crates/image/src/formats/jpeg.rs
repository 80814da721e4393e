//! JPEG.

use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::{FileImage, ImageFault, broken, check, rgb_bytes};
use crate::Limits;

/// Sizes are checked against the limits in this module; files that break rules as cameras do are read.
fn options() -> DecoderOptions {
    DecoderOptions::default()
        .set_strict_mode(false)
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX)
}

/// Width and height from the head.
pub(super) fn size(bytes: &[u8]) -> Result<(u32, u32), ImageFault> {
    let mut header = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(bytes), options());
    header.decode_headers().map_err(broken)?;
    let size = header.dimensions();
    let (width, height) = size.ok_or_else(|| broken("it has no frame"))?;
    let side = |n: usize| u32::try_from(n).map_err(broken);
    Ok((side(width)?, side(height)?))
}

pub(super) fn read(bytes: &[u8], limits: Limits) -> Result<FileImage, ImageFault> {
    let options = options();
    let opened = |options| zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    let mut header = opened(options);
    header.decode_headers().map_err(broken)?;
    let size = header.dimensions().zip(header.input_colorspace());
    let ((width, height), stored) = size.ok_or_else(|| broken("it has no frame"))?;
    let side = |n: usize| u32::try_from(n).map_err(broken);
    let n_components = stored.num_components() as u64;
    let decode_bytes = decode_bytes(side(width)?, side(height)?, n_components);
    check(side(width)?, side(height)?, decode_bytes, limits)?;
    let colours = match stored {
        ColorSpace::Luma => ColorSpace::Luma,
        _ => ColorSpace::RGB,
    };
    let exif = header.exif().cloned();
    drop(header);
    let mut decoder = opened(options.jpeg_set_out_colorspace(colours));
    let data = decoder.decode().map_err(broken)?;
    drop(decoder);
    if data.len() != width * height * colours.num_components() {
        return Err(broken("its samples do not fill it"));
    }
    let rgb = match colours {
        ColorSpace::Luma => data.iter().flat_map(|grey| [*grey; 3]).collect(),
        _ => data,
    };
    Ok(FileImage {
        width,
        height,
        rgb,
        exif,
    })
}

/// Most bytes that decoding takes: the image, its coefficients, and rows. A progressive file's coefficients are all kept, two
/// bytes each, in whole blocks of 32 × 32 at most. They are counted in any file, since the first scan must be read to see
/// whether there are several. A row of blocks is kept before and after enlarging the colours.
fn decode_bytes(width: u32, height: u32, n_components: u64) -> u64 {
    let [width_whole, height_whole] = [width, height].map(|n| u64::from(n).next_multiple_of(32));
    let coefficients_bytes = 2 * n_components * width_whole * height_whole;
    let rows_bytes = 256 * n_components * width_whole;
    rgb_bytes(width, height) + coefficients_bytes + rows_bytes + (1 << 20)
}
