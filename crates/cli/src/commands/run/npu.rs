//! `run --device xdna2`: the same on the virtual NPU, with its modelled times.

use super::{Args, Printer, finish, to_json};
use crate::engine_args::warn_beyond_training;
use crate::exit::Outcome;
use crate::npu_stats;
use crate::output::Ui;
use crate::stats;
use millrace_runtime::npu::{NpuSession, generate};
use millrace_runtime::{GenerateParams, LoadedModel};
use serde_json::json;
use std::sync::Arc;

pub(super) fn run(
    args: &Args,
    model: &Arc<LoadedModel>,
    text: &str,
    prompt: &[u32],
    params: &GenerateParams,
    ui: Ui,
) -> Outcome {
    let npu = (args.device.npu).load(model, &args.cpu, args.context.ctx, ui)?;
    let mut session = NpuSession::new(&npu);
    ui.detail(format_args!(
        "{}, context {}, seed {}",
        npu.device_name(),
        npu.n_ctx(),
        params.sampling.seed
    ));
    session.check_context(prompt.len(), params.least_tokens())?;
    warn_beyond_training(ui, model, npu.n_ctx(), prompt.len(), params.max_tokens);
    let mut printer = Printer::new(args, text)?;
    let generation = printer.stream(ui, &mut |flag, on_event| {
        Ok(generate(&mut session, prompt, params, flag, on_event)?)
    })?;
    let details = json!({
        "n_ctx": npu.n_ctx(),
        "npu": npu_stats::json(&session),
    });
    let report = to_json(model, params, &generation, details);
    let lines = [
        format!("simulated: {}", stats::line(&generation)),
        npu_stats::line(&session),
    ];
    finish(args, &generation, report, &lines, printer.out, ui)
}
