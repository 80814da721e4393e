//! The experts' matrices on the device: each stays from its first choice until others need the room.

use crate::npu::NpuError;
use crate::npu::model::{NpuModel, lock};
use crate::npu::prepared::PreparedPlan;
use millrace_npu::Role;
use millrace_npu::cache::CacheError;
use millrace_plan::Call;
use std::collections::HashMap;

/// Experts' matrices that are on the device, by the names of their first buffers.
#[derive(Debug, Default)]
pub(in crate::npu) struct ExpertSets {
    on_device: HashMap<String, ExpertMatrix>,
    /// Uses so far.
    now: u64,
    /// Size of all of them.
    bytes: u64,
}

/// A matrix on the device.
#[derive(Debug, Default)]
struct ExpertMatrix {
    bytes: u64,
    last_use: u64,
    /// Buffer sets that have it: one for each plan.
    keys: Vec<String>,
    /// Names of its buffers.
    names: Vec<String>,
}

impl ExpertSets {
    /// Whether the matrix is in that buffer set. The call counts as a use.
    fn uses(&mut self, name: &str, key: &str) -> bool {
        self.now += 1;
        let now = self.now;
        let Some(matrix) = self.on_device.get_mut(name) else {
            return false;
        };
        matrix.last_use = now;
        matrix.keys.iter().any(|known| known == key)
    }

    /// Records that a matrix is in that buffer set.
    fn add(&mut self, names: Vec<String>, key: &str, bytes: u64) {
        let (Some(first), now) = (names.first().cloned(), self.now) else {
            return;
        };
        let all = &mut self.bytes;
        let matrix = self.on_device.entry(first).or_insert_with(|| {
            *all += bytes;
            ExpertMatrix {
                bytes,
                names,
                ..ExpertMatrix::default()
            }
        });
        matrix.last_use = now;
        matrix.keys.push(key.to_owned());
    }

    /// Takes out the least recently used matrix; `None` if there is none.
    fn take_oldest(&mut self) -> Option<ExpertMatrix> {
        let oldest = self.on_device.iter().min_by_key(|(_, m)| m.last_use);
        let name = oldest.map(|(name, _)| name.clone())?;
        let matrix = self.on_device.remove(&name)?;
        self.bytes -= matrix.bytes;
        Some(matrix)
    }

    /// Removes and returns the keys of the experts' buffer sets of the call with this key.
    pub(in crate::npu) fn take_keys_of(&mut self, call_key: &str) -> Vec<String> {
        let mut taken = Vec::new();
        for matrix in self.on_device.values_mut() {
            let (of_call, others) = std::mem::take(&mut matrix.keys)
                .into_iter()
                .partition(|key| {
                    key.rsplit_once(EXPERT)
                        .is_some_and(|(of, _)| of == call_key)
                });
            matrix.keys = others;
            let of_call: Vec<String> = of_call;
            taken.extend(of_call);
        }
        let all = &mut self.bytes;
        self.on_device.retain(|_, matrix| {
            let stays = !matrix.keys.is_empty();
            *all -= if stays { 0 } else { matrix.bytes };
            stays
        });
        taken
    }
}

/// Between the key of a call and an expert's number.
const EXPERT: char = '#';

impl NpuModel {
    /// Bytes of experts' matrices that the device holds at most.
    fn expert_room(&self) -> u64 {
        let half = self.cache.device().info().memory_bytes / 2;
        self.options.expert_bytes.unwrap_or(half)
    }

    /// Lets go of the expert's matrix that was not used for the longest time. Whether there was one.
    fn let_expert_go(&self) -> bool {
        let oldest = lock(&self.experts).take_oldest();
        let Some(matrix) = oldest else {
            return false;
        };
        for key in &matrix.keys {
            self.cache.forget(key);
        }
        let mut scales = lock(&self.scales);
        for name in &matrix.names {
            scales.remove(name);
        }
        true
    }

    /// Has an expert's matrix on the device, in the buffer set of that key.
    pub(in crate::npu) fn hold_expert(
        &self,
        prepared: &PreparedPlan,
        (call, index): (&Call, usize),
        expert: usize,
        key: &str,
    ) -> Result<(), NpuError> {
        let container = prepared.container(call);
        let (mut names, mut bytes) = (Vec::new(), 0);
        for (number, slot) in container.slots().iter().enumerate() {
            if slot.role == Role::Static {
                names.extend(expert_name(prepared, index, number, expert));
                bytes += slot.size_bytes().unwrap_or(0);
            }
        }
        let known = names.first().map_or(key, String::as_str);
        let (is_there, is_new) = {
            let mut experts = lock(&self.experts);
            let is_there = experts.uses(known, key);
            (is_there, !experts.on_device.contains_key(known))
        };
        if is_there {
            return Ok(());
        }
        let room = self.expert_room().saturating_sub(bytes);
        while is_new && lock(&self.experts).bytes > room && self.let_expert_go() {}
        let name = |slot: usize| match container.slots()[slot].role {
            Role::Static => expert_name(prepared, index, slot, expert),
            _ => prepared.buffer_name(index, slot).map(str::to_owned),
        };
        loop {
            let mut fill = |slot: usize, bytes: &mut [u8]| -> Result<(), NpuError> {
                let scales = self.fill_expert(prepared, call, slot, expert, bytes)?;
                if let Some(name) = name(slot) {
                    lock(&self.scales).insert(name, scales);
                }
                Ok(())
            };
            match self.cache.preload_with(container, key, &name, &mut fill) {
                Ok(traffic) => {
                    *lock(&self.loaded) += traffic;
                    lock(&self.experts).add(names, key, bytes);
                    return Ok(());
                }
                // Other experts make room, as long as there are any.
                Err(NpuError::Cache(CacheError::Alloc { .. })) if self.let_expert_go() => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Name under which sets know the buffer of an expert's matrix.
pub(super) fn expert_name(
    prepared: &PreparedPlan,
    index: usize,
    slot: usize,
    expert: usize,
) -> Option<String> {
    let name = prepared.buffer_name(index, slot)?;
    Some(format!("{name}{EXPERT}{expert}"))
}

/// The buffer set of an expert in the call with this key.
pub(super) fn key(of_call: &str, expert: usize) -> String {
    format!("{of_call}{EXPERT}{expert}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(sets: &mut ExpertSets, name: &str, key: &str) {
        if !sets.uses(name, key) {
            sets.add(vec![name.to_owned()], key, 10);
        }
    }

    #[test]
    fn the_matrix_that_was_not_used_for_the_longest_time_goes_first() {
        let mut sets = ExpertSets::default();
        for (name, key) in [
            ("w#0", "up#0"),
            ("w#1", "up#1"),
            ("w#0", "up@64#0"),
            ("w#2", "up#2"),
        ] {
            held(&mut sets, name, key);
        }
        assert_eq!(sets.bytes, 30);
        held(&mut sets, "w#1", "up#1");
        let oldest = sets.take_oldest().map(|matrix| matrix.keys);
        // The sets of all plans.
        assert_eq!(oldest, Some(vec!["up#0".to_owned(), "up@64#0".to_owned()]));
        assert_eq!(sets.bytes, 20);
        assert!(!sets.uses("w#0", "up#0"));
    }

    #[test]
    fn a_plan_that_goes_takes_its_sets_with_it() {
        let mut sets = ExpertSets::default();
        for (name, key) in [
            ("w#0", "up#0"),
            ("w#0", "up@64#0"),
            ("w#1", "up@64#1"),
            ("v#1", "u@64#1"),
        ] {
            held(&mut sets, name, key);
        }
        let mut taken = sets.take_keys_of("up@64");
        taken.sort();
        assert_eq!(taken, ["up@64#0", "up@64#1"]);
        assert!(sets.uses("w#0", "up#0") && !sets.uses("w#1", "up@64#1"));
        assert_eq!(sets.bytes, 20);
    }
}
