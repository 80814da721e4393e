//! How a sequence is cut into passes, and which plan each takes. This is the only such rule: sessions follow it,
//! predictions and explanations report it, and compilation ahead of time covers exactly the plans that they will ask
//! for.

use crate::{Lowering, Phase};
use millrace_graph::Graph;
use serde::{Deserialize, Serialize};

/// Lengths that prefill plans are made for: ascending, at least one, of at least one token each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths(Vec<u64>);

impl Lengths {
    /// The given lengths; without any, the single length 1.
    pub fn new(lengths: &[u64]) -> Lengths {
        let mut lengths: Vec<u64> = lengths.iter().map(|&n| n.max(1)).collect();
        lengths.sort_unstable();
        lengths.dedup();
        match lengths.is_empty() {
            true => Lengths::fixed(1),
            false => Lengths(lengths),
        }
    }

    /// One length for all prompts.
    pub fn fixed(n_tokens: u64) -> Lengths {
        Lengths(vec![n_tokens.max(1)])
    }

    /// All lengths, ascending.
    pub fn all(&self) -> &[u64] {
        &self.0
    }

    /// Tokens of the plan for the next pass of a prompt that has `n_left` left: the least length that holds them, or
    /// else the largest. The rest then takes further passes.
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
    /// Tokens other than padding.
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

/// Who computes attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionOn {
    /// The device where it takes the shape, the host otherwise. Keys are those of this plan's tokens, so it serves the
    /// first chunk of a prompt. In decode it means the host.
    Device,
    /// For any chunk, and in decode: the device over its copy of the cache in layers where that is
    /// faster, the host otherwise.
    Cached {
        /// Keys that a pass reads at least, its own among them.
        n_keys: u64,
        /// Rows of the cache: [`Lowering::cache_rows`].
        max_tokens: u64,
    },
    /// As [`Device`](AttentionOn::Device) for a prompt's first chunk with one image in it. The image's tokens see each
    /// other in either direction. The host where programs know nothing of images.
    Image,
    /// The host, on the whole cache: any chunk of a prompt.
    Host,
}

/// Which of a prompt's rows get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HeadRows {
    /// The last token's logits, or those that the target computes anyway.
    Last,
    /// Every token's: to score a text, or to check the tokens another model drafted.
    All,
}

/// A kind of pass: all passes of a kind take the same plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PassKind {
    /// Prefill or decode.
    pub phase: Phase,
    /// Tokens of the plan; shorter chunks are padded to it. 1 in decode.
    pub n_tokens: u64,
    /// Who computes attention.
    pub attention: AttentionOn,
    /// Which rows get logits.
    pub head: HeadRows,
}

impl PassKind {
    /// A prompt's first chunk of so many tokens.
    pub fn prefill(n_tokens: u64) -> PassKind {
        PassKind {
            phase: Phase::Prefill,
            n_tokens,
            attention: AttentionOn::Device,
            head: HeadRows::Last,
        }
    }

    /// A token.
    pub fn decode() -> PassKind {
        PassKind {
            phase: Phase::Decode,
            ..PassKind::prefill(1)
        }
    }

    /// The same kind with attention computed elsewhere.
    #[must_use]
    pub fn with_attention(self, attention: AttentionOn) -> PassKind {
        PassKind { attention, ..self }
    }

    /// The same with logits of other rows.
    #[must_use]
    pub fn with_head(self, head: HeadRows) -> PassKind {
        PassKind { head, ..self }
    }

    /// `prefill of 128 tokens`, `prefill of 128 tokens, a later chunk`, `prefill of 128 tokens over 4096 keys`,
    /// `prefill of 512 tokens, an image among them`, `decode`, `decode over 4096 keys`.
    pub fn name(&self) -> String {
        let n = self.n_tokens;
        let name = match (self.phase, self.attention) {
            (Phase::Decode, AttentionOn::Cached { n_keys, .. }) => {
                format!("decode over {n_keys} keys")
            }
            (Phase::Decode, _) => "decode".to_owned(),
            (Phase::Prefill, AttentionOn::Device) => format!("prefill of {n} tokens"),
            (Phase::Prefill, AttentionOn::Cached { n_keys, .. }) => {
                format!("prefill of {n} tokens over {n_keys} keys")
            }
            (Phase::Prefill, AttentionOn::Image) => {
                format!("prefill of {n} tokens, an image among them")
            }
            (Phase::Prefill, AttentionOn::Host) => {
                format!("prefill of {n} tokens, a later chunk")
            }
        };
        match self.head {
            HeadRows::Last => name,
            HeadRows::All => format!("{name}, logits of all"),
        }
    }
}

/// Sequences of a model on a target's machine.
#[derive(Clone, Copy)]
pub struct Sequences<'a> {
    /// The model.
    pub graph: &'a Graph,
    /// Who makes plans.
    pub planner: &'a dyn Lowering,
    /// Tokens that a sequence may hold.
    pub n_ctx: u64,
}

impl Sequences<'_> {
    /// Rows of a sequence's cache: enough for whole reads by the device.
    pub fn cache_rows(&self) -> u64 {
        self.planner.cache_rows(self.graph, self.n_ctx)
    }

    /// The plan of a prompt's chunk.
    pub fn prefill(&self, chunk: Chunk) -> PassKind {
        self.kind(Phase::Prefill, chunk)
    }

    /// The plan of the token behind `first` others.
    pub fn decode(&self, first: u64) -> PassKind {
        self.kind(Phase::Decode, Chunk::token(first))
    }

    fn kind(&self, phase: Phase, chunk: Chunk) -> PassKind {
        let rows = self.cache_rows();
        self.planner.kind(self.graph, phase, chunk, rows)
    }

    /// The plans that prompts of those lengths take, chunk by chunk, each once. Without lengths, the plans of the first
    /// chunk at every length that has a plan.
    pub fn prefills(&self, prompts: &[u64]) -> Vec<PassKind> {
        let lengths = self.planner.lengths();
        let prompts = match prompts {
            [] => lengths.all(),
            prompts => prompts,
        };
        let chunks = prompts.iter().flat_map(|&n| lengths.chunks(n));
        distinct(chunks.map(|chunk| self.prefill(chunk)))
    }

    /// The plans of every token in this context, each once.
    pub fn decodes(&self) -> Vec<PassKind> {
        let mut first = 0;
        let firsts = std::iter::from_fn(|| {
            let this = (first < self.n_ctx).then_some(first);
            first = self
                .planner
                .decode_until(first)
                .max(first.saturating_add(1));
            this
        });
        distinct(firsts.map(|first| self.decode(first)))
    }
}

/// Removes repetitions and keeps the order.
fn distinct(all: impl Iterator<Item = PassKind>) -> Vec<PassKind> {
    let mut found: Vec<PassKind> = Vec::new();
    for kind in all {
        if !found.contains(&kind) {
            found.push(kind);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_cut_and_padded() {
        let buckets = Lengths::new(&[2048, 64, 128, 256, 512, 1024, 64]);
        let cut = |lengths: &Lengths, n| -> Vec<[u64; 3]> {
            let chunks = lengths.chunks(n).into_iter();
            chunks.map(|c| [c.first, c.n_tokens, c.n_padded]).collect()
        };
        assert_eq!(cut(&buckets, 30), [[0, 30, 64]]);
        let long = [[0, 2048, 2048], [2048, 2048, 2048], [4096, 100, 128]];
        assert_eq!(cut(&buckets, 4196), long);
        assert_eq!(cut(&Lengths::fixed(2048), 7), [[0, 7, 2048]]);
        assert_eq!(cut(&buckets, 0), [[0; 3]; 0]);
        let fixed = Lengths::fixed(0).next(5, 3);
        assert_eq!((fixed.first, fixed.n_tokens, fixed.n_padded), (5, 1, 1));
        assert_eq!(Lengths::new(&[]).all(), [1]);
    }
}
