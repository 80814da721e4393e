//! Buffers that sets share by name.

use super::lock;
use crate::Buffer;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// Name that a slot, by number, shares with slots of other sets; nothing for an unshared slot.
pub(super) type SharedNames<'a> = &'a dyn Fn(usize) -> Option<String>;

/// By name: filled static buffers, and others from their first use on. Sets keep them alive.
#[derive(Default)]
pub(super) struct SharedBuffers(Mutex<HashMap<String, Weak<Buffer>>>);

impl SharedBuffers {
    pub(super) fn find(&self, name: &str) -> Option<Arc<Buffer>> {
        lock(&self.0).get(name).and_then(Weak::upgrade)
    }

    /// Gives a buffer a name that no living one has.
    pub(super) fn insert(&self, name: String, buffer: &Arc<Buffer>) {
        let mut names = lock(&self.0);
        names.retain(|_, buffer| buffer.strong_count() > 0);
        names.entry(name).or_insert_with(|| Arc::downgrade(buffer));
    }

    /// The buffer of a name, made if need be; concurrent callers get the same.
    pub(super) fn find_or_make<E>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<Arc<Buffer>, E>,
    ) -> Result<Arc<Buffer>, E> {
        let mut names = lock(&self.0);
        if let Some(buffer) = names.get(name).and_then(Weak::upgrade) {
            return Ok(buffer);
        }
        let buffer = make()?;
        names.insert(name.to_owned(), Arc::downgrade(&buffer));
        Ok(buffer)
    }
}
