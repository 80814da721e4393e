//! What can be compared: anything that gives logits for a prompt and then for a token at a time.
//! Both runners call what `run` calls and nothing of their own.

use crate::exit::Outcome;
use millrace_runtime::npu::NpuSession;
use millrace_runtime::{BatchItem, Engine, SeqId, StepOutput};

/// One side of a comparison.
pub(super) trait Runner {
    /// What it is.
    fn name(&self) -> String;
    /// Starts anew with a prompt; the logits after its last token.
    fn start(&mut self, prompt: &[u32]) -> Outcome<&[f32]>;
    /// Goes on with a token; the logits after it.
    fn next(&mut self, token: u32) -> Outcome<&[f32]>;
}

/// An engine.
pub(super) struct EngineRunner<'a> {
    engine: &'a mut dyn Engine,
    seq: SeqId,
    output: StepOutput,
}

impl<'a> EngineRunner<'a> {
    pub(super) fn new(engine: &'a mut dyn Engine) -> Outcome<EngineRunner<'a>> {
        let seq = engine.create()?;
        let output = StepOutput::default();
        Ok(EngineRunner {
            engine,
            seq,
            output,
        })
    }

    fn step(&mut self, tokens: &[u32]) -> Outcome<&[f32]> {
        let item = BatchItem::last(self.seq, tokens);
        self.engine.step(&[item], &mut self.output)?;
        Ok(self.output.logits(0))
    }
}

impl Runner for EngineRunner<'_> {
    fn name(&self) -> String {
        self.engine.name()
    }

    fn start(&mut self, prompt: &[u32]) -> Outcome<&[f32]> {
        self.engine.release(self.seq)?;
        self.seq = self.engine.create()?;
        self.step(prompt)
    }

    fn next(&mut self, token: u32) -> Outcome<&[f32]> {
        self.step(&[token])
    }
}

impl Runner for NpuSession {
    fn name(&self) -> String {
        self.model().device_name().to_owned()
    }

    fn start(&mut self, prompt: &[u32]) -> Outcome<&[f32]> {
        self.truncate(0);
        Ok(self.prefill(prompt)?)
    }

    fn next(&mut self, token: u32) -> Outcome<&[f32]> {
        Ok(self.decode(token)?)
    }
}
