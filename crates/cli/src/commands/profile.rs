//! `millrace profile`: what a model costs on an NPU, predicted; what it moves and where the time goes.

mod cells;
mod document;
mod features;
mod html;
mod markdown;
mod measured;
mod subject;
mod tables;
mod trace;

use crate::engine_args::CpuArgs;
use crate::exit::{Exit, Failure, Outcome};
use crate::npu_args::NpuModelArgs;
use crate::output::{Out, Ui};
use crate::progress::Progress;
use document::{Document, Unchanged};
use millrace_model::synth::Geometry;
use millrace_xdna2::lower;
use millrace_xdna2::predict::{self, Prediction, Timer, Work};
use std::path::PathBuf;
use subject::Subject;

const EXAMPLES: &str = "\
Examples:
  millrace profile demo                                     predicted, and run on the virtual NPU
  millrace profile model.gguf --timing-only                 predicted alone: no weight is read
  millrace profile --geometry llama-3.2-1b --mode reference  the published stack, 2,048 tokens
  millrace profile --geometry llama-3.2-1b --prompt-tokens 30 --context 2048
  millrace profile --geometry llama-3.2-1b --layers 2       two of its sixteen layers
  millrace profile --geometry llama-3.2-1b --features       what each improvement buys
  millrace profile --geometry llama-3.2-1b --set profile.ddr.read_gb_per_s=110
                                                            a machine that does not exist yet
  millrace profile demo \"Once upon a time\" --html p.html   a page with the array over time
  millrace profile demo --timing-only --trace t.json        opens in Perfetto or chrome://tracing

NPU times are modelled, never measured: the label says by which profile, and how far off it was for whole
models that others measured; `millrace fidelity --model` lists them. A changed machine (--set) has no stated
error. Rates count what the programs compute, padding included, against the peak of the array's matrix units
in bf16. Times of this computer are measured and printed apart; of an NPU they say nothing.";

/// Show where a model's time goes on an NPU: programs, launches, bytes, memory
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[arg(help = crate::model_arg::MODEL_HELP, value_hint = clap::ValueHint::AnyPath, required_unless_present = "geometry")]
    model: Option<String>,
    /// The prompt [default: as many tokens as --prompt-tokens says]
    #[arg(conflicts_with = "prompt_tokens")]
    prompt: Option<String>,
    /// Take the shape of a published model instead of a file; only predicted
    #[arg(long, value_name = "NAME", value_parser = subject::geometry_parser(), conflicts_with = "model")]
    geometry: Option<Geometry>,
    /// Number of layers [default: the geometry's]
    #[arg(long, value_name = "N", requires = "geometry")]
    layers: Option<usize>,
    /// Never use the network: hf: models must be in the cache
    #[arg(long)]
    offline: bool,
    /// The kind of NPU
    #[arg(long, value_name = "NAME", default_value = "xdna2", value_parser = ["xdna2"])]
    device: String,
    #[command(flatten)]
    npu: NpuModelArgs,
    /// Tokens of the prompt [default: 2048 if only predicted, else 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=predict::MAX_PROMPT))]
    prompt_tokens: Option<u64>,
    /// Tokens to write when it runs
    #[arg(short = 'n', long = "tokens", value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=4096))]
    n_tokens: u64,
    /// Tokens in the cache of the token that is predicted [default: the prompt's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=predict::MAX_PROMPT))]
    context: Option<u64>,
    /// Predict only: no weight is read, nothing is run
    #[arg(long)]
    timing_only: bool,
    /// Leave out each improvement of mode best in turn, to see what it buys
    #[arg(long)]
    features: bool,
    /// Write a trace of the prompt and a token (Chrome trace-event format)
    #[arg(long, value_name = "FILE.json", value_hint = clap::ValueHint::FilePath)]
    trace: Option<PathBuf>,
    /// In the trace, show cores and channels too, at the first call of each program
    #[arg(long, requires = "trace")]
    trace_cores: bool,
    /// Write one page with tables and pictures, for a browser
    #[arg(long, value_name = "FILE.html", value_hint = clap::ValueHint::FilePath)]
    html: Option<PathBuf>,
    #[command(flatten)]
    cpu: CpuArgs,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Print as Markdown, both modes beside what was published of Llama-3.2-1B
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

pub(crate) fn run(args: &Args, ui: Ui) -> Outcome {
    let subject = Subject::open(args, ui)?;
    let (machine, profile) = args.npu.machine()?;
    let work = work(args, &subject)?;
    warn_of_length(&subject, &work, ui);
    let mut timer = Timer::new(&machine, &profile);
    if args.markdown {
        let _progress = Progress::spinner(ui, "predicting");
        let mut out = Out::new();
        out.text(markdown::page(&subject, &mut timer, &work)?)?;
        return out.flush();
    }
    let progress = Progress::spinner(ui, "predicting");
    let prediction = predict(&subject, &mut timer, &work)?;
    let document = Document {
        model: subject.name().to_owned(),
        machine: document::MachineFacts::of(&machine),
        trained_context: subject.model().config.context_length,
        error: predict::model_error(&profile, &machine),
        kernel_error_percent: predict::kernel_error_percent(&profile, &machine),
        without: match args.features {
            true => Some(features::rows(&subject, &mut timer, &work, &prediction)?),
            false => None,
        },
        unchanged: unchanged(args, &subject, &work)?,
        prediction,
        measured: None,
    };
    if let Some(path) = &args.trace {
        trace::write(path, args.trace_cores, &subject, &work, &timer, &document)?;
    }
    drop(progress);
    let measured = measured::run(args, &subject, &work, ui)?;
    let document = Document {
        measured,
        ..document
    };
    if let Some(path) = &args.html {
        html::write(path, &document)?;
        ui.note(format_args!("wrote {}", path.display()));
    }
    let mut out = Out::new();
    match args.json {
        true => out.json(&document)?,
        false => tables::print(&document, &mut out)?,
    }
    out.flush()
}

/// Says so where the model was not trained for what is predicted.
fn warn_of_length(subject: &Subject, work: &Work, ui: Ui) {
    let trained = subject.model().config.context_length as u64;
    let longest = work.prompt_tokens.max(work.context + 1);
    if longest > trained {
        ui.warn(format_args!(
            "{} was trained for {} tokens; {} are predicted, which it may not make sense of",
            subject.name(),
            cells::count(trained),
            cells::count(longest)
        ));
    }
}

/// What is predicted.
fn work(args: &Args, subject: &Subject) -> Outcome<Work> {
    let prompt_tokens = match (&args.prompt, args.prompt_tokens) {
        (Some(text), _) => subject.encode(text)?.len() as u64,
        (None, Some(n)) => n,
        (None, None) if subject.only_predicted(args) => lower::REFERENCE_TOKENS,
        (None, None) => measured::PROMPT_TOKENS,
    };
    let mut work = Work::new(args.npu.features(), prompt_tokens);
    work.context = args.context.unwrap_or(prompt_tokens);
    Ok(work)
}

fn predict(subject: &Subject, timer: &mut Timer<'_>, work: &Work) -> Outcome<Prediction> {
    predict::model(subject.graph(), timer, work)
        .map_err(|error| Failure::new(Exit::Failed, error.to_string()))
}

/// The machine without what was changed, where something was.
fn unchanged(args: &Args, subject: &Subject, work: &Work) -> Outcome<Option<Unchanged>> {
    let Some((machine, profile)) = args.npu.unchanged()? else {
        return Ok(None);
    };
    let mut timer = Timer::new(&machine, &profile);
    Ok(Some(Unchanged {
        machine: document::MachineFacts::of(&machine),
        prediction: predict(subject, &mut timer, work)?,
    }))
}
