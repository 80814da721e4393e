//! The bytes of a file to an upright RGB picture.

use std::io::Cursor;

use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::webp::WebPDecoder;
use image::error::ImageResult;
use image::{DynamicImage, ImageDecoder, ImageFormat, Limits, RgbImage};

use crate::Error;

/// Bytes of a file that are read at most.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// Pixels that are decoded at most: a picture of 10,000 × 10,000. A file of few bytes can claim any number.
pub const MAX_PIXELS: u64 = 100_000_000;

/// A picture: rows from top to bottom, 8-bit red, green, blue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Picture {
    /// A picture of `rgb`, `[height, width, 3]`.
    ///
    /// # Panics
    /// If a side is 0, or `rgb` is not as long as that.
    pub fn new(width: usize, height: usize, rgb: Vec<u8>) -> Picture {
        assert!(width > 0 && height > 0, "{width} × {height} pixels");
        assert_eq!(rgb.len(), width * height * 3, "three bytes a pixel");
        Picture { width, height, rgb }
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

    /// The part with its upper left corner at `(x, y)`; what lies beyond the picture is left out.
    pub(crate) fn crop(&self, x: usize, y: usize, width: usize, height: usize) -> Picture {
        let (x_end, y_end) = (self.width.min(x + width), self.height.min(y + height));
        let row = |y: usize| &self.rgb[(y * self.width + x) * 3..(y * self.width + x_end) * 3];
        let rgb: Vec<u8> = (y..y_end).flat_map(row).copied().collect();
        Picture::new(x_end - x, y_end - y, rgb)
    }

    /// Decodes a file: by its first bytes, whatever it is called. An orientation that the camera noted
    /// (EXIF) is applied, and transparency laid on white, as transformers' processor does with a picture
    /// that is open (given a path it drops transparency).
    ///
    /// # Errors
    /// [`Error`], which calls the file `name`.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<Picture, Error> {
        Picture::decode_within(name, bytes, MAX_PIXELS)
    }

    /// As [`decode`](Picture::decode), of at most `max_pixels`, which is [`MAX_PIXELS`] or fewer: for who decodes
    /// what strangers send.
    ///
    /// # Errors
    /// [`Error`], which calls the file `name`.
    pub fn decode_within(name: &str, bytes: &[u8], max_pixels: u64) -> Result<Picture, Error> {
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(Error::TooLong {
                name: name.into(),
                found_bytes: bytes.len() as u64,
                limit_bytes: MAX_FILE_BYTES,
            });
        }
        let format = image::guess_format(bytes).ok();
        let file = File {
            name,
            bytes,
            max_pixels: max_pixels.min(MAX_PIXELS),
        };
        match format {
            Some(ImageFormat::Png) => file.png(),
            Some(ImageFormat::Jpeg) => file.of("JPEG", JpegDecoder::new(file.cursor())),
            Some(ImageFormat::WebP) => file.webp(),
            _ => Err(Error::Unknown {
                name: name.into(),
                found: bytes[..bytes.len().min(12)].escape_ascii().to_string(),
            }),
        }
    }
}

#[derive(Clone, Copy)]
struct File<'a> {
    name: &'a str,
    bytes: &'a [u8],
    max_pixels: u64,
}

impl<'a> File<'a> {
    fn cursor(self) -> Cursor<&'a [u8]> {
        Cursor::new(self.bytes)
    }

    fn png(self) -> Result<Picture, Error> {
        let decoder = self.opened("PNG", PngDecoder::with_limits(self.cursor(), self.limits()))?;
        if self.opened("PNG", decoder.is_apng())? {
            return Err(self.animated("PNG"));
        }
        self.of("PNG", Ok(decoder))
    }

    fn webp(self) -> Result<Picture, Error> {
        let decoder = self.opened("WebP", WebPDecoder::new(self.cursor()))?;
        if decoder.has_animation() {
            return Err(self.animated("WebP"));
        }
        self.of("WebP", Ok(decoder))
    }

    fn limits(self) -> Limits {
        let mut limits = Limits::default();
        // 16 bits of four channels a pixel, and as much again for what decoders keep.
        limits.max_alloc = Some(self.max_pixels * 16);
        limits
    }

    fn animated(self, format: &'static str) -> Error {
        Error::Animated {
            name: self.name.into(),
            format,
        }
    }

    fn opened<T>(self, format: &'static str, opened: ImageResult<T>) -> Result<T, Error> {
        opened.map_err(|error| Error::Broken {
            name: self.name.into(),
            format,
            reason: error.to_string(),
        })
    }

    fn of<D: ImageDecoder>(
        self,
        format: &'static str,
        decoder: ImageResult<D>,
    ) -> Result<Picture, Error> {
        let mut decoder = self.opened(format, decoder)?;
        let (width, height) = decoder.dimensions();
        if u64::from(width) * u64::from(height) > self.max_pixels {
            return Err(Error::TooLarge {
                name: self.name.into(),
                width,
                height,
                limit: self.max_pixels,
            });
        }
        self.opened(format, decoder.set_limits(self.limits()))?;
        // An orientation that cannot be read is none.
        let orientation = decoder.orientation().ok();
        let mut picture = self.opened(format, DynamicImage::from_decoder(decoder))?;
        if let Some(orientation) = orientation {
            picture.apply_orientation(orientation);
        }
        let rgb = on_white(picture);
        let (width, height) = (rgb.width() as usize, rgb.height() as usize);
        if width == 0 || height == 0 {
            return Err(Error::Broken {
                name: self.name.into(),
                format,
                reason: "it has no pixels".into(),
            });
        }
        Ok(Picture::new(width, height, rgb.into_raw()))
    }
}

/// Transparency laid on white with Pillow's arithmetic (`alpha_composite` in `AlphaComposite.c`).
fn on_white(picture: DynamicImage) -> RgbImage {
    if !picture.color().has_alpha() {
        return picture.into_rgb8();
    }
    let rgba = picture.into_rgba8();
    let (width, height) = rgba.dimensions();
    let (pixels, _) = rgba.as_raw().as_chunks::<4>();
    let rgb = pixels.iter().flat_map(|&[r, g, b, a]| {
        let (over, under) = (u32::from(a) * 128, (255 - u32::from(a)) * 128);
        [r, g, b].map(|c| {
            let sum = u32::from(c) * over + 255 * under + (0x80 << 7);
            ((((sum >> 8) + sum) >> 8) >> 7) as u8
        })
    });
    RgbImage::from_raw(width, height, rgb.collect()).expect("three bytes a pixel")
}
