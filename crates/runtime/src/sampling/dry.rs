//! Penalties of repeated sequences.

use std::collections::HashMap;

use super::params::Dry;
use super::stages::TokenCandidate;
use super::texts::Breakers;

/// The largest power of the base that an f32 holds.
const MAX_LN: f32 = 88.0;

/// Penalises the tokens that would make a repetition longer.
pub(super) fn apply(
    candidates: &mut [TokenCandidate],
    history: &[u32],
    dry: &Dry,
    breakers: &Breakers,
) {
    let recent = &history[history.len().saturating_sub(dry.last_n)..];
    let reach = breakers.reach(recent);
    if reach < dry.allowed_length || recent.len() <= dry.allowed_length {
        return;
    }
    let longest = longest_repeats(recent, reach, dry.allowed_length);
    for candidate in candidates {
        let Some(n_repeated) = longest.get(&candidate.token) else {
            continue;
        };
        if !breakers.is_in(candidate.token) {
            let n_beyond = (n_repeated - dry.allowed_length) as f32;
            let exponent = n_beyond * dry.base.ln();
            candidate.logit -= dry.multiplier * exponent.min(MAX_LN).exp();
        }
    }
}

/// Length of the longest earlier occurrence of the text's end, at most `reach` tokens, for each token that followed one.
/// Occurrences shorter than `least` are left out.
fn longest_repeats(tokens: &[u32], reach: usize, least: usize) -> HashMap<u32, usize> {
    let mut longest: HashMap<u32, usize> = HashMap::new();
    // The text backwards: agreement with its beginning is agreement with the text's end.
    let backwards: Vec<u32> = tokens.iter().rev().copied().collect();
    for (at, n_common) in common_prefixes(&backwards).into_iter().enumerate().skip(1) {
        let n_repeated = n_common.min(reach);
        if n_repeated >= least.max(1) {
            let place = longest.entry(backwards[at - 1]).or_default();
            *place = n_repeated.max(*place);
        }
    }
    longest
}

/// For every position, the number of values from there on that equal those from the beginning (the Z function, Gusfield 1997).
fn common_prefixes(values: &[u32]) -> Vec<usize> {
    let n = values.len();
    let mut z = vec![0; n];
    // The stretch found so far that reaches furthest.
    let (mut start, mut end) = (0, 0);
    for at in 1..n {
        let mut common = match at < end {
            true => z[at - start].min(end - at),
            false => 0,
        };
        while at + common < n && values[common] == values[at + common] {
            common += 1;
        }
        z[at] = common;
        if at + common > end {
            (start, end) = (at, at + common);
        }
    }
    z
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_prefixes_are_those_of_their_definition() {
        for bits in 0..1u32 << 12 {
            let values: Vec<u32> = (0..12).map(|i| bits >> i & 1).collect();
            let found = common_prefixes(&values);
            for at in 1..values.len() {
                let pairs = values.iter().zip(&values[at..]);
                assert_eq!(found[at], pairs.take_while(|(a, b)| a == b).count());
            }
        }
    }
}
