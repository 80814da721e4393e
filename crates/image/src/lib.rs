//! Image files to the pixel values that a vision encoder takes.
//!
//! [`RgbImage::decode`] turns the bytes of a PNG, JPEG or WebP file into RGB, upright and without transparency.
//! [`Preprocess`] resizes it to the vision encoder's size, as Pillow does bit for bit, and normalises it. [`PanAndScan`]
//! cuts long images into additional crops.
//!
//! No byte is trusted: a broken, animated or absurdly large file is an error that names it, before memory for it is taken.
//! [`Limits`] bound pixels and bytes; resizing takes a few rows besides, for any shape.
#![forbid(unsafe_code)]

mod aspect;
mod decode;
mod error;
mod formats;
mod orientation;
mod pan_and_scan;
mod preprocess;
mod resize;

pub use aspect::{AspectResize, FillResize, LongerSideResize};
pub use decode::{Limits, MAX_FILE_BYTES, MAX_PIXELS, RgbImage};
pub use error::Error;
pub use pan_and_scan::PanAndScan;
pub use preprocess::{Fit, PixelValues, Preprocess};
pub use resize::Filter;
