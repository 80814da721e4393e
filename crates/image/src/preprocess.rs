//! An image to the pixel values of a vision encoder's input.

use crate::aspect::{AspectResize, FillResize, LongerSideResize};
use crate::resize::{Filter, resize};
use crate::{Error, PanAndScan, RgbImage};

/// How an image is brought to the size of a vision encoder's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// Stretched to the square: the aspect ratio is lost (transformers' Gemma 3 processor).
    #[default]
    Stretch,
    /// Scaled until it fits the square, centred on black (llama.cpp).
    Letterbox,
    /// Any size of the right aspect ratio, within limits.
    Aspect(AspectResize),
    /// The largest size within a number of units.
    Fill(FillResize),
    /// Any size of the right aspect ratio, up to a longer side.
    LongerSide(LongerSideResize),
}

/// A vision encoder's requirements on its input.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocess {
    /// Pixels of a side of the square, for an encoder of squares.
    pub size: usize,
    /// How it is resized.
    pub filter: Filter,
    /// Factor on 8-bit values, usually 1/255.
    pub rescale: f32,
    /// Subtracted from each channel after the factor.
    pub mean: [f32; 3],
    /// Each channel is divided by it in the end.
    pub std: [f32; 3],
    /// How an image fills the square.
    pub fit: Fit,
    /// Whether and how long images are cut up; `None` takes only the whole.
    pub pan_and_scan: Option<PanAndScan>,
}

impl Preprocess {
    /// Requirements of SigLIP vision encoders at a size, unless their files say otherwise.
    pub fn siglip(size: usize) -> Preprocess {
        Preprocess {
            size,
            filter: Filter::Bilinear,
            rescale: 1.0 / 255.0,
            mean: [0.5; 3],
            std: [0.5; 3],
            fit: Fit::Stretch,
            pan_and_scan: None,
        }
    }

    /// Width and height to which an image of `width` by `height` pixels is resized for the vision encoder.
    ///
    /// # Errors
    /// [`Error::Aspect`] where the vision encoder does not take an image that is so much longer than wide.
    pub fn target(&self, width: usize, height: usize) -> Result<(usize, usize), Error> {
        match self.fit {
            Fit::Stretch | Fit::Letterbox => Ok((self.size, self.size)),
            Fit::Aspect(aspect) => aspect.target(width, height),
            Fit::Fill(fill) => Ok(fill.target(width, height)),
            Fit::LongerSide(longer) => longer.target(width, height),
        }
    }

    /// The pixel values of an image, and of its crops behind it if it is to be cut up.
    ///
    /// # Errors
    /// As [`target`](Preprocess::target).
    pub fn apply(&self, image: &RgbImage) -> Result<Vec<PixelValues>, Error> {
        let mut all = vec![self.one(image)?];
        if let Some(pan_and_scan) = &self.pan_and_scan {
            for crop in pan_and_scan.places(image) {
                // One crop at a time is a copy.
                all.push(self.one(&crop.of(image))?);
            }
        }
        Ok(all)
    }

    fn one(&self, image: &RgbImage) -> Result<PixelValues, Error> {
        let (width, height) = self.target(image.width(), image.height())?;
        let resized = match self.fit {
            Fit::Letterbox => self.letterbox(image),
            _ => resize(image, width, height, self.filter),
        };
        let mut data = Vec::with_capacity(3 * width * height);
        for channel in 0..3 {
            let (mean, std) = (self.mean[channel], self.std[channel]);
            let values = resized.rgb().iter().skip(channel).step_by(3);
            data.extend(values.map(|value| (f32::from(*value) * self.rescale - mean) / std));
        }
        Ok(PixelValues {
            width,
            height,
            data,
        })
    }

    fn letterbox(&self, image: &RgbImage) -> RgbImage {
        let longer = image.width().max(image.height());
        let scaled = |side: usize| (side * self.size).div_ceil(longer).min(self.size);
        let (width, height) = (scaled(image.width()), scaled(image.height()));
        let inner = resize(image, width, height, self.filter);
        let mut rgb = vec![0; self.size * self.size * 3];
        let (x, y) = ((self.size - width) / 2, (self.size - height) / 2);
        for (i, row) in inner.rgb().chunks_exact(width * 3).enumerate() {
            let start = ((y + i) * self.size + x) * 3;
            rgb[start..start + row.len()].copy_from_slice(row);
        }
        RgbImage::new(self.size, self.size, rgb)
    }
}

/// A vision encoder's input: `[3, height, width]` f32, channels red, green, blue.
#[derive(Clone, Debug, PartialEq)]
pub struct PixelValues {
    /// Pixels a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// `[3, height, width]`, row-major.
    pub data: Vec<f32>,
}
