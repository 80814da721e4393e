//! Cutting at digits.

use crate::unicode::{CharClass, NUMBER, classes};

/// Which runs of digits are cut into threes from the right, so a leading group may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DigitRun {
    /// Runs of numbers of any kind, apart from the text around them.
    Numbers,
    /// `\d{1,3}(?=(?:\d{3})*\b)`: runs of decimal digits that no word character follows, apart from the text around them.
    Bounded,
    /// `(?=(\d{3})+(?!\d))`: a cut before each whole group, and none behind the run.
    Inner,
}

impl DigitRun {
    /// Calls `emit` with each piece of a text.
    pub(super) fn split(self, text: &str, emit: &mut dyn FnMut(&str)) {
        let mut start = 0;
        let mut cut = |at: usize| {
            if at > start {
                emit(&text[start..at]);
                start = at;
            }
        };
        let mut characters = text.char_indices().peekable();
        // Where the digits of a run begin; kept, because digits have lengths of one to four bytes.
        let mut digits = Vec::new();
        while let Some(&(at, c)) = characters.peek() {
            if self.holds(c) {
                digits.push(at);
                characters.next();
                continue;
            }
            self.cut_run(&digits, at, Some(c), &mut cut);
            digits.clear();
            characters.next();
        }
        self.cut_run(&digits, text.len(), None, &mut cut);
        cut(text.len());
    }

    fn holds(self, c: char) -> bool {
        match self {
            DigitRun::Numbers => classes().of(c) & NUMBER != 0,
            DigitRun::Bounded | DigitRun::Inner => CharClass::Digit.holds(c),
        }
    }

    /// Cuts a run of digits that ends at `end`, in front of `next`.
    fn cut_run(
        self,
        digits: &[usize],
        end: usize,
        next: Option<char>,
        cut: &mut impl FnMut(usize),
    ) {
        let is_bounded = || !next.is_some_and(|c| CharClass::Word.holds(c));
        if digits.is_empty() || (self == DigitRun::Bounded && !is_bounded()) {
            return;
        }
        let is_apart = self != DigitRun::Inner;
        if is_apart {
            cut(digits[0]);
        }
        digits[digits.len() % 3..]
            .iter()
            .step_by(3)
            .for_each(|at| cut(*at));
        if is_apart {
            cut(end);
        }
    }
}

/// Cuts at numbers, into single characters if `individual`, into runs otherwise.
pub(super) fn digits(text: &str, individual: bool, emit: &mut dyn FnMut(&str)) {
    let table = classes();
    let (mut start, mut in_number) = (0, false);
    for (at, c) in text.char_indices() {
        let is_number = table.of(c) & NUMBER != 0;
        let cut = if individual {
            is_number || in_number
        } else {
            is_number != in_number
        };
        if cut && at > start {
            emit(&text[start..at]);
            start = at;
        }
        in_number = is_number;
    }
    emit(&text[start..]);
}
