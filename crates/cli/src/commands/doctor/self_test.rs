//! Runs the built-in model at the level in use and at the scalar one, whose kernels define every operation.
//!
//! Levels add in different orders, so their numbers differ in the last bits and a near tie may fall
//! either way. The gate is that of vLLM's tests: both write greedily. At the first token that
//! differs, each one's token must be among the other's five most likely.

use super::CheckResult;
use crate::engine_args::CpuArgs;
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::interrupt;
use crate::output::{Ui, rate};
use crate::progress::ProgressDisplay;
use millrace::Model;
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, GenerateParams, Generation, Level, LoadedModel,
    SeqId, generate,
};
use std::sync::Arc;

const BUILT_IN: &str = "demo";
const PROMPT: &str = "Once upon a time";
const N_TOKENS: usize = 24;
const TOP: usize = 5;

/// Runs the test.
pub(super) fn check(cpu: &CpuArgs, ui: Ui) -> CommandResult<CheckResult> {
    let _progress = ProgressDisplay::spinner(ui, "running the built-in model");
    let finding = match compare(cpu) {
        Ok((fast, _, true)) => {
            let rate = rate(fast.timings.decode_per_s());
            CheckResult::ok(
                "self-test",
                format!("the built-in model answers correctly, {rate} tokens/s"),
            )
        }
        Ok((fast, reference, false)) => {
            let found = format!("wrote {:?}, expected {:?}", fast.text, reference.text);
            CheckResult::fail("self-test", found)
                .because("the fast kernels and the reference disagree on this processor")
                .fix("use `--cpu-level scalar` (or MILLRACE_CPU_LEVEL) and report this output")
        }
        Err(failure) if failure.exit == Exit::Interrupted => return Err(failure),
        Err(failure) => CheckResult::fail("self-test", failure.message)
            .because("the built-in model does not run")
            .fix("report this output; the binary may be damaged"),
    };
    Ok(finding)
}

/// Both answers, and whether they pass the gate.
fn compare(cpu: &CpuArgs) -> CommandResult<(Generation, Generation, bool)> {
    let model = Model::open(BUILT_IN)?;
    let model = Arc::clone(model.loaded());
    let (prompt, _) = model.tokenizer()?.encode_continued(PROMPT, false);
    let scalar = CpuArgs {
        cpu_level: Some(Level::Scalar),
        ..cpu.clone()
    };
    let mut fast = Runner::new(&model, cpu)?;
    let mut reference = Runner::new(&model, &scalar)?;
    let (a, b) = (fast.write(&prompt)?, reference.write(&prompt)?);
    let same = a
        .tokens
        .iter()
        .zip(&b.tokens)
        .take_while(|(a, b)| a == b)
        .count();
    let passes = match (a.tokens.get(same), b.tokens.get(same)) {
        (None, None) => true,
        (from_fast, from_reference) => {
            let before = [&prompt[..], &a.tokens[..same]].concat();
            let agrees = |likely: &[u32], token: Option<&u32>| {
                token.is_none_or(|token| likely.contains(token))
            };
            agrees(&reference.likeliest(&before)?, from_fast)
                && agrees(&fast.likeliest(&before)?, from_reference)
        }
    };
    Ok((a, b, passes))
}

/// Engine at one level.
struct Runner {
    engine: CpuEngine,
    seq: SeqId,
}

impl Runner {
    fn new(model: &Arc<LoadedModel>, cpu: &CpuArgs) -> CommandResult<Runner> {
        let options = EngineOptions {
            n_ctx: Some(64),
            max_sequences: 2,
            ..cpu.options()
        };
        let mut engine = CpuEngine::new(Arc::clone(model), options)?;
        let seq = engine.create()?;
        Ok(Runner { engine, seq })
    }

    /// Continues a prompt greedily.
    fn write(&mut self, prompt: &[u32]) -> CommandResult<Generation> {
        let params = GenerateParams {
            max_tokens: Some(N_TOKENS),
            ..GenerateParams::default()
        };
        let (engine, flag) = (&mut self.engine, interrupt::flag());
        let generation = generate(engine, self.seq, prompt, &params, flag, &mut |_| {})?;
        if interrupt::is_raised() {
            Err(CommandFailure::interrupted())
        } else {
            Ok(generation)
        }
    }

    /// Most likely tokens after `tokens`.
    fn likeliest(&mut self, tokens: &[u32]) -> CommandResult<Vec<u32>> {
        let seq = self.engine.create()?;
        let output = self.engine.compute(&[BatchItem::last(seq, tokens)])?;
        let logits = output.logits(0);
        let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
        ids.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
        ids.truncate(TOP);
        self.engine.release(seq)?;
        Ok(ids)
    }
}
