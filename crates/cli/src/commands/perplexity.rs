//! `millrace perplexity`: how well a model predicts a text.
//!
//! The method is llama.cpp's, so numbers compare. The text is cut into chunks of the context's
//! length. The first token of each becomes the beginning-of-text token if the model uses one, and
//! the second half of each chunk is scored. The error is the standard error of the mean negative
//! log-likelihood, carried over to its exponential.
//!
//! Several formats of the cache are measured on the same tokens. The loss of one against the first is the mean of the
//! differences token by token. Its error is far smaller than that of either score.

use crate::engine_args::{CpuArgs, kv_type_parser, warn_beyond_training};
use crate::exit::{CommandFailure, CommandResult};
use crate::interrupt;
use crate::model_arg::{ModelArgs, warn};
use crate::output::{Align, Out, Paint, TextTable, Ui};
use crate::progress::ProgressDisplay;
use crate::prompt::read_file;
use crate::ranks::MpiArgs;
use crate::target_args::{DeviceArgs, examples};
use millrace_runtime::sampling::{all_finite, log_softmax};
use millrace_runtime::{
    BatchItem, Engine, EngineOptions, Error, KvType, LogitsFor, SeqId, StepOutput,
};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  millrace perplexity model.gguf wiki.test.raw
  millrace perplexity model.gguf wiki.test.raw -c 2048 --chunks 20
  millrace perplexity model.gguf text.txt --json | jq .perplexity
  millrace perplexity model.gguf text.txt --kv-type f16,q8_0,q4_0   the loss from smaller caches
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
    /// Stop after this many chunks [default: the whole text]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunks: Option<u32>,
    /// Format of the cached keys and values; with several, prints the loss of each against the first
    #[arg(long, value_name = "TYPE,..", value_delimiter = ',', default_value = "f16", value_parser = kv_type_parser())]
    kv_type: Vec<KvType>,
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

/// Tokens whose logits are computed and scored at a time. This bounds the memory for a large vocabulary's logits.
const SCORED_TOKENS: usize = 128;

pub(crate) fn run(args: &PerplexityArgs, ui: Ui) -> CommandResult {
    let options = |kv_type| EngineOptions {
        n_ctx: Some(args.ctx as usize),
        kv_type,
        ..args.cpu.options()
    };
    if args.ranks.is_follower()? {
        let model = args.model.load(ui)?;
        let mut types = args.kv_type.iter();
        return types.try_for_each(|kv_type| args.ranks.follow(&model, options(*kv_type), ui));
    }
    let text = read_file(&args.file)?;
    let model = args.model.load(ui)?;
    let tokenizer = model.tokenizer()?;
    warn(&tokenizer.warnings(), ui);
    let (tokens, _) = tokenizer.encode_continued(&text, false);
    let n_ctx = args.ctx as usize;
    let n_chunks = n_chunks(args, tokens.len())?;
    warn_beyond_training(ui, &model, n_ctx, n_ctx, Some(0));
    let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
    let chunks: Vec<&[u32]> = tokens.chunks_exact(n_ctx).take(n_chunks).collect();
    let mut scores = Vec::with_capacity(args.kv_type.len());
    let mut device = String::new();
    for kv_type in &args.kv_type {
        let mut engine = args
            .ranks
            .make(&args.device, &model, options(*kv_type), ui)?;
        scores.push(score_chunks(&mut *engine, &chunks, bos, ui)?);
        device = engine.name();
    }
    report(args, &device, n_chunks, &scores, ui)
}

/// Number of chunks of a text of `n` tokens to score.
fn n_chunks(args: &PerplexityArgs, n: usize) -> CommandResult<usize> {
    let n_ctx = args.ctx as usize;
    let available = n / n_ctx;
    if available == 0 {
        let message = format!("the text has {n} tokens: fewer than one chunk of {n_ctx}");
        let hint = match n / 2 {
            0..4 => "give a longer text".to_owned(),
            half => format!("give a longer text, or `-c {half}`"),
        };
        return Err(CommandFailure::usage(message).hint(hint));
    }
    let wanted = args.chunks.map_or(available, |chunks| chunks as usize);
    Ok(available.min(wanted))
}

/// Scores all chunks and reports progress.
fn score_chunks(
    engine: &mut dyn Engine,
    chunks: &[&[u32]],
    bos: Option<u32>,
    ui: Ui,
) -> CommandResult<Score> {
    let seq = engine.create()?;
    let progress = ProgressDisplay::steps(ui, chunks.len() as u64);
    let mut score = Score::default();
    for (i, chunk) in chunks.iter().enumerate() {
        score_chunk(engine, seq, chunk, bos, &mut score)?;
        let running = format!("[{}]{:.4}", i + 1, score.perplexity());
        progress.message(running.as_str());
        progress.set(i as u64 + 1);
        if !std::io::stderr().is_terminal() || ui.verbose {
            progress.suspend(|| ui.note(running));
        }
    }
    Ok(score)
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
    // The prediction after the last token has no target.
    let scored = &tokens[first..tokens.len() - 1];
    let mut at = first;
    for part in scored.chunks(SCORED_TOKENS) {
        let targets = &chunk[at + 1..at + 1 + part.len()];
        let (mut nlls, mut wrong) = (Vec::new(), None);
        step(engine, part, LogitsFor::All, &mut |logits| {
            let mut rows = logits.chunks(logits.len() / targets.len());
            wrong = rows.position(|row| !all_finite(row));
            nlls = negative_log_likelihoods(logits, targets, n_threads);
        })?;
        if let Some(i) = wrong {
            return Err(Error::NotFinite { position: at + i }.into());
        }
        nlls.into_iter().for_each(|nll| score.add(nll));
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

/// Scores of the tokens.
#[derive(Clone, Debug, Default)]
struct Score {
    /// `-ln p` of each.
    nlls: Vec<f64>,
}

impl Score {
    fn add(&mut self, nll: f64) {
        self.nlls.push(nll);
    }

    fn mean(&self) -> f64 {
        mean_and_error(&self.nlls).0
    }

    fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// Standard error of the perplexity, to first order.
    fn error(&self) -> f64 {
        let (mean, error) = mean_and_error(&self.nlls);
        error * mean.exp()
    }

    /// Loss against another score of the same tokens in nats per token, with the standard error.
    fn loss(&self, other: &Score) -> (f64, f64) {
        let pairs = self.nlls.iter().zip(&other.nlls);
        let differences: Vec<f64> = pairs.map(|(own, other)| own - other).collect();
        mean_and_error(&differences)
    }
}

/// Mean of numbers, and its standard error.
fn mean_and_error(numbers: &[f64]) -> (f64, f64) {
    let n = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / n;
    let squares: f64 = numbers.iter().map(|x| x * x).sum();
    let variance = (squares / n - mean * mean).max(0.0);
    (mean, (variance / (n.max(2.0) - 1.0)).sqrt())
}

fn report(
    args: &PerplexityArgs,
    device: &str,
    n_chunks: usize,
    scores: &[Score],
    ui: Ui,
) -> CommandResult {
    let mut out = Out::new();
    let Some(first) = scores.first() else {
        return Ok(());
    };
    if args.json {
        return out.json(&report_json(args, (device, n_chunks), scores, first));
    }
    let n_scored = first.nlls.len();
    let scored = format!(
        "{n_chunks} chunks of {}, {n_scored} tokens scored",
        args.ctx
    );
    ui.note(Paint::Dim.stderr(&scored));
    if scores.len() > 1 {
        loss_table(args, scores, first).print(&mut out)?;
        return out.flush();
    }
    let (perplexity, error) = (first.perplexity(), first.error());
    out.line(format!("PPL = {perplexity:.4} +/- {error:.5}"))?;
    out.flush()
}

/// Table of the cache formats: size, and loss against the first.
fn loss_table(args: &PerplexityArgs, scores: &[Score], first: &Score) -> TextTable {
    let mut table = TextTable::new(&[
        ("cache", Align::Left),
        ("bits", Align::Right),
        ("PPL", Align::Right),
        ("+/-", Align::Right),
        ("nats lost", Align::Right),
        ("+/-", Align::Right),
    ]);
    for (kv_type, score) in args.kv_type.iter().zip(scores) {
        let (loss, loss_error) = score.loss(first);
        table.row(vec![
            kv_type.to_string(),
            format!("{}", kv_type.bits_with_scales()),
            format!("{:.4}", score.perplexity()),
            format!("{:.4}", score.error()),
            format!("{loss:.5}"),
            format!("{loss_error:.5}"),
        ]);
    }
    table
}

fn report_json(
    args: &PerplexityArgs,
    (device, n_chunks): (&str, usize),
    scores: &[Score],
    first: &Score,
) -> Value {
    let mut report = json!({
        "model": args.model.model,
        "file": args.file,
        "device": device,
        "perplexity": first.perplexity(),
        "error": first.error(),
        "mean_nll": first.mean(),
        "n_ctx": args.ctx,
        "n_chunks": n_chunks,
        "n_tokens_scored": first.nlls.len(),
    });
    if scores.len() > 1 {
        let rows = args.kv_type.iter().zip(scores);
        let rows = rows.map(|(kv_type, score)| {
            let (loss, loss_error) = score.loss(first);
            json!({
                "kv_type": kv_type.name(), "bits": kv_type.bits_with_scales(),
                "perplexity": score.perplexity(), "error": score.error(), "mean_nll": score.mean(),
                "loss_nats": loss, "loss_error": loss_error,
            })
        });
        report["kv_types"] = rows.collect();
    }
    report
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
        assert_eq!(score.nlls.len(), 14);
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
    fn a_loss_has_the_error_of_the_differences() {
        let score = |nlls: [f64; 4]| Score {
            nlls: nlls.to_vec(),
        };
        let (first, other) = (score([1.0, 9.0, 2.0, 4.0]), score([1.5, 9.5, 2.5, 4.5]));
        assert_eq!(other.loss(&first), (0.5, 0.0));
        assert_eq!(first.loss(&first), (0.0, 0.0));
        // Differences of 0 and 1 in turn: variance 1/4 over n - 1 = 3.
        let (mean, error) = score([1.0, 10.0, 2.0, 5.0]).loss(&first);
        assert!((mean - 0.5).abs() < 1e-12 && (error - (0.25f64 / 3.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn each_row_is_scored_with_its_own_target() {
        let logits = [10.0, 0.0, 0.0, 10.0];
        let right = negative_log_likelihoods(&logits, &[0, 1], 2);
        let wrong = negative_log_likelihoods(&logits, &[1, 0], 2);
        assert!(right.iter().all(|nll| *nll < 0.01) && wrong.iter().all(|nll| *nll > 9.0));
    }
}
