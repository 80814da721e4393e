//! `millrace verify`: checks that a device computes what the model defines.

mod compare;
mod hf;
mod mutants;
mod prompts;
mod reference;
mod report;

use crate::device_stats;
use crate::engine_args::CpuArgs;
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::interrupt;
use crate::model_arg::ModelArgs;
use crate::output::Ui;
use crate::progress::ProgressDisplay;
use crate::target_args::{CorruptSlot, DevicePurpose, TargetArgs, examples};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_runtime::npu::{NpuModel, NpuSession};
use millrace_runtime::{CpuEngine, Engine, EngineOptions, Level, LoadedModel};
use millrace_verify::verification::{Baseline, Continuation, Verification, record};
use mutants::Mutants;
use prompts::PromptSet;
use reference::{DeviceReference, PromptCase};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  millrace verify demo --device {npu}                      two prompts, 32 tokens, against the CPU
  millrace verify model.gguf --device {npu} --prompts full  long prompts, chats and an end token too
  millrace verify demo --device {npu} --mode mlir-air     the published stack's programs
  millrace verify demo --device {npu} --save ref.json      also writes the reference to a file
  millrace verify demo --device {npu} --reference ref.json  compares with a file
  millrace verify folder --device {npu} --reference hf     against transformers (MILLRACE_PYTHON names its Python)
  millrace verify demo --corrupt flash_attn:attn:permute   a corrupted device, which must fail
  millrace verify demo --mutants sample                    many corrupted devices, to test the check itself

The reference decodes greedily; the device gets the reference's tokens, and at every step its
probabilities are compared with the model computed in f32. The tolerance comes from the same model and
prompts: the CPU computes them once more with every value rounded to bf16, and the device may be off by
1.5 times as much, plus three standard errors. Then every op of the device is computed again in f64. The
exit code is 1 if a statistic or an op is beyond its bound, or if a program did not run on the simulator
that --simulator names (--allow-substitutes lets that pass, but still reports it).";

/// Check a device against the model: probabilities at every step, and every op by itself
#[derive(clap::Args, Debug)]
#[command(after_help = examples(EXAMPLES))]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Reference to compare with: `cpu`, `hf` (Hugging Face transformers in bf16), or a file written by --save
    #[arg(long, value_name = "cpu|hf|FILE", default_value = "cpu", value_hint = clap::ValueHint::FilePath)]
    reference: String,
    /// Tokens to generate for each prompt
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
    /// Set of prompts: two, or short and long ones, chats and an end token; a reference file has its own
    #[arg(long, value_enum, value_name = "SET", default_value_t = PromptSet::Quick)]
    prompts: PromptSet,
    /// Write the reference to a file, to compare with it later
    #[arg(long, value_name = "FILE.json", value_hint = clap::ValueHint::FilePath)]
    save: Option<PathBuf>,
    /// Corrupt a slot of a program, to see the check fail. HOW is some (every 16th element; the
    /// default), double, zero, permute or row
    #[arg(long, value_name = "PROGRAM:SLOT[:HOW]", conflicts_with = "mutants")]
    corrupt: Option<CorruptSlot>,
    /// Corrupt every slot of every program, one at a time and in four ways, or a sample of these,
    /// and count the failures; the exit code is 1 below 95 %
    #[arg(long, value_enum, value_name = "WHICH", conflicts_with_all = ["reference", "save"])]
    mutants: Option<Mutants>,
    /// Pass even if programs did not run on the simulator that --simulator names, but on its substitute
    #[arg(long)]
    allow_substitutes: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    cpu: CpuArgs,
}

pub(crate) fn run(args: &VerifyArgs, ui: Ui) -> CommandResult {
    let model = args.model.load(ui)?;
    if let Some(which) = args.mutants {
        return mutants::run(args, which, &model, ui);
    }
    let n_tokens = args.tokens as usize;
    let reference = match args.reference.as_str() {
        "cpu" => {
            let prompts = prompts::of(args.prompts, &model, n_tokens)?;
            by_cpu(args, &model, prompts, ui)?
        }
        "hf" => {
            let path = Path::new(&args.model.model);
            let prompts = prompts::of(args.prompts, &model, n_tokens)?;
            hf::run(&model, path, prompts, n_tokens, ui)?
        }
        path => DeviceReference::read(Path::new(path), &model)?,
    };
    if let Some(path) = &args.save {
        reference.write(path)?;
    }
    let longest = |case: &PromptCase| case.prompt.len() + n_tokens.min(case.steps.len());
    let n_ctx = reference.cases.iter().map(longest).max().unwrap_or(1);
    let wanted = DevicePurpose {
        corrupt: args.corrupt.clone(),
        ..DevicePurpose::context(n_ctx)
    };
    let npu = args.target.load(&model, &args.cpu, &wanted, ui)?;
    let baselines = baselines(args, &npu, &reference, ui)?;
    let mut session = NpuSession::new(&npu)?;
    let mut found = compare::run(&mut session, &baselines, ui)?;
    if !args.allow_substitutes {
        found.substitutes = device_stats::substitutes(session.engine());
    }
    report::print(args.json, &model, &reference, &found, &session)?;
    match found.failure() {
        None => Ok(()),
        Some(failure) => Err(CommandFailure::new(Exit::Failed, failure)),
    }
}

/// Baselines to compare the device with, along the reference's continuations.
fn baselines(
    args: &VerifyArgs,
    npu: &NpuModel,
    reference: &DeviceReference,
    ui: Ui,
) -> CommandResult<Vec<Baseline>> {
    let cpu = exact_cpu(&args.cpu)?;
    let progress = ProgressDisplay::steps(ui, reference.cases.len() as u64);
    progress.message("computing in f32 and in bf16");
    let verification = Verification::new(&cpu, npu)?;
    let mut baselines = Vec::new();
    for case in &reference.cases {
        check_interrupt()?;
        let continuation = Continuation {
            prompt: case.prompt.clone(),
            choices: case.steps.clone(),
        };
        baselines.push(verification.baseline(continuation.cut(args.tokens as usize))?);
        progress.advance(1);
    }
    Ok(baselines)
}

/// A CPU that rounds no operand to bf16.
fn exact_cpu(cpu: &CpuArgs) -> CommandResult<Cpu> {
    let level = cpu.cpu_level.unwrap_or_else(Level::detect_exact);
    let options = CpuOptions {
        n_threads: cpu.threads,
        level: Some(level),
    };
    Ok(Cpu::new(options).map_err(millrace_runtime::Error::from)?)
}

/// Reference from the CPU engine.
fn by_cpu(
    args: &VerifyArgs,
    model: &Arc<LoadedModel>,
    prompts: Vec<prompts::VerifyPrompt>,
    ui: Ui,
) -> CommandResult<DeviceReference> {
    let tokenizer = model.tokenizer()?;
    let n_tokens = args.tokens as usize;
    let longest = prompts.iter().map(|p| p.tokens.len()).max().unwrap_or(0);
    let options = EngineOptions {
        n_ctx: Some(longest + n_tokens),
        ..args.cpu.options()
    };
    let mut engine = CpuEngine::new(model.clone(), options)?;
    let progress = ProgressDisplay::steps(ui, prompts.len() as u64);
    progress.message("running the reference");
    let mut cases = Vec::new();
    for prompt in prompts {
        check_interrupt()?;
        let continuation = record(&mut engine, &prompt.tokens, n_tokens, &|token| {
            tokenizer.is_end_of_generation(token)
        })?;
        cases.push(PromptCase {
            text: prompt.text,
            prompt: continuation.prompt,
            steps: continuation.choices,
        });
        progress.advance(1);
    }
    Ok(DeviceReference {
        model: model.name().to_owned(),
        source: format!("cpu ({})", engine.cpu().level()),
        cases,
    })
}

fn check_interrupt() -> CommandResult {
    match interrupt::is_raised() {
        true => Err(CommandFailure::interrupted()),
        false => Ok(()),
    }
}
