//! Resizing as Pillow does it (`Resample.c`), bit for bit: a horizontal and a vertical pass, each with
//! weights in 22-bit fixed point and rounded to 8 bits.

use crate::Picture;

/// Fractional bits of a weight: 32 less 8 of a pixel less 2 to be safe from overflow.
const WEIGHT_BITS: u32 = 22;

/// How neighbouring pixels are weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Triangles (Pillow's `BILINEAR`, 2 in configurations).
    Bilinear,
    /// Cubics with a = -0.5 (Pillow's `BICUBIC`, 3 in configurations).
    Bicubic,
}

impl Filter {
    /// Pixels on either side that count where nothing is scaled.
    fn support(self) -> f64 {
        match self {
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        let x = x.abs();
        match self {
            Filter::Bilinear if x < 1.0 => 1.0 - x,
            Filter::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Filter::Bicubic if x < 2.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
            _ => 0.0,
        }
    }
}

/// Which pixels make up one of the result, and how much of each.
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

/// `picture` at `width` × `height` pixels.
///
/// # Panics
/// If a side is 0.
pub(crate) fn resize(picture: &Picture, width: usize, height: usize, filter: Filter) -> Picture {
    assert!(width > 0 && height > 0, "{width} × {height} pixels");
    let mut rgb = picture.rgb().to_vec();
    // A pass that keeps the size is skipped.
    if width != picture.width() {
        rgb = horizontal(&rgb, picture.width(), &taps(picture.width(), width, filter));
    }
    if height != picture.height() {
        rgb = vertical(&rgb, width, &taps(picture.height(), height, filter));
    }
    Picture::new(width, height, rgb)
}

fn taps(n_in: usize, n_out: usize, filter: Filter) -> Vec<Taps> {
    let scale = n_in as f64 / n_out as f64;
    // Where the picture shrinks, a filter covers all that one pixel of the result stands for.
    let stretch = scale.max(1.0);
    let support = filter.support() * stretch;
    (0..n_out)
        .map(|i| {
            let centre = (i as f64 + 0.5) * scale;
            // Truncated towards zero and then clamped, as C does.
            let first = (centre - support + 0.5).max(0.0) as usize;
            let end = ((centre + support + 0.5) as usize).min(n_in);
            let weight = |x: usize| filter.weight((x as f64 - centre + 0.5) * (1.0 / stretch));
            let weights: Vec<f64> = (first..end).map(weight).collect();
            let sum: f64 = weights.iter().sum();
            let fixed = |weight: &f64| {
                let scaled = weight / sum * f64::from(1 << WEIGHT_BITS);
                (scaled + 0.5_f64.copysign(scaled)) as i32
            };
            Taps {
                first,
                weights: weights.iter().map(fixed).collect(),
            }
        })
        .collect()
}

/// Rounds a weighted sum to 8 bits.
fn pixel(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}

const HALF: i32 = 1 << (WEIGHT_BITS - 1);

fn horizontal(rgb: &[u8], width: usize, taps: &[Taps]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rgb.len() / width * taps.len());
    for row in rgb.chunks_exact(width * 3) {
        let (pixels, _) = row.as_chunks::<3>();
        for Taps { first, weights } in taps {
            let mut sums = [HALF; 3];
            for (pixel, weight) in pixels[*first..].iter().zip(weights) {
                for (sum, channel) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(*channel) * weight;
                }
            }
            out.extend(sums.map(pixel));
        }
    }
    out
}

fn vertical(rgb: &[u8], width: usize, taps: &[Taps]) -> Vec<u8> {
    let row_bytes = width * 3;
    let mut out = Vec::with_capacity(row_bytes * taps.len());
    let mut sums = vec![0; row_bytes];
    for Taps { first, weights } in taps {
        sums.fill(HALF);
        for (row, weight) in rgb[first * row_bytes..]
            .chunks_exact(row_bytes)
            .zip(weights)
        {
            for (sum, channel) in sums.iter_mut().zip(row) {
                *sum += i32::from(*channel) * weight;
            }
        }
        out.extend(sums.iter().map(|sum| pixel(*sum)));
    }
    out
}
