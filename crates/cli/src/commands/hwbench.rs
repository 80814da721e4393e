//! `millrace hwbench`: every kernel against the best that the machine allows.

mod check;
mod measure;
mod report;
mod shape;
mod weights;

use crate::engine_args::level_parser;
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::interrupt;
use crate::machine;
use crate::output::{Ui, bytes};
use crate::progress::ProgressDisplay;
use check::Slower;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use measure::{HwbenchRow, MatmulBench, MeasureLimits};
use millrace_kernels::roof::{self, Effort, Roof};
use millrace_kernels::table::{MatmulKernel, kernels};
use millrace_kernels::{Cpu, CpuOptions, Level};
use millrace_quant::DType;
use millrace_runtime::HostMemory;
use report::{HwbenchReport, Setting};
use shape::{HwbenchWork, MatrixCase};
use std::time::Duration;
use weights::MatrixCopies;

const EXAMPLES: &str = "\
Examples:
  millrace hwbench                            Llama 3.2 1B's feed-forward, for 1 and 512 tokens
  millrace hwbench 2048,8192 --format q4_k,q6_k    8192 inputs, 2048 outputs
  millrace hwbench 16,8192,2048 --level avx2       for 16 tokens
  millrace hwbench model.gguf -m 1            the matrices of a model, in their formats
  millrace hwbench --assert                   exit code 1 where the pick is not the fastest

Weights are random and stream from memory. GB/s counts bytes of weights, GOP/s multiplications and
additions. `limit` is the share reached of the machine's limit, which is measured first: its memory read
rate and its arithmetic in registers. `<--` marks the row that is picked on a CPU of the levels named
after it; `*` marks a time taken on only some rows of the matrix, to keep within --time.";

/// Measure every kernel against the machine's limits
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HwbenchArgs {
    /// N outputs and K inputs, optionally with M tokens before them, or a MODEL to take matrices from
    #[arg(value_name = "N,K|M,N,K|MODEL", default_value = shape::DEFAULT, hide_default_value = true, value_hint = clap::ValueHint::AnyPath)]
    shape: String,
    /// Never use the network: hf: models must be in the cache
    #[arg(long)]
    offline: bool,
    /// Only these weight formats [default: all]
    #[arg(long, value_name = "FORMAT,..", value_delimiter = ',', ignore_case = true, hide_possible_values = true, value_parser = format_parser())]
    format: Vec<DType>,
    /// Only kernels of these instruction sets [default: all that this CPU has]
    #[arg(long, value_name = "LEVEL,..", value_delimiter = ',', value_parser = level_parser())]
    level: Vec<Level>,
    /// Numbers of tokens to multiply at once [default: 1,512]
    #[arg(short = 'm', long, value_name = "M,..", value_delimiter = ',')]
    tokens: Vec<usize>,
    /// Threads to compute with [default: one for each physical core]
    #[arg(
        short,
        long,
        value_name = "N",
        env = "MILLRACE_THREADS",
        hide_env_values = true
    )]
    threads: Option<usize>,
    /// Maximum number of times to measure each row
    #[arg(short, long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Approximate time for all rows together
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    time: u64,
    /// Amount of weights to cycle through, so that they come from memory [default: eight times the last cache]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    stream: Option<u32>,
    /// Fail where the picked kernel is over 5 % slower than another (such pairs are measured again)
    #[arg(long)]
    assert: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

fn format_parser() -> impl TypedValueParser<Value = DType> {
    PossibleValuesParser::new(DType::all().map(DType::name))
        .map(|name| DType::from_name(&name).expect("one of the possible values"))
}

pub(crate) fn run(args: &HwbenchArgs, ui: Ui) -> CommandResult {
    let load = warn_if_busy(ui);
    let work = HwbenchWork::of(args, ui)?;
    let cpu = Cpu::new(CpuOptions {
        n_threads: args.threads,
        // All rows this CPU can run, whether or not it prefers their level.
        level: Some(Level::detect()),
    })
    .map_err(|error| CommandFailure::usage(error.to_string()))?;
    let plan = Trials::new(args, &work)?;
    let progress = ProgressDisplay::steps(ui, plan.n_rows as u64);
    progress.message("limits of the machine");
    let effort = Effort {
        read_bytes: plan.stream_bytes,
        time: (plan.limits.time * 2).min(Duration::from_millis(100)),
    };
    let roofs = roof::measure_levels(&cpu, &effort);
    let setting = Setting {
        cpu: &cpu,
        roofs: &roofs,
        stream_bytes: plan.stream_bytes,
        load,
        unfit: &work.unfit,
    };
    let mut report = HwbenchReport::new(args.json, &setting);
    progress.suspend(|| report.begin())?;
    let mut slower = Vec::new();
    let mut weights = MatrixCopies::default();
    for (case, rows) in &plan.cases {
        weights.fill(&cpu, case, plan.stream_bytes)?;
        let mut block = Vec::new();
        for &m in &work.tokens {
            let mut bench = MatmulBench::new(&cpu, &weights, m);
            let measured = measure_rows(&mut bench, rows, &roofs, &plan.limits, &progress);
            let mut measured = measured?;
            if args.assert {
                slower.extend(check::check(&mut bench, &mut measured, &plan.limits)?);
            }
            block.extend(measured);
        }
        progress.suspend(|| report.block(case, block))?;
    }
    drop(progress);
    report.finish(args.assert.then_some(slower.as_slice()))?;
    verdict(&slower)
}

/// Kernels to measure, and the limits on doing so.
struct Trials<'a> {
    cases: Vec<(&'a MatrixCase, Vec<&'static MatmulKernel>)>,
    n_rows: usize,
    limits: MeasureLimits,
    stream_bytes: usize,
}

impl<'a> Trials<'a> {
    fn new(args: &HwbenchArgs, work: &'a HwbenchWork) -> CommandResult<Trials<'a>> {
        let wanted = |kernel: &&MatmulKernel| {
            kernel.level.is_supported()
                && (args.level.is_empty() || args.level.contains(&kernel.level))
        };
        let cases: Vec<(&MatrixCase, Vec<&'static MatmulKernel>)> = work
            .cases
            .iter()
            .map(|case| {
                let of_format = kernels().filter(|kernel| kernel.dtype == case.dtype);
                (case, of_format.filter(wanted).collect())
            })
            .filter(|(_, rows): &(_, Vec<_>)| !rows.is_empty())
            .collect();
        let n_rows = cases.iter().map(|(_, rows)| rows.len()).sum::<usize>() * work.tokens.len();
        if n_rows == 0 {
            let best = Level::detect();
            return Err(CommandFailure::usage("no kernel to measure").hint(format!(
                "this CPU's level is {best}; a matrix has whole blocks of its format (256 columns fit all)"
            )));
        }
        let stream_bytes = args.stream.map_or_else(default_stream_bytes, |mib| {
            usize::try_from(u64::from(mib) << 20).unwrap_or(usize::MAX)
        });
        check_memory(work, stream_bytes)?;
        let n_parts = u32::try_from(n_rows).unwrap_or(u32::MAX);
        Ok(Trials {
            cases,
            n_rows,
            limits: MeasureLimits {
                time: Duration::from_secs(args.time) / n_parts,
                most_samples: args.repetitions as usize,
            },
            stream_bytes,
        })
    }
}

/// Measures one format for one number of tokens.
fn measure_rows(
    bench: &mut MatmulBench<'_>,
    kernels: &[&'static MatmulKernel],
    roofs: &[(Level, Roof)],
    limits: &MeasureLimits,
    progress: &ProgressDisplay,
) -> CommandResult<Vec<HwbenchRow>> {
    let mut rows = Vec::with_capacity(kernels.len());
    for kernel in kernels {
        if interrupt::is_raised() {
            return Err(CommandFailure::interrupted());
        }
        progress.message(kernel.name());
        let (_, roof) = roofs
            .iter()
            .find(|(level, _)| *level == kernel.level)
            .expect("a roof for each level that the CPU has");
        rows.push(bench.row(kernel, roof, limits));
        progress.advance(1);
    }
    Ok(rows)
}

/// Load per processor above which the machine counts as busy: a finished build leaves a load of a quarter behind.
const BUSY_LOAD: f64 = 0.25;

/// Warns if other processes are running, and returns the load average.
fn warn_if_busy(ui: Ui) -> Option<f64> {
    let load = machine::load_average()?;
    let n = machine::processor().threads;
    if load > BUSY_LOAD * n as f64 {
        ui.warn(format_args!(
            "this machine is busy (load {load:.2} on {n} processors): timings will mean little"
        ));
    }
    Some(load)
}

/// Several times the size of the caches.
fn default_stream_bytes() -> usize {
    const LEAST: u64 = 256 << 20;
    let caches = machine::processor().caches;
    let largest = caches.iter().map(|cache| cache.size_bytes).max();
    let stream = largest.unwrap_or(0).saturating_mul(8).max(LEAST);
    usize::try_from(stream).unwrap_or(usize::MAX)
}

/// Refuses work that does not fit this machine, before anything is allocated.
fn check_memory(work: &HwbenchWork, stream_bytes: usize) -> CommandResult {
    let m = work.tokens.iter().copied().max().unwrap_or(0);
    let needed = work
        .cases
        .iter()
        .map(|case| case.memory_bytes(m, stream_bytes));
    let needed = needed.max().unwrap_or(0);
    // Where the system does not report memory, half of the address space is surely too much.
    let usable = HostMemory::read().usable_bytes().unwrap_or(u64::MAX / 2);
    if needed > usable {
        return Err(CommandFailure::usage(format!(
            "the largest shape needs {} of memory, and {} are free",
            bytes(needed),
            bytes(usable)
        )));
    }
    Ok(())
}

fn verdict(slower: &[Slower]) -> CommandResult {
    if slower.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = slower.iter().map(ToString::to_string).collect();
    Err(CommandFailure::new(
        Exit::Failed,
        format!(
            "the dispatcher's pick is not the fastest:\n  {}",
            lines.join("\n  ")
        ),
    ))
}
