//! `millrace info`: contents of a model, and the memory it takes.

mod memory;
mod metadata;
mod ranks;
mod vision;

use crate::describe::{CheckpointSummary, is_sized};
use crate::engine_args::kv_type_parser;
use crate::exit::{CommandFailure, CommandResult};
use crate::model_arg::warn_of;
use crate::output::{Align, Out, Paint, TextTable, Ui, bytes, count, printable};
use crate::plan_args::SubjectArgs;
use crate::ranks::MAX_RANKS;
use memory::MemoryPlan;
use millrace_format::Checkpoint;
use millrace_model::{Model, ModelConfig};
use millrace_runtime::{KvType, LoadedModel};
use ranks::{LinkArgs, RanksPlan};
use serde_json::{Value, json};
use std::sync::Arc;
use vision::Vision;

const EXAMPLES: &str = "\
Examples:
  millrace info demo
  millrace info model.gguf -c 32768 --kv-type q8_0    the memory for a long context
  millrace info model-folder --tensors                every tensor: name, shape, type, size
  millrace info model.gguf --ranks 4                  the share of each of four machines
  millrace info --geometry llama-3.1-70b --type Q4_K_M --ranks 4 --memory-gb 16
                                                      whether a model fits on four machines, without its files
  millrace info model.gguf --json | jq .config";

/// Show the contents of a model, and the memory it takes
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Context length to plan memory for [default: the model's training context, at most 8192]
    #[arg(short, long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    ctx: Option<u32>,
    /// Format of the cached keys and values to plan with
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = kv_type_parser())]
    kv_type: KvType,
    /// Plan for N machines that share the model (`--mpi`): the share and the traffic of each, and the time per token
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_RANKS))]
    ranks: Option<u32>,
    #[command(flatten)]
    link: LinkArgs,
    /// List every tensor
    #[arg(long)]
    tensors: bool,
    /// Print long metadata values in full
    #[arg(long)]
    full: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// A model that this program can run, and its requirements.
struct Runnable {
    config: ModelConfig,
    plan: MemoryPlan,
    /// Plan for several machines, if asked for.
    ranks: Option<RanksPlan>,
    /// Number of parameters, in total and used by a token.
    n_params: [u64; 2],
}

pub(crate) fn run(args: &InfoArgs, ui: Ui) -> CommandResult {
    if let Some((name, model)) = args.subject.geometry()? {
        return plan_geometry(args, name, &model);
    }
    let checkpoint = args.subject.files().open(ui)?;
    let summary = CheckpointSummary::of(&checkpoint);
    let metadata = metadata::of(&checkpoint, args.full);
    let tensors = args.tensors.then(|| tensor_rows(&checkpoint));
    let vision = Vision::of(&checkpoint);
    let runnable = runnable(args, checkpoint, (&summary, &vision), ui)?;
    let mut out = Out::new();
    if args.json {
        let mut value = to_json(&summary, &metadata, tensors.as_deref(), &runnable);
        value["vision"] = vision.json();
        out.json(&value)?;
    } else {
        print_summary(&summary, &mut out)?;
        match &runnable {
            Ok(runnable) => {
                print_config(&runnable.config, &mut out)?;
                print_experts(runnable, &mut out)?;
                vision.print(&mut out)?;
                print_types(&summary, &mut out)?;
                runnable.plan.print(&mut out)?;
                if let Some(ranks) = &runnable.ranks {
                    ranks.print(&mut out)?;
                }
            }
            Err(why) => {
                let no = Paint::Warning.stdout("no");
                out.line(format!("  runs here      {no}: {}", printable(why)))?;
                vision.print(&mut out)?;
                print_types(&summary, &mut out)?;
            }
        }
        print_metadata(&metadata, &mut out)?;
        if let Some(tensors) = tensors {
            print_tensors(&tensors, &mut out)?;
        }
    }
    out.flush()?;
    let ranks = runnable.ok().and_then(|runnable| runnable.ranks);
    ranks.map_or(Ok(()), |ranks| ranks.check_fits())
}

/// Requirements of running the file; otherwise the reason it does not run here, in words.
fn runnable(
    args: &InfoArgs,
    checkpoint: Checkpoint,
    (summary, vision): (&CheckpointSummary, &Vision),
    ui: Ui,
) -> CommandResult<Result<Runnable, String>> {
    Ok(match Model::from_checkpoint(&checkpoint) {
        Ok(model) if model.is_assistant() => Err(
            "it is an assistant, which drafts for another model; `millrace run MODEL --draft FILE` takes it"
                .to_owned(),
        ),
        Ok(model) => {
            warn_of(&checkpoint, &model, ui);
            let model = Arc::new(LoadedModel::from_checkpoint(checkpoint)?);
            let plan = MemoryPlan::of(&model, args.ctx.map(|n| n as usize), args.kv_type)?;
            let ranks = args
                .ranks
                .map(|n| RanksPlan::of(args, model.model(), n as usize));
            let weights = model.model().memory_plan(1, 16.0);
            Ok(Runnable {
                config: model.model().config.clone(),
                plan,
                ranks: ranks.transpose()?,
                n_params: [weights.n_params, weights.n_params_active],
            })
        }
        Err(_) if summary.n_tensors == 0 => {
            Err("it holds no weights; `millrace tokenize` reads its vocabulary".to_owned())
        }
        Err(_) if matches!(vision, Vision::Encoder(_)) => Err(
            "it is a vision encoder alone; `millrace run MODEL --mmproj FILE` takes it".to_owned(),
        ),
        Err(error) => {
            // The file is already named two lines above.
            let (error, name) = (error.to_string(), format!("{}: ", summary.name));
            Err(error.strip_prefix(&name).unwrap_or(&error).to_owned())
        }
    })
}

/// Prints the plan for several machines, the only output for a shape without files.
fn plan_geometry(args: &InfoArgs, name: &str, model: &Model) -> CommandResult {
    let Some(n_ranks) = args.ranks else {
        let message = format!("{name} has no files: all that can be told of it is a plan");
        return Err(CommandFailure::usage(message).hint("add --ranks N; 1 is one machine"));
    };
    let plan = RanksPlan::of(args, model, n_ranks as usize)?;
    let mut out = Out::new();
    if args.json {
        out.json(&json!({ "geometry": name, "ranks": plan }))?;
        return plan.check_fits();
    }
    out.line(Paint::Bold.stdout(name))?;
    plan.print(&mut out)?;
    out.flush()?;
    plan.check_fits()
}

fn print_summary(summary: &CheckpointSummary, out: &mut Out) -> CommandResult {
    let title = printable(summary.title.as_deref().unwrap_or(&summary.name));
    out.line(Paint::Bold.stdout(&title))?;
    let architecture = printable(summary.architecture.as_deref().unwrap_or("unknown"));
    for (name, value) in [
        ("file", format!("{}, {}", summary.name, summary.format)),
        ("architecture", architecture.into_owned()),
        ("parameters", count(summary.n_params)),
        ("quantization", summary.quantization.clone()),
        (
            "size",
            format!(
                "{} in {} tensors",
                bytes(summary.size_bytes),
                summary.n_tensors
            ),
        ),
    ] {
        out.line(format!("  {name:<14} {value}"))?;
    }
    Ok(())
}

fn print_config(config: &ModelConfig, out: &mut Out) -> CommandResult {
    let mut lines = vec![
        ("layers", config.n_layers.to_string()),
        (
            "width",
            format!("{}, feed-forward {}", config.d_model, config.d_ff),
        ),
        (
            "heads",
            format!(
                "{} of {} elements, {} for keys and values",
                config.n_heads, config.head_dim, config.n_kv_heads
            ),
        ),
        ("vocabulary", config.vocab_size.to_string()),
        ("context", format!("{} tokens", config.context_length)),
    ];
    if let Some(window) = config.window {
        let n = config
            .layer_windowed
            .iter()
            .filter(|windowed| **windowed)
            .count();
        lines.push((
            "window",
            format!("{window} tokens in {n} of {} layers", config.n_layers),
        ));
    }
    lines.extend(layer_lines(config));
    for (name, value) in lines {
        out.line(format!("  {name:<14} {value}"))?;
    }
    Ok(())
}

/// Lines about properties that differ from layer to layer.
fn layer_lines(config: &ModelConfig) -> Vec<(&'static str, String)> {
    let layers = &config.layers;
    let mut lines = Vec::new();
    if let Some(heads) = layers.sliding_heads {
        let sizes = format!(
            "in layers with the window of {} elements, {} for keys and values",
            heads.head_dim, heads.n_kv_heads
        );
        lines.push(("", sizes));
    }
    if layers.n_shared_kv > 0 {
        let text = format!(
            "the last {} layers read keys and values of earlier ones",
            layers.n_shared_kv
        );
        lines.push(("shared cache", text));
    }
    if layers.embedding_dim > 0 {
        let text = format!(
            "{} elements of its own for each token",
            layers.embedding_dim
        );
        lines.push(("each layer", text));
    }
    if config.encoder.is_some() {
        let text = "an encoder: it makes embeddings, and writes no text".to_owned();
        lines.push(("kind", text));
    }
    lines
}

/// Prints the experts of a mixture, and the parameters that a token uses.
fn print_experts(runnable: &Runnable, out: &mut Out) -> CommandResult {
    let Some(experts) = &runnable.config.experts else {
        return Ok(());
    };
    let shared = match experts.shared_d_ff {
        0 => String::new(),
        d_ff => format!(", and one of {d_ff} that all use"),
    };
    let value = format!(
        "{} of width {}, {} a token{shared}",
        experts.n_experts, experts.d_ff, experts.n_used
    );
    out.line(format!("  {:<14} {value}", "experts"))?;
    let [all, active] = runnable.n_params;
    let value = format!("{} of {} parameters a token", count(active), count(all));
    out.line(format!("  {:<14} {value}", "active"))
}

fn print_types(summary: &CheckpointSummary, out: &mut Out) -> CommandResult {
    out.line(format!("\n{}", Paint::Bold.stdout("Sizes by type")))?;
    let mut table = TextTable::new(&[
        ("type", Align::Left),
        ("tensors", Align::Right),
        ("elements", Align::Right),
        ("size", Align::Right),
        ("share", Align::Right),
    ]);
    for share in &summary.types {
        let percent = 100.0 * share.size_bytes as f64 / summary.size_bytes.max(1) as f64;
        table.row(vec![
            share.name.to_owned(),
            share.n_tensors.to_string(),
            count(share.n_elems),
            match share.is_sized {
                true => bytes(share.size_bytes),
                false => "unknown".to_owned(),
            },
            format!("{percent:.1} %"),
        ]);
    }
    table.print(out)
}

fn print_metadata(metadata: &[(String, Value)], out: &mut Out) -> CommandResult {
    if metadata.is_empty() {
        return Ok(());
    }
    out.line(format!("\n{}", Paint::Bold.stdout("Metadata")))?;
    let mut table = TextTable::new(&[("key", Align::Left), ("value", Align::Left)]);
    for (key, value) in metadata {
        table.row(vec![key.clone(), metadata::one_line(value)]);
    }
    table.print(out)
}

/// Name, shape, type, and bytes where the format defines them.
type TensorRow = (String, Vec<usize>, String, Option<usize>);

fn tensor_rows(checkpoint: &Checkpoint) -> Vec<TensorRow> {
    let row = |info: &millrace_format::TensorInfo| {
        (
            info.name.clone(),
            info.shape.clone(),
            info.tensor_type.to_string(),
            is_sized(info.tensor_type).then_some(info.size_bytes),
        )
    };
    checkpoint.tensors().iter().map(row).collect()
}

fn print_tensors(tensors: &[TensorRow], out: &mut Out) -> CommandResult {
    out.line(format!("\n{}", Paint::Bold.stdout("Tensors")))?;
    let mut table = TextTable::new(&[
        ("name", Align::Left),
        ("shape", Align::Left),
        ("type", Align::Left),
        ("size", Align::Right),
    ]);
    for (name, shape, dtype, size_bytes) in tensors {
        let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
        let size = size_bytes.map_or("unknown".to_owned(), |size| bytes(size as u64));
        table.row(vec![name.clone(), shape.join(" × "), dtype.clone(), size]);
    }
    table.print(out)
}

fn to_json(
    summary: &CheckpointSummary,
    metadata: &[(String, Value)],
    tensors: Option<&[TensorRow]>,
    runnable: &Result<Runnable, String>,
) -> Value {
    let mut value = json!({ "model": summary });
    match runnable {
        Ok(runnable) => {
            value["runs"] = json!(true);
            value["config"] = config_json(&runnable.config);
            value["memory"] = json!(runnable.plan);
            if let Some(ranks) = &runnable.ranks {
                value["ranks"] = json!(ranks);
            }
            value["n_params"] = json!(runnable.n_params[0]);
            value["n_params_active"] = json!(runnable.n_params[1]);
        }
        Err(why) => {
            value["runs"] = json!(false);
            value["reason"] = json!(why);
        }
    }
    value["metadata"] = metadata
        .iter()
        .cloned()
        .collect::<serde_json::Map<_, _>>()
        .into();
    if let Some(tensors) = tensors {
        let row = |(name, shape, dtype, size_bytes): &TensorRow| json!({ "name": name, "shape": shape, "type": dtype, "size_bytes": size_bytes });
        value["tensors"] = tensors.iter().map(row).collect();
    }
    value
}

fn config_json(config: &ModelConfig) -> Value {
    json!({
        "family": config.family,
        "n_layers": config.n_layers,
        "d_model": config.d_model,
        "d_ff": config.d_ff,
        "n_heads": config.n_heads,
        "n_kv_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "context_length": config.context_length,
        "window": config.window,
        "tied_head": config.tied_head,
        "sliding_heads": config.layers.sliding_heads.map(|heads| {
            json!({ "n_kv_heads": heads.n_kv_heads, "head_dim": heads.head_dim })
        }),
        "n_layers_sharing_kv": config.layers.n_shared_kv,
        "is_encoder": config.encoder.is_some(),
        "n_experts": config.experts.as_ref().map(|experts| experts.n_experts),
        "n_experts_used": config.experts.as_ref().map(|experts| experts.n_used),
    })
}
