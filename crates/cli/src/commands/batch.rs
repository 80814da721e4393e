//! `millrace batch`: answers a file of requests into another file.

use super::serve::{ServedArgs, models, system};
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::interrupt;
use crate::model_arg::ModelArgs;
use crate::output::{Out, Ui};
use crate::progress::ProgressDisplay;
use crate::target_args::examples;
use millrace_server::batch::{BatchError, BatchReport, read_lines};
use millrace_server::scheduler::SchedulerOptions;
use millrace_server::{HttpOptions, ModelOptions, ServerOptions};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  millrace batch in.jsonl --out out.jsonl                    with the models that the requests name
  millrace batch in.jsonl --out out.jsonl --model gpt-4o-mini=demo   maps a name in the requests to a model
  millrace batch in.jsonl --out out.jsonl --parallel 32      32 answers computed together

Each line is a request in the format of OpenAI's batches:
  {\"custom_id\": \"1\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\",
    \"body\": {\"model\": \"demo\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}}

Answers come in any order, each with its custom_id. A stopped or killed batch resumes when it is started again with
the same files.";

/// Answer the requests of a file, many at a time
#[derive(clap::Args, Debug)]
#[command(after_help = examples(EXAMPLES))]
pub(crate) struct BatchArgs {
    /// Requests, one per line
    #[arg(value_name = "IN.jsonl", value_hint = clap::ValueHint::FilePath)]
    input: PathBuf,
    /// Answers, one per line; answers already in the file are kept, and their requests are not repeated
    #[arg(long, value_name = "OUT.jsonl", value_hint = clap::ValueHint::FilePath)]
    out: PathBuf,
    /// Model to use, or NAME=MODEL to map a name in the requests to a model. May be repeated
    /// [default: the models that the requests name]
    #[arg(long, value_name = "[NAME=]MODEL", value_hint = clap::ValueHint::AnyPath)]
    model: Vec<String>,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    served: ServedArgs,
}

pub(crate) fn run(args: &BatchArgs, ui: Ui) -> CommandResult {
    let lines = read_lines(&args.input)?;
    let bodies = lines.iter().map(|line| &line.body);
    let named: BTreeSet<String> = bodies.filter_map(model_of).collect();
    let models = match args.model.is_empty() {
        true => named.into_iter().collect(),
        false => args.model.clone(),
    };
    if args.served.ranks.is_follower()? {
        let _patience = interrupt::patience();
        return models::follow(&models, &args.served, ui);
    }
    if models.is_empty() {
        let message = format!("{}: no request names a model", args.input.display());
        return Err(CommandFailure::bad_input(message).hint("name one with --model"));
    }
    let n_requests = lines.len();
    drop(lines);
    let n_parallel = args.served.parallel * models.len();
    let options = ServerOptions {
        models: models::specs(&models, &args.served, ui)
            .map_err(|failure| with_request(failure, args))?,
        model_options: ModelOptions {
            scheduler: SchedulerOptions {
                max_queue: 4 * n_parallel + 64,
                ..SchedulerOptions::default()
            },
            ..ModelOptions::default()
        },
        http: for_itself(),
        system: Arc::new(system),
    };
    // Ctrl-C ends the batch at its present state, however long that takes.
    let _patience = interrupt::patience();
    let display = ProgressDisplay::steps(ui, n_requests as u64);
    let progress = move |done: usize, _: usize| display.set(done as u64);
    // Requests in progress are dropped at once; the next run repeats them.
    let report = millrace_server::batch::run(
        options,
        &args.input,
        &args.out,
        // Some requests wait, so that there is always one with the same beginning as another.
        2 * n_parallel,
        interrupt::is_raised,
        progress,
    )?;
    if interrupt::is_raised() && report.is_complete() {
        interrupt::clear();
    }
    tell(args, report, ui)?;
    match report.is_complete() {
        true => Ok(()),
        false => Err(CommandFailure::interrupted()),
    }
}

/// A server that only this process asks.
fn for_itself() -> HttpOptions {
    HttpOptions {
        port: 0,
        // No client knows this key.
        api_keys: vec![secret()],
        grace: Duration::ZERO,
        ..HttpOptions::default()
    }
}

/// Names the request whose model does not open, if the models are those that the requests name.
fn with_request(failure: CommandFailure, args: &BatchArgs) -> CommandFailure {
    if !args.model.is_empty() {
        return failure;
    }
    let lines = read_lines(&args.input).unwrap_or_default();
    let quiet = Ui {
        quiet: true,
        verbose: false,
    };
    let request = lines.iter().find_map(|line| {
        let name = model_of(&line.body)?;
        let model = ModelArgs {
            model: name.clone(),
            offline: args.served.is_offline(),
        };
        model
            .load(quiet)
            .is_err()
            .then_some((&line.custom_id, name))
    });
    let Some((custom_id, name)) = request else {
        return failure;
    };
    let input = args.input.display();
    let message = format!("{input}: request `{custom_id}`: {}", failure.message);
    CommandFailure::new(failure.exit, message).hint(format!(
        "--model {name}=MODEL answers these requests with a model of another name"
    ))
}

fn model_of(body: &Value) -> Option<String> {
    body.get("model").and_then(Value::as_str).map(str::to_owned)
}

fn tell(args: &BatchArgs, report: BatchReport, ui: Ui) -> CommandResult {
    let BatchReport {
        n_requests,
        n_before,
        n_answered,
        n_failed,
    } = report;
    if args.json {
        return Out::new().json(&json!({
            "requests": n_requests, "answered_before": n_before, "answered": n_answered, "failed": n_failed,
        }));
    }
    let before = match n_before {
        0 => String::new(),
        n => format!(", {n} before"),
    };
    ui.note(format_args!(
        "{n_answered} of {n_requests} answered{before}; {n_failed} of them with an error"
    ));
    Ok(())
}

/// A key that nobody can guess: the standard library's hash keys are random.
fn secret() -> String {
    let keys: HashMap<u8, u8, RandomState> = HashMap::new();
    let word = |i: u64| format!("{:016x}", keys.hasher().hash_one(i));
    (0..4).map(word).collect()
}

impl From<BatchError> for CommandFailure {
    fn from(error: BatchError) -> CommandFailure {
        let message = error.to_string();
        match error {
            BatchError::Line { .. } | BatchError::Foreign { .. } => {
                CommandFailure::bad_input(message)
            }
            BatchError::Serve(error) => error.into(),
            BatchError::File { error, .. } if error.kind() == std::io::ErrorKind::NotFound => {
                CommandFailure::not_found(message)
            }
            BatchError::File { .. } | BatchError::Locked { .. } => {
                CommandFailure::new(Exit::Io, message)
            }
            BatchError::Model { .. } => CommandFailure::bad_input(message),
        }
    }
}
