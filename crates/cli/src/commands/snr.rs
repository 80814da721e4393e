//! `millrace snr`: signal-to-noise ratio of quantised weights and of their outputs.

mod data;
mod pipelines;

use crate::engine_args::CpuArgs;
use crate::exit::{CommandFailure, CommandResult};
use crate::model_arg::{MODEL_HELP, ModelArgs};
use crate::output::{Align, Out, TextTable, Ui};
use crate::progress::ProgressDisplay;
use data::SnrSample;
use millrace_quant::pipeline::{Noise, apply};
use pipelines::{Pipeline, SnrReference};
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  millrace snr demo                                  weights of some blocks, and outputs with real activations
  millrace snr model.gguf --tensor blk.0.ffn_down.weight,blk.0.attn_q.weight
  millrace snr --gaussian                            normally distributed numbers: the formats alone
  millrace snr model.gguf --text prompt.txt --json   activations of a text of your own

In decibels, 10 log10(sum x^2 / sum (x - y)^2): 6 dB more is one bit. `weights` compares the weights; `outputs` compares
their products with the model's activations on a text; `x in int8` is the same with the activations, too, in int8
per token. A pipeline with `>` goes step by step; `of` names its reference.";

/// Measure the signal-to-noise ratio of weights and outputs under quantisation pipelines
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SnrArgs {
    #[arg(value_name = "MODEL", help = MODEL_HELP, required_unless_present = "gaussian", value_hint = clap::ValueHint::AnyPath)]
    model: Option<String>,
    /// Never use the network: hf: models must be in the cache
    #[arg(long)]
    offline: bool,
    /// Only these tensors, by their names in the file [default: the matrices of the first, a middle and the last block]
    #[arg(
        long,
        value_name = "NAME,..",
        value_delimiter = ',',
        conflicts_with = "gaussian"
    )]
    tensor: Vec<String>,
    /// Use normally distributed numbers instead of a model: N rows of K
    #[arg(long, value_name = "N,K", conflicts_with = "model", num_args = 0..=1, default_missing_value = "64,4096", value_parser = parse_shape)]
    gaussian: Option<(usize, usize)>,
    /// Rows to measure of each matrix
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    rows: u32,
    /// Text to take activations from [default: a few built-in sentences]
    #[arg(long, value_name = "FILE", conflicts_with = "gaussian", value_hint = clap::ValueHint::FilePath)]
    text: Option<std::path::PathBuf>,
    /// Print as JSON, each tensor separately
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cpu: CpuArgs,
}

fn parse_shape(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once(',').or(text.split_once('x'));
    let parsed = parts.and_then(|(n, k)| Some((n.trim().parse().ok()?, k.trim().parse().ok()?)));
    let fits = parsed.filter(|(n, k): &(usize, usize)| {
        *n > 0 && *k > 0 && n.checked_mul(*k).is_some_and(|all| all <= 1 << 26)
    });
    fits.ok_or_else(|| "write N,K, as 64,4096: at most 2^26 numbers".to_owned())
}

/// Result of a pipeline on one tensor.
#[derive(Clone, Debug, Serialize)]
struct Ratio {
    tensor: String,
    pipeline: String,
    of: &'static str,
    weights_db: Option<f64>,
    outputs_db: Option<f64>,
    outputs_int8_x_db: Option<f64>,
}

pub(crate) fn run(args: &SnrArgs, ui: Ui) -> CommandResult {
    let (name, samples) = match args.gaussian {
        Some((n, k)) => ("normal numbers".to_owned(), vec![data::gaussian(n, k)]),
        None => {
            let model = ModelArgs {
                model: args.model.clone().unwrap_or_default(),
                offline: args.offline,
            }
            .load(ui)?;
            let samples = data::of_model(&model, args, ui)?;
            (model.name().to_owned(), samples)
        }
    };
    let pipelines = pipelines::all();
    let progress = ProgressDisplay::steps(ui, (samples.len() * pipelines.len()) as u64);
    let mut results = Vec::new();
    for sample in &samples {
        progress.message(sample.name.clone());
        for pipeline in &pipelines {
            if crate::interrupt::is_raised() {
                return Err(CommandFailure::interrupted());
            }
            results.extend(measure(sample, pipeline));
            progress.advance(1);
        }
    }
    drop(progress);
    print(args, &name, &samples, &pipelines, &results)
}

/// `None` where a format does not take the shape.
fn measure(sample: &SnrSample, pipeline: &Pipeline) -> Option<Ratio> {
    let (k, mut reference) = (sample.k, sample.weights.clone());
    if let SnrReference::Q4K = pipeline.of {
        apply(&pipelines::Q4K, &mut reference, k).ok()?;
    }
    let mut found = reference.clone();
    apply(&pipeline.steps(k), &mut found, k).ok()?;
    let outputs = sample.outputs(&sample.x, &reference);
    let with_x = sample.outputs(&sample.x, &found);
    let mut x = sample.x.clone();
    apply(&pipeline.of_activations(k), &mut x, k).ok()?;
    let with_int8_x = sample.outputs(&x, &found);
    // A format that loses nothing has no ratio; JSON has no infinity either.
    let db = |noise: Noise| Some(noise.snr_db()).filter(|db| db.is_finite());
    Some(Ratio {
        tensor: sample.name.clone(),
        pipeline: pipeline.name.clone(),
        of: pipeline.of.words(),
        weights_db: db(Noise::of(&reference, &found)),
        outputs_db: db(Noise::of(&outputs, &with_x)),
        outputs_int8_x_db: db(Noise::of(&outputs, &with_int8_x)),
    })
}

/// Mean and minimum of the values that are present.
fn summary(values: impl Iterator<Item = Option<f64>>) -> Option<(f64, f64)> {
    let values: Vec<f64> = values.flatten().collect();
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let least = values.iter().copied().reduce(f64::min)?;
    Some((mean, least))
}

fn print(
    args: &SnrArgs,
    name: &str,
    samples: &[SnrSample],
    pipelines: &[Pipeline],
    results: &[Ratio],
) -> CommandResult {
    let mut out = Out::new();
    if args.json {
        return out.json(&serde_json::json!({
            "model": name,
            "rows_each": samples.iter().map(|s| s.weights.len() / s.k).max(),
            "results": results,
        }));
    }
    let n_tokens = samples.first().map_or(0, |s| s.x.len() / s.k);
    out.line(format!(
        "{name}: {} {}, at most {} rows of each, {n_tokens} tokens of activations; dB, mean (least)",
        samples.len(),
        if samples.len() == 1 { "matrix" } else { "matrices" },
        samples.iter().map(|s| s.weights.len() / s.k).max().unwrap_or(0),
    ))?;
    let right = Align::Right;
    let mut table = TextTable::new(&[
        ("pipeline", Align::Left),
        ("of", Align::Left),
        ("weights", right),
        ("outputs", right),
        ("x in int8", right),
    ]);
    let cell = |found: Option<(f64, f64)>| match found {
        Some((mean, least)) if samples.len() > 1 => format!("{mean:.1} ({least:.1})"),
        Some((mean, _)) => format!("{mean:.1}"),
        None => "exact".to_owned(),
    };
    for pipeline in pipelines {
        let own: Vec<&Ratio> = results
            .iter()
            .filter(|r| r.pipeline == pipeline.name)
            .collect();
        if own.is_empty() {
            continue;
        }
        table.row(vec![
            pipeline.name.clone(),
            pipeline.of.words().to_owned(),
            cell(summary(own.iter().map(|r| r.weights_db))),
            cell(summary(own.iter().map(|r| r.outputs_db))),
            cell(summary(own.iter().map(|r| r.outputs_int8_x_db))),
        ]);
    }
    table.print(&mut out)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn db(results: &[Ratio], pipeline: &str) -> f64 {
        let found = results.iter().find(|r| r.pipeline == pipeline);
        found
            .and_then(|r| r.weights_db)
            .unwrap_or_else(|| panic!("{pipeline}"))
    }

    /// The published double quantisation, 44.8 dB and then 19.7, on normal numbers in groups of 64.
    #[test]
    fn the_published_ratios_come_out() {
        let sample = data::gaussian(64, 1024);
        let results: Vec<Ratio> = pipelines::all()
            .iter()
            .filter_map(|p| measure(&sample, p))
            .collect();
        let (eight, four) = (
            db(&results, "q4_k > int8/64"),
            db(&results, "q4_k > int8/64 > int4/64"),
        );
        assert!(
            (eight - 44.8).abs() < 1.0 && (four - 19.7).abs() < 1.0,
            "{eight} {four}"
        );
        // Normal numbers have no outliers, so a rotation changes little.
        let (plain, turned) = (
            db(&results, "int8/row"),
            db(&results, "hadamard + int8/row"),
        );
        assert!((plain - turned).abs() < 1.5, "{plain} {turned}");
        assert!(db(&results, "q8_0") > db(&results, "q4_k"));
        let outputs = results.iter().find(|r| r.pipeline == "q8_0").unwrap();
        assert!((outputs.outputs_db.unwrap() - outputs.weights_db.unwrap()).abs() < 3.0);
        assert!(outputs.outputs_int8_x_db < outputs.outputs_db);
    }

    #[test]
    fn shapes_are_two_numbers() {
        assert_eq!(parse_shape("8,256"), Ok((8, 256)));
        assert!(
            ["8", "0,4", "a,b", "100000,100000"]
                .iter()
                .all(|s| parse_shape(s).is_err())
        );
    }
}
