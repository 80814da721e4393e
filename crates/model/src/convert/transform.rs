//! What a conversion does to the numbers of a tensor besides storing them in another format.

use crate::names::permutation;

/// Which way rows of Q and K are brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// From Hugging Face's order to GGUF's: the rows that RoPE rotates together become neighbours.
    Interleave,
    /// The way back.
    SplitHalves,
}

/// A change of row order inside each head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permutation {
    /// Rows of a head.
    pub head_dim: usize,
    /// Which way.
    pub order: RowOrder,
}

impl Permutation {
    /// Row `i` of a head comes from row `sources()[i]` of the same head.
    fn sources(self) -> Vec<usize> {
        let interleaved = permutation(1, self.head_dim);
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

/// `out = scale · permuted(source) + offset`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transform {
    /// Order of rows.
    pub permutation: Option<Permutation>,
    /// Factor, 1 but for embeddings that one layout stores scaled.
    pub scale: f32,
    /// Added, 0 but for norms that one layout stores as `1 + w`.
    pub offset: f32,
}

impl Transform {
    /// Changes nothing.
    pub const NONE: Transform = Transform {
        permutation: None,
        scale: 1.0,
        offset: 0.0,
    };

    /// Rows that must be transformed together: any multiple of this, from a multiple on.
    pub(super) fn row_group(self) -> usize {
        self.permutation
            .map_or(1, |permutation| permutation.head_dim)
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
        let permutation = Some(Permutation { head_dim: 8, order });
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
    fn the_two_orders_undo_each_other() {
        let before: Vec<f32> = (0..24 * 5).map(|i| (i as f32).sin()).collect();
        let mut rows = before.clone();
        permute(RowOrder::Interleave, &mut rows, 5);
        assert_ne!(rows, before);
        permute(RowOrder::SplitHalves, &mut rows, 5);
        assert_eq!(rows, before);
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
