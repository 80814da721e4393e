//! The bytes of a file to an upright RGB image.

use crate::Error;
use crate::formats::{ImageFault, ImageFormat};
use crate::orientation::Orientation;

/// Most bytes of a file that are read.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// Most pixels that are decoded: an image of 10,000 × 10,000. A file of few bytes can claim any number.
pub const MAX_PIXELS: u64 = 100_000_000;

/// Limits of an image. Both numbers are known from the bytes in front of a file's pixels, and nothing beyond either is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pixels.
    pub pixels: u64,
    /// Bytes that are held at a time while the image is decoded, turned upright and resized, beside the file itself.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::of_pixels(MAX_PIXELS)
    }
}

impl Limits {
    /// Limits for every usual image of this number of pixels: 16 bytes a pixel, and 16 MiB. Progressive JPEG in four colours needs 11,
    /// WebP with transparency nearly 12, PNG in RGB of one row 15.
    pub const fn of_pixels(pixels: u64) -> Limits {
        Limits {
            pixels,
            bytes: pixels * 16 + (16 << 20),
        }
    }
}

/// An image: rows from top to bottom, 8-bit red, green, blue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RgbImage {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl RgbImage {
    /// An image of `rgb`, `[height, width, 3]`.
    ///
    /// # Panics
    /// If a side is 0, or `rgb` has another length.
    pub fn new(width: usize, height: usize, rgb: Vec<u8>) -> RgbImage {
        assert!(width > 0 && height > 0, "{width} × {height} pixels");
        assert_eq!(rgb.len(), width * height * 3, "three bytes a pixel");
        RgbImage { width, height, rgb }
    }

    /// Pixels a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// `[height, width, 3]`.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// The part with its upper left corner at `(x, y)`; pixels beyond the image are left out.
    pub(crate) fn crop(&self, x: usize, y: usize, width: usize, height: usize) -> RgbImage {
        let (x_end, y_end) = (self.width.min(x + width), self.height.min(y + height));
        let row = |y: usize| &self.rgb[(y * self.width + x) * 3..(y * self.width + x_end) * 3];
        let rgb: Vec<u8> = (y..y_end).flat_map(row).copied().collect();
        RgbImage::new(x_end - x, y_end - y, rgb)
    }

    /// Decodes a file by its first bytes, under any name. An orientation that the camera noted (EXIF)
    /// is applied, and transparency laid on white, as transformers' processor does with an image that
    /// is open. Given a path it drops transparency.
    ///
    /// # Errors
    /// [`Error`], which calls the file `name`.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<RgbImage, Error> {
        RgbImage::decode_within(name, bytes, Limits::default())
    }

    /// As [`decode`](RgbImage::decode), within the given limits and [`MAX_PIXELS`]: for programs that decode files of
    /// strangers.
    ///
    /// # Errors
    /// [`Error`], which calls the file `name`.
    pub fn decode_within(name: &str, bytes: &[u8], limits: Limits) -> Result<RgbImage, Error> {
        let (format, limits) = format_of(name, bytes, limits)?;
        let stored = format.read(bytes, limits);
        let stored = stored.map_err(|fault| error_of(fault, name, format, limits))?;
        // An orientation that cannot be read is ignored. Turning must not keep metadata beside the image: they may be as long as the
        // file.
        let orientation = stored.exif.and_then(|exif| Orientation::in_exif(&exif));
        let image = RgbImage::new(stored.width, stored.height, stored.rgb);
        Ok(orientation.unwrap_or_default().applied_to(image))
    }

    /// Width and height from a file's head, of the image as it is stored: turning it upright may swap them. Nothing behind the
    /// head is read, so the file may yet have no image.
    ///
    /// # Errors
    /// Those of [`decode_within`](RgbImage::decode_within) that the head shows.
    pub fn size_within(name: &str, bytes: &[u8], limits: Limits) -> Result<(usize, usize), Error> {
        let (format, limits) = format_of(name, bytes, limits)?;
        let size = format.size(bytes, limits);
        size.map_err(|fault| error_of(fault, name, format, limits))
    }
}

/// The format of a file of allowed length, and the limits capped by those of all images.
fn format_of(name: &str, bytes: &[u8], limits: Limits) -> Result<(ImageFormat, Limits), Error> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(Error::TooLong {
            name: name.into(),
            found_bytes: bytes.len() as u64,
            limit_bytes: MAX_FILE_BYTES,
        });
    }
    let Some(format) = ImageFormat::of(bytes) else {
        return Err(Error::Unknown {
            name: name.into(),
            found: bytes[..bytes.len().min(12)].escape_ascii().to_string(),
        });
    };
    let limits = Limits {
        pixels: limits.pixels.min(MAX_PIXELS),
        ..limits
    };
    Ok((format, limits))
}

/// The error of a fault in a file of that name.
fn error_of(fault: ImageFault, name: &str, format: ImageFormat, limits: Limits) -> Error {
    match fault {
        ImageFault::Broken(reason) => Error::Broken {
            name: name.into(),
            format: format.name(),
            reason,
        },
        ImageFault::Animated => Error::Animated {
            name: name.into(),
            format: format.name(),
        },
        ImageFault::TooLarge { width, height } => Error::TooLarge {
            name: name.into(),
            width,
            height,
            limit: limits.pixels,
        },
        ImageFault::TooMuchMemory {
            width,
            height,
            needed_bytes,
        } => Error::TooMuchMemory {
            name: name.into(),
            format: format.name(),
            width,
            height,
            needed_bytes,
            limit_bytes: limits.bytes,
        },
    }
}
