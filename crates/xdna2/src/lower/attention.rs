//! Attention: alone or over a cache, the cache's lengths, and whether the array or the host is faster.

#[cfg(test)]
mod tests;
mod times;
pub use times::{AttentionTimes, attention_times};

use super::cached::{Prompt, fitted};
use super::kernel::{Arg, Kernels, LoweredKernel};
use super::{AttentionOn, CachePart, Feature, Features, Phase};
use crate::mapping::q4nx::token;
use crate::mapping::{self, NamedNumbers, Shape, flow_kv, flow_qkv, prompt_attention};
use millrace_graph::{Attention, Graph, Node, Op};
use millrace_xdna2_machine::Machine;

/// Widest heads whose values flash attention holds all at once. For wider ones it computes scores anew for every 64,
/// beyond 128 in smaller tiles.
const WIDEST_OF_FLASH: usize = 64;

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

/// The least number that is at least `n_keys`, of quarters of powers of two from 512 on. A token whose attention is
/// among its projections has plans for these numbers: it reads at most a fourth more than the cache holds. Beyond 2^62,
/// `n_keys` itself.
pub fn token_bucket(n_keys: u64) -> u64 {
    if n_keys > 1 << 62 {
        return n_keys;
    }
    let n_keys = n_keys.max(LEAST_KEYS);
    n_keys.next_multiple_of(n_keys.next_power_of_two() / 8)
}

/// Steps of an octave that prompts' buckets have.
const PROMPT_STEPS: u64 = 8;

/// The least number that is at least `n_keys`, of eighths of powers of two from 512 on. A later pass of a prompt has
/// plans for these numbers. It reads its keys for every token, so extra keys cost more than another plan does. Beyond
/// 2^62, `n_keys` itself.
pub fn prompt_bucket(n_keys: u64) -> u64 {
    if n_keys > 1 << 62 {
        return n_keys;
    }
    let power = n_keys.max(LEAST_KEYS).next_power_of_two();
    n_keys
        .max(LEAST_KEYS)
        .next_multiple_of(power / (2 * PROMPT_STEPS))
}

/// Rows that a device has of a layer's cache. With a window, where a token's attention takes rings, no more than that:
/// a key's row is its position modulo their number.
fn rows(a: &Attention, machine: &Machine, features: Features, max_tokens: u64) -> u64 {
    let of_token = shape(a, 1, (1, 1));
    let unit = if features.has(Feature::ResidentAttention) {
        token::n_keys_unit(&of_token, u64::from(machine.cols))
    } else if features.has(Feature::FlowKv) {
        flow_kv::tile_kv(&of_token, machine)
    } else {
        None
    };
    match (a.window, unit) {
        // More rows than the window: one row of the ring is always out of sight.
        (Some(window), Some(unit)) => max_tokens.min((window as u64 + 1).next_multiple_of(unit)),
        _ => max_tokens,
    }
}

/// Keys that a token reads where all its layers attend on the cores of their projections; layers with a window read all
/// their rows. The number is at least `n_keys`, in whole runs of all layers' cores. `None` where that is impossible:
/// those cores do not take the heads, or the number exceeds the cache's rows.
pub(crate) fn resident_keys(
    graph: &Graph,
    machine: &Machine,
    features: Features,
    (n_keys, max_tokens): (u64, u64),
) -> Option<u64> {
    let needed = [
        Feature::ResidentAttention,
        Feature::Resident,
        Feature::MergedBlocks,
    ];
    if !needed.into_iter().all(|feature| features.has(feature)) {
        return None;
    }
    let mut unit = 1;
    for a in attentions(graph) {
        let own = token::n_keys_unit(&shape(a, 1, (1, 1)), u64::from(machine.cols))?;
        unit = common_multiple(unit, own);
        let scale = 1.0 / (a.head_dim as f32).sqrt();
        if (a.scale - scale).abs() > 1e-6 * scale {
            return None;
        }
    }
    Some(n_keys.next_multiple_of(unit)).filter(|&n| n <= max_tokens)
}

fn attentions(graph: &Graph) -> impl Iterator<Item = &Attention> {
    graph.nodes.iter().filter_map(|node| match &node.op {
        Op::Attention(a) => Some(a),
        _ => None,
    })
}

/// Rows that a cache needs for `n_ctx` tokens, so that programs read it in whole rounds.
pub fn cache_rows(graph: &Graph, machine: &Machine, features: Features, n_ctx: u64) -> u64 {
    let mut unit = 1_u64;
    for node in &graph.nodes {
        if let Op::Attention(a) = &node.op {
            let prompts = features.prompts().iter();
            let of_prompts = prompts.filter_map(|p| p.unit(&shape(a, 64, (1, 1)), machine));
            let of_tokens = [1, 64].map(|n| mapping::n_keys_unit(&shape(a, n, (1, 1)), machine));
            let cols = u64::from(machine.cols);
            let resident = token::n_keys_unit(&shape(a, 1, (1, 1)), cols)
                .filter(|_| features.has(Feature::ResidentAttention));
            let of_pairs = flow_kv::tile_kv(&shape(a, 1, (1, 1)), machine)
                .filter(|_| features.has(Feature::FlowKv));
            let others = of_prompts.chain(of_tokens).chain(of_pairs);
            for own in others.chain(resident) {
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

pub(super) fn shape(a: &Attention, n_tokens: u64, (n_keys, max_tokens): (u64, u64)) -> Shape {
    let window = a.window.map(|window| window as u64);
    NamedNumbers::new(&[
        ("n_queries", n_tokens),
        ("n_keys", n_keys),
        ("max_tokens", max_tokens),
        ("n_heads", a.n_heads as u64),
        ("n_kv_heads", a.n_kv_heads as u64),
        ("head_dim", a.head_dim as u64),
        ("window", window.filter(|&w| w < n_keys).unwrap_or(0)),
    ])
}

impl Features {
    /// Whether a token's attention over the cache is the array's without a comparison ([`Feature::FlowKv`]).
    pub(crate) fn always_attends(self, n_tokens: u64) -> bool {
        n_tokens == 1 && self.has(Feature::FlowKv)
    }
}

impl Kernels<'_> {
    /// Attention of a pass over its own keys, or over the cache.
    pub(super) fn attention(
        &mut self,
        number: usize,
        a: &Attention,
    ) -> Result<LoweredKernel, String> {
        let node = &self.graph.nodes[number];
        let on = self.options.attention;
        if self.phase == Phase::Decode && !matches!(on, AttentionOn::Cached { .. }) {
            return Err(self.why_host(a));
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
            if let Some(n_keys) = self.resident_keys {
                return self.resident_attention(number, a, (n_keys, max_tokens));
            }
            return self.cached_attention(number, a, (n_keys, max_tokens));
        }
        let window = a.window.filter(|&w| (w as u64) < self.n_tokens());
        if let (Some(window), false) = (window, self.options.features.has(Feature::Windows)) {
            return Err(format!(
                "a window of {window} keys: without {} the array's mask is causal or full",
                Feature::Windows
            ));
        }
        let kernel = self.over_own_keys(number, a);
        match (kernel, on) {
            (Some(kernel), _) => return Ok(kernel),
            (None, AttentionOn::Image) => {
                return Err("flash attention's mask knows no images".to_owned());
            }
            _ => {}
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
        let shape = NamedNumbers::new(&dims);
        let values = node.inputs.iter().chain([&node.output]);
        let args = values.map(|&v| Arg::Value(v)).collect();
        self.kernel(node, "flash-attention", shape, None, args)
    }

    /// Why a token's attention is the host's in a plan of tokens without a cache on the array.
    fn why_host(&self, a: &Attention) -> String {
        let features = self.options.features;
        if !features.has(Feature::CachedAttention) {
            return format!(
                "a token's attention over the cache is the host's without {}: flash attention takes as many queries as keys",
                Feature::CachedAttention
            );
        }
        let on = (LEAST_KEYS, self.machine, features);
        match fitted(a, 1, (LEAST_KEYS, LEAST_KEYS), on) {
            Err(reason) => format!("a token's attention over the cache is the host's: {reason}"),
            Ok(_) => "a token's attention over the cache is the host's in this plan, which is for caches so short that the \
                 array, with a dispatch for each layer, is modelled to take longer"
                .to_owned(),
        }
    }

    /// Attention of a first pass with separate tokens for each core. It is used as in the Gemma 3 paper, or for heads
    /// so wide that flash attention computes scores anew for every part of the values.
    fn over_own_keys(&mut self, number: usize, a: &Attention) -> Option<LoweredKernel> {
        let features = self.options.features;
        let is_wide = a.head_dim > WIDEST_OF_FLASH && features.has(Feature::BalancedAttention);
        let graph = self.graph;
        let node = &graph.nodes[number];
        let n = self.n_tokens();
        let shape = shape(a, n, (n, n));
        let shape = match self.options.attention {
            AttentionOn::Image => prompt_attention::with_image(&shape),
            _ => prompt_attention::over_own_keys(&shape),
        };
        let fits = |prompt: &&Prompt| {
            let papers = prompt.mapping == flow_qkv::NAME;
            (papers || is_wide) && (prompt.fits)(&shape, self.machine)
        };
        let prompt = features.prompts().iter().find(fits)?;
        let &[q, k, v] = &node.inputs[..] else {
            return None;
        };
        let [q, k, v, y] = [q, k, v, node.output].map(Arg::Value);
        let args = vec![q, k, v, Arg::Position, y];
        let kernel = self.kernel(node, prompt.mapping, shape, None, args);
        let kernel = kernel.ok()?;
        let reason = match prompt.mapping {
            flow_qkv::NAME => {
                "a program of its own, so that its cores stay loaded: chunks of queries side by side, each with keys \
                 of its own, as the paper lays it out"
            }
            _ => {
                "a program of its own, so that its cores stay loaded: each has tokens of its own and \
                 takes broadcast keys, since flash attention computes scores twice for such wide heads"
            }
        };
        self.reasons.insert(number, reason.to_owned());
        Some(kernel)
    }

    /// Attention on the cores of the token's projections, over the cache and the token itself.
    fn resident_attention(
        &mut self,
        number: usize,
        a: &Attention,
        cached: (u64, u64),
    ) -> Result<LoweredKernel, String> {
        let graph = self.graph;
        let node: &Node = &graph.nodes[number];
        let &[q, k, v] = &node.inputs[..] else {
            return Err("attention without queries, keys and values".to_owned());
        };
        let [q, k, v] = [q, k, v].map(Arg::Value);
        let [keys, values] =
            [CachePart::Keys, CachePart::Values].map(|part| Arg::Cache(a.layer, part));
        let (parts, y) = (Arg::Shares(node.output), Arg::Value(node.output));
        let args = vec![q, k, v, Arg::Position, keys, values, parts, y];
        let (n_keys, max_tokens) = cached;
        let n_rows = rows(a, self.machine, self.options.features, max_tokens);
        let shape = shape(a, 1, (n_keys.min(n_rows), n_rows));
        let kernel = self.kernel(node, token::NAME, shape, None, args);
        self.resident_fails |= kernel.is_err();
        kernel
    }

    /// Attention over the cache, if the array takes it and is faster.
    fn cached_attention(
        &mut self,
        number: usize,
        a: &Attention,
        cached: (u64, u64),
    ) -> Result<LoweredKernel, String> {
        if !self.options.features.has(Feature::CachedAttention) {
            return Err(format!(
                "attention over the cache is the host's without {}",
                Feature::CachedAttention
            ));
        }
        let graph = self.graph;
        let node: &Node = &graph.nodes[number];
        let n_tokens = self.n_tokens();
        let n_rows = rows(a, self.machine, self.options.features, cached.1);
        let on = (n_rows, self.machine, self.options.features);
        let choice = fitted(a, n_tokens, cached, on)?;
        let &[q, _, _] = &node.inputs[..] else {
            return Err("attention without queries, keys and values".to_owned());
        };
        let part = |of: CachePart| match choice.range {
            Some(range) => Arg::CacheRange(a.layer, of, range),
            None => Arg::Cache(a.layer, of),
        };
        let args = vec![
            Arg::Value(q),
            part(CachePart::Keys),
            part(CachePart::Values),
            choice.range.map_or(Arg::Position, Arg::RangePosition),
            Arg::Value(node.output),
        ];
        let kernel = self.kernel(node, choice.mapping, choice.shape.clone(), None, args)?;
        if choice.mapping == flow_kv::NAME {
            let reason = "a program of its own on pairs of cores, one with the keys, one with the values, as the paper lays it out";
            self.reasons.insert(number, reason.to_owned());
            return Ok(kernel);
        }
        let profile = self.profile.as_ref().ok_or("no profile to compare by")?;
        let key = &kernel.built.key;
        let times = match self.times.iter().find(|(known, _)| known == key) {
            Some((_, times)) => *times,
            None => {
                let program = (&kernel.built.program, &choice);
                let times = AttentionTimes::of(program, a, n_tokens, self.machine, profile)
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
