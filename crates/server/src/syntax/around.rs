//! What stands around the texts of an answer and is no part of them.

use super::reader::overlap;
use super::recipients::RecipientReader;

/// Takes it away.
#[derive(Clone, Debug)]
pub(super) enum Around {
    Marks(Wrapper),
    Recipients(RecipientReader),
}

impl Around {
    /// What is certain to be of the answer: pieces between which something was taken away.
    pub(super) fn push(&mut self, text: &str) -> Vec<String> {
        match self {
            Around::Marks(wrapper) => wrapper.push(text),
            Around::Recipients(reader) => reader.push(text),
        }
    }

    /// The answer has ended: what was held of it.
    pub(super) fn finish(&mut self) -> String {
        match self {
            Around::Marks(wrapper) => wrapper.finish(),
            Around::Recipients(reader) => reader.finish(),
        }
    }
}

/// Two texts, of which the first stands at the beginning.
#[derive(Clone, Debug)]
pub(super) struct Wrapper {
    open: &'static str,
    close: &'static str,
    held: String,
    has_begun: bool,
    /// Line breaks that come next belong to the opening text.
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

    /// What is certain to be of the answer: pieces between which something was taken away.
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
