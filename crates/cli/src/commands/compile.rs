//! `millrace compile`: compiles plans and programs ahead of time, and lists them.

mod report;

use crate::exit::{CommandFailure, CommandResult};
use crate::interrupt;
use crate::output::Ui;
use crate::plan_args::{self, PlanArgs};
use crate::program_cache;
use crate::progress::ProgressDisplay;
use crate::target_args::examples;
use millrace_graph::Graph;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::ProgramCache;
use millrace_plan::{CompiledPlan, LowerError, Lowering, PassKind, compile};
use report::CompileReport;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  millrace compile demo                                   all plans of a model, into the cache
  millrace compile --geometry llama-3.2-1b                 the same for a shape, without files
  millrace compile --geometry llama-3.2-1b --mode mlir-air --list
                                                          launches and slots of each program
  millrace compile model.gguf --prompt-tokens 30,5000      plans for these prompts, chunk by chunk
  millrace compile demo --set cols=4 --out programs        for a machine that does not exist

Compiled programs are kept in ~/.cache/millrace/npu (MILLRACE_NPU_CACHE names another folder, or none if
empty), where `run --device {npu}` finds them. A change of model, machine, options or of millrace
itself makes other programs; the folder may be deleted at any time.";

/// Compile a model's programs ahead of time, and list them
#[derive(clap::Args, Debug)]
#[command(after_help = examples(EXAMPLES))]
pub(crate) struct CompileArgs {
    /// Prompt lengths to compile for [default: every length that prompts are padded to]
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=MAX_PROMPT))]
    prompt_tokens: Vec<u64>,
    /// Keep programs in this folder instead of the cache's
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// List launches and slots of every program
    #[arg(long)]
    list: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    plan: PlanArgs,
}

/// Longest prompt: no model's context is longer.
const MAX_PROMPT: u64 = 1 << 22;

pub(crate) fn run(args: &CompileArgs, ui: Ui) -> CommandResult {
    let planned = args.plan.read(ui)?;
    let planner = args.plan.target.planner(planned.graph())?;
    let sequences = planned.sequences(&*planner, &args.prompt_tokens);
    let kinds = plan_args::kinds(&sequences, &args.prompt_tokens);
    let one_thread = CpuOptions {
        n_threads: Some(1),
        level: None,
    };
    // Nothing runs on this device: it only identifies the target that programs are kept for.
    let cpu = Cpu::new(one_thread).map_err(millrace_runtime::Error::from)?;
    let device = (planner.open(cpu)).map_err(millrace_runtime::npu::NpuError::Open)?;
    let dir = args.out.clone().or_else(millrace::programs_folder);
    let cache = match &dir {
        Some(dir) => program_cache::open(device, dir, ui)?,
        None => ProgramCache::new(device),
    };
    let start = Instant::now();
    let plans = compile_all(&cache, &*planner, planned.graph(), &kinds, ui)?;
    let elapsed = start.elapsed();
    CompileReport {
        planned: &planned,
        planner: &*planner,
        dir: dir.as_deref(),
        plans: &plans,
        elapsed,
    }
    .print(args.list, args.json)
}

/// Compiles every plan, as many at once as there are processors; returns them in the order of the kinds.
fn compile_all(
    cache: &ProgramCache,
    planner: &dyn Lowering,
    graph: &Graph,
    kinds: &[PassKind],
    ui: Ui,
) -> CommandResult<Vec<(PassKind, CompiledPlan)>> {
    let progress = ProgressDisplay::steps(ui, kinds.len() as u64);
    progress.message("compiling");
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<CompiledPlan, LowerError>>>> =
        Mutex::new(kinds.iter().map(|_| None).collect());
    let work = || {
        // Longest first, because they take the most time.
        while let Some(index) = kinds.len().checked_sub(1 + next.fetch_add(1, Relaxed)) {
            if interrupt::is_raised() {
                return;
            }
            let compiled = compile(cache, planner, graph, &kinds[index]);
            done.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(compiled);
            progress.advance(1);
        }
    };
    let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 1..n_threads.min(kinds.len()) {
            scope.spawn(work);
        }
        work();
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut plans = Vec::new();
    for (kind, compiled) in kinds.iter().zip(done) {
        let compiled = compiled.ok_or_else(CommandFailure::interrupted)?;
        plans.push((*kind, compiled?));
    }
    Ok(plans)
}
