//! `millrace perplexity`: how well a model predicts a text.
//!
//! The method is llama.cpp's, so numbers compare: the text is cut into chunks of the context's
//! length, the first token of each becomes the beginning-of-text token if the model uses one, and
//! the second half of each chunk is scored. The error is the standard error of the mean negative
//! log-likelihood, carried over to its exponential.

use crate::engine_args::{CpuArgs, kv_type_parser, warn_beyond_training};
use crate::exit::{CommandFailure, CommandResult};
use crate::interrupt;
use crate::model_arg::{ModelArgs, warn};
use crate::output::{Out, Paint, Ui};
use crate::progress::ProgressDisplay;
use crate::prompt::read_file;
use crate::ranks::MpiArgs;
use crate::target_args::{DeviceArgs, examples};
use millrace_runtime::sampling::log_softmax;
use millrace_runtime::{BatchItem, Engine, EngineOptions, KvType, LogitsFor, SeqId, StepOutput};
use serde_json::json;
use std::io::IsTerminal;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  millrace perplexity model.gguf wiki.test.raw
  millrace perplexity model.gguf wiki.test.raw -c 2048 --chunks 20
  millrace perplexity model.gguf text.txt --json | jq .perplexity
  millrace perplexity model.gguf text.txt --device {npu} --chunks 2

Lower is better. Compare only numbers of the same text, context length and number of chunks.";

/// Measure how well a model predicts a text
#[derive(clap::Args, Debug)]
#[command(after_help = examples(EXAMPLES))]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Text to predict (`-`: standard input)
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Tokens of context: the length of a chunk
    #[arg(short, long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(4..))]
    ctx: u32,
    /// Stop after so many chunks [default: the whole text]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunks: Option<u32>,
    /// Format of the cached keys and values
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = kv_type_parser())]
    kv_type: KvType,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cpu: CpuArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    ranks: MpiArgs,
}

/// Tokens whose logits are computed and scored at a time, which bounds the memory of a large
/// vocabulary's logits.
const SCORED_TOKENS: usize = 128;

pub(crate) fn run(args: &PerplexityArgs, ui: Ui) -> CommandResult {
    let options = EngineOptions {
        n_ctx: Some(args.ctx as usize),
        kv_type: args.kv_type,
        ..args.cpu.options()
    };
    if args.ranks.is_follower()? {
        return args.ranks.follow(&args.model.load(ui)?, options, ui);
    }
    let text = read_file(&args.file)?;
    let model = args.model.load(ui)?;
    let tokenizer = model.tokenizer()?;
    warn(&tokenizer.warnings(), ui);
    let (tokens, _) = tokenizer.encode_continued(&text, false);
    let n_ctx = args.ctx as usize;
    let available = tokens.len() / n_ctx;
    if available == 0 {
        let n = tokens.len();
        let message = format!("the text has {n} tokens: fewer than one chunk of {n_ctx}");
        let hint = match n / 2 {
            0..4 => "give a longer text".to_owned(),
            half => format!("give a longer text, or `-c {half}`"),
        };
        return Err(CommandFailure::usage(message).hint(hint));
    }
    let n_chunks = args
        .chunks
        .map_or(available, |chunks| available.min(chunks as usize));
    warn_beyond_training(ui, &model, n_ctx, n_ctx, Some(0));
    let mut engine = args.ranks.make(&args.device, &model, options, ui)?;
    let seq = engine.create()?;
    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());

    let progress = ProgressDisplay::steps(ui, n_chunks as u64);
    let mut score = Score::default();
    for (i, chunk) in tokens.chunks_exact(n_ctx).take(n_chunks).enumerate() {
        score_chunk(&mut *engine, seq, chunk, bos, &mut score)?;
        let running = format!("[{}]{:.4}", i + 1, score.perplexity());
        progress.message(running.as_str());
        progress.set(i as u64 + 1);
        if !std::io::stderr().is_terminal() || ui.verbose {
            progress.suspend(|| ui.note(running));
        }
    }
    drop(progress);
    report(args, &engine.name(), n_chunks, &score, ui)
}

/// Scores the second half of a chunk.
fn score_chunk(
    engine: &mut dyn Engine,
    seq: SeqId,
    chunk: &[u32],
    bos: Option<u32>,
    score: &mut Score,
) -> CommandResult {
    let n_threads = engine.cpu().pool().n_threads();
    let mut tokens = chunk.to_vec();
    if let Some(bos) = bos {
        tokens[0] = bos;
    }
    engine.truncate(seq, 0)?;
    let first = tokens.len() / 2;
    let mut output = StepOutput::default();
    let mut step =
        |engine: &mut dyn Engine, tokens: &[u32], logits, score: &mut dyn FnMut(&[f32])| {
            if interrupt::is_raised() {
                return Err(CommandFailure::interrupted());
            }
            engine.step(&[BatchItem::new(seq, tokens, logits)], &mut output)?;
            score(output.logits(0));
            Ok(())
        };
    step(engine, &tokens[..first], LogitsFor::None, &mut |_| {})?;
    // The last token's prediction has nothing to be compared with.
    let scored = &tokens[first..tokens.len() - 1];
    let mut at = first;
    for part in scored.chunks(SCORED_TOKENS) {
        let targets = &chunk[at + 1..at + 1 + part.len()];
        step(engine, part, LogitsFor::All, &mut |logits| {
            negative_log_likelihoods(logits, targets, n_threads)
                .into_iter()
                .for_each(|nll| score.add(nll));
        })?;
        at += part.len();
    }
    Ok(())
}

/// `-ln p(target)` for each row of `logits: [targets, vocab]`. Rows are independent, so the result
/// does not depend on the number of threads.
fn negative_log_likelihoods(logits: &[f32], targets: &[u32], n_threads: usize) -> Vec<f64> {
    let vocab_size = logits.len() / targets.len();
    let mut results = vec![0.0; targets.len()];
    let rows_each = targets.len().div_ceil(n_threads);
    std::thread::scope(|scope| {
        let parts = results.chunks_mut(rows_each).zip(targets.chunks(rows_each));
        for ((results, targets), logits) in parts.zip(logits.chunks(rows_each * vocab_size)) {
            scope.spawn(move || {
                for (i, row) in logits.chunks(vocab_size).enumerate() {
                    results[i] = -log_softmax(row)(targets[i]);
                }
            });
        }
    });
    results
}

/// Sums over the scored tokens.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    n: usize,
    sum: f64,
    sum_of_squares: f64,
}

impl Score {
    fn add(&mut self, nll: f64) {
        self.n += 1;
        self.sum += nll;
        self.sum_of_squares += nll * nll;
    }

    fn mean(&self) -> f64 {
        self.sum / self.n as f64
    }

    fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// Standard error of the perplexity, to first order.
    fn error(&self) -> f64 {
        let mean = self.mean();
        let variance = (self.sum_of_squares / self.n as f64 - mean * mean).max(0.0);
        (variance / (self.n.max(2) - 1) as f64).sqrt() * mean.exp()
    }
}

fn report(
    args: &PerplexityArgs,
    device: &str,
    n_chunks: usize,
    score: &Score,
    ui: Ui,
) -> CommandResult {
    let mut out = Out::new();
    if args.json {
        return out.json(&json!({
            "model": args.model.model,
            "file": args.file,
            "device": device,
            "perplexity": score.perplexity(),
            "error": score.error(),
            "mean_nll": score.mean(),
            "n_ctx": args.ctx,
            "n_chunks": n_chunks,
            "n_tokens_scored": score.n,
        }));
    }
    let scored = format!(
        "{n_chunks} chunks of {}, {} tokens scored",
        args.ctx, score.n
    );
    ui.note(Paint::Dim.stderr(&scored));
    out.line(format!(
        "PPL = {:.4} +/- {:.5}",
        score.perplexity(),
        score.error()
    ))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uniform_model_has_the_vocabularys_perplexity() {
        let mut score = Score::default();
        for n_threads in [1, 3] {
            let nlls = negative_log_likelihoods(&[0.5; 7 * 10], &[3; 7], n_threads);
            nlls.into_iter().for_each(|nll| score.add(nll));
        }
        assert_eq!(score.n, 14);
        assert!((score.perplexity() - 10.0).abs() < 1e-9);
        assert!(score.error() < 1e-6);
    }

    #[test]
    fn the_error_is_the_standard_error_of_the_mean() {
        let mut score = Score::default();
        [1.0, 2.0, 3.0, 4.0]
            .into_iter()
            .for_each(|nll| score.add(nll));
        // Population variance 1.25 over n - 1 = 3, times the perplexity e^2.5.
        let expected = (1.25f64 / 3.0).sqrt() * 2.5f64.exp();
        assert!((score.error() - expected).abs() < 1e-12);
    }

    #[test]
    fn each_row_is_scored_with_its_own_target() {
        let logits = [10.0, 0.0, 0.0, 10.0];
        let right = negative_log_likelihoods(&logits, &[0, 1], 2);
        let wrong = negative_log_likelihoods(&logits, &[1, 0], 2);
        assert!(right.iter().all(|nll| *nll < 0.01) && wrong.iter().all(|nll| *nll > 9.0));
    }
}
