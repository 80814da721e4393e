//! `millrace diagnose`: how far a device is from f32, layer by layer, and the first op that is wrong.

mod bisect;
mod layers;
mod reference;
mod report;

use crate::engine_args::CpuArgs;
use crate::exit::{CommandFailure, CommandResult};
use crate::model_arg::ModelArgs;
use crate::output::Ui;
use crate::progress::ProgressDisplay;
use crate::target_args::{CorruptSlot, DevicePurpose, TargetArgs, examples};
pub(crate) use bisect::{headline, to_json as ops_json};
use millrace_runtime::npu::{NpuModel, NpuSession};
use millrace_runtime::{LoadedModel, sampling::argmax};
use reference::States;
use std::path::Path;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  millrace diagnose demo --device {npu}                        cosine of every layer against the CPU in f32
  millrace diagnose model.gguf \"Once upon a time\" --mode mlir-air --json
  millrace diagnose folder --reference hidden.safetensors       against states written by reference_hf.py
  millrace diagnose demo --bisect                              checks every op by itself and names the first wrong one
  millrace diagnose demo --bisect --corrupt flash_attn:attn    corrupts one op, to see that it is found

The table is for information: rounding alone moves hidden states, and the exit code is always 0.
--bisect takes each op's operands from the device itself, so that only the op's own result is
checked; the exit code is 1 if a result is beyond its rounding bound. The table has the form of
mlir-air's `make diagnosis` for its Llama-3.2-1B.";

/// Compare a device with f32, layer by layer, or find the first wrong op
#[derive(clap::Args, Debug)]
#[command(after_help = examples(EXAMPLES))]
pub(crate) struct DiagnoseArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The prompt
    #[arg(
        value_name = "PROMPT",
        default_value = "Once upon a time, there was a little girl who lived near the woods. One day she"
    )]
    prompt: String,
    /// Reference to compare with: `cpu`, or safetensors with `tokens` (i32 or i64) and `hidden.0`, …
    #[arg(long, value_name = "cpu|FILE", default_value = "cpu", value_hint = clap::ValueHint::FilePath)]
    reference: String,
    /// Recompute every op of the device from its own operands, and name the first wrong one
    #[arg(long, conflicts_with = "reference")]
    bisect: bool,
    /// Corrupt a slot of a program, to see that it is found. HOW is some (every 16th element; the
    /// default), double, zero, permute or row
    #[arg(long, value_name = "PROGRAM:SLOT[:HOW]")]
    corrupt: Option<CorruptSlot>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    cpu: CpuArgs,
}

/// Tokens that the bisection decodes after the prompt: decode has programs of its own.
const N_DECODED: usize = 1;

pub(crate) fn run(args: &DiagnoseArgs, ui: Ui) -> CommandResult {
    let model = args.model.load(ui)?;
    let file = match args.reference.as_str() {
        "cpu" => None,
        path => Some(States::read(Path::new(path), &model)?),
    };
    let prompt = match file.as_ref().and_then(|states| states.tokens.clone()) {
        Some(tokens) => tokens,
        None => encode(&model, &args.prompt)?,
    };
    let wanted = DevicePurpose {
        corrupt: args.corrupt.clone(),
        ..DevicePurpose::context(prompt.len() + N_DECODED)
    };
    let npu = args.target.load(&model, &args.cpu, &wanted, ui)?;
    if args.bisect {
        return bisect::run(&npu, &prompt, args.json, ui);
    }
    let expected = match file {
        Some(states) => states,
        None => {
            let _progress = ProgressDisplay::spinner(ui, "running the reference");
            States::by_cpu(&model, &args.cpu, &prompt)?
        }
    };
    let found = on_device(&npu, &prompt, ui)?;
    let rows = layers::compare(&model, &expected, &found)?;
    report::print(args.json, &model, &npu, &expected, &rows)
}

fn encode(model: &LoadedModel, text: &str) -> CommandResult<Vec<u32>> {
    let (tokens, _) = model.tokenizer()?.encode_continued(text, true);
    if tokens.is_empty() {
        return Err(CommandFailure::usage(
            "the prompt is empty: give at least one token",
        ));
    }
    Ok(tokens)
}

/// States that the device computes for the prompt.
fn on_device(npu: &Arc<NpuModel>, prompt: &[u32], ui: Ui) -> CommandResult<States> {
    let mut session = NpuSession::new(npu)?;
    let (capture, observer) = layers::Capture::new(npu);
    session.observe(Some(observer));
    let _progress = ProgressDisplay::spinner(ui, "running the device");
    let logits = session.prefill(prompt)?.to_vec();
    session.observe(None);
    Ok(States {
        source: npu.device_name().to_owned(),
        tokens: None,
        hidden: capture.take()?,
        logits: Some(logits),
    })
}

/// Most likely token.
fn best(states: &States) -> Option<u32> {
    states.logits.as_deref().map(argmax)
}
