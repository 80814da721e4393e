//! Attention: on the host, or its two products on the NPU where their predicted price says so.

use super::own::id;
use super::planner::{Rk3588, launch};
use crate::kv::{self, KIND, LayerAttention};
use crate::program::Program;
use crate::tiling::{Matmul, Tiling};
use millrace_graph::{self as graph, Graph, Op};
use millrace_plan::{
    Annex, AttentionOn, AttentionProducts, Chunk, PassKind, Phase, PlannedProgram, Reason,
    ValueArrangement,
};
use std::sync::{Arc, PoisonError};

/// Decides who computes attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttentionBy {
    /// In each pass the one that is predicted to be faster.
    #[default]
    Predicted,
    /// Always the host.
    Host,
    /// The NPU wherever its products fit.
    Npu,
}

impl AttentionBy {
    /// All choices, the default first.
    pub const ALL: [AttentionBy; 3] = [AttentionBy::Predicted, AttentionBy::Host, AttentionBy::Npu];

    /// Its name as a value of `--set attention=`.
    pub const fn name(self) -> &'static str {
        match self {
            AttentionBy::Predicted => "predicted",
            AttentionBy::Host => "host",
            AttentionBy::Npu => "npu",
        }
    }
}

/// Fewest keys of a product.
const KEYS_MIN: u64 = 64;

/// Steps between the numbers of keys of plans, at so many keys: eight numbers an octave, so that no plan multiplies an
/// eighth more than a sequence has.
fn key_step(n_keys: u64) -> u64 {
    let octave = n_keys.checked_next_power_of_two().unwrap_or(1 << 63);
    (octave / 16).max(KEYS_MIN)
}

/// Number of keys of the plan for so many.
fn key_bucket(n_keys: u64) -> u64 {
    let n_keys = n_keys.max(1);
    let bucket = n_keys.checked_next_multiple_of(key_step(n_keys));
    bucket.unwrap_or(u64::MAX)
}

/// Keys that a layer's products have in a pass of so many tokens: those of the pass, or where the layer has a window,
/// no more than all its queries see.
fn layer_keys(attention: &graph::Attention, n_tokens: u64, n_keys: u64) -> u64 {
    let seen = attention.window.map_or(u64::MAX, |window| {
        let seen = (window as u64).saturating_add(n_tokens) - 1;
        seen.checked_next_multiple_of(KEYS_MIN).unwrap_or(u64::MAX)
    });
    n_keys.min(seen)
}

/// A layer's attention for pricing; `None` where a size is beyond 32 bits.
fn sizes(attention: &graph::Attention, n_tokens: u64, n_keys: u64) -> Option<LayerAttention> {
    Some(LayerAttention {
        n_tokens: n_tokens.try_into().ok()?,
        context: n_keys.try_into().ok()?,
        n_heads: attention.n_heads.try_into().ok()?,
        n_kv_heads: attention.n_kv_heads.try_into().ok()?,
        head_dim: attention.head_dim.try_into().ok()?,
    })
}

impl Rk3588 {
    /// Who computes attention in passes of a chunk: the NPU where any layer should have its products there.
    pub(super) fn attention_on(
        &self,
        graph: &Graph,
        phase: Phase,
        chunk: Chunk,
        max_tokens: u64,
    ) -> AttentionOn {
        let n_keys = key_bucket(chunk.first + chunk.n_tokens);
        // The keys that the host would read. For tokens the fewest, as one plan serves a whole bucket.
        let context = match phase {
            Phase::Prefill => chunk.first + chunk.n_tokens,
            Phase::Decode => n_keys - key_step(n_keys) + 1,
        };
        let on_npu = |attention: &graph::Attention| {
            let n_keys = layer_keys(attention, chunk.n_padded, n_keys);
            // Padding is multiplied on the NPU, and left out on the host.
            let on_npu = sizes(attention, chunk.n_padded, n_keys);
            let on_host = sizes(attention, chunk.n_tokens, context.min(n_keys));
            let both = on_npu.zip(on_host);
            both.is_some_and(|(on_npu, on_host)| self.on_npu(on_npu, on_host).is_ok())
        };
        let any = graph.nodes.iter().any(|node| match &node.op {
            Op::Attention(attention) => on_npu(attention),
            _ => false,
        });
        match (any, phase, chunk.first) {
            (true, ..) => AttentionOn::Cached { n_keys, max_tokens },
            (false, Phase::Prefill, 1..) => AttentionOn::Host,
            _ => AttentionOn::Device,
        }
    }

    /// The first position behind `first` whose token may take another plan.
    pub(super) fn attention_until(&self, first: u64) -> u64 {
        match (self.attention, first < 1 << 62) {
            (AttentionBy::Host, _) | (_, false) => u64::MAX,
            _ => key_bucket(first + 1),
        }
    }

    /// Why the NPU computes products of that size, where the host would compute `on_host`.
    ///
    /// # Errors
    /// Why the host computes them.
    fn on_npu(&self, sizes: LayerAttention, on_host: LayerAttention) -> Result<String, Reason> {
        if self.attention == AttentionBy::Host {
            return Err(Reason("the host's by attention=host".to_owned()));
        }
        let npu_ns = self.attention_ns(sizes).map_err(Reason)?;
        let host_ns = kv::host_ns(&on_host, &self.choices);
        let words = format!(
            "over {} keys {:.2} ms a layer with products on the NPU, {:.2} ms on the host, modelled (by {})",
            sizes.context,
            npu_ns / 1e6,
            host_ns / 1e6,
            self.choices.name
        );
        match (self.attention, npu_ns < host_ns) {
            (AttentionBy::Npu, _) => Ok(format!("{words}; the NPU's by attention=npu")),
            (_, true) => Ok(words),
            (_, false) => Err(Reason(words)),
        }
    }

    /// Cost of attention with its products on the NPU.
    fn attention_ns(&self, sizes: LayerAttention) -> Result<f64, String> {
        let lock = || (self.prices.lock()).unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&sizes) {
            return known.clone();
        }
        let price = kv::price(&sizes, &self.machine, &self.choices);
        let price = price.map(|price| price.packed.total_ns());
        let price = price.map_err(|error| error.to_string());
        lock().insert(sizes, price.clone());
        price
    }

    /// A node's attention in passes of a kind.
    pub(super) fn attend(
        &self,
        kind: &PassKind,
        attention: &graph::Attention,
    ) -> Result<AttentionProducts, Reason> {
        let n_keys = match kind.attention {
            AttentionOn::Cached { n_keys, .. } => n_keys,
            // In such passes no layer gains by it; the shortest gives the reason.
            _ => key_bucket(kind.n_tokens),
        };
        let n_keys = layer_keys(attention, kind.n_tokens, n_keys);
        let sizes = sizes(attention, kind.n_tokens, n_keys);
        let sizes = sizes.ok_or_else(|| Reason("a size is beyond 2^32".to_owned()))?;
        let why = self.on_npu(sizes, sizes)?;
        if !matches!(kind.attention, AttentionOn::Cached { .. }) {
            return Err(Reason(format!(
                "{why}; the host's in passes that see fewer"
            )));
        }
        let cut = sizes.cut(&self.machine, &self.choices);
        let cut = cut.map_err(|error| Reason(error.to_string()))?;
        let [scores, sums] = sizes.products();
        let [by_scores, by_sums] = cut.map(|chosen| chosen.tiling);
        Ok(AttentionProducts {
            scores: self.attention_product(scores, by_scores)?,
            sums: self.attention_product(sums, by_sums)?,
            n_keys: n_keys as usize,
            reason: format!(
                "two products a key-value head, in fp16, keys and values packed for every pass, softmax on the \
                 host; {why}"
            ),
        })
    }

    /// The program of one of the products, with the arrangements of its slots.
    fn attention_product(
        &self,
        shape: Matmul,
        tiling: Tiling,
    ) -> Result<(PlannedProgram, [ValueArrangement; 3]), Reason> {
        let Matmul { m, n, k, .. } = shape;
        let machine = &self.machine;
        let wrong = |error: &dyn std::fmt::Display| Reason(error.to_string());
        let name = format!("attention_{}_{m}x{n}x{k}", KIND.name().replace('-', "_"));
        let program = Program::build(&name, shape, tiling, machine).map_err(|e| wrong(&e))?;
        let container = program.to_container_for_each_call(machine);
        let grid = program.grid(machine).map_err(|e| wrong(&e))?;
        let planned = PlannedProgram {
            container: Arc::new(container.map_err(|e| wrong(&e))?),
            launches: vec![launch("attn", shape, tiling)],
            annex: Annex::new(grid),
        };
        let ids = [
            id::rows(KIND, false, tiling),
            id::weights(KIND, false, tiling),
            id::result(KIND),
        ];
        Ok((planned, ids.map(ValueArrangement)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_is_asked_for() {
        assert_eq!(
            [1, 64, 65, 128, 129, 1025, 1152, 4090].map(key_bucket),
            [64, 64, 128, 128, 192, 1152, 1152, 4096]
        );
        for n_keys in 1..5000 {
            let bucket = key_bucket(n_keys);
            assert!(
                bucket >= n_keys && bucket - key_step(bucket) < n_keys,
                "{n_keys}"
            );
            assert!(
                bucket - n_keys < KEYS_MIN.max(n_keys.div_ceil(8)),
                "{n_keys}"
            );
        }
        let attention = |window| graph::Attention {
            layer: 0,
            n_heads: 4,
            n_kv_heads: 1,
            head_dim: 256,
            scale: 1.0,
            window,
            chunked: false,
            softcap: None,
            sinks: None,
            slopes: None,
        };
        // 128 queries with 512 keys each see 639.
        assert_eq!(layer_keys(&attention(Some(512)), 128, 4096), 640);
        assert_eq!(layer_keys(&attention(Some(512)), 128, 256), 256);
        assert_eq!(layer_keys(&attention(None), 128, 4096), 4096);
        assert_eq!(layer_keys(&attention(Some(usize::MAX)), 128, 4096), 4096);
    }
}
