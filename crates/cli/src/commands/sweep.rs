//! `millrace sweep`: tokens per second by the number of sequences, and the bottleneck of each point.

mod svg;

use crate::commands::bench::measure::{BenchSession, Test};
use crate::engine_args::{CpuArgs, kv_type_parser};
use crate::exit::{CommandFailure, CommandResult};
use crate::output::{Align, Out, TextTable, Ui, rate};
use crate::plan_args::{PlanSubject, SubjectArgs};
use crate::progress::ProgressDisplay;
use crate::roofs::Setting;
use crate::target_args::{DeviceArgs, ModelPlacement, examples};
use millrace_format::output;
use millrace_plan::bound::{Limit, StepBound, StepOf};
use millrace_runtime::{EngineOptions, KvType};
use serde::Serialize;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  millrace sweep demo                                 1 to 64 sequences on the CPU, measured
  millrace sweep model.gguf --sequences 1,4,16 -d 4096   with 4096 tokens in each context
  millrace sweep demo --device {npu}                  modelled, on an NPU
  millrace sweep --geometry llama-3.2-1b --device {npu} -d 1024 --json
  millrace sweep demo --sequences 1,2,4,8 --svg sweep.svg

Every sequence generates one token per step. Each point shows its bottleneck (bytes of weights, bytes of cache,
arithmetic, launches), the tokens per second at that bound, and the share of it that is reached.";

/// Measure tokens per second by the number of sequences, and show the bottlenecks
#[derive(clap::Args, Debug)]
#[command(after_help = examples(EXAMPLES))]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Numbers of sequences that generate together
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,2,4,8,16,32,64", value_parser = clap::value_parser!(u64).range(1..=4096))]
    sequences: Vec<u64>,
    /// Tokens in the context of each sequence
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1 << 20))]
    depth: u64,
    /// Steps to measure at each point
    #[arg(short = 'n', long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4096))]
    steps: u64,
    /// Format of the cached keys and values
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = kv_type_parser())]
    kv_type: KvType,
    /// Write the curve as an image
    #[arg(long, value_name = "FILE.svg", value_hint = clap::ValueHint::FilePath)]
    svg: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cpu: CpuArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Result for one number of sequences.
#[derive(Clone, Copy, Debug, Serialize)]
struct Point {
    n_sequences: u64,
    /// Sum over all sequences.
    tokens_per_s: f64,
    each_tokens_per_s: f64,
    step_ns: f64,
    limit: Limit,
    /// Sum over all sequences, at the bound.
    bound_tokens_per_s: f64,
    /// Share of the bound that is reached.
    reached: f64,
    bound: StepBound,
}

impl Point {
    fn new(n_sequences: u64, step_ns: f64, bound: StepBound) -> Point {
        let n = n_sequences as f64;
        Point {
            n_sequences,
            tokens_per_s: n * 1e9 / step_ns,
            each_tokens_per_s: 1e9 / step_ns,
            step_ns,
            limit: bound.limit(),
            bound_tokens_per_s: n * 1e9 / bound.ns(),
            reached: bound.ns() / step_ns,
            bound,
        }
    }
}

pub(crate) fn run(args: &SweepArgs, ui: Ui) -> CommandResult {
    let planned = args.subject.read(ui)?;
    let mut sequences = args.sequences.clone();
    sequences.sort_unstable();
    sequences.dedup();
    let at = (args.depth, args.kv_type);
    let setting = Setting::of(&planned, &args.device, &args.cpu, at, None, ui)?;
    // A device computes one sequence after another: each of them reads the weights.
    let shares_passes = setting.token.is_none();
    let step_of = |n: u64| StepOf {
        n_sequences: n,
        n_rows: 1,
        n_passes: if shares_passes { 1 } else { n },
    };
    let times = match &setting.token {
        Some((token, _)) => {
            let each = token.totals.total_ns;
            sequences.iter().map(|n| *n as f64 * each).collect()
        }
        None => measure(args, &planned, &sequences, ui)?,
    };
    let points = sequences.iter().zip(times);
    let points = points.map(|(n, step_ns)| {
        Point::new(
            *n,
            step_ns,
            StepBound::of(&setting.demand, &setting.roofs, step_of(*n)),
        )
    });
    let points: Vec<Point> = points.collect();
    let verdict = verdict(&points, shares_passes);
    if let Some(path) = &args.svg {
        let title = format!("{} on {}", planned.name(), setting.name);
        let image = svg::image(&title, &points);
        output::write(path, image.as_bytes()).map_err(|error| CommandFailure::writing(&error))?;
        ui.note(format_args!("wrote {}", path.display()));
    }
    print(args, &planned, &setting, &points, &verdict)
}

/// Measures the median time of a step at each number of sequences.
fn measure(
    args: &SweepArgs,
    planned: &PlanSubject,
    sequences: &[u64],
    ui: Ui,
) -> CommandResult<Vec<f64>> {
    let Some(model) = planned.files() else {
        return Err(CommandFailure::usage(
            "measuring on the CPU takes a model's files; --geometry is for devices",
        )
        .hint("`millrace synth` writes a file of random weights with that shape"));
    };
    let most = sequences.last().copied().unwrap_or(1) as usize;
    let options = EngineOptions {
        n_ctx: Some((args.depth + args.steps + 2) as usize),
        max_sequences: most,
        kv_type: args.kv_type,
        ..args.cpu.options()
    };
    let engine = args.device.make(model, options, ui)?;
    let mut bench = BenchSession::new(engine)?;
    let progress = ProgressDisplay::steps(ui, sequences.len() as u64 * args.steps);
    let mut times = Vec::new();
    for n in sequences {
        progress.message(format!("{n} sequences"));
        let test = |n_gen: u64| Test {
            n_prompt: 0,
            n_gen: n_gen as usize,
            n_depth: args.depth as usize,
            n_sequences: *n as usize,
        };
        bench.run(&test(1))?;
        let mut samples = Vec::new();
        for _ in 0..args.steps {
            samples.push(bench.run(&test(1))? as f64);
            progress.advance(1);
        }
        samples.sort_by(f64::total_cmp);
        times.push(samples[samples.len() / 2].max(1.0));
    }
    Ok(times)
}

/// Conclusion from the curve, in words.
fn verdict(points: &[Point], shares_passes: bool) -> String {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return String::new();
    };
    let gain = last.tokens_per_s / first.tokens_per_s;
    let (from, to) = (first.n_sequences, last.n_sequences);
    if from == to {
        return format!("one point: it is bound by {}", first.limit.words());
    }
    if !shares_passes {
        return format!(
            "flat from {from} to {to}: the device runs one sequence after the other, so the weights are read {to} times \
             a step; in one pass they would be read once"
        );
    }
    let share = gain / (to as f64 / from as f64);
    let bound = last.limit.words();
    match share {
        0.75.. => format!(
            "{gain:.1} times the tokens from {from} to {to}: they share the reading of the weights"
        ),
        _ if gain < 1.1 => format!("flat from {from} to {to}: every point is bound by {bound}"),
        _ => format!(
            "{gain:.1} times the tokens from {from} to {to}; the curve bends where {bound} take over"
        ),
    }
}

fn print(
    args: &SweepArgs,
    planned: &PlanSubject,
    setting: &Setting,
    points: &[Point],
    verdict: &str,
) -> CommandResult {
    let mut out = Out::new();
    let times = match &setting.token {
        Some((_, provenance)) => provenance.as_str(),
        None => "measured",
    };
    if args.json {
        return out.json(&serde_json::json!({
            "model": planned.name(),
            "device": setting.name,
            "is_cpu": matches!(args.device.device, ModelPlacement::Cpu),
            "times": times,
            "limits_are": setting.source,
            "depth": args.depth,
            "demand": setting.demand,
            "roofs": setting.roofs,
            "points": points,
            "verdict": verdict,
        }));
    }
    out.line(format!(
        "{} on {}, {} tokens behind each sequence, times {times}",
        planned.name(),
        setting.name,
        args.depth
    ))?;
    let right = Align::Right;
    let mut table = TextTable::new(&[
        ("sequences", right),
        ("tokens/s", right),
        ("each", right),
        ("step ms", right),
        ("bound by", Align::Left),
        ("bound t/s", right),
        ("reached", right),
    ]);
    for point in points {
        table.row(vec![
            point.n_sequences.to_string(),
            rate(point.tokens_per_s),
            rate(point.each_tokens_per_s),
            format!("{:.2}", point.step_ns / 1e6),
            point.limit.words().to_owned(),
            rate(point.bound_tokens_per_s),
            format!("{:.0} %", point.reached * 100.0),
        ]);
    }
    table.print(&mut out)?;
    out.line(format!("\n{verdict}"))?;
    out.line(format!("limits: {}", setting.source))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_plan::bound::{Demand, Roofs};

    fn points(shared: bool) -> Vec<Point> {
        let demand = Demand {
            weight_bytes: 1e9,
            cache_bytes: 1e6,
            flops: 2e9,
            ..Demand::default()
        };
        let roofs = Roofs {
            bytes_per_s: 1e11,
            flops_per_s: 1e12,
            launch_ns: 0.0,
        };
        let point = |n: u64| {
            let n_passes = if shared { 1 } else { n };
            let of = StepOf {
                n_sequences: n,
                n_rows: 1,
                n_passes,
            };
            let bound = StepBound::of(&demand, &roofs, of);
            Point::new(n, bound.ns() * 1.25, bound)
        };
        [1, 4, 64].map(point).into()
    }

    #[test]
    fn a_point_says_how_far_from_its_bound_it_is() {
        let points = points(true);
        assert!((points[0].reached - 0.8).abs() < 1e-9);
        assert_eq!(points[0].limit, Limit::Weights);
        assert_eq!(points[2].limit, Limit::Arithmetic);
        assert!((points[0].each_tokens_per_s - points[0].tokens_per_s).abs() < 1e-9);
    }

    #[test]
    fn the_verdict_tells_a_flat_line_and_why() {
        assert!(
            verdict(&points(false), false).starts_with("flat from 1 to 64: the device runs one")
        );
        let bent = verdict(&points(true), true);
        assert!(bent.contains("the curve bends where arithmetic"), "{bent}");
        assert!(verdict(&points(true)[..2], true).contains("share the reading"));
    }

    #[test]
    fn a_image_has_a_point_for_each() {
        let image = svg::image("a <model> & more", &points(true));
        assert!(image.starts_with("<svg") && image.trim_end().ends_with("</svg>"));
        assert_eq!(image.matches("<circle").count(), 3);
        assert!(image.contains("a &lt;model&gt; &amp; more"));
    }
}
