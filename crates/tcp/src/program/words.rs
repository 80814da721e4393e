//! Lines as words.

use crate::axes::{Mapping, is_name, parse_mapping};

/// A value, or a description of the expected text.
pub(super) type WordResult<T> = Result<T, String>;

/// Words of a line; `m![…]` is one word.
pub(super) struct Words<'t> {
    pub(super) rest: &'t str,
}

impl<'t> Words<'t> {
    pub(super) fn peek(&self) -> Option<&'t str> {
        Words { rest: self.rest }.next_word()
    }

    pub(super) fn next_word(&mut self) -> Option<&'t str> {
        let text = self.rest.trim_start();
        if text.is_empty() {
            return None;
        }
        let mut depth = 0usize;
        let end = text.find(|c: char| {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c.is_whitespace() && depth == 0
        });
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        self.rest = rest;
        Some(word)
    }

    pub(super) fn word(&mut self, what: &str) -> WordResult<&'t str> {
        self.next_word()
            .ok_or_else(|| format!("expected {what}, the line ends"))
    }

    pub(super) fn keyword(&mut self, keyword: &str) -> WordResult<()> {
        match self.word(&format!("`{keyword}`"))? {
            word if word == keyword => Ok(()),
            word => Err(format!("expected `{keyword}`, found `{}`", short(word))),
        }
    }

    pub(super) fn mapping(&mut self) -> WordResult<Mapping> {
        let word = self.word("a mapping as in `m![N / 8]`")?;
        match word.starts_with("m![") && word.ends_with(']') {
            true => parse_mapping(word).map_err(|error| error.to_string()),
            false => Err(format!("expected `m![…]`, found `{}`", short(word))),
        }
    }

    pub(super) fn named(&mut self, keyword: &str) -> WordResult<Mapping> {
        self.keyword(keyword)?;
        self.mapping()
    }

    pub(super) fn number(&mut self, what: &str) -> WordResult<u64> {
        let word = self.word(what)?;
        word.parse()
            .map_err(|_| format!("expected {what}, found `{}`", short(word)))
    }

    pub(super) fn one_of<T>(
        &mut self,
        what: &str,
        find: impl Fn(&str) -> Option<T>,
    ) -> WordResult<T> {
        let word = self.word(what)?;
        find(word).ok_or_else(|| format!("expected {what}, found `{}`", short(word)))
    }

    pub(super) fn end(mut self) -> WordResult<()> {
        match self.next_word() {
            None => Ok(()),
            Some(word) => Err(format!("expected the line's end, found `{}`", short(word))),
        }
    }
}

pub(super) fn short(word: &str) -> String {
    word.chars().take(60).collect()
}

pub(super) fn name(text: &str) -> WordResult<String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("expected a name, found `{}`", short(text))),
    }
}
