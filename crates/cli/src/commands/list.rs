//! `millrace list`: lists the available models.

use crate::cli::layout::wrapped;
use crate::exit::CommandResult;
use crate::output::{Align, Out, TextTable, Ui, bytes};
use millrace::EmbeddedModel;
use millrace_hub::{CachedModel, Hub, HubSettings};
use millrace_model::arch::{Family, assistants, encoders, families};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  millrace list                             built-in models, and those that were pulled
  millrace list --json | jq -r '.[].name'   names alone
  millrace list --families                  families of models that run, from GGUF files and folders

Other commands take these names as MODEL. Pulled models are in Hugging Face's cache, which other
tools share; `millrace rm` removes them.";

/// List the available models: built in and pulled
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListArgs {
    /// List the supported model families, and the transformers fixture behind each
    #[arg(long)]
    families: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ListArgs, ui: Ui) -> CommandResult {
    if args.families {
        return list_families(args.json);
    }
    // This does not use the network.
    let held = Hub::new(HubSettings::from_env(true)?).held();
    let mut out = Out::new();
    if args.json {
        let built_in = EmbeddedModel::all().iter().map(|model| {
            json!({"name": model.name(), "kind": "built in", "size_bytes": model.size_bytes()})
        });
        let pulled = held.iter().map(|held| {
            json!({
                "name": held.name, "kind": "pulled", "size_bytes": held.size_bytes,
                "commit": held.commit, "path": held.path,
            })
        });
        let all: Vec<serde_json::Value> = built_in.chain(pulled).collect();
        return out.json(&all);
    }
    let columns = [
        ("model", Align::Left),
        ("size", Align::Right),
        ("commit", Align::Left),
    ];
    let mut table = TextTable::new(&columns);
    for model in EmbeddedModel::all() {
        let size = bytes(model.size_bytes());
        table.row(vec![model.name().to_owned(), size, "built in".to_owned()]);
    }
    for held in &held {
        table.row(row(held));
    }
    table.print(&mut out)?;
    out.flush()?;
    if held.is_empty() {
        ui.note("nothing was pulled yet: `millrace pull OWNER/REPO` gets a model from the Hugging Face Hub");
    }
    Ok(())
}

fn list_families(as_json: bool) -> CommandResult {
    let mut out = Out::new();
    if as_json {
        let all = families().chain(encoders()).chain(assistants()).map(|family| {
            json!({
                "name": family.name, "makes": makes(family), "models": family.models, "gguf_architecture": family.gguf_arch,
                "classes": family.hf_classes, "model_types": family.hf_model_types,
                "golden": family.golden(),
            })
        });
        let all: Vec<serde_json::Value> = all.collect();
        return out.json(&all);
    }
    // The longest column comes last, so that rows fit a terminal. Classes and fixtures are for scripts.
    let columns = ["family", "makes", "GGUF", "models"];
    let mut table = TextTable::new(&columns.map(|column| (column, Align::Left)));
    for family in families().chain(encoders()).chain(assistants()) {
        let mut lines = wrapped(family.models, MODELS_WIDTH).into_iter();
        let first = [family.name, makes(family), family.gguf_arch].map(str::to_owned);
        table.row(first.into_iter().chain(lines.next()).collect());
        for line in lines {
            table.row(vec![String::new(), String::new(), String::new(), line]);
        }
    }
    table.print(&mut out)?;
    out.flush()
}

/// Characters of a line's models: with the other columns, a line has less than 100.
const MODELS_WIDTH: usize = 52;

/// Kind of output from a model of the family.
fn makes(family: &Family) -> &'static str {
    match (family.is_encoder(), family.is_assistant()) {
        (true, _) => "vectors",
        (_, true) => "drafts",
        _ => "text",
    }
}

fn row(held: &CachedModel) -> Vec<String> {
    let commit = held.commit.get(..12).unwrap_or(&held.commit);
    vec![held.name.clone(), bytes(held.size_bytes), commit.to_owned()]
}
