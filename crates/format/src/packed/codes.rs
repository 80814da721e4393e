//! Small integers in the words of packed matrices.

use super::stored::Place;

/// The nibble of a word that holds each of eight neighbours in AWQ's order.
const AWQ_NIBBLES: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// How a matrix of `n` rows and `k` columns lies in words, or in bytes. Words hold the lowest bits first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeLayout {
    /// A word holds neighbours of a row: `[n, words]`.
    AlongRows,
    /// A word holds neighbours of a row: `[words, n]`.
    AlongRowsTurned,
    /// A word holds neighbours of a column: `[words, k]`.
    AlongColumns,
    /// A word holds neighbours of a column: `[k, words]`.
    AlongColumnsTurned,
    /// So, in AWQ's order.
    Awq,
    /// A signed byte each: `[n, k]`.
    Bytes,
}

/// Small integers in a file.
#[derive(Clone, Debug)]
pub(super) struct Codes {
    pub(super) place: Place,
    pub(super) layout: CodeLayout,
    /// Of a code: 4 or 8.
    pub(super) bits: usize,
}

impl Codes {
    /// Rows from `first` on of a matrix of `n` rows and `k` columns, as unsigned numbers; `out` is whole rows.
    /// `bytes` are those of its place.
    pub(super) fn read(&self, bytes: &[u8], [n, k]: [usize; 2], first: usize, out: &mut [u8]) {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |at: usize| u32::from_le_bytes(words[at]);
        let per_word = 32 / self.bits;
        let code = |word: u32, i: usize| (word >> (i * self.bits)) as u8 & (255 >> (8 - self.bits));
        let n_rows = out.len() / k.max(1);
        match self.layout {
            CodeLayout::Bytes => {
                let bytes = &bytes[first * k..];
                out.iter_mut()
                    .zip(bytes)
                    .for_each(|(out, byte)| *out = byte ^ 128);
            }
            // A tile's words are read in the order in which they lie.
            CodeLayout::AlongRows | CodeLayout::AlongRowsTurned => {
                let n_words = k.div_ceil(per_word);
                let is_turned = self.layout == CodeLayout::AlongRowsTurned;
                let (outer, inner) = if is_turned {
                    (n_words, n_rows)
                } else {
                    (n_rows, n_words)
                };
                for outer in 0..outer {
                    for inner in 0..inner {
                        let (row, i) = if is_turned {
                            (inner, outer)
                        } else {
                            (outer, inner)
                        };
                        let word = word(match is_turned {
                            true => i * n + first + row,
                            false => (first + row) * n_words + i,
                        });
                        let end = k.min((i + 1) * per_word);
                        let out = &mut out[row * k..][i * per_word..end];
                        out.iter_mut()
                            .enumerate()
                            .for_each(|(i, out)| *out = code(word, i));
                    }
                }
            }
            CodeLayout::AlongColumns | CodeLayout::AlongColumnsTurned | CodeLayout::Awq => {
                let n_words = n.div_ceil(per_word);
                for column in 0..k {
                    for row in 0..n_rows {
                        let (at, i) = ((first + row) / per_word, (first + row) % per_word);
                        let word = word(match self.layout {
                            CodeLayout::AlongColumns => at * k + column,
                            _ => column * n_words + at,
                        });
                        let i = match self.layout {
                            CodeLayout::Awq => AWQ_NIBBLES[i],
                            _ => i,
                        };
                        out[row * k + column] = code(word, i);
                    }
                }
            }
        }
    }
}
