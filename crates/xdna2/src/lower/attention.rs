//! Attention: by itself or over a cache, the cache's lengths, and whether the array or the host is faster.

use super::kernel::{Arg, Kernel, Kernels};
use super::{AttentionOn, CachePart, Feature, Phase};
use crate::mapping::{self, Named, Shape};
use millrace_model::graph::{Attention, Graph, Node, Op};
use millrace_xdna2_machine::timing::{self, TimingError};
use millrace_xdna2_machine::{Machine, Profile, Program};
use std::fmt;

const MAPPING: &str = "cached-attention";

/// Least number of keys that a plan is made for.
const LEAST_KEYS: u64 = 512;

/// The least of 512, 768, 1024, 1536, 2048, 3072, … that is at least `n_keys`: a plan for each of them
/// reads at most half more of the cache than is filled. Beyond 2^62, `n_keys` itself.
pub fn key_bucket(n_keys: u64) -> u64 {
    if n_keys > 1 << 62 {
        return n_keys;
    }
    let power = n_keys.max(LEAST_KEYS).next_power_of_two();
    let between = power / 4 * 3;
    if between >= n_keys.max(LEAST_KEYS) {
        between
    } else {
        power
    }
}

/// Rows that a cache needs for `n_ctx` tokens, so that programs read it in whole rounds.
pub fn cache_rows(graph: &Graph, machine: &Machine, n_ctx: u64) -> u64 {
    let mut unit = 1_u64;
    for node in &graph.nodes {
        if let Op::Attention(a) = &node.op {
            for n_tokens in [1, 64] {
                let own = mapping::n_keys_unit(&shape(a, n_tokens, (1, 1)), machine);
                unit = common_multiple(unit, own);
            }
        }
    }
    n_ctx.div_ceil(unit).saturating_mul(unit)
}

fn common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}

fn shape(a: &Attention, n_tokens: u64, (n_keys, max_tokens): (u64, u64)) -> Shape {
    let window = a.window.map(|window| window as u64);
    Named::new(&[
        ("n_queries", n_tokens),
        ("n_keys", n_keys),
        ("max_tokens", max_tokens),
        ("n_heads", a.n_heads as u64),
        ("n_kv_heads", a.n_kv_heads as u64),
        ("head_dim", a.head_dim as u64),
        ("window", window.filter(|&w| w < n_keys).unwrap_or(0)),
    ])
}

/// What a layer's attention over a cache takes, modelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionTimes {
    /// Keys read on the array.
    pub n_keys: u64,
    /// On the array: the program with its dispatch, the host's part of a call, and writing the rows
    /// that are new to the cache.
    pub array_ns: f64,
    /// On the host: every token reads the keys and values that it sees, at the rate that one thread
    /// was seen to copy (`host.write_gb_per_s`), and nothing else.
    pub host_ns: f64,
}

impl AttentionTimes {
    /// For `n_tokens` tokens, the last of the keys, by a program of the mapping.
    ///
    /// # Errors
    /// What [`timing::predict`] says of the program.
    fn of(
        program: &Program,
        a: &Attention,
        (n_tokens, n_keys): (u64, u64),
        machine: &Machine,
        profile: &Profile,
    ) -> Result<AttentionTimes, TimingError> {
        let row_bytes = (4 * a.n_kv_heads * a.head_dim) as f64;
        let copied_ns = |bytes: f64| bytes / profile.host.write_gb_per_s.max(f64::MIN_POSITIVE);
        let window = a.window.map_or(n_keys, |w| n_keys.min(w as u64)) as f64;
        // Of a chunk the last token sees all keys and each before it one less.
        let before = (n_tokens.saturating_sub(1)) as f64 / 2.0;
        let seen = window.min((n_keys as f64 - before).max(1.0));
        let timing = timing::predict(program, machine, profile)?;
        Ok(AttentionTimes {
            n_keys,
            array_ns: timing.total_ns
                + profile.host.call_ns
                + copied_ns(row_bytes * n_tokens as f64),
            host_ns: copied_ns(row_bytes * seen * n_tokens as f64),
        })
    }

    /// Whether the array is the faster one.
    pub fn array_wins(&self) -> bool {
        self.array_ns < self.host_ns
    }
}

impl fmt::Display for AttentionTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} µs on the array, {:.0} µs on the host, for {} keys of the cache (modelled)",
            self.array_ns / 1e3,
            self.host_ns / 1e3,
            self.n_keys
        )
    }
}

/// Times of a layer's attention of `n_tokens` new tokens over `n_keys` keys, rounded up to what a plan
/// reads, of a cache of `max_tokens`.
///
/// # Errors
/// Why the array cannot do it, in words.
pub fn attention_times(
    a: &Attention,
    n_tokens: u64,
    (n_keys, max_tokens): (u64, u64),
    machine: &Machine,
    profile: &Profile,
) -> Result<AttentionTimes, String> {
    let (shape, n_keys) = fitted(a, n_tokens, (n_keys, max_tokens), machine)?;
    let mapping = mapping::find(MAPPING).ok_or_else(|| format!("no mapping `{MAPPING}`"))?;
    let tiling = mapping.default_tiling(&shape, machine);
    let program = mapping.build(&shape, &tiling, machine);
    let program = program.map_err(|e| e.to_string())?;
    AttentionTimes::of(&program, a, (n_tokens, n_keys), machine, profile).map_err(|e| e.to_string())
}

/// The shape with as many keys as the mapping reads, and their number.
fn fitted(
    a: &Attention,
    n_tokens: u64,
    (n_keys, max_tokens): (u64, u64),
    machine: &Machine,
) -> Result<(Shape, u64), String> {
    if a.n_kv_heads == 0 || a.head_dim == 0 {
        return Err("attention without heads".to_owned());
    }
    let unit = mapping::n_keys_unit(&shape(a, n_tokens, (1, 1)), machine);
    let wanted = n_keys
        .max(n_tokens)
        .max(1)
        .div_ceil(unit)
        .saturating_mul(unit);
    if wanted > max_tokens {
        return Err(format!(
            "the array would read {wanted} rows of a cache of {max_tokens}"
        ));
    }
    Ok((shape(a, n_tokens, (wanted, max_tokens)), wanted))
}

impl Kernels<'_> {
    /// Attention of a pass by itself, or over the cache.
    pub(super) fn attention(&mut self, number: usize, a: &Attention) -> Result<Kernel, String> {
        let node = &self.graph.nodes[number];
        let on = self.options.attention;
        if self.phase == Phase::Decode && !matches!(on, AttentionOn::Cached { .. }) {
            return Err(
                "a single query over a growing cache is the host's: flash attention takes \
                        as many queries as keys"
                    .to_owned(),
            );
        }
        if on == AttentionOn::Host {
            return Err(
                "attention was asked for on the host: its queries see the cache, not only \
                        the keys of this chunk"
                    .to_owned(),
            );
        }
        let scale = 1.0 / (a.head_dim as f32).sqrt();
        if (a.scale - scale).abs() > 1e-6 * scale {
            return Err(format!(
                "scores are scaled by {}, the array's kernel scales by 1/sqrt({})",
                a.scale, a.head_dim
            ));
        }
        if let AttentionOn::Cached { n_keys, max_tokens } = on {
            return self.cached_attention(number, a, (n_keys, max_tokens));
        }
        let window = a.window.filter(|&w| (w as u64) < self.n_tokens());
        if let (Some(window), false) = (window, self.options.features.has(Feature::Windows)) {
            return Err(format!(
                "a window of {window} keys: without {} the array's mask is causal or full",
                Feature::Windows
            ));
        }
        let mut dims = vec![
            ("n_queries", self.n_tokens()),
            ("n_keys", self.n_tokens()),
            ("n_heads", a.n_heads as u64),
            ("n_kv_heads", a.n_kv_heads as u64),
            ("head_dim", a.head_dim as u64),
            ("causal", 1),
            ("seq_first", 1),
        ];
        dims.extend(window.map(|window| ("window", window as u64)));
        let shape = Named::new(&dims);
        let values = node.inputs.iter().chain([&node.output]);
        let args = values.map(|&v| Arg::Value(v)).collect();
        self.kernel(node, "flash-attention", shape, None, args)
    }

    /// Attention over the cache, if the array takes it and is faster.
    fn cached_attention(
        &mut self,
        number: usize,
        a: &Attention,
        cached: (u64, u64),
    ) -> Result<Kernel, String> {
        if !self.options.features.has(Feature::CachedAttention) {
            return Err(format!(
                "attention over the cache is the host's without {}",
                Feature::CachedAttention
            ));
        }
        let graph = self.graph;
        let node: &Node = &graph.nodes[number];
        let n_tokens = self.n_tokens();
        let (shape, n_keys) = fitted(a, n_tokens, cached, self.machine)?;
        let &[q, _, _] = &node.inputs[..] else {
            return Err("attention without queries, keys and values".to_owned());
        };
        let args = vec![
            Arg::Value(q),
            Arg::Cache(a.layer, CachePart::Keys),
            Arg::Cache(a.layer, CachePart::Values),
            Arg::Position,
            Arg::Value(node.output),
        ];
        let kernel = self.kernel(node, MAPPING, shape, None, args)?;
        let profile = self.profile.as_ref().ok_or("no profile to compare by")?;
        let key = &kernel.built.key;
        let times = match self.times.iter().find(|(known, _)| known == key) {
            Some((_, times)) => *times,
            None => {
                let lengths = (n_tokens, n_keys);
                let program = &kernel.built.program;
                let times = AttentionTimes::of(program, a, lengths, self.machine, profile)
                    .map_err(|e| e.to_string())?;
                self.times.push((key.clone(), times));
                times
            }
        };
        if !times.array_wins() {
            return Err(format!("attention is faster here: {times}"));
        }
        self.reasons.insert(
            number,
            format!("a program of its own, so that its cores stay loaded: {times}"),
        );
        Ok(kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_are_for() {
        for n_keys in [1, 512, 513, 768, 769, 1025, 4096, 100_000, u64::MAX] {
            let bucket = key_bucket(n_keys);
            assert!(bucket >= n_keys);
            let bounded = (512..=1 << 62).contains(&n_keys);
            assert!(!bounded || bucket <= n_keys + n_keys / 2);
        }
        assert_eq!([1, 600, 900, 1025].map(key_bucket), [512, 768, 1024, 1536]);
    }
}
