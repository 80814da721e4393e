//! Samples: tests of many cases take some of them, so that a build's tests end in minutes. With `MILLRACE_TEST_ALL=1` all cases run.

/// The variable that asks for all cases. Empty and `0` do not.
pub const VARIABLE: &str = "MILLRACE_TEST_ALL";

/// Whether tests run all cases.
pub fn is_whole() -> bool {
    asks(std::env::var_os(VARIABLE).as_deref())
}

fn asks(value: Option<&std::ffi::OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

/// The first where tests run all cases, else the second.
pub fn whole_or<T>(whole: T, part: T) -> T {
    match is_whole() {
        true => whole,
        false => part,
    }
}

/// Whether a test takes the case of this number: all where it runs all cases, else each `of`-th from `first` on, counted
/// round.
///
/// # Panics
/// If `of` is 0.
pub fn takes(number: usize, of: usize, first: usize) -> bool {
    is_whole() || is_turn(number, of, first)
}

fn is_turn(number: usize, of: usize, first: usize) -> bool {
    number % of == first % of
}

/// The cases that a test [takes], by their place.
///
/// # Panics
/// If `of` is 0.
pub fn part<I: IntoIterator>(cases: I, of: usize, first: usize) -> impl Iterator<Item = I::Item> {
    let is_whole = is_whole();
    let cases = cases.into_iter().enumerate();
    let taken = cases.filter(move |(number, _)| is_whole || is_turn(*number, of, first));
    taken.map(|(_, case)| case)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_value_asks_for_all() {
        let asked =
            [None, Some(""), Some("0"), Some("1"), Some("yes")].map(|v| asks(v.map(OsStr::new)));
        assert_eq!(asked, [false, false, false, true, true]);
    }

    /// Tests that take turns by number leave no case out.
    #[test]
    fn turns_take_each_case_once() {
        for of in 1..6 {
            for number in 0..20 {
                let takers = (10..10 + of).filter(|first| is_turn(number, of, *first));
                assert_eq!(takers.count(), 1, "{number} of {of}");
            }
        }
        if !is_whole() {
            assert_eq!(part(0..10, 4, 6).collect::<Vec<_>>(), [2, 6]);
        }
    }
}
