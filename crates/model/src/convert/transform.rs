//! Transformations of a tensor's numbers in a conversion, besides storing them in another format.

use crate::names::permutation;

/// Direction of a reordering of rows of Q and K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// From Hugging Face's order to GGUF's: the rows that RoPE rotates together become neighbours.
    Interleave,
    /// The inverse.
    SplitHalves,
}

/// A change of row order inside each head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permutation {
    /// Rows of a head.
    pub head_dim: usize,
    /// Rows that RoPE rotates, from the first on; the others stay.
    pub n_rot: usize,
    /// Direction.
    pub order: RowOrder,
}

impl Permutation {
    /// Row `i` of a head comes from row `sources()[i]` of the same head.
    pub(crate) fn sources(self) -> Vec<usize> {
        let mut interleaved = permutation(1, self.n_rot);
        interleaved.extend(self.n_rot..self.head_dim);
        match self.order {
            RowOrder::Interleave => interleaved,
            RowOrder::SplitHalves => {
                let mut inverse = vec![0; interleaved.len()];
                for (to, &from) in interleaved.iter().enumerate() {
                    inverse[from] = to;
                }
                inverse
            }
        }
    }
}

/// A change of the order of value heads: those of a key head adjacent, or one of each key head in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadOrder {
    /// Whether the heads divide rows, not columns.
    pub by_rows: bool,
    /// Rows or columns before the first head.
    pub first: usize,
    /// Key heads.
    pub n_groups: usize,
    /// Value heads of a key head.
    pub group: usize,
    /// Rows or columns of a head.
    pub head_dim: usize,
    /// Whether the result has one head of each key head in turn.
    pub to_tiled: bool,
}

impl HeadOrder {
    fn len(self) -> usize {
        self.first + self.n_groups * self.group * self.head_dim
    }

    /// Source of row or column `at`.
    fn source(self, at: usize) -> usize {
        let Some(at) = at.checked_sub(self.first) else {
            return at;
        };
        let (head, within) = (at / self.head_dim, at % self.head_dim);
        let head = match self.to_tiled {
            true => head % self.n_groups * self.group + head / self.n_groups,
            false => head % self.group * self.n_groups + head / self.group,
        };
        self.first + head * self.head_dim + within
    }

    fn apply(self, rows: &mut [f32], k: usize) {
        let before = rows.to_vec();
        for (row, out) in rows.chunks_exact_mut(k).enumerate() {
            if self.by_rows {
                out.copy_from_slice(&before[self.source(row) * k..][..k]);
                continue;
            }
            for (column, x) in out.iter_mut().enumerate() {
                *x = before[row * k + self.source(column)];
            }
        }
    }
}

/// A function that a conversion applies to each number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberMap {
    /// The number itself.
    Same,
    /// `-e^x`.
    NegatedExp,
    /// `ln(-x)`.
    LogOfNegated,
}

/// `out = scale · map(permuted(source)) + offset`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transform {
    /// Order of rows.
    pub permutation: Option<Permutation>,
    /// Order of value heads.
    pub heads: Option<HeadOrder>,
    /// The function of each number.
    pub map: NumberMap,
    /// Factor, 1 but for embeddings that one layout stores scaled, and for factors that one layout folds into weights.
    pub scale: f32,
    /// Added, 0 but for norms that one layout stores as `1 + w`.
    pub offset: f32,
}

impl Transform {
    /// Changes nothing.
    pub const NONE: Transform = Transform {
        permutation: None,
        heads: None,
        map: NumberMap::Same,
        scale: 1.0,
        offset: 0.0,
    };

    /// Rows that must be transformed together: any multiple of this, from a multiple on.
    pub(super) fn row_group(self) -> usize {
        let heads = self.heads.filter(|heads| heads.by_rows);
        let all = heads.map(HeadOrder::len);
        all.or(self.permutation.map(|permutation| permutation.head_dim))
            .unwrap_or(1)
    }

    /// Transforms whole groups of rows of `k` elements in place.
    pub(super) fn apply(self, rows: &mut [f32], k: usize) {
        if let Some(permutation) = self.permutation {
            let sources = permutation.sources();
            let mut head = vec![0.0; permutation.head_dim * k];
            for rows in rows.chunks_exact_mut(head.len()) {
                head.copy_from_slice(rows);
                for (to, &from) in rows.chunks_exact_mut(k).zip(&sources) {
                    to.copy_from_slice(&head[from * k..][..k]);
                }
            }
        }
        if let Some(heads) = self.heads {
            heads.apply(rows, k);
        }
        match self.map {
            NumberMap::Same => {}
            NumberMap::NegatedExp => rows.iter_mut().for_each(|x| *x = -x.exp()),
            NumberMap::LogOfNegated => rows.iter_mut().for_each(|x| *x = (-*x).ln()),
        }
        if self.scale != 1.0 || self.offset != 0.0 {
            for v in rows {
                *v = *v * self.scale + self.offset;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permute(order: RowOrder, rows: &mut [f32], k: usize) {
        let permutation = Some(Permutation {
            head_dim: 8,
            n_rot: 8,
            order,
        });
        Transform {
            permutation,
            ..Transform::NONE
        }
        .apply(rows, k);
    }

    #[test]
    fn interleaving_pairs_the_rows_that_rope_rotates() {
        // One element a row: two heads of eight rows.
        let mut rows: Vec<f32> = (0..16).map(|i| i as f32).collect();
        permute(RowOrder::Interleave, &mut rows, 1);
        let head = [0.0, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0];
        assert_eq!(rows[..8], head);
        assert_eq!(rows[8..], head.map(|v| v + 8.0));
    }

    #[test]
    fn rows_that_do_not_rotate_stay() {
        let sources = |order| {
            let permutation = Permutation {
                head_dim: 8,
                n_rot: 4,
                order,
            };
            permutation.sources()
        };
        assert_eq!(sources(RowOrder::Interleave), [0, 2, 1, 3, 4, 5, 6, 7]);
        assert_eq!(sources(RowOrder::SplitHalves), [0, 2, 1, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn the_two_orders_undo_each_other() {
        let before: Vec<f32> = (0..24 * 5).map(|i| (i as f32).sin()).collect();
        let mut rows = before.clone();
        permute(RowOrder::Interleave, &mut rows, 5);
        assert_ne!(rows, before);
        permute(RowOrder::SplitHalves, &mut rows, 5);
        assert_eq!(rows, before);
    }

    #[test]
    fn heads_come_one_of_each_group_in_turn_and_back() {
        let order = |by_rows, to_tiled| Transform {
            heads: Some(HeadOrder {
                by_rows,
                first: 2,
                n_groups: 2,
                group: 3,
                head_dim: 2,
                to_tiled,
            }),
            ..Transform::NONE
        };
        let before: Vec<f32> = (0..14).map(|i| i as f32).collect();
        let mut rows = before.clone();
        order(true, true).apply(&mut rows, 1);
        let tiled = [0, 1, 2, 3, 8, 9, 4, 5, 10, 11, 6, 7, 12, 13].map(|i| i as f32);
        assert_eq!(rows, tiled);
        assert_eq!(order(true, true).row_group(), 14);
        order(true, false).apply(&mut rows, 1);
        assert_eq!(rows, before);
        // The same along columns, of two rows.
        let mut rows = [before.clone(), before.clone()].concat();
        order(false, true).apply(&mut rows, 14);
        assert_eq!(rows, [tiled, tiled].concat());
        assert_eq!(order(false, true).row_group(), 1);
    }

    #[test]
    fn scale_comes_before_offset() {
        let mut rows = [1.0, -2.0];
        Transform {
            scale: 3.0,
            offset: 0.5,
            ..Transform::NONE
        }
        .apply(&mut rows, 2);
        assert_eq!(rows, [3.5, -5.5]);
    }
}
