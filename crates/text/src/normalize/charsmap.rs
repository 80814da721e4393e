//! SentencePiece's `precompiled_charsmap`: which characters become which.
//!
//! The bytes are the length of a double array (Darts-clone, units of 32 bits, little endian), the array, and
//! behind it replacements that each end with a zero byte. The array is a trie from texts to places among the
//! replacements.

use crate::Error;
use std::ops::Range;
use unicode_segmentation::UnicodeSegmentation;

/// A map of characters.
#[derive(Debug)]
pub(crate) struct Charsmap {
    units: Vec<u32>,
    replacements: String,
    /// The longest replacement in bytes.
    longest_bytes: usize,
}

/// Clusters of fewer bytes are looked up as a whole (`tokenizers`, `Precompiled`).
const WHOLE_CLUSTER_BYTES: usize = 6;

impl Charsmap {
    /// Reads a map.
    ///
    /// # Errors
    /// [`Error::Charsmap`] for bytes of another shape.
    pub(crate) fn new(bytes: &[u8]) -> Result<Charsmap, Error> {
        let wrong = |reason: String| Error::Charsmap { reason };
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
            let n = bytes.len();
            return Err(wrong(format!("{n} bytes, expected at least 4")));
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > rest.len() || !length.is_multiple_of(4) {
            let n = rest.len();
            return Err(wrong(format!(
                "its array is said to take {length} bytes of {n}; expected a multiple of 4 that fits"
            )));
        }
        let (units, replacements) = rest.split_at(length);
        let (units, _) = units.as_chunks::<4>();
        let replacements = std::str::from_utf8(replacements)
            .map_err(|error| wrong(format!("its replacements are no UTF-8: {error}")))?;
        let lengths = replacements.split('\0').map(str::len);
        Ok(Charsmap {
            units: units.iter().map(|unit| u32::from_le_bytes(*unit)).collect(),
            longest_bytes: lengths.max().unwrap_or(0),
            replacements: replacements.to_owned(),
        })
    }

    /// The longest replacement in bytes.
    pub(crate) fn longest_bytes(&self) -> usize {
        self.longest_bytes
    }

    /// Calls `found` for every text of the map that a text begins with, the shortest first, with
    /// its length and the range of its replacement. Continues while `found` returns true.
    fn each(&self, text: &str, mut found: impl FnMut(usize, Range<usize>) -> bool) {
        let unit = |place: u32| self.units.get(place as usize).copied();
        let offset = |unit: u32| (unit >> 10) << ((unit & (1 << 9)) >> 6);
        let Some(root) = unit(0) else { return };
        let mut place = offset(root);
        for (at, byte) in text.bytes().enumerate().take_while(|(_, byte)| *byte != 0) {
            place ^= u32::from(byte);
            let Some(node) = unit(place).filter(|node| node & 0x8000_00FF == u32::from(byte))
            else {
                return;
            };
            place ^= offset(node);
            if (node >> 8) & 1 == 0 {
                continue;
            }
            let Some(leaf) = unit(place) else { return };
            let start = (leaf & 0x7FFF_FFFF) as usize;
            let rest = self.replacements.get(start..).unwrap_or_default();
            let Some(length) = rest.find('\0') else {
                return;
            };
            if !found(at + 1, start..start + length) {
                return;
            }
        }
    }

    /// The longest text of the map that a text begins with: its length in bytes, and its replacement.
    pub(super) fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let mut longest = None;
        self.each(text, |length, place| {
            // A map may have texts that cut a character; they match nothing.
            if text.is_char_boundary(length) {
                longest = Some((length, place));
            }
            true
        });
        let (length, place) = longest?;
        Some((length, &self.replacements[place]))
    }

    /// Appends the replacement of a cluster or a character, from the entry of the shortest text that it
    /// begins with; `false` if there is none.
    fn shortest(&self, text: &str, out: &mut String) -> bool {
        let mut found = None;
        self.each(text, |_, place| {
            found = Some(place);
            false
        });
        let replacement = found.map(|place| &self.replacements[place]);
        out.push_str(replacement.unwrap_or_default());
        replacement.is_some()
    }

    /// A text as `tokenizers` maps it: clusters of few bytes as a whole, the characters of others one by
    /// one. SentencePiece itself takes the longest match at each place.
    pub(super) fn map_clusters(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + text.len() / 8);
        for cluster in text.graphemes(true) {
            if cluster.len() < WHOLE_CLUSTER_BYTES && self.shortest(cluster, &mut out) {
                continue;
            }
            for c in cluster.chars() {
                if !self.shortest(c.encode_utf8(&mut [0; 4]), &mut out) {
                    out.push(c);
                }
            }
        }
        out
    }
}

#[cfg(test)]
pub(super) mod tests;
