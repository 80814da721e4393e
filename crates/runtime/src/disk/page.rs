//! Names of pages on disk, and the tokens they belong to.

use super::file::FileContents;
use super::identity::hex;
use sha2::{Digest, Sha256};

/// Stands for the tokens of a page and all before them, in one scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PageKey([u8; 16]);

impl PageKey {
    /// The key of a page after `parent`.
    pub(crate) fn of(scope: u64, parent: Option<PageKey>, tokens: &[u32]) -> PageKey {
        let mut hasher = Sha256::new();
        hasher.update(scope.to_le_bytes());
        hasher.update(parent.map_or([0; 16], |parent| parent.0));
        tokens
            .iter()
            .for_each(|token| hasher.update(token.to_le_bytes()));
        let mut key = [0; 16];
        key.copy_from_slice(&hasher.finalize()[..16]);
        PageKey(key)
    }

    fn parse(text: &str) -> Option<PageKey> {
        let digits = text.as_bytes();
        if digits.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut key = [0; 16];
        for (i, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
        }
        Some(PageKey(key))
    }
}

/// A page of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PageName {
    key: PageKey,
    /// Pages before it in its text.
    pub(super) depth: u32,
    group: u32,
}

impl PageName {
    pub(super) fn file_name(self) -> String {
        let key = hex(&self.key.0);
        format!("{key}-{}-{}.page", self.depth, self.group)
    }

    pub(super) fn parse(name: &str) -> Option<PageName> {
        let mut parts = name.strip_suffix(".page")?.split('-');
        let found = PageName {
            key: PageKey::parse(parts.next()?)?,
            depth: parts.next()?.parse().ok()?,
            group: parts.next()?.parse().ok()?,
        };
        // A name that would be written differently is not of this program.
        (found.file_name() == name).then_some(found)
    }
}

/// Where a page is, or shall be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageAt {
    pub(crate) key: PageKey,
    /// Pages before it in its text.
    pub(crate) depth: usize,
    pub(crate) group: usize,
}

impl PageAt {
    pub(super) fn name(self) -> PageName {
        PageName {
            key: self.key,
            depth: self.depth as u32,
            group: self.group as u32,
        }
    }
}

/// The text that a page is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageText<'a> {
    pub(crate) scope: u64,
    pub(crate) parent: Option<PageKey>,
    pub(crate) tokens: &'a [u32],
}

impl PageText<'_> {
    pub(super) fn contents(&self, group: usize) -> FileContents {
        FileContents::Page {
            scope: self.scope,
            parent: self
                .parent
                .map_or_else(String::new, |parent| hex(&parent.0)),
            group,
        }
    }
}
