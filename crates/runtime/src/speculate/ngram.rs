//! Tokens that followed the last tokens at earlier occurrences (prompt lookup decoding, Saxena 2023).

use std::collections::HashMap;

use super::Guess;
use super::acceptance::of_length;

/// Tokens that must repeat for a guess.
const LEAST: usize = 2;

/// Tokens that are compared at most.
const LONGEST: usize = 32;

/// Earlier places that are looked at, the last first.
const MOST_PLACES: usize = 16;

/// Where each pair of tokens stood.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// The position after the last occurrence of a pair.
    last: HashMap<[u32; LEAST], u32>,
    /// By position: the position after the previous occurrence of the pair that ends there; 0 for none.
    before: Vec<u32>,
    /// The tokens read, to see where another text begins.
    read: Vec<u32>,
}

impl Repeats {
    /// Reads the new part of a text. If its past differs, everything is read again.
    pub(super) fn read(&mut self, context: &[u32]) {
        if !context.starts_with(&self.read) {
            *self = Repeats::default();
        }
        self.before.resize(context.len() + 1, 0);
        for end in self.read.len().max(LEAST - 1) + 1..=context.len() {
            let pair = [context[end - 2], context[end - 1]];
            let place = self.last.insert(pair, end as u32);
            self.before[end] = place.unwrap_or(0);
        }
        let n_read = self.read.len();
        self.read.extend_from_slice(&context[n_read..]);
    }

    /// At most `most` tokens that may follow `context`, which was read: the tokens after the occurrence
    /// whose agreement reaches furthest back.
    pub(super) fn guess(&self, context: &[u32], most: usize, out: &mut Vec<Guess>) {
        let (mut best, mut longest) = (0, 0);
        let mut place = self.before.get(context.len()).map_or(0, |p| *p as usize);
        for _ in 0..MOST_PLACES {
            if place == 0 {
                break;
            }
            let ends = context[..place].iter().rev().zip(context.iter().rev());
            let length = ends.take(LONGEST).take_while(|(a, b)| a == b).count();
            if length > longest {
                (best, longest) = (place, length);
            }
            place = self.before[place] as usize;
        }
        if longest < LEAST {
            return;
        }
        // Where the copy runs into the end of the text, it goes on with itself.
        let period = context.len() - best;
        for i in 0..most {
            let token = match best + i < context.len() {
                true => context[best + i],
                false => out[i - period].token,
            };
            let class = of_length(longest + i);
            out.push(Guess { token, class });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(context: &[u32], most: usize) -> Vec<u32> {
        let mut repeats = Repeats::default();
        // In two parts, as a text grows.
        repeats.read(&context[..context.len() / 2]);
        repeats.read(context);
        let mut out = Vec::new();
        repeats.guess(context, most, &mut out);
        out.iter().map(|g| g.token).collect()
    }

    #[test]
    fn it_goes_on_as_the_text_did() {
        assert_eq!(guess(&[1, 2, 3, 4, 5, 9, 1, 2], 3), [3, 4, 5]);
        assert_eq!(guess(&[1, 2, 3, 4], 3), [0; 0]);
        assert_eq!(guess(&[7], 3), [0; 0]);
        assert_eq!(guess(&[], 3), [0; 0]);
        // The later place of two that agree as far; the earlier that agrees further.
        assert_eq!(guess(&[1, 2, 3, 1, 2, 4, 1, 2], 1), [4]);
        assert_eq!(guess(&[5, 1, 2, 3, 6, 1, 2, 4, 5, 1, 2], 1), [3]);
    }

    #[test]
    fn what_repeats_at_the_end_goes_on() {
        assert_eq!(guess(&[1, 2, 3, 1, 2, 3], 7), [1, 2, 3, 1, 2, 3, 1]);
        assert_eq!(guess(&[4, 4, 4], 4), [4; 4]);
    }

    #[test]
    fn another_text_is_read_anew() {
        let mut repeats = Repeats::default();
        repeats.read(&[1, 2, 3, 4, 1, 2]);
        let other = [1, 2, 9, 1, 2];
        repeats.read(&other);
        let mut out = Vec::new();
        repeats.guess(&other, 1, &mut out);
        assert_eq!(out[0].token, 9);
    }
}
