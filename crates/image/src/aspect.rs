//! Sizes that keep an image's aspect ratio: sides of whole units, and a number of pixels or a longer side within limits.

use crate::Error;

/// Bound of the longer side over the shorter (transformers, `smart_resize` of `image_processing_qwen2_vl`).
const MAX_RATIO: usize = 200;

/// A resize that keeps the aspect ratio, within limits of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AspectResize {
    /// Pixels of which both sides are multiples; at least 1.
    pub unit: usize,
    /// Pixels of an image, at least.
    pub min_pixels: u64,
    /// Pixels of an image, at most; at least those of one unit by one.
    pub max_pixels: u64,
}

impl AspectResize {
    /// The new width and height of an image of `width` by `height` pixels: the nearest whole units. Where those have more or fewer
    /// pixels than the limits allow, it is the nearest size within them of the same ratio.
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
        // Rounded to a number of units.
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

/// The most whole units within a number of them, for an image of any size (transformers,
/// `get_aspect_ratio_preserving_size` of `image_processing_gemma4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillResize {
    /// Pixels of a unit's side; at least 1.
    pub unit: usize,
    /// Units of an image, at most; at least 1.
    pub max_units: usize,
}

impl FillResize {
    /// The new width and height of an image of `width` by `height` pixels. An image that becomes a line is one unit high, and as long as
    /// the limit or the ratio allows.
    pub fn target(&self, width: usize, height: usize) -> (usize, usize) {
        let (unit, n_pixels) = (self.unit as f64, width as f64 * height as f64);
        let factor = (self.max_units as f64 * unit * unit / n_pixels).sqrt();
        let units = [width, height].map(|side| (factor * side as f64 / unit).floor() as usize);
        let longest = |long: usize, short: usize| (long / short.max(1)).clamp(1, self.max_units);
        let [across, down] = match units {
            [0, 0] => [1, 1],
            [across, 0] if across > 0 => [longest(width, height), 1],
            [0, _] => [1, longest(height, width)],
            both => both,
        };
        (across * self.unit, down * self.unit)
    }
}

/// Sizes as they are, reduced to a longer side, and then up to whole units (transformers,
/// `get_resize_output_image_size` of `image_processing_pixtral`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongerSideResize {
    /// Pixels of which both sides are multiples; at least 1.
    pub unit: usize,
    /// Pixels of the longer side before that, at most; at least 1.
    pub longer_side: usize,
}

impl LongerSideResize {
    /// The new width and height of an image of `width` by `height` pixels.
    ///
    /// # Errors
    /// [`Error::Aspect`] for an image whose shorter side would be less than a pixel.
    pub fn target(&self, width: usize, height: usize) -> Result<(usize, usize), Error> {
        let limit = self.longer_side as f64;
        let ratio = (height as f64 / limit).max(width as f64 / limit);
        let reduced = [width, height].map(|side| match ratio > 1.0 {
            true => (side as f64 / ratio).floor() as usize,
            false => side,
        });
        if reduced.contains(&0) {
            return Err(Error::Aspect {
                width,
                height,
                limit: self.longer_side,
            });
        }
        let [width, height] = reduced.map(|side| side.next_multiple_of(self.unit));
        Ok((width, height))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test may panic.
mod tests {
    use super::*;

    /// Widths and heights, their size in 280 units of 48 pixels, and their size with at most 1,540 pixels of the longer side in
    /// units of 28.
    const OTHER_SIZES: [[(usize, usize); 3]; 12] = [
        [(1, 1), (768, 768), (28, 28)],
        [(48, 48), (768, 768), (56, 56)],
        [(640, 480), (912, 672), (644, 504)],
        [(61, 143), (480, 1200), (84, 168)],
        [(4000, 3000), (912, 672), (1540, 1176)],
        [(3000, 4000), (672, 912), (1176, 1540)],
        [(1000, 1001), (768, 768), (1008, 1008)],
        [(1, 1000), (48, 13440), (28, 1008)],
        [(500, 1), (13440, 48), (504, 28)],
        [(1540, 1541), (768, 768), (1540, 1540)],
        [(2000, 3), (13440, 48), (1540, 28)],
        [(17, 9), (1056, 576), (28, 28)],
    ];

    #[test]
    fn other_sizes_are_those_of_transformers() {
        let fill = FillResize {
            unit: 48,
            max_units: 280,
        };
        let longer = LongerSideResize {
            unit: 28,
            longer_side: 1540,
        };
        for [(width, height), filled, reduced] in OTHER_SIZES {
            assert_eq!(fill.target(width, height), filled, "{width} × {height}");
            let found = longer.target(width, height).unwrap();
            assert_eq!(found, reduced, "{width} × {height}");
        }
    }

    #[test]
    fn lines_have_a_unit_and_never_more_than_the_limit() {
        for max_units in [1, 2, 3, 70, 280, 1120] {
            let fill = FillResize {
                unit: 48,
                max_units,
            };
            for (width, height) in [(1, 1), (1, 100_000), (100_000_000, 1), (3, 2), (7919, 7907)] {
                let (across, down) = fill.target(width, height);
                let units = across / 48 * (down / 48);
                assert!(units >= 1 && units <= max_units, "{width} × {height}");
                assert!(across % 48 == 0 && down % 48 == 0);
            }
        }
        let longer = LongerSideResize {
            unit: 28,
            longer_side: 1540,
        };
        longer.target(1540, 1).unwrap();
        for (width, height) in [(3081, 1), (1, 3081), (100_000_000, 1)] {
            let error = longer.target(width, height).unwrap_err();
            assert!(error.to_string().contains("1540 times"), "{error}");
        }
    }

    /// Widths and heights of images, and their new ones.
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

    /// Sizes of transformers 5.24 (`smart_resize` with a unit of 28, 3,136 to 1,003,520 pixels).
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
