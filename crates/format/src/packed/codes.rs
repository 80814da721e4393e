//! Small integers in the words of packed matrices.

use super::stored::CodePlace;

/// The nibble of a word that holds each of eight neighbours in AWQ's order.
const AWQ_NIBBLES: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Layout of a matrix of `n` rows and `k` columns in words, or in bytes. Words hold the lowest bits first.
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
    /// As that, in AWQ's order.
    Awq,
    /// A signed byte each: `[n, k]`.
    Bytes,
}

/// Small integers in a file.
#[derive(Clone, Debug)]
pub(super) struct Codes {
    pub(super) place: CodePlace,
    pub(super) layout: CodeLayout,
    /// Bits of a code: 4 or 8.
    pub(super) bits: usize,
}

impl Codes {
    /// Rows from `first` on, a multiple of eight, of a matrix of `n` rows and `k` columns, as unsigned numbers; `out` is
    /// whole rows. `bytes` are those of its place.
    pub(super) fn read(&self, bytes: &[u8], [n, k]: [usize; 2], first: usize, out: &mut [u8]) {
        let (words, _) = bytes.as_chunks::<4>();
        match self.layout {
            CodeLayout::Bytes => {
                let bytes = &bytes[first * k..];
                out.iter_mut()
                    .zip(bytes)
                    .for_each(|(out, byte)| *out = byte ^ 128);
            }
            CodeLayout::AlongRows | CodeLayout::AlongRowsTurned => {
                self.along_rows(words, [n, k], first, out);
            }
            CodeLayout::AlongColumns | CodeLayout::AlongColumnsTurned | CodeLayout::Awq => {
                self.along_columns(words, [n, k], first, out);
            }
        }
    }

    fn per_word(&self) -> usize {
        32 / self.bits
    }

    /// Code `i` of a word.
    fn code(&self, word: [u8; 4], i: usize) -> u8 {
        (u32::from_le_bytes(word) >> (i * self.bits)) as u8 & (255 >> (8 - self.bits))
    }

    /// Words are read in file order.
    fn along_rows(&self, words: &[[u8; 4]], [n, k]: [usize; 2], first: usize, out: &mut [u8]) {
        let (n_rows, n_words) = (out.len() / k.max(1), k.div_ceil(self.per_word()));
        let is_turned = self.layout == CodeLayout::AlongRowsTurned;
        let (outer, inner) = match is_turned {
            true => (n_words, n_rows),
            false => (n_rows, n_words),
        };
        for outer in 0..outer {
            for inner in 0..inner {
                let (row, at) = match is_turned {
                    true => (inner, outer),
                    false => (outer, inner),
                };
                let word = words[match is_turned {
                    true => at * n + first + row,
                    false => (first + row) * n_words + at,
                }];
                let end = k.min((at + 1) * self.per_word());
                let out = &mut out[row * k..][at * self.per_word()..end];
                for (i, out) in out.iter_mut().enumerate() {
                    *out = self.code(word, i);
                }
            }
        }
    }

    fn along_columns(&self, words: &[[u8; 4]], [n, k]: [usize; 2], first: usize, out: &mut [u8]) {
        let per_word = self.per_word();
        let (n_rows, n_words) = (out.len() / k.max(1), n.div_ceil(per_word));
        for column in 0..k {
            for row in (0..n_rows).step_by(per_word) {
                let at = (first + row) / per_word;
                let word = words[match self.layout {
                    CodeLayout::AlongColumns => at * k + column,
                    _ => column * n_words + at,
                }];
                for i in 0..per_word.min(n_rows - row) {
                    let place = match self.layout {
                        CodeLayout::Awq => AWQ_NIBBLES[i],
                        _ => i,
                    };
                    out[(row + i) * k + column] = self.code(word, place);
                }
            }
        }
    }
}
