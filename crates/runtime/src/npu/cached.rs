//! Attention over the cache on the array: which plans take it, and the cache's copy on the device.
//!
//! The host's cache ([`HeadMajorCache`](super::attention::HeadMajorCache)) is the sequence's. Programs
//! that read it have one buffer for the keys and one for the values of a layer, which all sessions of a
//! model share: a session that finds another's rows there writes its own anew, otherwise only rows
//! that are new cross.

use super::NpuError;
use super::attention::HeadMajorCache;
use super::model::{NpuModel, lock};
use super::prepared::Prepared;
use millrace_model::graph::Op;
use millrace_npu::{Container, Traffic};
use millrace_xdna2::Profile;
use millrace_xdna2::compile::compile;
use millrace_xdna2::lower::{
    self, AttentionOn, CachePart, Feature, Phase, attention_times, key_bucket,
};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// What attention over the cache adds to a model.
#[derive(Default)]
pub(super) struct Cached {
    /// Decode plans by the number of keys that they read; `None` where the host attends, by the plan
    /// that has no number.
    decode: Mutex<HashMap<u64, Option<Arc<Prepared>>>>,
    /// The session whose rows the device has.
    owner: Mutex<Option<u64>>,
}

impl Cached {
    /// The device lost everything.
    pub(super) fn reset(&self) {
        lock(&self.decode).clear();
        *lock(&self.owner) = None;
    }
}

impl NpuModel {
    /// Rows that a sequence's cache has: enough for whole reads by the array.
    pub(super) fn cache_rows(&self) -> usize {
        let n_ctx = self.n_ctx() as u64;
        match self.features().has(Feature::CachedAttention) {
            true => lower::cache_rows(&self.model.model().graph, &self.machine, n_ctx) as usize,
            false => self.n_ctx(),
        }
    }

    /// Who attends where `n_tokens` tokens end the first `n_seen` of a sequence.
    pub(super) fn attention_on(&self, n_tokens: u64, n_seen: usize) -> AttentionOn {
        if !self.features().has(Feature::CachedAttention) {
            return AttentionOn::Host;
        }
        let max_tokens = self.cache_rows() as u64;
        let n_keys = key_bucket(n_seen as u64).max(n_tokens).min(max_tokens);
        let wins = Profile::builtin(Profile::DEFAULT).is_some_and(|profile| {
            // Layers of a kind have the same times.
            let mut kinds = HashSet::new();
            self.model.model().graph.nodes.iter().any(|node| {
                let Op::Attention(a) = &node.op else {
                    return false;
                };
                let kind = (a.n_heads, a.n_kv_heads, a.head_dim, a.window);
                let times = |a| {
                    let lengths = (n_keys, max_tokens);
                    attention_times(a, n_tokens, lengths, &self.machine, &profile)
                };
                kinds.insert(kind) && times(a).is_ok_and(|times| times.array_wins())
            })
        });
        match wins {
            true => AttentionOn::Cached { n_keys, max_tokens },
            false => AttentionOn::Host,
        }
    }

    /// The plan of a token at position `first`.
    pub(super) fn decode_at(&self, first: usize) -> Result<Arc<Prepared>, NpuError> {
        let n_keys = key_bucket(first as u64 + 1);
        let known = lock(&self.cached.decode).get(&n_keys).cloned();
        let prepared = match known {
            Some(known) => known,
            None => {
                let made = self.decode_over_cache(first)?;
                lock(&self.cached.decode).insert(n_keys, made.clone());
                made
            }
        };
        match prepared {
            Some(prepared) => Ok(prepared),
            None => self.decode().cloned(),
        }
    }

    fn decode_over_cache(&self, first: usize) -> Result<Option<Arc<Prepared>>, NpuError> {
        let mut options = self.plan_options(1);
        options.attention = self.attention_on(1, first + 1);
        let AttentionOn::Cached { n_keys, .. } = options.attention else {
            return Ok(None);
        };
        let graph = &self.model.model().graph;
        let compiled = compile(&self.cache, graph, &self.machine, Phase::Decode, &options)?;
        let alias = self.features().has(Feature::Alias);
        let key = |call: &lower::Call, _: &Container| format!("{}+{n_keys}", call.set);
        let prepared = Arc::new(Prepared::new(compiled, graph, alias, key)?);
        self.fill(&prepared, 0)?;
        Ok(Some(prepared))
    }

    /// Before a session's pass with a plan that reads the device's copy of the cache: what another
    /// session left there is none of its own.
    pub(super) fn own_cache(&self, session: u64, cache: &mut HeadMajorCache) {
        let mut owner = lock(&self.cached.owner);
        if *owner != Some(session) {
            cache.forget_device();
            *owner = Some(session);
        }
    }

    /// Brings a layer's rows up to `n_rows` to the device, where the plan reads them there.
    pub(super) fn sync_cache(
        &self,
        prepared: &Prepared,
        cache: &mut HeadMajorCache,
        layer: usize,
        n_rows: usize,
    ) -> Result<Traffic, NpuError> {
        let mut traffic = Traffic::default();
        for of in [CachePart::Keys, CachePart::Values] {
            let Some((index, slot)) = prepared.cache_slot(layer, of) else {
                return Ok(traffic);
            };
            let Some(call) = prepared.plan.calls().nth(index) else {
                return Err(NpuError::plan("the cache", "no such call"));
            };
            let rows = cache.rows_on_device(layer)..n_rows;
            let parts = cache.parts(layer, of, rows);
            let (container, key) = (prepared.container(call), prepared.key(index));
            traffic += self.cache.write_parts(container, key, slot, &parts)?;
        }
        cache.set_on_device(layer, n_rows);
        Ok(traffic)
    }
}
