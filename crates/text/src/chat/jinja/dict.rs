//! Dictionaries, in the order of insertion.

use super::compare::{DictKey, equal};
use super::fault::Res;
use super::value::{Value, depth_around};
use std::collections::HashMap;

/// Number of entries from which on an index is kept.
const INDEX_FROM: usize = 9;

#[derive(Default)]
pub(crate) struct Dict {
    entries: Vec<(Value, Value)>,
    index: HashMap<DictKey, usize>,
    depth: u32,
}

impl Dict {
    /// A dictionary of pairs, of which later ones replace earlier ones of the same key.
    pub(crate) fn new(pairs: impl IntoIterator<Item = (Value, Value)>) -> Res<Dict> {
        let mut dict = Dict::default();
        for (key, value) in pairs {
            dict.insert(key, value)?;
        }
        let entries = dict.entries.iter();
        dict.depth = depth_around(entries.flat_map(|(k, v)| [k, v]))?;
        Ok(dict)
    }

    fn insert(&mut self, key: Value, value: Value) -> Res<()> {
        let hashed = DictKey::new(key.clone())?;
        match self.place(&hashed) {
            Some(at) => self.entries[at].1 = value,
            None => {
                super::fault::items(self.entries.len())?;
                self.entries.push((key, value));
                let n = self.entries.len();
                if n == INDEX_FROM {
                    let keys = self.entries.iter().enumerate();
                    let keys = keys.map(|(at, (key, _))| Ok((DictKey::new(key.clone())?, at)));
                    self.index = keys.collect::<Res<_>>()?;
                } else if n > INDEX_FROM {
                    self.index.insert(hashed, n - 1);
                }
            }
        }
        Ok(())
    }

    fn place(&self, key: &DictKey) -> Option<usize> {
        match self.index.is_empty() {
            true => self
                .entries
                .iter()
                .position(|(known, _)| equal(known, key.value())),
            false => self.index.get(key).copied(),
        }
    }

    /// The value of a key; an error if such a value cannot be a key.
    pub(crate) fn get(&self, key: &Value) -> Res<Option<&Value>> {
        let key = DictKey::new(key.clone())?;
        Ok(self.place(&key).map(|at| &self.entries[at].1))
    }

    pub(crate) fn get_str(&self, key: &str) -> Option<&Value> {
        if self.index.is_empty() {
            let found = self
                .entries
                .iter()
                .find(|(known, _)| known.as_str() == Some(key));
            return found.map(|(_, value)| value);
        }
        self.get(&Value::from(key)).ok().flatten()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Value, &Value)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Value> {
        self.entries.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        self.entries.iter().map(|(_, value)| value)
    }
}
