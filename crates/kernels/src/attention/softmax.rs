//! Softmax alone, over scores that were computed elsewhere.

use super::Leaves;
use crate::cpu::Cpu;
use crate::kv::TILE_TOKENS;
use std::ops::Range;

/// Scores that a thread processes at a time.
const CHUNK_SCORES: usize = 1 << 14;

/// Turns rows of scores into probabilities, in place: `p_t = exp(scale·(s_t − max)) / Σ exp(scale·(s_t − max))`
/// over the positions that `seen` returns for a row, 0 elsewhere. A row that sees nothing becomes zeros. `scores`
/// is `[n_rows, n_keys]`. Scores at unseen positions do not matter, not even NaN.
///
/// # Panics
/// If `n_keys` is not a multiple of 16, `scores` are not whole rows, or a row sees positions beyond them.
pub fn softmax(
    cpu: &Cpu,
    scores: &mut [f32],
    n_keys: usize,
    scale: f32,
    seen: &(dyn Fn(usize) -> Range<usize> + Sync),
) {
    assert!(
        n_keys > 0 && n_keys.is_multiple_of(TILE_TOKENS) && scores.len().is_multiple_of(n_keys),
        "{} scores in rows of {n_keys}, which come in vectors of {TILE_TOKENS}",
        scores.len()
    );
    let leaves = Leaves::for_level(cpu.level());
    // The leaves compute powers of two.
    let factor = scale * std::f32::consts::LOG2_E;
    let n_rows = (CHUNK_SCORES / n_keys).max(1);
    cpu.pool()
        .run_pieces(scores, n_rows * n_keys, &|piece, scores| {
            let rows = (piece * n_rows..).zip(scores.chunks_exact_mut(n_keys));
            for (row, scores) in rows {
                let seen = seen(row);
                assert!(seen.end <= n_keys, "row {row} sees {seen:?} of {n_keys}");
                if seen.is_empty() {
                    scores.fill(0.0);
                    continue;
                }
                scores[seen.clone()].iter_mut().for_each(|s| *s *= factor);
                let (_, sum) = leaves.softmax(scores, seen.clone());
                scores[seen].iter_mut().for_each(|p| *p /= sum);
            }
        });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::tests::{Numbers, levels};
    use crate::cpu::CpuOptions;

    /// Compares with f64 from the same scores; unseen positions are NaN.
    #[test]
    fn probabilities_are_those_of_the_formula() {
        let (n_rows, n_keys, scale) = (77, 48, 0.37);
        let seen = |row: usize| row % 5..(row % 5 + row % 47).min(48);
        for level in levels() {
            let cpu = Cpu::new(CpuOptions {
                n_threads: Some(2),
                level: Some(level),
            })
            .unwrap();
            let given: Vec<f32> = Numbers::new(3)
                .fill(n_rows * n_keys)
                .iter()
                .map(|x| 20.0 * x)
                .collect();
            let mut found = given.clone();
            for (row, scores) in found.chunks_mut(n_keys).enumerate() {
                let seen = seen(row);
                let unseen = |(key, _): &(usize, &mut f32)| !seen.contains(key);
                let unseen = scores.iter_mut().enumerate().filter(unseen);
                unseen.for_each(|(_, score)| *score = f32::NAN);
            }
            softmax(&cpu, &mut found, n_keys, scale, &seen);
            for (row, (given, found)) in given.chunks(n_keys).zip(found.chunks(n_keys)).enumerate()
            {
                let scores: Vec<f64> = given
                    .iter()
                    .map(|s| f64::from(*s) * f64::from(scale))
                    .collect();
                let seen = seen(row);
                let max = scores[seen.clone()]
                    .iter()
                    .copied()
                    .fold(f64::MIN, f64::max);
                let sum: f64 = scores[seen.clone()].iter().map(|s| (s - max).exp()).sum();
                for (key, found) in found.iter().enumerate() {
                    let p = match seen.contains(&key) {
                        true => (scores[key] - max).exp() / sum,
                        false => 0.0,
                    };
                    let off = (f64::from(*found) - p).abs();
                    assert!(
                        off <= 1e-5 * p + 1e-30,
                        "{level:?} row {row} key {key}: {found} for {p}"
                    );
                }
            }
        }
    }
}
