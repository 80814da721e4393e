//! A model in use by a request.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use millrace_runtime::AdapterSet;

use super::{AdapterPlace, ModelEntry};
use crate::scheduler::{ModelInfo, Scheduler};

/// A model that runs, ready for a request.
#[derive(Clone)]
pub(crate) struct ServedModel {
    pub(crate) entry: Arc<ModelEntry>,
    /// Its name in answers: the model's, or an adapter's as written in the request.
    pub(crate) name: String,
    /// The adapters of requests.
    pub(crate) adapters: AdapterSet,
    pub(crate) scheduler: Scheduler,
    pub(crate) loaded: Arc<ModelInfo>,
    /// The model is not unloaded for another until this is dropped.
    pub(super) _in_use: Arc<InUse>,
}

impl ServedModel {
    /// The same model with one of its adapters, under the name in the request.
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

    /// The same model with these scales on its adapters.
    pub(crate) fn with_scales(self, scales: &[f32]) -> ServedModel {
        let adapters = self.loaded.adapters.iter().cloned();
        ServedModel {
            adapters: AdapterSet::new(adapters.zip(scales.iter().copied())),
            ..self
        }
    }
}

/// Marks a model as used by a request. Between finding the model and submitting a job, the scheduler does not know
/// the request, and the model would seem idle.
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
