//! Facts about the programs that are loaded.

use super::{ProgramCache, lock};
use crate::LoadedProgram;
use std::collections::BTreeSet;
use std::sync::Arc;

impl ProgramCache {
    /// Loaded programs that run on something else than the device was opened for: name and reason, each pair once, in
    /// order.
    pub fn substitutes(&self) -> Vec<(String, String)> {
        let loaded = lock(&self.loaded);
        let reason = |program: &Arc<dyn LoadedProgram>| {
            Some((program.name().to_owned(), program.substitute()?.to_owned()))
        };
        let all: BTreeSet<(String, String)> = loaded.values().filter_map(reason).collect();
        all.into_iter().collect()
    }

    /// Number of distinct names of the loaded programs.
    pub fn n_loaded(&self) -> usize {
        let loaded = lock(&self.loaded);
        let names: BTreeSet<&str> = loaded.values().map(|program| program.name()).collect();
        names.len()
    }
}
