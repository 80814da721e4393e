//! Recently compiled grammars: agents send the same tools at every turn.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use super::constraint::Constraint;
use super::{Grammar, GrammarError};

/// Maximum number of grammars kept for each model.
const MAX_ENTRIES: usize = 64;

/// Their approximate maximum size together, in bytes.
const MAX_BYTES: usize = 128 << 20;

/// Key of a grammar: a hash of its scope and its source.
pub(super) type GrammarKey = [u8; 32];

/// Result of compiling a grammar.
pub(super) type Compilation = Result<Arc<Constraint>, GrammarError>;

/// A grammar's key within a scope.
pub(super) fn key(scope: u64, grammar: &Grammar) -> GrammarKey {
    let mut hasher = Sha256::new();
    hasher.update(scope.to_le_bytes());
    // A grammar is JSON or text, so serialising cannot fail.
    hasher.update(serde_json::to_vec(grammar).unwrap_or_default());
    hasher.finalize().into()
}

struct GrammarEntry {
    key: GrammarKey,
    kept: Compilation,
    n_bytes: usize,
}

#[derive(Default)]
struct GrammarEntries {
    /// The most recently used one is the last.
    list: VecDeque<GrammarEntry>,
    n_bytes: usize,
}

/// The cache. The least recently used grammars are dropped first.
#[derive(Default)]
pub(super) struct GrammarCache {
    entries: Mutex<GrammarEntries>,
}

impl GrammarCache {
    fn entries(&self) -> MutexGuard<'_, GrammarEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, key: &GrammarKey) -> Option<Compilation> {
        let mut entries = self.entries();
        let at = entries.list.iter().position(|entry| entry.key == *key)?;
        let entry = entries.list.remove(at)?;
        let kept = entry.kept.clone();
        entries.list.push_back(entry);
        Some(kept)
    }

    /// Keeps the result of compiling a grammar, unless it is too large.
    pub(super) fn put(&self, key: GrammarKey, kept: Compilation, n_bytes: usize) {
        if n_bytes > MAX_BYTES {
            return;
        }
        let mut entries = self.entries();
        if let Some(at) = entries.list.iter().position(|entry| entry.key == key)
            && let Some(old) = entries.list.remove(at)
        {
            entries.n_bytes -= old.n_bytes;
        }
        entries.n_bytes += n_bytes;
        entries.list.push_back(GrammarEntry { key, kept, n_bytes });
        while entries.list.len() > MAX_ENTRIES || entries.n_bytes > MAX_BYTES {
            let Some(oldest) = entries.list.pop_front() else {
                return;
            };
            entries.n_bytes -= oldest.n_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Compilation {
        Err(GrammarError::NoEnd)
    }

    #[test]
    fn it_is_bounded_by_number_and_by_bytes() {
        let cache = GrammarCache::default();
        let key = |n: u64| key(n, &Grammar::JsonObject);
        let count = |most| (0..most).filter(|n| cache.get(&key(*n)).is_some()).count();
        (0..MAX_ENTRIES as u64 + 9).for_each(|n| cache.put(key(n), refused(), 1));
        assert_eq!(count(200), MAX_ENTRIES);
        assert!(cache.get(&key(8)).is_none(), "the oldest went");
        cache.put(key(0), refused(), MAX_BYTES - 2);
        assert_eq!(count(200), 3);
        cache.put(key(1), refused(), MAX_BYTES + 1);
        assert_eq!(count(200), 3, "too large by itself");
        // Put again, it counts once.
        (0..9).for_each(|_| cache.put(key(0), refused(), MAX_BYTES / 2));
        assert_eq!(count(200), 3);
    }

    #[test]
    fn scopes_share_nothing() {
        let cache = GrammarCache::default();
        cache.put(key(1, &Grammar::JsonObject), refused(), 1);
        assert!(cache.get(&key(1, &Grammar::JsonObject)).is_some());
        assert!(cache.get(&key(2, &Grammar::JsonObject)).is_none());
        let other = Grammar::Regex("x".to_owned());
        assert!(cache.get(&key(1, &other)).is_none());
        assert_ne!(key(1, &other), key(1, &Grammar::Lark("x".to_owned())));
    }
}
