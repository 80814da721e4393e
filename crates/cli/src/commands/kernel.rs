//! `millrace kernel`: one kernel on the virtual NPU: built, verified, computed, compared, timed.

mod compute;
mod file;
mod picture;
mod report;
mod sweep;
mod trace;

use crate::engine_args::CpuArgs;
use crate::exit::{Exit, Failure, Outcome};
use crate::npu_args::NpuArgs;
use crate::output::{Align, Out, Table, Ui};
use crate::progress::Progress;
use compute::Computed;
use file::SlotFile;
use millrace_xdna2::mapping::{self, Mapping, Shape, Tiling};
use millrace_xdna2::program::text;
use millrace_xdna2::timing::{self, Timing};
use millrace_xdna2::verify::{self, Report as Resources};
use millrace_xdna2::{Machine, Numerics, Profile, Program};
use report::Report;
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  millrace kernel                                     what there is
  millrace kernel gemm-fused-cast 2048x2048x8192      built, verified, computed, compared, timed
  millrace kernel gemv 2048x8192 --time-only --json   the prediction alone, as JSON
  millrace kernel gemm-drain 2048x2048x512 --sweep    every legal tiling, the fastest first
  millrace kernel gemm-f32 512x512x512 --tile tile_n=64,tile_k_l2=128
  millrace kernel gemm-drain 512x512x512 --numerics bfp16   through block floating point
  millrace kernel gemm-f32 512x512x512 --set cols=4   on a machine that does not exist
  millrace kernel add 65536 --print > add.tile        the tile program as text
  millrace kernel --program add.tile                  checks, computes and times your own program
  millrace kernel --program add.tile --input a=a.bin --output y=y.bin    with data from and to files
  millrace kernel rmsnorm 2048x2048 --trace t.json    opens in Perfetto or chrome://tracing

Times are modelled, never measured: the label says by which profile, and its median error on published
measurements outside its calibration rows. `millrace fidelity` lists them all.";

/// Run a kernel on the virtual NPU: its numbers, its limits, its time
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The kernel; without one, all are listed
    #[arg(conflicts_with = "program")]
    name: Option<String>,
    /// The problem's dimensions, as the kernel's line in the list says
    #[arg(requires = "name")]
    shape: Option<String>,
    #[command(flatten)]
    npu: NpuArgs,
    /// Change tile sizes or the herd (`tile_n=64,cols=4`); the others keep their defaults
    #[arg(long, value_name = "KEY=VALUE,..", requires = "shape")]
    tile: Option<String>,
    /// How matrix units multiply: bf16, or bfp16 (block floating point); prints what that loses
    #[arg(long, value_name = "NAME", default_value = "bf16", requires = "shape")]
    numerics: Numerics,
    /// Time all legal tilings and rank them
    #[arg(long, requires = "shape", conflicts_with_all = ["tile", "trace", "print", "time_only"])]
    sweep: bool,
    /// How many tilings to list
    #[arg(long, value_name = "N", default_value_t = 10, requires = "sweep")]
    top: usize,
    /// Predict the time only: compute nothing
    #[arg(long)]
    time_only: bool,
    /// Seed of the random inputs
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Write what every core and channel does over time (Chrome trace-event format)
    #[arg(long, value_name = "FILE.json", value_hint = clap::ValueHint::FilePath)]
    trace: Option<PathBuf>,
    /// Print the tile program and stop
    #[arg(long, requires = "shape")]
    print: bool,
    /// Verify, compute and time a tile program from a file instead
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    program: Option<PathBuf>,
    /// Take a slot of that program from a file of its elements: row by row, little-endian, no
    /// header. Slots without one are random. May be repeated
    #[arg(long, value_name = "SLOT=FILE", requires = "program")]
    input: Vec<SlotFile>,
    /// Write a slot of that program to a file, in the same form. May be repeated
    #[arg(
        long,
        value_name = "SLOT=FILE",
        requires = "program",
        conflicts_with = "time_only"
    )]
    output: Vec<SlotFile>,
    #[command(flatten)]
    cpu: CpuArgs,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, ui: Ui) -> Outcome {
    let (machine, profile) = args.npu.read()?;
    if let Some(path) = &args.program {
        return file::run(args, path, &machine, &profile, ui);
    }
    let Some(name) = &args.name else {
        return list(args.json);
    };
    let mapping = find(name)?;
    let Some(given) = &args.shape else {
        let summary = mapping.summary();
        return Err(Failure::usage(format!("{name} needs a shape: {summary}"))
            .hint("see the examples of `millrace kernel --help`"));
    };
    let shape = (mapping.parse_shape(given)).map_err(|error| Failure::usage(error.to_string()))?;
    if args.sweep {
        return sweep::run(args, mapping, &shape, &machine, &profile, ui);
    }
    let tiling = tiling(args, mapping, &shape, &machine)?;
    let mut program = (mapping.build(&shape, &tiling, &machine))
        .map_err(|error| Failure::usage(error.to_string()).hint(other_tilings(name, given)))?;
    args.numerics.apply(&mut program);
    if args.print {
        let mut out = Out::new();
        out.text(text::print(&program))?;
        return out.flush();
    }
    let resources = check(&program, &machine)?;
    let timing = predict(args, &program, &machine, &profile)?;
    let computed = if args.time_only {
        None
    } else {
        let cpu = compute::cpu(&args.cpu)?;
        let _progress = Progress::spinner(ui, "computing");
        let case = compute::Case {
            mapping,
            shape: &shape,
            tiling: &tiling,
            seed: args.seed,
            numerics: args.numerics,
        };
        Some(compute::run(&case, &program, &cpu)?)
    };
    finish(
        args,
        &Report {
            kernel: Some((mapping, &shape, &tiling)),
            program: &program,
            machine: &machine,
            profile: &profile,
            resources: &resources,
            computed: computed.as_ref(),
            produced: None,
            timing: &timing,
        },
    )
}

fn finish(args: &Args, report: &Report<'_>) -> Outcome {
    if let Some(path) = &args.trace {
        trace::write(path, report.timing)?;
    }
    report.print(args.json)?;
    match report.computed {
        Some(Computed {
            wrong: Some(what), ..
        }) => Err(Failure::new(
            Exit::Failed,
            format!("the result differs from the reference: {what}"),
        )),
        _ => Ok(()),
    }
}

fn find(name: &str) -> Outcome<&'static dyn Mapping> {
    mapping::find(name).ok_or_else(|| {
        let names = mapping::TABLE.iter().map(|mapping| mapping.name());
        let near = names.max_by(|a, b| strsim::jaro(a, name).total_cmp(&strsim::jaro(b, name)));
        let hint = format!(
            "is it `{}`? `millrace kernel` lists them",
            near.unwrap_or_default()
        );
        Failure::not_found(format!("no kernel `{name}`")).hint(hint)
    })
}

fn list(json: bool) -> Outcome {
    let mut out = Out::new();
    if json {
        let rows = mapping::TABLE.iter();
        let rows = rows.map(|m| json!({ "name": m.name(), "summary": m.summary() }));
        out.json(&rows.collect::<Vec<_>>())?;
    } else {
        let mut table = Table::new(&[("kernel", Align::Left), ("computes; shape", Align::Left)]);
        for mapping in mapping::TABLE {
            table.row(vec![
                mapping.name().to_owned(),
                mapping.summary().to_owned(),
            ]);
        }
        table.print(&mut out)?;
    }
    out.flush()
}

fn tiling(args: &Args, mapping: &dyn Mapping, shape: &Shape, machine: &Machine) -> Outcome<Tiling> {
    let tiling = mapping.default_tiling(shape, machine);
    match &args.tile {
        Some(text) => (tiling.overridden(text))
            .map_err(|error| Failure::usage(format!("--tile {text}: {error}"))),
        None => Ok(tiling),
    }
}

fn other_tilings(name: &str, shape: &str) -> String {
    format!("`millrace kernel {name} {shape} --sweep` lists the legal tilings")
}

/// Every rule the program breaks, as one failure.
fn check(program: &Program, machine: &Machine) -> Outcome<Resources> {
    verify::verify(program, machine).map_err(|refusals| {
        let refusals: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        Failure::new(
            Exit::Failed,
            format!(
                "{} would refuse `{}`:\n{}",
                machine.name,
                program.name,
                refusals.join("\n")
            ),
        )
    })
}

fn predict(
    args: &Args,
    program: &Program,
    machine: &Machine,
    profile: &Profile,
) -> Outcome<Timing> {
    let options = timing::Options {
        trace_spans: if args.trace.is_some() {
            trace::MOST_SPANS
        } else {
            0
        },
        ..timing::Options::default()
    };
    timing::predict_with(program, machine, profile, &options)
        .map_err(|error| Failure::new(Exit::Failed, error.to_string()))
}
