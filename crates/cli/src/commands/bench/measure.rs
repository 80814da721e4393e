//! Runs tests and times them.

use crate::exit::{CommandFailure, CommandResult};
use crate::interrupt;
use millrace_runtime::{BatchItem, Engine, Error, LogitsFor, SeqId, StepOutput};
use std::time::Instant;

/// A test: a prompt, an answer, or both, after some tokens that are not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) n_prompt: usize,
    pub(crate) n_gen: usize,
    pub(crate) n_depth: usize,
    /// Sequences that do the same work in every step.
    pub(crate) n_sequences: usize,
}

impl Test {
    /// llama-bench's name: `pp512`, `tg128 @ d4096`; with several sequences `tg128 x8`.
    pub(crate) fn name(&self) -> String {
        let prompt = (self.n_prompt > 0).then(|| format!("pp{}", self.n_prompt));
        let answer = (self.n_gen > 0).then(|| format!("tg{}", self.n_gen));
        let parts: Vec<String> = prompt.into_iter().chain(answer).collect();
        let mut name = parts.join("+");
        if self.n_sequences > 1 {
            name += &format!(" x{}", self.n_sequences);
        }
        match self.n_depth {
            0 => name,
            depth => format!("{name} @ d{depth}"),
        }
    }

    /// Measured tokens of all sequences.
    pub(crate) fn n_measured(&self) -> usize {
        self.n_sequences * (self.n_prompt + self.n_gen)
    }

    /// Context size that each sequence needs.
    pub(crate) fn n_tokens(&self) -> usize {
        self.n_depth
            .saturating_add(self.n_prompt)
            .saturating_add(self.n_gen)
    }

    /// A short test of the same kind: touches the weights and wakes the threads.
    pub(crate) fn warmup(&self) -> Test {
        Test {
            n_gen: self.n_gen.min(1),
            ..*self
        }
    }
}

/// An engine and the sequences that tests run in.
pub(crate) struct BenchSession {
    engine: Box<dyn Engine>,
    output: StepOutput,
    sequences: Vec<SeqId>,
    tokens: TokenSource,
}

impl BenchSession {
    pub(crate) fn new(mut engine: Box<dyn Engine>) -> CommandResult<BenchSession> {
        let tokens = TokenSource {
            state: 1,
            vocab_size: engine.model().model().config.vocab_size,
        };
        let n_sequences = engine.limits().max_sequences;
        let sequences = (0..n_sequences)
            .map(|_| engine.create())
            .collect::<Result<_, _>>()?;
        Ok(BenchSession {
            engine,
            output: StepOutput::default(),
            sequences,
            tokens,
        })
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Runs a test and returns its nanoseconds, by the device's clock where there is one, else
    /// measured here. Filling the contexts up to their depth does not count.
    pub(crate) fn run(&mut self, test: &Test) -> CommandResult<u64> {
        for index in 0..test.n_sequences {
            self.go_to(index, test.n_depth)?;
        }
        let prompts = self.tokens.take(test.n_prompt * test.n_sequences);
        let before_ns = self.engine.counters().device_ns;
        let start = Instant::now();
        if test.n_prompt > 0 {
            self.step(&prompts, test.n_prompt, LogitsFor::Last)?;
        }
        for _ in 0..test.n_gen {
            let tokens = self.tokens.take(test.n_sequences);
            self.step(&tokens, 1, LogitsFor::Last)?;
        }
        if self.engine.device_time().is_some() {
            return Ok(self.engine.counters().device_ns - before_ns);
        }
        Ok(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Brings a context to exactly `depth` tokens, keeping its present tokens where possible.
    fn go_to(&mut self, index: usize, depth: usize) -> CommandResult {
        let seq = self.sequences[index];
        match self.engine.truncate(seq, depth) {
            Ok(()) => {}
            Err(Error::WindowGone { .. }) => self.engine.truncate(seq, 0)?,
            Err(error) => return Err(error.into()),
        }
        let missing = depth - self.engine.len(seq)?;
        let chunk = self.engine.limits().max_chunk;
        for tokens in self.tokens.take(missing).chunks(chunk) {
            refuse_if_interrupted()?;
            let item = BatchItem::new(seq, tokens, LogitsFor::None);
            self.engine.step(&[item], &mut self.output)?;
        }
        Ok(())
    }

    /// Appends the first `n_each` tokens to the first sequence, the next to the next, and so on.
    fn step(&mut self, tokens: &[u32], n_each: usize, logits: LogitsFor) -> CommandResult {
        refuse_if_interrupted()?;
        let parts = self.sequences.iter().zip(tokens.chunks(n_each));
        let batch: Vec<BatchItem<'_>> = parts
            .map(|(seq, tokens)| BatchItem::new(*seq, tokens, logits))
            .collect();
        self.engine.step(&batch, &mut self.output)?;
        Ok(())
    }
}

fn refuse_if_interrupted() -> CommandResult {
    if interrupt::is_raised() {
        return Err(CommandFailure::interrupted());
    }
    Ok(())
}

/// Meaningless tokens, the same in every run.
struct TokenSource {
    state: u64,
    vocab_size: usize,
}

impl TokenSource {
    fn take(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.next()).collect()
    }

    /// Marsaglia's xorshift64.
    fn next(&mut self) -> u32 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % self.vocab_size as u64) as u32
    }
}
