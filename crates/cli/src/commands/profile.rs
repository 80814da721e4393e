//! `millrace profile`: predicts the cost of a model on an NPU, its transfers, and where the time goes.

mod cluster;
mod document;
mod html;
mod image;
mod measured;
mod paper;
mod ranks;
mod subject;
mod tables;
mod trace;

use crate::engine_args::CpuArgs;
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::output::{Out, Ui};
use crate::progress::ProgressDisplay;
use crate::target_args::{TargetArgs, evidence};
use document::{Document, UnchangedPart};
use image::Image;
use millrace_model::synth::ModelGeometry;
use millrace_plan::predict::{
    self, PredictError, Prediction, PromptWorkload, Variant, cells, variants, with_settings,
};
use millrace_plan::{Lowering, Settings, Target};
use ranks::RanksArgs;
use std::path::PathBuf;
use subject::ProfileSubject;

const EXAMPLES: &str = "\
Examples:
  millrace profile demo                                     predicted, and run on the virtual NPU
  millrace profile model.gguf --timing-only                 predicted alone: no weight is read
  millrace profile --geometry llama-3.2-1b --mode mlir-air  the published stack, 2,048 tokens
  millrace profile --geometry llama-3.2-1b --prompt-tokens 30 --context 2048
  millrace profile --geometry llama-3.2-1b --layers 2       two of its sixteen layers
  millrace profile --geometry llama-3.2-1b --features       the gain of each improvement
  millrace profile --geometry llama-3.2-1b --set profile.ddr.read_gb_per_s=110
                                                            a machine that does not exist yet
  millrace profile --geometry gemma-3-4b --mode int4 --prompt-tokens 280 --with-image
                                                            time to the first token of a question about an image
  millrace profile --paper gemma3                           a paper's tables beside predictions
  millrace profile demo \"Once upon a time\" --html p.html   a page with the array over time
  millrace profile demo --timing-only --trace t.json        opens in Perfetto or chrome://tracing
  millrace profile demo --ranks 2 -n 32                     on CPUs: work and traffic of each of two ranks
  mpirun -n 2 millrace profile demo --mpi -n 32             the same over MPI, with the time of its exchanges

NPU times are modelled, never measured. The label names the profile and its error on whole models that others
measured; `millrace fidelity --model` lists them. A changed machine (--set) has no stated error. Rates count
all arithmetic of the programs, padding included, against the peak of the array's matrix units in bf16. Times of
this computer are measured and printed separately; they say nothing about an NPU.";

/// Show where a model's time goes: programs, launches, bytes and memory on an NPU; products and exchanges on ranks of CPUs
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProfileArgs {
    #[arg(help = crate::model_arg::MODEL_HELP, value_hint = clap::ValueHint::AnyPath, required_unless_present_any = ["geometry", "paper"])]
    model: Option<String>,
    /// Prompt [default: the number of tokens given by --prompt-tokens]
    #[arg(conflicts_with = "prompt_tokens")]
    prompt: Option<String>,
    /// Use the shape of a published model instead of a file; only predicted
    #[arg(long, value_name = "NAME", value_parser = subject::geometry_parser(), conflicts_with = "model")]
    geometry: Option<ModelGeometry>,
    /// Number of layers [default: the geometry's]
    #[arg(long, value_name = "N", requires = "geometry")]
    layers: Option<usize>,
    /// Print the tables of a publication beside the predictions for its models
    #[arg(long, value_name = "NAME", conflicts_with_all = ["model", "prompt", "geometry", "prompt_tokens", "context",
        "features", "trace", "html", "chips", "markdown", "with_image", "mode", "without", "numerics", "simulator", "machine", "set", "profile"])]
    paper: Option<String>,
    /// Take only the rows of a paper with at most this many tokens: long ones take longest
    #[arg(long, value_name = "TOKENS", requires = "paper", conflicts_with_all = ["model", "geometry"], value_parser = clap::value_parser!(u64).range(1..=predict::MAX_PROMPT))]
    up_to: Option<u64>,
    /// Never use the network: hf: models must be in the cache
    #[arg(long)]
    offline: bool,
    /// Tokens of the prompt [default: 2048 if only predicted, else 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=predict::MAX_PROMPT))]
    prompt_tokens: Option<u64>,
    /// Tokens to generate when it runs
    #[arg(short = 'n', long = "tokens", value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=4096))]
    n_tokens: u64,
    /// Tokens in the cache before the predicted token [default: the prompt's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=predict::MAX_PROMPT))]
    context: Option<u64>,
    /// Also predict the prompt with an image at its beginning: the vision encoder's programs, and a first pass that includes it
    #[arg(long, conflicts_with_all = ["markdown", "chips"])]
    with_image: bool,
    /// File with the vision encoder of a GGUF model [default: the mmproj file beside it]
    #[arg(long, value_name = "FILE", requires = "with_image", value_hint = clap::ValueHint::FilePath)]
    mmproj: Option<PathBuf>,
    /// Only predict: no weight is read, nothing is run
    #[arg(long)]
    timing_only: bool,
    /// Leave out each improvement of mode fast in turn, to show its gain
    #[arg(long)]
    features: bool,
    /// Write a trace of the prompt and a token (Chrome trace-event format)
    #[arg(long, value_name = "FILE.json", value_hint = clap::ValueHint::FilePath)]
    trace: Option<PathBuf>,
    /// In the trace, show cores and channels too, at the first call of each program
    #[arg(long, requires = "trace")]
    trace_cores: bool,
    /// Write an HTML page with tables and images
    #[arg(long, value_name = "FILE.html", value_hint = clap::ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// Predict N devices of the kind that share the model
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024), conflicts_with_all = ["prompt", "features", "trace", "html", "markdown"])]
    chips: Option<u64>,
    /// How devices share the model: `pp`, each has some of the layers; `tp`, each has a share of every layer
    #[arg(long, value_name = "HOW", default_value = "pp", requires = "chips")]
    parallel: String,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Print as Markdown, with both modes beside the published results of Llama-3.2-1B
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    cpu: CpuArgs,
    #[command(flatten)]
    ranks: RanksArgs,
}

pub(crate) fn run(args: &ProfileArgs, ui: Ui) -> CommandResult {
    if let Some(name) = &args.paper {
        return paper::run(args, name, ui);
    }
    if args.ranks.are_asked_for() {
        return ranks::run(args, ui);
    }
    let subject = ProfileSubject::open(args, ui)?;
    let target = args.target.device;
    let settings = args.target.plans.settings(target, subject.graph())?;
    if let Some(n_devices) = args.chips {
        return cluster::run(args, &subject, &settings, n_devices);
    }
    let planner = args.target.planner(subject.graph())?;
    let work = work(args, &subject, &*planner)?;
    warn_of_length(&subject, &work, ui);
    if args.markdown {
        return markdown(args, &subject, &settings, &work, ui);
    }
    let progress = ProgressDisplay::spinner(ui, "predicting");
    let mut pricer = planner.pricer().ok_or_else(|| unmeasured(target))?;
    let prediction = predict::model(subject.graph(), &*planner, &mut *pricer, &work);
    let prediction = prediction.map_err(failed)?;
    let image = Image::of(args, &subject, &*planner, &mut *pricer, &prediction)?;
    let document = Document {
        model: subject.name().to_owned(),
        machine: pricer.machine().clone(),
        mode: planner.mode(),
        trained_context: subject.model().config.context_length,
        error: pricer.model_error(),
        kernel_error_percent: pricer.kernel_error_percent(),
        without: match args.features {
            true => Some(without(target, &settings, (&subject, &work), &prediction)?),
            false => None,
        },
        unchanged: unchanged(args, &settings, &subject, &work)?,
        prediction,
        image,
        measured: None,
    };
    if let Some(path) = &args.trace {
        let lowering: &dyn Lowering = &*planner;
        let plans = (lowering, &*pricer);
        trace::write(path, args.trace_cores, &subject, &work, plans, &document)?;
    }
    drop(progress);
    let measured = measured::run(args, &subject, &work, ui)?;
    let document = Document {
        measured,
        ..document
    };
    show(args, &document, ui)
}

/// Writes the HTML page, if one is asked for, and prints the tables.
fn show(args: &ProfileArgs, document: &Document, ui: Ui) -> CommandResult {
    if let Some(path) = &args.html {
        html::write(path, document)?;
        ui.note(format_args!("wrote {}", path.display()));
    }
    let mut out = Out::new();
    match args.json {
        true => out.json(document)?,
        false => tables::print(document, &mut out)?,
    }
    out.flush()
}

fn unmeasured(target: &dyn Target) -> CommandFailure {
    CommandFailure::usage(format!(
        "nothing was ever measured of {}: it has no times",
        target.title()
    ))
}

/// Time of a pass without each feature, and the published ratios to compare with.
fn without(
    target: &'static dyn Target,
    settings: &Settings,
    (subject, work): (&ProfileSubject, &PromptWorkload),
    prediction: &Prediction,
) -> CommandResult<Vec<Variant>> {
    let others = evidence(target).map(|evidence| evidence.comparisons());
    let others = others.unwrap_or_default();
    let rows = variants(subject.graph(), target, settings, work, prediction, &others);
    rows.map_err(failed)
}

/// Warns where the prediction exceeds the context that the model was trained for.
fn warn_of_length(subject: &ProfileSubject, work: &PromptWorkload, ui: Ui) {
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

/// Prints the page of published results of the model; fails where nothing was published.
fn markdown(
    args: &ProfileArgs,
    subject: &ProfileSubject,
    settings: &Settings,
    work: &PromptWorkload,
    ui: Ui,
) -> CommandResult {
    let target = args.target.device;
    let _progress = ProgressDisplay::spinner(ui, "predicting");
    let evidence = evidence(target);
    let page = evidence.and_then(|evidence| {
        evidence.published_page(subject.name(), subject.graph(), settings, work)
    });
    let Some(page) = page else {
        let message = format!(
            "nothing was published of {} on {}",
            subject.name(),
            target.name()
        );
        return Err(CommandFailure::usage(message));
    };
    let mut out = Out::new();
    out.text(page.map_err(failed)?)?;
    out.flush()
}

fn failed(error: PredictError) -> CommandFailure {
    match error {
        PredictError::Setting(error) => error.into(),
        PredictError::Lower(error) => error.into(),
        other => CommandFailure::new(Exit::Failed, other.to_string()),
    }
}

/// Prompt and context to predict.
fn work(
    args: &ProfileArgs,
    subject: &ProfileSubject,
    planner: &dyn Lowering,
) -> CommandResult<PromptWorkload> {
    let prompt_tokens = match (&args.prompt, args.prompt_tokens) {
        (Some(text), _) => subject.encode(text)?.len() as u64,
        (None, Some(n)) => n,
        (None, None) if subject.only_predicted(args) => {
            planner.lengths().all().last().copied().unwrap_or(1)
        }
        (None, None) => measured::PROMPT_TOKENS,
    };
    Ok(PromptWorkload {
        context: args.context.unwrap_or(prompt_tokens),
        ..PromptWorkload::new(prompt_tokens)
    })
}

/// The machine and its prediction without the `--set` changes, if there are any.
fn unchanged(
    args: &ProfileArgs,
    settings: &Settings,
    subject: &ProfileSubject,
    work: &PromptWorkload,
) -> CommandResult<Option<UnchangedPart>> {
    let Some(settings) = settings.unchanged() else {
        return Ok(None);
    };
    let target = args.target.device;
    let prediction: Prediction =
        with_settings(subject.graph(), target, &settings, work).map_err(failed)?;
    Ok(Some(UnchangedPart {
        machine: target.planner(&settings)?.machine(),
        prediction,
    }))
}
