//! Removes marks around the texts of an answer that do not belong to them.

use super::reader::overlap;
use super::recipients::RecipientReader;

/// State of the removal, by kind of mark.
#[derive(Clone, Debug)]
pub(super) enum Around {
    Marks(Wrapper),
    Recipients(RecipientReader),
}

impl Around {
    /// Takes more text. Returns text that certainly belongs to the answer, as pieces between which something was
    /// removed.
    pub(super) fn push(&mut self, text: &str) -> Vec<String> {
        match self {
            Around::Marks(wrapper) => wrapper.push(text),
            Around::Recipients(reader) => reader.push(text),
        }
    }

    /// Ends the answer. Returns the text that was held back.
    pub(super) fn finish(&mut self) -> String {
        match self {
            Around::Marks(wrapper) => wrapper.finish(),
            Around::Recipients(reader) => reader.finish(),
        }
    }
}

/// Two enclosing texts; the first is at the beginning.
#[derive(Clone, Debug)]
pub(super) struct Wrapper {
    open: &'static str,
    close: &'static str,
    held: String,
    has_begun: bool,
    /// The next line breaks belong to the opening text.
    skips_lines: bool,
}

impl Wrapper {
    pub(super) fn new((open, close): (&'static str, &'static str)) -> Wrapper {
        Wrapper {
            open,
            close,
            held: String::new(),
            has_begun: false,
            skips_lines: false,
        }
    }

    /// Takes more text. Returns text that certainly belongs to the answer, as pieces between which something was
    /// removed.
    pub(super) fn push(&mut self, text: &str) -> Vec<String> {
        self.held.push_str(text);
        if !self.has_begun {
            let begun = self.held.trim_start();
            if begun.len() < self.open.len() && self.open.starts_with(begun) {
                return Vec::new();
            }
            self.has_begun = true;
            if let Some(inner) = begun.strip_prefix(self.open) {
                self.held = inner.to_owned();
                self.skips_lines = true;
            }
        }
        if self.skips_lines {
            self.held = self.held.trim_start_matches('\n').to_owned();
            self.skips_lines = self.held.is_empty();
        }
        let mut out = Vec::new();
        while let Some(at) = self.held.find(self.close) {
            out.push(self.held[..at].to_owned());
            self.held.drain(..at + self.close.len());
        }
        let n_safe = self.held.len() - overlap(&self.held, self.close);
        out.push(self.held.drain(..n_safe).collect());
        out
    }

    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}
