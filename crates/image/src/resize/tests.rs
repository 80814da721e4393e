//! The passes against their plain form: every weight in a list, a whole image between the passes.

use super::{Filter, HALF, MOST_BETWEEN, WEIGHT_BITS, pixel, resize, vertical_first};
use crate::RgbImage;

/// The weights of each pixel of the result, and the first pixel that they belong to.
fn taps(n_in: usize, n_out: usize, filter: Filter) -> Vec<(usize, Vec<i32>)> {
    let scale = n_in as f64 / n_out as f64;
    let stretch = scale.max(1.0);
    let support = filter.support() * stretch;
    let one = |i: usize| {
        let centre = (i as f64 + 0.5) * scale;
        let first = (centre - support + 0.5).max(0.0) as usize;
        let end = ((centre + support + 0.5) as usize).min(n_in);
        let weight = |x: usize| filter.weight((x as f64 - centre + 0.5) * (1.0 / stretch));
        let weights: Vec<f64> = (first..end).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let fixed = |weight: &f64| {
            let scaled = weight / sum * f64::from(1 << WEIGHT_BITS);
            (scaled + 0.5_f64.copysign(scaled)) as i32
        };
        (first, weights.iter().map(fixed).collect())
    };
    (0..n_out).map(one).collect()
}

fn plain_horizontal(image: &RgbImage, width: usize, filter: Filter) -> RgbImage {
    let (n_in, height) = (image.width(), image.height());
    if n_in == width {
        return image.clone();
    }
    let taps = taps(n_in, width, filter);
    let mut rgb = Vec::new();
    for y in 0..height {
        for (first, weights) in &taps {
            for channel in 0..3 {
                let at = |x: usize| i32::from(image.rgb()[(y * n_in + x) * 3 + channel]);
                let products = weights.iter().enumerate().map(|(i, w)| at(first + i) * w);
                rgb.push(pixel(HALF + products.sum::<i32>()));
            }
        }
    }
    RgbImage::new(width, height, rgb)
}

fn turned(image: &RgbImage) -> RgbImage {
    let (width, height) = (image.width(), image.height());
    let mut rgb = Vec::new();
    for x in 0..width {
        for y in 0..height {
            rgb.extend_from_slice(&image.rgb()[(y * width + x) * 3..][..3]);
        }
    }
    RgbImage::new(height, width, rgb)
}

fn plain_vertical(image: &RgbImage, height: usize, filter: Filter) -> RgbImage {
    turned(&plain_horizontal(&turned(image), height, filter))
}

fn noise(width: usize, height: usize) -> RgbImage {
    let mut state = (width * 31 + height) as u32 | 1;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Extremes, too, so that cubics leave the range and are clamped.
        match state >> 28 {
            0..4 => 0,
            4..8 => 255,
            _ => (state >> 20) as u8,
        }
    };
    RgbImage::new(
        width,
        height,
        (0..width * height * 3).map(|_| byte()).collect(),
    )
}

#[test]
fn strips_and_rows_are_the_plain_form_bit_for_bit() {
    let shapes = [
        (1, 1),
        (1, 2),
        (2, 1),
        (1, 9001),
        (9001, 1),
        (2, 7001),
        (7001, 2),
        (3, 4097),
        (63, 65),
        (64, 64),
        (65, 129),
        (57, 56),
        (56, 31),
        (333, 200),
    ];
    for (width, height) in shapes {
        let image = noise(width, height);
        for filter in [Filter::Bilinear, Filter::Bicubic] {
            for (to_width, to_height) in [(56, 56), (1, 56), (56, 1), (7, 129), (width, 9)] {
                let found = resize(&image, to_width, to_height, filter);
                let expected = match vertical_first(&image, to_width, to_height) {
                    false => {
                        let between = plain_horizontal(&image, to_width, filter);
                        plain_vertical(&between, to_height, filter)
                    }
                    true => {
                        let between = plain_vertical(&image, to_height, filter);
                        plain_horizontal(&between, to_width, filter)
                    }
                };
                assert!(
                    found == expected,
                    "{width} × {height} to {to_width} × {to_height}, {filter:?}"
                );
            }
        }
    }
}

/// The order differs in tall images that become less high, as in Pillow 12.3, and where [`MOST_BETWEEN`] asks for it.
/// Triangles then differ by at most a level; so do cubics where neither order leaves the range of 8 bits.
#[test]
fn the_other_order_is_for_few_columns_only() {
    let of =
        |width: usize, height: usize| RgbImage::new(width, height, vec![7; width * height * 3]);
    assert!(vertical_first(&of(3, 301), 14, 154));
    assert!(!vertical_first(&of(3, 300), 14, 154));
    assert!(!vertical_first(&of(3, 301), 14, 302));
    let rows = |width: u64| (MOST_BETWEEN / width) as usize + 1;
    let wide = rows(17_920) / 99;
    assert!(vertical_first(&of(wide, rows(17_920)), 17_920, 896));
    assert!(!vertical_first(&of(wide, rows(17_920)), 8_960, 896));
    let photo = RgbImage::new(6000, 4000, vec![7; 6000 * 4000 * 3]);
    assert!(!vertical_first(&photo, 896, 896));

    let loud = noise(3, 6007);
    let rgb = loud.rgb().iter().map(|value| 96 + value / 4).collect();
    let quiet = RgbImage::new(3, 6007, rgb);
    for (image, filter) in [(loud, Filter::Bilinear), (quiet, Filter::Bicubic)] {
        let one = plain_vertical(&plain_horizontal(&image, 40, filter), 40, filter);
        let other = plain_horizontal(&plain_vertical(&image, 40, filter), 40, filter);
        let pairs = one.rgb().iter().zip(other.rgb());
        let worst = pairs.map(|(a, b)| a.abs_diff(*b)).max();
        assert!(worst <= Some(1), "{filter:?}: {worst:?} levels");
    }
}
