//! Running a test and taking its time.

use crate::exit::{Failure, Outcome};
use crate::interrupt;
use millrace_runtime::{BatchItem, Engine, EngineOptions, Error, LoadedModel, LogitsFor, SeqId};
use std::sync::Arc;
use std::time::Instant;

/// What is measured: a prompt, an answer, or both, after some tokens that are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) n_prompt: usize,
    pub(super) n_gen: usize,
    pub(super) n_depth: usize,
}

impl Test {
    /// llama-bench's name: `pp512`, `tg128 @ d4096`.
    pub(super) fn name(&self) -> String {
        let prompt = (self.n_prompt > 0).then(|| format!("pp{}", self.n_prompt));
        let answer = (self.n_gen > 0).then(|| format!("tg{}", self.n_gen));
        let parts: Vec<String> = prompt.into_iter().chain(answer).collect();
        match self.n_depth {
            0 => parts.join("+"),
            depth => format!("{} @ d{depth}", parts.join("+")),
        }
    }

    /// Context the test needs.
    pub(super) fn n_tokens(&self) -> usize {
        self.n_depth + self.n_prompt + self.n_gen
    }

    /// The same kind of work, short: touches the weights and wakes the threads.
    pub(super) fn warmup(&self) -> Test {
        Test {
            n_gen: self.n_gen.min(1),
            ..*self
        }
    }
}

/// An engine and the one sequence that tests run in.
pub(super) struct Bench {
    engine: Engine,
    seq: SeqId,
    tokens: TokenSource,
}

impl Bench {
    pub(super) fn new(model: Arc<LoadedModel>, options: EngineOptions) -> Outcome<Bench> {
        let tokens = TokenSource {
            state: 1,
            vocab_size: model.model().config.vocab_size,
        };
        let mut engine = Engine::new(model, options)?;
        let seq = engine.create()?;
        Ok(Bench {
            engine,
            seq,
            tokens,
        })
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Nanoseconds that the test takes; filling the context up to its depth does not count.
    pub(super) fn run(&mut self, test: &Test) -> Outcome<u64> {
        self.go_to(test.n_depth)?;
        let prompt: Vec<u32> = (0..test.n_prompt).map(|_| self.tokens.next()).collect();
        let start = Instant::now();
        if !prompt.is_empty() {
            self.step(&prompt, LogitsFor::Last)?;
        }
        for _ in 0..test.n_gen {
            let token = self.tokens.next();
            self.step(&[token], LogitsFor::Last)?;
        }
        Ok(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Leaves exactly `depth` tokens in the context, keeping what is there if it can be kept.
    fn go_to(&mut self, depth: usize) -> Outcome {
        match self.engine.truncate(self.seq, depth) {
            Ok(()) => {}
            Err(Error::WindowGone { .. }) => self.engine.truncate(self.seq, 0)?,
            Err(error) => return Err(error.into()),
        }
        let missing = depth - self.engine.len(self.seq)?;
        let chunk = self.engine.max_chunk();
        let tokens: Vec<u32> = (0..missing).map(|_| self.tokens.next()).collect();
        tokens
            .chunks(chunk)
            .try_for_each(|tokens| self.step(tokens, LogitsFor::None))
    }

    fn step(&mut self, tokens: &[u32], logits: LogitsFor) -> Outcome {
        if interrupt::is_raised() {
            return Err(Failure::interrupted());
        }
        self.engine.step(&[BatchItem {
            seq: self.seq,
            tokens,
            logits,
            hidden: false,
        }])?;
        Ok(())
    }
}

/// Tokens without meaning, the same in every run.
struct TokenSource {
    state: u64,
    vocab_size: usize,
}

impl TokenSource {
    /// Marsaglia's xorshift64.
    fn next(&mut self) -> u32 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % self.vocab_size as u64) as u32
    }
}
