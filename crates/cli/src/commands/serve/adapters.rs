//! `--lora` of `serve`: named adapters, each for one of the models.

use super::models::NamedModel;
use crate::exit::{CommandFailure, CommandResult};
use millrace_runtime::{LoadedModel, LoraAdapter};
use millrace_server::AdapterSpec;
use std::path::Path;
use std::sync::Arc;

/// Adapters of each model: `NAME=FILE`, or `MODEL:NAME=FILE` where there are several models.
pub(super) fn assign(
    values: &[String],
    models: &[NamedModel],
) -> CommandResult<Vec<Vec<AdapterSpec>>> {
    let mut assigned: Vec<Vec<AdapterSpec>> = models.iter().map(|_| Vec::new()).collect();
    for value in values {
        let named = value.split_once('=');
        let Some((name, file)) = named.filter(|(name, file)| !name.is_empty() && !file.is_empty())
        else {
            let message = format!("--lora {value}: expected NAME=FILE");
            return Err(CommandFailure::usage(message).hint("as in --lora style=adapter.gguf"));
        };
        let own = models.iter().enumerate().find_map(|(at, model)| {
            let own = name.strip_prefix(&model.name)?.strip_prefix(':')?;
            Some((at, own))
        });
        let (at, name) = match (own, models) {
            (Some(own), _) => own,
            (None, [_]) => (0, name),
            (None, _) => {
                let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
                let message = format!("--lora {value}: which of {} it is for", names.join(", "));
                let hint = format!("name it: --lora {}:{value}", names[0]);
                return Err(CommandFailure::usage(message).hint(hint));
            }
        };
        assigned[at].push(AdapterSpec {
            name: name.to_owned(),
            source: file.to_owned(),
        });
    }
    Ok(assigned)
}

/// Opens the adapters of a model.
pub(super) fn open(
    adapters: &[AdapterSpec],
    model: &LoadedModel,
) -> CommandResult<Vec<Arc<LoraAdapter>>> {
    let open = |adapter: &AdapterSpec| {
        let opened = LoraAdapter::open(Path::new(&adapter.source), model)?;
        Ok(Arc::new(opened))
    };
    adapters.iter().map(open).collect()
}

#[cfg(test)]
mod tests {
    use super::{NamedModel, assign};

    #[test]
    fn an_adapter_belongs_to_one_model() {
        let models = |names: &[&str]| -> Vec<NamedModel> {
            let named = |name: &&str| NamedModel {
                name: (*name).to_owned(),
                model: "demo".to_owned(),
            };
            names.iter().map(named).collect()
        };
        let adapters = |values: &[&str], names: &[&str]| {
            let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
            let assigned = assign(&values, &models(names)).map_err(|failure| failure.message)?;
            let pairs = assigned.into_iter().map(|own| {
                let pair = |adapter: millrace_server::AdapterSpec| (adapter.name, adapter.source);
                own.into_iter().map(pair).collect::<Vec<_>>()
            });
            Ok::<_, String>(pairs.collect::<Vec<_>>())
        };
        let pair = |name: &str, file: &str| (name.to_owned(), file.to_owned());
        assert_eq!(adapters(&[], &["a"]), Ok(vec![vec![]]));
        let two = vec![vec![pair("x", "f"), pair("y", "g=1")]];
        assert_eq!(adapters(&["x=f", "a:y=g=1"], &["a"]), Ok(two));
        let of_b = vec![vec![], vec![pair("x", "f")]];
        assert_eq!(adapters(&["b:x=f"], &["a", "b"]), Ok(of_b));
        for (value, names, word) in [
            ("f.gguf", &["a"][..], "NAME=FILE"),
            ("=f", &["a"], "NAME=FILE"),
            ("x=", &["a"], "NAME=FILE"),
            ("x=f", &["a", "b"], "which of a, b"),
        ] {
            let error = adapters(&[value], names).unwrap_err();
            assert!(error.contains(word), "{value}: {error}");
        }
    }
}
