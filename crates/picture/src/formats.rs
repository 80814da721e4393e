//! PNG, JPEG and WebP files to samples of 8 bits.

use std::fmt::Display;
use std::io::Cursor;

use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// A format that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Png,
    Jpeg,
    WebP,
}

/// What a file holds, as it is stored: neither turned nor laid on a colour.
#[derive(Debug)]
pub(crate) struct Samples {
    /// Pixels a row, at least 1.
    pub(crate) width: usize,
    /// Rows, at least 1.
    pub(crate) height: usize,
    /// Grey, grey and alpha, RGB, or RGB and alpha.
    pub(crate) channels: usize,
    /// `[height, width, channels]`.
    pub(crate) data: Vec<u8>,
    /// What the camera noted: a TIFF header and what follows.
    pub(crate) exif: Option<Vec<u8>>,
}

/// Why a file has no samples.
#[derive(Debug)]
pub(crate) enum Fault {
    Broken(String),
    Animated,
    TooLarge { width: u32, height: u32 },
}

fn broken(reason: impl Display) -> Fault {
    Fault::Broken(reason.to_string())
}

impl Format {
    /// By a file's first bytes.
    pub(crate) fn of(bytes: &[u8]) -> Option<Format> {
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            Some(Format::Png)
        } else if bytes.starts_with(b"\xff\xd8\xff") {
            Some(Format::Jpeg)
        } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
            Some(Format::WebP)
        } else {
            None
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Png => "PNG",
            Format::Jpeg => "JPEG",
            Format::WebP => "WebP",
        }
    }

    /// Decodes one picture of at most `max_pixels`. A file that claims more is refused before memory is taken for them.
    pub(crate) fn read(self, bytes: &[u8], max_pixels: u64) -> Result<Samples, Fault> {
        match self {
            Format::Png => png(bytes, max_pixels),
            Format::Jpeg => jpeg(bytes, max_pixels),
            Format::WebP => webp(bytes, max_pixels),
        }
    }
}

/// Bytes that a decoder may keep: 16 bits of four channels a pixel, and as much again.
fn most_bytes(max_pixels: u64) -> usize {
    usize::try_from(max_pixels * 16).unwrap_or(usize::MAX)
}

fn check_size(width: u32, height: u32, max_pixels: u64) -> Result<(), Fault> {
    if width == 0 || height == 0 {
        return Err(broken("it has no pixels"));
    }
    if u64::from(width) * u64::from(height) > max_pixels {
        return Err(Fault::TooLarge { width, height });
    }
    Ok(())
}

fn png(bytes: &[u8], max_pixels: u64) -> Result<Samples, Fault> {
    let limits = png::Limits {
        bytes: most_bytes(max_pixels),
    };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    // Palettes become colours, and fewer than 8 bits become 8.
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(broken)?;
    if reader.info().animation_control.is_some() {
        return Err(Fault::Animated);
    }
    let (width, height) = reader.info().size();
    check_size(width, height, max_pixels)?;
    let (colours, depth) = reader.output_color_type();
    let size = reader.output_buffer_size();
    let mut data = vec![0; size.ok_or_else(|| broken("its size overflows"))?];
    reader.next_frame(&mut data).map_err(broken)?;
    if depth == png::BitDepth::Sixteen {
        let (pairs, _) = data.as_chunks::<2>();
        // The nearest of 256 levels.
        let eight = |pair: &[u8; 2]| ((u32::from(u16::from_be_bytes(*pair)) + 128) / 257) as u8;
        data = pairs.iter().map(eight).collect();
    }
    Ok(Samples {
        width: width as usize,
        height: height as usize,
        channels: colours.samples(),
        data,
        exif: reader.info().exif_metadata.as_deref().map(<[u8]>::to_vec),
    })
}

fn jpeg(bytes: &[u8], max_pixels: u64) -> Result<Samples, Fault> {
    // Sizes are held to `max_pixels` below; files that break rules as cameras do are read.
    let options = DecoderOptions::default()
        .set_strict_mode(false)
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX);
    let opened = |options| zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    let mut header = opened(options);
    header.decode_headers().map_err(broken)?;
    let size = header.dimensions().zip(header.input_colorspace());
    let ((width, height), stored) = size.ok_or_else(|| broken("it has no frame"))?;
    let side = |n: usize| u32::try_from(n).map_err(broken);
    check_size(side(width)?, side(height)?, max_pixels)?;
    let (colours, channels) = match stored {
        ColorSpace::Luma => (ColorSpace::Luma, 1),
        _ => (ColorSpace::RGB, 3),
    };
    let mut decoder = opened(options.jpeg_set_out_colorspace(colours));
    let data = decoder.decode().map_err(broken)?;
    if data.len() != width * height * channels {
        return Err(broken("its samples do not fill it"));
    }
    Ok(Samples {
        width,
        height,
        channels,
        data,
        exif: header.exif().cloned(),
    })
}

fn webp(bytes: &[u8], max_pixels: u64) -> Result<Samples, Fault> {
    let mut decoder = image_webp::WebPDecoder::new(Cursor::new(bytes)).map_err(broken)?;
    if decoder.is_animated() {
        return Err(Fault::Animated);
    }
    let (width, height) = decoder.dimensions();
    check_size(width, height, max_pixels)?;
    decoder.set_memory_limit(most_bytes(max_pixels));
    let size = decoder.output_buffer_size();
    let mut data = vec![0; size.ok_or_else(|| broken("its size overflows"))?];
    decoder.read_image(&mut data).map_err(broken)?;
    Ok(Samples {
        width: width as usize,
        height: height as usize,
        channels: if decoder.has_alpha() { 4 } else { 3 },
        data,
        // Metadata that cannot be read is none.
        exif: decoder.exif_metadata().ok().flatten(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bits_become_the_nearest_of_eight() {
        let levels = [
            (0u16, 0),
            (128, 0),
            (129, 1),
            (0x8080, 0x80),
            (0xff7e, 0xfe),
            (0xffff, 0xff),
        ];
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, levels.len() as u32, 1);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.set_depth(png::BitDepth::Sixteen);
        let stored: Vec<u8> = levels.iter().flat_map(|(n, _)| n.to_be_bytes()).collect();
        let mut writer = encoder.write_header().expect("a header");
        writer.write_image_data(&stored).expect("a row");
        drop(writer);
        let samples = Format::Png.read(&file, 6).expect("a picture of six pixels");
        assert_eq!(samples.channels, 1);
        assert_eq!(samples.data, levels.map(|(_, level)| level));
        let refused = Format::Png
            .read(&file, 5)
            .expect_err("one pixel more than five");
        assert!(matches!(
            refused,
            Fault::TooLarge {
                width: 6,
                height: 1
            }
        ));
    }
}
