//! How weights and RoPE tables are arranged in their slots.

use crate::WeightArrangement;
use half::bf16;
use millrace_graph::{Rope, WeightId};
use millrace_npu::{Element, Slot};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How a weight is arranged in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum WeightLayout {
    /// `[n, k]`, as checkpoints store matrices: W of a GEMV.
    AsStored {
        /// With a head's elements: rows of each head put from interleaved to half-split order.
        half_split: Option<usize>,
    },
    /// `[k, n]`: B of a GEMM.
    Transposed {
        /// As in [`AsStored`](WeightLayout::AsStored); it orders the columns here.
        half_split: Option<usize>,
    },
    /// Rows `start .. start + len` of a matrix, then zeros to `padded_to` rows.
    Rows {
        /// First row.
        start: usize,
        /// Rows of the matrix.
        len: usize,
        /// Rows of the slot.
        padded_to: usize,
    },
    /// A vector, `offset` added to each element before it is rounded (a norm's weight).
    Vector {
        /// Addend of each element.
        offset: f32,
    },
    /// One of the target's own arrangements: [`Arrangement::fill`](crate::Arrangement::fill) makes it from the
    /// checkpoint's bytes.
    Own {
        /// The arrangement.
        id: WeightArrangement,
        /// As in [`AsStored`](WeightLayout::AsStored).
        half_split: Option<usize>,
    },
}

impl WeightLayout {
    /// Elements of the slot for a matrix `[n, k]`; only the target knows those of its own layouts.
    pub fn n_elements(&self, [n, k]: [usize; 2]) -> Option<usize> {
        match self {
            WeightLayout::Rows { padded_to, .. } => Some(padded_to * k),
            WeightLayout::Own { .. } => None,
            _ => Some(n * k),
        }
    }

    /// The checkpoint's row that is output `row` of the arranged matrix; `None` for zeros.
    pub fn source_row(&self, row: usize) -> Option<usize> {
        match *self {
            WeightLayout::AsStored { half_split }
            | WeightLayout::Transposed { half_split }
            | WeightLayout::Own { half_split, .. } => {
                Some(half_split.map_or(row, |head_dim| interleaved(row, head_dim)))
            }
            WeightLayout::Rows { start, len, .. } => (row < len).then_some(start + row),
            WeightLayout::Vector { .. } => Some(row),
        }
    }

    /// Arranges a weight `[n, k]` in a slot of [`n_elements`](WeightLayout::n_elements), in bf16. `row`
    /// writes the `k` elements of a row of the checkpoint; it is asked for each once, in the
    /// slot's order. One of the target's own layouts is arranged as the checkpoint stores it.
    ///
    /// # Panics
    /// If `out` has another length.
    pub fn arrange(
        &self,
        [n, k]: [usize; 2],
        mut row: impl FnMut(usize, &mut [f32]),
        out: &mut [bf16],
    ) {
        let (n_rows, offset) = match *self {
            WeightLayout::Rows { padded_to, .. } => (padded_to, 0.0),
            WeightLayout::Vector { offset } => (n, offset),
            _ => (n, 0.0),
        };
        let mut values = vec![0.0_f32; k];
        let mut block = vec![bf16::ZERO; k * BLOCK_ROWS];
        for first in (0..n_rows).step_by(BLOCK_ROWS) {
            let rows = first..n_rows.min(first + BLOCK_ROWS);
            for (i, arranged) in rows.clone().zip(block.chunks_exact_mut(k.max(1))) {
                match self.source_row(i) {
                    Some(source) => row(source, &mut values),
                    None => values.fill(0.0),
                }
                for (arranged, value) in arranged.iter_mut().zip(&values) {
                    *arranged = bf16::from_f32(value + offset);
                }
            }
            let block = &block[..k * rows.len()];
            if let WeightLayout::Transposed { .. } = self {
                transpose(block, k, &mut out[first..], n);
            } else {
                out[first * k..][..block.len()].copy_from_slice(block);
            }
        }
    }
}

/// A vector that the host adds to every row of a product that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bias {
    /// The vector, one element a column of the product.
    pub weight: WeightId,
    /// With a head's elements: it is put from interleaved to half-split order, as the rows of the weight are.
    pub half_split: Option<usize>,
}

impl Bias {
    /// Adds the vector, `stored` as the checkpoint has it, to rows as wide as it.
    pub fn add(&self, stored: &[f32], rows: &mut [f32]) {
        let order = WeightLayout::AsStored {
            half_split: self.half_split,
        };
        let from = |column| order.source_row(column).and_then(|from| stored.get(from));
        let columns: Vec<f32> = (0..stored.len()).filter_map(from).copied().collect();
        for row in rows.chunks_exact_mut(columns.len().max(1)) {
            row.iter_mut()
                .zip(&columns)
                .for_each(|(x, bias)| *x += bias);
        }
    }
}

/// Rows arranged at a time: their columns are whole cache lines of a transposed matrix.
const BLOCK_ROWS: usize = 32;

/// Writes rows of `k` elements as columns of a matrix with `n` columns.
fn transpose(rows: &[bf16], k: usize, out: &mut [bf16], n: usize) {
    for (j, line) in out.chunks_mut(n).take(k).enumerate() {
        let column = rows.iter().skip(j).step_by(k.max(1));
        line.iter_mut().zip(column).for_each(|(out, v)| *out = *v);
    }
}

/// Row of an interleaved head that is row `row` in half-split order: the first halves of all pairs,
/// then the second halves.
fn interleaved(row: usize, head_dim: usize) -> usize {
    let (head, i) = (row / head_dim, row % head_dim);
    let half = head_dim / 2;
    let within = if i < half { 2 * i } else { 2 * (i - half) + 1 };
    head * head_dim + within
}

/// Rows of a RoPE table: each token's row is repeated for each of its heads, because a rotation treats heads as rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TableRows {
    /// Positions, consecutive.
    pub n_tokens: usize,
    /// Heads of a token.
    pub n_heads: usize,
}

/// The table of positions `first ..`: rows `[n_tokens · n_heads]`, each the cosines of the
/// `n_rot / 2` frequencies and then their sines, times the attention factor. Angles are f32
/// products as in transformers' rotary embedding.
pub fn rope_table(rope: &Rope, rows: TableRows, first: usize) -> Vec<bf16> {
    let width = 2 * rope.inv_freq.len();
    let mut table = Vec::with_capacity(rows.n_tokens * rows.n_heads * width);
    for position in first..first + rows.n_tokens {
        let angles = || rope.inv_freq.iter().map(|f| position as f32 * f);
        let scaled = |x: f32| bf16::from_f32(x * rope.attention_factor);
        let start = table.len();
        table.extend(angles().map(|a| scaled(a.cos())));
        table.extend(angles().map(|a| scaled(a.sin())));
        for _ in 1..rows.n_heads {
            table.extend_from_within(start..start + width);
        }
    }
    table
}

/// Element type of a cache's slot. A slot of bytes holds bf16: cores take its bytes as they take blocks of weights.
pub fn cache_element(slot: &Slot) -> Element {
    match slot.element {
        Element::U8 => Element::Bf16,
        element => element,
    }
}

/// A position as a slot of [`Binding::Position`](crate::Binding::Position) holds it: in base 256,
/// lowest digit first, then zeros up to `n_elems`. Digits that small are exact in every element type.
pub fn position_slot(position: u32, n_elems: usize) -> Vec<bf16> {
    let digits = position.to_le_bytes();
    let digits = digits.iter().map(|&digit| bf16::from_f32(digit.into()));
    let mut slot: Vec<bf16> = digits.take(n_elems).collect();
    slot.resize(n_elems, bf16::ZERO);
    slot
}

/// The same with an image among the pass's tokens. Four numbers follow each other, in four digits each. They are the
/// position, the first key that counts (0), the position of the image's first row, and the position behind its last row.
pub fn position_and_image(position: u32, image: Range<u32>, n_elems: usize) -> Vec<bf16> {
    let numbers = [position, 0, image.start, image.end];
    let mut slot: Vec<bf16> = numbers.iter().flat_map(|n| position_slot(*n, 4)).collect();
    slot.resize(n_elems, bf16::ZERO);
    slot
}

/// The rows of a cache that a pass reaches where its layer has a window. They begin with the first key that
/// its first token sees, or some before it, at a whole number of `unit` positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyRange {
    /// Keys that a token sees, its own the last; at least 1.
    pub window: u64,
    /// Unit that the first row's position is a multiple of; at least 1.
    pub unit: u64,
}

impl KeyRange {
    /// Position of the first row for a pass whose first token is at `first`. It is negative where the window reaches
    /// before position 0; the first rows then belong to no token.
    pub fn start(&self, first: usize) -> i64 {
        let reached = (first as i64).saturating_add(1) - self.window.min(1 << 62) as i64;
        let unit = self.unit.clamp(1, 1 << 62) as i64;
        reached.div_euclid(unit).saturating_mul(unit)
    }

    /// The first token's row, `window - 1` to `window + unit - 2`.
    pub fn row(&self, first: usize) -> usize {
        (first as i64).saturating_sub(self.start(first)) as usize
    }

    /// The first row that belongs to a token.
    pub fn oldest(&self, first: usize) -> usize {
        self.start(first).min(0).unsigned_abs() as usize
    }

    /// Position of a pass among its rows, as a slot of [`Binding::RangePosition`](crate::Binding::RangePosition) holds it:
    /// its first token's row and the first row that belongs to a token. Each has four digits, as [`position_slot`] has them;
    /// zeros follow.
    pub fn slot(&self, first: usize, n_elems: usize) -> Vec<bf16> {
        let digits = [self.row(first), self.oldest(first)];
        let digits = digits.map(|row| position_slot(row as u32, 4)).concat();
        let mut slot: Vec<bf16> = digits.into_iter().take(n_elems).collect();
        slot.resize(n_elems, bf16::ZERO);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_graph::RopeStyle;

    fn arranged(layout: WeightLayout, [n, k]: [usize; 2]) -> Vec<f32> {
        let mut out = vec![bf16::NAN; layout.n_elements([n, k]).unwrap_or(0)];
        let row = |i: usize, row: &mut [f32]| {
            for (j, value) in row.iter_mut().enumerate() {
                *value = (i * k + j) as f32;
            }
        };
        layout.arrange([n, k], row, &mut out);
        out.into_iter().map(f32::from).collect()
    }

    #[test]
    fn transposed_over_several_blocks() {
        let (n, k) = (2 * BLOCK_ROWS + 3, 3);
        let transposed = arranged(WeightLayout::Transposed { half_split: None }, [n, k]);
        for (at, value) in transposed.into_iter().enumerate() {
            assert_eq!(value, ((at % n) * k + at / n) as f32);
        }
    }

    #[test]
    fn parts_are_padded_with_zeros() {
        let layout = WeightLayout::Rows {
            start: 2,
            len: 1,
            padded_to: 3,
        };
        assert_eq!(arranged(layout, [3, 2]), [4.0, 5.0, 0.0, 0.0, 0.0, 0.0]);
        let layout = WeightLayout::Vector { offset: 1.0 };
        assert_eq!(arranged(layout, [1, 3]), [1.0, 2.0, 3.0]);
    }

    /// Rotating neighbours and then reordering equals reordering and then rotating halves.
    #[test]
    fn half_split_order_fits_half_split_rotation() {
        let head_dim = 8;
        let layout = WeightLayout::AsStored {
            half_split: Some(head_dim),
        };
        let angle = |pair: usize| 0.3 + pair as f32;
        let x: Vec<f32> = (0..2 * head_dim).map(|i| (i as f32).sin()).collect();
        let pair = |a: f32, b: f32, i: usize| {
            let (sin, cos) = angle(i).sin_cos();
            [a * cos - b * sin, a * sin + b * cos]
        };
        let mut neighbours = x.clone();
        for (i, ab) in neighbours.chunks_exact_mut(2).enumerate() {
            ab.copy_from_slice(&pair(ab[0], ab[1], i % (head_dim / 2)));
        }
        let order = |x: &[f32]| -> Vec<f32> {
            let source = |row| x[layout.source_row(row).unwrap_or(0)];
            (0..x.len()).map(source).collect()
        };
        let mut halves = order(&x);
        for head in halves.chunks_exact_mut(head_dim) {
            for i in 0..head_dim / 2 {
                [head[i], head[i + head_dim / 2]] = pair(head[i], head[i + head_dim / 2], i);
            }
        }
        assert_eq!(halves, order(&neighbours));
    }

    /// Two heads of four, by hand: a column's bias is that of the row of the weight it came from.
    #[test]
    fn a_bias_follows_the_rows_of_its_weight() {
        let stored = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let mut rows = [10.0; 16];
        let bias = Bias {
            weight: WeightId(0),
            half_split: Some(4),
        };
        bias.add(&stored, &mut rows);
        let row = [10.0, 12.0, 11.0, 13.0, 14.0, 16.0, 15.0, 17.0];
        assert_eq!(rows, [row, row].concat()[..]);
        let as_stored = Bias {
            half_split: None,
            ..bias
        };
        as_stored.add(&stored, &mut rows);
        assert_eq!(rows[..4], [10.0, 13.0, 13.0, 16.0]);
    }

    #[test]
    fn positions_are_spelled_in_digits_that_bf16_holds() {
        for position in [0, 1, 255, 256, 131_071, u32::MAX] {
            let slot = position_slot(position, 16);
            let digits = slot.iter().rev();
            let read = digits.fold(0.0, |read, digit| 256.0 * read + digit.to_f64());
            assert_eq!((read, slot.len()), (f64::from(position), 16));
        }
    }

    #[test]
    fn table_rows_are_repeated_for_heads() {
        let rope = Rope {
            style: RopeStyle::HalfSplit,
            n_rot: 4,
            inv_freq: vec![1.0, 0.5],
            attention_factor: 2.0,
        };
        let rows = TableRows {
            n_tokens: 2,
            n_heads: 3,
        };
        let table = rope_table(&rope, rows, 5);
        assert_eq!(table.len(), 2 * 3 * 4);
        let row = |position: f32| {
            let angles = [position, position * 0.5];
            let cos = angles.map(|a| bf16::from_f32(2.0 * a.cos()));
            [cos, angles.map(|a| bf16::from_f32(2.0 * a.sin()))].concat()
        };
        for (i, found) in table.chunks(4).enumerate() {
            assert_eq!(found, row(if i < 3 { 5.0 } else { 6.0 }));
        }
    }

    #[test]
    fn a_pass_reaches_its_window_from_a_whole_unit_on() {
        let range = KeyRange {
            window: 512,
            unit: 16,
        };
        for first in [0, 1, 510, 511, 512, 2047, 2048, 100_003] {
            let start = range.start(first);
            assert_eq!(start.rem_euclid(16), 0);
            assert!((511..=526).contains(&range.row(first)), "{first}");
            assert_eq!(start + range.row(first) as i64, first as i64);
            assert_eq!(range.oldest(first) as i64, (-start).max(0));
        }
        assert_eq!((range.start(0), range.oldest(0)), (-512, 512));
        assert_eq!((range.start(600), range.oldest(600)), (80, 0));
        let slot: Vec<f32> = range.slot(0, 10).into_iter().map(f32::from).collect();
        assert_eq!(slot, [0.0, 2.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
