//! A model in the hands of a request.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use millrace_runtime::AdapterSet;

use super::{AdapterPlace, ModelEntry};
use crate::scheduler::{ModelInfo, Scheduler};

/// A model that runs, ready for a request.
#[derive(Clone)]
pub(crate) struct ServedModel {
    pub(crate) entry: Arc<ModelEntry>,
    /// What answers call it: the name of the model, or of one of its adapters as the request has it.
    pub(crate) name: String,
    /// What requests compute with.
    pub(crate) adapters: AdapterSet,
    pub(crate) scheduler: Scheduler,
    pub(crate) loaded: Arc<ModelInfo>,
    /// Until it is dropped the model gives way to no other.
    pub(super) _in_use: Arc<InUse>,
}

impl ServedModel {
    /// The same with one of its adapters, by the name that the request has.
    pub(crate) fn with_adapter(self, place: AdapterPlace, name: &str) -> ServedModel {
        let adapter = match place {
            AdapterPlace::First(index) => self.loaded.adapters.get(index).cloned(),
            AdapterPlace::Added(added) => Some(added.adapter),
        };
        ServedModel {
            adapters: AdapterSet::new(adapter.map(|adapter| (adapter, 1.0))),
            name: name.to_owned(),
            ..self
        }
    }

    /// Whether the request named an adapter.
    pub(crate) fn is_adapter(&self) -> bool {
        self.name != self.entry.spec.id
    }

    /// The same with these factors on its adapters.
    pub(crate) fn with_scales(self, scales: &[f32]) -> ServedModel {
        let adapters = self.loaded.adapters.iter().cloned();
        ServedModel {
            adapters: AdapterSet::new(adapters.zip(scales.iter().copied())),
            ..self
        }
    }
}

/// A request that uses a model: between finding it and submitting a job the scheduler knows nothing of it, and the model
/// would seem idle.
pub(super) struct InUse(Arc<ModelEntry>);

impl InUse {
    pub(super) fn new(entry: &Arc<ModelEntry>) -> Arc<InUse> {
        entry.n_users.fetch_add(1, SeqCst);
        Arc::new(InUse(Arc::clone(entry)))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.n_users.fetch_sub(1, SeqCst);
    }
}
