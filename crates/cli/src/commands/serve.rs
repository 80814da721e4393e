//! `millrace serve`: serves models to any client of OpenAI's, Anthropic's or Ollama's API.

mod adapters;
mod assign;
mod drafts;
pub(crate) mod models;
mod network;

use crate::engine_args::{ContextArgs, CpuArgs};
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::interrupt;
use crate::machine;
use crate::output::{Out, Ui};
use crate::ranks::{self, MpiArgs};
use crate::target_args::{DeviceArgs, ModelPlacement, examples, place_parser};
use millrace_runtime::HostMemory;
use millrace_runtime::disk::PageFolder;
use millrace_server::scheduler::{MAX_PASS_DRAFTS, SchedulerOptions};
use millrace_server::{ModelOptions, ServeError, ServerOptions, TlsError};
use network::NetworkArgs;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  millrace serve demo                             the built-in model, on http://127.0.0.1:8080
  millrace serve hf:OWNER/REPO:Q4_K_M --parallel 16 -c 4096
  millrace serve small=demo-draft big=demo        two models, by names of your choice
  millrace serve demo --device {npu}               on the simulated NPU, with modelled times
  millrace serve demo --also-on {npu}              on the CPU as `demo`, and on the NPU as `demo@{npu}`
  millrace serve demo --draft demo-draft          tokens drafted by a smaller model, or by `ngram`
  millrace serve demo --cache-dir ~/.cache/prompts   conversations survive a restart of the server
  millrace serve model.gguf --lora style=style.gguf  as `model`, and with the LoRA adapter as `style`
  millrace serve gemma.gguf --mmproj mmproj.gguf  images in messages, read by this vision encoder
  millrace serve demo --host 0.0.0.0 --api-key-file keys.txt    for other computers on the network

Then:
  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"model\": \"demo\",
    \"messages\": [{\"role\": \"user\", \"content\": \"What is 7 plus 5?\"}]}'
  OPENAI_BASE_URL=http://127.0.0.1:8080/v1     for programs that use OpenAI's client
  ANTHROPIC_BASE_URL=http://127.0.0.1:8080     for those of Anthropic's
  OLLAMA_HOST=http://127.0.0.1:8080            for those of Ollama's
  http://127.0.0.1:8080/                       a page to chat on

Prints its address to standard output when it listens, and a JSON object per request to standard error
(not with --quiet). Ctrl-C or SIGTERM completes the requests in progress, then ends.";

/// Serve models over HTTP, to many clients at once
#[derive(clap::Args, Debug)]
#[command(after_help = examples(EXAMPLES))]
pub(crate) struct ServeArgs {
    /// Models: `demo` (built in), a file or folder, hf:OWNER/REPO[:QUANT]; NAME=MODEL sets the served name
    #[arg(value_name = "MODEL", required = true, value_hint = clap::ValueHint::AnyPath)]
    models: Vec<String>,
    /// Requests that may wait, for each model; more are refused with 429
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = at_least_one())]
    queue: usize,
    /// Target for the longest pass while answers are generated: bounds the pauses that long prompts cause
    #[arg(long, value_name = "MS", default_value_t = 120)]
    max_delay: u64,
    /// Maximum models loaded at a time; another one replaces the one idle longest [default: all]
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    max_loaded: Option<usize>,
    /// Memory limit of all loaded models, weights and contexts; a model that does not fit replaces those idle
    /// longest [default: no limit]
    #[arg(long, value_name = "MIB", value_parser = at_least_one())]
    memory_budget: Option<usize>,
    /// Unload a model that has been idle this long; it is loaded again when asked for
    #[arg(long, value_name = "SECONDS")]
    idle_unload: Option<u64>,
    #[command(flatten)]
    served: ServedArgs,
    #[command(flatten)]
    network: NetworkArgs,
}

/// Options for serving models that `serve` and `batch` share.
#[derive(clap::Args, Debug)]
pub(crate) struct ServedArgs {
    /// Never use the network: hf: models must be in the cache
    #[arg(long)]
    offline: bool,
    /// Maximum answers computed together, for each model; more wait
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = at_least_one())]
    pub(crate) parallel: usize,
    /// Total context of all answers of a model, in tokens [default: --parallel times --ctx]
    #[arg(long, value_name = "TOKENS")]
    kv_tokens: Option<usize>,
    /// Guess tokens of answers ahead and check them together: with a smaller MODEL of the same vocabulary, with the
    /// model's own draft layer (`mtp`), with its assistant (a MODEL too), or from repetitions in the text (`ngram`).
    /// Changes the speed, not the text; on an NPU, near ties may fall otherwise. With several models NAME=MODEL, for each
    /// model with a draft
    #[arg(
        long,
        value_name = "[NAME=]MODEL|mtp|ngram",
        help_heading = "Speculation"
    )]
    draft: Vec<String>,
    /// File with the vision encoder of a GGUF model [default: the mmproj file beside it]. With several models NAME=FILE
    #[arg(long, value_name = "[NAME=]FILE.gguf", help_heading = "Images", value_hint = clap::ValueHint::FilePath)]
    mmproj: Vec<String>,
    /// Keep the cache of computed prompts in this folder too: a restarted server finds it. It contains conversations,
    /// and only this user can read it
    #[arg(long, value_name = "FOLDER", help_heading = "Memory", value_hint = clap::ValueHint::DirPath)]
    cache_dir: Option<PathBuf>,
    /// Size limit of --cache-dir, for each model; the least recently used entries go first [default: 8192]
    #[arg(long, value_name = "MIB", help_heading = "Memory", requires = "cache_dir", value_parser = at_least_one())]
    cache_dir_size: Option<usize>,
    /// LoRA adapter, a GGUF file or a PEFT folder, that clients choose by its NAME as a model, or by `lora`. May be
    /// repeated; with several models MODEL:NAME=FILE
    #[arg(long, value_name = "NAME=FILE", help_heading = "Adapters", value_hint = clap::ValueHint::AnyPath)]
    lora: Vec<String>,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    cpu: CpuArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Serve every model on this device too, as NAME@DEVICE. May be repeated
    #[arg(long, value_name = "NAME", value_parser = place_parser(), help_heading = "Device")]
    also_on: Vec<ModelPlacement>,
    #[command(flatten)]
    pub(crate) ranks: MpiArgs,
}

/// Default size limit on disk for cached pages of a model.
const CACHE_DIR_MIB: usize = 8192;

impl ServedArgs {
    /// Whether models must be on this computer already.
    pub(crate) fn is_offline(&self) -> bool {
        self.offline
    }

    /// Folder for pages on disk.
    fn page_folder(&self, ui: Ui) -> CommandResult<Option<PageFolder>> {
        let Some(path) = &self.cache_dir else {
            return Ok(None);
        };
        if !self.device.is_cpu() {
            let message = "--cache-dir: a device keeps nothing between requests";
            return Err(CommandFailure::usage(message)
                .hint("leave --device out, or serve it beside the CPU with --also-on"));
        }
        std::fs::create_dir_all(path).map_err(|error| {
            CommandFailure::io(format_args!("--cache-dir {}", path.display()), &error)
        })?;
        let mib = self.cache_dir_size.unwrap_or(CACHE_DIR_MIB) as u64;
        Ok(Some(PageFolder {
            path: path.clone(),
            max_bytes: mib.saturating_mul(1 << 20),
            warn: Arc::new(move |line| ui.warn(line)),
        }))
    }
}

pub(crate) fn at_least_one() -> impl clap::builder::TypedValueParser<Value = usize> {
    use clap::builder::TypedValueParser;
    clap::value_parser!(u32)
        .range(1..)
        .map(|number| number as usize)
}

pub(crate) fn run(args: &ServeArgs, ui: Ui) -> CommandResult {
    if args.served.ranks.mpi && (args.idle_unload.is_some() || args.max_loaded.is_some()) {
        return Err(CommandFailure::usage(
            "--mpi keeps its model loaded: leave out --idle-unload and --max-loaded",
        ));
    }
    if args.served.ranks.is_follower()? {
        let _patience = interrupt::patience();
        return models::follow(&args.models, &args.served, ui);
    }
    let options = ServerOptions {
        models: models::specs(&args.models, &args.served, ui)?,
        model_options: ModelOptions {
            scheduler: SchedulerOptions {
                max_queue: args.queue,
                max_delay: Duration::from_millis(args.max_delay),
            },
            memory_budget: args
                .memory_budget
                .map(|mib| (mib as u64).saturating_mul(1 << 20)),
            max_loaded: args.max_loaded.unwrap_or(usize::MAX),
            idle_unload: args.idle_unload.map(Duration::from_secs),
            grace: Duration::from_secs(args.network.grace),
        },
        http: args.network.options(ui)?,
        system: Arc::new(system),
    };
    // The server handles the first Ctrl-C, however long its requests take to end.
    let _patience = interrupt::patience();
    let scheme = match args.network.tls_cert {
        Some(_) => "https",
        None => "http",
    };
    let mut written = Ok(());
    let listening = |address: std::net::SocketAddr| {
        let mut out = Out::new();
        written = out
            .line(format_args!("{scheme}://{address}"))
            .and_then(|()| out.flush());
        ui.note("listening; Ctrl-C completes what was begun, then ends");
    };
    let loaded = |result: Result<(), (String, String)>| match result {
        Ok(()) => ui.note("every model is loaded"),
        Err((model, reason)) => ui.warn(format_args!("{model} is not available: {reason}")),
    };
    // Without its ranks the model cannot answer: waiting requests get an error, and the server ends.
    let stop = || interrupt::is_raised() || ranks::has_failed();
    millrace_server::run(options, listening, loaded, stop)?;
    if ranks::has_failed() {
        let message = "the server ended, because a rank is lost";
        return Err(CommandFailure::new(Exit::Io, message).hint("start all ranks again"));
    }
    // It was asked to end, and did so: that is not a failure.
    interrupt::clear();
    written
}

/// Description of this machine for `/v1/system`.
pub(crate) fn system() -> Value {
    let processor = machine::processor();
    let memory = HostMemory::read();
    let accelerators = machine::accelerators();
    let accelerators = accelerators.iter().map(
        |found| json!({"node": found.node, "driver": found.driver, "accessible": found.accessible}),
    );
    json!({
        "cpu": processor.name, "threads": processor.threads, "cores": processor.cores,
        "features": processor.features,
        "memory_total_bytes": memory.total_bytes, "memory_available_bytes": memory.available_bytes,
        "memory_limit_bytes": memory.limit_bytes, "load_average": machine::load_average(),
        "accelerators": accelerators.collect::<Vec<_>>(),
    })
}

impl From<ServeError> for CommandFailure {
    fn from(error: ServeError) -> CommandFailure {
        match &error {
            ServeError::Open { .. } => CommandFailure::usage(error.to_string())
                .hint("MILLRACE_API_KEY=… in the environment, or --api-key-file FILE"),
            ServeError::TooLarge(_) => CommandFailure::usage(error.to_string()),
            ServeError::Tls(tls) => match tls {
                TlsError::Unreadable { .. } => CommandFailure::bad_input(error.to_string()),
                TlsError::Unusable { .. } => CommandFailure::bad_input(error.to_string()).hint(
                    "--tls-key must be the key that the certificate of --tls-cert was made for",
                ),
            },
            ServeError::Twice(_) => CommandFailure::usage(error.to_string()),
            ServeError::Listen { error: io, .. } => {
                let failure = CommandFailure::new(Exit::Io, error.to_string());
                match io.kind() {
                    std::io::ErrorKind::AddrInUse => {
                        failure.hint("take another --port, or 0 for one that is free")
                    }
                    _ => failure,
                }
            }
            ServeError::Audit { .. } => CommandFailure::new(Exit::Io, error.to_string())
                .hint("name a file that can be written with --audit-log"),
            ServeError::Batches(_) => CommandFailure::new(Exit::Io, error.to_string()),
            ServeError::Start(_) => CommandFailure::new(Exit::Io, error.to_string()),
        }
    }
}
