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
use millrace_npu::{Container, Traffic};
use millrace_xdna2::compile::compile;
use millrace_xdna2::lower::{self, AttentionOn, CachePart, Feature, Phase, key_bucket};
use std::collections::HashMap;
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
        self.sequences().cache_rows() as usize
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
        let options = self.sequences().decode(first as u64);
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
