//! Pan and scan: long images are encoded in parts, besides as a whole.

use crate::RgbImage;

/// When an image is cut into crops, and how many (transformers' `image_processing_gemma3`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PanAndScan {
    /// Pixels that the shorter side of a crop must have.
    pub min_crop_size: usize,
    /// Crops at most.
    pub max_num_crops: usize,
    /// Longer side over shorter side from which an image is cut.
    pub min_ratio: f64,
}

impl Default for PanAndScan {
    fn default() -> Self {
        PanAndScan {
            min_crop_size: 256,
            max_num_crops: 4,
            min_ratio: 1.2,
        }
    }
}

impl PanAndScan {
    /// The crops of an image along its longer side; none where it is not long enough. The last may be
    /// smaller than the others.
    pub fn crops(&self, image: &RgbImage) -> Vec<RgbImage> {
        let places = self.places(image);
        places.into_iter().map(|crop| crop.of(image)).collect()
    }

    /// Their places.
    pub(crate) fn places(&self, image: &RgbImage) -> Vec<Crop> {
        let (width, height) = (image.width(), image.height());
        let is_wide = width >= height;
        let (longer, shorter) = if is_wide {
            (width, height)
        } else {
            (height, width)
        };
        let ratio = longer as f64 / shorter as f64;
        if ratio < self.min_ratio || self.min_crop_size == 0 {
            return Vec::new();
        }
        let by_ratio = (ratio + 0.5).floor() as usize;
        let n = by_ratio.min(longer / self.min_crop_size).max(2);
        let n = n.min(self.max_num_crops);
        if n == 0 {
            return Vec::new();
        }
        let length = longer.div_ceil(n);
        if length.min(shorter) < self.min_crop_size {
            return Vec::new();
        }
        let crop = |i: usize| match is_wide {
            true => Crop([i * length, 0, length, height]),
            false => Crop([0, i * length, width, length]),
        };
        (0..n).map(crop).collect()
    }
}

/// A part of an image: left, top, width, height.
pub(crate) struct Crop([usize; 4]);

impl Crop {
    /// Its pixels.
    pub(crate) fn of(&self, image: &RgbImage) -> RgbImage {
        let [x, y, width, height] = self.0;
        image.crop(x, y, width, height)
    }
}
