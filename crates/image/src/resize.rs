//! Resizing as Pillow does it (`Resample.c`), bit for bit: a horizontal and a vertical pass, each with
//! weights in 22-bit fixed point and rounded to 8 bits.
//!
//! No whole image is held between the passes. Rows go through the horizontal pass a strip at a time, and each is added
//! at once to the rows of the result that it counts in. Weights are computed where they are used. So memory beside the
//! image and the result is a strip and a few rows, for any shape. An image of 1 × 24 million pixels would otherwise
//! take gigabytes between the passes.

use std::collections::VecDeque;

use crate::RgbImage;

/// Fractional bits of a weight: 32, less 8 of a pixel, less 2 for safety from overflow.
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

/// Rows that go through the horizontal pass together, so that a column's weights are computed once for them.
const STRIP_ROWS: usize = 64;

/// Most weights that are computed at a time and kept.
const WEIGHTS: usize = 1024;
const MOST_KEPT: usize = 1 << 16;

/// Pixels between the passes from which the vertical pass goes first: about a second of work. Only an image of a few
/// pixels by hundreds of thousands of rows has this many.
const MOST_BETWEEN: u64 = 1 << 27;

/// Rows for each column from which an image is tall.
const TALL: usize = 100;

/// One half in the fixed point of a channel's sum, so that truncation rounds.
const HALF: i32 = 1 << (WEIGHT_BITS - 1);

/// The pixels that make up one of the result, with their weights.
#[derive(Clone, Copy, Debug)]
struct Taps {
    filter: Filter,
    /// The first pixel that counts.
    first: usize,
    /// One behind the last.
    end: usize,
    centre: f64,
    /// Reciprocal of the pixels in the filter's unit.
    per_pixel: f64,
    /// The weights' sum, by which each is divided.
    sum: f64,
}

impl Taps {
    /// The taps of pixel `i` of `n_out`, over `n_in`.
    fn new(n_in: usize, n_out: usize, i: usize, filter: Filter) -> Taps {
        let scale = n_in as f64 / n_out as f64;
        // Where the image shrinks, a filter covers all pixels that one pixel of the result replaces.
        let stretch = scale.max(1.0);
        let support = filter.support() * stretch;
        let centre = (i as f64 + 0.5) * scale;
        let mut taps = Taps {
            filter,
            // Truncated towards zero and then clamped, as C does.
            first: (centre - support + 0.5).max(0.0) as usize,
            end: ((centre + support + 0.5) as usize).min(n_in),
            centre,
            per_pixel: 1.0 / stretch,
            sum: 1.0,
        };
        taps.sum = (taps.first..taps.end).map(|x| taps.share(x)).sum();
        taps
    }

    fn share(&self, x: usize) -> f64 {
        let distance = (x as f64 - self.centre + 0.5) * self.per_pixel;
        self.filter.weight(distance)
    }

    /// The weight of pixel `x`, which is one of `first..end`.
    fn weight(&self, x: usize) -> i32 {
        let scaled = self.share(x) / self.sum * f64::from(1 << WEIGHT_BITS);
        (scaled + 0.5_f64.copysign(scaled)) as i32
    }
}

/// `image` at `width` × `height` pixels.
///
/// # Panics
/// If a side is 0.
pub(crate) fn resize(image: &RgbImage, width: usize, height: usize, filter: Filter) -> RgbImage {
    assert!(width > 0 && height > 0, "{width} × {height} pixels");
    let rgb = match vertical_first(image, width, height) {
        true => {
            let mut between = Vertical::new(image.width(), image.height(), height, filter);
            between.add(image.rgb());
            let pass = Horizontal::new(image.width(), width, filter);
            let mut out = Vec::with_capacity(width * height * 3);
            let row_bytes = image.width() * 3;
            for strip in between.done().chunks(STRIP_ROWS * row_bytes) {
                pass.append(strip, &mut out);
            }
            out
        }
        false => {
            let pass = Horizontal::new(image.width(), width, filter);
            let mut out = Vertical::new(width, image.height(), height, filter);
            let mut strip = Vec::new();
            for rows in image.rgb().chunks(STRIP_ROWS * image.width() * 3) {
                strip.clear();
                pass.append(rows, &mut strip);
                out.add(&strip);
            }
            out.done()
        }
    };
    RgbImage::new(width, height, rgb)
}

/// Whether the vertical pass goes first: in tall images that become less high, as in Pillow from 12.3 on (`Image.py`). In an
/// image of one column the order changes no bit, since the horizontal pass repeats its pixels. The vertical pass also goes
/// first where the other order would take too long. Values then differ from Pillow's by at most a level, and with cubics by
/// a few where one of the passes leaves the range of 8 bits.
fn vertical_first(image: &RgbImage, width: usize, height: usize) -> bool {
    let is_tall = image.height() > TALL.saturating_mul(image.width());
    let between = width as u64 * image.height() as u64;
    let takes_long = image.width() < width && between > MOST_BETWEEN;
    image.height() > height && (is_tall || image.width() == 1 || takes_long)
}

/// Rounds a weighted sum to 8 bits.
fn pixel(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}

/// The horizontal pass, strip by strip.
struct Horizontal {
    n_in: usize,
    n_out: usize,
    filter: Filter,
    /// The weights of all columns, if they are few.
    all: Option<ColumnWeights>,
}

/// The weights of every column.
struct ColumnWeights {
    /// The first pixel and the number of weights.
    places: Vec<(usize, usize)>,
    /// Column after column.
    weights: Vec<i32>,
}

impl Horizontal {
    /// Of rows of `n_in` pixels to `n_out`.
    fn new(n_in: usize, n_out: usize, filter: Filter) -> Horizontal {
        let taps = || (0..n_out).map(|column| Taps::new(n_in, n_out, column, filter));
        // Where the image shrinks, a pixel counts in as many columns as the filter is wide.
        let n_weights = 2.0 * filter.support() * n_in.max(n_out) as f64;
        let all = (n_weights <= MOST_KEPT as f64).then(|| ColumnWeights {
            places: taps()
                .map(|taps| (taps.first, taps.end - taps.first))
                .collect(),
            weights: taps()
                .flat_map(|taps| (taps.first..taps.end).map(move |x| taps.weight(x)))
                .collect(),
        });
        Horizontal {
            n_in,
            n_out,
            filter,
            all,
        }
    }

    /// Appends whole rows to `out`, [`STRIP_ROWS`] at most.
    fn append(&self, rows: &[u8], out: &mut Vec<u8>) {
        // A pass that keeps the size is skipped.
        if self.n_in == self.n_out {
            out.extend_from_slice(rows);
            return;
        }
        match &self.all {
            Some(ColumnWeights { places, weights }) => {
                for row in rows.chunks_exact(self.n_in * 3) {
                    let (row, _) = row.as_chunks::<3>();
                    let mut weights = &weights[..];
                    for (first, n) in places {
                        let (own, rest) = weights.split_at(*n);
                        let mut sums = [HALF; 3];
                        add(&mut sums, &row[*first..*first + *n], own);
                        out.extend_from_slice(&sums.map(pixel));
                        weights = rest;
                    }
                }
            }
            None => self.append_by_column(rows, out),
        }
    }

    /// As [`append`](Horizontal::append) with weights that are computed for the strip.
    fn append_by_column(&self, rows: &[u8], out: &mut Vec<u8>) {
        let (n_in, n_out) = (self.n_in, self.n_out);
        let start = out.len();
        out.resize(start + rows.len() / n_in * n_out, 0);
        let (pixels, _) = out[start..].as_chunks_mut::<3>();
        let mut weights = [0; WEIGHTS];
        for column in 0..n_out {
            let taps = Taps::new(n_in, n_out, column, self.filter);
            let mut sums = [[HALF; 3]; STRIP_ROWS];
            for first in (taps.first..taps.end).step_by(WEIGHTS) {
                let n = (taps.end - first).min(WEIGHTS);
                for (i, weight) in weights[..n].iter_mut().enumerate() {
                    *weight = taps.weight(first + i);
                }
                for (row, sums) in rows.chunks_exact(n_in * 3).zip(&mut sums) {
                    let (row, _) = row.as_chunks::<3>();
                    add(sums, &row[first..first + n], &weights[..n]);
                }
            }
            let found = pixels[column..].iter_mut().step_by(n_out);
            for (out, sums) in found.zip(&sums) {
                *out = sums.map(pixel);
            }
        }
    }
}

/// Adds weighted pixels to a sum of each channel.
fn add(sums: &mut [i32; 3], pixels: &[[u8; 3]], weights: &[i32]) {
    for (pixel, weight) in pixels.iter().zip(weights) {
        for (sum, channel) in sums.iter_mut().zip(pixel) {
            *sum += i32::from(*channel) * weight;
        }
    }
}

/// The vertical pass, row by row.
struct Vertical {
    row_bytes: usize,
    n_in: usize,
    n_out: usize,
    filter: Filter,
    /// Number of rows so far.
    n_seen: usize,
    /// Rows of the result that were begun: the taps and the sums of each that is not complete, in order.
    begun: VecDeque<(Taps, Vec<i32>)>,
    /// Sums to be used again.
    spare: Vec<Vec<i32>>,
    /// The next row of the result to begin, if there is one.
    next: Option<(usize, Taps)>,
    out: Vec<u8>,
}

impl Vertical {
    /// Of rows of `width` pixels, `n_in` to `n_out`.
    fn new(width: usize, n_in: usize, n_out: usize, filter: Filter) -> Vertical {
        Vertical {
            row_bytes: width * 3,
            n_in,
            n_out,
            filter,
            n_seen: 0,
            begun: VecDeque::new(),
            spare: Vec::new(),
            next: Some((0, Taps::new(n_in, n_out, 0, filter))),
            out: Vec::with_capacity(width * n_out * 3),
        }
    }

    /// Takes whole rows, in order.
    fn add(&mut self, rows: &[u8]) {
        // A pass that keeps the size is skipped.
        if self.n_in == self.n_out {
            self.out.extend_from_slice(rows);
            return;
        }
        for row in rows.chunks_exact(self.row_bytes) {
            self.begin();
            for (taps, sums) in &mut self.begun {
                let weight = taps.weight(self.n_seen);
                for (sum, channel) in sums.iter_mut().zip(row) {
                    *sum += i32::from(*channel) * weight;
                }
            }
            self.n_seen += 1;
            self.complete();
        }
    }

    /// Begins the rows of the result in which the coming row is the first that counts.
    fn begin(&mut self) {
        while let Some((i, taps)) = self.next
            && taps.first <= self.n_seen
        {
            let mut sums = self.spare.pop().unwrap_or_default();
            sums.clear();
            sums.resize(self.row_bytes, HALF);
            self.begun.push_back((taps, sums));
            let following = (i + 1 < self.n_out).then_some(i + 1);
            self.next = following.map(|i| (i, Taps::new(self.n_in, self.n_out, i, self.filter)));
        }
    }

    /// Writes the rows of the result for which no further row counts.
    fn complete(&mut self) {
        while let Some((taps, _)) = self.begun.front()
            && taps.end <= self.n_seen
            && let Some((_, sums)) = self.begun.pop_front()
        {
            self.out.extend(sums.iter().map(|sum| pixel(*sum)));
            self.spare.push(sums);
        }
    }

    /// All rows of the result.
    fn done(self) -> Vec<u8> {
        self.out
    }
}

#[cfg(test)]
mod tests;
