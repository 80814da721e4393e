//! `--draft` of `serve`: which drafter belongs to which model.

use super::models::{Named, engine_bytes, engine_options};
use super::{Args, MAX_PASS_DRAFTS};
use crate::draft_args::{Draft, DraftArgs, NGRAM, with_context_of};
use crate::exit::{Failure, Outcome};
use crate::model_arg::ModelArgs;
use crate::output::{Ui, bytes};
use crate::target_args::DeviceArgs;
use millrace_runtime::LoadedModel;
use std::path::Path;

/// What drafts for a model, and how to open it again.
#[derive(Clone)]
pub(super) struct Drafter {
    pub(super) draft: Draft,
    args: ModelArgs,
}

/// The value of `--draft` for each of the models: the whole of it where one model is served, else that of NAME=.
pub(super) fn assign(values: &[String], models: &[Named]) -> Outcome<Vec<Option<String>>> {
    let mut drafts: Vec<Option<String>> = vec![None; models.len()];
    let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    for value in values {
        let named = value.split_once('=').filter(|_| !Path::new(value).exists());
        let (at, draft) = match (named, &names[..]) {
            (Some((name, draft)), _) => {
                let at = names.iter().position(|served| *served == name);
                let message = || format!("--draft {value}: no model called {name} is served");
                let hint = || format!("served are: {}", names.join(", "));
                (
                    at.ok_or_else(|| Failure::usage(message()).hint(hint()))?,
                    draft,
                )
            }
            (None, [_]) => (0, value.as_str()),
            (None, _) => {
                let message = format!(
                    "--draft {value}: which of {} it drafts for",
                    names.join(", ")
                );
                let hint = format!("name it: --draft {}={value}", names[0]);
                return Err(Failure::usage(message).hint(hint));
            }
        };
        if drafts[at].replace(draft.to_owned()).is_some() {
            let message = format!("--draft is given twice for {}", names[at]);
            return Err(Failure::usage(message).hint("a model has one drafter"));
        }
    }
    Ok(drafts)
}

impl Drafter {
    /// Opens what drafts for `target` and refuses what cannot, as `run --draft` does.
    pub(super) fn open(
        name: String,
        args: &Args,
        target: &LoadedModel,
        device: &DeviceArgs,
        ui: Ui,
    ) -> Outcome<Option<Drafter>> {
        let model = ModelArgs {
            model: name.clone(),
            offline: args.offline,
        };
        let wanted = DraftArgs { draft: Some(name) };
        let draft = wanted.open(target, &model, device, &engine_options(args), ui)?;
        Ok(draft.map(|draft| Drafter { draft, args: model }))
    }

    /// Bytes that it takes beside its target while that is loaded: weights, caches, scratch, and the rows of logits of
    /// what a pass checks. Says so.
    pub(super) fn memory_bytes(&self, args: &Args, target: &LoadedModel, ui: Ui) -> Outcome<u64> {
        let vocab_size = target.model().config.vocab_size;
        let rows = (MAX_PASS_DRAFTS * vocab_size * size_of::<f32>()) as u64;
        let model = match &self.draft {
            Draft::Ngram => 0,
            Draft::Model(draft) => {
                let options = with_context_of(target, &engine_options(args));
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

    /// What [`reopen`](Drafter::reopen) needs, which keeps no file open.
    pub(super) fn source(&self) -> ModelArgs {
        self.args.clone()
    }

    /// The same again: its model was unloaded, and is wanted.
    pub(super) fn reopen(args: &ModelArgs, ui: Ui) -> Outcome<Drafter> {
        let draft = match args.model == NGRAM {
            true => Draft::Ngram,
            false => Draft::Model(args.load(ui)?),
        };
        let args = args.clone();
        Ok(Drafter { draft, args })
    }
}

#[cfg(test)]
mod tests {
    use super::{Named, assign};

    #[test]
    fn a_drafter_belongs_to_one_model() {
        let models = |names: &[&str]| -> Vec<Named> {
            let named = |name: &&str| Named {
                name: (*name).to_owned(),
                model: "demo".to_owned(),
            };
            names.iter().map(named).collect()
        };
        let drafts = |values: &[&str], names: &[&str]| {
            let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
            assign(&values, &models(names)).map_err(|failure| failure.message)
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(drafts(&[], &["a"]), Ok(vec![None]));
        assert_eq!(drafts(&["ngram"], &["a"]), Ok(vec![some("ngram")]));
        assert_eq!(
            drafts(&["b=ngram"], &["a", "b"]),
            Ok(vec![None, some("ngram")])
        );
        assert_eq!(
            drafts(&["b=ngram", "a=demo-draft"], &["a", "b"]),
            Ok(vec![some("demo-draft"), some("ngram")])
        );
        let refused = [
            (&["ngram"][..], &["a", "b"][..], "which of a, b"),
            (&["c=ngram"], &["a", "b"], "no model called c"),
            (&["a=ngram", "a=demo"], &["a"], "twice for a"),
            (&["x", "y"], &["a"], "twice for a"),
        ];
        for (values, names, words) in refused {
            let told = drafts(values, names).unwrap_err();
            assert!(told.contains(words), "{told}");
        }
    }
}
