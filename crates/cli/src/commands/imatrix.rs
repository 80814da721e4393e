//! `millrace imatrix`: statistics of the inputs that a model's matrices are multiplied by on a text.
//!
//! The method is llama.cpp's: chunks of the context's length, the first token of each the beginning-of-text token if
//! the model uses one, and the sums of squares of the inputs of each matrix of a block. The model runs by its graph's
//! definition in f32, so the numbers do not depend on a kernel's formats.

use crate::engine_args::CpuArgs;
use crate::exit::{CommandFailure, CommandResult};
use crate::interrupt;
use crate::model_arg::{ModelArgs, refuse_input, warn};
use crate::output::{Out, Ui};
use crate::progress::ProgressDisplay;
use crate::prompt::read_file;
use millrace_graph::{MatrixProduct, Node, ValueId, chosen_experts};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_model::importance::{ImportanceEntry, ImportanceError, ImportanceMatrix, gguf_names};
use millrace_runtime::LoadedModel;
use millrace_verify::reference::visit_products;
use serde_json::json;
use std::collections::HashSet;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  millrace imatrix model.gguf -f calibration.txt -o imatrix.gguf
  millrace imatrix model.gguf -f calibration.txt --chunks 50 --ctx 512
  millrace imatrix model.gguf -f more.txt --in-file imatrix.gguf -o both.gguf    adds to an earlier file
  millrace quantize model.gguf small.gguf IQ2_M --imatrix imatrix.gguf           uses the result

Use text similar to the model's later input. Experts count only the tokens that chose them.";

/// Measure the importance of each column of a model's matrices on a text, for `quantize --imatrix`
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImatrixArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Text to run the model on (`-`: standard input)
    #[arg(short, long, value_name = "TEXT", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = "imatrix.gguf", value_hint = clap::ValueHint::FilePath)]
    output: PathBuf,
    /// File format: gguf, or llama.cpp's older dat
    #[arg(long, value_name = "FORMAT", default_value = "gguf")]
    format: ImatrixFormat,
    /// Earlier importance matrix of this model to add to; may be repeated
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    in_file: Vec<PathBuf>,
    /// Tokens of context: the length of a chunk
    #[arg(short, long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(4..))]
    ctx: u32,
    /// Stop after this many chunks [default: the whole text]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunks: Option<u32>,
    /// Print a summary as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cpu: CpuArgs,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum ImatrixFormat {
    Gguf,
    Dat,
}

pub(crate) fn run(args: &ImatrixArgs, ui: Ui) -> CommandResult {
    // Earlier files are read first, so that a fault in them does not cost a run.
    let earlier = args.in_file.iter().map(|path| ImportanceMatrix::read(path));
    let earlier: Vec<ImportanceMatrix> = earlier
        .collect::<Result<_, _>>()
        .map_err(|error| CommandFailure::reading(&error))?;
    let text = read_file(&args.file)?;
    let model = args.model.load(ui)?;
    refuse_input(&args.output, model.checkpoint(), &[&args.file])?;
    let names = gguf_names(model.checkpoint(), &model.model().graph)
        .map_err(|error| CommandFailure::reading(&error))?;
    let bad_input = |error: ImportanceError| CommandFailure::bad_input(error.to_string());
    let mut matrix = ImportanceMatrix::default();
    matrix.chunk_size = args.ctx;
    for other in &earlier {
        matrix.add(other).map_err(bad_input)?;
    }
    for (weight, name) in model.model().graph.weights.iter().zip(&names) {
        let Some(name) = name else { continue };
        matrix
            .check(name, weight.n_experts, weight.k)
            .map_err(bad_input)?;
    }
    // Rows go into a matrix of their own, since an earlier file may have one count for all experts of a tensor.
    let mut own = ImportanceMatrix::default();
    own.chunk_size = args.ctx;
    let n_chunks = collect(args, &model, (&text, &names), &mut own, ui)?;
    own.chunk_count = n_chunks as u32;
    let dataset = args.file.file_name().unwrap_or_default();
    own.datasets.push(dataset.to_string_lossy().into_owned());
    matrix.add(&own).map_err(bad_input)?;
    let written = match args.format {
        ImatrixFormat::Gguf => matrix.write_gguf(&args.output),
        ImatrixFormat::Dat => matrix.write_dat(&args.output),
    };
    written.map_err(|error| CommandFailure::writing(&error))?;
    report(args, n_chunks, &matrix, ui)
}

/// Runs the chunks of the text; returns their number.
fn collect(
    args: &ImatrixArgs,
    model: &LoadedModel,
    (text, names): (&str, &[Option<String>]),
    matrix: &mut ImportanceMatrix,
    ui: Ui,
) -> CommandResult<usize> {
    let tokenizer = model.tokenizer()?;
    warn(&tokenizer.warnings(), ui);
    let (tokens, _) = tokenizer.encode_continued(text, false);
    let n_ctx = args.ctx as usize;
    let available = tokens.len() / n_ctx;
    if available == 0 {
        let n = tokens.len();
        let message = format!("the text has {n} tokens: fewer than one chunk of {n_ctx}");
        return Err(CommandFailure::usage(message).hint("give a longer text, or a smaller `--ctx`"));
    }
    let n_chunks = args
        .chunks
        .map_or(available, |chunks| available.min(chunks as usize));
    let cpu = Cpu::new(CpuOptions {
        n_threads: args.cpu.threads,
        level: args.cpu.cpu_level,
    })
    .map_err(|error| CommandFailure::usage(error.to_string()))?;
    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
    let progress = ProgressDisplay::steps(ui, n_chunks as u64);
    for (i, chunk) in tokens.chunks_exact(n_ctx).take(n_chunks).enumerate() {
        if interrupt::is_raised() {
            return Err(CommandFailure::interrupted());
        }
        let mut chunk = chunk.to_vec();
        if let Some(bos) = bos {
            chunk[0] = bos;
        }
        let mut recorder = ChunkRecorder {
            model,
            names,
            matrix,
            read: HashSet::new(),
        };
        visit_products(&cpu, model, &chunk, &mut |node, inputs| {
            recorder.product(node, inputs);
        })?;
        let is_finite = |entry: &ImportanceEntry| entry.sums().iter().all(|sum| sum.is_finite());
        if let Some((name, _)) = matrix.entries().find(|(_, entry)| !is_finite(entry)) {
            return Err(CommandFailure::bad_input(format!(
                "the inputs of `{name}` are NaN or infinite: the weights are damaged or overflow f32"
            )));
        }
        progress.message(format!("chunk {} of {n_chunks}", i + 1));
        progress.set(i as u64 + 1);
    }
    Ok(n_chunks)
}

/// Adds the products of one chunk.
struct ChunkRecorder<'a> {
    model: &'a LoadedModel,
    names: &'a [Option<String>],
    matrix: &'a mut ImportanceMatrix,
    /// Tensors and the values that they were multiplied by. Weights that are parts of one tensor share its rows.
    read: HashSet<(&'a str, ValueId)>,
}

impl<'a> ChunkRecorder<'a> {
    /// Only matrices of blocks: the head sees the last token alone.
    fn product(&mut self, node: &Node, inputs: &[&[f32]]) {
        let Some(product) = node.op.product() else {
            return;
        };
        let weight = product.weight();
        let names: &'a [Option<String>] = self.names;
        let name = names.get(weight.0).and_then(Option::as_deref);
        let (Some(_), Some(name)) = (node.layer, name) else {
            return;
        };
        if !self.read.insert((name, node.inputs[0])) {
            return;
        }
        let graph = &self.model.model().graph;
        let (n_matrices, k) = (graph.weights[weight.0].n_experts, graph.weights[weight.0].k);
        let rows = inputs[0].chunks_exact(graph.width(node.inputs[0]));
        match product {
            MatrixProduct::Chosen(linear) => {
                let choices = inputs[1].chunks_exact(3 * linear.n_used);
                for (row, choice) in rows.zip(choices) {
                    for (rank, expert) in chosen_experts(choice).enumerate() {
                        let first = if linear.own_rows { rank * k } else { 0 };
                        let row = &row[first..first + k];
                        self.matrix.add_row(name, (expert, n_matrices), row);
                    }
                }
            }
            MatrixProduct::EachHead(linear) => {
                for row in rows {
                    let heads = row.chunks_exact(row.len() / linear.n_heads);
                    for (head, row) in heads.enumerate() {
                        let row = &row[linear.first..linear.first + k];
                        self.matrix.add_row(name, (head, n_matrices), row);
                    }
                }
            }
            MatrixProduct::Plain(_) => rows.for_each(|row| self.matrix.add_row(name, (0, 1), row)),
        }
    }
}

fn report(args: &ImatrixArgs, n_chunks: usize, matrix: &ImportanceMatrix, ui: Ui) -> CommandResult {
    let mut out = Out::new();
    let (mut n_tensors, mut n_unused) = (0, 0);
    for (name, entry) in matrix.entries() {
        n_tensors += 1;
        let unused = entry.counts().iter().filter(|count| **count == 0).count();
        if unused > 0 {
            let n = entry.n_matrices();
            ui.detail(format_args!(
                "{name}: {unused} of {n} experts were never chosen"
            ));
        }
        n_unused += unused;
    }
    if n_unused > 0 {
        ui.warn(format_args!(
            "{n_unused} matrices of experts were never chosen: more text would tell how much their columns count"
        ));
    }
    if args.json {
        return out.json(&json!({
            "file": args.output,
            "n_tensors": n_tensors,
            "n_chunks": n_chunks,
            "chunk_count": matrix.chunk_count,
            "chunk_size": matrix.chunk_size,
            "datasets": matrix.datasets,
            "unused_experts": n_unused,
        }));
    }
    ui.note(format_args!(
        "{n_tensors} tensors, {} chunks of {} tokens",
        matrix.chunk_count, matrix.chunk_size
    ));
    out.line(args.output.display())?;
    out.flush()
}
