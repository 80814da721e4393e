//! The problem of a prompt's attention, for all mappings: queries, keys, heads, and which tokens see which keys.

use super::super::cached_attention::{self, at_bytes};
use super::super::parts::{Checks, constant, int};
use super::super::{BuildError, LeastWork, NamedNumbers, Rule, Shape, ShapeError};
use millrace_xdna2_machine::program::{Affine, Condition, Op, Var};

/// A shape as plain numbers.
#[derive(Clone, Copy, Debug)]
pub(in crate::mapping) struct Problem {
    pub(in crate::mapping) n_queries: u64,
    pub(in crate::mapping) n_keys: u64,
    pub(in crate::mapping) max_tokens: u64,
    pub(in crate::mapping) n_heads: u64,
    pub(in crate::mapping) n_kv_heads: u64,
    pub(in crate::mapping) head_dim: u64,
    /// Keys that a query sees at most; 0 for all.
    pub(in crate::mapping) window: u64,
    /// Whether the keys are the pass's own, a row a token, and the pass is a prompt's first.
    pub(in crate::mapping) own: bool,
    /// Whether every token sees all keys of the pass, which are its own.
    pub(in crate::mapping) full: bool,
    /// Whether an image may be among the tokens: an iteration reads all keys of the pass, which are its own.
    pub(in crate::mapping) image: bool,
    /// Set if these are a pass's tokens except its first ones.
    pub(in crate::mapping) rest: Option<Rest>,
}

/// Tokens of a pass with a window that have left its first keys behind.
#[derive(Clone, Copy, Debug)]
pub(in crate::mapping) struct Rest {
    /// Tokens of the pass before them.
    first: u64,
    /// Keys before an iteration's own that it reads.
    before: u64,
}

impl Problem {
    pub(in crate::mapping) fn new(shape: &Shape) -> Problem {
        Problem {
            n_queries: shape["n_queries"],
            n_keys: shape["n_keys"],
            max_tokens: shape["max_tokens"],
            n_heads: shape["n_heads"],
            n_kv_heads: shape["n_kv_heads"],
            head_dim: shape["head_dim"],
            window: shape["window"],
            own: shape.get("own") == Some(1),
            full: shape.get("full") == Some(1),
            image: shape.get("image") == Some(1),
            rest: None,
        }
    }

    /// A first pass in launches, of iterations of so many tokens. The first has those whose keys begin with the pass's.
    /// With a window, a second has the later ones, which read only the window's reach, in whole numbers of `unit`.
    pub(in crate::mapping) fn parts(&self, tokens: u64, unit: u64) -> Vec<Problem> {
        let before = match self.own && !self.image && self.window > 0 {
            true => before(self.window, unit),
            false => self.n_queries,
        };
        let first = before.next_multiple_of(tokens);
        if first >= self.n_queries {
            return vec![*self];
        }
        let growing = Problem {
            n_queries: first,
            ..*self
        };
        let rest = Problem {
            n_queries: self.n_queries - first,
            rest: Some(Rest { first, before }),
            ..*self
        };
        vec![growing, rest]
    }

    /// Heads that share keys.
    pub(in crate::mapping) fn group(&self) -> u64 {
        self.n_heads / self.n_kv_heads.max(1)
    }

    /// Elements of a token's queries.
    pub(in crate::mapping) fn token(&self) -> u64 {
        self.n_heads * self.head_dim
    }

    /// Elements from a key to the next of its head.
    pub(in crate::mapping) fn key_stride(&self) -> u64 {
        match self.own {
            true => self.n_kv_heads * self.head_dim,
            false => self.head_dim,
        }
    }

    /// Rows from a head's first key to that of the next head.
    pub(in crate::mapping) fn head_rows(&self) -> u64 {
        if self.own { 1 } else { self.max_tokens }
    }

    /// Shape of the slots of keys and values.
    pub(in crate::mapping) fn kv_shape(&self) -> [u64; 3] {
        match self.own {
            true => [self.n_keys, self.n_kv_heads, self.head_dim],
            false => [self.n_kv_heads, self.max_tokens, self.head_dim],
        }
    }

    /// Keys that an iteration of so many tokens reads, in units of so many: all, those that its tokens reach, or all up
    /// to its own. A window's reach is in whole numbers of `reach`.
    pub(in crate::mapping) fn band(&self, tokens: u64, reach: u64, unit: u64) -> Affine {
        match (self.own, self.window) {
            // There is one iteration along the first dimension then: cores have one program with and without a mask, in
            // the window and before.
            (true, _) if self.full => {
                Affine::of(Var::Grid(0), int(tokens / unit)) + int(self.n_keys / unit)
            }
            (true, _) if self.rest.is_some() => {
                let read = tokens + self.keys_before();
                Affine::of(Var::Grid(0), int(tokens / unit)) + int(read / unit)
            }
            (true, _) if self.image => constant(self.n_keys / unit),
            (true, _) => Affine::of(Var::Grid(0), int(tokens / unit)) + int(tokens / unit),
            (false, 0) => constant(self.n_keys / unit),
            (false, window) => constant((tokens + before(window, reach)) / unit),
        }
    }

    /// Keys before an iteration's own tokens, if it reads no others.
    fn keys_before(&self) -> u64 {
        self.rest.map_or(0, |rest| rest.before)
    }

    /// Rows between the first keys of an iteration of so many tokens and of the one before, over a cache.
    fn advance(&self, tokens: u64) -> u64 {
        match (self.own, self.window) {
            (true, _) | (_, 0) => 0,
            _ => tokens,
        }
    }

    /// The first row of keys that an iteration of so many tokens reads.
    pub(in crate::mapping) fn first_row(&self, tokens: u64) -> Affine {
        match self.rest {
            Some(Rest { first, before }) => {
                Affine::of(self.token_tile(), int(tokens)) + int(first - before)
            }
            None => Affine::of(Var::Grid(0), int(self.advance(tokens))),
        }
    }

    /// Elements of queries before those of the first iteration.
    pub(in crate::mapping) fn skipped(&self) -> i64 {
        int(self.rest.map_or(0, |rest| rest.first) * self.token())
    }

    /// The number of an iteration's first token, as the numbers of its keys count ([`Problem::first_key`]).
    pub(in crate::mapping) fn first_token(&self, tokens: u64) -> Affine {
        Affine::of(Var::Grid(0), int(tokens)) + int(self.keys_before())
    }

    /// Iterations of so many tokens and so many key-value heads: tiles of tokens, then key-value heads. If all read the
    /// same number of the pass's own keys: one, key-value heads, tiles of tokens.
    pub(in crate::mapping) fn grid(&self, tokens: u64, heads: u64) -> Vec<u64> {
        let (tiles, heads) = (self.n_queries / tokens, self.n_kv_heads / heads);
        match self.token_tile() {
            Var::Grid(0) => vec![tiles, heads],
            _ => vec![1, heads, tiles],
        }
    }

    /// Variable that counts the tiles of tokens.
    pub(in crate::mapping) fn token_tile(&self) -> Var {
        Var::Grid(if self.full || self.rest.is_some() {
            2
        } else {
            0
        })
    }

    /// The number of the first key of tile `l0`, of so many keys, in an iteration of so many tokens.
    pub(in crate::mapping) fn first_key(&self, tokens: u64, tile_kv: u64) -> Affine {
        let key = Affine::of(Var::Loop(0), int(tile_kv));
        key.plus(Var::Grid(0), int(self.advance(tokens)))
    }

    /// A call on a tile of keys only if some of a core's `tile_tokens` tokens sees one of its `tile_kv` keys. It skips
    /// a tile that all tokens come before, and one that the windows of all have left behind. `lead` is the core's first
    /// token less the tile's first key. Such a tile would leave the state as it is. Without a window the second case
    /// never holds. So a core's program is the same with a window and without, except for two constants, and also
    /// without a mask.
    ///
    /// For a later pass, and with an image, that is not known before: every tile is computed.
    pub(in crate::mapping) fn if_seen(
        &self,
        lead: Affine,
        [tile_tokens, tile_kv]: [u64; 2],
        attend: Op,
    ) -> Op {
        if !self.own || self.image {
            return attend;
        }
        let only_if = |value: Affine, condition: Condition, then: Op| Op::If {
            value,
            condition,
            then: vec![then],
            otherwise: Vec::new(),
        };
        let window = match self.window {
            0 => self.n_keys,
            window => window,
        };
        let beyond = lead.clone() + -int(window + tile_kv - 1);
        let within = only_if(beyond, Condition::Negative, attend);
        // Without a mask no key comes after a token.
        let none = if self.full { int(self.n_keys) } else { 0 };
        let last = lead + (int(tile_tokens) - 1 + none);
        only_if(last, Condition::NotNegative, within)
    }

    /// Checks that the keys are those of the tokens and of their reach, in whole numbers of `reach`; `tokens` are those of an iteration.
    pub(in crate::mapping) fn check_reach(
        &self,
        checks: Checks,
        tokens: (&str, u64),
        reach: (&str, u64),
    ) -> Result<(), BuildError> {
        let (new, keys) = (self.n_queries, self.n_keys);
        checks.divides(("keys", keys), reach)?;
        checks.ensure(keys <= self.max_tokens, Rule::Range, || {
            let rows = self.max_tokens;
            format!("{keys} keys of a cache of {rows} tokens")
        })?;
        if self.own {
            checks.divides(tokens, reach)?;
            let all = new == keys && keys == self.max_tokens;
            checks.ensure(all, Rule::Range, || {
                let rows = self.max_tokens;
                format!("{new} tokens over their own keys, but {keys} keys of {rows}")
            })?;
            return checks.ensure(!self.full || self.window == 0, Rule::Range, || {
                let window = self.window;
                format!("tokens that see all keys, but a window of {window}")
            });
        }
        if self.window == 0 {
            return checks.ensure(new <= keys, Rule::Range, || {
                format!("{new} new tokens over {keys} keys, their own among them")
            });
        }
        checks.divides(tokens, reach)?;
        let reached = new + before(self.window, reach.1);
        checks.ensure(keys == reached, Rule::Range, || {
            let window = self.window;
            format!("{new} new tokens with a window of {window} reach {reached} keys, not {keys}")
        })
    }

    /// Contents of all slots, with a position from the seed. A window's rows begin before the sequence for one seed in two.
    pub(in crate::mapping) fn inputs(
        &self,
        shape: &Shape,
        (tile_kv, at_elements): (u64, u64),
        seed: u64,
    ) -> Vec<Vec<u8>> {
        cached_attention::random_inputs(shape, seed, |random| {
            let mut part = |of: u64| (of as f32 * (1.0 + random.uniform()) / 2.0) as u32;
            let (position, oldest) = match self.window {
                _ if self.full => (self.n_keys as u32, 0),
                _ if self.own => (0, 0),
                0 => (part(self.n_keys.saturating_sub(self.n_queries)), 0),
                window => (
                    window as u32 - 1 + part(tile_kv - 1),
                    window as u32 / 2 * (seed % 2) as u32,
                ),
            };
            let image = match self.image {
                true => part(self.n_keys / 2)..(self.n_keys / 2) as u32 + part(self.n_keys / 2),
                false => 0..0,
            };
            at_bytes(at_elements, position, oldest, image)
        })
    }
}

/// The result of tiles of so many keys, on any core.
pub(in crate::mapping) fn reference(shape: &Shape, tile_kv: u64, slots: &[Vec<u8>]) -> Vec<u8> {
    let mut slots = slots.to_vec();
    let of = Problem::new(shape);
    if of.own {
        let row_bytes = 2 * of.head_dim as usize;
        for slot in &mut slots[1..3] {
            *slot = by_head(slot, of.n_kv_heads as usize, row_bytes);
        }
    }
    cached_attention::reference_in_one_part(shape, tile_kv, None, &slots)
}

/// Without a window every key of a cache counts for every query, as the array reads and computes it; of a pass's own
/// keys those that a query sees.
pub(in crate::mapping) fn work(shape: &Shape) -> LeastWork {
    let d = shape["head_dim"];
    let (heads, kv_heads) = (shape["n_heads"], shape["n_kv_heads"]);
    let (queries, keys) = (shape["n_queries"], shape["n_keys"]);
    let seen = match shape["window"] {
        0 => keys,
        window => window.min(keys),
    };
    let pairs = match (shape.get("own"), shape.get("full").or(shape.get("image"))) {
        // The first queries see fewer: one, two, … up to that many.
        (Some(1), None) => queries * seen - seen * seen.saturating_sub(1) / 2,
        _ => queries * seen,
    };
    LeastWork {
        flops: 4 * heads * pairs * d,
        ddr_bytes: 4 * d * (heads * queries + kv_heads * keys),
    }
}

/// Rows `[rows, heads]` as `[heads, rows]`.
fn by_head(bytes: &[u8], heads: usize, row_bytes: usize) -> Vec<u8> {
    let of_head = |head: usize| {
        let rows = bytes.chunks_exact(row_bytes).skip(head);
        rows.step_by(heads.max(1)).flatten().copied()
    };
    (0..heads).flat_map(of_head).collect()
}

/// Reads `NEWxKEYS HEADSq/KVHEADSkv dD [of MAX] [window W] [own|full|image]`.
pub(in crate::mapping) fn parse(text: &str) -> Result<Shape, ShapeError> {
    let text = text.trim_end();
    if let Some(rest) = text.strip_suffix(" full") {
        return cached_attention::parse(rest).map(|shape| without_mask(&shape));
    }
    if let Some(rest) = text.strip_suffix(" image") {
        return cached_attention::parse(rest).map(|shape| with_image(&shape));
    }
    match text.strip_suffix(" own") {
        Some(rest) => cached_attention::parse(rest).map(|shape| over_own_keys(&shape)),
        None => cached_attention::parse(text),
    }
}

/// The same over the keys of the pass itself, a prompt's first.
pub(crate) fn over_own_keys(shape: &Shape) -> Shape {
    with(shape, &["own"])
}

/// The same where every token sees all keys of the pass: no mask.
pub(crate) fn without_mask(shape: &Shape) -> Shape {
    with(shape, &["own", "full"])
}

/// The same where an image may be among the pass's tokens.
pub(crate) fn with_image(shape: &Shape) -> Shape {
    with(shape, &["own", "image"])
}

fn with(shape: &Shape, set: &[&'static str]) -> Shape {
    let sizes = NAMES.iter().map(|name| (*name, shape[name]));
    let set = set.iter().map(|name| (*name, 1));
    NamedNumbers::new(&sizes.chain(set).collect::<Vec<_>>())
}

/// Names of a shape's numbers.
const NAMES: [&str; 7] = [
    "n_queries",
    "n_keys",
    "max_tokens",
    "n_heads",
    "n_kv_heads",
    "head_dim",
    "window",
];

/// Rows before a pass's own that its tokens reach with a window, wherever in a tile of the sequence it begins, in whole numbers of `unit`
/// rows.
pub(crate) fn before(window: u64, unit: u64) -> u64 {
    (window + unit - 2).next_multiple_of(unit)
}
