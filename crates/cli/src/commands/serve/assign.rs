//! Options of `serve` for one of its models: the plain value where one model is served, else NAME=VALUE.

use super::models::NamedModel;
use crate::exit::{CommandFailure, CommandResult};
use std::path::Path;

/// Name of an option, and its effect on a model, in words.
#[derive(Clone, Copy)]
pub(super) struct PerModel {
    flag: &'static str,
    /// Verb phrase that completes "which of a, b it …".
    does: &'static str,
    limit: &'static str,
}

pub(super) const DRAFT: PerModel = PerModel {
    flag: "--draft",
    does: "drafts for",
    limit: "a model has one drafter",
};

pub(super) const MMPROJ: PerModel = PerModel {
    flag: "--mmproj",
    does: "sees for",
    limit: "a model has one vision encoder",
};

impl PerModel {
    /// The value for each of the models.
    pub(super) fn assign(
        self,
        values: &[String],
        models: &[NamedModel],
    ) -> CommandResult<Vec<Option<String>>> {
        let mut assigned: Vec<Option<String>> = vec![None; models.len()];
        for value in values {
            let (at, value) = self.one(value, models)?;
            if assigned[at].replace(value.to_owned()).is_some() {
                let message = format!("{} is given twice for {}", self.flag, models[at].name);
                return Err(CommandFailure::usage(message).hint(self.limit));
            }
        }
        Ok(assigned)
    }

    /// Index of the model that a value belongs to, and the value without the name.
    fn one<'a>(self, value: &'a str, models: &[NamedModel]) -> CommandResult<(usize, &'a str)> {
        let PerModel { flag, does, .. } = self;
        let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
        let named = value.split_once('=').filter(|_| !Path::new(value).exists());
        match (named, &names[..]) {
            (Some((name, value)), _) => {
                let at = names.iter().position(|served| *served == name);
                let message = || format!("{flag} {value}: no model called {name} is served");
                let hint = || format!("served are: {}", names.join(", "));
                let at = at.ok_or_else(|| CommandFailure::usage(message()).hint(hint()))?;
                Ok((at, value))
            }
            (None, [_]) => Ok((0, value)),
            (None, _) => {
                let message = format!("{flag} {value}: which of {} it {does}", names.join(", "));
                let hint = format!("name it: {flag} {}={value}", names[0]);
                Err(CommandFailure::usage(message).hint(hint))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DRAFT, MMPROJ, NamedModel};

    #[test]
    fn a_drafter_belongs_to_one_model() {
        let models = |names: &[&str]| -> Vec<NamedModel> {
            let named = |name: &&str| NamedModel {
                name: (*name).to_owned(),
                model: "demo".to_owned(),
            };
            names.iter().map(named).collect()
        };
        let drafts = |values: &[&str], names: &[&str]| {
            let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
            let assigned = DRAFT.assign(&values, &models(names));
            assigned.map_err(|failure| failure.message)
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
        let encoders = MMPROJ.assign(&["b=p.gguf".to_owned()], &models(&["a", "b"]));
        assert_eq!(
            encoders.map_err(|failure| failure.message),
            Ok(vec![None, some("p.gguf")])
        );
    }
}
