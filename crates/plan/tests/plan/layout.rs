//! How weights, biases and positions are arranged in slots.

use half::bf16;
use millrace_graph::WeightId;
use millrace_plan::{
    Bias, KeyRange, WeightArrangement, WeightLayout, position_and_image, position_slot,
};
use proptest::prelude::*;

/// Layouts that put rows of heads in half-split order.
fn ordered(half_split: Option<usize>) -> [WeightLayout; 3] {
    [
        WeightLayout::AsStored { half_split },
        WeightLayout::Transposed { half_split },
        WeightLayout::Own {
            id: WeightArrangement(9),
            half_split,
        },
    ]
}

/// A matrix whose elements equal their index: exact in bf16 up to 256.
fn arranged(layout: &WeightLayout, [n, k]: [usize; 2]) -> (Vec<f32>, Vec<usize>) {
    let n_elements = layout.n_elements([n, k]).expect("a common layout");
    let mut out = vec![bf16::NAN; n_elements];
    let mut asked = Vec::new();
    let row = |i: usize, row: &mut [f32]| {
        asked.push(i);
        for (j, value) in row.iter_mut().enumerate() {
            *value = (i * k + j) as f32;
        }
    };
    layout.arrange([n, k], row, &mut out);
    (out.into_iter().map(f32::from).collect(), asked)
}

proptest! {
    /// Half-split order takes each row of the checkpoint once, and each head's rows from that head.
    #[test]
    fn source_rows_are_a_permutation_within_heads(n_heads in 1..9_usize, half in 1..65_usize) {
        let head_dim = 2 * half;
        for layout in ordered(Some(head_dim)) {
            let rows: Vec<usize> =
                (0..n_heads * head_dim).filter_map(|row| layout.source_row(row)).collect();
            let mut sorted = rows.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..n_heads * head_dim).collect::<Vec<_>>());
            for (row, source) in rows.iter().enumerate() {
                prop_assert_eq!(row / head_dim, source / head_dim);
                // Rows that rotate together are half a head apart, and were neighbours.
                if row % head_dim < half {
                    prop_assert_eq!(source % 2, 0);
                    prop_assert_eq!(rows[row + half], source + 1);
                }
            }
        }
    }

    /// Without heads, rows stay where they are.
    #[test]
    fn without_heads_rows_stay(row in 0..10_000_usize) {
        for layout in ordered(None) {
            prop_assert_eq!(layout.source_row(row), Some(row));
        }
        prop_assert_eq!(WeightLayout::Vector { offset: 0.5 }.source_row(row), Some(row));
    }

    /// Part of a matrix: its rows from the first on, then zeros; each row is requested once.
    #[test]
    fn a_part_has_its_rows_and_zeros(start in 0..10_usize, len in 0..20_usize, more in 0..40_usize, k in 1..4_usize) {
        let layout = WeightLayout::Rows { start, len, padded_to: len + more };
        let n = start + len;
        let (found, asked) = arranged(&layout, [n, k]);
        prop_assert_eq!(found.len(), (len + more) * k);
        prop_assert_eq!(asked, (start..start + len).collect::<Vec<_>>());
        for (at, value) in found.iter().enumerate() {
            let expected = if at < len * k { start * k + at } else { 0 };
            prop_assert_eq!(*value, expected as f32);
        }
        for row in 0..len + more {
            prop_assert_eq!(layout.source_row(row), (row < len).then_some(start + row));
        }
    }

    /// A transposed matrix has the same elements as the stored one, across several blocks of rows.
    #[test]
    fn transposing_moves_and_changes_nothing(n_heads in 1..12_usize, half in 1..5_usize, k in 1..3_usize, is_split: bool) {
        let head_dim = 2 * half;
        let n = n_heads * head_dim;
        prop_assume!(n * k <= 256);
        let half_split = is_split.then_some(head_dim);
        let (rows, asked) = arranged(&WeightLayout::AsStored { half_split }, [n, k]);
        let (columns, _) = arranged(&WeightLayout::Transposed { half_split }, [n, k]);
        prop_assert_eq!(asked.len(), n);
        for row in 0..n {
            for column in 0..k {
                prop_assert_eq!(rows[row * k + column], columns[column * n + row]);
            }
        }
    }

    /// A bias that follows the rows of its weight: W·x + b, then half-split order, is the ordered W times x, plus the bias.
    #[test]
    fn a_bias_moves_with_the_rows_of_its_weight(n_heads in 1..5_usize, half in 1..9_usize, seed: u32) {
        let head_dim = 2 * half;
        let n = n_heads * head_dim;
        let value = |i: usize| (seed.wrapping_mul(2_654_435_761).wrapping_add(i as u32 * 40_503) % 97) as f32;
        let products: Vec<f32> = (0..n).map(value).collect();
        let stored: Vec<f32> = (n..2 * n).map(value).collect();
        let order = WeightLayout::AsStored { half_split: Some(head_dim) };
        let source = |row: usize| order.source_row(row).expect("a row");
        let expected: Vec<f32> =
            (0..n).map(|row| products[source(row)] + stored[source(row)]).collect();
        let mut found: Vec<f32> = (0..n).map(|row| products[source(row)]).collect();
        let bias = Bias { weight: WeightId(0), half_split: Some(head_dim) };
        bias.add(&stored, &mut found);
        prop_assert_eq!(found, expected);
    }

    /// Digits that bf16 holds exactly spell every position; further elements are zeros.
    #[test]
    fn positions_are_read_back(position: u32, n_elems in 4..40_usize) {
        let slot = position_slot(position, n_elems);
        prop_assert_eq!(slot.len(), n_elems);
        prop_assert_eq!(spelled(&slot[..4]), u64::from(position));
        prop_assert!(slot[4..].iter().all(|digit| *digit == bf16::ZERO));
    }

    #[test]
    fn images_are_read_back(position: u32, start in 0..1_000_000_u32, len in 0..1000_u32, more in 0..9_usize) {
        let slot = position_and_image(position, start..start + len, 16 + more);
        let numbers: Vec<u64> = slot[..16].chunks(4).map(spelled).collect();
        let expected = [position, 0, start, start + len].map(u64::from);
        prop_assert_eq!(numbers, expected);
        prop_assert!(slot[16..].iter().all(|digit| *digit == bf16::ZERO));
    }

    /// The rows that a pass reaches hold every key that its first token sees. They start at a whole unit, and are as
    /// few as that allows.
    #[test]
    fn a_window_is_reached_whole(window in 1..5000_u64, unit in 1..600_u64, first in positions()) {
        let range = KeyRange { window, unit };
        let start = range.start(first);
        let oldest_seen = first as i64 + 1 - window as i64;
        prop_assert_eq!(start.rem_euclid(unit as i64), 0);
        prop_assert!(start <= oldest_seen && oldest_seen - start < unit as i64);
        prop_assert_eq!(start + range.row(first) as i64, first as i64);
        // Rows before position 0 belong to no token.
        prop_assert_eq!(start + range.oldest(first) as i64, start.max(0));
        let slot = range.slot(first, 12);
        prop_assert_eq!(spelled(&slot[..4]), range.row(first) as u64);
        prop_assert_eq!(spelled(&slot[4..8]), range.oldest(first) as u64);
        prop_assert!(slot[8..].iter().all(|digit| *digit == bf16::ZERO));
    }

    /// Passes that follow each other reach rows that never go back.
    #[test]
    fn a_window_moves_forward(window in 1..500_u64, unit in 1..60_u64, first in 0..10_000_usize) {
        let range = KeyRange { window, unit };
        let (here, next) = (range.start(first), range.start(first + 1));
        prop_assert!(next == here || next == here + unit as i64);
    }
}

/// Positions within a window and far behind it.
fn positions() -> impl Strategy<Value = usize> {
    prop_oneof![0..5000_usize, 0..1_000_000_usize]
}

/// The number that digits in base 256 spell, the lowest first.
fn spelled(digits: &[bf16]) -> u64 {
    digits
        .iter()
        .rev()
        .fold(0, |n, digit| 256 * n + digit.to_f32() as u64)
}

#[test]
fn only_the_target_knows_the_size_of_its_own_layout() {
    let sizes = |layout: WeightLayout| layout.n_elements([6, 4]);
    let [as_stored, transposed, own] = ordered(None).map(sizes);
    assert_eq!((as_stored, transposed, own), (Some(24), Some(24), None));
    let rows = WeightLayout::Rows {
        start: 1,
        len: 2,
        padded_to: 5,
    };
    assert_eq!(sizes(rows), Some(20));
}

#[test]
fn windows_without_end_do_not_overflow() {
    for (window, unit) in [(u64::MAX, 1), (u64::MAX, u64::MAX), (1, u64::MAX), (0, 0)] {
        let range = KeyRange { window, unit };
        for first in [0, 1, u32::MAX as usize] {
            assert!(range.start(first) <= first as i64 + 1, "{range:?} {first}");
            assert_eq!(range.slot(first, 8).len(), 8);
        }
    }
}
