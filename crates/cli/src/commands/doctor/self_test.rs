//! The built-in model run for real: the answer must be the known one.

use super::Finding;
use crate::embedded;
use crate::engine_args::CpuArgs;
use crate::exit::{Exit, Failure, Outcome};
use crate::interrupt;
use crate::output::{Ui, rate};
use crate::progress::Progress;
use millrace_runtime::{
    Engine, EngineOptions, GenerateParams, Generation, LoadedModel, Session, generate,
};
use millrace_text::EncodeOptions;
use std::sync::Arc;

const PROMPT: &str = "Once upon a time";
const N_TOKENS: usize = 24;

/// Generates greedily at the level in use and at the scalar one, whose kernels are the definition
/// of every operation: both must write the same text.
pub(super) fn check(cpu: &CpuArgs, ui: Ui) -> Outcome<Finding> {
    let _progress = Progress::spinner(ui, "running the built-in model");
    let scalar = CpuArgs { cpu_level: Some(millrace_kernels::Level::Scalar), ..cpu.clone() };
    let answers = answer(&cpu.options()).and_then(|fast| Ok((fast, answer(&scalar.options())?)));
    let finding = match answers {
        Ok((fast, reference)) if fast.tokens == reference.tokens => {
            let rate = rate(fast.timings.decode_per_s());
            Finding::ok("self-test", format!("the built-in model answers correctly, {rate} tokens/s"))
        }
        Ok((fast, reference)) => {
            let found = format!("wrote {:?}, expected {:?}", fast.text, reference.text);
            Finding::fail("self-test", found)
                .because("the fast kernels and the reference disagree on this processor")
                .fix("use `--cpu-level scalar` (or MILLRACE_CPU_LEVEL) and report this output")
        }
        Err(failure) if failure.exit == Exit::Interrupted => return Err(failure),
        Err(failure) => Finding::fail("self-test", failure.message)
            .because("the built-in model does not run")
            .fix("report this output; the binary may be damaged"),
    };
    Ok(finding)
}

fn answer(options: &EngineOptions) -> Outcome<Generation> {
    let model = embedded::MODELS[0].open()?;
    let model = Arc::new(LoadedModel::from_checkpoint(model)?);
    let options = EngineOptions { n_ctx: Some(64), ..options.clone() };
    let mut engine = Engine::new(Arc::clone(&model), options)?;
    let special = EncodeOptions { add_special: true, parse_special: false };
    let prompt = model.tokenizer()?.encode(PROMPT, special);
    let params = GenerateParams { max_tokens: Some(N_TOKENS), ..GenerateParams::default() };
    let mut session = Session::new(&mut engine)?;
    let flag = interrupt::flag();
    let generation = generate(&mut engine, &mut session, &prompt, &params, flag, &mut |_| {})?;
    if interrupt::is_raised() { Err(Failure::interrupted()) } else { Ok(generation) }
}
