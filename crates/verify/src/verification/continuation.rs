//! A prompt and the tokens that both sides are made to go on with.

use super::deviation::top;
use millrace_runtime::{BatchItem, Engine, Error};
use serde::{Deserialize, Serialize};

/// Likeliest tokens that are recorded at a step: more than the verdict compares, so that a report can tell
/// how far off a token is.
pub const RECORDED: usize = 10;

/// A token that the reference chose, and its alternatives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The likeliest token.
    pub token: u32,
    /// The likeliest tokens, best first: [`RECORDED`], or the whole vocabulary where it is smaller.
    pub top: Vec<u32>,
}

impl Choice {
    /// The choice of a row of logits.
    pub fn of(logits: &[f32]) -> Choice {
        let top = top(logits, RECORDED);
        Choice {
            token: top.first().copied().unwrap_or(0),
            top,
        }
    }

    /// Place of a token, 1 for the likeliest; `None` beyond the recorded tokens.
    pub fn rank(&self, token: u32) -> Option<usize> {
        self.top.iter().position(|t| *t == token).map(|i| i + 1)
    }
}

/// A prompt and the reference's choices after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Continuation {
    /// The prompt.
    pub prompt: Vec<u32>,
    /// A choice a step.
    pub choices: Vec<Choice>,
}

impl Continuation {
    /// Prompt and forced tokens: the last choice is looked at and not gone on with.
    pub fn tokens(&self) -> Vec<u32> {
        let n = self.choices.len().saturating_sub(1);
        let forced = self.choices[..n].iter().map(|choice| choice.token);
        self.prompt.iter().copied().chain(forced).collect()
    }

    /// The same with at most so many steps.
    #[must_use]
    pub fn cut(mut self, n_steps: usize) -> Continuation {
        self.choices.truncate(n_steps);
        self
    }
}

/// Records the greedy continuation of an engine: up to `n_steps` tokens, or until `is_end` returns true.
///
/// # Errors
/// As [`Engine::step`].
pub fn record(
    engine: &mut dyn Engine,
    prompt: &[u32],
    n_steps: usize,
    is_end: &dyn Fn(u32) -> bool,
) -> Result<Continuation, Error> {
    let seq = engine.create()?;
    let mut choices: Vec<Choice> = Vec::new();
    let mut next = prompt.to_vec();
    while choices.len() < n_steps {
        let choice = Choice::of(engine.compute(&[BatchItem::last(seq, &next)])?.logits(0));
        let token = choice.token;
        choices.push(choice);
        if is_end(token) {
            break;
        }
        next = vec![token];
    }
    engine.release(seq)?;
    Ok(Continuation {
        prompt: prompt.to_vec(),
        choices,
    })
}
