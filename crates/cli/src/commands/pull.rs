//! `millrace pull`: downloads a model from the Hugging Face Hub into the shared cache.

use crate::download::DownloadBar;
use crate::exit::CommandResult;
use crate::interrupt;
use crate::output::{Out, Ui, bytes};
use millrace_hub::{Hub, HubSettings, Reference, Snapshot, Watch};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  millrace pull bartowski/Llama-3.2-1B-Instruct-GGUF          the usual size (Q4_K_M where there is one)
  millrace pull bartowski/Llama-3.2-1B-Instruct-GGUF:Q8_0     another quantisation
  millrace pull Qwen/Qwen3-0.6B                               a folder of safetensors
  millrace pull google/gemma-3-1b-it@main                     a branch, tag or commit
  millrace run \"$(millrace pull OWNER/REPO)\" \"Hello\"        the path goes to standard output

An interrupted download continues where it stopped; every file is checked against the hub's hash.

Environment:
  HF_TOKEN        access token for private and gated models (or the file `hf auth login` writes)
  HF_ENDPOINT     another hub, such as a mirror
  HF_HOME, HF_HUB_CACHE   where the cache is (default: ~/.cache/huggingface/hub)
  HF_HUB_OFFLINE  1: never use the network";

/// Download a model from the Hugging Face Hub
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PullArgs {
    /// Model to download: OWNER/REPO, with :QUANT or :FILE to choose one of several files
    #[arg(value_name = "REPO[:QUANT]", value_hint = clap::ValueHint::Other)]
    reference: String,
    /// Branch, tag or commit (the same as OWNER/REPO@REVISION)
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// Look only in the cache
    #[arg(long)]
    offline: bool,
    /// Print the downloaded model as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &PullArgs, ui: Ui) -> CommandResult {
    let mut reference = Reference::parse(&args.reference)?;
    if let Some(revision) = &args.revision {
        reference = reference.at(revision)?;
    }
    let hub = Hub::new(HubSettings::from_env(args.offline)?);
    let bar = DownloadBar::new(ui);
    let watch = Watch {
        tell: &|progress| bar.tell(progress),
        cancel: interrupt::flag(),
    };
    let pulled = hub.pull(&reference, &watch)?;
    drop(bar);
    report(&reference, &pulled, ui);
    let mut out = Out::new();
    if args.json {
        out.json(&describe(&reference, &pulled))?
    } else {
        out.line(pulled.path.display())?
    }
    out.flush()
}

fn report(reference: &Reference, pulled: &Snapshot, ui: Ui) {
    let total: u64 = pulled.files.iter().map(|file| file.size_bytes).sum();
    let downloaded: u64 = pulled.files.iter().map(|file| file.downloaded_bytes).sum();
    let files = pulled.files.len();
    let plural = if files == 1 { "" } else { "s" };
    let source = match downloaded {
        0 => "all of it was in the cache".to_owned(),
        n => format!("{} downloaded", bytes(n)),
    };
    let short = pulled.commit.get(..12).unwrap_or(&pulled.commit);
    ui.note(format_args!(
        "{reference} at {short}: {files} file{plural}, {}, {source}",
        bytes(total)
    ));
}

fn describe(reference: &Reference, pulled: &Snapshot) -> serde_json::Value {
    let files = pulled.files.iter().map(|file| {
        json!({
            "name": file.name,
            "size_bytes": file.size_bytes,
            "downloaded_bytes": file.downloaded_bytes,
        })
    });
    json!({
        "repo": reference.repo,
        "revision": reference.revision,
        "commit": pulled.commit,
        "path": pulled.path,
        "files": files.collect::<Vec<_>>(),
    })
}
