//! `millrace kernel`: builds, verifies, computes, compares and times one kernel on the virtual NPU.

mod print;
mod slot_file;

use crate::engine_args::CpuArgs;
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::output::{Align, Out, TextTable, Ui};
use crate::progress::ProgressDisplay;
use crate::prompt::read_file;
use crate::target_args::KernelTargetArgs;
use millrace_format::output::{self, AtomicFile};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::Trace;
use millrace_plan::{KernelRequest, KernelSubject, Workbench};
use serde_json::json;
use slot_file::SlotFile;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  millrace kernel                                     list of kernels
  millrace kernel gemm-fused-cast 2048x2048x8192      built, verified, computed, compared, timed
  millrace kernel gemv 2048x8192 --time-only --json   the prediction alone, as JSON
  millrace kernel gemm-drain 2048x2048x512 --sweep    every legal tiling, the fastest first
  millrace kernel gemm-f32 512x512x512 --tile tile_n=64,tile_k_l2=128
  millrace kernel gemm-drain 512x512x512 --numerics bfp16   through block floating point
  millrace kernel gemm-f32 512x512x512 --set cols=4   on a machine that does not exist
  millrace kernel add 65536 --print > add.tile        the tile program as text
  millrace kernel gemm-drain 512x512x512 --simulator words  executed as words on the board behind the driver
  millrace kernel --program add.tile                  checks, computes and times your own program
  millrace kernel --program add.tile --input a=a.bin --output y=y.bin    with data from and to files
  millrace kernel rmsnorm 2048x2048 --trace t.json    opens in Perfetto or chrome://tracing

Times are modelled, never measured: the label says by which profile, and its median error on published
measurements outside its calibration rows. `millrace fidelity` lists them all.";

/// Run a kernel on the virtual NPU and show its numbers, its limits and its time
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KernelArgs {
    /// Kernel to run; without one, all are listed
    #[arg(conflicts_with = "program")]
    name: Option<String>,
    /// Dimensions of the problem, in the form that the kernel list shows
    #[arg(requires = "name")]
    shape: Option<String>,
    #[command(flatten)]
    target: KernelTargetArgs,
    /// Change tile sizes or the herd (`tile_n=64,cols=4`); the others keep their defaults
    #[arg(long, value_name = "KEY=VALUE,..", requires = "shape")]
    tile: Option<String>,
    /// How the NPU multiplies matrices, where it has several ways; prints the loss
    #[arg(long, value_name = "NAME", requires = "shape")]
    numerics: Option<String>,
    /// Time all legal tilings and rank them
    #[arg(long, requires = "shape", conflicts_with_all = ["tile", "trace", "print", "time_only"])]
    sweep: bool,
    /// Number of tilings to list
    #[arg(long, value_name = "N", default_value_t = 10, requires = "sweep")]
    top: usize,
    /// Predict the time only: compute nothing
    #[arg(long)]
    time_only: bool,
    /// Seed of the random inputs
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Write the activity of every core and channel over time (Chrome trace-event format)
    #[arg(long, value_name = "FILE.json", value_hint = clap::ValueHint::FilePath)]
    trace: Option<PathBuf>,
    /// Print the tile program and stop
    #[arg(long, requires = "shape")]
    print: bool,
    /// Verify, compute and time a tile program from a file instead
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    program: Option<PathBuf>,
    /// Read a slot of that program from a file of its elements: row by row, little-endian, no
    /// header. Slots without a file are random. May be repeated
    #[arg(long, value_name = "SLOT=FILE", requires = "program")]
    input: Vec<SlotFile>,
    /// Write a slot of that program to a file in the same form. May be repeated
    #[arg(
        long,
        value_name = "SLOT=FILE",
        requires = "program",
        conflicts_with = "time_only"
    )]
    output: Vec<SlotFile>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cpu: CpuArgs,
}

/// Limit on the spans of a trace: more only slow the viewer down.
const MOST_SPANS: usize = 200_000;

pub(crate) fn run(args: &KernelArgs, ui: Ui) -> CommandResult {
    let target = args.target.device;
    let Some(bench) = target.workbench() else {
        let message = format!("{} has no kernels to look at one by one", target.name());
        return Err(CommandFailure::usage(message));
    };
    if args.name.is_none() && args.program.is_none() {
        return list(bench, args.json);
    }
    let request = KernelRequest {
        settings: args.target.settings(args.numerics.clone())?,
        subject: subject(args, bench)?,
        time_only: args.time_only,
        seed: args.seed,
        trace_spans: args.trace.as_ref().map_or(0, |_| MOST_SPANS),
    };
    if args.sweep {
        return sweep(args, bench, &request, ui);
    }
    if args.print {
        let mut out = Out::new();
        out.text(bench.program_text(&request)?)?;
        return out.flush();
    }
    let report = {
        let _progress = ProgressDisplay::spinner(ui, "computing");
        bench.kernel(&request, &cpu(&args.cpu)?)?
    };
    for (file, bytes) in args.output.iter().zip(&report.outputs) {
        output::write(&file.path, bytes).map_err(|error| CommandFailure::writing(&error))?;
    }
    if let (Some(path), Some(trace)) = (&args.trace, &report.trace) {
        write_trace(path, trace)?;
    }
    print::report(&report, args.json)?;
    match &report.wrong {
        Some(what) => Err(CommandFailure::new(
            Exit::Failed,
            format!("the result differs from the reference: {what}"),
        )),
        None => Ok(()),
    }
}

/// A kernel of the table with its shape, or a program of the user's own.
fn subject(args: &KernelArgs, bench: &dyn Workbench) -> CommandResult<KernelSubject> {
    if let Some(path) = &args.program {
        let text = read_file(path)?;
        let slots = bench
            .slots(&text)
            .map_err(|error| CommandFailure::bad_input(format!("{}: {error}", path.display())))?;
        // Before any work: a wrong name or size should cost nothing.
        for file in args.input.iter().chain(&args.output) {
            file.slot(&slots, path)?;
        }
        let inputs = args.input.iter().map(|file| file.read(&slots, path));
        return Ok(KernelSubject::Program {
            text,
            inputs: inputs.collect::<CommandResult<_>>()?,
            outputs: args.output.iter().map(|file| file.slot.clone()).collect(),
        });
    }
    let name = args.name.clone().unwrap_or_default();
    let kernels = bench.kernels();
    let Some(kernel) = kernels.iter().find(|kernel| kernel.name == name) else {
        let names = kernels.iter().map(|kernel| kernel.name.as_str());
        let near = names.max_by(|a, b| strsim::jaro(a, &name).total_cmp(&strsim::jaro(b, &name)));
        let hint = format!(
            "is it `{}`? `millrace kernel --device {}` lists them",
            near.unwrap_or_default(),
            args.target.device.name()
        );
        return Err(CommandFailure::not_found(format!("no kernel `{name}`")).hint(hint));
    };
    let Some(shape) = args.shape.clone() else {
        let summary = &kernel.summary;
        return Err(
            CommandFailure::usage(format!("{name} needs a shape: {summary}"))
                .hint("see the examples of `millrace kernel --help`"),
        );
    };
    Ok(KernelSubject::Kernel {
        name,
        shape,
        tile: args.tile.clone(),
    })
}

fn list(bench: &dyn Workbench, json: bool) -> CommandResult {
    let mut out = Out::new();
    let kernels = bench.kernels();
    if json {
        let rows = kernels.iter();
        let rows = rows.map(|k| json!({ "name": k.name, "summary": k.summary }));
        out.json(&rows.collect::<Vec<_>>())?;
    } else {
        let mut table =
            TextTable::new(&[("kernel", Align::Left), ("computes; shape", Align::Left)]);
        for kernel in kernels {
            table.row(vec![kernel.name, kernel.summary]);
        }
        table.print(&mut out)?;
    }
    out.flush()
}

/// All legal tilings, ranked by predicted time: an autotuner by model.
fn sweep(
    args: &KernelArgs,
    bench: &dyn Workbench,
    request: &KernelRequest,
    ui: Ui,
) -> CommandResult {
    let mut progress: Option<ProgressDisplay> = None;
    let found = bench.sweep(request, &mut |at, of, tiling| {
        let progress = progress.get_or_insert_with(|| ProgressDisplay::steps(ui, of as u64));
        progress.message(tiling.to_owned());
        progress.set(at as u64);
    })?;
    drop(progress);
    print::sweep(&found, args.top, args.json)
}

/// CPU with the threads of the simulation.
fn cpu(args: &CpuArgs) -> CommandResult<Cpu> {
    let options = CpuOptions {
        n_threads: args.threads,
        level: args.cpu_level,
    };
    Cpu::new(options).map_err(|error| CommandFailure::usage(error.to_string()))
}

/// Writes the spans in the Chrome trace-event format.
fn write_trace(path: &Path, trace: &Trace) -> CommandResult {
    let failed = |error| CommandFailure::io(format!("cannot write {}", path.display()), &error);
    let mut file = AtomicFile::create(path).map_err(|error| CommandFailure::writing(&error))?;
    trace.write_chrome(&mut file).map_err(failed)?;
    file.commit()
        .map_err(|error| CommandFailure::writing(&error))
}
