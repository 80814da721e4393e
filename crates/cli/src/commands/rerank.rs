//! `millrace rerank`: ranks texts by how well they answer a question.

use super::embed::texts;
use crate::engine_args::CpuArgs;
use crate::exit::{CommandFailure, CommandResult};
use crate::interrupt;
use crate::model_arg::{ModelArgs, warn};
use crate::output::{Out, Ui};
use crate::progress::ProgressDisplay;
use crate::prompt::read_file;
use millrace::Device;
use millrace_runtime::ranking::Ranker;
use millrace_runtime::{Embedder, Embedding, EngineOptions};
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  millrace rerank bge-reranker-folder \"Who wrote Faust?\" passages.txt
  millrace rerank qwen3-reranker.gguf \"Who wrote Faust?\" passages.jsonl --top 3 --json

Each line of the file is a text, or a JSON string or an object with `text`; blank lines are skipped.
The best line is printed first: the score between 0 and 1, the number of the text, the text.";

/// Rank texts by how well they answer a question
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RerankArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Question to answer
    #[arg(value_name = "QUERY")]
    query: String,
    /// Texts, one per line (`-`: standard input)
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Print only the N best
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Instruction for a Qwen 3 reranker: the criterion to judge by
    #[arg(long, value_name = "TEXT")]
    instruction: Option<String>,
    /// Print the raw scores of the model's head, not scaled to between 0 and 1
    #[arg(long)]
    raw_scores: bool,
    /// Print JSON lines: `index`, `score`, `text`
    #[arg(long)]
    json: bool,
    /// Maximum tokens of a pair [default: the model's training context, at most 8192]
    #[arg(short, long, value_name = "TOKENS")]
    ctx: Option<usize>,
    /// Maximum pairs computed together
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch: u32,
    #[command(flatten)]
    cpu: CpuArgs,
}

pub(crate) fn run(args: &RerankArgs, ui: Ui) -> CommandResult {
    let texts = texts(&read_file(&args.file)?)?;
    let model = args.model.load(ui)?;
    let tokenizer = model.tokenizer()?;
    warn(tokenizer.vocabulary_warnings(), ui);
    let ranker = Ranker::of(&model)?;
    if args.instruction.is_some() && !ranker.takes_instruction() {
        let message =
            "--instruction: this model scores pairs by its classifier, without an instruction";
        return Err(CommandFailure::usage(message).hint("leave out `--instruction`"));
    }
    let embedder = Embedder::new(&model)?;
    let instruction = args.instruction.as_deref();
    let prompt = |text: &String| ranker.prompt(&tokenizer, (&args.query, text), instruction);
    let pairs: Vec<Vec<u32>> = texts.iter().map(prompt).collect();
    let options = EngineOptions {
        n_ctx: args.ctx,
        max_sequences: args.batch as usize,
        keep_prefixes: false,
        ..args.cpu.options()
    };
    let device = Device::default().engine_options(options);
    let mut engine = device.engine(&model)?;
    let mut scores = vec![0.0; pairs.len()];
    let progress = ProgressDisplay::steps(ui, pairs.len() as u64);
    let mut n_done = 0;
    for (part, of_part) in pairs.chunks(args.batch as usize * 4).enumerate() {
        if interrupt::is_raised() {
            return Err(CommandFailure::interrupted());
        }
        let first = part * args.batch as usize * 4;
        let mut take = |index: usize, pooled: Embedding| {
            let score = ranker.score(&pooled.row()?);
            scores[first + index] = match args.raw_scores {
                true => score,
                false => Ranker::relevance(score),
            };
            n_done += 1;
            progress.set(n_done);
            Ok(())
        };
        embedder.pool_all(&mut *engine, of_part, ranker.pooling(), &mut take)?;
    }
    drop(progress);
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order.truncate(args.top.unwrap_or(order.len()));
    let mut out = Out::new();
    for index in order {
        let (score, text) = (scores[index], &texts[index]);
        match args.json {
            true => {
                let line = json!({"index": index, "score": score, "text": text});
                out.line(line.to_string())?;
            }
            false => out.line(format!("{score:.4}  {index:>4}  {text}"))?,
        }
    }
    Ok(())
}
