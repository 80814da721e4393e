//! Adapters that are added and removed while the server runs, beside those configured at its start.

use std::sync::{Arc, PoisonError};

use millrace_runtime::LoraAdapter;

use super::{AdapterSpec, ModelEntry};

/// Maximum number of added adapters of one model.
pub(crate) const MAX_ADDED: usize = 64;

/// An adapter that was added.
#[derive(Clone)]
pub(crate) struct AddedAdapter {
    pub(crate) spec: AdapterSpec,
    pub(crate) adapter: Arc<LoraAdapter>,
}

/// Where an adapter of a model is found.
#[derive(Clone)]
pub(crate) enum AdapterPlace {
    /// Index among those configured at the start.
    First(usize),
    Added(AddedAdapter),
}

impl ModelEntry {
    /// The added ones, the oldest first.
    pub(crate) fn added(&self) -> Vec<AddedAdapter> {
        let added = self.added.lock();
        added.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All adapters of the model that clients can name.
    pub(crate) fn adapters(&self) -> Vec<AdapterSpec> {
        let added = self.added().into_iter().map(|added| added.spec);
        self.spec.adapters.iter().cloned().chain(added).collect()
    }

    /// Adds one, replacing one of the same name. False if there are too many.
    pub(crate) fn add(&self, new: AddedAdapter) -> bool {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        added.retain(|known| known.spec.name != new.spec.name);
        let has_room = added.len() < MAX_ADDED;
        if has_room {
            added.push(new);
        }
        has_room
    }

    /// Removes one: requests that use it continue. False if it was not added.
    pub(crate) fn remove(&self, name: &str) -> bool {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        let n_before = added.len();
        added.retain(|known| known.spec.name != name);
        added.len() < n_before
    }

    /// The adapter for which `is_it` holds.
    pub(super) fn place_of(&self, is_it: impl Fn(&AdapterSpec) -> bool) -> Option<AdapterPlace> {
        let first = self.spec.adapters.iter().position(&is_it);
        let added = || self.added().into_iter().find(|added| is_it(&added.spec));
        first
            .map(AdapterPlace::First)
            .or_else(|| added().map(AdapterPlace::Added))
    }
}
