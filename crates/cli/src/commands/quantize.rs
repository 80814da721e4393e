//! `millrace quantize`: converts a model to another number format or kind of files.

use crate::exit::{CommandFailure, CommandResult};
use crate::interrupt;
use crate::lora_args::MergeArgs;
use crate::model_arg::{ModelArgs, refuse_input};
use crate::output::{Align, Out, TextTable, Ui, bytes};
use crate::progress::ProgressDisplay;
use fancy_regex::Regex;
use millrace_model::convert::{
    Conversion, ConversionOptions, ConversionSummary, ConversionTarget, OutputContainer,
    TensorTypeRule,
};
use millrace_model::importance::ImportanceMatrix;
use millrace_model::recipe::Recipe;
use millrace_quant::DType;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  millrace quantize model-folder model-Q4_K_M.gguf Q4_K_M    safetensors to GGUF
  millrace quantize big.gguf small.gguf Q4_0
  millrace quantize model.gguf model-folder BF16             GGUF to a Hugging Face folder
  millrace quantize model-folder bundle Q4NX                 a Q4NX bundle; embedding and tied head in BF16
  millrace quantize model-folder bundle Q4NX_PURE            embedding and head in Q4NX too: faster, slightly less exact
  millrace quantize model.gguf small.gguf IQ2_M --imatrix imatrix.gguf       see `millrace imatrix`
  millrace quantize model.gguf mixed.gguf Q4_K_M --tensor-type ffn_down=Q6_K  other types by name
  millrace quantize model.gguf own.gguf Q8_0 --merge-lora style.gguf:0.8  an adapter merged into the weights
  millrace quantize model-folder out.gguf Q8_0 --dry-run     the planned output and its size

OUT is a GGUF file if it ends in .gguf, else a folder. The result appears whole or not at all. _PURE after a
type gives every matrix the format that the type's name begins with. Types of one and two bits need an importance matrix.
";

fn help() -> String {
    let names: Vec<&str> = Recipe::all().map(Recipe::name).collect();
    format!("{EXAMPLES}\nTypes: {}", names.join(", "))
}

/// Convert a model to another number format, or between GGUF, safetensors and Q4NX
#[derive(clap::Args, Debug)]
#[command(after_help = help())]
pub(crate) struct QuantizeArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// File (.gguf) or folder to write
    #[arg(value_name = "OUT", value_hint = clap::ValueHint::AnyPath)]
    out: PathBuf,
    /// Type of the weights, by llama.cpp's names; listed below
    #[arg(value_name = "TYPE", value_parser = parse_recipe)]
    recipe: Recipe,
    /// Importance matrix of this model (GGUF or .dat): reduces errors in the more important columns
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    imatrix: Option<PathBuf>,
    /// Type of the matrices whose names match a regular expression; may be repeated, and the first match counts
    #[arg(long, value_name = "PATTERN=TYPE", value_parser = parse_rule)]
    tensor_type: Vec<TensorTypeRule>,
    /// Type of the token embeddings
    #[arg(long, value_name = "TYPE", value_parser = parse_dtype)]
    token_embedding_type: Option<DType>,
    /// Type of the output matrix
    #[arg(long, value_name = "TYPE", value_parser = parse_dtype)]
    output_tensor_type: Option<DType>,
    #[command(flatten)]
    merge: MergeArgs,
    /// Show the plan and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Threads to convert with [default: one for each processor]
    #[arg(short, long, value_name = "N", env = "MILLRACE_THREADS", hide_env_values = true, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print a summary of the result as JSON
    #[arg(long)]
    json: bool,
}

/// Parses the name of a recipe; letter case does not matter.
pub(crate) fn parse_recipe(name: &str) -> Result<Recipe, String> {
    Recipe::from_name(name).map_err(|error| error.to_string())
}

/// Parses a format that GGUF files hold weights in.
fn parse_dtype(name: &str) -> Result<DType, String> {
    let is_for_weights = |dtype: &DType| {
        dtype.gguf_type().is_some() && !dtype.is_for_activations() && !dtype.is_tiled()
    };
    let found = DType::from_name(name.trim()).filter(is_for_weights);
    found.ok_or_else(|| {
        let known: Vec<&str> = DType::all()
            .filter(is_for_weights)
            .map(DType::name)
            .collect();
        format!(
            "not a type of weights in GGUF files; known: {}",
            known.join(", ")
        )
    })
}

/// Parses `PATTERN=TYPE`. Tensor names are in lower case, so patterns are too.
fn parse_rule(text: &str) -> Result<TensorTypeRule, String> {
    let (pattern, dtype) = text
        .rsplit_once('=')
        .filter(|(pattern, _)| !pattern.is_empty())
        .ok_or("write PATTERN=TYPE, as ffn_down=Q6_K")?;
    let pattern = Regex::new(&pattern.to_lowercase()).map_err(|error| error.to_string())?;
    let dtype = parse_dtype(dtype)?;
    Ok(TensorTypeRule { pattern, dtype })
}

impl From<millrace_model::convert::Error> for CommandFailure {
    fn from(error: millrace_model::convert::Error) -> CommandFailure {
        use millrace_model::convert::Error;
        match &error {
            Error::Cancelled => CommandFailure::interrupted(),
            Error::Target { .. }
            | Error::Output { .. }
            | Error::NeedsImportance { .. }
            | Error::NoImportanceOf { .. } => CommandFailure::usage(error.to_string()),
            Error::Format(_) | Error::Io { .. } => CommandFailure::writing(&error),
            _ => CommandFailure::reading(&error),
        }
    }
}

pub(crate) fn run(args: &QuantizeArgs, ui: Ui) -> CommandResult {
    let checkpoint = args.model.open(ui)?;
    let importances: Vec<&Path> = args.imatrix.iter().map(PathBuf::as_path).collect();
    if !args.dry_run {
        refuse_input(&args.out, &checkpoint, &importances)?;
    }
    let container = OutputContainer::of(&args.out, args.recipe);
    let importance = args.imatrix.as_deref().map(ImportanceMatrix::read);
    let importance = importance
        .transpose()
        .map_err(|error| CommandFailure::reading(&error))?;
    let target = ConversionTarget {
        container,
        recipe: args.recipe,
    };
    let adapters = args.merge.open(&checkpoint, ui)?;
    let options = ConversionOptions {
        importance: importance.as_ref(),
        tensor_types: args.tensor_type.clone(),
        token_embedding: args.token_embedding_type,
        output_tensor: args.output_tensor_type,
        adapters: &adapters,
    };
    let plan = Conversion::with_options(&checkpoint, target, &options)?;
    tell_of_importance(args, &plan, ui);
    tell_of_changes(args, &plan, ui);
    if args.dry_run {
        return report_plan(args, &plan, ui);
    }
    let n_threads = args.threads.map_or_else(
        || std::thread::available_parallelism().map_or(1, |n| n.get()),
        usize::from,
    );
    let progress = ProgressDisplay::steps(ui, plan.tensors().len() as u64);
    let summary = plan.write(&args.out, n_threads, &mut |step| {
        progress.message(step.tensor);
        progress.set(step.tensors_done as u64);
        if interrupt::is_raised() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    drop(progress);
    report(args, &summary, plan.n_elems(), ui)
}

/// Reports tensors missing from the result, and tensors with another format than the recipe's.
fn tell_of_changes(args: &QuantizeArgs, plan: &Conversion<'_>, ui: Ui) {
    for TensorTypeRule { pattern, .. } in &args.tensor_type {
        let is_match = |name: &str| pattern.is_match(name).unwrap_or(false);
        if !plan.tensors().iter().any(|tensor| is_match(&tensor.name)) {
            ui.warn(format_args!(
                "--tensor-type: no tensor of the result matches `{pattern}`"
            ));
        }
    }
    for note in plan.notes() {
        ui.note(note);
    }
    if !plan.skipped().is_empty() {
        ui.warn(format_args!(
            "{} tensors have no place in the result",
            plan.skipped().len()
        ));
        plan.skipped().iter().for_each(|name| ui.detail(name));
    }
    for fallback in plan.fallbacks() {
        let (tensor, shape) = (&fallback.tensor, &fallback.shape);
        let (wanted, given) = (fallback.wanted, fallback.given);
        let told = format_args!("{tensor} {shape:?}: {given}, as {wanted} blocks do not fit");
        // A user who asked for a type by name must see that it was not used.
        match fallback.by_name {
            true => ui.note(told),
            false => ui.detail(told),
        }
    }
}

/// Reports once which tensors an importance matrix does not cover.
fn tell_of_importance(args: &QuantizeArgs, plan: &Conversion<'_>, ui: Ui) {
    let Some((first, others)) = plan.without_importance().split_first() else {
        return;
    };
    let file = args.imatrix.as_deref().unwrap_or("".as_ref()).display();
    match others.len() {
        0 => ui.note(format_args!("{file} has no entry for {first}")),
        n => ui.note(format_args!(
            "{file} has no entries for {first} and {n} other tensors"
        )),
    }
    others.iter().for_each(|name| ui.detail(name));
}

fn report_plan(args: &QuantizeArgs, plan: &Conversion<'_>, ui: Ui) -> CommandResult {
    let mut out = Out::new();
    if args.json {
        let tensor = |tensor: &millrace_model::convert::PlannedTensor| {
            json!({
                "name": tensor.name,
                "shape": tensor.shape,
                "type": tensor.tensor_type.name(),
                "size_bytes": tensor.size_bytes,
            })
        };
        let tensors: Vec<Value> = plan.tensors().iter().map(tensor).collect();
        return out.json(&json!({ "size_bytes": plan.size_bytes(), "tensors": tensors }));
    }
    let mut table = TextTable::new(&[
        ("tensor", Align::Left),
        ("shape", Align::Left),
        ("type", Align::Left),
        ("size", Align::Right),
    ]);
    for tensor in plan.tensors() {
        let shape: Vec<String> = tensor.shape.iter().map(usize::to_string).collect();
        let (name, dtype) = (tensor.name.clone(), tensor.tensor_type.name().to_owned());
        table.row(vec![
            name,
            shape.join(" × "),
            dtype,
            bytes(tensor.size_bytes),
        ]);
    }
    table.print(&mut out)?;
    out.flush()?;
    ui.note(format_args!(
        "{} in {} tensors",
        bytes(plan.size_bytes()),
        plan.tensors().len()
    ));
    Ok(())
}

fn report(args: &QuantizeArgs, summary: &ConversionSummary, n_elems: u64, ui: Ui) -> CommandResult {
    let bits = summary.written_bytes as f64 * 8.0 / n_elems.max(1) as f64;
    ui.note(format_args!(
        "{} tensors: {} to {}, {bits:.2} bits a weight",
        summary.n_tensors,
        bytes(summary.source_bytes),
        bytes(summary.written_bytes),
    ));
    let mut out = Out::new();
    if args.json {
        let by_type = summary
            .by_type
            .iter()
            .map(|(kind, n)| (kind.name().to_owned(), json!(n)));
        out.json(&json!({
            "files": summary.files,
            "n_tensors": summary.n_tensors,
            "source_bytes": summary.source_bytes,
            "written_bytes": summary.written_bytes,
            "bits_per_weight": bits,
            "bytes_by_type": by_type.collect::<serde_json::Map<_, _>>(),
        }))?;
    } else {
        out.line(args.out.display())?;
    }
    out.flush()
}
