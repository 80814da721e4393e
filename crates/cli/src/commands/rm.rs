//! `millrace rm`: removes pulled models from the cache.

use crate::exit::{CommandFailure, CommandResult};
use crate::output::{Ui, bytes};
use millrace::EmbeddedModel;
use millrace_hub::{Error, Hub, HubSettings, Reference};

const EXAMPLES: &str = "\
Examples:
  millrace rm OWNER/REPO                 all of a repository, every revision of it
  millrace rm OWNER/REPO:Q8_0            one of its models; files that others share stay
  millrace rm OWNER/REPO@REVISION:Q8_0   from a revision other than main

This frees the space at once, without confirmation; `millrace list` shows the pulled models. Models outside
the cache are ordinary files, which you can delete yourself.";

/// Remove pulled models from the cache
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RmArgs {
    /// Models to remove, by the names that `millrace list` shows
    #[arg(value_name = "REPO[:QUANT]", required = true, value_hint = clap::ValueHint::Other)]
    models: Vec<String>,
}

pub(crate) fn run(args: &RmArgs, ui: Ui) -> CommandResult {
    let hub = Hub::new(HubSettings::from_env(true)?);
    let references = args.models.iter().map(|text| {
        if EmbeddedModel::find(text).is_some() {
            let message = format!("{text} is part of this program");
            return Err(CommandFailure::usage(message).hint("only pulled models can be removed"));
        }
        Ok(Reference::parse(text)?)
    });
    // All names are parsed before any model is removed.
    for reference in references.collect::<CommandResult<Vec<_>>>()? {
        let removed = hub.remove(&reference).map_err(|error| match error {
            Error::NotCached { .. } => CommandFailure::not_found(error.to_string())
                .hint("`millrace list` shows what there is"),
            other => other.into(),
        })?;
        let plural = if removed.n_files == 1 { "" } else { "s" };
        let freed = bytes(removed.freed_bytes);
        ui.note(format_args!(
            "{reference}: {} file{plural} removed, {freed} freed",
            removed.n_files
        ));
    }
    Ok(())
}
