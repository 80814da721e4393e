//! `millrace synth`: writes a random-weight model at a real geometry.

use crate::commands::quantize::parse_recipe;
use crate::exit::{CommandFailure, CommandResult};
use crate::interrupt;
use crate::output::{Out, Ui, bytes, count};
use crate::progress::ProgressDisplay;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use millrace_format::Checkpoint;
use millrace_model::recipe::Recipe;
use millrace_model::synth::{self, ModelGeometry, SynthOptions, SynthSummary};
use serde_json::json;
use std::ops::ControlFlow;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  millrace synth llama-tiny tiny.gguf                         a small model for tests
  millrace synth llama-3.2-1b 1b.gguf --type Q4_K_M           then `millrace bench 1b.gguf`
  millrace synth qwen3-0.6b qwen-folder --type BF16           a Hugging Face folder
  millrace synth llama-3.1-8b 8b.gguf --layers 4 --seed 7     fewer layers, other weights
  millrace synth gemma-3-1b g.gguf --vocab-from gemma.gguf    with a real vocabulary
  millrace synth qwen3.5-0.8b q.gguf --mtp                    then `millrace bench q.gguf --draft mtp`
  millrace synth qwen3.5-0.8b q.gguf --mtp --mtp-acceptance 0.7
  millrace synth gemma-tiny g --type F32 --vision             then `millrace run g --image a.png \"What?\"`

The files load wherever a real model does and run at the same speed; the text makes no sense. The
same options give the same bytes on every machine.";

/// Write a random-weight model with the shape of a real one
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SynthArgs {
    /// Model shape to use
    #[arg(value_name = "GEOMETRY", value_parser = geometry_parser())]
    geometry: ModelGeometry,
    /// File (.gguf) or folder to write
    #[arg(value_name = "OUT", value_hint = clap::ValueHint::AnyPath)]
    out: PathBuf,
    /// Type of the weights [default: Q4_0 in a GGUF file, BF16 in a folder]
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_recipe)]
    recipe: Option<Recipe>,
    /// Use the vocabulary of this GGUF file (GGUF output only)
    #[arg(long, value_name = "FILE.gguf", value_hint = clap::ValueHint::FilePath)]
    vocab_from: Option<PathBuf>,
    /// Include the vision encoder of gemma-3-4b or gemma-tiny: in the folder, or in mmproj-OUT beside the file
    #[arg(long)]
    vision: bool,
    /// Include a layer that predicts the token after the next (MTP), and guesses most of the model's text
    #[arg(long, conflicts_with = "vision")]
    mtp: bool,
    /// Share of that layer's guesses that are right, from 0.05 to 1
    #[arg(long, value_name = "SHARE", requires = "mtp", default_value_t = synth::DEFAULT_ACCEPTANCE)]
    mtp_acceptance: f64,
    /// Number of layers [default: the geometry's]
    #[arg(long, value_name = "N")]
    layers: Option<usize>,
    /// Seed of the weights
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Threads to generate weights with [default: one for each processor]
    #[arg(short, long, value_name = "N", env = "MILLRACE_THREADS", hide_env_values = true, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print a summary of the result as JSON
    #[arg(long)]
    json: bool,
}

fn geometry_parser() -> impl TypedValueParser<Value = ModelGeometry> {
    PossibleValuesParser::new(ModelGeometry::all().map(ModelGeometry::name))
        .map(|name| ModelGeometry::named(&name).expect("one of the possible values"))
}

pub(crate) fn run(args: &SynthArgs, ui: Ui) -> CommandResult {
    let is_gguf = args
        .out
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let default = if is_gguf { "Q4_0" } else { "BF16" };
    let recipe = args
        .recipe
        .or_else(|| Recipe::parse(default))
        .expect("both defaults exist");
    let vocab = args
        .vocab_from
        .as_deref()
        .map(Checkpoint::open)
        .transpose()?;
    let metadata = vocab.as_ref().map(|file| {
        let not_gguf = || CommandFailure::bad_input(format!("{} is not a GGUF file", file.name()));
        file.gguf().ok_or_else(not_gguf)
    });
    let options = SynthOptions {
        recipe,
        vocab: metadata.transpose()?,
        vision: args.vision,
        n_layers: args.layers,
        seed: args.seed,
        n_threads: args.threads.map(usize::from),
    };
    let progress = ProgressDisplay::bytes(ui, 0);
    progress.message(args.geometry.name());
    let mut go_on = |done, total| {
        progress.set_of(done, total);
        if interrupt::is_raised() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let (geometry, out) = (args.geometry, &*args.out);
    let written = match args.mtp {
        true => {
            let options = (&options, args.mtp_acceptance);
            synth::write_with_draft_layer(geometry, out, options, &mut go_on)
        }
        false => synth::write(geometry, out, &options, &mut go_on),
    };
    drop(progress);
    let written = written.map_err(|error| match &error {
        millrace_model::Error::Cancelled => CommandFailure::interrupted(),
        millrace_model::Error::Format(_) => CommandFailure::writing(&error),
        _ => CommandFailure::usage(error.to_string()),
    })?;
    print(args, recipe, &written, ui)
}

fn print(args: &SynthArgs, recipe: Recipe, written: &SynthSummary, ui: Ui) -> CommandResult {
    let mut out = Out::new();
    if args.json {
        return out.json(&json!({
            "path": args.out,
            "geometry": args.geometry.name(),
            "type": recipe.name(),
            "mmproj": written.mmproj,
            "n_params": written.n_params,
            "size_bytes": written.size_bytes,
            "n_layers": written.config.n_layers,
            "vocab_size": written.config.vocab_size,
            "seed": args.seed,
        }));
    }
    ui.note(format_args!(
        "{} parameters in {}, {}",
        count(written.n_params),
        recipe.name(),
        bytes(written.size_bytes)
    ));
    out.line(args.out.display())?;
    if let Some(mmproj) = &written.mmproj {
        out.line(mmproj.display())?;
    }
    out.flush()
}
