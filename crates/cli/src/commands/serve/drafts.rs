//! `--draft` of `serve`: assigns drafters to models.

use super::models::{engine_bytes, engine_options};
use super::{MAX_PASS_DRAFTS, ServedArgs};
use crate::draft_args::{Draft, DraftArgs, MTP, NGRAM, assistant_options, with_context_of};
use crate::exit::CommandResult;
use crate::model_arg::ModelArgs;
use crate::output::{Ui, bytes};
use crate::target_args::DeviceArgs;
use millrace_runtime::LoadedModel;

/// The drafter of a model, and its source for opening it again.
#[derive(Clone)]
pub(super) struct Drafter {
    pub(super) draft: Draft,
    args: ModelArgs,
}

impl Drafter {
    /// Opens a drafter for `target` and refuses an unsuitable one, as `run --draft` does.
    pub(super) fn open(
        name: String,
        args: &ServedArgs,
        target: &LoadedModel,
        device: &DeviceArgs,
        ui: Ui,
    ) -> CommandResult<Option<Drafter>> {
        let model = ModelArgs {
            model: name.clone(),
            offline: args.offline,
        };
        let wanted = DraftArgs { draft: Some(name) };
        let draft = wanted.open(target, &model, device, &engine_options(args), ui)?;
        Ok(draft.map(|draft| Drafter { draft, args: model }))
    }

    /// Bytes that the drafter takes beside its loaded target: weights, caches, scratch, and the logits of a checking
    /// pass. Prints them as a note.
    pub(super) fn memory_bytes(
        &self,
        args: &ServedArgs,
        target: &LoadedModel,
        ui: Ui,
    ) -> CommandResult<u64> {
        let vocab_size = target.model().config.vocab_size;
        let rows = (MAX_PASS_DRAFTS * vocab_size * size_of::<f32>()) as u64;
        let model = match &self.draft {
            Draft::Ngram => 0,
            Draft::Layer => {
                let options = with_context_of(target, &engine_options(args));
                let beside = engine_bytes(&target.draft_layer()?, &options)?;
                ui.note(format_args!(
                    "the MTP layer of {} drafts for it: {} of caches and scratch",
                    target.name(),
                    bytes(beside),
                ));
                beside
            }
            Draft::Model(draft) | Draft::Assistant(draft) => {
                let mut options = with_context_of(target, &engine_options(args));
                if draft.is_assistant() {
                    options = assistant_options(&options);
                }
                let beside = engine_bytes(draft, &options)?;
                let weights = draft.checkpoint().size_bytes();
                ui.note(format_args!(
                    "{} drafts for {}: {} of weights, {} of caches and scratch",
                    draft.name(),
                    target.name(),
                    bytes(weights),
                    bytes(beside),
                ));
                weights.saturating_add(beside)
            }
        };
        Ok(model.saturating_add(rows))
    }

    /// Arguments for [`reopen`](Drafter::reopen), which keep no file open.
    pub(super) fn source(&self) -> ModelArgs {
        self.args.clone()
    }

    /// Opens the drafter again, for a model that was unloaded and is asked for.
    pub(super) fn reopen(args: &ModelArgs, ui: Ui) -> CommandResult<Drafter> {
        let draft = match args.model.as_str() {
            NGRAM => Draft::Ngram,
            MTP => Draft::Layer,
            _ => Draft::of(args.load_draft(ui)?),
        };
        let args = args.clone();
        Ok(Drafter { draft, args })
    }
}
