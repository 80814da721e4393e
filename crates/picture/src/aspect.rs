//! Sizes that keep a picture's aspect ratio: sides of whole units, and a number of pixels within limits.

use crate::Error;

/// The longer side over the shorter, at most (transformers, `smart_resize` of `image_processing_qwen2_vl`).
const MAX_RATIO: usize = 200;

/// How large a picture becomes that keeps its aspect ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AspectResize {
    /// Pixels of which both sides are multiples; at least 1.
    pub unit: usize,
    /// Pixels of a picture, at least.
    pub min_pixels: u64,
    /// Pixels of a picture, at most; at least those of one unit by one.
    pub max_pixels: u64,
}

impl AspectResize {
    /// Width and height that a picture of `width` by `height` pixels becomes: the nearest whole units, and where those are more or fewer
    /// pixels than the limits allow, the nearest beyond it of the same ratio.
    ///
    /// # Errors
    /// [`Error::Aspect`] for a side of more than 200 times the other.
    pub fn target(&self, width: usize, height: usize) -> Result<(usize, usize), Error> {
        let (longer, shorter) = (width.max(height), width.min(height));
        if longer > shorter.saturating_mul(MAX_RATIO) {
            return Err(Error::Aspect {
                width,
                height,
                limit: MAX_RATIO,
            });
        }
        let sides = [width as f64, height as f64];
        let unit = self.unit as f64;
        let n_pixels = sides[0] * sides[1];
        // As a number of units.
        let nearest = sides.map(|side| (side / unit).round_ties_even());
        let found = nearest[0] * nearest[1] * unit * unit;
        let units = if found > self.max_pixels as f64 {
            let shrink = (n_pixels / self.max_pixels as f64).sqrt();
            sides.map(|side| (side / shrink / unit).floor())
        } else if found < self.min_pixels as f64 {
            let grow = (self.min_pixels as f64 / n_pixels).sqrt();
            sides.map(|side| (side * grow / unit).ceil())
        } else {
            nearest
        };
        let [width, height] = units.map(|n| (n as usize).max(1) * self.unit);
        Ok((width, height))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test may panic.
mod tests {
    use super::*;

    /// Widths and heights of pictures, and what becomes of them.
    const SIZES: [((usize, usize), (usize, usize)); 18] = [
        ((1, 1), (56, 56)),
        ((1, 200), (28, 812)),
        ((200, 1), (812, 28)),
        ((28, 28), (56, 56)),
        ((42, 42), (56, 56)),
        ((70, 14), (140, 28)),
        ((160, 90), (168, 84)),
        ((61, 143), (56, 140)),
        ((17, 9), (84, 56)),
        ((641, 480), (644, 476)),
        ((1000, 1000), (980, 980)),
        ((1003, 1001), (980, 980)),
        ((4000, 3000), (1148, 840)),
        ((3000, 4000), (840, 1148)),
        ((20000, 100), (14140, 56)),
        ((10000, 10000), (980, 980)),
        ((55, 57), (56, 56)),
        ((98, 32), (112, 28)),
    ];

    /// What transformers 5.24 has (`smart_resize` with a unit of 28, 3,136 to 1,003,520 pixels).
    #[test]
    fn sizes_are_those_of_transformers() {
        let resize = AspectResize {
            unit: 28,
            min_pixels: 56 * 56,
            max_pixels: 28 * 28 * 1280,
        };
        for (from, expected) in SIZES {
            let found = resize.target(from.0, from.1).unwrap();
            assert_eq!(found, expected, "{from:?}");
        }
    }

    #[test]
    fn a_line_is_refused() {
        let resize = AspectResize {
            unit: 28,
            min_pixels: 56 * 56,
            max_pixels: 28 * 28 * 1280,
        };
        resize.target(1, 200).unwrap();
        for (width, height) in [(1, 201), (201, 1), (24_000_000, 1)] {
            let error = resize.target(width, height).unwrap_err();
            assert!(error.to_string().contains("200 times"), "{error}");
        }
    }
}
