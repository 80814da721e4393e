//! Contractions and reductions, in the order that the layouts determine.

use super::array::Array;
use crate::axes::{Digit, DigitLayout, Shape};
use std::borrow::Cow;

/// The order in which the terms of a sum meet: digits reduced over slices, over time, within packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    pub ring: Vec<Digit>,
    pub time: Vec<Digit>,
    pub packet: Vec<Digit>,
}

impl Order {
    /// Adds the digits of reduced axes that a layout had.
    pub(super) fn digits(layout: &DigitLayout, reduced: &[usize]) -> Vec<Digit> {
        let own = layout.digits.iter().copied();
        own.filter(|digit| digit.axis().is_some_and(|axis| reduced.contains(&axis)))
            .collect()
    }

    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let count = |digits: &[Digit]| digits.iter().map(|d| d.size as usize).product::<usize>();
        (count(&self.ring), count(&self.time), count(&self.packet))
    }

    /// The index of every term along the reduced axes, `None` for padding.
    fn terms(&self, extents: &Shape) -> Vec<Option<Vec<(usize, u64)>>> {
        let digits = [&self.ring[..], &self.time[..], &self.packet[..]].concat();
        let layout = DigitLayout { digits };
        let term = |position: u64| {
            let mut index: Vec<(usize, u64)> = Vec::new();
            let mut rest = position;
            for digit in layout.digits.iter().rev() {
                let at = rest % digit.size;
                rest /= digit.size;
                let axis = digit.axis()?;
                if at >= digit.valid {
                    return None;
                }
                match index.iter_mut().find(|(a, _)| *a == axis) {
                    Some((_, i)) => *i += at * digit.stride,
                    None => index.push((axis, at * digit.stride)),
                }
            }
            let within = |&(axis, i): &(usize, u64)| {
                extents.iter().any(|&(a, extent)| a == axis && i < extent)
            };
            index.iter().all(within).then_some(index)
        };
        (0..layout.size()).map(term).collect()
    }
}

/// Offsets of terms in an array; `None` for padding.
fn offsets(array: &Array, terms: &[Option<Vec<(usize, u64)>>]) -> Vec<Option<usize>> {
    let offset = |index: &Vec<(usize, u64)>| {
        let parts = index.iter().map(|&(axis, i)| i as usize * array.step(axis));
        parts.sum()
    };
    terms.iter().map(|term| term.as_ref().map(offset)).collect()
}

/// Offsets of every index of some axes, row-major.
fn corners(array: &Array, axes: &Shape) -> Vec<usize> {
    let mut all = vec![0];
    for &(axis, extent) in axes {
        let step = array.step(axis);
        let next = all.iter().flat_map(|&base| {
            let steps = 0..extent as usize;
            steps.map(move |i| base + i * step)
        });
        all = next.collect();
    }
    all
}

/// A matrix of terms: one row a corner, in the order of the sum, padding being zero.
struct Panel<'a> {
    data: Cow<'a, [f32]>,
    /// Where each row begins.
    starts: Vec<usize>,
}

impl<'a> Panel<'a> {
    fn new(array: &'a Array, corners: &[usize], offsets: &[Option<usize>]) -> Panel<'a> {
        let first = offsets.first().copied().flatten();
        let follows = |(i, offset): (usize, &Option<usize>)| *offset == first.map(|f| f + i);
        if let (Some(first), true) = (first, offsets.iter().enumerate().all(follows)) {
            // Rows are in the array unchanged.
            return Panel {
                data: Cow::Borrowed(&array.data),
                starts: corners.iter().map(|corner| corner + first).collect(),
            };
        }
        let mut rows = Vec::with_capacity(corners.len() * offsets.len());
        for &corner in corners {
            let terms = offsets.iter();
            rows.extend(terms.map(|offset| offset.map_or(0.0, |at| array.data[corner + at])));
        }
        Panel {
            data: Cow::Owned(rows),
            starts: (0..corners.len()).map(|i| i * offsets.len()).collect(),
        }
    }

    fn row(&self, i: usize, n: usize) -> &[f32] {
        &self.data[self.starts[i]..self.starts[i] + n]
    }
}

/// The sum over all terms of the products of two arrays. The result's axes are `out`.
pub(super) fn contract(
    stream: &Array,
    held: &Array,
    out: Shape,
    order: &Order,
    is_integer: bool,
    n_threads: usize,
) -> (Array, u64) {
    let reduced: Vec<usize> = [&order.ring, &order.time, &order.packet]
        .into_iter()
        .flatten()
        .filter_map(Digit::axis)
        .collect();
    let mut extents: Shape = stream.shape.clone();
    extents.extend(held.shape.iter().filter(|a| !stream.shape.contains(a)));
    extents.retain(|(axis, _)| reduced.contains(axis));
    let terms = order.terms(&extents);
    let has = |array: &Array, axis: usize| array.shape.iter().any(|(a, _)| *a == axis);
    let pick = |is_in: &dyn Fn(usize) -> bool| -> Shape {
        out.iter()
            .copied()
            .filter(|(axis, _)| is_in(*axis))
            .collect()
    };
    let batch = pick(&|axis| has(stream, axis) && has(held, axis));
    let own = pick(&|axis| has(stream, axis) && !has(held, axis));
    let other = pick(&|axis| !has(stream, axis) && has(held, axis));
    let mut result = Array::new(out);
    let (s_terms, h_terms) = (offsets(stream, &terms), offsets(held, &terms));
    let (s_batch, h_batch) = (corners(stream, &batch), corners(held, &batch));
    let out_batch = corners(&result, &batch);
    let (s_own, out_own) = (corners(stream, &own), corners(&result, &own));
    let (h_other, out_other) = (corners(held, &other), corners(&result, &other));
    let counts = order.counts();
    let dot = if is_integer {
        dot_integer
    } else {
        dot_of(counts.2)
    };
    for ((&sb, &hb), &ob) in s_batch.iter().zip(&h_batch).zip(&out_batch) {
        let shift = |corners: &[usize], by: usize| -> Vec<usize> {
            corners.iter().map(|corner| corner + by).collect()
        };
        let rows = Panel::new(stream, &shift(&s_own, sb), &s_terms);
        let columns = Panel::new(held, &shift(&h_other, hb), &h_terms);
        let n = terms.len().max(1);
        let values = products(&rows, &columns, n, counts, dot, n_threads);
        for (i, &o) in out_own.iter().enumerate() {
            for (j, &p) in out_other.iter().enumerate() {
                result.data[ob + o + p] = values[i * out_other.len() + j];
            }
        }
    }
    let n_macs = s_batch.len() * s_own.len() * h_other.len() * terms.len();
    (result, n_macs as u64)
}

type Dot = fn(&[f32], &[f32], (usize, usize, usize)) -> f32;

/// All products of rows and columns, cut over threads by rows.
fn products(
    rows: &Panel<'_>,
    columns: &Panel<'_>,
    n: usize,
    counts: (usize, usize, usize),
    dot: Dot,
    n_threads: usize,
) -> Vec<f32> {
    let (n_rows, n_columns) = (rows.starts.len(), columns.starts.len());
    let mut values = vec![0.0; n_rows * n_columns];
    if values.is_empty() {
        return values;
    }
    let compute = |first: usize, part: &mut [f32]| {
        for (i, out) in part.chunks_mut(n_columns).enumerate() {
            let row = rows.row(first + i, n);
            for (j, out) in out.iter_mut().enumerate() {
                *out = dot(row, columns.row(j, n), counts);
            }
        }
    };
    let work = values.len() * n;
    let n_threads = n_threads.clamp(1, n_rows);
    if n_threads == 1 || work < 1 << 18 {
        compute(0, &mut values);
        return values;
    }
    let per = n_rows.div_ceil(n_threads);
    std::thread::scope(|scope| {
        for (number, part) in values.chunks_mut(per * n_columns).enumerate() {
            let compute = &compute;
            scope.spawn(move || compute(number * per, part));
        }
    });
    values
}

/// The sum for packets of that size.
fn dot_of(packet: usize) -> Dot {
    match packet {
        1 => dot_ones,
        16 => dot_packets::<16>,
        32 => dot_packets::<32>,
        64 => dot_packets::<64>,
        _ => dot_any,
    }
}

/// Sums around rings, of sums over time, of trees over packets.
fn dot_packets<const P: usize>(
    a: &[f32],
    b: &[f32],
    (ring, time, _): (usize, usize, usize),
) -> f32 {
    let (a, b) = (a.as_chunks::<P>().0, b.as_chunks::<P>().0);
    let mut total = 0.0;
    for part in 0..ring {
        let mut sum = 0.0;
        let range = part * time..(part + 1) * time;
        for (a, b) in a[range.clone()].iter().zip(&b[range]) {
            // Down to sixteen, in the order of the tree.
            let product = |i: usize| a[i] * b[i];
            let sixteen: [f32; 16] = std::array::from_fn(|i| match P {
                64 => (product(i) + product(i + 32)) + (product(i + 16) + product(i + 48)),
                32 => product(i) + product(i + 16),
                _ => product(i),
            });
            let eight: [f32; 8] = std::array::from_fn(|i| sixteen[i] + sixteen[i + 8]);
            let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
            sum += (four[0] + four[2]) + (four[1] + four[3]);
        }
        total = if part == 0 { sum } else { total + sum };
    }
    total
}

fn dot_ones(a: &[f32], b: &[f32], (ring, time, _): (usize, usize, usize)) -> f32 {
    let mut total = 0.0;
    for part in 0..ring {
        let range = part * time..(part + 1) * time;
        let terms = a[range.clone()].iter().zip(&b[range]);
        let sum = terms.fold(0.0, |sum, (a, b)| sum + a * b);
        total = if part == 0 { sum } else { total + sum };
    }
    total
}

fn dot_any(a: &[f32], b: &[f32], (ring, time, packet): (usize, usize, usize)) -> f32 {
    let mut total = 0.0;
    let mut tree = vec![0.0; packet.next_power_of_two()];
    for part in 0..ring {
        let mut sum = 0.0;
        for t in part * time..(part + 1) * time {
            tree.fill(0.0);
            for i in 0..packet {
                tree[i] = a[t * packet + i] * b[t * packet + i];
            }
            sum += fold_tree(&mut tree, |a, b| a + b);
        }
        total = if part == 0 { sum } else { total + sum };
    }
    total
}

fn fold_tree(tree: &mut [f32], op: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = tree.len() / 2;
    while width > 0 {
        for i in 0..width {
            tree[i] = op(tree[i], tree[i + width]);
        }
        width /= 2;
    }
    tree[0]
}

/// Integer factors: the sum wraps at 32 bits, the accumulator's width.
fn dot_integer(a: &[f32], b: &[f32], _: (usize, usize, usize)) -> f32 {
    let terms = a.iter().zip(b).map(|(a, b)| *a as i32 * *b as i32);
    terms.fold(0i32, i32::wrapping_add) as f32
}

/// Reduces an array by an operation; the result's axes are `out`.
pub(super) fn reduce(
    array: &Array,
    out: Shape,
    order: &Order,
    op: impl Fn(f32, f32) -> f32 + Copy,
    identity: f32,
) -> Array {
    let extents: Shape = (array.shape.iter().copied())
        .filter(|(axis, _)| !out.iter().any(|(a, _)| a == axis))
        .collect();
    let terms = offsets(array, &order.terms(&extents));
    let (ring, time, packet) = order.counts();
    let mut result = Array::new(out.clone());
    let (from, places) = (corners(array, &out), corners(&result, &out));
    let mut tree = vec![identity; packet.next_power_of_two()];
    for (corner, place) in from.into_iter().zip(places) {
        let mut total = None;
        for part in 0..ring {
            let mut sum = identity;
            for t in part * time..(part + 1) * time {
                tree.fill(identity);
                for (i, slot) in tree.iter_mut().enumerate().take(packet) {
                    let at = terms[t * packet + i];
                    *slot = at.map_or(identity, |at| array.data[corner + at]);
                }
                sum = op(sum, fold_tree(&mut tree, op));
            }
            total = Some(total.map_or(sum, |total| op(total, sum)));
        }
        result.data[place] = total.unwrap_or(identity);
    }
    result
}
