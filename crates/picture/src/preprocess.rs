//! A picture to the pixel values of a tower's input.

use crate::resize::{Filter, resize};
use crate::{PanAndScan, Picture};

/// How a picture that is no square fills the square.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// Stretched: the aspect ratio is lost (transformers' Gemma 3 processor).
    #[default]
    Stretch,
    /// Scaled until it fits, centred on black (llama.cpp).
    Letterbox,
}

/// What a tower wants of its input.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocess {
    /// Pixels of a side of the square.
    pub size: usize,
    /// How it is resized.
    pub filter: Filter,
    /// Factor on 8-bit values, usually 1/255.
    pub rescale: f32,
    /// Subtracted from each channel after the factor.
    pub mean: [f32; 3],
    /// Each channel is divided by it in the end.
    pub std: [f32; 3],
    /// How a picture fills the square.
    pub fit: Fit,
    /// Whether and how long pictures are cut up; `None` looks at the whole only.
    pub pan_and_scan: Option<PanAndScan>,
}

impl Preprocess {
    /// What SigLIP towers want at a size, unless their files say otherwise.
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

    /// The pixel values of a picture, and of its crops behind it if it is to be cut up.
    pub fn apply(&self, picture: &Picture) -> Vec<PixelValues> {
        let mut all = vec![self.one(picture)];
        if let Some(pan_and_scan) = &self.pan_and_scan {
            // One crop at a time is a copy.
            let crops = pan_and_scan.places(picture);
            all.extend(crops.into_iter().map(|crop| self.one(&crop.of(picture))));
        }
        all
    }

    fn one(&self, picture: &Picture) -> PixelValues {
        let square = match self.fit {
            Fit::Stretch => resize(picture, self.size, self.size, self.filter),
            Fit::Letterbox => self.letterbox(picture),
        };
        let n = self.size * self.size;
        let mut data = Vec::with_capacity(3 * n);
        for channel in 0..3 {
            let (mean, std) = (self.mean[channel], self.std[channel]);
            let values = square.rgb().iter().skip(channel).step_by(3);
            data.extend(values.map(|value| (f32::from(*value) * self.rescale - mean) / std));
        }
        PixelValues {
            size: self.size,
            data,
        }
    }

    fn letterbox(&self, picture: &Picture) -> Picture {
        let longer = picture.width().max(picture.height());
        let scaled = |side: usize| (side * self.size).div_ceil(longer).min(self.size);
        let (width, height) = (scaled(picture.width()), scaled(picture.height()));
        let inner = resize(picture, width, height, self.filter);
        let mut rgb = vec![0; self.size * self.size * 3];
        let (x, y) = ((self.size - width) / 2, (self.size - height) / 2);
        for (i, row) in inner.rgb().chunks_exact(width * 3).enumerate() {
            let start = ((y + i) * self.size + x) * 3;
            rgb[start..start + row.len()].copy_from_slice(row);
        }
        Picture::new(self.size, self.size, rgb)
    }
}

/// A tower's input: `[3, size, size]` f32, channels red, green, blue.
#[derive(Clone, Debug, PartialEq)]
pub struct PixelValues {
    /// Pixels of a side.
    pub size: usize,
    /// `[3, size, size]`, row-major.
    pub data: Vec<f32>,
}
