//! How a sequence is cut into passes, and which plan each takes. There is one rule for it, here:
//! sessions follow it, predictions and explanations tell it, and what is compiled ahead of time is what
//! it will ask for.

use super::attention::{attention_times, cache_rows, key_bucket};
use super::{AttentionOn, Feature, Features, Options, Phase};
use crate::{Machine, Profile};
use millrace_model::graph::{Graph, Op};
use serde::Serialize;

/// Lengths that prefill plans are made for with [`Feature::Buckets`], ascending.
pub const BUCKETS: [u64; 6] = [64, 128, 256, 512, 1024, 2048];

/// Tokens that every prompt is padded to without it, as the published stack does (seed 000 A5).
pub const REFERENCE_TOKENS: u64 = 2048;

/// Lengths that prefill plans are made for: ascending, at least one, of at least one token each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths(Vec<u64>);

impl Lengths {
    /// Those of a set of features.
    pub fn of(features: Features) -> Lengths {
        match features.has(Feature::Buckets) {
            true => Lengths(BUCKETS.to_vec()),
            false => Lengths(vec![REFERENCE_TOKENS]),
        }
    }

    /// One length for all prompts.
    pub fn fixed(n_tokens: u64) -> Lengths {
        Lengths(vec![n_tokens.max(1)])
    }

    /// Ascending.
    pub fn all(&self) -> &[u64] {
        &self.0
    }

    /// Tokens of the plan for the next pass of a prompt that has `n_left` left: the least length that
    /// holds them, or the largest, and then the rest takes further passes.
    pub fn padded(&self, n_left: u64) -> u64 {
        let fits = self.0.iter().find(|&&length| length >= n_left);
        fits.or(self.0.last()).copied().unwrap_or(n_left)
    }

    /// The next pass of a prompt that has `n_left` tokens left, behind `first` tokens in the cache.
    pub fn next(&self, first: u64, n_left: u64) -> Chunk {
        let n_padded = self.padded(n_left);
        Chunk {
            first,
            n_tokens: n_left.min(n_padded),
            n_padded,
        }
    }

    /// All passes of a prompt of so many tokens.
    pub fn chunks(&self, n_tokens: u64) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        let mut first = 0;
        while first < n_tokens {
            let chunk = self.next(first, n_tokens - first);
            first += chunk.n_tokens;
            chunks.push(chunk);
        }
        chunks
    }
}

/// A part of a sequence, computed in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Chunk {
    /// Position of its first token: tokens in the cache before it.
    pub first: u64,
    /// Tokens that are no padding.
    pub n_tokens: u64,
    /// Tokens of the plan.
    pub n_padded: u64,
}

impl Chunk {
    /// One token behind `first` others.
    pub fn token(first: u64) -> Chunk {
        Chunk {
            first,
            n_tokens: 1,
            n_padded: 1,
        }
    }
}

/// Sequences of a model on a machine.
#[derive(Clone, Copy, Debug)]
pub struct Sequences<'a> {
    /// The model.
    pub graph: &'a Graph,
    /// What plans are made for.
    pub machine: &'a Machine,
    /// What is better than the published stack's behaviour.
    pub features: Features,
    /// Tokens that a sequence may hold.
    pub n_ctx: u64,
}

impl Sequences<'_> {
    /// Rows of a sequence's cache: enough for whole reads by the array.
    pub fn cache_rows(&self) -> u64 {
        match self.features.has(Feature::CachedAttention) {
            true => cache_rows(self.graph, self.machine, self.n_ctx),
            false => self.n_ctx,
        }
    }

    /// What to lower a prompt's chunk for. Flash attention sees the keys of its own chunk, so it is the
    /// first one's.
    pub fn prefill(&self, chunk: Chunk) -> Options {
        let attention = match chunk.first {
            0 => AttentionOn::Device,
            _ => self.over_cache(chunk).unwrap_or(AttentionOn::Host),
        };
        self.options(chunk.n_padded, attention)
    }

    /// What to lower the token behind `first` others for: one plan as long as the host attends, then one
    /// for each [`key_bucket`].
    pub fn decode(&self, first: u64) -> Options {
        let over_cache = self.over_cache(Chunk::token(first));
        self.options(1, over_cache.unwrap_or(AttentionOn::Device))
    }

    /// The plans that prompts of those lengths take, chunk by chunk, each once; without lengths, those of
    /// the first chunk at every length that there is a plan for.
    pub fn prefills(&self, prompts: &[u64]) -> Vec<Options> {
        let lengths = Lengths::of(self.features);
        let prompts = match prompts {
            [] => lengths.all(),
            prompts => prompts,
        };
        let chunks = prompts.iter().flat_map(|&n| lengths.chunks(n));
        distinct(chunks.map(|chunk| self.prefill(chunk)))
    }

    /// The plans of every token in this context, each once.
    pub fn decodes(&self) -> Vec<Options> {
        let mut first = 0;
        let firsts = std::iter::from_fn(|| {
            let this = (first < self.n_ctx).then_some(first);
            // The next bucket's first: a token at position `first` sees `first + 1` keys.
            first = key_bucket(first + 1);
            this
        });
        distinct(firsts.map(|first| self.decode(first)))
    }

    fn options(&self, n_tokens: u64, attention: AttentionOn) -> Options {
        Options {
            features: self.features,
            n_tokens,
            attention,
        }
    }

    /// Attention over the cache by the array, where any layer is faster for it.
    fn over_cache(&self, chunk: Chunk) -> Option<AttentionOn> {
        if !self.features.has(Feature::CachedAttention) {
            return None;
        }
        let max_tokens = self.cache_rows();
        let n_keys = key_bucket(chunk.first + chunk.n_tokens);
        let n_keys = n_keys.max(chunk.n_padded).min(max_tokens);
        let profile = Profile::builtin(Profile::DEFAULT)?;
        // Layers of a kind have the same times.
        let mut kinds = Vec::new();
        let wins = self.graph.nodes.iter().any(|node| {
            let Op::Attention(a) = &node.op else {
                return false;
            };
            let kind = (a.n_heads, a.n_kv_heads, a.head_dim, a.window);
            if kinds.contains(&kind) {
                return false;
            }
            kinds.push(kind);
            let lengths = (n_keys, max_tokens);
            attention_times(a, chunk.n_padded, lengths, self.machine, &profile)
                .is_ok_and(|times| times.array_wins())
        });
        wins.then_some(AttentionOn::Cached { n_keys, max_tokens })
    }
}

/// Each once, in order.
fn distinct(all: impl Iterator<Item = Options>) -> Vec<Options> {
    let mut found: Vec<Options> = Vec::new();
    for options in all {
        if !found.contains(&options) {
            found.push(options);
        }
    }
    found
}

/// A plan to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Prefill or decode.
    pub phase: Phase,
    /// For what.
    pub options: Options,
}

impl Request {
    /// `prefill of 128 tokens`, `prefill of 128 tokens, a later chunk`, `decode`, `decode over 4096 keys`.
    pub fn name(&self) -> String {
        let n = self.options.n_tokens;
        match (self.phase, self.options.attention) {
            (Phase::Decode, AttentionOn::Cached { n_keys, .. }) => {
                format!("decode over {n_keys} keys")
            }
            (Phase::Decode, _) => "decode".to_owned(),
            (Phase::Prefill, AttentionOn::Device) => format!("prefill of {n} tokens"),
            (Phase::Prefill, _) => format!("prefill of {n} tokens, a later chunk"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mode;
    use super::*;

    #[test]
    fn prompts_are_cut_and_padded() {
        let cut = |features, n| -> Vec<[u64; 3]> {
            let chunks = Lengths::of(features).chunks(n).into_iter();
            chunks.map(|c| [c.first, c.n_tokens, c.n_padded]).collect()
        };
        let best = Features::of(Mode::Best);
        assert_eq!(cut(best, 30), [[0, 30, 64]]);
        let long = [[0, 2048, 2048], [2048, 2048, 2048], [4096, 100, 128]];
        assert_eq!(cut(best, 4196), long);
        assert_eq!(cut(Features::NONE, 7), [[0, 7, 2048]]);
        assert_eq!(cut(best, 0), [[0; 3]; 0]);
        let fixed = Lengths::fixed(0).next(5, 3);
        assert_eq!((fixed.first, fixed.n_tokens, fixed.n_padded), (5, 1, 1));
    }
}
