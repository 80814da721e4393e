//! `millrace verify`: a device beside a reference, token by token.

mod gate;
mod hf;
mod prompts;
mod reference;
mod report;
mod runner;

use crate::engine_args::CpuArgs;
use crate::exit::{Exit, Failure, Outcome};
use crate::interrupt;
use crate::model_arg::ModelArgs;
use crate::npu_args::{CorruptSlot, NpuModelArgs};
use crate::output::Ui;
use crate::progress::Progress;
use gate::Verdict;
use millrace_runtime::npu::NpuSession;
use millrace_runtime::{CpuEngine, EngineOptions, LoadedModel};
use prompts::PromptSet;
use reference::{Case, Reference};
use runner::Runner;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  millrace verify demo --device xdna2                      two prompts, 32 tokens, beside the CPU
  millrace verify model.gguf --device xdna2 --prompts full  eight prompts
  millrace verify demo --device xdna2 --mode reference     the published stack's programs
  millrace verify demo --device xdna2 --save ref.json      writes what it was compared with
  millrace verify demo --device xdna2 --reference ref.json compares with a file
  millrace verify folder --device xdna2 --reference hf     beside transformers (MILLRACE_PYTHON names its Python)

Both sides write greedily from the same prompt. Where they first choose different tokens, each side's
token must be among the other's five likeliest: rounding moves a first choice, only a mistake moves a
token out of the first five. The exit code is 1 if a prompt fails.";

/// Check a device against a reference: greedy tokens side by side
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// The device to check
    #[arg(long, value_name = "NAME", default_value = "xdna2", value_parser = ["xdna2"])]
    device: String,
    #[command(flatten)]
    npu: NpuModelArgs,
    /// What to compare with: `cpu`, `hf` (Hugging Face transformers in bf16), or a file that --save wrote
    #[arg(long, value_name = "cpu|hf|FILE", default_value = "cpu", value_hint = clap::ValueHint::FilePath)]
    reference: String,
    /// Tokens to write for each prompt
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
    /// Which prompts: 2 or 8; a reference file has its own
    #[arg(long, value_enum, value_name = "SET", default_value_t = PromptSet::Quick)]
    prompts: PromptSet,
    /// Write the reference to a file, to compare with it later
    #[arg(long, value_name = "FILE.json", value_hint = clap::ValueHint::FilePath)]
    save: Option<PathBuf>,
    /// Make a slot of a program wrong after each of its runs, to see the check fail
    #[arg(long, value_name = "PROGRAM:SLOT")]
    corrupt: Option<CorruptSlot>,
    #[command(flatten)]
    cpu: CpuArgs,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, ui: Ui) -> Outcome {
    let model = args.model.load(ui)?;
    let reference = match args.reference.as_str() {
        "cpu" => by_cpu(args, &model, ui)?,
        "hf" => {
            let path = Path::new(&args.model.model);
            hf::run(&model, path, args.prompts.texts(), args.tokens as usize, ui)?
        }
        path => Reference::read(Path::new(path), &model)?,
    };
    if let Some(path) = &args.save {
        reference.write(path)?;
    }
    let n_tokens = args.tokens as usize;
    let longest = |case: &Case| case.prompt.len() + n_tokens.min(case.steps.len());
    let n_ctx = reference.cases.iter().map(longest).max().unwrap_or(1);
    let corrupt = args.corrupt.as_ref();
    let npu = args
        .npu
        .load_with(&model, &args.cpu, Some(n_ctx), corrupt, ui)?;
    let mut session = NpuSession::new(&npu);
    let progress = Progress::steps(ui, reference.cases.len() as u64);
    progress.message("checking prompts");
    let mut verdicts = Vec::new();
    for case in &reference.cases {
        check_interrupt()?;
        let steps = &case.steps[..n_tokens.min(case.steps.len())];
        verdicts.push(gate::compare(&mut session, &case.prompt, steps)?);
        progress.advance(1);
    }
    drop(progress);
    report::print(args.json, &model, &reference, &verdicts, &session)?;
    let n_failed = verdicts.iter().filter(|verdict| !verdict.passes()).count();
    match n_failed {
        0 => Ok(()),
        n => Err(Failure::new(
            Exit::Failed,
            format!("{n} of {} prompts fail", verdicts.len()),
        )),
    }
}

/// What the CPU engine writes.
fn by_cpu(args: &Args, model: &Arc<LoadedModel>, ui: Ui) -> Outcome<Reference> {
    let tokenizer = model.tokenizer()?;
    let texts = args.prompts.texts();
    let encode = |text: &&str| prompts::encode(&tokenizer, text);
    let prompts: Vec<Vec<u32>> = texts.iter().map(encode).collect();
    let n_tokens = args.tokens as usize;
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let options = EngineOptions {
        n_ctx: Some(longest + n_tokens),
        ..args.cpu.options()
    };
    let mut engine = CpuEngine::new(model.clone(), options)?;
    let mut runner = runner::EngineRunner::new(&mut engine)?;
    let progress = Progress::steps(ui, prompts.len() as u64);
    progress.message("running the reference");
    let mut cases = Vec::new();
    for (text, prompt) in texts.iter().zip(prompts) {
        check_interrupt()?;
        let steps = gate::record(&mut runner, &prompt, n_tokens, &|token| {
            tokenizer.is_end_of_generation(token)
        })?;
        cases.push(Case {
            text: (*text).to_owned(),
            prompt,
            steps,
        });
        progress.advance(1);
    }
    Ok(Reference {
        model: model.name().to_owned(),
        source: runner.name(),
        cases,
    })
}

fn check_interrupt() -> Outcome {
    match interrupt::is_raised() {
        true => Err(Failure::interrupted()),
        false => Ok(()),
    }
}
