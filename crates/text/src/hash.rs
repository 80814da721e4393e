//! A seeded hash for the vocabulary tables.
//!
//! The tables are filled from untrusted files, so the hash is keyed with a seed drawn for each
//! table. A file cannot be made to collide on purpose. It folds 64×64-bit products, which is
//! several times faster on token-sized keys than the standard library's default.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Key of the hash; different for every table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed {
    a: u64,
    b: u64,
}

impl Seed {
    /// A seed nobody can predict.
    pub(crate) fn random() -> Seed {
        let source = RandomState::new();
        // Odd, so that neither is zero and a product loses no bits to trailing zeros.
        Seed {
            a: source.hash_one(0u8) | 1,
            b: source.hash_one(1u8) | 1,
        }
    }

    /// Hash of a byte string.
    #[inline]
    pub(crate) fn hash_bytes(&self, bytes: &[u8]) -> u64 {
        let mut hash = self.a;
        let (words, tail) = bytes.as_chunks::<8>();
        for word in words {
            hash = fold(hash ^ u64::from_le_bytes(*word), self.b);
        }
        // The length goes in last: mixed with the bytes, it could cancel a difference in them.
        fold(
            fold(hash ^ tail_word(tail), self.b) ^ bytes.len() as u64,
            self.a,
        )
    }
}

/// Up to seven bytes as a number, different for different bytes of one length.
#[inline]
fn tail_word(tail: &[u8]) -> u64 {
    let n = tail.len();
    if n >= 4 {
        let (low, high) = (&tail[..4], &tail[n - 4..]);
        let word = |b: &[u8]| u64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        word(low) | (word(high) << 32)
    } else if n > 0 {
        u64::from(tail[0]) | (u64::from(tail[n / 2]) << 8) | (u64::from(tail[n - 1]) << 16)
    } else {
        0
    }
}

/// The two halves of the 128-bit product, combined.
#[inline]
fn fold(x: u64, y: u64) -> u64 {
    let product = u128::from(x) * u128::from(y);
    (product as u64) ^ ((product >> 64) as u64)
}

impl BuildHasher for Seed {
    type Hasher = FoldHasher;

    #[inline]
    fn build_hasher(&self) -> FoldHasher {
        FoldHasher {
            seed: *self,
            hash: self.a,
        }
    }
}

/// The hash in the form that the standard library's maps need.
pub(crate) struct FoldHasher {
    seed: Seed,
    hash: u64,
}

impl Hasher for FoldHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.write_u64(self.seed.hash_bytes(bytes));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.hash = fold(self.hash ^ word, self.seed.b);
    }

    #[inline]
    fn finish(&self) -> u64 {
        fold(self.hash, self.seed.a)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn short_strings_do_not_collide() {
        let seed = Seed::random();
        let mut seen = HashSet::new();
        for a in 0..=255u8 {
            assert!(seen.insert(seed.hash_bytes(&[a])));
            for b in 0..=255u8 {
                assert!(seen.insert(seed.hash_bytes(&[a, b])));
            }
        }
    }

    #[test]
    fn every_byte_counts() {
        let seed = Seed::random();
        for n in 1..40 {
            let base = vec![7u8; n];
            for i in 0..n {
                let mut other = base.clone();
                other[i] = 8;
                assert_ne!(
                    seed.hash_bytes(&base),
                    seed.hash_bytes(&other),
                    "byte {i} of {n}"
                );
            }
            assert_ne!(seed.hash_bytes(&base), seed.hash_bytes(&base[1..]));
        }
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(
            Seed::random().hash_bytes(b"token"),
            Seed::random().hash_bytes(b"token")
        );
    }
}
