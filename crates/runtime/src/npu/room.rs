//! Which plans of prompts keep their buffers.

use super::NpuModel;
use super::model::lock;
use super::prepared::PreparedPlan;
use millrace_plan::{PassKind, Phase};

/// Plans of prompts that keep their buffers.
const MAX_PROMPT_PLANS: usize = 4;

impl NpuModel {
    /// Frees buffers of the least recently used plans of prompts. The buffers of each length are unique, so otherwise every
    /// length that ever came would keep its own. Plans that read the device's cache keep theirs, because the cache is nowhere
    /// else.
    pub(super) fn make_room(&self, used: (PassKind, bool), prepared: &PreparedPlan) {
        if used.0.phase != Phase::Prefill || prepared.reads_cache() {
            return;
        }
        let mut recent = lock(&self.recent);
        recent.retain(|other| *other != used);
        recent.push(used);
        while recent.len() > MAX_PROMPT_PLANS {
            let oldest = recent.remove(0);
            let plans = lock(&self.plans);
            let Some(let_go) = plans.get(&oldest) else {
                continue;
            };
            *lock(&let_go.filled) = false;
            let others = || plans.iter().filter(|(kind, _)| **kind != oldest);
            let only_its = |key: &&str| others().all(|(_, plan)| !plan.keys().any(|k| k == *key));
            for key in let_go.keys().filter(only_its) {
                self.cache.forget(key);
                let of_experts = lock(&self.experts).take_keys_of(key);
                of_experts.iter().for_each(|key| _ = self.cache.forget(key));
            }
        }
    }
}
