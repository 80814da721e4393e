//! Models that draft: the draft layer of a model, and assistants, which run with the model that they draft for alone.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_format::Checkpoint;
use millrace_model::Model;

use super::{LoadedModel, bytes_of};
use crate::Error;
use crate::speculate::check_draft;

impl LoadedModel {
    /// Opens a model to draft with: any model, or an assistant, which [`open`](LoadedModel::open) refuses.
    ///
    /// # Errors
    /// As [`open`](LoadedModel::open), except for assistants.
    pub fn open_draft(path: &Path) -> Result<LoadedModel, Error> {
        LoadedModel::from_draft_checkpoint(Checkpoint::open(path)?)
    }

    /// The same for an open checkpoint.
    ///
    /// # Errors
    /// As [`open_draft`](LoadedModel::open_draft).
    pub fn from_draft_checkpoint(checkpoint: Checkpoint) -> Result<LoadedModel, Error> {
        let model = Model::from_checkpoint(&checkpoint)?;
        LoadedModel::with_model(checkpoint, model)
    }

    /// Whether it is an assistant.
    pub fn is_assistant(&self) -> bool {
        self.model.is_assistant()
    }

    /// Refuses an assistant, which no engine runs by itself.
    ///
    /// # Errors
    /// [`millrace_model::Error::Assistant`].
    pub(crate) fn check_runs_alone(&self) -> Result<(), Error> {
        match self.is_assistant() {
            false => Ok(()),
            true => Err(millrace_model::Error::Assistant {
                file: self.name().into(),
            }
            .into()),
        }
    }

    /// This assistant for a target, whose caches its layers read ([`Model::for_target`]). Weights are shared.
    ///
    /// # Errors
    /// [`millrace_model::Error::OtherTarget`] with the first size that differs. Where the assistant has a tokenizer, as
    /// [`check_draft`].
    pub fn for_target(&self, target: &LoadedModel) -> Result<LoadedModel, Error> {
        let names = (self.name(), target.name());
        let model = self.model.for_target(names.0, (&target.model, names.1))?;
        match check_draft(target, self) {
            // Files of folders may lack one. Then the sizes of the vocabularies must do.
            Ok(()) | Err(Error::NoTokenizer { .. }) => {}
            Err(error) => return Err(error),
        }
        let derived = self.derived.clone();
        Ok(self.sharing(model, derived))
    }

    /// The model's draft layer as a separate model over the same files ([`Model::draft_layer`]).
    ///
    /// # Errors
    /// Files without a draft layer, or whose layer lacks tensors or has them in other shapes; a family without one.
    pub fn draft_layer(&self) -> Result<LoadedModel, Error> {
        let model = Model::draft_layer(&self.checkpoint)?;
        let weights = model.graph.weights.iter();
        let derived = weights.map(|weight| bytes_of(&self.checkpoint, weight));
        let derived = derived.collect::<Result<Vec<_>, _>>()?;
        Ok(self.sharing(model, derived))
    }

    /// Another model over the same files.
    fn sharing(&self, model: Model, derived: Vec<Option<Arc<[u8]>>>) -> LoadedModel {
        let tokenizer = self.tokenizer.lock();
        let tokenizer = tokenizer.unwrap_or_else(PoisonError::into_inner);
        LoadedModel {
            checkpoint: Arc::clone(&self.checkpoint),
            reads_ahead: self.reads_ahead,
            derived,
            parts: Vec::new(),
            model,
            tokenizer: Mutex::new(tokenizer.clone()),
        }
    }
}
