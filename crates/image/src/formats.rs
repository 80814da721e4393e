//! PNG, JPEG and WebP files to RGB of 8 bits.
//!
//! Each format gives an upper bound of the memory that decoding a file takes, before any of it is taken. It follows from the head, and
//! for WebP also from the prefix codes.

mod jpeg;
mod png;
mod webp;

use std::fmt::Display;

use crate::Limits;

/// A supported format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageFormat {
    Png,
    Jpeg,
    WebP,
}

/// A file's image as it is stored: transparency laid on white, not turned.
#[derive(Debug)]
pub(crate) struct FileImage {
    /// Pixels a row, at least 1.
    pub(crate) width: usize,
    /// Rows, at least 1.
    pub(crate) height: usize,
    /// `[height, width, 3]`.
    pub(crate) rgb: Vec<u8>,
    /// The camera's metadata: a TIFF header and the bytes behind it.
    pub(crate) exif: Option<Vec<u8>>,
}

/// Why a file has no image.
#[derive(Debug)]
pub(crate) enum ImageFault {
    Broken(String),
    Animated,
    TooLarge {
        width: u32,
        height: u32,
    },
    TooMuchMemory {
        width: u32,
        height: u32,
        needed_bytes: u64,
    },
}

fn broken(reason: impl Display) -> ImageFault {
    ImageFault::Broken(reason.to_string())
}

impl ImageFormat {
    /// The format, by a file's first bytes.
    pub(crate) fn of(bytes: &[u8]) -> Option<ImageFormat> {
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            Some(ImageFormat::Png)
        } else if bytes.starts_with(b"\xff\xd8\xff") {
            Some(ImageFormat::Jpeg)
        } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
            Some(ImageFormat::WebP)
        } else {
            None
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ImageFormat::Png => "PNG",
            ImageFormat::Jpeg => "JPEG",
            ImageFormat::WebP => "WebP",
        }
    }

    /// Decodes one image within `limits`. A file that claims more is refused before memory is taken for it.
    pub(crate) fn read(self, bytes: &[u8], limits: Limits) -> Result<FileImage, ImageFault> {
        match self {
            ImageFormat::Png => png::read(bytes, limits),
            ImageFormat::Jpeg => jpeg::read(bytes, limits),
            ImageFormat::WebP => webp::read(bytes, limits),
        }
    }
}

impl ImageFormat {
    /// Width and height of a file's image, from its head.
    pub(crate) fn size(self, bytes: &[u8], limits: Limits) -> Result<(usize, usize), ImageFault> {
        let (width, height) = match self {
            ImageFormat::Png => png::size(bytes)?,
            ImageFormat::Jpeg => jpeg::size(bytes)?,
            ImageFormat::WebP => webp::size(bytes)?,
        };
        check(width, height, 0, limits)?;
        Ok((width as usize, height as usize))
    }
}

/// Bytes of an image in RGB.
fn rgb_bytes(width: u32, height: u32) -> u64 {
    3 * u64::from(width) * u64::from(height)
}

/// Refuses an image of more pixels than the limit, or one whose decoding may take more bytes than the limit.
/// `decode_bytes` is an upper bound of the latter.
fn check(width: u32, height: u32, decode_bytes: u64, limits: Limits) -> Result<(), ImageFault> {
    if width == 0 || height == 0 {
        return Err(broken("it has no pixels"));
    }
    if u64::from(width) * u64::from(height) > limits.pixels {
        return Err(ImageFault::TooLarge { width, height });
    }
    // Turning an image upright takes a second copy, cutting it into crops half of one.
    let needed_bytes = decode_bytes.max(2 * rgb_bytes(width, height));
    match needed_bytes > limits.bytes {
        true => Err(ImageFault::TooMuchMemory {
            width,
            height,
            needed_bytes,
        }),
        false => Ok(()),
    }
}

/// A colour channel laid on white, with Pillow's arithmetic (`alpha_composite` in `AlphaComposite.c`).
fn over_white(c: u8, alpha: u8) -> u8 {
    let (over, under) = (u32::from(alpha) * 128, (255 - u32::from(alpha)) * 128);
    let sum = u32::from(c) * over + 255 * under + (0x80 << 7);
    ((((sum >> 8) + sum) >> 8) >> 7) as u8
}

#[cfg(test)]
mod tests;
